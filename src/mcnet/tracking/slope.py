"""The likelihood of a wrong slope, given the level of the period.

A period effect shifts all logits by an unknown u. However well a direction is centred, such a shift looks like a slope
to second order, always of the same sign, and adds up over periods. So the level is taken out for good: given how many
positives a period has, the probability of which rows they are does not depend on u. Its logarithm is that of the
likelihood at the best u for each slope s, plus half the logarithm of the information about u there (the double
saddlepoint approximation; Davison 1988, Barndorff-Nielsen and Cox 1979):

    log r(s) = ℓ(û(s), s) + ½ log i(û(s), s), up to a constant.
"""

import numpy as np

from mcnet._shared.math import logit, sigmoid, sums_by
from mcnet._shared.typing import FloatArray, IndexArray, MaskArray
from mcnet.tracking.evidence import NODES, Marginals, PeriodLikelihoods

__all__ = ["slope_likelihoods", "slope_marginals"]

_BINS = 512
"""Cells of nearly the same probability are taken together, so that a period costs the same however many it has."""
_LARGEST_DIRECTION = 3.0
_NEWTON_STEPS, _SMALL_STEP, _LARGEST_STEP = 25, 1e-7, 1.0


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
    for _ in range(_NEWTON_STEPS):
        chance = sigmoid(logits + level[codes])
        information = sums_by(codes, weight * chance * (1.0 - chance), number)
        missing = observed - sums_by(codes, weight * chance, number)
        step = np.divide(missing, information, out=np.zeros(number), where=telling & (information > 0.0))
        step = np.clip(step, -_LARGEST_STEP, _LARGEST_STEP)
        level = level + step
        if np.abs(step).max(initial=0.0) < _SMALL_STEP:
            break
    shifted = logits + level[codes]
    spent = sums_by(codes, weight * np.logaddexp(0.0, shifted), number)
    half = 0.5 * np.log(information, out=np.zeros(number), where=information > 0.0)
    return level, level * observed - spent + half
