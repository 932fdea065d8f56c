"""The functions of the score that curves are made of, and the state of all parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import eigh

from mcnet._shared.typing import FloatArray
from mcnet.bayes.panels import Panels

__all__ = ["Shapes", "State", "make_shapes"]


# Correlation length of log-slopes along the scores (Ornstein–Uhlenbeck), in standard deviations of the scores.
CORRELATION_LENGTH = 0.5


@dataclass(frozen=True)
class Shapes:
    """The functions of the score that curves are made of.

    A context has one coefficient vector `η = (offset, β)`; its log-slope in panel g is
    `log(scale) + (basis · β)[g]`, so that η = 0 is a curve of slope 1 in raw logits. A field value moves η by
    `deviation · (a, b, u₁…u_J)`: a lifts the curve, b stretches it, and u bends it along smooth functions φ₁…φ_J, in
    order of rising roughness. `penalty` is the roughness of φ: its squared slope integrated over t, and its squared
    distance from its mean in units of CORRELATION_LENGTH; `roughness` is that of φ₁…φ_J.
    """

    basis: FloatArray
    deviation: FloatArray
    penalty: FloatArray
    level: FloatArray
    roughness: FloatArray

    @cached_property
    def bends(self) -> FloatArray:
        """The log-slope in each panel by the numbers of a field value."""
        return np.asarray(self.basis @ self.deviation[1:])

    @cached_property
    def lift(self) -> FloatArray:
        """Return (offset, log-slope of every panel) by η."""
        lift = np.zeros((1 + self.basis.shape[0], 1 + self.basis.shape[1]))
        lift[0, 0] = 1.0
        lift[1:, 1:] = self.basis
        return lift

    def smoothest(self, bends: int) -> Shapes:
        """Return the same with the first bends alone."""
        return replace(self, deviation=self.deviation[:, : 2 + bends], roughness=self.roughness[:bends])

    def extended(self, more: Shapes) -> Shapes:
        """Return the same with what bends another, made from the same basis, has beyond these."""
        have = len(self.roughness)
        return replace(
            self,
            deviation=np.hstack([self.deviation, more.deviation[:, 2 + have :]]),
            roughness=np.concatenate([self.roughness, more.roughness[have:]]),
        )


def make_shapes(panels: Panels, basis: FloatArray, deviations: int) -> Shapes:
    """Return shapes for a basis; φ₀ and every deviation are Ornstein–Uhlenbeck processes in t around their means.

    Without the memory it would be a Wiener process, the log-slope of a cubic smoothing spline, which
    expects the largest deviations to be the slow ones. φ₁…φ_J are the smoothest directions: the generalised
    eigenvectors of the roughness against the mass of the panels (for even panels, cosines).
    """
    functions = basis.shape[1]
    inner = basis[1:-1]
    middles = 0.5 * (panels.edges[1:] + panels.edges[:-1])
    steps = np.diff(inner, axis=0) / np.sqrt(np.diff(middles))[:, None]
    slowness = steps.T @ steps
    # A little even mass keeps the eigenproblem well posed where panels are empty.
    mass = 0.99 * panels.mass[1:-1] + 0.01 / len(inner)
    gram = inner.T @ (mass[:, None] * inner)
    rough, vectors = eigh(slowness, gram)
    bends = min(deviations, functions - 1)
    constant = np.linalg.lstsq(inner, np.ones(len(inner)))[0]
    level = gram @ constant
    around_mean = gram - np.outer(level, level) / (constant @ level)
    deviation = np.zeros((functions + 1, bends + 2))
    deviation[0, 0] = 1.0
    deviation[1:, 1] = constant
    deviation[1:, 2:] = vectors[:, 1 : bends + 1]
    return Shapes(
        basis=basis,
        deviation=deviation,
        penalty=slowness + around_mean / CORRELATION_LENGTH**2,
        level=level,
        roughness=np.maximum(rough[1 : bends + 1], 1e-6) + 1.0 / CORRELATION_LENGTH**2,
    )


@dataclass
class State:
    """All parameters: the shared vector `[1 + functions]` and, for each field, `[values, 2 + bends]`."""

    shared: FloatArray
    values: list[FloatArray]

    def dot(self, other: State) -> float:
        """Return the inner product of two states."""
        pairs = zip(self.values, other.values, strict=True)
        return float(self.shared @ other.shared + sum(np.vdot(one, two) for one, two in pairs))

    def plus(self, factor: float, other: State) -> State:
        """Return `self + factor · other`."""
        pairs = zip(self.values, other.values, strict=True)
        return State(self.shared + factor * other.shared, [one + factor * two for one, two in pairs])
