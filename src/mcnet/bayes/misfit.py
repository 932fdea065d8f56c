"""Where the rows say that a smooth curve misses: intervals are widened there, and isotonic steps may be mixed in.

A smooth prior expects neither steps nor kinks: the curve misses them, and its posterior variance does not know. Let the
truth be the curve plus a misfit δ, a normal process with an Ornstein–Uhlenbeck covariance K. In each panel the rows
have the information V (a diagonal matrix) and the residual r. The smooth curve has seen the same rows, and explains a
part of δ. With its posterior covariance Σ, the posterior of δ is normal with

    precision  K⁻¹ + W,  W = V − VΣV,        mean  C r,  C = (K⁻¹ + W)⁻¹,

and the truth differs from the curve by (I − ΣV) δ beside the smooth error. The evidence of K is
exp(½ rᵀCr) / √det(I + KW). A few sizes and lengths of K, common to all contexts or each context's own, are averaged
over by their evidence, together with no misfit at all. Where noise explains the residuals, no misfit wins, and
intervals stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import scipy

from mcnet._shared.arrays import FloatArray, IntArray, sigmoid, sums_by
from mcnet.bayes.posterior import BayesFit
from mcnet.sketch.sketch import Sketch

# Standard deviations of a misfit in logits, and its correlation lengths in standard deviations of the scores.
SIZES = np.array([0.25, 0.5, 1.0])
LENGTHS = (0.1, 0.3)
# The probability before any rows: of a misfit common to all contexts, and of one that every context has for itself.
COMMON, OWN = 0.15, 0.10
# Contexts that are looked at on their own: as many, and with at least this information (about as many positives).
MOST_CONTEXTS = 8
LEAST_INFORMATION = 20.0
# The mixture of all hypotheses has heavier tails than a normal distribution: its variance is chosen to be right here.
LEVEL = 0.9
_JITTER = 1e-9


@dataclass(frozen=True, eq=False)
class _Panels:
    """Sums over the rows of each panel that has any: the mean raw logit, the information, the residual."""

    logits: FloatArray
    information: FloatArray
    residual: FloatArray


@dataclass(frozen=True, eq=False)
class Misfit:
    """The misfit of the curves of a fit, as the residuals of its own rows tell it."""

    fit: BayesFit
    common: _Panels
    contexts: tuple[tuple[IntArray, _Panels], ...]
    """The contexts with the most information: their field codes, and their rows."""

    @staticmethod
    def of(fit: BayesFit, sketch: Sketch) -> Misfit:
        """Return the misfit of a fit to its rows."""
        table = sketch.contexts.table.astype(np.int64)
        p = sigmoid(fit.calibrate_contexts(table, sketch.context, sketch.logit))
        information, residual = sketch.weight * p * (1.0 - p), sketch.positives - sketch.weight * p
        panel, _ = fit.panels.locate(sketch.logit)
        of_context = sums_by(sketch.context, information, len(table))
        # With several fields the covariance of one context leaves out what couples them: it explains too much.
        alone = len(table) > 1 and len(fit.state.values) == 1
        largest = np.argsort(-of_context, kind="stable")[: MOST_CONTEXTS if alone else 0]
        chosen = largest[of_context[largest] >= LEAST_INFORMATION]
        part = np.full(len(table), len(chosen))
        part[chosen] = np.arange(len(chosen))
        shape = len(chosen) + 1, len(fit.panels.mass)
        key = part[sketch.context] * shape[1] + panel
        columns = information, information * sketch.logit, residual
        sums = np.stack([sums_by(key, column, shape[0] * shape[1]).reshape(shape) for column in columns])
        parts = []
        for weights, weighted, residuals in (sums.sum(axis=1), *(sums[:, place] for place in range(len(chosen)))):
            used = weights > 0.0
            parts.append(_Panels(weighted[used] / weights[used], weights[used], residuals[used]))
        return Misfit(fit, parts[0], tuple(zip(fit.expand(table[chosen]), parts[1:], strict=True)))

    def variance(self, logits: FloatArray) -> FloatArray:
        """Return what a misfit adds to the variance of calibrated logits, at some raw logits."""
        directions = self.fit.directions(np.full(len(self.fit.state.values), -1), self.common.logits)
        precision = self.fit.strengths.shared_precision(self.fit.shapes)
        precision = precision + directions.T @ (self.common.information[:, None] * directions)
        smooth = directions @ np.linalg.solve(precision, directions.T)
        evidence, squares = self._hypotheses(self.common, smooth)
        logs = [np.array([np.log1p(-COMMON - OWN)]), evidence + np.log(COMMON / len(evidence))]
        missed = [np.zeros((1, len(smooth))), squares]
        if self.contexts:
            evidence, squares = self._of_contexts()
            logs.append(evidence + np.log(OWN / len(evidence)))
            missed.append(squares)
        log = np.concatenate(logs)
        weights = np.exp(log - log.max())
        added = _matching_variance(weights / weights.sum(), np.diag(smooth), np.concatenate(missed))
        return np.interp(logits, self.common.logits, added)

    def _of_contexts(self) -> tuple[FloatArray, FloatArray]:
        """Return evidence and squares, as a mean over contexts, of a misfit that each context has for itself."""
        logs, squares = [], []
        for context, panels in self.contexts:
            directions = self.fit.directions(context, panels.logits)
            evidence, own = self._hypotheses(panels, directions @ self.fit.context_covariance(context) @ directions.T)
            logs.append(evidence)
            squares.append([np.interp(self.common.logits, panels.logits, each) for each in own])
        shares = [panels.information.sum() for _, panels in self.contexts]
        return np.sum(logs, axis=0), np.average(squares, axis=0, weights=shares)

    def _hypotheses(self, panels: _Panels, smooth: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the log-evidence of each size and length, and the mean square of what the curve then misses."""
        unexplained = np.eye(len(smooth)) - smooth * panels.information
        precision = panels.information[:, None] * unexplained
        apart = np.abs(panels.logits[:, None] - panels.logits) / self.fit.panels.scale
        variances = SIZES[:, None] ** 2
        evidence, squares = [], []
        for length in LENGTHS:
            root = np.linalg.cholesky(np.exp(-apart / length) + _JITTER * np.eye(len(smooth)))
            values, vectors = np.linalg.eigh(root.T @ precision @ root)
            missed = unexplained @ root @ vectors
            score = vectors.T @ (root.T @ panels.residual)
            spread = variances / (1.0 + variances * np.maximum(values, 0.0))
            evidence.append(0.5 * np.sum(spread * score**2 + np.log(spread / variances), axis=1))
            squares.append((spread * score @ missed.T) ** 2 + spread @ (missed**2).T)
        return np.concatenate(evidence), np.concatenate(squares)


def _matching_variance(weights: FloatArray, smooth: FloatArray, added: FloatArray) -> FloatArray:
    """Return what to add to variances, so that normal intervals at LEVEL are those of a mixture of normal ones."""
    deviations = np.sqrt(smooth + added)
    low, high = np.zeros(len(smooth)), 10.0 * deviations.max(axis=0)
    for _ in range(40):
        middle = 0.5 * (low + high)
        inside = weights @ (2.0 * scipy.special.ndtr(middle / deviations) - 1.0)
        low, high = np.where(inside < LEVEL, middle, low), np.where(inside < LEVEL, high, middle)
    z = NormalDist().inv_cdf(0.5 + 0.5 * LEVEL)
    return np.asarray(np.maximum((high / z) ** 2 - smooth, 0.0))
