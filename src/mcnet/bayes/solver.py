"""Solve the Newton system: a shared block, small blocks of field values, conjugate gradients for several fields."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy

from mcnet._shared.arrays import FloatArray
from mcnet.bayes.structure import Incidence, State

RIDGE = 1e-10
"""Rounding may eat what the data leave undetermined: so much of its diagonal is added to a matrix."""


@dataclass(frozen=True)
class Information:
    """The curvature of the log-posterior, kept as the sums that products with it need.

    The likelihood's are `shared` `[S, S]`, `own[c]` `[P, P]` per context, and `couplings[field]` `[values, P, S]`: what
    couples the numbers of a value with the shared vector, summed over its contexts. `prior` `[S, S]` is the prior's
    precision of the shared vector, `precision[field]` its diagonal for each value.
    """

    incidence: Incidence
    shared: FloatArray
    own: FloatArray
    couplings: list[FloatArray]
    prior: FloatArray
    precision: list[FloatArray]

    def times(self, state: State) -> State:
        """Return the product of the whole matrix with a vector."""
        shared, size = (self.shared + self.prior) @ state.shared, len(state.shared)
        moved = self.incidence.gather(state.values, self.own.shape[1])
        totals, values = self.incidence.totals(np.einsum("cpq,cq->cp", self.own, moved)), []
        for total, coupling, numbers, precision in zip(
            totals, self.couplings, state.values, self.precision, strict=True
        ):
            by_shared = coupling.reshape(-1, size)
            shared += numbers.reshape(-1) @ by_shared
            values.append(total + (by_shared @ state.shared).reshape(numbers.shape) + numbers * precision)
        return State(shared, values)

    @cached_property
    def blocks(self) -> list[FloatArray]:
        """Return the block of every value of each field, under the prior."""
        pairs = zip(self.incidence.totals(self.own), self.precision, strict=True)
        return [own + np.diag(precision) for own, precision in pairs]

    def without(self, field: int, arrow: Arrow) -> Information:
        """Return what is left without a field whose values are one context each, which is eliminated exactly.

        With B = own + D, D the precision of a value, its context is left with own − own·B⁻¹·own = D − D·B⁻¹·D and
        cross − own·B⁻¹·cross = D·B⁻¹·cross.
        """
        precision, pulled, coupling = self.precision[field], arrow.pulled(field), self.couplings[field]
        context, own = self.incidence.contexts_of(field), self.own.copy()
        lost = np.zeros((len(own), *coupling.shape[1:]))
        lost[context] = coupling - precision[:, None] * pulled
        own[context] = np.diag(precision) - precision[:, None] * arrow.inverse[field] * precision
        size, incidence = len(self.shared), self.incidence.without(field)
        others = [part for f, part in enumerate(self.couplings) if f != field]
        return replace(
            self,
            incidence=incidence,
            shared=self.shared - coupling.reshape(-1, size).T @ pulled.reshape(-1, size),
            own=own,
            couplings=[part - total for part, total in zip(others, incidence.totals(lost), strict=True)],
            precision=[part for f, part in enumerate(self.precision) if f != field],
        )

    def joint(self, fields: int) -> tuple[FloatArray, tuple[int, ...]]:
        """Return the curvature of the shared block and the first fields as one matrix, and where each field starts."""
        incidence, size, width = self.incidence, len(self.shared), self.own.shape[1]
        starts = np.cumsum([size, *(width * values for values in incidence.sizes[:fields])])
        matrix = np.zeros((starts[-1], starts[-1]))
        matrix[:size, :size] = self.shared + self.prior
        for one in range(fields):
            rows = slice(starts[one], starts[one + 1])
            matrix[rows, :size] = self.couplings[one].reshape(rows.stop - rows.start, size)
            for two in range(one + 1):
                number = incidence.sizes[two]
                both = incidence.crossed(one, two) @ self.own.reshape(len(self.own), -1)
                blocks = both.reshape(incidence.sizes[one], number, width, width).transpose(0, 2, 1, 3)
                matrix[rows, starts[two] : starts[two + 1]] = blocks.reshape(rows.stop - rows.start, number * width)
            matrix[rows, rows] += np.diag(np.tile(self.precision[one], incidence.sizes[one]))
        lower = np.tril(matrix)
        return lower + np.tril(lower, -1).T, tuple(starts[:-1].tolist())


class Arrow:
    """An arrow-shaped matrix, solved by eliminating every value's small block (a Schur complement).

    With one field it is the information matrix itself. With F fields it leaves out what couples values of different
    fields and takes 1/F of what couples them with the shared block, which keeps it positive definite; then its inverse
    approximates the posterior covariance, and it helps to solve the system.
    """

    def __init__(self, information: Information) -> None:
        self._share = 1.0 / max(sum(size > 0 for size in information.incidence.sizes), 1)
        self.inverse = [np.asarray(np.linalg.inv(_raised(blocks))) for blocks in information.blocks]
        self.coupling = [
            self._share * (inverse @ cross)
            for inverse, cross in zip(self.inverse, information.couplings, strict=True)
        ]
        schur = information.shared + information.prior
        for pulled, cross in zip(self.coupling, information.couplings, strict=True):
            schur = schur - pulled.reshape(-1, len(schur)).T @ cross.reshape(-1, len(schur))
        self._factor = factor(schur)

    def solve(self, state: State) -> State:
        """Return the solution for one right-hand side."""
        residual = state.shared.copy()
        for coupling, numbers in zip(self.coupling, state.values, strict=True):
            residual -= numbers.reshape(-1) @ coupling.reshape(-1, len(residual))
        shared = scipy.linalg.cho_solve(self._factor, residual, check_finite=False)
        values = [
            np.einsum("vpq,vq->vp", inverse, numbers) - coupling @ shared
            for inverse, coupling, numbers in zip(self.inverse, self.coupling, state.values, strict=True)
        ]
        return State(shared, values)

    def pulled(self, field: int) -> FloatArray:
        """B⁻¹·cross of every value of a field, B being its block."""
        return self.coupling[field] / self._share

    def shared_covariance(self) -> FloatArray:
        """Return the shared block of the inverse."""
        return np.asarray(scipy.linalg.cho_solve(self._factor, np.eye(len(self._factor[0]))))

    def log_determinant(self) -> float:
        """Return the logarithm of the determinant."""
        blocks = sum(float(np.linalg.slogdet(inverse)[1].sum()) for inverse in self.inverse)
        return 2.0 * float(np.log(np.diag(self._factor[0])).sum()) - blocks

    def value_variances(self, shared_covariance: FloatArray) -> list[FloatArray]:
        """Return the diagonal of the inverse at every value's coefficients: `[values, P]` for each field."""
        blocks = zip(self.inverse, self.coupling, strict=True)
        return [own_variances(inverse, coupling, shared_covariance) for inverse, coupling in blocks]


def own_variances(blocks: FloatArray, coupling: FloatArray, shared_covariance: FloatArray) -> FloatArray:
    """Return the variances of values' numbers `[values, P]`: given the shared vector, and through it."""
    flat = coupling.reshape(-1, len(shared_covariance))
    through = np.einsum("is,is->i", flat @ shared_covariance, flat)
    return np.asarray(np.einsum("vpp->vp", blocks) + through.reshape(coupling.shape[:2]))


def _raised(matrices: FloatArray) -> FloatArray:
    """Return matrices with RIDGE of their diagonal added, the larger ones' share included."""
    diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
    lift = RIDGE * np.maximum(diagonal, RIDGE * diagonal.max(axis=-1, keepdims=True, initial=1e-300))
    return np.asarray(matrices + lift[..., None] * np.eye(matrices.shape[-1]))


def factor(matrix: FloatArray) -> tuple[FloatArray, bool]:
    """Return the Cholesky factor of a matrix; where rounding has made it indefinite, of the nearest one that is not."""
    found: tuple[FloatArray, bool]
    try:
        found = scipy.linalg.cho_factor(_raised(matrix))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
        values = np.maximum(values, 1e-8 * max(float(values[-1]), np.finfo(np.float64).tiny))
        found = scipy.linalg.cho_factor((vectors * values) @ vectors.T)
    return found


LARGEST_MATRIX = 1_200
"""The shared vector and the fields are solved by one matrix up to this size, which takes half a second."""


class NewtonSystem:
    """One curvature, ready to be solved for right-hand sides.

    One field is solved at once. Of several, a field whose values are one context each (the combinations of two fields)
    is eliminated exactly; what is left is solved by one matrix, or by conjugate gradients with the help of the arrow.
    """

    def __init__(self, information: Information, arrow: Arrow) -> None:
        self.information, self.arrow = information, arrow
        incidence = information.incidence
        self._field = incidence.one_to_one() if incidence.fields > 2 else None
        self._left = information if self._field is None else information.without(self._field, arrow)
        self._matrix: tuple[FloatArray, bool] | None = None
        left = self._left.incidence
        if incidence.several and len(information.shared) + information.own.shape[1] * sum(left.sizes) <= LARGEST_MATRIX:
            self._matrix = factor(self._left.joint(left.fields)[0])
        self._condition = arrow if self._field is None or self._matrix is not None else Arrow(self._left)

    def solve(self, right: State, tolerance: float = 1e-6) -> State:
        """Return the solution, with several fields to a tolerance of its squared error."""
        if not self.information.incidence.several:
            return self.arrow.solve(right)
        if self._field is None:
            return self._solve_left(right, tolerance)
        field, inverse = self._field, self.arrow.inverse[self._field]
        context = self.information.incidence.contexts_of(field)
        own, cross = self.information.own[context], self.information.couplings[field]
        known = np.einsum("vpq,vq->vp", inverse, right.values[field])
        felt = np.zeros((len(self.information.own), known.shape[1]))
        felt[context] = np.einsum("vpq,vq->vp", own, known)
        others = [part for f, part in enumerate(right.values) if f != field]
        totals = zip(others, self._left.incidence.totals(felt), strict=True)
        shared = right.shared - known.reshape(-1) @ cross.reshape(-1, len(right.shared))
        found = self._solve_left(State(shared, [part - total for part, total in totals]), tolerance)
        moved = self._left.incidence.gather(found.values, known.shape[1])[context]
        felt_back = cross @ found.shared + np.einsum("vpq,vq->vp", own, moved)
        numbers = known - np.einsum("vpq,vq->vp", inverse, felt_back)
        return State(found.shared, [*found.values[:field], numbers, *found.values[field:]])

    def _solve_left(self, right: State, tolerance: float) -> State:
        if self._matrix is None:
            return conjugate_gradients(self._left, self._condition, right, tolerance)[0]
        flat = np.concatenate([right.shared, *(part.ravel() for part in right.values)])
        solved, size = scipy.linalg.cho_solve(self._matrix, flat, check_finite=False), len(right.shared)
        ends = size + np.cumsum([part.size for part in right.values])[:-1]
        parts = np.split(solved[size:], ends - size)
        return State(solved[:size], [x.reshape(part.shape) for x, part in zip(parts, right.values, strict=True)])


def conjugate_gradients(
    information: Information, condition: Arrow, right: State, tolerance: float = 1e-6, iterations: int = 200
) -> tuple[State, int]:
    """Solve a system with the help of what solves a similar one; return the solution and the number of iterations.

    It ends once about the share `tolerance` of the squared size of the solution, as the matrix measures it, is missing.
    """
    direction = condition.solve(right)
    solution, residual, size = right.plus(-1.0, right), right, right.dot(direction)
    enough = tolerance * size
    for taken in range(1, iterations + 1):
        product = information.times(direction)
        step = size / direction.dot(product)
        solution, residual = solution.plus(step, direction), residual.plus(-step, product)
        conditioned = condition.solve(residual)
        previous, size = size, residual.dot(conditioned)
        if size <= enough:
            return solution, taken
        direction = conditioned.plus(size / previous, direction)
    return solution, iterations
