"""A sketch as one SQL query, and the sketch that its result is."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from os import PathLike
from typing import Any

import numpy as np
import polars as pl

from mcnet._shared.arrays import FloatArray, IntArray, ScoreType
from mcnet.errors import FileFormatError, InputError
from mcnet.rows.column_types import COLUMN_TYPES
from mcnet.rows.columns import as_floats
from mcnet.rows.contexts import Contexts
from mcnet.rows.derived import edges_of
from mcnet.rows.fields import (
    column_names,
    derivation,
    field_column,
    field_columns,
    is_lazy,
    is_table,
    number_fields,
    source_column,
)
from mcnet.rows.logs import expand_paths, open_log, readable, source_name, unchanged_files
from mcnet.rows.spec import DEFAULT_RESOLUTION, Resolution, RowSpec, check_folds, field_names
from mcnet.rows.sql_dialects import Dialect, dialect_named
from mcnet.sketch.build import warn_of_mistakes
from mcnet.sketch.grid import Cells, LogitGrid, make_grid
from mcnet.sketch.query_rows import (
    ABOUT,
    CELL,
    FOLD,
    MARKS,
    MISSING_MARK,
    OWN,
    PLAIN_MARK,
    POSITIVES,
    PROBLEMS,
    ROWS,
    SCORE,
    SCORES,
    UNITS,
    VALUES,
    WEIGHT,
    WITHOUT_WEIGHT,
    LabelType,
    RowColumns,
    check_names,
    read_spec,
    spec_text,
)
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.sketch_file import problem_of_cells

# A sketch as one SQL query: the engine that has the rows groups them.


def sketch_query(
    table: str | Sequence[str],
    *,
    dialect: str = "duckdb",
    score: str,
    label: str,
    field: str | Sequence[str] | None = None,
    weight: str | None = None,
    folds: int | str = 1,
    resolution: Resolution = DEFAULT_RESOLUTION,
    score_type: ScoreType = "probability",
    negatives_kept: float = 1.0,
    every: Mapping[str, str] | None = None,
    where: str | None = None,
    label_type: LabelType = "number",
    zoned: Collection[str] = (),
    value: str | None = None,
    value_per_positive: str | None = None,
    like: Any = None,
) -> str:
    """Return one SQL query whose result is a sketch of a table; read the result with `Sketch.from_table`.

    The cells are those of `scan` on the same rows, but for scores within rounding of the edge of a cell, and but for
    the last digits of mean scores.

    Parameters
    ----------
    table : the table or view with the rows; dots divide schema and table, or pass the parts as a tuple.
    dialect : the SQL of the engine, such as "duckdb" or "postgresql"; an error names all that there are.
    score, label, weight : names of columns; see Sketch.from_rows.
    field : the name of a field column, or a list of names. Those derived from a column (`age:number`, `ts:hour`) are
        cut by the query: numbers by comparisons, timestamps in UTC.
    folds : into how many folds to split the rows, or the name of a column of fold numbers. A table has no order of
        rows, so a number splits the rows behind each cell at random when the result is read.
    resolution : cells per unit of logit, or "exact" to keep every distinct score.
    score_type : "probability" or "logit".
    negatives_kept : the fraction of negatives that survived down-sampling; they are weighted back.
    every : fields of timestamps and the periods to cut them to: {"time": "1h"}.
    where : a condition on the rows, in the engine's own SQL.
    label_type : "boolean" if the label is true or false and the engine casts no booleans to numbers (as
        PostgreSQL does not).
    zoned : those columns of timestamps, in `every` or behind derived fields, that have a time zone, as `timestamptz`
        has: they are cut in UTC. Without it their days begin where the session's time zone says.
    value, value_per_positive : names of columns; see Sketch.from_rows.
    like : a sketch or a model: numbers that are fields are cut as there.

    Returns
    -------
    The text of the query, without a semicolon.
    """
    spec = query_spec(
        RowSpec(
            score,
            label,
            field_names(field),
            weight,
            folds,
            resolution,
            score_type,
            negatives_kept,
            dict(every or {}),
            value=value,
            value_per_positive=value_per_positive,
            edges=edges_of(like),
        )
    )
    if label_type not in ("number", "boolean"):
        raise InputError(f"label_type is {label_type!r}; it must be 'number' or 'boolean'")
    strangers = [name for name in zoned if name not in timestamp_columns(spec)]
    if strangers:
        raise InputError(
            f"zoned has {strangers[0]!r}, which is not in every; zoned names columns of every and of derived fields"
        )
    return table_query(table, spec, dialect_named(dialect), where, label_type, zoned)


def table_query(
    table: str | Sequence[str],
    spec: RowSpec,
    dialect: Dialect,
    where: str | None,
    label_type: LabelType,
    zoned: Collection[str],
) -> str:
    """Return the query for a table, by a spec that was checked; see `sketch_query` for the rest."""
    check_names(spec, table, where, dialect)
    # The condition may end in a comment.
    source = dialect.table(table) + ("" if where is None else f"\n  WHERE {where}\n")
    return query_text(spec, source, dialect, label_type=label_type, zoned=zoned)


def query_spec(spec: RowSpec) -> RowSpec:
    """Check how rows are to be read by a query, and return it with all that a query says of itself."""
    spec.check()
    if spec.propensity is not None:
        raise InputError("propensity is for files and tables in memory; in a database, make weights of it in a view")
    for name in spec.fields:
        if name.lower() in (CELL, FOLD, ROWS, WEIGHT, POSITIVES, SCORES, *VALUES, ABOUT, MARKS):
            raise InputError(f"the field {name!r} has the name of a column of the result; rename it in a view")
    uncut = [name for name in number_fields(spec.fields) if name not in spec.edges]
    if uncut:
        raise InputError(
            f"a query cuts {uncut[0]!r} by edges that are known when it is written; take them from a sketch or a model "
            "with like=, such as a sketch of some of the rows"
        )
    folds = spec.folds if isinstance(spec.folds, str) else check_folds(spec.folds)
    return replace(spec, folds=folds, resolution=make_grid(spec.resolution).resolution)


def timestamp_columns(spec: RowSpec) -> list[str]:
    """Return the columns of timestamps that a query cuts, to periods or to derived fields."""
    clock = [name for name in spec.fields if derivation(name) is not None and name not in number_fields(spec.fields)]
    return list(dict.fromkeys([*spec.every, *map(source_column, clock)]))


def query_text(
    spec: RowSpec, source: str, dialect: Dialect, *, label_type: LabelType = "number", zoned: Collection[str] = ()
) -> str:
    """Return the text of the query over what FROM takes; label_type and zoned are as in `sketch_query`."""
    rows = RowColumns(dialect, spec, label_type, zoned)
    return (
        f"-- A sketch for mcnet.Sketch.from_table, in the words of {dialect.name}.\nWITH "
        + ",\n".join(rows.tables(source))
        + f"\nSELECT {_results(rows)}\nFROM {OWN}placed GROUP BY {', '.join([*rows.fields, f'{OWN}k', *rows.fold])}"
    )


def _results(rows: RowColumns) -> str:
    """Return the columns of the result."""
    label, weight = f"{OWN}label", f"{OWN}weight"
    times = f"{weight} * " if rows.weighted else ""
    sums = {
        ROWS: "COUNT(*)",
        WEIGHT: f"SUM({weight})" if rows.weighted else "COUNT(*)",
        POSITIVES: f"SUM({times}{label})",
        SCORES: f"SUM({times}{SCORE})",
    }
    if rows.value is not None:
        units, squares = UNITS
        half = rows.dialect.number(0.5)
        worth = (f"SUM({units})", f"SUM(FLOOR({units} * {label} + {half}))", f"SUM({squares})")
        sums |= dict(zip(VALUES, worth, strict=True))
    named = rows.dialect.column
    fetched = map(rows.dialect.fetched.format, rows.fields)
    columns = [f"{value} AS {named(name)}" for value, name in zip(fetched, rows.spec.fields, strict=True)]
    columns += [f"{OWN}k AS {named(CELL)}"]
    columns += [f"{fold} AS {named(FOLD)}" for fold in rows.fold]
    columns += [f"{total} AS {named(name)}" for name, total in sums.items()]
    if rows.fields:
        columns.append(f"{' || '.join(_mark(field, rows.dialect) for field in rows.fields)} AS {named(MARKS)}")
    return ",\n  ".join([*columns, f"{rows.dialect.text(spec_text(rows.spec))} AS {named(ABOUT)}"])


def _mark(field: str, dialect: Dialect) -> str:
    """Return the expression of the letter that says how a field value is to be read."""
    types = "".join(f" WHEN {condition} THEN '{mark}'" for condition, mark in COLUMN_TYPES[dialect.name].marks(field))
    return f"CASE WHEN {field} IS NULL THEN '{MISSING_MARK}'{types} ELSE '{PLAIN_MARK}' END"


# Make a sketch of the result of a sketch query.


class NoUsableRowsError(InputError):
    """No row is left that counts: a value is missing in each, and they were to be left out, or all have weight 0."""


def sketch_of_table(table: Any, *, drop_missing: bool = False) -> Sketch:
    """Return the sketch that the result of a query is; see Sketch.from_table."""
    columns = _Result(table)
    spec = columns.spec()
    cell = as_floats(columns[CELL], CELL)
    rows = columns.numbers(ROWS)
    dropped = _check_rows(spec, cell, rows, drop_missing=drop_missing)
    used = cell > (0 if spec.resolution == "exact" else WITHOUT_WEIGHT)
    if not used.any() and dropped == rows.sum():
        raise NoUsableRowsError(f"a value is missing in each of the {dropped:,} rows of the query; check the columns")
    if not used.any():
        raise NoUsableRowsError("every row of the query has weight 0; at least one row with a weight above 0 is needed")
    fields = field_columns(columns.fields(spec.fields), spec.edges) if spec.fields else []
    contexts, codes = Contexts.of([column[used] for column in fields], int(used.sum()))
    folds = columns.numbers(FOLD)[used] if spec.fold_column else np.zeros(int(used.sum()))
    values = VALUES if spec.value_kind else ()
    sums = np.column_stack([columns.numbers(name)[used] for name in (WEIGHT, POSITIVES, SCORES, *values)])
    keys = _keys(spec, cell[used], sums)
    sketch = Sketch(
        contexts,
        Cells(codes, keys, folds.astype(np.int16), sums),
        spec.resolution,
        int(folds.max()) + 1,
        int(rows[used].sum()),
        columns=dict(sorted(spec.columns.items())),  # as the query writes them
        score_type=spec.score_type,
        negatives_kept=spec.negatives_kept,
        dropped_rows=dropped,
        value_kind=spec.value_kind,
    )
    problem = problem_of_cells(sketch)
    if problem:
        raise FileFormatError(f"the result of the query cannot be used: {problem}; run the query again")
    sketch = replace(sketch, cells=sketch.cells.added_up())
    for name, every in spec.every.items():
        sketch = sketch.in_periods(name, str(every))
    if isinstance(spec.folds, int) and spec.folds > 1:
        sketch = sketch.with_folds(spec.folds)
    warn_of_mistakes(sketch, spec)
    return sketch


def _keys(spec: RowSpec, cell: FloatArray, sums: FloatArray) -> IntArray:
    """Return the keys of cells, and put the positions of their mean scores into the sums."""
    grid = make_grid(spec.resolution)
    if not isinstance(grid, LogitGrid):
        sums[:, 2] = 0.0
        return cell.view(np.int64).copy()
    keys = cell.astype(np.int64)
    inside = np.clip(keys, grid.first, grid.first + len(grid) - 1)  # a number that is no cell is refused afterwards
    sums[:, 2] = grid.positions(inside, sums[:, 2] / sums[:, 0]) * sums[:, 0]
    return keys


def _check_rows(spec: RowSpec, cell: FloatArray, rows: FloatArray, *, drop_missing: bool) -> int:
    """Refuse a result with rows that cannot be used; return how many were dropped, if that was asked for."""
    dropped = 0
    for problem in PROBLEMS:
        number = int(rows[cell == problem.number].sum())
        if number and drop_missing and problem.missing:
            dropped += number
        elif number:
            column = spec.columns.get(problem.column, problem.column)
            if problem.column == "value" and spec.value_per_positive is not None:
                column = spec.value_per_positive
            count = f"{number:,} value{'s' if number > 1 else ''}"
            raise InputError(f"{column} has {count} {problem.what}", advice=problem.advice, column=column)
    return dropped


class _Result:
    """The columns of a result by name, from a table, a file or a cursor."""

    def __init__(self, table: Any) -> None:
        self._columns = fetched_columns(table)
        self._names = {name.lower(): name for name in self._columns}  # some engines fold names to one case

    def __getitem__(self, name: str) -> Any:
        column = name if name in self._columns else self._names.get(name.lower())
        if column is None:
            known = ", ".join(self._columns)
            raise InputError(f"the result has no column {name!r}; it has {known}: run the query of mcnet.sketch_query")
        return self._columns[column]

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
        marks = field_column(MARKS, self[MARKS])
        if any(value is None or len(value) != len(names) for value in marks.values):
            raise FileFormatError(f"the column {MARKS} has values that no query of mcnet writes; leave it as it is")
        for index, name in enumerate(names):
            letters = np.array([str(value)[index] for value in marks.values])[marks.codes]
            if letters.size:
                columns[name] = _as_marked(name, columns[name], letters.tolist())
        return columns

    def spec(self) -> RowSpec:
        """Return how the rows were read, which the result says in every row the same."""
        column = self[ABOUT]
        values = [] if len(column) == 0 else field_column(ABOUT, column).values
        if not values:
            raise InputError("the result of the query is empty; the table has no rows, or `where` keeps none")
        if len(values) > 1:
            raise InputError(f"the result mixes {len(values)} different queries; make a sketch of each and add them up")
        return read_spec(values[0] or "")


def _as_marked(name: str, column: Any, marks: list[str]) -> Any:
    """Return a field of a result with the values that its marks stand for."""
    typed = str(getattr(column, "dtype", getattr(column, "type", "object"))).lower()
    strings = any(kind in typed for kind in ("str", "object", "utf8"))
    rounded = "n" in marks and any(kind in typed for kind in ("float", "double"))
    if not strings and "s" not in marks and not rounded and getattr(column, "null_count", None) is not None:
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
        if mark in (PLAIN_MARK, "c"):
            raise InputError(
                f"field {name!r} has missing values in the result where the engine has strings: a client took them for "
                "missing; save the result as Parquet, or read it with keep_default_na=False"
            )
        return None
    if mark == "s" and isinstance(value, str | float):
        return float(np.float32(value))  # drivers fetch the shortest digits
    if mark == "n" and isinstance(value, float) and (abs(value) >= 1e15 or float(f"{value:.15g}") != value):
        raise InputError(
            f"field {name!r} has the double {value!r} in the result where the engine has a decimal of more digits: a "
            "client has rounded it; save the result as Parquet, or cast the column to strings in a view"
        )
    if not isinstance(value, str):
        return value
    if mark == "c":
        return value.rstrip(" ")  # as exported SQL compares it
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
    plain = type(table).__module__.lstrip("_").startswith("duckdb") and hasattr(table, "cursor")
    for method in () if plain else ("to_arrow_table", "toArrow", "fetch_arrow_table", "read_all"):
        if hasattr(table, method):
            return fetched_columns(getattr(table, method)())
    if hasattr(table, "fetchall") and getattr(table, "description", None):
        names = [column[0] for column in table.description]
        rows = table.fetchall()
        if rows and isinstance(rows[0], Mapping):  # as a driver was told to give them: psycopg's dict_row
            return {name: [row[name] for row in rows] for name in names}
        return {name: [row[index] for row in rows] for index, name in enumerate(names)}
    raise InputError(
        f"from_table was given {type(table).__name__}; it takes a table of Arrow, Polars or pandas, a file, "
        "or a cursor after its query"
    )


def _from_file(path: str | PathLike[str]) -> dict[str, pl.Series]:
    with unchanged_files(expand_paths(path)), readable(source_name(path)):
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
