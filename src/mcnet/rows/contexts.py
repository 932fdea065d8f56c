"""Contexts: the combinations of field values that a sketch or a model knows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import CodeArray, IntArray
from mcnet._shared.messages import counted
from mcnet.errors import Advice, InputError
from mcnet.rows.derived import bin_texts, value_text
from mcnet.rows.fields import (
    MISSING_LABEL,
    UNNAMED,
    Edges,
    FieldColumn,
    derivation,
    field_columns,
    named_columns,
    sorted_values,
    source_column,
)

# Combinations of codes: number them, and find them again, for any number of fields.

_LARGEST_KEY = 2**62
_MOST_DENSE_KEYS = 4_000_000
"""Up to this many possible combinations are looked up in one table; more are sorted."""

_DENSE_KEYS_PER_ROW = 16
"""A table of all possible combinations is worth its memory up to this size."""


def distinct_combinations(
    codes: Sequence[NDArray[np.integer]], sizes: Sequence[int]
) -> tuple[NDArray[np.integer], NDArray[Any]]:
    """Return the distinct rows of several columns of codes, in order, and which of them each row is.

    `codes[f]` is a column of numbers from 0 to `sizes[f]` - 1.

    >>> table, which = distinct_combinations([np.array([1, 0, 1]), np.array([2, 0, 2])], [2, 3])
    >>> table.tolist(), which.tolist()
    ([[0, 0], [1, 2]], [1, 0, 1])
    """
    keys, size = np.zeros(len(codes[0]), dtype=np.int64), 1
    for column, number in zip(codes, sizes, strict=True):
        if size * number > _LARGEST_KEY:
            keys, size = _numbered(keys, size)
        keys = keys * number + column
        size *= number
    which, number = _numbered(keys, size)
    rows = np.empty(number, dtype=np.int64)
    rows[which] = np.arange(len(which))
    return np.column_stack([column[rows] for column in codes]), which


def distinct_contexts(codes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the distinct rows of a table of codes `[rows, fields]`, in order, and which of them each row is.

    A code is a whole number from ANY (-1) on.

    >>> table, which = distinct_contexts(np.array([[1, 2], [-1, 0], [1, 2]]))
    >>> table.tolist(), which.tolist()
    ([[-1, 0], [1, 2]], [1, 0, 1])
    """
    if codes.size == 0:
        return codes[:1], np.zeros(len(codes), dtype=np.int64)
    columns = codes.T.astype(np.int64) + 1
    table, which = distinct_combinations(list(columns), (columns.max(axis=1) + 1).tolist())
    return (table - 1).astype(codes.dtype), which


def _numbered(keys: IntArray, size: int) -> tuple[IntArray, int]:
    """Return the number of each key among the distinct keys in order, and how many these are."""
    if not 0 < size <= min(_MOST_DENSE_KEYS, _DENSE_KEYS_PER_ROW * len(keys)):
        distinct, which = np.unique(keys, return_inverse=True)
        return which, len(distinct)
    there = np.zeros(size, dtype=bool)
    there[keys] = True
    number = np.cumsum(there) - 1
    return number[keys], int(number[-1]) + 1


ANY = -1
"""The code of "any other value": what an unseen value is looked up as."""


MOST_COMPILED_COMBINATIONS = 20_000
"""Up to this many combinations of several fields' values each get their own curve, seen or not."""


@dataclass(frozen=True)
class Contexts:
    """The fields, their values, and a table of the combinations known.

    `table[i, f]` is the code, in `values[f]`, of the value that context i has in field f; `ANY` there stands for
    every value not listed. Without fields there is exactly one context.
    """

    names: tuple[str, ...]
    values: tuple[tuple[str | None, ...], ...]
    table: NDArray[np.int32]
    edges: Mapping[str, Edges] = field(default_factory=dict)
    """Of fields that are numbers cut into bins: where they are cut."""
    from_log: bool = False
    """Whether the names are those of columns of a log; a column in memory may have none, and is called UNNAMED."""

    def __len__(self) -> int:
        return len(self.table)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Contexts):
            return NotImplemented
        same = self.names == other.names and self.values == other.values and self.edges == other.edges
        return same and np.array_equal(self.table, other.table)

    __hash__ = None  # type: ignore[assignment]

    @staticmethod
    @cache
    def none() -> "Contexts":
        """Return the one context of rows without fields."""
        return Contexts((), (), np.zeros((1, 0), dtype=np.int32))

    @staticmethod
    def distinct_names(columns: Sequence[FieldColumn]) -> tuple[str, ...]:
        """Return the names of the fields; refuse two of the same name."""
        names = tuple(column.name for column in columns)
        if len(set(names)) < len(names):
            raise InputError(f"two fields have the same name: {', '.join(names)}; give each its own")
        return names

    @staticmethod
    def of(columns: Sequence[FieldColumn], rows: int) -> tuple["Contexts", NDArray[np.int32]]:
        """Return the contexts that occur in the columns, and the context of every row."""
        if not columns:
            return Contexts.none(), np.zeros(rows, dtype=np.int32)
        names = Contexts.distinct_names(columns)
        if len(columns) == 1:
            codes = columns[0].codes
            seen = np.flatnonzero(np.bincount(codes, minlength=len(columns[0].values)) > 0)
            table: NDArray[Any] = seen[:, None]
            number = np.zeros(len(columns[0].values), dtype=np.int32)
            number[seen] = np.arange(len(seen))
            inverse: NDArray[Any] = codes if len(seen) == len(number) else number[codes]
        else:
            table, inverse = distinct_combinations([c.codes for c in columns], [len(c.values) for c in columns])
        edges = {column.name: column.edges for column in columns if column.edges is not None}
        contexts = Contexts(names, tuple(c.values for c in columns), table.astype(np.int32), edges)
        compact, order = contexts.compacted()
        return compact, order[inverse].astype(np.int32, copy=False)

    def compacted(self) -> tuple["Contexts", NDArray[np.int32]]:
        """Return the same contexts with only values in use, in canonical order, and each one's new index."""
        values, renumber = [], []
        for f, known in enumerate(self.values):
            used = np.flatnonzero(np.bincount(self.table[:, f] + 1, minlength=len(known) + 1)[1:]).tolist()
            kept = sorted_values({known[code] for code in used})
            index = {value: code for code, value in enumerate(kept)}
            values.append(kept)
            renumber.append(np.array([index.get(value, ANY) for value in known] + [ANY], dtype=np.int32))
        table = np.column_stack([new[self.table[:, f]] for f, new in enumerate(renumber)]) if values else self.table
        if len(values) == 1:
            order = np.argsort(table[:, 0], kind="stable")
        else:
            order = np.lexsort(table.T[::-1]) if values else np.arange(len(table))
        indices = np.empty(len(order), dtype=np.int32)
        indices[order] = np.arange(len(order), dtype=np.int32)
        return replace(self, values=tuple(values), table=table[order]), indices

    def united(self, other: "Contexts") -> tuple["Contexts", NDArray[np.int32], NDArray[np.int32]]:
        """Return the contexts of both (of the same fields), and the new indices of this one's and the other's."""
        if not self.names:
            return self, np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32)
        columns = []
        for mine, its in zip(self.columns(self.all()), other.columns(other.all()), strict=True):
            index = {value: code for code, value in enumerate(dict.fromkeys(mine.values + its.values))}
            codes = [
                column.mapped(np.array([index[v] for v in column.values], dtype=np.int32)) for column in (mine, its)
            ]
            refuse_other_edges(mine.name, mine.edges, its.edges)
            edges = its.edges if mine.edges is None else mine.edges
            columns.append(FieldColumn(mine.name, np.concatenate(codes), tuple(index), edges=edges))
        contexts, indices = Contexts.of(columns, len(self) + len(other))
        return contexts, indices[: len(self)], indices[len(self) :]

    def all(self) -> NDArray[np.int32]:
        """Return the indices of all contexts: 0, 1, 2 …"""
        return np.arange(len(self), dtype=np.int32)

    def subset(self, keep: NDArray[np.int32]) -> "Contexts":
        """Return the contexts of these indices, with the same lists of values."""
        return replace(self, table=self.table[keep])

    def completed(self, limit: int) -> "Contexts":
        """Return these contexts and more: every combination of values, "any other value" included, if within the limit.

        Beyond the limit the combinations seen are kept, and each value on its own is added. With one field nothing is
        added: any other value is what the pooled curve is for.
        """
        if len(self.names) < 2:
            return self
        if self.combinations <= limit:
            ranges = [np.arange(ANY, len(known), dtype=np.int32) for known in self.values]
            table = np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1).reshape(-1, len(ranges))[1:]
        else:
            alone = []
            for f, known in enumerate(self.values):
                rows = np.full((len(known), len(self.names)), ANY, dtype=np.int32)
                rows[:, f] = np.arange(len(known))
                alone.append(rows)
            table, _ = distinct_contexts(np.concatenate([self.table, *alone]))
        return replace(self, table=table)

    @property
    def complete(self) -> bool:
        """Whether every combination of known values is among the contexts."""
        return len(self.names) < 2 or len(self) >= self.combinations

    @property
    def combinations(self) -> float:
        """Return how many combinations of values there are, "any other value" included."""
        return float(np.prod([len(known) + 1.0 for known in self.values])) - 1

    def field_codes(self, columns: Sequence[FieldColumn]) -> NDArray[np.int32]:
        """Return the code of each row's value in every field `[rows, fields]`, ANY for an unseen value."""
        return np.column_stack([column.mapped(codes) for column, codes in self._known_here(columns)])

    @cached_property
    def strides(self) -> list[int] | None:
        """What a step of each field's code adds to the number of a combination; None if there are too many for that."""
        strides = [1]
        for known in reversed(self.values):
            strides.append(strides[-1] * (len(known) + 1))
        return strides[-2::-1] if strides[-1] < _LARGEST_KEY else None

    @cached_property
    def _by_key(self) -> CodeArray:
        """The context of every combination by its number; empty if there are too many."""
        if self.strides is None or (len(self.names) > 1 and self.combinations >= _MOST_DENSE_KEYS):
            return np.zeros(0, dtype=np.int32)
        by_key = np.full(int(self.combinations) + 1, -1, dtype=np.int32)
        by_key[(self.table + 1) @ np.array(self.strides, dtype=np.int64)] = self.all()
        return by_key

    def combination_keys(self, columns: Sequence[FieldColumn]) -> NDArray[np.integer]:
        """Return the number of each row's combination: the sum over fields of stride · (code + 1)."""
        strides = self.strides
        assert strides is not None
        small = strides[0] * (len(self.values[0]) + 1) < 2**31
        keys: NDArray[Any] = np.zeros(0)
        for (column, codes), stride in zip(self._known_here(columns), strides, strict=True):
            if small:  # one look at the rows
                part: NDArray[Any] = column.mapped((codes + 1) * np.int32(stride))
            else:
                part = column.mapped(codes + 1) * np.int64(stride)
            keys = np.add(keys, part, out=keys) if len(keys) else part
        return keys

    def index_of_field(self, name: str) -> int:
        """Return which of the fields of a sketch has this name; refuse a name that none has."""
        if name not in self.names:
            raise InputError(f"the sketch has no field {name!r}; it has {', '.join(self.names) or 'none'}")
        return self.names.index(name)

    def columns(self, codes: NDArray[np.int32]) -> list[FieldColumn]:
        """Return the field columns of rows whose contexts are `codes`."""
        edges = self.edges
        return [
            FieldColumn(n, self.table[codes, f], self.values[f], edges=edges.get(n)) for f, n in enumerate(self.names)
        ]

    def rows(self) -> list[dict[str, str | None]]:
        """Return each context as a mapping of field name to value; fields at ANY are left out."""
        return [
            {
                name: self.values[f][code]
                for f, (name, code) in enumerate(zip(self.names, row, strict=True))
                if code != ANY
            }
            for row in self.table.tolist()
        ]

    def described(self) -> str:
        """Return how many contexts of which fields there are, in words."""
        return f"{counted(len(self), 'context')} of {' × '.join(self.needed)}" if self.names else "no field"

    def labels(self) -> list[str]:
        """Return a short name of each context for people.

        >>> from mcnet.rows.fields import field_columns
        >>> contexts, codes = Contexts.of(field_columns({"country": ["NL", "FR"], "source": [2, None]}), 2)
        >>> contexts.labels()
        ['FR / (missing)', 'NL / 2']

        An empty value is written as two quotation marks.
        """
        if not self.names:
            return ["all"]
        shown = [[MISSING_LABEL if v is None else v or '""' for v in known] + ["(any)"] for known in self.values]
        fields = [f for f, name in enumerate(self.names) if name in self.needed]
        return [" / ".join(shown[f][row[f]] for f in fields) for row in self.table.tolist()]

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The fields that rows must have: those with known values. Of the others, every value is the same as none."""
        return tuple(name for name, known in zip(self.names, self.values, strict=True) if known) or self.names

    def aligned(self, columns: Sequence[FieldColumn]) -> list[FieldColumn]:
        """Return the columns in this order of fields; refuse missing or surplus ones.

        A field without known values may be missing.
        """
        given = {column.name: column for column in columns}
        own = () if self.from_log else self.names
        if len(columns) == len(self.names) == 1 and UNNAMED in (columns[0].name, *own):
            return [columns[0]]  # where one of the two has no name, they can only mean each other
        if not set(self.needed) <= set(given) <= set(self.names):
            wanted = ", ".join(self.needed) or "no field"
            surplus = [name for name in given if name not in self.names]
            if set(self.needed) <= set(given):
                more = f"{', '.join(surplus[:3])}{' …' if len(surplus) > 3 else ''}"
                raise InputError(f"field has columns that are no fields of the fit ({more}); needed: {wanted} alone")
            raise InputError(f"fields given: {', '.join(given) or 'none'}; needed: {wanted}")
        for name, edges in self.edges.items():
            if name in given:
                refuse_other_edges(name, given[name].edges, edges)
        rows = len(columns[0].codes) if columns else 0
        return [given.get(name) or FieldColumn(name, np.zeros(rows, dtype=np.int32), (None,)) for name in self.names]

    def _known_here(self, columns: Sequence[FieldColumn]) -> list[tuple[FieldColumn, CodeArray]]:
        """Return the columns in this order of fields, each with the code here of each of its values."""
        return [
            (column, np.array([indices.get(value, ANY) for value in column.values], dtype=np.int32))
            for indices, column in zip(self._indices, self.aligned(columns), strict=True)
        ]

    @cached_property
    def derived(self) -> bool:
        """Whether a field is derived from its column: a number cut into bins, a part of a timestamp."""
        return any(derivation(name) is not None for name in self.names)

    def given(self, field: Any) -> list[FieldColumn]:
        """Return the fields of rows as a caller gives them; derived ones are cut as those of these contexts were.

        A derived field may be given by its own name, or by that of the column that it is derived from.
        """
        return field_columns(self.by_field(dict(named_columns(field))) if self.derived else field, self.edges)

    def by_field(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was given by the names of columns under the names of fields; what is unknown stays."""
        if len(given) == len(self.names) == 1 and UNNAMED in given:
            return {self.names[0]: given[UNNAMED]}
        result = {}
        for name, column in self._keys:
            if name in given:
                result[name] = given[name]
            elif column in given:
                result[name] = given[column]
        known = {key for keys in self._keys for key in keys}
        return result | {key: given[key] for key in given if key not in known}

    @cached_property
    def _keys(self) -> list[tuple[str, str]]:
        """Each field, and the column that it is read from."""
        return [(name, source_column(name)) for name in self.names]

    def lookup(self, columns: Sequence[FieldColumn]) -> NDArray[np.int32]:
        """Return the context of every row, -1 where this combination is unknown."""
        if len(self.names) == 1:
            ((column, codes),) = self._known_here(columns)
            return column.mapped(self._by_key[codes + 1])
        if len(self._by_key):
            result: CodeArray = self._by_key[self.combination_keys(columns)]
            return result
        return self.find_codes(self.field_codes(columns))

    def find_codes(self, codes: NDArray[np.integer]) -> NDArray[np.int32]:
        """Return the context of each row of field codes `[rows, fields]`, -1 where this combination is unknown."""
        table, which = distinct_contexts(codes)
        contexts = np.array([self._by_codes.get(row, -1) for row in map(tuple, table.tolist())], dtype=np.int32)
        result: CodeArray = contexts[which]
        return result

    def indices_of(self, other: "Contexts") -> NDArray[np.int32]:
        """Return the index here of each context of another, by the fields that are known here; -1 where unknown."""
        if not self.names:
            return np.full(len(other), -1, dtype=np.int32)
        return self.lookup([column for column in other.columns(other.all()) if column.name in self.names])

    def find(self, values: Sequence[Any]) -> int:
        """Return the context of one row, its values in the order of the fields; -1 where it is unknown."""
        return self._by_codes.get(self.codes_of(values), -1)

    def codes_of(self, values: Sequence[Any]) -> tuple[int, ...]:
        """Return the code of each of one row's values, in the order of the fields; ANY for an unseen value."""
        return tuple(
            [index.get(text(v), ANY) for index, text, v in zip(self._indices, self._texts, values, strict=True)]
        )

    @cached_property
    def _texts(self) -> list[Callable[[Any], str | None]]:
        return [value_text(name, self.edges.get(name)) for name in self.names]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is made when it is first needed: functions do not travel."""
        return {name: value for name, value in self.__dict__.items() if name != "_texts"}

    @cached_property
    def _by_codes(self) -> dict[tuple[int, ...], int]:
        return {tuple(row): index for index, row in enumerate(self.table.tolist())}

    @cached_property
    def _indices(self) -> list[dict[str | None, int]]:
        return [{value: code for code, value in enumerate(known)} for known in self.values]


# Bins of one field, which add up only if they are the same.


def refuse_other_edges(name: str, one: Edges | None, other: Edges | None) -> None:
    """Refuse two sets of bins of one field; None is a part whose bins are not known."""
    if one is not None and other is not None and one != other:
        raise InputError(
            f"{name!r} has other bins here ({_shown(one)}) than there ({_shown(other)}), and only the same bins add up",
            advice=Advice(
                "cut both alike: pass like=, a sketch or model that has the bins, to mcnet.scan",
                shell="cut both alike: pass --bins FILE, a sketch or model that has the bins",
                service="send the numbers, which the model cuts",
            ),
        )


def _shown(edges: Edges) -> str:
    texts = bin_texts(edges)
    return f"{len(texts)} bins: {', '.join(texts[:3])}{' …' if len(texts) > 3 else ''}"
