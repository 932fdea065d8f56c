"""Memories: sketches with different half-lives, the curves last fitted to them, seasons, and the effects of periods."""

import math
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from mcnet._shared.arrays import FloatArray, IndexArray, IntArray, logit, sigmoid, sums_by
from mcnet.bayes.fields import MOST_INFORMATION
from mcnet.bayes.fit import belief_limit, family_of, fit_bayes_sketch
from mcnet.bayes.posterior import BayesFit, uncertainty_of
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.methods import calibrator, calibrator_class
from mcnet.curves.curves import CurveUncertainty
from mcnet.curves.evaluate import Evaluator
from mcnet.curves.family import CurveFamily
from mcnet.errors import InputError
from mcnet.model.model import CalibrationModel
from mcnet.rows.contexts import ANY, Contexts
from mcnet.sketch.grid import POSITION_UNITS, Cells, LogitGrid, make_grid
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.views import value_order_of
from mcnet.tracking.value_changes import AlikeRows, value_codes

SHORTEST_MEMORIES = (0.5, 2.0, 8.0, 32.0)
"""Half-lives in periods; longer ones come as the stream grows."""
MEMORY_RATIO = 4.0
"""How much longer each memory is than the one before."""

# Seasons: how the level of a period differs with its place in the day and in the week.

NUMBER_OF_SEASONS = 2
"""The day and the week; where periods are numbers or labels, two usual lengths."""
USUAL_LENGTHS = (7, 24)
"""In periods, where it is not known how long a period is: days of a week, hours of a day."""
LONGEST_SEASON = 2_016
"""In periods: a week of five minutes each."""
SECONDS_OF_SEASONS = (86_400.0, 604_800.0)
CYCLES_REMEMBERED = 8.0
"""After this many cycles a level counts half."""
EXPECTED_VARIANCE = 1.0 / 16.0
"""Of the level at one place of a season, in squared logits; so few periods are believed little."""


def season_lengths(seconds: float | None) -> tuple[int, ...]:
    """Return how many periods of so many seconds a day and a week have, 0 where that is no whole number above one.

    >>> season_lengths(3600.0), season_lengths(86_400.0), season_lengths(None)
    ((24, 168), (0, 7), (7, 24))
    """
    if seconds is None:
        return USUAL_LENGTHS
    numbers = [whole / seconds for whole in SECONDS_OF_SEASONS]
    lengths = (round(number) if math.isclose(number, round(number), rel_tol=1e-6) else 0 for number in numbers)
    return tuple(length if 2 <= length <= LONGEST_SEASON else 0 for length in lengths)


@dataclass(frozen=True, eq=False)
class Seasons:
    """The mean level of each place in a season, beside the mean of all: offsets in logits that few periods shrink.

    `sums[s]` `[places, 2]` are the sums of information × level and of the information, forgotten slowly.
    """

    lengths: tuple[int, ...] = (0,) * NUMBER_OF_SEASONS
    sums: tuple[FloatArray, ...] = (np.zeros((0, 2)),) * NUMBER_OF_SEASONS

    def of_lengths(self, lengths: tuple[int, ...]) -> "Seasons":
        """Return the seasons of these lengths: those that were of the same length before keep what they know."""
        pairs = zip(lengths, self.lengths, self.sums, strict=True)
        return Seasons(lengths, tuple(sums if new == old else np.zeros((new, 2)) for new, old, sums in pairs))

    def learnt(self, position: float, elapsed: float, level: float, information: float) -> "Seasons":
        """Return what is known after one more period, of which the level and the information about it are given."""
        found = []
        for length, before in zip(self.lengths, self.sums, strict=True):
            sums = before * 2.0 ** (-elapsed / (CYCLES_REMEMBERED * max(length, 1)))
            if length:
                sums[round(position) % length] += (information * level, information)
            found.append(sums)
        return Seasons(self.lengths, tuple(found))

    def offsets(self, position: float) -> FloatArray:
        """Return by how much the level at a place in time is expected to differ from the usual one, per season."""
        found = np.zeros(len(self.lengths))
        for season, (length, sums) in enumerate(zip(self.lengths, self.sums, strict=True)):
            here, information = sums[round(position) % length] if length else (0.0, 0.0)
            if information > 0.0:
                usual = float(sums[:, 0].sum() / sums[:, 1].sum())
                found[season] = (here / information - usual) * information / (information + 1.0 / EXPECTED_VARIANCE)
        return found


# Experts: the curves that a tracker's memories were last fitted to, evaluated in logits.

BAYES = "mcnet-bayes"
FIRST_LEVEL_VARIANCE = 0.25
"""The prior variance of the level of rows that tell no curve, in squared logits."""


class Expert(Protocol):
    """Curves of all contexts, in logits."""

    def logits(self, contexts: Contexts, which: IndexArray, raw: FloatArray) -> FloatArray:
        """Return the calibrated logit of each row: its context a place in `contexts`, its score a raw logit."""


@dataclass(frozen=True, eq=False)
class FamilyExpert:
    """A fit of BayesMCNet that is evaluated as it is, without compiled curves.

    `contexts` tells the order of the field values in the fit; it has none of their combinations.
    """

    contexts: Contexts
    fit: BayesFit
    limit: float

    @cached_property
    def family(self) -> CurveFamily:
        """The curves."""
        return family_of(self.fit, self.limit)

    def codes(self, contexts: Contexts) -> IntArray:
        """Return the fit's own codes of contexts `[contexts, fields]`, -1 for a value that the fit has not seen."""
        known = [{value: code for code, value in enumerate(own)} for own in self.contexts.values]
        columns = [value_codes(index, contexts, field) for field, index in enumerate(known)]
        return np.column_stack(columns) if columns else np.zeros((len(contexts), 0), dtype=np.int64)

    def logits(self, contexts: Contexts, which: IndexArray, raw: FloatArray) -> FloatArray:
        """Return the calibrated logit of each row."""
        return self.family.lines(self.codes(contexts)).each(which, raw)

    def uncertainty(self, sketch: Sketch) -> CurveUncertainty:
        """Return the posterior variances of the curves, given the rows that they were fitted on."""
        sketch = value_order_of(self.contexts, sketch)
        fit = _fit(sketch, start=self.fit, covariance=True)
        return uncertainty_of(fit, family_of(fit, self.limit))


@dataclass(frozen=True, eq=False)
class ModelExpert:
    """The curves of any other calibrator."""

    model: CalibrationModel

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.model.curves)

    def logits(self, contexts: Contexts, which: IndexArray, raw: FloatArray) -> FloatArray:
        """Return the calibrated logit of each row."""
        places = None
        if self.model.fields:
            places = self.model.contexts.indices_of(contexts)
            places = np.where((contexts.table == ANY).any(axis=1), np.int32(-1), places)[which]
        return logit(self._evaluator(sigmoid(raw), places, 1))


@dataclass(frozen=True, eq=False)
class LevelExpert:
    """The base scores, moved to the level of some rows: all that rows of one class or of one score can tell."""

    level: float

    def logits(self, contexts: Contexts, which: IndexArray, raw: FloatArray) -> FloatArray:
        """Return the calibrated logit of each row."""
        return raw + self.level


def check_method(method: str) -> None:
    """Refuse a method whose curves cannot be mixed to rising ones."""
    kind: type[Calibrator] = calibrator_class(method)
    if kind.needs_features or not kind.monotone:
        why = "needs the features of rows" if kind.needs_features else "does not keep the order of scores"
        raise InputError(f"the tracker cannot use {method}, which {why}; leave method out, or name another")


def tells_a_curve(sketch: Sketch) -> bool:
    """Tell whether rows have two classes, and more than one score or context."""
    least = 1e-6 * min(sketch.total_weight, 1.0)
    several = bool(sketch.contexts.names) or bool(sketch.cells.key.min() < sketch.cells.key.max())
    return several and least < sketch.total_positives < sketch.total_weight - least


def level_of(sketch: Sketch) -> LevelExpert:
    """Return the base scores at the level of the rows, which a normal prior keeps finite."""
    rows = AlikeRows.together(sketch.weight, sketch.positives, sigmoid(sketch.logit))
    return LevelExpert(rows.level(FIRST_LEVEL_VARIANCE))


def fit_expert(method: str, sketch: Sketch, earlier: Expert | None) -> Expert:
    """Fit a method to a sketch that tells a curve; from an earlier fit its start and the strengths of its priors."""
    if method != BAYES:
        with warnings.catch_warnings(action="ignore"):
            return ModelExpert(calibrator(method).fit_sketch(sketch).model_)
    start = None
    if isinstance(earlier, FamilyExpert):
        sketch, start = value_order_of(earlier.contexts, sketch), earlier.fit
    known = Contexts(sketch.contexts.names, sketch.contexts.values, np.zeros((0, len(sketch.contexts.names)), np.int32))
    return FamilyExpert(known, _fit(sketch, start, covariance=False), belief_limit(sketch.total_weight))


GAIN, GAIN_OF_SEVERAL = 0.1, 1.0
"""A fit that goes on from the last one ends with a step that was expected to gain no more than this, and every fit of
several fields: twice the logarithm of the posterior; what is then left to be gained is far less."""


def _fit(sketch: Sketch, start: BayesFit | None, *, covariance: bool) -> BayesFit:
    options: dict[str, Any] = {"panels": None, "decrement": 0.0 if start is None or covariance else GAIN}
    if len(sketch.contexts.names) > 1:  # very many contexts
        options["decrement"] = GAIN_OF_SEVERAL
        if start is None:
            # Few positives tell nothing of pairs of fields.
            information = sketch.total_positives * (1.0 - sketch.total_positives / sketch.total_weight)
            options["pairs"] = [] if information < MOST_INFORMATION else None
    return fit_bayes_sketch(
        sketch,
        start=start,
        strengths=None if start is None else start.strengths,
        covariance=covariance,
        believed=False,
        **options,
    )


# The effects of periods: how much a period differs from what was forecast, beyond the noise of its rows.

EFFECT_HALF_LIFE = 60.0
"""Periods over which the variance is averaged."""
EXPECTED_EFFECT = 0.02
"""What the variance is expected to be: a standard deviation of 0.14 logits …"""
EXPECTED_PERIODS = 3.0
"""… counting as this many periods."""
LARGEST_SURPRISE = 9.0
"""A period's squared residual counts at most this many times what was expected, lest a jump hides itself."""


@dataclass(frozen=True)
class EffectVariance:
    """The variance v of what a period changes, in logits, by the method of moments: var(residual) = I + v · I².

    I is the information of a group of rows, Σ w p (1 − p). Both sums are forgotten slowly.
    """

    cap: float | None = None
    """A squared residual counts at most this many times what was expected of it; None for no limit."""
    excess: float = 0.0
    size: float = 0.0

    @property
    def value(self) -> float:
        """The variance."""
        return max(self.excess / self.size, 0.0) if self.size else EXPECTED_EFFECT

    def learnt(self, residual: FloatArray, information: FloatArray) -> "EffectVariance":
        """Return what is known after groups of rows with these residuals (positives minus expected ones)."""
        seen = information > 1e-9
        if not seen.any():
            return self
        squared, information = residual[seen] ** 2, information[seen]
        if self.cap is not None:
            squared = np.minimum(squared, self.cap * information * (1.0 + self.value * information))
        size = self.size or EXPECTED_PERIODS * float(np.sum(information**2))
        excess = self.excess if self.size else EXPECTED_EFFECT * size
        kept = 2.0 ** (-1.0 / EFFECT_HALF_LIFE)
        return EffectVariance(
            self.cap,
            kept * excess + float(np.sum(squared - information)),
            kept * size + float(np.sum(information**2)),
        )


@dataclass(frozen=True)
class PeriodEffects:
    """How far periods are from their forecasts beyond the noise of their rows."""

    level: EffectVariance = EffectVariance(LARGEST_SURPRISE)
    """Of the level of a period, for the overdispersion of rows."""
    level_spread: EffectVariance = EffectVariance()
    """The same, every surprise counted in full, for intervals."""
    value_spread: EffectVariance = EffectVariance()
    """Of a field value beside the level of the period."""

    def learnt(self, residual: FloatArray, information: FloatArray, context: IndexArray) -> "PeriodEffects":
        """Return what is known after a period, of whose cells residual, information and context are given."""
        whole, effect = information.sum(keepdims=True), residual.sum(keepdims=True)
        number = int(context.max()) + 1
        of_value, by_value = (sums_by(context, column, number) for column in (information, residual))
        beside = by_value - of_value * effect / np.maximum(whole, 1e-300)
        return PeriodEffects(
            self.level.learnt(effect, whole),
            self.level_spread.learnt(effect, whole),
            self.value_spread.learnt(beside, of_value),
        )

    def overdispersion(self, information: float) -> float:
        """Return how many rows of a period with this information are worth one independent row."""
        return 1.0 + self.level.value * information


# Memories: sketches with different half-lives, each with the curves last fitted to it.

RESOLUTION = 64
"""Cells per logit of what a tracker keeps."""
REFIT_SHARE = 1.0 / 40.0
"""A memory is fitted again when this share of its weight is new since its last fit …"""
REFIT_SHARE_OF_SEVERAL = 1.0 / 20.0
"""… this one with several fields, where a fit takes longer …"""
REFIT_SHARE_OF_EVERYTHING = 1.0 / 100.0
"""… and this one of everything, which in a still world is to be as good as a fit of all rows."""
FITS_FROM_ONE_START = 16
"""Every so many fits one starts afresh, with new panels and strengths of priors; the others start from the last."""
EARLY_FITS_AFRESH = (0, 1, 2, 4, 8)
"""So do these, as the first rows tell little about either."""
SMALLEST_CELL = 1e-6
"""A memory that forgets drops cells below this share of their context's weight, and contexts below so many rows."""
SMALLEST_FADING = 1e-12
"""What has faded to less than this is forgotten altogether."""


@dataclass(frozen=True, eq=False)
class Memory:
    """A half-life in periods, the sketch that has faded by it, and the expert last fitted to that."""

    half_life: float
    sketch: Sketch | None = None
    expert: Expert | None = None
    fresh: float = 0.0
    """The weight that came since the last fit, faded as the rest."""
    age: float = 0.0
    """The mean age of the rows, in periods."""
    fits: int = 0
    """How many fits there were."""

    def added(self, new: Sketch, step: float) -> "Memory":
        """Return the memory faded by a step, with the rows of a period."""
        fading = 2.0 ** (-step / self.half_life)
        if self.sketch is None or fading <= SMALLEST_FADING:
            sketch, age = new, 0.0
        else:
            old = fading * self.sketch if fading < 1.0 else self.sketch
            sketch, age = old + new, (self.age + step) * old.total_weight / (old.total_weight + new.total_weight)
            sketch = pruned(sketch) if np.isfinite(self.half_life) else sketch
        return replace(self, sketch=sketch, age=age, fresh=fading * self.fresh + new.total_weight)

    def fitted(self, method: str) -> "Memory":
        """Return the memory with a fit to its rows, if enough of them are new."""
        sketch = self.sketch
        assert sketch is not None
        if not tells_a_curve(sketch):
            return self if self.fits else replace(self, expert=level_of(sketch))  # the last curve stays
        share = REFIT_SHARE_OF_SEVERAL if len(sketch.contexts.names) > 1 else REFIT_SHARE
        share = share if np.isfinite(self.half_life) else REFIT_SHARE_OF_EVERYTHING
        if self.fits and self.fresh < share * sketch.total_weight:
            return self
        afresh = self.fits in EARLY_FITS_AFRESH or self.fits % FITS_FROM_ONE_START == 0
        expert = fit_expert(method, sketch, None if afresh else self.expert)
        return replace(self, expert=expert, fresh=0.0, fits=self.fits + 1)


def coarse(sketch: Sketch) -> Sketch:
    """Return the sketch on the grid that trackers use, without folds, values and the list of its sources."""
    sketch = sketch.unfolded().without_values()
    if sketch.resolution != RESOLUTION:
        grid = make_grid(RESOLUTION)
        assert isinstance(grid, LogitGrid)
        key, _ = grid.locate(sketch.score)
        place = (sketch.score - grid.lower(key)) * grid.units_per_score[key - grid.first] - 0.5
        weight, positives = sketch.cells.sums[:, :2].T  # as they are: the sketch keeps what they are scaled by
        position = weight * np.clip(place, 0.0, POSITION_UNITS - 1.0)
        sums = np.column_stack([weight, np.minimum(positives, weight), position])
        cells = Cells(sketch.context, key, sketch.fold, sums).added_up()
        sketch = replace(sketch, cells=cells, resolution=RESOLUTION)
    # A list of every period's source would grow for ever.
    return replace(sketch, known_sources=(), columns={})


def pruned(sketch: Sketch) -> Sketch:
    """Return the sketch without cells and contexts that have faded to next to nothing."""
    weight = sketch.weight
    of_context = sums_by(sketch.context, weight, len(sketch.contexts))
    least = np.where(of_context < SMALLEST_CELL * min(1.0, float(of_context.sum())), np.inf, SMALLEST_CELL * of_context)
    keep = weight >= least[sketch.context]
    if keep.all():
        return sketch
    cells = sketch.cells.take(keep)
    used = np.zeros(len(sketch.contexts), dtype=bool)
    used[cells.context] = True
    contexts, places = sketch.contexts.subset(np.flatnonzero(used).astype(np.int32)).compacted()
    renumber = np.zeros(len(used), dtype=np.int32)
    renumber[used] = places
    cells = Cells(renumber[cells.context], cells.key, cells.fold, cells.sums).added_up()
    return replace(sketch, contexts=contexts, cells=cells)
