"""Mix smooth curves with the isotonic fit of each context, as far as this helps on held-back rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray, clip_scores
from mcnet.calibrators.binning import isotonic_curve
from mcnet.calibrators.per_field import mixed_curve
from mcnet.curves.curves import Curves
from mcnet.curves.evaluate import Evaluator
from mcnet.rows.contexts import Contexts
from mcnet.sketch.folds import split_counts
from mcnet.sketch.sketch import Sketch

FOLDS = 5
# An isotonic fit has nothing to add to a smooth curve before it has seen so many rows of the rarer class …
FEWEST_OF_RARER_CLASS = 2_000
# … and is no better for the very many contexts that have next to no rows each.
MOST_MIXED_CONTEXTS = 2_000
# The gain must exceed so many of its standard errors.
STANDARD_ERRORS = 2.0
# Never all of it: between two blocks of one class only, an isotonic fit is too sure of itself.
LARGEST_SHARE = 0.7


@dataclass(frozen=True)
class _Held:
    """Rows held back from isotonic fits: how many of each class, what the smooth curve says and what is to be added."""

    positives: FloatArray
    negatives: FloatArray
    smooth: FloatArray
    added: FloatArray

    def slope(self, share: float) -> tuple[float, float]:
        """Return the first two derivatives of the log-likelihood by the share: it is concave."""
        click = self.added / (self.smooth + share * self.added)
        none = self.added / (1.0 - self.smooth - share * self.added)
        first = float(self.positives @ click - self.negatives @ none)
        return first, -float(self.positives @ click**2 + self.negatives @ none**2)

    def gain(self, share: float) -> tuple[float, float]:
        """Return the log-likelihood gained, and its standard error."""
        click, none = np.log1p(share * self.added / self.smooth), np.log1p(-share * self.added / (1.0 - self.smooth))
        gained = float(self.positives @ click + self.negatives @ none)
        squares = float(self.positives @ click**2 + self.negatives @ none**2)
        rows = float(self.positives.sum() + self.negatives.sum())
        return gained, float(np.sqrt(max(squares - gained**2 / rows, 0.0)))


def earned_share(sketch: Sketch, curves: Curves, contexts: Contexts) -> float:
    """Return how much of an isotonic fit of each context lowers the log-loss of rows held back; 0 if not clearly.

    The curves have seen the rows that are held back from the isotonic fits, which favours the curves.
    """
    held = _held_back(sketch, curves, contexts)
    share = 0.0
    for _ in range(20):
        first, second = held.slope(share)
        step = -first / second if second < 0.0 else 0.0
        moved = float(np.clip(share + step, 0.0, LARGEST_SHARE))
        if abs(moved - share) < 1e-3:
            break
        share = moved
    gained, error = held.gain(share)
    # Two digits are what the rows can tell, and what people can read.
    return round(share, 2) if gained > STANDARD_ERRORS * error else 0.0


def mixed_with_isotonic(sketch: Sketch, curves: Curves, contexts: Contexts, share: float) -> Curves:
    """Return the curves, those of contexts with rows mixed with the isotonic fit of these rows."""
    sketch = sketch.unfolded()
    pairs = curves.pairs()
    first = np.searchsorted(sketch.context, np.arange(len(sketch.contexts) + 1))
    for context, place in enumerate(contexts.indices_of(sketch.contexts)):
        rows = slice(first[context], first[context + 1])
        if rows.start == rows.stop or (place < 0 and contexts.names):
            continue  # no row of this fold of a cross-validation, or a value that shares the common curve
        own = isotonic_curve(sketch.score[rows], sketch.rate[rows], sketch.weight[rows])
        pairs[place + 1] = mixed_curve(own, pairs[place + 1], share)
    return Curves.of(pairs)


def _held_back(sketch: Sketch, curves: Curves, contexts: Contexts) -> _Held:
    """Fit every context without each of the folds in turn, and look at the rows of that fold."""
    whole = sketch.unfolded()
    smooth = Evaluator(curves)(whole.score, contexts.indices_of(whole.contexts)[whole.context], 1)
    # Contexts stand one above the other, so that one run over all cells never pools two of them.
    storey = 2.0 * whole.context
    parts = []
    for weight, positives in zip(*_folds(sketch, whole), strict=True):
        left = whole.weight - weight
        used = left > 0.0
        rates = (whole.positives - positives)[used] / left[used]
        fitted = scipy.optimize.isotonic_regression(rates + storey[used], weights=left[used]).x - storey[used]
        own = _at_every_cell(clip_scores(fitted), used, whole.context, smooth)
        there = weight > 0.0
        parts.append((positives[there], (weight - positives)[there], smooth[there], (own - smooth)[there]))
    return _Held(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _folds(sketch: Sketch, whole: Sketch) -> tuple[FloatArray, FloatArray]:
    """Return weight and positives of each fold at the cells of the whole sketch, of shape (folds, cells)."""
    if sketch.folds == 1:
        weight, positives = split_counts(whole.weight, whole.positives, FOLDS, seed=0)
        return weight.T, positives.T
    # Both are ordered by context and key.
    starts = np.diff(sketch.cells.key, prepend=-1) != 0
    starts |= np.diff(sketch.context, prepend=-1) != 0
    split = np.zeros((2, sketch.folds, len(whole.weight)))
    split[:, sketch.fold, np.cumsum(starts) - 1] = sketch.weight, sketch.positives
    return split[0], split[1]


def _at_every_cell(
    values: FloatArray, used: NDArray[np.bool_], context: NDArray[np.int32], otherwise: FloatArray
) -> FloatArray:
    """Return values known at some cells at all of them: between two of a context their mean, `otherwise` if none."""
    owner = context[used]
    before = np.cumsum(used) - 1
    after = before + ~used
    total, number = np.zeros(len(used)), np.zeros(len(used))
    for place in (before, after):
        inside = np.clip(place, 0, len(values) - 1)
        same = (place == inside) & (owner[inside] == context)
        total += np.where(same, values[inside], 0.0)
        number += same
    return np.where(number > 0, total / np.maximum(number, 1), otherwise)
