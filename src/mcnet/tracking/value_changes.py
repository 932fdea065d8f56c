"""Changes of the level, and of single field values: run-length filters of what a forecast leaves.

A value that leaves the common movement is followed by itself. Per value the filter (Bayesian online change-point
detection) has the probabilities that nothing has changed, or that the value changed r periods ago, each with a normal
distribution of the offset since then, in logits. How often and how far values change is learnt from all values
together, so that few rows of one value are believed only as far as the others make it plausible.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray, IndexArray, sigmoid, sums_by
from mcnet.rows.contexts import ANY, Contexts

FOLLOWED = ("everything", "stack")
"""The forecasts that have filters of values beside them."""
LONGEST_RUN = 12
"""Runs of this many periods or more are one state."""
EXPECTED_HAZARD = 0.0015
"""The chance per period that a value changes, before any data …"""
EXPECTED_VALUE_PERIODS = 1_000.0
"""… counting as this many values × periods."""
EXPECTED_DEVIATION = 0.7
"""How far a value moves when it changes: the standard deviation in logits, before any data …"""
EXPECTED_CHANGES = 4.0
"""… counting as this many changes."""
LARGEST_HAZARD = 0.05
RETURN_CHANCE = 0.02
"""The chance per period that a changed value is again where the forecast has it, which learns as well."""
WALK_VARIANCE = 2e-4
"""What the offset of a changed value moves in a period, in squared logits."""
UNCONFIRMED = 0.5
"""The share that is served of a change which no more than one period has shown: that one may be an exception."""
CHANGES_HALF_LIFE = 200.0
"""Periods over which what is known about changes counts half."""
ROWS_HALF_LIFE = 8.0
"""Periods over which the rows of a value count half."""
EFFECT_HALF_LIFE = 34.0
LARGEST_EFFECT = 0.5
TRUSTED_SURPRISE = 2.0
"""A value further than this many standard deviations from the others counts less in the common level."""
LEVEL_STEPS, FIRST_STEPS, MODE_STEPS = 10, 3, 5

_State = NDArray[np.float32]


@dataclass(frozen=True)
class AlikeRows:
    """The rows of each group in a period as a binomial number of alike rows, with the same mean and information."""

    positives: FloatArray
    expected: FloatArray
    information: FloatArray
    level_variance: FloatArray | float = 0.0

    @staticmethod
    def together(weight: FloatArray, positives: FloatArray, chance: FloatArray) -> "AlikeRows":
        """Return some cells as one group, given their probabilities: `[1, 1]`."""
        sums = (positives.sum(), weight @ chance, weight @ (chance * (1.0 - chance)))
        return AlikeRows(*(np.array([[part]]) for part in sums))

    def level(self, variance: float) -> float:
        """Return by how many logits the one group differs from its probabilities, under a normal prior."""
        return float(self.marginal(np.zeros((1, 1, 1)), np.full((1, 1, 1), variance))[1].item())

    @property
    def number_and_logit(self) -> tuple[FloatArray, FloatArray]:
        """The number of alike rows, and the logit of their rate."""
        expected = np.maximum(self.expected, 1e-9)
        rate = 1.0 - np.clip(self.information, 1e-9 * expected, (1.0 - 1e-9) * expected) / expected
        return np.maximum(expected / rate, self.positives), np.log(rate) - np.log1p(-rate)

    def marginal(self, mean: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return Laplace's log-likelihood under offsets N(mean, variance), and mode and variance of the posterior.

        It is exact to the skewness of few positives, which a normal approximation in logits takes for changes.
        """
        number, centre, positives = (part[..., None] for part in (*self.number_and_logit, self.positives))
        variance = np.maximum(variance, 1e-9)
        mode = mean.copy()
        for _ in range(MODE_STEPS):
            chance = sigmoid(centre + mode)
            step = positives - number * chance - (mode - mean) / variance
            mode += np.clip(step / (number * chance * (1.0 - chance) + 1.0 / variance), -1.0, 1.0)
        logit = centre + mode
        chance = sigmoid(logit)
        curvature = number * chance * (1.0 - chance)
        likelihood = positives * logit - number * np.logaddexp(0.0, logit) - (mode - mean) ** 2 / (2.0 * variance)
        return likelihood - 0.5 * np.log1p(variance * curvature), mode, 1.0 / (curvature + 1.0 / variance)


@dataclass(frozen=True, eq=False)
class Runs:
    """Run-length filters `[forecasts, values, runs]`: state 0 is no change, state r a change r periods ago."""

    weight: _State
    mean: _State
    variance: _State

    @staticmethod
    def still(forecasts: int, values: int) -> "Runs":
        """Return filters of values of which none has changed."""
        weight, mean, variance = np.zeros((3, forecasts, values, LONGEST_RUN + 1), dtype=np.float32)
        weight[:, :, 0] = 1.0
        return Runs(weight, mean, variance)

    def grown(self, values: int) -> "Runs":
        """Return filters of so many values; of the new ones none has changed."""
        new = Runs.still(len(self.weight), values - self.weight.shape[1])
        pairs = zip(vars(self).values(), vars(new).values(), strict=True)
        return Runs(*(np.concatenate(pair, axis=1) for pair in pairs))

    def means(self) -> FloatArray:
        """Return the mean of each offset `[forecasts, values]`."""
        return np.asarray((self.weight.astype(np.float64) * self.mean).sum(axis=2))

    def served(self) -> tuple[FloatArray, FloatArray]:
        """Return each offset as it is served, and its variance, both `[forecasts, values]`.

        It is the mean times the probability of a change: a doubtful change counts little, and a real one is soon
        beyond doubt. Of one that a single period has shown, `UNCONFIRMED` counts.
        """
        weight = self.weight.astype(np.float64)
        counted = np.where(np.arange(LONGEST_RUN + 1) == 1, UNCONFIRMED, 1.0)
        offset = (1.0 - weight[:, :, 0]) * ((weight * self.mean) @ counted)
        # The mean square about what is served, which lies below the mean.
        square = (weight * (self.mean.astype(np.float64) ** 2 + self.variance)).sum(axis=2)
        return offset, np.maximum(square - 2.0 * offset * self.means() + offset**2, 0.0)

    def moved(self) -> tuple[FloatArray, FloatArray]:
        """Return the probability of a change, and that times the mean run since in periods `[forecasts, values]`."""
        weight = self.weight[:, :, 1:].astype(np.float64)
        return weight.sum(axis=2), weight @ np.arange(1.0, LONGEST_RUN + 1.0)

    def learnt(
        self,
        rows: AlikeRows,
        seen: NDArray[np.bool_],
        step: float,
        *,
        effect: float,
        hazard: float = EXPECTED_HAZARD,
        deviation: float = EXPECTED_DEVIATION,
    ) -> "Runs":
        """Return the filters after a period, which is a step of so many usual ones; unseen values wait."""
        weight, mean, variance = (part.astype(np.float64) for part in (self.weight, self.mean, self.variance))
        hazard, back = step * hazard, step * RETURN_CHANCE
        stay = 1.0 - hazard - back
        before, at, spread = np.zeros_like(weight), np.zeros_like(mean), np.zeros_like(variance)
        before[..., 0] = weight[..., 0] * (1.0 - hazard) + back * weight[..., 1:].sum(axis=-1)
        before[..., 1], spread[..., 1] = hazard, deviation**2
        before[..., 2:], at[..., 2:], spread[..., 2:] = weight[..., 1:-1] * stay, mean[..., 1:-1], variance[..., 1:-1]
        oldest = weight[..., -1] * stay
        total = before[..., -1] + oldest + 1e-300
        for moments, old in ((at, mean), (spread, variance)):
            moments[..., -1] = (before[..., -1] * moments[..., -1] + oldest * old[..., -1]) / total
        before[..., -1] = total
        spread[..., 2:] += step * WALK_VARIANCE
        noise = effect + np.asarray(rows.level_variance)[..., None]
        likelihood, mode, width = rows.marginal(at, spread + noise)
        gain = spread / (spread + noise)
        there = seen[:, None]
        posterior = np.log(before + 1e-300) + np.where(there, likelihood, 0.0)
        posterior = np.exp(posterior - posterior.max(axis=-1, keepdims=True))
        return Runs(
            (posterior / posterior.sum(axis=-1, keepdims=True)).astype(np.float32),
            np.where(there, at + gain * (mode - at), at).astype(np.float32),
            np.where(there, spread - gain * spread * (1.0 - width / (spread + noise)), spread).astype(np.float32),
        )

    def without(self, values: NDArray[np.bool_]) -> "Runs":
        """Return the same filters in which some values have not changed."""
        still = Runs.still(*self.weight.shape[:2])
        pairs = zip(vars(self).values(), vars(still).values(), strict=True)
        return Runs(*(np.where(values[:, None], none, here) for here, none in pairs))

    def rebased(self, movement: FloatArray) -> "Runs":
        """Return the same filters beside forecasts that have moved `[forecasts, values]` by what they have learnt."""
        mean = self.mean.copy()
        mean[:, :, 1:] -= movement[:, :, None].astype(np.float32)
        return replace(self, mean=mean)


@dataclass(frozen=True, eq=False)
class ValueOffsets:
    """The offset of each field value, beside each of the `FOLLOWED` forecasts, and its variance.

    The offsets of a field sum to zero over its rows. What they have in common is the offset of all rows: that of values
    which are not known, too.
    """

    values: tuple[dict[str | None, int], ...] = ()
    """Per field, the index of each value."""
    means: tuple[FloatArray, ...] = ()
    """Per field `[forecasts, values]`."""
    variances: tuple[FloatArray, ...] = ()
    of_all_rows: FloatArray = field(default_factory=lambda: np.zeros(len(FOLLOWED)))

    def of_contexts(self, contexts: Contexts) -> tuple[FloatArray, FloatArray]:
        """Return offsets and variances of contexts, both `[contexts, forecasts]`.

        A value that is not known may have moved as far as the known ones: its variance is their mean square.
        """
        result = np.zeros((2, len(contexts), len(FOLLOWED)))
        result[0] = self.of_all_rows
        for number, (index, mean, variance) in enumerate(zip(self.values, self.means, self.variances, strict=True)):
            codes = value_codes(index, contexts, number)
            known = (codes >= 0) & (codes < mean.shape[1])  # the index may have grown since
            result[0, known] += mean.T[codes[known]]
            result[1, known] += variance.T[codes[known]]
            if mean.shape[1]:
                result[1, ~known] += (variance + mean**2).mean(axis=1)
        return result[0], result[1]


@dataclass(frozen=True)
class ValueChanges:
    """The filters of all values, what all of them show about changes, and since when a value moves by itself."""

    names: tuple[str, ...] = ()
    values: tuple[dict[str | None, int], ...] = ()
    runs: tuple[Runs, ...] = ()
    rows: tuple[FloatArray, ...] = ()
    """Per field, the rows of each value, forgotten slowly."""
    periods: tuple[str, ...] = ()
    """The latest periods, by name."""
    since: Mapping[str, str] = field(default_factory=dict)
    """The period from which on a value moves by itself, where that is likely; by "field=value"."""
    changes: float = 0.0
    """Changes that were confirmed by three periods, forgotten slowly …"""
    squares: float = 0.0
    """… the sum of their squared offsets …"""
    exposure: float = 0.0
    """… and the values × periods in which there could have been one."""
    excess: float = 0.02
    size: float = 1.0
    """Sums for the variance of what a period changes in a value without lasting."""

    @property
    def hazard(self) -> float:
        """The chance per period that a value changes."""
        seen = EXPECTED_HAZARD * EXPECTED_VALUE_PERIODS + self.changes
        return min(seen / (EXPECTED_VALUE_PERIODS + self.exposure), LARGEST_HAZARD)

    @property
    def deviation(self) -> float:
        """How far a value moves when it changes, in logits."""
        squares = EXPECTED_DEVIATION**2 * EXPECTED_CHANGES + self.squares
        return float(np.sqrt(squares / (EXPECTED_CHANGES + self.changes)))

    @property
    def effect(self) -> float:
        """The variance of what one period changes in a value, in squared logits."""
        return min(max(self.excess / self.size, 0.0), LARGEST_EFFECT)

    @property
    def order(self) -> list[int]:
        """The fields as they are read: the one with the fewest values first, the others see what it leaves."""
        return sorted(range(len(self.values)), key=lambda number: len(self.values[number]))

    def offsets(self) -> ValueOffsets:
        """Return the present offset of each value."""
        means, variances, of_all_rows = [], [], np.zeros(len(FOLLOWED))
        for runs, rows in zip(self.runs, self.rows, strict=True):
            mean, variance = runs.served()
            common = mean @ rows / max(float(rows.sum()), 1e-300)
            means.append(mean - common[:, None])
            variances.append(variance)
            of_all_rows = of_all_rows + common
        return ValueOffsets(self.values, tuple(means), tuple(variances), of_all_rows)

    def learnt(
        self,
        contexts: Contexts,
        context: IndexArray,
        weight: FloatArray,
        positives: FloatArray,
        logits: FloatArray,
        period: str,
        step: float,
        known: Contexts | None = None,
    ) -> "ValueChanges":
        """Return what is known after a period, given its cells and their logits without offsets `[forecasts, cells]`.

        Of values that always occur together in the `known` contexts of all periods, and so cannot be told apart, the
        one of the coarser field takes the change alone.
        """
        other = self._grown(contexts)
        codes = [value_codes(index, contexts, number)[context] for number, index in enumerate(other.values)]
        copies = other._copies(contexts if known is None else known)
        before = [runs.means() for runs in other.runs]
        at, runs = logits + sum(mean[:, code] for mean, code in zip(before, codes, strict=True)), list(other.runs)
        for number in other.order:
            code = codes[number]
            at = at - before[number][:, code]
            rows, residual, information = other._observed(at, before[number], code, weight, positives)
            if number == other.order[-1]:
                other = other._effect_learnt(residual, information)
            seen = sums_by(code, weight, len(other.values[number])) > 0.0
            learnt = runs[number].learnt(
                rows, seen, step, effect=other.effect, hazard=other.hazard, deviation=other.deviation
            )
            runs[number] = learnt.without(copies[number])
            at = at + runs[number].means()[:, code]
            other = other._changes_learnt(runs[number], seen & ~copies[number], first=number == other.order[0])
        kept = 2.0 ** (-step / ROWS_HALF_LIFE)
        rows_of = [kept * old + sums_by(code, weight, len(old)) for old, code in zip(other.rows, codes, strict=True)]
        other = replace(other, runs=tuple(runs), rows=tuple(rows_of), periods=(*self.periods, period)[-LONGEST_RUN:])
        return replace(other, since=other._since())

    def rebased(
        self, contexts: Contexts, context: IndexArray, weight: FloatArray, movement: FloatArray
    ) -> "ValueChanges":
        """Return the same filters beside forecasts that have learnt the period too, and moved `[forecasts, cells]`.

        What a forecast has taken over of the change of a value is no longer the offset's to add. What all values share
        is nobody's own.
        """
        other, rest = self._grown(contexts), movement
        runs = list(other.runs)
        for number in other.order:
            code = value_codes(other.values[number], contexts, number)[context]
            moved, size = 1.0 - runs[number].weight[:, :, 0].astype(np.float64), len(other.values[number])
            still = (1.0 - moved)[:, code] * weight
            rest = rest - (still * rest).sum(axis=1, keepdims=True) / (still.sum(axis=1, keepdims=True) + 1e-300)
            rows = np.maximum(sums_by(code, weight, size), 1e-300)
            own = np.stack([sums_by(code, weight * one, size) / rows for one in rest])
            runs[number], rest = runs[number].rebased(own), rest - (moved * own)[:, code]
        return replace(other, runs=tuple(runs))

    def _grown(self, contexts: Contexts) -> "ValueChanges":
        """Return filters that know every value of some contexts."""
        size = len(contexts.names)
        old = self
        if not self.names:
            none = Runs.still(len(FOLLOWED), 0)
            old = replace(self, values=({},) * size, runs=(none,) * size, rows=(np.zeros(0),) * size)
        values = []
        for number, (index, names) in enumerate(zip(old.values, contexts.values, strict=True)):
            used = np.unique(contexts.table[:, number]).tolist()
            new = [names[code] for code in used if code != ANY and names[code] not in index]
            values.append(index | {value: len(index) + place for place, value in enumerate(new)} if new else index)
        runs = tuple(one.grown(len(index)) for one, index in zip(old.runs, values, strict=True))
        rows = (np.append(one, np.zeros(len(index) - len(one))) for one, index in zip(old.rows, values, strict=True))
        return replace(self, names=tuple(contexts.names), values=tuple(values), runs=runs, rows=tuple(rows))

    def _copies(self, known: Contexts) -> list[NDArray[np.bool_]]:
        """Return for the values of each field whether they always occur with a value of a field before it in order."""
        result = []
        for number, index in enumerate(self.values):
            coarser = self.order[: self.order.index(number)]
            twins = [twins_of(known, number, other) >= 0 for other in coarser]
            names = [name for name, *is_twin in zip(known.values[number], *twins, strict=True) if any(is_twin)]
            codes = [index[name] for name in names if name in index]
            result.append(np.isin(np.arange(len(index)), codes))
        return result

    def _observed(
        self, logits: FloatArray, offsets: FloatArray, code: IndexArray, weight: FloatArray, positives: FloatArray
    ) -> tuple[AlikeRows, FloatArray, FloatArray]:
        """Return the rows of each value beside a robust common level, for each forecast `[forecasts, values]`.

        And of the first forecast the residuals with offsets, and the information.
        """
        found = [self._beside_others(*one, code, weight, positives) for one in zip(logits, offsets, strict=True)]
        parts = zip(*(vars(rows).values() for rows, _, _ in found), strict=True)
        positives, expected, information, level_variance = map(np.stack, parts)
        return AlikeRows(positives, expected, information, level_variance), *found[0][1:]

    def _beside_others(
        self, logits: FloatArray, offset: FloatArray, code: IndexArray, weight: FloatArray, positives: FloatArray
    ) -> tuple[AlikeRows, FloatArray, FloatArray]:
        """Return the rows of each value beside a robust common level; their residuals with offsets, and information.

        A value that has changed must not hide it by moving the level: the level is that of the other values, as far as
        these tell more than the value itself, and what is far from the others counts ever less in it.
        """
        level, there, size = 0.0, logits + offset[code], len(offset)
        residual = information = trust = np.zeros(size)
        for iteration in range(LEVEL_STEPS):
            chance = sigmoid(there + level)
            information = sums_by(code, weight * chance * (1.0 - chance), size)
            residual = sums_by(code, positives - weight * chance, size)
            expected = 1.0 + self.effect * information
            surprise = np.abs(residual) / np.sqrt(information * expected + 1e-9)
            trust = np.minimum(1.0, TRUSTED_SURPRISE / np.maximum(surprise, 1e-9))
            trust = (trust if iteration < FIRST_STEPS else trust**2) / expected
            step = float(trust @ residual) / (float(trust @ information) + 0.5)
            level += float(np.clip(step, -1.0, 1.0))
            if iteration >= FIRST_STEPS and abs(step) < 1e-4:
                break
        own = trust * information
        others = own.sum() - own
        free = np.maximum(1.0 - own / np.maximum(others, 1e-9), 0.0)
        chance = sigmoid(logits + (level - free * trust * residual / (others + 0.5))[code])
        rows = AlikeRows(
            sums_by(code, positives, size),
            sums_by(code, weight * chance, size),
            sums_by(code, weight * chance * (1.0 - chance), size),
            np.full(size, 1.0 / (float(own.sum()) + 1.0)),
        )
        return rows, residual, information

    def _effect_learnt(self, residual: FloatArray, information: FloatArray) -> "ValueChanges":
        large = information > 2.0
        information, squared = information[large], residual[large] ** 2
        kept, size = 2.0 ** (-1.0 / EFFECT_HALF_LIFE), float(information @ information)
        if size == 0.0:
            return self
        beyond = np.minimum(squared - information, 9.0 * information * (1.0 + self.effect * information))
        return replace(self, excess=kept * self.excess + float(beyond.sum()) / size, size=kept * self.size + 1.0)

    def _changes_learnt(self, found: Runs, seen: NDArray[np.bool_], *, first: bool) -> "ValueChanges":
        """Return what is known about changes, those three periods ago counted, which three periods have confirmed."""
        weight, mean, variance = (part[0, seen, 3].astype(np.float64) for part in vars(found).values())
        kept = 2.0 ** (-1.0 / CHANGES_HALF_LIFE) if first else 1.0
        return replace(
            self,
            changes=kept * self.changes + float(weight.sum()),
            squares=kept * self.squares + float(weight @ (mean**2 + variance)),
            exposure=kept * self.exposure + float(seen.sum()),
        )

    def _since(self) -> dict[str, str]:
        """Return the periods since which values move by themselves, where that is more likely than not."""
        result = {}
        for name, index, runs in zip(self.names, self.values, self.runs, strict=True):
            weight = runs.weight[0]
            moved = np.flatnonzero(weight[:, 0] < 0.5)
            values = list(index)
            for code, run in zip(moved.tolist(), (1 + weight[moved, 1:].argmax(axis=1)).tolist(), strict=True):
                key = f"{name}={values[code]}"
                began = self.periods[max(len(self.periods) - run, 0)]
                result[key] = self.since.get(key, began) if run == LONGEST_RUN else began
        return result


def twins_of(contexts: Contexts, field: int, other: int) -> NDArray[np.int64]:
    """Return for each value of a field the value of another one that always occurs with it; -1 for none."""
    sizes = [len(contexts.values[number]) for number in (field, other)]
    table = contexts.table[(contexts.table >= 0).all(axis=1)].astype(np.int64)
    pairs = np.unique(table[:, field] * max(sizes[1], 1) + table[:, other])
    here, there = pairs // max(sizes[1], 1), pairs % max(sizes[1], 1)
    alone = (np.bincount(here, minlength=1)[here] == 1) & (np.bincount(there, minlength=1)[there] == 1)
    result = np.full(sizes[0], -1, dtype=np.int64)
    result[here[alone]] = there[alone]
    return result


def value_codes(index: Mapping[str | None, int], contexts: Contexts, number: int) -> NDArray[np.int64]:
    """Return the index of each context's value of a field; -1 for one that is not known."""
    codes = np.array([*(index.get(value, -1) for value in contexts.values[number]), -1], dtype=np.int64)
    return codes[contexts.table[:, number]]  # the last entry answers for ANY, which is -1
