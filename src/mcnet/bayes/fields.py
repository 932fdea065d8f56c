"""What fields tell: rare values, which share the common curve, fields that add nothing, what each one contributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray, IndexArray, IntArray, log_loss_sum, sigmoid, sums_by
from mcnet._shared.messages import warn
from mcnet.bayes.model import State
from mcnet.bayes.posterior import BayesFit
from mcnet.bayes.prior import COMBINATION_SHARE, EXPECTED, LARGEST
from mcnet.curves.family import Combination
from mcnet.rows.contexts import ANY, Contexts, distinct_combinations, distinct_contexts
from mcnet.sketch.grid import Cells
from mcnet.sketch.sketch import Sketch

VALUES_KEPT_WHOLE = 2_000
"""A field with no more values than this gives each of them its own curve."""
MOST_VALUES = 50_000
"""Values of a field that have their own curve, at most: those about which the rows know most."""
LEAST_INFORMATION = 0.05
"""A value whose rows know less of its offset than this share of what the prior says is pooled. Likewise a combination
of two fields, where there are very many: its deviation would be shrunken to that share."""


def common_first(sketch: Sketch, fitted: tuple[int, ...] = ()) -> tuple[Sketch, tuple[int, ...]]:
    """Return the sketch with each field's rare values last, and how many values of each field come before these.

    `fitted` values of each field, which come first, are known to an earlier fit and keep their curves.
    """
    contexts = sketch.contexts
    sizes = tuple(len(known) for known in contexts.values)
    if max(sizes, default=0) <= VALUES_KEPT_WHOLE:
        return sketch, sizes
    residual, variance = _Residuals(sketch).by_context[:2]
    values, columns, kept = list(contexts.values), list(contexts.table.T), list(sizes)
    for field, size in enumerate(sizes):
        if size <= VALUES_KEPT_WHOLE:
            continue
        code = contexts.table[:, field]
        common = _tellable(sums_by(code, residual, size), sums_by(code, variance, size))
        common[: fitted[field] if fitted else 0] = True
        order = np.argsort(~common, kind="stable")
        place = np.empty(size, dtype=np.int32)
        place[order] = np.arange(size, dtype=np.int32)
        known = contexts.values[field]
        values[field], columns[field] = tuple([known[code] for code in order.tolist()]), place[code]
        kept[field] = int(common.sum())
    if tuple(kept) == sizes:
        return sketch, sizes
    ordered = replace(contexts, values=tuple(values), table=np.column_stack(columns))
    return replace(sketch, contexts=ordered), tuple(kept)


def without_rare(table: NDArray[np.int32], kept: tuple[int, ...]) -> tuple[IntArray, NDArray[np.integer]]:
    """Return the distinct contexts with rare values written as unknown ones, and which of them each context is."""
    codes = np.where(table < np.array(kept, dtype=np.int32), table, ANY).astype(np.int64)
    if not len(kept) or np.array_equal(codes, table):
        return codes, np.arange(len(codes))
    if len(kept) == 1:
        # One context for each value, then one for all the rare ones.
        distinct, which = distinct_contexts(np.where(codes < 0, kept[0], codes))
        return np.where(distinct == kept[0], ANY, distinct), which.astype(np.int32)
    distinct, which = distinct_contexts(codes)
    return distinct, which.astype(np.int32)


def served_contexts(contexts: Contexts, kept: tuple[int, ...]) -> Contexts:
    """Return the contexts that may get a curve of their own: those without rare values.

    Rare values stay known to the model, so that their rows do not count as unseen.
    """
    if tuple(len(known) for known in contexts.values) == kept:
        return contexts
    common = (contexts.table < np.array(kept, dtype=np.int32)).all(axis=1)
    return contexts.subset(np.flatnonzero(common).astype(np.int32))


def _tellable(residual: FloatArray, variance: FloatArray) -> NDArray[np.bool_]:
    """Return which values can be distinguished from the common curve.

    The variance of their offsets is estimated by moments: residuals have the variance v + v² times it.
    """
    excess = float(residual @ residual - variance.sum()) / max(float(variance @ variance), 1e-300)
    spread = float(np.clip(excess, EXPECTED[0], LARGEST[0]))
    tellable = variance >= LEAST_INFORMATION / spread
    if np.count_nonzero(tellable) > MOST_VALUES:
        tellable[np.argpartition(variance, -MOST_VALUES)[:-MOST_VALUES]] = False
    return np.asarray(tellable)


# Fields, and pairs of fields, that add nothing: noise costs more than the smallest effects are worth.

MOST_INFORMATION = 2_500.0
"""Rows with less information (about as many positives) cannot tell which fields add nothing."""
LIKELY_CHANCE = 0.02
"""A field adds something where chance alone would show as much less often than this."""
LIKELY_CHANCE_OF_PAIR = 0.2
"""The same of a pair of two such fields, which costs less."""
CLEARLY_NO_CHANCE = 1e-4
"""A field that adds nothing by itself stays for a pair that is so unlikely a chance."""
LEFT_OUT = "(left out)"
"""The value that all rows are given of a field that is left out."""
RATE_BINS = 100
"""Ranges of the score with equally many rows, whose positive rates are what fields are to improve."""


MOST_PAIRS = 15
"""Pairs of fields that get their own deviations, at most: those of six fields."""
MOST_COMBINATIONS = 200_000
"""A pair of fields with more combinations than this gets no deviations of its own."""
COMBINATIONS_KEPT_WHOLE = 10_000
"""A pair with more combinations leaves out those that the data cannot tell from the sum of the two fields."""


class Telling(NamedTuple):
    """Which fields and pairs of fields the rows of a sketch say anything about."""

    fields: tuple[int, ...]
    pairs: list[tuple[int, int]]


def telling(sketch: Sketch, *, judged: bool = True, interactions: bool = True) -> Telling:
    """Return the fields and, with `interactions`, the pairs that tell more than chance would.

    Beside the positive rates of the scores, every field that tells something gets an offset for each of its values,
    strongest first; each is tested on what those before it leave, by the chi-square statistic of its values'
    residuals and of their residuals times the logit. Pairs are tested on what all of them leave. The strongest field
    always stays. Where fields are not to be judged, or rows are too few for it, all of them stay, and so do all pairs
    unless there are too many.
    """
    names, sizes = sketch.contexts.names, [len(known) for known in sketch.contexts.values]
    every = tuple(range(len(sizes)))
    pairs = [pair for pair in combinations(every, 2) if sizes[pair[0]] and sizes[pair[1]]]
    if not pairs or not (judged or interactions):
        return Telling(every, [])
    rows = _Residuals(sketch)
    judged = judged and float(rows.variance.sum()) >= MOST_INFORMATION
    kept = rows.kept_fields() if judged else rows.kept_fields(chance=1.0)
    tested = {}
    for pair in pairs if interactions else []:
        number, chance = rows.chance_of_pair(*pair)
        if number <= MOST_COMBINATIONS:
            tested[pair] = chance
        elif set(pair) <= set(kept):
            warn(
                f"mcnet-bayes: {names[pair[0]]} × {names[pair[1]]} has {number:,} combinations, more than "
                f"{MOST_COMBINATIONS:,}: they get no deviations; the effects of the two fields add up"
            )
    every_pair = not judged and len(tested) <= MOST_PAIRS
    chosen = []
    for pair in sorted(tested, key=lambda pair: tested[pair].excess, reverse=True):
        likely = LIKELY_CHANCE
        if judged:
            likely = LIKELY_CHANCE_OF_PAIR if set(pair) <= set(kept) else CLEARLY_NO_CHANCE
        if every_pair or tested[pair].chance < likely:
            kept += [field for field in pair if field not in kept]
            chosen.append(pair)
    return Telling(tuple(sorted(kept)), sorted(chosen[:MOST_PAIRS]))


def combine(codes: IntArray, sizes: Sequence[int], first: int, second: int, information: FloatArray) -> Combination:
    """Return the combination of two fields as it occurs in `codes`; pairs with an unknown value are left out.

    With very many combinations, those of whose deviation the `information` of their contexts tells less than
    LEAST_INFORMATION are left out.
    """
    one, two = codes[:, first].astype(np.int64), codes[:, second].astype(np.int64)
    known = (one >= 0) & (two >= 0)
    keys, inverse = np.unique(one[known] * sizes[second] + two[known], return_inverse=True)
    if len(keys) > COMBINATIONS_KEPT_WHOLE:
        least = LEAST_INFORMATION / (EXPECTED[0] * COMBINATION_SHARE)
        keys = keys[np.bincount(inverse, weights=information[known], minlength=len(keys)) >= least]
    return Combination(first=first, second=second, size=int(sizes[second]), keys=keys)


def without_fields(sketch: Sketch, names: Sequence[str]) -> Sketch:
    """Return the sketch with one and the same value of some fields in all rows."""
    contexts = _with_one_code(sketch.contexts, names, 0, (LEFT_OUT,))
    distinct, which = distinct_contexts(contexts.table)
    cells = Cells(which.astype(np.int32)[sketch.context], sketch.cells.key, sketch.fold, sketch.cells.sums).added_up()
    return replace(sketch, contexts=replace(contexts, table=distinct), cells=cells)


def without_values(contexts: Contexts, names: Sequence[str]) -> Contexts:
    """Return contexts of a sketch `without_fields` as they are served: no value of these fields is known."""
    return _with_one_code(contexts, names, ANY, ())


def _with_one_code(contexts: Contexts, names: Sequence[str], code: int, known: tuple[str, ...]) -> Contexts:
    """Return the contexts with one and the same code in some fields, whose values are those given."""
    fields = [contexts.names.index(name) for name in names]
    table, values = contexts.table.copy(), list(contexts.values)
    table[:, fields] = code
    for field in fields:
        values[field] = known
    return replace(contexts, values=tuple(values), table=table)


class _Residuals:
    """Positives not expected from the rates of their scores and the offsets of field values, and their variance."""

    def __init__(self, sketch: Sketch) -> None:
        whole = sketch.unfolded()
        self.sizes = [len(known) for known in whole.contexts.values]
        self.fitted: set[int] = set()
        self.table, self.context = whole.contexts.table, whole.context
        self.weight, self.positives = whole.weight, whole.positives
        order = np.argsort(whole.logit, kind="stable")
        reached = np.empty(len(order))
        reached[order] = np.cumsum(whole.weight[order])
        bins = (reached * ((RATE_BINS - 1e-6) / max(whole.total_weight, 1e-300))).astype(np.int64).clip(max=RATE_BINS)
        rows, clicks = (sums_by(bins, part, RATE_BINS + 1) for part in (self.weight, self.positives))
        mean = whole.total_positives / whole.total_weight
        self.logit = scipy.special.logit((clicks + mean) / (rows + 1.0))[bins]
        middle = float(whole.logit @ whole.weight) / whole.total_weight
        self.along = whole.logit - middle
        self.along /= max(float(np.sqrt(self.along**2 @ whole.weight / whole.total_weight)), 1e-9)
        self._look()

    def _look(self) -> None:
        p = scipy.special.expit(self.logit)
        residual, self.variance = self.positives - self.weight * p, self.weight * p * (1.0 - p)
        columns = residual, self.variance, residual * self.along, self.variance * self.along**2
        self.by_context = [sums_by(self.context, column, len(self.table)) for column in columns]

    def _sums(self, code: NDArray[np.integer], size: int) -> list[FloatArray]:
        known = np.flatnonzero(code >= 0)
        return [sums_by(code[known], column[known], size) for column in self.by_context]

    def fit(self, field: int) -> None:
        """Take a step towards the best offsets of a field's values, held back by their prior."""
        self.fitted.add(field)
        code = self.table[:, field]
        residual, variance = self._sums(code, self.sizes[field])[:2]
        moved = np.append(residual / (variance + 1.0 / EXPECTED[0]), 0.0)
        self.logit += np.clip(moved, -2.0, 2.0)[code][self.context]
        self._look()

    def kept_fields(self, chance: float = LIKELY_CHANCE) -> list[int]:
        """Return the fields that tell something, strongest first, and fit their offsets."""
        of_field = {field: self.chance_of_field(field).excess for field in range(len(self.sizes))}
        kept: list[int] = []
        for field in sorted(of_field, key=lambda field: of_field[field], reverse=True):
            if not kept or chance == 1.0 or self.chance_of_field(field).chance < chance:
                kept.append(field)
                for each in 2 * kept:
                    self.fit(each)
        return kept

    def chance_of_field(self, field: int) -> Chance:
        """Return how likely chance alone is to show as much as the offsets or the slopes of a field's values."""
        sums = self._sums(self.table[:, field], self.sizes[field])
        offset, slope = _chance(sums[0], sums[1]), _chance(sums[2], sums[3])
        return Chance(2.0 * min(offset.chance, slope.chance), max(offset.excess, slope.excess))

    def chance_of_pair(self, first: int, second: int) -> tuple[int, Chance]:
        """Return the number of combinations of two fields, and the same of their offsets unless there are too many."""
        _, place = distinct_combinations(
            [self.table[:, first].astype(np.int64) + 1, self.table[:, second].astype(np.int64) + 1],
            [self.sizes[first] + 1, self.sizes[second] + 1],
        )
        number = int(place.max()) + 1
        if number > MOST_COMBINATIONS:
            return number, Chance(1.0, 0.0)
        residual, variance = (sums_by(place, column, number) for column in self.by_context[:2])
        fitted = 1 + sum(self.sizes[field] - 1 for field in {first, second} & self.fitted)
        return number, _chance(residual, variance, fitted)


class Chance(NamedTuple):
    """How likely chance alone is to show as much, and how much it is, in its standard deviations."""

    chance: float
    excess: float


def _chance(residual: FloatArray, variance: FloatArray, fitted: int = 1) -> Chance:
    """Return the chance of a chi-square statistic as large.

    `fitted` numbers have been fitted to the residuals. The square of a residual of few rows varies more than that of a
    normal one. The statistic is taken to have a gamma distribution with its mean and variance.
    """
    used = variance > 1.0
    number = int(used.sum()) - fitted
    if number < 1:
        return Chance(1.0, 0.0)
    # What all have in common is no matter of the field.
    residual, variance = residual[used], variance[used]
    residual = residual - variance * (float(residual.sum()) / float(variance.sum()))
    statistic = float(np.sum(residual**2 / variance))
    spread = float(np.mean(2.0 + 1.0 / variance)) * number
    chance = scipy.special.gammaincc(number**2 / spread, statistic * number / spread)
    return Chance(float(chance), (statistic - number) / float(np.sqrt(spread)))


# What the fields of a fit contribute: log-loss without each, its strongest values, and what their rows say of them.

STRONGEST = 5
"""So many values of each field are named."""
_ROUNDS = 3


def field_contributions(fit: BayesFit, sketch: Sketch, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return for each field how much log-loss it saves, and its strongest values, as plain numbers and strings.

    A field is left out by dropping its terms, and those of its pairs, from the fitted sum; then the levels of all rows
    and of the values of the other fields are fitted again under their priors, so that what another field could take
    over is not counted. The log-loss of the rows of the fit is corrected for the effective number of parameters of
    these terms, as Akaike's criterion does: a field of noise contributes nothing.

    Of a value there are: its rows; `odds`, by what its terms multiply the odds of its rows on average; and `own`, the
    share of its level that its own rows say, 1 − posterior variance / prior variance. The prior says the rest.
    """
    covariance = fit.covariance
    if covariance is None or not fit.fields:
        return []
    codes, which = without_rare(sketch.contexts.table, sizes)
    context = sketch.context if len(codes) == len(sketch.contexts) else which[sketch.context]
    expanded = fit.expand(codes)
    weight, positives, logits = sketch.weight, sketch.positives, sketch.logit
    total = float(weight.sum())
    whole = fit.calibrate_contexts(codes, context, logits)
    loss = log_loss_sum(whole, weight, positives)
    known = [
        1.0 - np.diagonal(blocks, axis1=1, axis2=2) * fit.strengths.value_precision(part, fit.shapes)
        for part, blocks in enumerate(covariance.blocks)
    ]
    result = []
    for field, name in enumerate(sketch.contexts.names):
        dropped = [field, *(fit.fields + i for i, p in enumerate(fit.combinations) if field in (p.first, p.second))]
        values = [0.0 * numbers if part in dropped else numbers for part, numbers in enumerate(fit.state.values)]
        alone = replace(fit, state=State(fit.state.shared, values)).calibrate_contexts(codes, context, logits)
        others = {part: expanded[:, part] for part in range(expanded.shape[1]) if part not in dropped}
        left = _levels_again(fit, alone, others, context, weight, positives)
        without = log_loss_sum(left, weight, positives)
        parameters = sum(float(np.clip(known[part], 0.0, 1.0).sum()) for part in dropped)
        size = len(fit.state.values[field])
        code = np.where(expanded[:, field] >= 0, expanded[:, field], size)[context]
        rows = sums_by(code, weight, size + 1)[:size]
        moved = sums_by(code, weight * (whole - alone), size + 1)[:size] / np.maximum(rows, 1e-300)
        own = np.clip(known[field][:, 0], 0.0, 1.0)
        strongest = [value for value in np.argsort(-np.abs(moved), kind="stable")[:STRONGEST] if rows[value] > 0.0]
        result.append(
            {
                "field": name,
                "values": size,
                "log_loss": _rounded(loss / total),
                "log_loss_saved": _rounded((without - loss - parameters) / total),
                "own": _rounded(float(rows @ own) / max(float(rows.sum()), 1e-300)),
                "strongest": [
                    {
                        "value": sketch.contexts.values[field][value],
                        "rows": _rounded(float(rows[value])),
                        "odds": _rounded(float(np.exp(moved[value]))),
                        "own": _rounded(float(own[value])),
                    }
                    for value in strongest
                ],
            }
        )
    return result


def _rounded(number: float) -> float:
    return float(f"{number:.6g}")


def _levels_again(
    fit: BayesFit,
    calibrated: FloatArray,
    others: dict[int, IntArray],
    context: IndexArray,
    weight: FloatArray,
    positives: FloatArray,
) -> FloatArray:
    """Return calibrated logits after the levels of all rows and of other fields' values were fitted again.

    One Newton step for each field in turn, a few times: near the maximum, that is enough.
    """
    parts = []
    for part, codes in others.items():
        size = len(fit.state.values[part])
        if size:
            precision = float(fit.strengths.value_precision(part, fit.shapes)[0])
            levels = np.append(fit.state.values[part][:, 0], 0.0)
            parts.append((np.where(codes >= 0, codes, size), levels, precision))
    for _ in range(_ROUNDS):
        expected = weight * (p := sigmoid(calibrated))
        change = float(positives.sum() - expected.sum()) / (float(expected @ (1.0 - p)) + 1e-9)
        calibrated = calibrated + min(max(change, -1.0), 1.0)
        for codes, levels, precision in parts:
            p, of_row = sigmoid(calibrated), codes[context]
            gradient = sums_by(of_row, positives - weight * p, len(levels)) - precision * levels
            step = gradient / (sums_by(of_row, weight * p * (1.0 - p), len(levels)) + precision)
            step[-1] = 0.0  # rows of values without terms
            step = np.clip(step, -1.0, 1.0)
            levels += step
            calibrated = calibrated + step[of_row]
    return calibrated
