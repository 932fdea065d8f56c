"""The stack: weights of experts, none negative, learnt from how well they forecast the periods so far."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import nnls

from mcnet._shared.math import sigmoid
from mcnet._shared.typing import FloatArray

__all__ = ["Stack"]

EVIDENCE_HALF_LIFE = 1000.0
"""Periods over which evidence about the weights is forgotten by half."""
WEIGHT_DEVIATION = 0.2
"""The prior standard deviation of a weight around equal weights."""
SUM_DEVIATION = 0.15
"""The prior standard deviation of the sum of the weights around 1."""


@dataclass
class Stack:
    """A ridge regression whose evidence is one quadratic per period: weights w ≥ 0 that minimise ½ wᵀQw − bᵀw.

    The weights multiply logits measured from a centre, the logit of the rate of everything: a sum other than 1
    flattens or steepens the curves around the usual rate and does not move it.
    """

    curvature: FloatArray
    pull: FloatArray
    weights: FloatArray

    @staticmethod
    def equal(size: int) -> "Stack":
        """Return the stack before any evidence: equal weights."""
        return Stack(np.zeros((size, size)), np.zeros(size), np.full(size, 1.0 / size))

    def learn(
        self,
        logits: FloatArray,
        weight: FloatArray,
        positives: FloatArray,
        *,
        centre: float,
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
        at : the weights that were in use.
        overdispersion : rows per independent row, by which the evidence is divided.
        elapsed : periods since the last one.
        """
        centred = logits - centre
        chance = sigmoid(centre + centred @ at)
        curvature = (centred.T * (weight * chance * (1.0 - chance))) @ centred
        pull = centred.T @ (positives - weight * chance) + curvature @ at
        kept = 2.0 ** (-elapsed / EVIDENCE_HALF_LIFE)
        self.curvature = kept * self.curvature + curvature / overdispersion
        self.pull = kept * self.pull + pull / overdispersion
        self.weights = self._solve()

    def _solve(self) -> FloatArray:
        size = len(self.pull)
        precision = np.eye(size) / WEIGHT_DEVIATION**2 + np.ones((size, size)) / SUM_DEVIATION**2
        right = self.pull + precision @ np.full(size, 1.0 / size)
        factor = np.linalg.cholesky(self.curvature + precision)
        return np.asarray(nnls(factor.T, solve_triangular(factor, right, lower=True))[0])

    def doubled(self, place: int) -> "Stack":
        """Return the stack with one expert twice, side by side: the same evidence for both, half the weight each."""
        order = np.insert(np.arange(len(self.pull)), place, place)
        shares = np.where(np.isin(np.arange(len(order)), (place, place + 1)), 0.5, 1.0)
        return Stack(self.curvature[np.ix_(order, order)], self.pull[order], self.weights[order] * shares)

    def state(self) -> dict[str, Any]:
        """Return the state as JSON-able values."""
        arrays = {"curvature": self.curvature, "pull": self.pull, "weights": self.weights}
        return {name: array.tolist() for name, array in arrays.items()}

    @staticmethod
    def restored(state: dict[str, Any]) -> "Stack":
        """Return the stack that `state` described."""
        return Stack(*(np.array(state[name], dtype=np.float64) for name in ("curvature", "pull", "weights")))
