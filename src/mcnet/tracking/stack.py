"""The stack: weights of experts, none negative, learnt from how well they forecast the periods so far."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import nnls

from mcnet._shared.math import sigmoid
from mcnet._shared.typing import FloatArray
from mcnet.tracking.seasons import NUMBER_OF_SEASONS

__all__ = ["Stack", "coefficients"]

EVIDENCE_HALF_LIFE = 1000.0
"""Periods over which evidence about the weights is forgotten by half."""
WEIGHT_DEVIATION = 0.2
"""The prior standard deviation of a weight around equal weights."""
CAREFUL_DEVIATION = 0.3
"""The same of a careful weight, around 1 for everything and 0 for the others."""
SUM_DEVIATION = 0.15
"""The prior standard deviation of the sum of the weights around 1."""
SEASON_DEVIATION = 0.25
"""The prior standard deviation of the weight of a season, around 0."""


@dataclass
class Stack:
    """A ridge regression whose evidence is one quadratic per period: weights w ≥ 0 that minimise ½ wᵀQw − bᵀw.

    The weights multiply logits measured from a centre, the logit of the rate of everything: a sum other than 1
    flattens or steepens the curves around the usual rate and does not move it. After those of the experts and the base
    scores come the weights of the seasons' offsets.

    There are two sets of weights from the same evidence: one begins with equal weights, the careful one with
    everything alone.
    """

    curvature: FloatArray
    pull: FloatArray
    weights: FloatArray
    careful: FloatArray

    @staticmethod
    def begun(size: int) -> "Stack":
        """Return the stack before any evidence, for this many experts, the base scores among them."""
        whole = size + NUMBER_OF_SEASONS
        return Stack(np.zeros((whole, whole)), np.zeros(whole), _equal(whole), _everything(whole))

    def learn(
        self,
        logits: FloatArray,
        weight: FloatArray,
        positives: FloatArray,
        *,
        centre: float,
        seasonal: FloatArray,
        at: FloatArray,
        overdispersion: float,
        elapsed: float,
    ) -> None:
        """Take in one period: a Newton quadratic of its log-loss around the weights `at` that were in use.

        Parameters
        ----------
        logits : the experts' logits at the cells of the period `[cells, experts]`.
        weight, positives : of the cells.
        centre : what the logits are measured from.
        seasonal : the offset that each season expected.
        at : the weights that were in use.
        overdispersion : rows per independent row, by which the evidence is divided.
        elapsed : periods since the last one.
        """
        features = np.column_stack([logits - centre, np.tile(seasonal, (len(logits), 1))])
        chance = sigmoid(centre + features @ at)
        curvature = (features.T * (weight * chance * (1.0 - chance))) @ features
        pull = features.T @ (positives - weight * chance) + curvature @ at
        kept = 2.0 ** (-elapsed / EVIDENCE_HALF_LIFE)
        self.curvature = kept * self.curvature + curvature / overdispersion
        self.pull = kept * self.pull + pull / overdispersion
        self.weights = self._solve(_equal(len(pull)), WEIGHT_DEVIATION)
        self.careful = self._solve(_everything(len(pull)), CAREFUL_DEVIATION)

    def _solve(self, mean: FloatArray, deviation: float) -> FloatArray:
        experts = len(mean) - NUMBER_OF_SEASONS
        precision = np.diag(np.repeat([deviation**-2.0, SEASON_DEVIATION**-2.0], [experts, NUMBER_OF_SEASONS]))
        precision[:experts, :experts] += SUM_DEVIATION**-2.0
        factor = np.linalg.cholesky(self.curvature + precision)
        return np.asarray(nnls(factor.T, solve_triangular(factor, self.pull + precision @ mean, lower=True))[0])

    def doubled(self, place: int) -> "Stack":
        """Return the stack with one expert twice, side by side: the same evidence for both, half the weight each."""
        order = np.insert(np.arange(len(self.pull)), place, place)
        shares = np.where(np.isin(np.arange(len(order)), (place, place + 1)), 0.5, 1.0)
        weights, careful = (found[order] * shares for found in (self.weights, self.careful))
        return Stack(self.curvature[np.ix_(order, order)], self.pull[order], weights, careful)

    def state(self) -> dict[str, Any]:
        """Return the state as JSON-able values."""
        return {name: array.tolist() for name, array in vars(self).items()}

    @staticmethod
    def restored(state: dict[str, Any]) -> "Stack":
        """Return the stack that `state` described."""
        names = ("curvature", "pull", "weights", "careful")
        return Stack(*(np.array(state[name], dtype=np.float64) for name in names))


def coefficients(weights: FloatArray, centre: float, seasonal: FloatArray) -> FloatArray:
    """Return weights as coefficients of the experts' logits, the raw logit and a one."""
    experts, seasons = np.split(weights, [len(weights) - NUMBER_OF_SEASONS])
    return np.append(experts, centre * (1.0 - experts.sum()) + seasons @ seasonal)


def _equal(size: int) -> FloatArray:
    experts = size - NUMBER_OF_SEASONS
    return np.append(np.full(experts, 1.0 / experts), np.zeros(NUMBER_OF_SEASONS))


def _everything(size: int) -> FloatArray:
    """Return the weight 1 for everything, which is the last expert before the base scores."""
    found = np.zeros(size)
    found[size - NUMBER_OF_SEASONS - 2] = 1.0
    return found
