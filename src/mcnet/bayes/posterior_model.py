"""A fit of BayesMCNet: one monotone curve for every context, with its posterior covariance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from mcnet._shared.math import ROWS_AT_A_TIME
from mcnet._shared.typing import FloatArray, IntArray
from mcnet.bayes.field_pairs import Combination
from mcnet.bayes.panels import Panels
from mcnet.bayes.prior import Strengths, default_strengths
from mcnet.bayes.structure import Shapes, State
from mcnet.errors import NotFittedError

__all__ = ["BayesFit", "Covariance", "JointCovariance"]

WORTH_ANOTHER_STEP = 1.0
"""A fit with a larger decrement is not at its maximum: it could gain half of it in log-posterior."""


@dataclass(frozen=True)
class JointCovariance:
    """The posterior covariance of the shared coefficients and the numbers of all values of all fields."""

    matrix: FloatArray
    start: tuple[int, ...]
    """The row at which each field's numbers start."""

    def rows(self, field: int, values: slice, width: int) -> IntArray:
        """Return the rows of the numbers of some values of a field: `[values, width]`."""
        first = self.start[field] + width * np.arange(values.start, values.stop)
        return np.asarray(first[:, None] + np.arange(width))

    def mean_of(self, shares: list[FloatArray | None], width: int) -> FloatArray:
        """Return the weights `[rows, width]` that sum up the mean numbers of the fields that have shares."""
        weights = np.zeros((len(self.matrix), width))
        for start, share in zip(self.start, shares, strict=True):
            for number in range(width if share is not None else 0):
                assert share is not None
                weights[start + number : start + number + width * len(share) : width, number] = share
        return weights


@dataclass(frozen=True)
class Covariance:
    """The Laplace posterior covariance: the shared block, each value's block, and what couples them.

    With several fields these leave out what couples values of different fields; `fields`, unless there are very many
    values, has it all, for the fields but not for their combinations.
    """

    shared: FloatArray
    blocks: tuple[FloatArray, ...]
    coupling: tuple[FloatArray, ...]
    fields: JointCovariance | None = None


@dataclass(frozen=True)
class BayesFit:
    """`p = sigmoid(a_c + ∫ exp(φ₀(t) + b_c + u_c·φ(t)) dt)` with `a`, `b`, `u` summed over the fields of a context.

    `codes` is always `[rows, fields]`; a negative code or one beyond the fitted values is an unseen value, which leaves
    the curve of the remaining fields as it is.
    """

    panels: Panels
    shapes: Shapes
    state: State
    strengths: Strengths
    combinations: tuple[Combination, ...] = ()
    covariance: Covariance | None = None
    rows_of_values: tuple[FloatArray, ...] = ()
    decrement: float = 0.0
    iterations: int = 0

    @property
    def fields(self) -> int:
        """The number of fields a row of `codes` must have."""
        return len(self.state.values) - len(self.combinations)

    @property
    def finished(self) -> bool:
        """Whether what is left to be gained (half of the decrement) is less than data can tell."""
        return self.decrement < WORTH_ANOTHER_STEP

    def recentred(self, fields: Sequence[bool] | None = None) -> BayesFit:
        """Return the same curves, with what all (chosen) values of a field have in common moved into the shared one.

        The shared curve, which unseen values get, has its own prior; where that holds it back (scores that say
        nothing, or the reverse), the values all deviate alike.
        """
        shared, values = self.state.shared.copy(), list(self.state.values)
        for field in range(self.fields):
            if fields is not None and not fields[field]:
                continue
            common = values[field].mean(axis=0)
            shared += self.shapes.deviation @ common
            values[field] = values[field] - common
        return replace(self, state=State(shared, values))

    def shifted(self, offset: float) -> BayesFit:
        """Return the same curves, every one moved by an offset in logits."""
        shared = self.state.shared.copy()
        shared[0] += offset
        return replace(self, state=State(shared, self.state.values))

    def with_pairs(self, pairs: Sequence[tuple[int, int]]) -> BayesFit:
        """Return the same curves as a model of these pairs of fields, without a combination yet: to continue from."""
        width = self.shapes.deviation.shape[1]
        default = default_strengths(len(pairs), len(pairs)).values
        return replace(
            self,
            state=State(self.state.shared, [*self.state.values, *(np.zeros((0, width)) for _ in pairs)]),
            strengths=replace(
                self.strengths,
                values=(*self.strengths.values, *default),
                expected=(*self.strengths.expected, *default),
            ),
            combinations=tuple(
                Combination(first, second, len(self.state.values[second]), np.zeros(0, dtype=np.int64))
                for first, second in pairs
            ),
        )

    def without_values(self) -> BayesFit:
        """Return the shared curve alone, as a model without fields."""
        return replace(
            self,
            state=State(self.state.shared, []),
            strengths=replace(self.strengths, values=(), expected=()),
            combinations=(),
            rows_of_values=(),
            covariance=self.covariance and Covariance(self.covariance.shared, (), ()),
        )

    def expand(self, codes: ArrayLike) -> IntArray:
        """Append the codes of combinations, and write every unseen value as −1."""
        given = np.atleast_2d(np.asarray(codes, dtype=np.int64))
        sizes = np.array([len(numbers) for numbers in self.state.values[: self.fields]], dtype=np.int64)
        given = np.where((given >= 0) & (given < sizes), given, -1)
        return np.column_stack([given, *(pair.codes(given) for pair in self.combinations)]).astype(np.int64)

    def coefficients(self, codes: ArrayLike) -> FloatArray:
        """Return offset and basis coefficients of each context: `[rows, 1 + functions]`."""
        expanded = self.expand(codes)
        moved = np.zeros((len(expanded), self.shapes.deviation.shape[1]))
        for field, numbers in enumerate(self.state.values):
            known = expanded[:, field] >= 0
            moved[known] += numbers[expanded[known, field]]
        return self.state.shared + moved @ self.shapes.deviation.T

    def _pieces(self, codes: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the calibrated logit at each panel's edge towards the origin, and the slope in each panel."""
        coefficients = self.coefficients(codes)
        slopes = np.exp(np.log(self.panels.scale) + coefficients[:, 1:] @ self.shapes.basis.T)
        return coefficients[:, :1] + self.panels.cumulate(slopes), slopes

    def calibrate(self, codes: ArrayLike, logits: ArrayLike) -> FloatArray:
        """Return calibrated logits of rows: `codes` `[rows, fields]`, raw `logits` `[rows]`."""
        raw = np.asarray(logits, dtype=np.float64)
        contexts, inverse = _distinct(self.expand(codes))
        return self.calibrate_contexts(contexts[:, : self.fields], np.broadcast_to(inverse, raw.shape), raw)

    def calibrate_contexts(self, contexts: IntArray, which: IntArray, logits: FloatArray) -> FloatArray:
        """Return calibrated logits of rows whose contexts are rows of a table."""
        values, slopes = self._pieces(contexts)
        calibrated = np.empty(len(logits))
        for start in range(0, len(logits), ROWS_AT_A_TIME):
            rows = slice(start, start + ROWS_AT_A_TIME)
            panel, place = self.panels.locate(logits[rows])
            calibrated[rows] = values[which[rows], panel] + slopes[which[rows], panel] * place
        return calibrated

    def curve(self, codes: ArrayLike, logits: ArrayLike) -> FloatArray:
        """Return probabilities at the posterior mode: `codes` `[rows, fields]` (or one row for all), raw `logits`."""
        return np.asarray(expit(self.calibrate(codes, logits)))

    def deviation_of_logits(self, codes: ArrayLike, logits: ArrayLike) -> FloatArray:
        """Return the posterior standard deviation of `calibrate`, row by row."""
        raw = np.asarray(logits, dtype=np.float64)
        deviation = np.empty(raw.shape)
        for context, rows in self._rows_by_context(codes, len(raw)):
            deviation[rows] = self._deviation(context, raw[rows])
        return deviation

    def _deviation(self, context: IntArray, logits: FloatArray) -> FloatArray:
        """Return the posterior standard deviation of one context's calibrated logits."""
        directions = self._directions(context, logits)
        variance = np.einsum("rk,kl,rl->r", directions, self._context_covariance(context), directions)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0)))

    def _rows_by_context(self, codes: ArrayLike, rows: int) -> Iterator[tuple[IntArray, IntArray]]:
        """Return every distinct context (expanded) with the places of its rows."""
        self.required_covariance()
        contexts, inverse = _distinct(self.expand(codes))
        inverse = np.broadcast_to(inverse, rows)
        order = np.argsort(inverse, kind="stable")
        ends = np.cumsum(np.bincount(inverse, minlength=len(contexts)))[:-1]
        for context, found in zip(contexts, np.split(order, ends), strict=True):
            if len(found):
                yield context, found

    def required_covariance(self) -> Covariance:
        """Return the covariance, or an error that says how to get it."""
        if self.covariance is None:
            raise NotFittedError("the model was fitted without its covariance; fit with covariance=True")
        return self.covariance

    def _directions(self, context: IntArray, logits: FloatArray) -> FloatArray:
        """Return the derivative of the calibrated logit by a context's coefficients: `[rows, 1 + functions]`."""
        _, slopes = self._pieces(context[None, : self.fields])
        panel, place = self.panels.locate(logits)
        pieces = self.panels.cumulate(np.eye(self.panels.count)).T
        by_slope = pieces[panel]
        by_slope[np.arange(len(panel)), panel] += place
        return np.column_stack([np.ones(len(panel)), (by_slope * slopes[0]) @ self.shapes.basis])

    def _context_covariance(self, context: IntArray) -> FloatArray:
        covariance = self.required_covariance()
        deviation = self.shapes.deviation
        link = np.eye(len(deviation))
        own = np.zeros((deviation.shape[1], deviation.shape[1]))
        for field, code in enumerate(context):
            if code >= 0:
                link -= deviation @ covariance.coupling[field][code]
                own += covariance.blocks[field][code]
            else:
                own += np.diag(1.0 / self.strengths.value_precision(field, self.shapes))
        return link @ covariance.shared @ link.T + deviation @ own @ deviation.T

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return what a warm start continues from, as plain arrays: all but the covariance."""
        panels, shapes = self.panels, self.shapes
        arrays: dict[str, NDArray[np.generic]] = {
            "panels": np.array([panels.centre, panels.scale, panels.origin]),
            "edges": panels.edges,
            "mass": panels.mass,
            "basis": shapes.basis,
            "deviation": shapes.deviation,
            "penalty": shapes.penalty,
            "level": shapes.level,
            "roughness": shapes.roughness,
            "shared": self.state.shared,
            "shared_strength": np.array(self.strengths.shared),
        }
        for field, numbers in enumerate(self.state.values):
            arrays[f"values_{field}"] = numbers
            arrays[f"strength_{field}"] = self.strengths.values[field]
            arrays[f"expected_{field}"] = self.strengths.expected[field]
        for index, pair in enumerate(self.combinations):
            arrays[f"combination_{index}"] = np.array([pair.first, pair.second, pair.size], dtype=np.int64)
            arrays[f"combination_keys_{index}"] = pair.keys
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.generic]]) -> BayesFit:
        """Return the model that `arrays()` described."""
        get = {name: np.asarray(numbers) for name, numbers in arrays.items()}
        fields = sum(name.startswith("values_") for name in get)
        pairs = sum(name.startswith("combination_keys_") for name in get)
        centre, scale, origin = get["panels"].tolist()
        return cls(
            panels=Panels(centre, scale, get["edges"], int(origin), get["mass"]),
            shapes=Shapes(*(get[name] for name in ("basis", "deviation", "penalty", "level", "roughness"))),
            state=State(get["shared"], [get[f"values_{field}"] for field in range(fields)]),
            strengths=Strengths(
                values=tuple(get[f"strength_{field}"] for field in range(fields)),
                shared=float(get["shared_strength"]),
                expected=tuple(get[f"expected_{field}"] for field in range(fields)),
            ),
            combinations=tuple(
                Combination(
                    first=int(get[f"combination_{index}"][0]),
                    second=int(get[f"combination_{index}"][1]),
                    size=int(get[f"combination_{index}"][2]),
                    keys=get[f"combination_keys_{index}"],
                )
                for index in range(pairs)
            ),
        )


def _distinct(codes: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct rows of codes and the place of each row among them."""
    if codes.shape[1] == 0 or len(codes) == 1:
        return codes[:1], np.zeros(len(codes), dtype=np.int64)
    key = np.zeros(len(codes), dtype=np.int64)
    for column in codes.T:
        # Rank after each column: the product of many fields' sizes could leave 64 bits.
        _, key = np.unique(key * (int(column.max()) + 2) + column + 1, return_inverse=True)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return codes[first], inverse
