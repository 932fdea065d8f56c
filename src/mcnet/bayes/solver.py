"""Solve the Newton system: a shared block, small blocks of field values, conjugate gradients for several fields."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import scipy

from mcnet._shared.arrays import FloatArray, IntArray
from mcnet._shared.loops import compiled, numba_installed
from mcnet.bayes.structure import FEWEST_COMPILED_CONTEXTS, Incidence, State

# Inverses of many small positive definite matrices.

# Up to this many rows a matrix is eliminated faster together with others than by LAPACK, one matrix at a time.
WIDEST_TOGETHER = 12
# Matrices eliminated at the same time: few enough for the cache, and enough to be worth it.
MOST_TOGETHER = 256
FEWEST_TOGETHER = 32


def inverses(blocks: FloatArray) -> FloatArray:
    """Return the inverse of each of the matrices `[number, width, width]`.

    Raises LinAlgError unless every one is positive definite.
    """
    number, width, _ = blocks.shape
    if width > WIDEST_TOGETHER or number < FEWEST_TOGETHER:
        np.linalg.cholesky(blocks)  # raises LinAlgError unless every block is positive definite
        return np.asarray(np.linalg.inv(blocks), dtype=np.float64)
    found = np.empty_like(blocks)
    for start in range(0, number, MOST_TOGETHER):
        part = slice(start, start + MOST_TOGETHER)
        found[part] = _inverted_by_elimination(np.array(blocks[part].transpose(1, 2, 0), order="C")).transpose(2, 0, 1)
    return found


def _inverted_by_elimination(matrices: FloatArray) -> FloatArray:
    """Replace matrices `[width, width, number]` by their inverses: Gauss and Jordan's elimination, pivot by pivot.

    The pivots of positive definite matrices are positive, and need no exchange of rows.
    """
    for pivot in range(len(matrices)):
        own = matrices[pivot, pivot].copy()
        if not float(own.min()) > 0.0:
            raise np.linalg.LinAlgError("a block is not positive definite")
        column = matrices[:, pivot].copy()
        column[pivot] = 0.0
        row = matrices[pivot] / own
        row[pivot] = 1.0 / own
        matrices[:, pivot] = 0.0
        matrices -= column[:, None] * row
        matrices[pivot] = row
    return matrices


# From this many contexts on, products are compiled for the number of numbers that a value has.
FEWEST_FOR_KNOWN_WIDTH = 20_000

# Solving the Newton system: a shared block, and many small blocks of field values attached to it.


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
        if len(self.own) > FEWEST_COMPILED_CONTEXTS and numba_installed():
            width = self.own.shape[1]
            summed = np.zeros((sum(self.incidence.sizes), width))
            kernel = _product_kernel(width if len(self.own) > FEWEST_FOR_KNOWN_WIDTH else 0)
            kernel(self.incidence.places, self.own, np.concatenate(state.values), summed)
            totals = self.incidence.by_field(summed)
        else:
            moved = self.incidence.gather(state.values, self.own.shape[1])
            totals = self.incidence.totals(np.einsum("cpq,cq->cp", self.own, moved))
        values = []
        for total, coupling, numbers, precision in zip(
            totals, self.couplings, state.values, self.precision, strict=True
        ):
            by_shared = coupling.reshape(-1, size)
            shared += numbers.reshape(-1) @ by_shared
            values.append(total + (by_shared @ state.shared).reshape(numbers.shape) + numbers * precision)
        return State(shared, values)

    @cached_property
    def blocks(self) -> list[FloatArray]:
        """Return `own` summed over the contexts of every value, for each field."""
        return self.incidence.totals(self.own)

    def under(self, prior: FloatArray, precision: list[FloatArray]) -> Information:
        """Return the same likelihood under another prior."""
        changed = replace(self, prior=prior, precision=precision)
        if "blocks" in vars(self):  # they do not depend on the prior
            vars(changed)["blocks"] = self.blocks
        return changed


@cache
def _product_kernel(known_width: int) -> Any:
    """Return a loop for the products of every context's block with what its values have, summed by value.

    A width that is known takes half of the time, and is compiled anew: 0 is any width.
    """

    def products(places, own, values, summed):  # type: ignore[no-untyped-def]
        fields = places.shape[1]
        width = known_width if known_width > 0 else own.shape[1]
        moved, felt = np.empty(width), np.empty(width)
        for context in range(len(own)):
            for number in range(width):
                moved[number] = 0.0
            for field in range(fields):
                place = places[context, field]
                if place >= 0:
                    for number in range(width):
                        moved[number] += values[place, number]
            for number in range(width):
                value = 0.0
                for other in range(width):
                    value += own[context, number, other] * moved[other]
                felt[number] = value
            for field in range(fields):
                place = places[context, field]
                if place >= 0:
                    for number in range(width):
                        summed[place, number] += felt[number]

    return compiled(products)


def joint_information(
    information: Information, fields: int, numbers: int | None = None
) -> tuple[FloatArray, tuple[int, ...]]:
    """Return the curvature of the shared block and the first fields as one matrix, and where each field starts.

    With `numbers` every value has the first of its numbers alone.
    """
    incidence, size = information.incidence, len(information.shared)
    width, sizes = numbers or information.own.shape[1], incidence.sizes[:fields]
    starts = np.cumsum([size, *(width * values for values in sizes)])
    matrix = np.zeros((starts[-1], starts[-1]))
    places, values = np.ascontiguousarray(incidence.places[:, :fields]), sum(sizes)
    own = np.ascontiguousarray(information.own[:, :width, :width]).reshape(len(places), -1)
    if numba_installed():
        blocks = np.zeros((values, values, width * width))
        _joint_kernel()(places, own, blocks)
    else:
        blocks = _summed_by_pairs(places.astype(np.int64), own, values)
    of_values = matrix[size:, size:].reshape(values, width, values, width)
    of_values += blocks.reshape(values, values, width, width).transpose(0, 2, 1, 3)
    for start, end, coupling in zip(starts[:-1], starts[1:], information.couplings[:fields], strict=True):
        matrix[start:end, :size] = coupling[:, :width].reshape(-1, size)
    matrix[:size, :size] = information.shared + information.prior
    diagonal = np.arange(size, len(matrix))
    precision = zip(information.precision[:fields], sizes, strict=True)
    matrix[diagonal, diagonal] += np.concatenate(
        [np.zeros(0), *(np.tile(part[:width], number) for part, number in precision)]
    )
    lower = np.tril(matrix)
    return lower + np.tril(lower, -1).T, tuple(starts[:-1].tolist())


def _summed_by_pairs(places: IntArray, own: FloatArray, values: int) -> FloatArray:
    """Sum the blocks of contexts by pairs of their values, the value of the later field first."""
    summed = np.zeros((values * values, own.shape[1]))
    for one in range(places.shape[1]):
        for two in range(one + 1):
            both = np.flatnonzero((places[:, one] >= 0) & (places[:, two] >= 0))
            pair = places[both, one] * values + places[both, two]
            member = scipy.sparse.csr_array((np.ones(len(both)), (pair, both)), shape=(len(summed), len(places)))
            summed += member @ own
    return summed


@cache
def _joint_kernel() -> Any:
    """Return the same as one loop over the contexts."""

    def add(places, own, blocks):  # type: ignore[no-untyped-def]
        for context in range(len(places)):
            for one in range(places.shape[1]):
                value = places[context, one]
                if value < 0:
                    continue
                for two in range(one + 1):
                    other = places[context, two]
                    if other >= 0:
                        for number in range(own.shape[1]):
                            blocks[value, other, number] += own[context, number]

    return compiled(add)


class Arrow:
    """An arrow-shaped matrix, solved by eliminating every value's small block (a Schur complement).

    With one field it is the information matrix itself. With F fields it leaves out what couples values of different
    fields and takes 1/F of what couples them with the shared block, which keeps it positive definite; then its inverse
    approximates the posterior covariance, and it helps to solve the system (`NewtonSystem`).
    """

    def __init__(self, information: Information, ridge: float = 0.0) -> None:
        incidence = information.incidence
        share = self._share = 1.0 / max(sum(size > 0 for size in incidence.sizes), 1)
        self.ridge = ridge
        self.inverse: list[FloatArray] = []
        self.coupling: list[FloatArray] = []
        schur = information.shared + information.prior
        for inverse, cross in zip(_block_inverses(information, ridge), information.couplings, strict=True):
            pulled = inverse @ cross
            if share != 1.0:
                pulled *= share
            schur -= pulled.reshape(-1, schur.shape[0]).T @ cross.reshape(-1, schur.shape[0])
            self.inverse.append(inverse)
            self.coupling.append(pulled)
        self._factor = _factor(schur, strict=ridge == 0.0)

    def solve(self, state: State) -> State:
        """Return the solution for one right-hand side."""
        size = len(state.shared)
        residual = state.shared.copy()
        for coupling, numbers in zip(self.coupling, state.values, strict=True):
            residual -= numbers.reshape(-1) @ coupling.reshape(-1, size)
        shared = _solve_factored(self._factor, residual)
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
        size = self._factor[0].shape[0]
        return _solve_factored(self._factor, np.eye(size))

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


def _solve_factored(factor: tuple[FloatArray, bool], right: FloatArray) -> FloatArray:
    """Solve by LAPACK itself: for a matrix as small as that of a fit, SciPy's checks take several times as long."""
    solution, _ = scipy.linalg.lapack.dpotrs(factor[0], right, lower=factor[1])
    return np.asarray(solution)


def _factor(matrix: FloatArray, *, strict: bool) -> tuple[FloatArray, bool]:
    """Return the Cholesky factor of a matrix; a strict one raises LinAlgError unless it is positive definite.

    Rounding may eat what the data leave undetermined: a small ridge restores it. Very large weights may make even that
    fail; then, unless strict, the nearest matrix whose eigenvalues are all clearly positive is factored.
    """
    raised = matrix.copy()
    diagonal = np.diag_indices_from(matrix)
    raised[diagonal] += 1e-10 * np.maximum(matrix[diagonal], 1e-10 * float(np.trace(matrix)) / len(matrix))
    try:
        factor: tuple[FloatArray, bool] = scipy.linalg.cho_factor(raised)
        return factor
    except np.linalg.LinAlgError:
        if strict:
            raise
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    values = np.maximum(values, 1e-8 * max(float(values[-1]), np.finfo(np.float64).tiny))
    nearest: tuple[FloatArray, bool] = scipy.linalg.cho_factor((vectors * values) @ vectors.T)
    return nearest


# Solving the Newton system of several fields: conjugate gradients on as little as possible, well conditioned.
#
# With one field the curvature is an arrow and solved at once. With several, values of different fields are coupled by
# the contexts that have both, and the system is solved by conjugate gradients, made short in two ways. A field whose
# values are one context each (the combinations of two fields) is eliminated exactly, context by context. What is left
# is conditioned by one matrix of all fields (`FieldMatrix`). That matrix serves for several Newton steps: what has
# changed since takes a few iterations.

# A larger matrix of all fields takes longer than the iterations it saves …
LARGEST_FIELD_MATRIX = 1_200
# … and so does one of which the cube is larger than so many times the numbers that a product reads.
WORTHWHILE_CUBE = 300


class FieldMatrix:
    """Solve about the same system: the shared vector and all fields by one matrix, and every value by itself.

    What all pairs (v, ·) of two fields have in common, the value v of the first has too, and so have the pairs of v
    with a third field: rows see the sum of these copies, and only their priors tell them apart. Copy k of v has the
    prior variance τ_k, the variance of one pair over the number of pairs. With the residual g_k of each copy, T = Σ τ_k
    and ḡ = Σ τ_k g_k / T, the sum s of the copies solves the system of the fields alone under the prior variance T,
    with ḡ on the right; copy k is τ_k (g_k − ḡ + s / T). To this is added what each value's own block says. With no
    pairs and all numbers in the matrix it is the curvature itself.
    """

    def __init__(self, information: Information, numbers: int) -> None:
        incidence = information.incidence
        self.numbers = numbers
        self._fields = incidence.fields - len(incidence.pairs)
        self._pairs = incidence.pairs
        self._is_whole = not incidence.pairs and numbers == information.own.shape[1]
        no_prior = information.under(0.0 * information.prior, [0.0 * part for part in information.precision])
        self._likelihood, _ = joint_information(no_prior, self._fields, numbers)

    @staticmethod
    def worthwhile(information: Information) -> int:
        """Return how many numbers of each value are worth being in the matrix: offsets first, then slopes, bends."""
        incidence, width = information.incidence, int(information.own.shape[1])
        work = len(information.own) * incidence.fields * width
        largest = min(LARGEST_FIELD_MATRIX, int(np.cbrt(WORTHWHILE_CUBE * work)))
        values = sum(incidence.sizes[: incidence.fields - len(incidence.pairs)])
        return int(np.clip((largest - len(information.shared)) // max(values, 1), 0, width))

    def under(self, information: Information, inverse: list[FloatArray] | None) -> FieldMatrix:
        """Return the same likelihood under the priors of a curvature; LinAlgError if that is not positive definite.

        `inverse` are the inverses of the values' own blocks, where they are known.
        """
        incidence, size = information.incidence, len(information.prior)
        copies, precision = incidence.copies, np.stack(information.precision)[:, : self.numbers]
        with np.errstate(divide="ignore"):
            self._variance = np.where(copies.pairs[:, None] > 0, 1.0 / copies.pairs[:, None], 0.0)
        self._variance = self._variance / precision[copies.field]
        self._total = copies.of_value @ self._variance
        matrix = self._likelihood.copy()
        matrix[:size, :size] += information.prior
        diagonal = np.arange(size, len(matrix))
        matrix[diagonal, diagonal] += 1.0 / self._total.reshape(-1)
        self._factor = scipy.linalg.cho_factor(matrix, overwrite_a=True, check_finite=False)
        self._copies, self._split = copies, incidence.by_field
        self._inverse: FloatArray | None = None
        if not self._is_whole:
            self._inverse = np.concatenate(_block_inverses(information) if inverse is None else inverse)
        return self

    def solve(self, state: State) -> State:
        """Return the solution for one right-hand side."""
        numbers, copies, size = np.concatenate(state.values), self._copies, len(state.shared)
        if not self._pairs:  # every value is its only copy
            right = np.concatenate([state.shared, numbers[:, : self.numbers].reshape(-1)])
            solved = scipy.linalg.cho_solve(self._factor, right, overwrite_b=True, check_finite=False)
            return self._with_own(solved[:size], solved[size:].reshape(-1, self.numbers), numbers)
        own = copies.sums @ np.ascontiguousarray(numbers[:, : self.numbers])
        mean = copies.of_value @ (self._variance * own) / self._total
        right = np.concatenate([state.shared, mean.reshape(-1)])
        solved = scipy.linalg.cho_solve(self._factor, right, overwrite_b=True, check_finite=False)
        felt = mean - solved[size:].reshape(mean.shape) / self._total
        moved = copies.members @ (self._variance * (own - felt[copies.value]))
        return self._with_own(solved[:size], moved, numbers)

    def _with_own(self, shared: FloatArray, moved: FloatArray, numbers: FloatArray) -> State:
        """Add to what the matrix says of values what their own blocks say."""
        if self._inverse is None:
            return State(shared, self._split(moved))
        values = np.matmul(self._inverse, numbers[:, :, None])[:, :, 0]
        values[:, : self.numbers] += moved
        return State(shared, self._split(values))


def _block_inverses(information: Information, ridge: float = 0.0) -> list[FloatArray]:
    """Return the inverses of the blocks of every field's values, under the prior."""
    diagonal = np.arange(information.own.shape[1])
    inverse = []
    for own, precision in zip(information.blocks, information.precision, strict=True):
        blocks = own.copy()
        blocks[:, diagonal, diagonal] += precision
        if ridge > 0.0:
            blocks[:, diagonal, diagonal] += ridge * blocks[:, diagonal, diagonal].max(axis=1, keepdims=True)
        inverse.append(inverses(blocks))
    return inverse


@dataclass
class NewtonSystem:
    """One curvature, ready to be solved for right-hand sides."""

    information: Information
    arrow: Arrow
    matrix: FieldMatrix | None = None
    """The matrix of an earlier system; the curvature has changed since, but not by much."""
    iterations: int = 0
    """What the last solution took."""

    def __post_init__(self) -> None:
        fields = self.information.incidence
        self._field = fields.one_to_one() if fields.fields > 2 and self.arrow.ridge == 0.0 else None
        self._reduced: Information | None = None
        self._condition: Arrow | FieldMatrix | None = None

    def solve(self, right: State, tolerance: float = 1e-6, enough: float = 0.0) -> State:
        """Return the solution, exact at once when there is but one field.

        With several it is to a tolerance of its squared error, or leaves no more than `enough` to be gained.
        """
        if not self.information.incidence.several:
            return self.arrow.solve(right)
        if self._field is None:
            return self._iterate(self.information, self.arrow, right, tolerance, enough)
        return self._solve_without(self._field, right, tolerance, enough)

    def _iterate(
        self, information: Information, arrow: Arrow | None, right: State, tolerance: float, enough: float
    ) -> State:
        if self._condition is None:
            self._condition = self._preconditioner(information, arrow)
        solution, self.iterations = conjugate_gradients(information, self._condition, right, tolerance, enough=enough)
        return solution

    def _preconditioner(self, information: Information, arrow: Arrow | None) -> Arrow | FieldMatrix:
        numbers = self.matrix.numbers if self.matrix is not None else FieldMatrix.worthwhile(information)
        if numbers > 0:
            inverse = None if arrow is None else arrow.inverse
            try:
                self.matrix = (self.matrix or FieldMatrix(information, numbers)).under(information, inverse)
                return self.matrix
            except np.linalg.LinAlgError:
                self.matrix = None
        return arrow or Arrow(information)

    def _solve_without(self, field: int, right: State, tolerance: float, enough: float) -> State:
        """Eliminate a field whose values are one context each, solve for the others, and substitute back.

        With B = own + D, D the precision of a value, its context is left with own − own·B⁻¹·own = D − D·B⁻¹·D and
        cross − own·B⁻¹·cross = D·B⁻¹·cross.
        """
        information = self.information
        code = information.incidence.codes[:, field]
        context = np.flatnonzero(code >= 0)[np.argsort(code[code >= 0])]  # of each value
        inverse, own, cross = self.arrow.inverse[field], information.own[context], information.couplings[field]
        if self._reduced is None:
            self._reduced = _without_field(information, self.arrow, field, context)
        known = np.einsum("vpq,vq->vp", inverse, right.values[field])
        felt = np.zeros((len(code), known.shape[1]))
        felt[context] = np.einsum("vpq,vq->vp", own, known)
        others = [part for f, part in enumerate(right.values) if f != field]
        totals = self._reduced.incidence.totals(felt)
        left = State(
            right.shared - known.reshape(-1) @ cross.reshape(-1, len(right.shared)),
            [part - total for part, total in zip(others, totals, strict=True)],
        )
        found = self._iterate(self._reduced, None, left, tolerance, enough)
        moved = self._reduced.incidence.gather(found.values, known.shape[1])[context]
        felt_back = cross @ found.shared + np.einsum("vpq,vq->vp", own, moved)
        numbers = known - np.einsum("vpq,vq->vp", inverse, felt_back)
        return State(found.shared, [*found.values[:field], numbers, *found.values[field:]])


def _without_field(information: Information, arrow: Arrow, field: int, context: IntArray) -> Information:
    """Return what is left of the curvature without a field whose values are the contexts given."""
    precision, pulled = information.precision[field], arrow.pulled(field)
    coupling, own = information.couplings[field], information.own.copy()
    lost = np.zeros((len(own), *coupling.shape[1:]))
    lost[context] = coupling - precision[:, None] * pulled
    own[context] = np.diag(precision) - precision[:, None] * arrow.inverse[field] * precision
    size, incidence = len(information.shared), information.incidence.without(field)
    others = [part for f, part in enumerate(information.couplings) if f != field]
    return replace(
        information,
        incidence=incidence,
        shared=information.shared - coupling.reshape(-1, size).T @ pulled.reshape(-1, size),
        own=own,
        couplings=[part - total for part, total in zip(others, incidence.totals(lost), strict=True)],
        precision=[part for f, part in enumerate(information.precision) if f != field],
    )


def conjugate_gradients(
    information: Information,
    condition: Arrow | FieldMatrix,
    right: State,
    tolerance: float = 1e-6,
    iterations: int = 200,
    enough: float = 0.0,
) -> tuple[State, int]:
    """Solve a system with the help of what solves a similar one; return the solution and the number of iterations.

    It ends once no more than about the share `tolerance` of the squared size of the solution, as the matrix measures
    it, is missing, or no more than `enough`.
    """
    # scipy.sparse.linalg.cg takes 152 ms where this takes 109 (two fields, 2,141 parameters): its vectors are flat, and
    # it stops by the norm of the residual, not by what a step can still gain.
    direction = condition.solve(right)
    solution = right.plus(-1.0, right)
    residual = right
    size = residual.dot(direction)
    enough = max(enough, tolerance * size)
    for taken in range(1, iterations + 1):
        product = information.times(direction)
        curvature = direction.dot(product)
        if curvature <= 0:
            raise np.linalg.LinAlgError("the information matrix is not positive definite")
        step = size / curvature
        solution = solution.plus(step, direction)
        residual = residual.plus(-step, product)
        conditioned = condition.solve(residual)
        previous, size = size, residual.dot(conditioned)
        if size <= enough:
            return solution, taken
        direction = conditioned.plus(size / previous, direction)
    return solution, iterations
