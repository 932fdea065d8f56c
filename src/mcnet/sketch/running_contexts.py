"""Running numbers of contexts: the same number for the same field values in every batch of rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.typing import CodeArray
from mcnet.data.combinations import distinct_combinations
from mcnet.data.contexts import Contexts
from mcnet.data.fields import FieldColumn

__all__ = ["RunningContexts"]


class RunningContexts:
    """Numbers field values and their combinations in the order in which batches bring them.

    Per batch only its distinct values and distinct combinations are looked up in dictionaries; rows are mapped by
    NumPy.
    """

    def __init__(self) -> None:
        """Start without a context."""
        self._names: tuple[str, ...] = ()
        self._values: list[dict[str | None, int]] = []
        self._combinations: dict[bytes, int] = {}

    def __len__(self) -> int:
        if len(self._names) < 2:
            return len(self._values[0]) if self._names else 1
        return len(self._combinations)

    def number(self, fields: list[FieldColumn], rows: int) -> CodeArray:
        """Return the running number of each row's context."""
        if not fields:
            return np.zeros(rows, dtype=np.int32)
        if not self._names:
            self._names = Contexts.distinct_names(fields)
            self._values = [{} for _ in fields]
        running = [self._numbered(known, column) for known, column in zip(self._values, fields, strict=True)]
        if len(fields) == 1:
            return fields[0].mapped(running[0])
        table, which = distinct_combinations([c.codes for c in fields], [len(c.values) for c in fields])
        codes = np.column_stack([numbers[table[:, f]] for f, numbers in enumerate(running)]).astype(np.int32)
        known = self._combinations
        keys = codes.view(f"V{codes.itemsize * codes.shape[1]}")[:, 0].tolist()
        numbers = np.fromiter((known.setdefault(key, len(known)) for key in keys), dtype=np.int32, count=len(keys))
        contexts: CodeArray = numbers[which]
        return contexts

    @staticmethod
    def _numbered(known: dict[str | None, int], column: FieldColumn) -> CodeArray:
        """Return the running number of each value of a column."""
        return np.fromiter(
            (known.setdefault(value, len(known)) for value in column.values), dtype=np.int32, count=len(column.values)
        )

    def finish(self, numbers: CodeArray) -> tuple[Contexts, NDArray[Any]]:
        """Return the contexts among `numbers`, in canonical order, and the place of each running number."""
        if not self._names:
            return Contexts.none(), np.zeros(1, dtype=np.int32)
        present = np.flatnonzero(np.bincount(numbers, minlength=len(self)))
        if len(self._names) == 1:
            table = present[:, None].astype(np.int32)
        else:
            together = b"".join(self._combinations)
            table = np.frombuffer(together, dtype=np.int32).reshape(-1, len(self._names))[present]
        values = tuple(tuple(known) for known in self._values)
        contexts, order = Contexts(self._names, values, table).compacted()
        places = np.zeros(len(self), dtype=np.int32)
        places[present] = order
        return contexts, places
