"""Evidence against calibration: an e-process with period effects, valid however often it is looked at."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mcnet._shared.arrays import FloatArray, IntArray, sigmoid
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
#
# A period is known by the sums of its rows: positives, expected positives, and their information Σ w p (1 − p). The
# rows count as a binomial number of alike ones with the same mean and information (`AlikeRows`).

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
_EFFECTS = np.concatenate([[0.0], 0.004 * 1.15 ** np.arange(41)])
_STATES = np.concatenate([[0.0], _SHIFTS])
# Means and standard deviations of the effects: of every null, centred in logits and then in odds …
_NULL_MEAN = np.concatenate([np.zeros(len(_EFFECTS)), -0.5 * _EFFECTS[1:] ** 2])
_NULL_EFFECT = np.concatenate([_EFFECTS, _EFFECTS[1:]])
# … and of the mixture `[effects, states]`, between the two ways of centring.
_MIXED_MEAN, _MIXED_EFFECT = np.broadcast_arrays(_STATES - 0.25 * _MIXED_EFFECTS[:, None] ** 2, _MIXED_EFFECTS[:, None])
# Miscalibration is there from the start with this probability; else it begins in the n-th period with probability
# 1/(n + _PATIENCE) if it has not begun before.
_FROM_THE_START = 0.6
_PATIENCE = 10.0
_START = np.log(np.outer(_MIXED_WEIGHTS, [1.0 - _FROM_THE_START, *(_FROM_THE_START * _SHIFT_WEIGHTS)]))
_WILD_CHANCE, _WILD_EFFECT = 0.003, 1.5
"""The share of wild periods under contaminated effects, and the standard deviation of their effects."""
_FARTHEST = 3.0
"""Positives count as no farther from the expected ones than so many logits: no positives at all are a broken feed."""


def log_likelihoods(sums: FloatArray, mean: FloatArray, effect: FloatArray) -> FloatArray:
    """Return log-likelihoods `[groups, 2, hypotheses]` under normal effects and under contaminated ones.

    Each is relative to that of no effect.

    Parameters
    ----------
    sums : of each group the positives, the expected ones, and their information; `[groups, 3]`.
    mean, effect : the mean and standard deviation of the effects, of each hypothesis.
    """
    positives, expected, information = sums.T
    number, centre = AlikeRows(positives, expected, information).number_and_logit
    positives = np.clip(positives, *(number * sigmoid(centre + far) for far in (-_FARTHEST, _FARTHEST)))
    mean, variance = np.append(mean, 0.0), np.append(effect, _WILD_EFFECT) ** 2
    alike = AlikeRows(positives, expected, information)
    each = alike.marginal(np.tile(mean, (len(sums), 1)), np.tile(variance, (len(sums), 1)))[0]
    each -= (positives * centre - number * np.logaddexp(0.0, centre))[:, None]
    normal, wild = each[:, :-1], each[:, -1:] + np.log(_WILD_CHANCE)
    return np.stack([normal, np.logaddexp(normal + np.log1p(-_WILD_CHANCE), wild)], axis=1)


def period_likelihoods(sums: FloatArray) -> FloatArray:
    """Return what the evidence asks of a period, of each group: the nulls, then the states of the mixture."""
    mean, effect = np.append(_NULL_MEAN, _MIXED_MEAN), np.append(_NULL_EFFECT, _MIXED_EFFECT)
    return log_likelihoods(sums, mean, effect)


@dataclass
class Evidence:
    """The state of one hypothesis: a few hundred numbers, whatever the number of rows and periods.

    Parameters
    ----------
    largest_effect : the largest standard deviation of period effects that the null hypothesis may have; infinite to
        let the data tell, 0 for a world without period effects.
    """

    largest_effect: float = np.inf
    periods: int = 0
    null: FloatArray = field(default_factory=lambda: np.zeros((2, len(_NULL_EFFECT))))
    """The log-likelihood of every null so far."""
    mixture: FloatArray = field(default_factory=lambda: _START)
    """The log of the joint probability of the data so far and of each state (effect, no change or shift) now."""
    began: IntArray = field(default_factory=lambda: np.zeros(_START.shape, dtype=np.int64))
    """For each state, the period (counted from 0) in which it most probably began."""

    @staticmethod
    def of_many(number: int, largest_effect: float = np.inf) -> "Evidence":
        """Return the evidence of many hypotheses that see the same number of periods, as arrays with one more axis."""
        one = Evidence(largest_effect)
        null, mixture = (np.repeat(array[None], number, axis=0) for array in (one.null, one.mixture))
        return Evidence(largest_effect, 0, null, mixture, np.repeat(one.began[None], number, axis=0))

    def learn(self, period: FloatArray) -> None:
        """Take in a period that is known to be calibrated: it tells of period effects and of nothing else."""
        self.mixture = self.mixture + self._take_nulls(period)[..., :1]

    def _take_nulls(self, period: FloatArray) -> FloatArray:
        """Add a period's likelihoods to those of the nulls; return those of the mixture, which is contaminated."""
        self.null = self.null + period[..., : len(_NULL_MEAN)]
        return period[..., 1, len(_NULL_MEAN) :].reshape(self.mixture.shape)

    def update(self, period: FloatArray) -> None:
        """Take in one more period, as `period_likelihoods` has it."""
        likelihood = self._take_nulls(period)
        begins = -np.log(self.periods + _PATIENCE)
        before = self.mixture
        if self.periods:
            entering = before[..., :1] + begins + np.log(_SHIFT_WEIGHTS)
            self.began = self.began.copy()
            self.began[..., 1:][entering > before[..., 1:]] = self.periods
            moved = np.logaddexp(before[..., 1:], entering)
            before = np.concatenate([before[..., :1] + np.log1p(-np.exp(begins)), moved], axis=-1)
        self.mixture = before + likelihood
        self.periods += 1

    @property
    def log_value(self) -> FloatArray:
        """Return the logarithm of the e-value: how strongly the data speak against calibration."""
        # Who states a largest effect states that there are no wild periods.
        kinds = slice(1) if np.isfinite(self.largest_effect) else slice(2)
        allowed = self.null[..., kinds, self.largest_effect >= _NULL_EFFECT]
        flat = self.mixture.reshape(*self.mixture.shape[:-2], -1)
        return np.asarray(np.logaddexp.reduce(flat, axis=-1) - allowed.max(axis=(-2, -1)))

    @property
    def since(self) -> int:
        """Return the period, counted from 0, in which the most probable shift most probably began."""
        effect, state = np.unravel_index(int(np.argmax(self.mixture[:, 1:])), (len(_MIXED_EFFECTS), len(_SHIFTS)))
        return int(self.began[effect, 1 + state])

    @property
    def effect(self) -> float:
        """Return the most likely standard deviation of the period effects under the null."""
        return float(_NULL_EFFECT[int(np.argmax(self.null.max(axis=0)))])

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
        return Evidence(bound, int(state["periods"]), *(np.array(state[name]) for name in ("null", "mixture", "began")))


# A confidence sequence for the shift since a version was published.
#
# Hypothesis of a shift δ: the effects of the periods since then have the mean δ; before it was 0. Their standard
# deviation is any of a grid, and they may be contaminated, as above. Each δ is tested by a likelihood ratio as above,
# with a mixture over shifts in the numerator; the interval has those whose e-value is below 1/(1 − level). So it
# includes the true shift in all periods of the version at once with at least that probability.

LEVEL = 0.95
MOST_PERIODS = 32
"""Of a version that has served longer, the older half of so many periods is dropped."""
NULLS_KEPT = np.concatenate([[0], np.arange(1, len(_EFFECTS), 3)])
"""Of the standard deviations of effects, those that the confidence sequence considers."""
_SHIFT_SCALE = 0.15
"""Of the Cauchy distribution of shifts in the numerator."""
_GRID, _ZOOMS, _ZOOM_TO, _WIDEST = 33, 5, 20.0, 4.0


def shift_interval(
    periods: FloatArray, before: FloatArray, largest_effect: float = np.inf
) -> tuple[float, float, float]:
    """Return the most likely shift of the logits, and the ends of its confidence sequence.

    Parameters
    ----------
    periods : the sums of each period, as in `log_likelihoods`.
    before : the log-likelihood of the periods before under `NULLS_KEPT`, as `Evidence.null` has it.
    largest_effect : as in `Evidence`.
    """
    effects = _EFFECTS[NULLS_KEPT]
    allowed = np.stack([effects <= largest_effect, (effects <= largest_effect) & np.isinf(largest_effect)])
    before = np.where(allowed, before - before[allowed].max(), -np.inf)
    prior = np.log(np.where(effects > 0.0, 0.5 / (len(effects) - 1), 0.5) / 2.0)
    low, high = -_WIDEST, _WIDEST
    for _ in range(_ZOOMS):
        shifts = np.linspace(low, high, _GRID)
        grid = log_likelihoods(periods, np.repeat(shifts, len(effects)), np.tile(effects, _GRID)).sum(axis=0)
        likelihood = before + np.moveaxis(grid.reshape(2, _GRID, -1), 1, 0)  # [shifts, 2, nulls]
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


def pcoc_of_shift(periods: FloatArray, shift: float) -> float:
    """Return expected positives over those at a shift of the logits; `periods` as in `shift_interval`."""
    if not np.isfinite(shift):
        return 0.0 if shift > 0.0 else np.inf
    number, centre = AlikeRows(*periods.T).number_and_logit
    return float(periods[:, 1].sum() / (number * sigmoid(centre + shift)).sum())
