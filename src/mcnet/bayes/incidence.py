"""Which contexts have which field values: sums over the contexts of a value, and over the values of a context."""

from __future__ import annotations

from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse

from mcnet._shared.numba_loops import compiled, numba_installed
from mcnet._shared.typing import FloatArray, IntArray

__all__ = ["FEWEST_COMPILED_CONTEXTS", "Incidence"]

# From this many contexts on, all fields are summed in one compiled loop over the contexts: with 20 fields it takes a
# quarter of the time of one sparse product per field, which reads what is summed once per field.
FEWEST_COMPILED_CONTEXTS = 2_000


class Incidence:
    """Which contexts have which value of each field: `codes[context, field]`, negative for no known value."""

    def __init__(self, codes: IntArray, sizes: list[int]) -> None:
        self.codes = codes
        self.sizes = sizes

    @property
    def fields(self) -> int:
        """The number of fields."""
        return len(self.sizes)

    def total(self, field: int, numbers: FloatArray) -> FloatArray:
        """Sum `numbers[context, ...]` over the contexts of every value of a field."""
        if self._is_identity[field]:
            return numbers
        flat = self._columns[field] @ numbers.reshape(len(numbers), -1)
        return np.asarray(flat).reshape(self.sizes[field], *numbers.shape[1:])

    def totals(self, numbers: FloatArray) -> list[FloatArray]:
        """Sum `numbers[context, ...]` over the contexts of every value of every field."""
        if not self._is_compiled:
            return [self.total(field, numbers) for field in range(self.fields)]
        flat = np.ascontiguousarray(numbers.reshape(len(numbers), -1))
        summed = np.zeros((self._starts[-1], flat.shape[1]))
        _kernels()["totals"](self.places, flat, summed)
        return [part.reshape(len(part), *numbers.shape[1:]) for part in self.by_field(summed)]

    def gather(self, values: list[FloatArray], width: int) -> FloatArray:
        """Sum over fields of what each context's value has: `[contexts, width]`."""
        result = np.zeros((len(self.codes), width))
        if self._is_compiled:
            _kernels()["gather"](self.places, np.concatenate(values), result)
            return result
        for field, numbers in enumerate(values):
            result += numbers if self._is_identity[field] else self._columns[field].T @ numbers
        return result

    def by_field(self, numbers: FloatArray) -> list[FloatArray]:
        """Split what all values of all fields have, in one list, by field."""
        return [numbers[first:last] for first, last in pairwise(self._starts)]

    def one_to_one(self) -> int | None:
        """Return the field each of whose values is one context, if there is one: the combinations of two fields."""
        for field, size in enumerate(self.sizes):
            code = self.codes[:, field]
            if size and np.count_nonzero(code >= 0) == size and len(np.unique(code[code >= 0])) == size:
                return field
        return None

    def without(self, field: int) -> Incidence:
        """Return the same contexts without one of the fields."""
        return Incidence(np.delete(self.codes, field, axis=1), [*self.sizes[:field], *self.sizes[field + 1 :]])

    @cached_property
    def _is_identity(self) -> list[bool]:
        """Whether each value of a field is one context, in order: sums and look-ups need no work."""
        return [
            len(self.codes) == size and np.array_equal(self.codes[:, field], np.arange(size))
            for field, size in enumerate(self.sizes)
        ]

    @cached_property
    def _is_compiled(self) -> bool:
        several = self.fields > 1 or not all(self._is_identity)
        return several and self.fields > 0 and len(self.codes) > FEWEST_COMPILED_CONTEXTS and numba_installed()

    @cached_property
    def _starts(self) -> IntArray:
        """Where the values of each field start, in one list of all."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    @cached_property
    def places(self) -> IntArray:
        """The place of each context's values in one list of all fields' values: `[contexts, fields]`."""
        return np.ascontiguousarray(np.where(self.codes >= 0, self.codes + self._starts[:-1], -1))

    @cached_property
    def _columns(self) -> list[scipy.sparse.csr_array]:
        columns = []
        for field, size in enumerate(self.sizes):
            known = np.flatnonzero(self.codes[:, field] >= 0)
            entries = (np.ones(len(known)), (self.codes[known, field], known))
            columns.append(scipy.sparse.csr_array(entries, shape=(size, len(self.codes))))
        return columns


@cache
def _kernels() -> dict[str, Any]:
    def totals(places, numbers, summed):  # type: ignore[no-untyped-def]
        contexts, fields = places.shape
        width = numbers.shape[1]
        for context in range(contexts):
            for field in range(fields):
                place = places[context, field]
                if place >= 0:
                    for number in range(width):
                        summed[place, number] += numbers[context, number]

    def gather(places, values, result):  # type: ignore[no-untyped-def]
        contexts, fields = places.shape
        width = values.shape[1]
        for context in range(contexts):
            for field in range(fields):
                place = places[context, field]
                if place >= 0:
                    for number in range(width):
                        result[context, number] += values[place, number]

    return {"totals": compiled(totals), "gather": compiled(gather)}
