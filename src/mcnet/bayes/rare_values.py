"""Values of a field that have too few rows to be distinguished from the common curve: they share it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray, IntArray, sums_by
from mcnet.bayes.prior import EXPECTED, LARGEST
from mcnet.rows.contexts import ANY, Contexts, distinct_contexts
from mcnet.sketch.sketch import Sketch

VALUES_KEPT_WHOLE = 2_000
"""A field with no more values than this gives each of them its own curve."""
MOST_VALUES = 50_000
"""Values of a field that have their own curve, at most: those about which the rows know most."""
LEAST_INFORMATION = 0.05
"""A value whose rows know less of its offset than this share of what the prior says is pooled. Likewise a combination
of two fields, where there are very many: its deviation would be shrunken to that share."""
SCORE_BINS = 64
"""Ranges of the score whose positive rates say what to expect of a value's rows."""


def common_first(sketch: Sketch, fitted: tuple[int, ...] = ()) -> tuple[Sketch, tuple[int, ...]]:
    """Return the sketch with each field's rare values last, and how many values of each field come before these.

    Parameters
    ----------
    sketch : the rows.
    fitted : how many values of each field an earlier fit knows, which come first: these keep their curves.

    Returns
    -------
    The sketch, whose codes from the returned number on are rare values.
    """
    contexts = sketch.contexts
    sizes = tuple(len(known) for known in contexts.values)
    if max(sizes, default=0) <= VALUES_KEPT_WHOLE:
        return sketch, sizes
    residual, variance = _by_context(sketch)
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


def _by_context(sketch: Sketch) -> tuple[FloatArray, FloatArray]:
    """Return, per context, positives minus those expected from the rates of their scores, and the variance of it."""
    low, high = float(sketch.logit.min()), float(sketch.logit.max())
    bins = ((sketch.logit - low) * (SCORE_BINS / max(high - low, 1e-9))).astype(np.int8)
    rows, positives = (sums_by(bins, column, SCORE_BINS + 1) for column in (sketch.weight, sketch.positives))
    rate = positives / np.maximum(rows, np.finfo(np.float64).tiny)
    number = len(sketch.contexts)
    clicks = sums_by(sketch.context, sketch.positives, number)
    expected = sums_by(sketch.context, sketch.weight * rate[bins], number)
    variance = sums_by(sketch.context, sketch.weight * (rate * (1.0 - rate))[bins], number)
    return clicks - expected, variance


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
