"""Evidence against calibration: an e-process with period effects, valid however often it is looked at."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline

from mcnet._shared.arrays import FloatArray, IndexArray, IntArray, MaskArray, logit, sigmoid, sums_by
from mcnet.tracking.value_changes import AlikeRows

# Null hypothesis: in every period the true logits are the served ones plus a period effect u, drawn anew each period
# from a normal distribution whose standard deviation τ is unknown; τ = 0 is a world without period effects. The effects
# are centred either in logits (mean 0) or in odds (mean −τ²/2). Or they are contaminated: with a small fixed chance the
# effect of a period is drawn from a wide normal distribution instead, as in an hour whose labels were lost. One such
# period then tells nothing of τ, and does not blind the monitor. Alternative: from some period on their mean is δ ≠ 0.
#
# The e-process is a likelihood ratio, E = (mixture over changes and δ, τ) / (maximum over τ of the null likelihood).
# Its numerator is the probability that one fixed distribution gives the data, and its denominator is at least what the
# true null gives them, so under any null P(E ever reaches 1/α) ≤ α (Ville's inequality; universal inference, Wasserman,
# Ramdas and Balakrishnan 2020).

# Shifts of the logit that the alternative considers, and how probable each is before any data.
# The largest ones are for a feed that broke: no positives at all, or everything positive.
_SIZES = 0.02 * 1.5 ** np.arange(13)
_SIZE_WEIGHTS = np.array([0.02, 0.04, 0.20, 0.11, 0.18, 0.09, 0.07, 0.07, 0.08, 0.06, 0.04, 0.02, 0.02])
_SHIFTS = np.concatenate([-_SIZES[::-1], _SIZES])
_SHIFT_WEIGHTS = 0.5 * np.concatenate([_SIZE_WEIGHTS[::-1], _SIZE_WEIGHTS])
# The numerator is a mixture over few standard deviations of the period effect, the denominator a maximum over many: a
# coarse maximum would miss the best one and overstate the evidence.
_MIXED_EFFECTS = np.array([0.0, 0.02, 0.05, 0.12, 0.3])
_MIXED_WEIGHTS = np.array([0.6, 0.1, 0.1, 0.1, 0.1])
_NULL_EFFECTS = np.concatenate([[0.0], 0.004 * 1.15 ** np.arange(41)])
_STATES = np.concatenate([[0.0], _SHIFTS])
# Means and standard deviations of the effects: of every null, centred in logits and then in odds …
_NULL = (
    np.concatenate([np.zeros(len(_NULL_EFFECTS)), -0.5 * _NULL_EFFECTS[1:] ** 2]),
    np.concatenate([_NULL_EFFECTS, _NULL_EFFECTS[1:]]),
)
_NULL_EFFECT = np.tile(_NULL[1], 2)
_CONTAMINATED = np.repeat([False, True], len(_NULL[1]))
# … and of the mixture `[effects, states]`, between the two ways of centring.
_MIXTURE = np.broadcast_arrays(_STATES - 0.25 * _MIXED_EFFECTS[:, None] ** 2, _MIXED_EFFECTS[:, None])
# Miscalibration is there from the start with this probability; else it begins in the n-th period with probability
# 1/(n + _PATIENCE) if it has not begun before.
_FROM_THE_START = 0.6
_PATIENCE = 10.0
_START = np.log(np.outer(_MIXED_WEIGHTS, [1.0 - _FROM_THE_START, *(_FROM_THE_START * _SHIFT_WEIGHTS)]))
_NEWTON_STEPS, _SMALL_STEP = 8, 1e-7
_WILD_CHANCE, _WILD_EFFECT = 0.003, 1.5
"""The share of wild periods under contaminated effects, and the standard deviation of their effects."""

NODES = np.concatenate([-np.geomspace(3.0, 0.02, 30), [0.0], np.geomspace(0.02, 3.0, 30)])
"""Shifts at which likelihoods are summed up over cells; between them they are interpolated."""


class PeriodLikelihoods:
    """The likelihoods of one period's counts, of several groups of cells, as functions of a shift u of the logits.

    log r(u) = Σ [y·u − w·log(1 − p + p·exp(u))] over a group's cells of weight w, positives y and probability p. All
    groups are computed together. (The slope has other likelihoods of the same form: `slope_likelihoods`.)
    """

    def __init__(self, cumulants: FloatArray, positives: FloatArray) -> None:
        """Take Σ w·log(1 − p + p·exp(u)) `[nodes, groups]` and Σ y `[groups]`."""
        self._positives = positives[:, None]
        self._coefficients = CubicSpline(NODES, cumulants).c  # [power, interval, group]
        self._groups = np.arange(len(positives))[:, None]

    @staticmethod
    def of_groups(
        probability: FloatArray,
        weight: FloatArray,
        positives: FloatArray,
        groupings: Sequence[tuple[IndexArray, int]],
    ) -> list["PeriodLikelihoods"]:
        """Return the likelihoods of each grouping, given as codes of the cells and the number of codes."""
        found = [np.empty((len(NODES), number)) for _, number in groupings]
        # Node by node, so that memory does not grow with cells × nodes; the logarithms serve all groupings.
        for place, odds in enumerate(np.expm1(NODES)):
            terms = weight * np.log1p(probability * odds)
            for cumulants, (codes, number) in zip(found, groupings, strict=True):
                cumulants[place] = sums_by(codes, terms, number)
        sums = [sums_by(codes, positives, number) for codes, number in groupings]
        return [PeriodLikelihoods(cumulants, total) for cumulants, total in zip(found, sums, strict=True)]

    def marginals(self) -> list["Marginals"]:
        """Return for each group the log-likelihood of every hypothesis that the evidence compares."""
        null = self.log_marginal(*_NULL)
        means, effects = _MIXTURE
        mixture = self.log_marginal(means.ravel(), effects.ravel())
        wild = self.log_marginal(np.zeros(1), np.array([_WILD_EFFECT])) + np.log(_WILD_CHANCE)
        null = np.concatenate([null, np.logaddexp(null + np.log1p(-_WILD_CHANCE), wild)], axis=1)
        mixture = np.logaddexp(mixture + np.log1p(-_WILD_CHANCE), wild).reshape(-1, *means.shape)
        return [Marginals(*found) for found in zip(null, mixture, strict=True)]

    def log_marginal(self, mean: FloatArray, effect: FloatArray) -> FloatArray:
        """Return log-likelihoods `[groups, effects]` of normal effects with these means and standard deviations.

        A standard deviation of 0 is a shift by the mean without effects.
        """
        at = np.broadcast_to(np.clip(mean, NODES[0], NODES[-1]), (len(self._groups), len(mean)))
        spread = effect > 0.0
        found = np.empty(at.shape)
        found[:, ~spread] = at[:, ~spread] * self._positives - self._cumulant(at[:, ~spread])[0]
        if not spread.any():
            return found
        centre, precision = at[:, spread], effect[spread] ** -2.0
        # Laplace's method around the mode of likelihood times prior, found by Newton's method.
        mode = centre.copy()
        for _ in range(_NEWTON_STEPS):
            _, first, second = self._cumulant(mode)
            slope = self._positives - first - precision * (mode - centre)
            step = np.clip(slope / (np.maximum(second, 0.0) + precision), -0.5, 0.5)
            mode = np.clip(mode + step, NODES[0], NODES[-1])
            if np.abs(step).max(initial=0.0) < _SMALL_STEP:
                break
        value, _, second = self._cumulant(mode)
        height = mode * self._positives - value - 0.5 * precision * (mode - centre) ** 2
        found[:, spread] = height + 0.5 * np.log(precision / (np.maximum(second, 0.0) + precision))
        return found

    def _cumulant(self, at: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the cumulants `[groups, points]` at points of each group, and their first two derivatives."""
        place = np.clip(np.searchsorted(NODES, at, side="right") - 1, 0, len(NODES) - 2)
        x = at - NODES[place]
        a, b, c, d = self._coefficients[:, place, self._groups]
        return ((a * x + b) * x + c) * x + d, (3.0 * a * x + 2.0 * b) * x + c, 6.0 * a * x + 2.0 * b


@dataclass(frozen=True)
class Marginals:
    """What the evidence asks of a period: the log-likelihood of each null, and of each state of the alternative."""

    null: FloatArray
    """First of normal effects, then of contaminated ones."""
    mixture: FloatArray
    """By effect and state; the first state is no shift."""


@dataclass
class Evidence:
    """The state of one hypothesis: about two hundred numbers, whatever the number of rows and periods.

    Parameters
    ----------
    largest_effect : the largest standard deviation of period effects that the null hypothesis may have; infinite to
        let the data tell, 0 for a world without period effects.
    """

    largest_effect: float = np.inf
    periods: int = 0
    null: FloatArray = field(default_factory=lambda: np.zeros(len(_NULL_EFFECT)))
    """The log-likelihood of every null so far."""
    mixture: FloatArray = field(default_factory=lambda: _START)
    """The log of the joint probability of the data so far and of each state (effect, no change or shift) now."""
    began: IntArray = field(default_factory=lambda: np.zeros((len(_MIXED_EFFECTS), len(_STATES)), dtype=np.int64))
    """For each state, the period (counted from 0) in which it most probably began."""

    @staticmethod
    def of_many(number: int, largest_effect: float = np.inf) -> "Evidence":
        """Return the evidence of many hypotheses that see the same number of periods, as arrays with one more axis."""
        one = Evidence(largest_effect)
        null, mixture = (np.repeat(array[None], number, axis=0) for array in (one.null, one.mixture))
        return Evidence(largest_effect, 0, null, mixture, np.repeat(one.began[None], number, axis=0))

    def learn(self, period: Marginals) -> None:
        """Take in a period that is known to be calibrated: it tells of period effects and of nothing else."""
        self.null = self.null + period.null
        self.mixture = self.mixture + period.mixture[..., :1]

    def update(self, period: Marginals) -> None:
        """Take in one more period."""
        self.null = self.null + period.null
        begins = -np.log(self.periods + _PATIENCE)
        before = self.mixture
        if self.periods:
            entering = before[..., :1] + begins + np.log(_SHIFT_WEIGHTS)
            self.began = self.began.copy()
            self.began[..., 1:][entering > before[..., 1:]] = self.periods
            moved = np.logaddexp(before[..., 1:], entering)
            before = np.concatenate([before[..., :1] + np.log1p(-np.exp(begins)), moved], axis=-1)
        self.mixture = before + period.mixture
        self.periods += 1

    @property
    def log_value(self) -> float:
        """Return the logarithm of the e-value: how strongly the data speak against calibration."""
        return float(self.log_values())

    def log_values(self) -> FloatArray:
        """Return the logarithm of the e-value of each of many hypotheses."""
        # Who states a largest effect states that there are no wild periods.
        stated = np.isfinite(self.largest_effect)
        allowed = self.null[..., (self.largest_effect >= _NULL_EFFECT) & ~(_CONTAMINATED & stated)]
        flat = self.mixture.reshape(*self.mixture.shape[:-2], -1)
        return np.asarray(np.logaddexp.reduce(flat, axis=-1) - allowed.max(axis=-1))

    @property
    def shift(self) -> float:
        """Return the most probable shift of the logit now; 0 while no change is more probable than a change."""
        by_state = np.logaddexp.reduce(self.mixture, axis=0)
        return float(_STATES[int(np.argmax(by_state))])

    @property
    def since(self) -> int:
        """Return the period, counted from 0, in which the most probable shift most probably began."""
        effect, state = np.unravel_index(int(np.argmax(self.mixture[:, 1:])), (len(_MIXED_EFFECTS), len(_SHIFTS)))
        return int(self.began[effect, 1 + state])

    @property
    def kept_nulls(self) -> FloatArray:
        """Return the log-likelihoods of the nulls that a confidence sequence considers `[2, nulls]`."""
        return self.null.reshape(2, -1)[:, NULLS_KEPT]

    @property
    def effect(self) -> float:
        """Return the most likely standard deviation of the period effects under the null."""
        return float(_NULL_EFFECT[int(np.argmax(self.null))])

    def state(self) -> dict[str, object]:
        """Return the state as JSON-able values."""
        return {
            "largest_effect": self.largest_effect if np.isfinite(self.largest_effect) else None,
            "periods": self.periods,
            **{name: getattr(self, name).tolist() for name in ("null", "mixture", "began")},
        }

    @staticmethod
    def restored(state: dict[str, Any]) -> "Evidence":
        """Return the evidence that `state` described."""
        bound = np.inf if state["largest_effect"] is None else float(state["largest_effect"])
        null, mixture, began = (np.array(state[name]) for name in ("null", "mixture", "began"))
        periods = int(state["periods"])
        if len(null) == len(_NULL[0]):  # of before there were contaminated effects: none of the periods was wild
            null = np.concatenate([null, null + periods * np.log1p(-_WILD_CHANCE)])
        return Evidence(bound, periods, null, mixture, began)


# A confidence sequence for the shift since a version was published.
#
# Hypothesis of a shift δ: the effects of the periods since then have the mean δ; before it was 0. Their standard
# deviation is any of a grid, and they may be contaminated, as above. Each δ is tested by a likelihood ratio as above,
# with a mixture over shifts in the numerator; the interval has those whose e-value is below 1/(1 − level). So it
# includes the true shift in all periods of the version at once with at least that probability.

LEVEL = 0.95
MOST_PERIODS = 32
"""Of a version that has served longer, the older half of so many periods is dropped."""
NULLS_KEPT = np.concatenate([[0], np.arange(1, len(_NULL_EFFECTS), 3)])
"""Of the standard deviations of effects, those that the confidence sequence considers."""
_SHIFT_SCALE = 0.15
"""Of the Cauchy distribution of shifts in the numerator."""
_GRID, _ZOOMS, _ZOOM_TO, _FARTHEST = 33, 5, 20.0, 4.0


def shift_interval(
    periods: FloatArray, before: FloatArray, largest_effect: float = np.inf
) -> tuple[float, float, float]:
    """Return the most likely shift of the logits, and the ends of its confidence sequence.

    Parameters
    ----------
    periods : of each period the positives, the expected ones, and their information Σ w p (1 − p); `[periods, 3]`.
    before : the log-likelihood of the periods before under the nulls that are kept, of normal effects and then of
        contaminated ones; `[2, nulls]`.
    largest_effect : as in `Evidence`.
    """
    effects = _NULL_EFFECTS[NULLS_KEPT]
    allowed = np.stack([effects <= largest_effect, (effects <= largest_effect) & np.isinf(largest_effect)])
    before = np.where(allowed, before - before[allowed].max(), -np.inf)
    prior = np.log(np.where(effects > 0.0, 0.5 / (len(effects) - 1), 0.5) / 2.0)
    low, high = -_FARTHEST, _FARTHEST
    for _ in range(_ZOOMS):
        shifts = np.linspace(low, high, _GRID)
        likelihood = before + _of_shifts(periods, shifts, effects)  # [shifts, 2, nulls]
        profile = likelihood.max(axis=(1, 2))
        near = np.flatnonzero(profile > profile.max() - _ZOOM_TO)
        low, high = shifts[max(near[0] - 1, 0)], shifts[min(near[-1] + 1, _GRID - 1)]
    weight = np.log((shifts[1] - shifts[0]) / (np.pi * _SHIFT_SCALE * (1.0 + (shifts / _SHIFT_SCALE) ** 2)))
    numerator = np.logaddexp.reduce((likelihood + prior + weight[:, None, None]).ravel())
    beyond = numerator - _finer_maximum(likelihood) - np.log(1.0 / (1.0 - LEVEL))  # below 0 inside the interval
    inside = np.flatnonzero(beyond <= max(float(beyond.min()), 0.0))
    ends = []
    for place, step in ((inside[0], -1), (inside[-1], 1)):
        other = place + step
        share = 0.0
        if 0 <= other < _GRID and beyond[place] < 0.0:
            share = -beyond[place] / (beyond[other] - beyond[place])
        end = shifts[place] + step * share * (shifts[1] - shifts[0])
        ends.append(float(end) if 0 <= other < _GRID else step * np.inf)
    return float(shifts[int(np.argmin(beyond))]), ends[0], ends[1]


def _finer_maximum(likelihood: FloatArray) -> FloatArray:
    """Return the maximum over standard deviations `[shifts, 2, nulls]`, by a parabola through the three best ones."""
    best = np.clip(likelihood.argmax(axis=2), 2, likelihood.shape[2] - 2)  # not the one of 0, which has no logarithm
    left, middle, right = (np.take_along_axis(likelihood, (best + k)[..., None], 2)[..., 0] for k in (-1, 0, 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        rise = (right - left) ** 2 / (8.0 * (2.0 * middle - left - right))
    peak = (middle >= left) & (middle >= right) & np.isfinite(rise)
    return np.asarray(np.maximum(likelihood.max(axis=2), np.where(peak, middle + rise, -np.inf)).max(axis=1))


def _of_shifts(periods: FloatArray, shifts: FloatArray, effects: FloatArray) -> FloatArray:
    """Return the log-likelihood of periods `[shifts, 2, effects]`, of normal effects and of contaminated ones."""
    rows, number = AlikeRows(*periods.T), len(periods)
    mean = np.tile(np.repeat(shifts, len(effects)), (number, 1))
    each = rows.marginal(mean, np.tile(effects**2, (number, len(shifts))))[0]  # [periods, shifts × effects]
    wild = rows.marginal(np.zeros((number, 1)), np.full((number, 1), _WILD_EFFECT**2))[0] + np.log(_WILD_CHANCE)
    mixed = np.logaddexp(each + np.log1p(-_WILD_CHANCE), wild)
    return np.stack([part.sum(axis=0).reshape(len(shifts), -1) for part in (each, mixed)], axis=1)


def pcoc_of_shift(periods: FloatArray, shift: float) -> float:
    """Return expected positives over those at a shift of the logits; `periods` as in `shift_interval`."""
    if not np.isfinite(shift):
        return 0.0 if shift > 0.0 else np.inf
    number, centre = AlikeRows(*periods.T).number_and_logit
    return float(periods[:, 1].sum() / (number * sigmoid(centre + shift)).sum())


# The likelihood of a wrong slope, given the level of the period.
#
# A period effect shifts all logits by an unknown u. However well a direction is centred, such a shift looks like a
# slope to second order, always of the same sign, and adds up over periods. So the level is taken out for good: given
# how many positives a period has, the probability of which rows they are does not depend on u. Its logarithm is that of
# the likelihood at the best u for each slope s, plus half the logarithm of the information about u there (the double
# saddlepoint approximation; Davison 1988, Barndorff-Nielsen and Cox 1979):
#
#     log r(s) = ℓ(û(s), s) + ½ log i(û(s), s), up to a constant.

_BINS = 512
"""Cells of nearly the same probability are taken together, so that a period costs the same however many it has."""
_LARGEST_DIRECTION = 3.0
_SLOPE_NEWTON_STEPS, _SMALL_SLOPE_STEP, _LARGEST_STEP = 25, 1e-7, 1.0


def slope_marginals(probability: FloatArray, weight: FloatArray, positives: FloatArray) -> Marginals | None:
    """Return what the evidence asks of the slope of a period's rows; None if all probabilities are the same."""
    logits = logit(probability)
    width = float(np.ptp(logits)) / _BINS
    if width <= 0.0:
        return None
    codes = np.minimum(((logits - logits.min()) / width).astype(np.int64), _BINS - 1)
    total = sums_by(codes, weight, _BINS)
    there = total > 0.0
    sums = [sums_by(codes, part, _BINS)[there] for part in (probability * weight, positives)]
    total = total[there]
    mean = sums[0] / total
    information = total * mean * (1.0 - mean)
    centred = logit(mean) - np.average(logit(mean), weights=information)
    spread = float(np.sqrt(np.average(centred**2, weights=information)))
    if spread <= 0.0:
        return None
    direction = np.clip(centred / spread, -_LARGEST_DIRECTION, _LARGEST_DIRECTION)
    only = np.zeros(len(mean), dtype=np.int64)
    return slope_likelihoods(mean, total, sums[1], direction, only, 1).marginals()[0]


def slope_likelihoods(
    probability: FloatArray,
    weight: FloatArray,
    positives: FloatArray,
    direction: FloatArray,
    codes: IndexArray,
    number: int,
) -> PeriodLikelihoods:
    """Return the likelihoods of shifts along a direction, given the number of positives, of groups of cells.

    Parameters
    ----------
    probability, weight, positives, direction : of each cell.
    codes, number : the group of each cell, and how many groups there are.
    """
    logits = logit(probability)
    observed, rows = sums_by(codes, positives, number), sums_by(codes, weight, number)
    along = sums_by(codes, positives * direction, number)
    # With no positive, or nothing else, there is nothing to tell high scores from low ones by.
    telling = (observed > 0.0) & (observed < rows)
    found = np.empty((len(NODES), number))
    zero = int(np.searchsorted(NODES, 0.0))
    level, found[zero] = _profile(logits, weight, observed, codes, np.zeros(number), telling)
    for places in (range(zero + 1, len(NODES)), range(zero - 1, -1, -1)):
        near = level  # the best level of a node is near that of its neighbour
        for place in places:
            near, found[place] = _profile(logits + NODES[place] * direction, weight, observed, codes, near, telling)
    return PeriodLikelihoods(np.where(telling, found[zero] - found, NODES[:, None] * along), along)


def _profile(
    logits: FloatArray,
    weight: FloatArray,
    observed: FloatArray,
    codes: IndexArray,
    level: FloatArray,
    telling: MaskArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the best level of each group, and the likelihood there with half the logarithm of its information."""
    number = len(level)
    for _ in range(_SLOPE_NEWTON_STEPS):
        chance = sigmoid(logits + level[codes])
        information = sums_by(codes, weight * chance * (1.0 - chance), number)
        missing = observed - sums_by(codes, weight * chance, number)
        step = np.divide(missing, information, out=np.zeros(number), where=telling & (information > 0.0))
        step = np.clip(step, -_LARGEST_STEP, _LARGEST_STEP)
        level = level + step
        if np.abs(step).max(initial=0.0) < _SMALL_SLOPE_STEP:
            break
    shifted = logits + level[codes]
    spent = sums_by(codes, weight * np.logaddexp(0.0, shifted), number)
    half = 0.5 * np.log(information, out=np.zeros(number), where=information > 0.0)
    return level, level * observed - spent + half
