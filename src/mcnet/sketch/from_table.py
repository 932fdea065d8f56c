"""Make a sketch of the result of a sketch query."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnet._shared.math import SCORE_FLOOR
from mcnet._shared.typing import FloatArray, IntArray
from mcnet.data.columns import as_floats
from mcnet.data.contexts import Contexts
from mcnet.data.fields import field_columns
from mcnet.data.files import UnchangedFiles, expand_paths, open_log, readable, source_name
from mcnet.data.tables import column_names, is_lazy, is_table
from mcnet.errors import FileFormatError, InputError
from mcnet.sketch.cells import Cells
from mcnet.sketch.file import problem_of_cells
from mcnet.sketch.grid import make_grid
from mcnet.sketch.likely_mistakes import warn_of_mistakes
from mcnet.sketch.query_result import (
    ABOUT,
    CELL,
    FOLD,
    HIGHEST_SCORES,
    LOWEST_SCORES,
    MARKS,
    MISSING_MARK,
    PLAIN_MARK,
    POSITION,
    POSITIVES,
    PROBLEMS,
    ROWS,
    WEIGHT,
    WITHOUT_WEIGHT,
    About,
)
from mcnet.sketch.sketch import Sketch

if TYPE_CHECKING:
    import polars as pl

__all__ = ["NoUsableRowsError", "fetched_columns", "sketch_of_table"]


class NoUsableRowsError(InputError):
    """No row is left that counts: a value is missing in each, and they were to be left out, or all have weight 0."""


def sketch_of_table(table: Any, *, drop_missing: bool = False) -> Sketch:
    """Return the sketch that the result of a query is; see Sketch.from_table."""
    columns = _Result(table)
    about = columns.about()
    cell = as_floats(columns[CELL], CELL)
    rows = columns.numbers(ROWS)
    dropped = _check_rows(about, cell, rows, drop_missing=drop_missing)
    ends = np.isin(cell, (LOWEST_SCORES, HIGHEST_SCORES))
    used = ends | (cell > (0 if about.resolution == "exact" else WITHOUT_WEIGHT))
    if not used.any() and dropped == rows.sum():
        raise NoUsableRowsError(f"a value is missing in each of the {dropped:,} rows of the query; check the columns")
    if not used.any():
        raise NoUsableRowsError("every row of the query has weight 0; at least one row with a weight above 0 is needed")
    fields = field_columns(columns.fields(about.fields)) if about.fields else []
    contexts, codes = Contexts.of([column[used] for column in fields], int(used.sum()))
    folds = columns.numbers(FOLD)[used] if about.folds is None else np.zeros(int(used.sum()))
    sums = np.column_stack([columns.numbers(name)[used] for name in (WEIGHT, POSITIVES, POSITION)])
    keys = _keys(about, cell[used], sums)
    sketch = Sketch(
        contexts,
        Cells(codes, keys, folds.astype(np.int16), sums),
        about.resolution,
        int(folds.max()) + 1,
        int(rows[used].sum()),
        columns=dict(about.columns),
        score_type=about.score_type,
        negatives_kept=about.negatives_kept,
        dropped_rows=dropped,
    )
    problem = problem_of_cells(sketch)
    if problem:
        raise FileFormatError(f"the result of the query cannot be used: {problem}; run the query again")
    sketch = replace(sketch, cells=sketch.cells.added_up())
    for name, every in about.every.items():
        sketch = sketch.in_periods(name, every)
    if about.folds is not None and about.folds > 1:
        sketch = sketch.with_folds(about.folds)
    warn_of_mistakes(sketch, about.columns["score"], about.columns["label"])
    return sketch


def _keys(about: About, cell: FloatArray, sums: FloatArray) -> IntArray:
    """Return the keys of cells: their numbers, or the bits of scores that are kept as they are.

    Scores at the ends of the grid have their own numbers; their positions are put into the sums.
    """
    keys = cell.view(np.int64).copy() if about.resolution == "exact" else cell.astype(np.int64)
    ends, positions = make_grid(about.resolution).locate(np.array([SCORE_FLOOR, 1.0 - SCORE_FLOOR]))
    for number, key, position in zip((LOWEST_SCORES, HIGHEST_SCORES), ends, positions, strict=True):
        there = cell == number
        keys[there] = key
        sums[there, 2] = sums[there, 0] * position
    return keys


def _check_rows(about: About, cell: FloatArray, rows: FloatArray, *, drop_missing: bool) -> int:
    """Refuse a result with rows that cannot be used; return how many were dropped, if that was asked for."""
    dropped = 0
    for problem in PROBLEMS:
        number = int(rows[cell == problem.number].sum())
        if number and drop_missing and problem.missing:
            dropped += number
        elif number:
            column = about.columns.get(problem.column, problem.column)
            count = f"{number:,} value{'s' if number > 1 else ''}"
            raise InputError(f"{column} has {count} {problem.what}; {problem.advice}")
    return dropped


class _Result:
    """The columns of a result by name, from a table, a file or a cursor."""

    def __init__(self, table: Any) -> None:
        self._columns = fetched_columns(table)
        self._names = {name.lower(): name for name in self._columns if name.lower().startswith("mcnet_")}

    def __getitem__(self, name: str) -> Any:
        found = self._names.get(name, name)
        if found not in self._columns:
            # Engines that fold names to one case.
            found = next((known for known in self._columns if known.lower() == name.lower()), name)
        if found not in self._columns:
            known = ", ".join(self._columns)
            raise InputError(f"the result has no column {name!r}; it has {known}: run the query of mcnet.sketch_query")
        return self._columns[found]

    def numbers(self, name: str) -> FloatArray:
        """Return a column of numbers."""
        return as_floats(self[name], name)

    def fields(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the columns of the fields; values that a client has made strings of are read as the query marked them.

        A table without marks is of an earlier query, or of a client that keeps types.
        """
        columns = {name: self[name] for name in names}
        if MARKS not in self._names:
            return columns
        marks = field_columns({MARKS: self[MARKS]})[0]
        if any(value is None or len(value) != len(names) for value in marks.values):
            raise FileFormatError(f"the column {MARKS} has values that no query of mcnet writes; leave it as it is")
        for place, name in enumerate(names):
            letters = np.array([str(value)[place] for value in marks.values])[marks.codes]
            if letters.size:
                columns[name] = _as_marked(name, columns[name], letters.tolist())
        return columns

    def about(self) -> About:
        """Return what the result says of itself, in every row the same."""
        column = self[ABOUT]
        values = [] if len(column) == 0 else field_columns({ABOUT: column})[0].values
        if not values:
            raise InputError("the result of the query is empty; the table has no rows, or `where` keeps none")
        if len(values) > 1:
            raise InputError(f"the result mixes {len(values)} different queries; make a sketch of each and add them up")
        return About.of(values[0] or "")


def _as_marked(name: str, column: Any, marks: list[str]) -> Any:
    """Return a field of a result with the values that its marks stand for."""
    typed = str(getattr(column, "dtype", getattr(column, "type", "object"))).lower()
    strings = any(kind in typed for kind in ("str", "object", "utf8"))
    if not strings and "s" not in marks and getattr(column, "null_count", None) is not None:
        return column
    for method in ("to_list", "to_pylist", "tolist"):
        if hasattr(column, method):
            column = getattr(column, method)()
            break
    known: dict[tuple[str, Any], Any] = {}
    values = []
    for value, mark in zip(column, marks, strict=True):
        key = (mark, value)
        if key not in known:
            known[key] = _marked_value(name, value, mark)
        values.append(known[key])
    return values


def _marked_value(name: str, value: Any, mark: str) -> Any:
    """Return one value as the engine had it."""
    if mark == MISSING_MARK:
        return None
    if value is None or value != value:
        if mark == PLAIN_MARK:
            raise InputError(
                f"field {name!r} has missing values in the result where the engine has strings: a client took them for "
                "missing; save the result as Parquet, or read it with keep_default_na=False"
            )
        return None
    if mark == "s" and isinstance(value, str | float):
        return float(np.float32(value))  # drivers fetch the shortest digits
    if not isinstance(value, str):
        return value
    try:
        if mark == "b":
            return {"t": True, "true": True, "1": True, "f": False, "false": False, "0": False}[value.lower()]
        if mark == "n":
            return Decimal(value)
        if mark == "d":
            return float(value)
        if mark in "tz":
            timestamp = datetime.fromisoformat(value.removesuffix(" UTC"))
            return timestamp.replace(tzinfo=UTC) if mark == "z" and timestamp.tzinfo is None else timestamp
    except (KeyError, ValueError, ArithmeticError):
        raise InputError(
            f"field {name!r} has {value!r} in the result, which cannot be read; save it as Parquet"
        ) from None
    return value


def fetched_columns(table: Any) -> Mapping[str, Any]:
    """Return the columns of a result by name, fetched from wherever it is."""
    if isinstance(table, str | PathLike):
        return _from_file(table)
    if is_lazy(table):
        table = table.collect()
    if isinstance(table, Mapping):
        return table
    if is_table(table):
        return {name: table[name] for name in column_names(table)}
    # Relations of DuckDB, frames of Spark, cursors of ADBC, readers of Arrow; a connection of DuckDB is read as DB-API
    # has it.
    plain = type(table).__module__.lstrip("_").startswith("duckdb") and hasattr(table, "execute")
    for method in () if plain else ("to_arrow_table", "toArrow", "fetch_arrow_table", "read_all"):
        if hasattr(table, method):
            return fetched_columns(getattr(table, method)())
    if hasattr(table, "fetchall") and getattr(table, "description", None):
        names = [column[0] for column in table.description]
        rows = table.fetchall()
        if rows and isinstance(rows[0], Mapping):  # as a driver was told to give them: psycopg's dict_row
            return {name: [row[name] for row in rows] for name in names}
        return {name: [row[place] for row in rows] for place, name in enumerate(names)}
    raise InputError(
        f"from_table was given {type(table).__name__}; it takes a table of Arrow, Polars or pandas, a file, "
        "or a cursor after its query"
    )


def _from_file(path: str | PathLike[str]) -> "dict[str, pl.Series]":
    import polars as pl

    with UnchangedFiles(expand_paths(path)).reading(), readable(source_name(path)):
        opened = open_log(path, typed=False)
        kinds = opened.collect_schema()
        names = kinds.names()
        ours = {name.lower(): name for name in names if name.lower().startswith("mcnet_")}
        fields = [name for name in names if name not in ours.values()]
        texts = [name for name in (ours.get(ABOUT), ours.get(MARKS)) if name is not None]
        if kinds.get(ours.get(CELL, "")) == pl.String:  # CSV, in which an empty string is read as missing
            frame = opened.collect()
            if MARKS in ours:
                frame = frame.with_columns(pl.nth([names.index(name) for name in fields]).fill_null(""))
            elif fields and any(frame[name].null_count() for name in fields):
                raise InputError(
                    f"{source_name(path)} has empty field values, which may be missing or empty strings; run the query "
                    "that mcnet.sketch_query writes now, which tells them apart, or save its result as Parquet"
                )
        else:
            numbers = [name for name in ours.values() if name not in texts]
            frame = open_log(path, numbers=numbers, texts=[*fields, *texts]).collect()
    return {name: frame[name] for name in names}
