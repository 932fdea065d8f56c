"""A sketch as one SQL query: the engine that has the rows groups them, to the same bits as `scan`."""

from collections.abc import Collection, Mapping, Sequence

from mcnet._shared.typing import FloatArray, ScoreType
from mcnet.data.negative_sampling import check_negatives_kept
from mcnet.errors import InputError
from mcnet.sketch.column_checks import check_columns
from mcnet.sketch.folds import check_folds
from mcnet.sketch.grid import DEFAULT_RESOLUTION, LogitGrid, Resolution, make_grid
from mcnet.sketch.query_cells import CellSearch, EdgeList
from mcnet.sketch.query_grid import root_lines
from mcnet.sketch.query_result import (
    ABOUT,
    CELL,
    FOLD,
    MARKS,
    MISSING_MARK,
    PLAIN_MARK,
    POSITION,
    POSITIVES,
    ROWS,
    WEIGHT,
    About,
)
from mcnet.sketch.query_rows import OWN, LabelType, RowColumns, check_names
from mcnet.sql.column_types import COLUMN_TYPES
from mcnet.sql.dialects import Dialect, dialect_named

__all__ = ["LabelType", "describe_rows", "grid_arrays", "query_text", "sketch_query"]


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
) -> str:
    """Return one SQL query whose result is a sketch of a table; read the result with `Sketch.from_table`.

    The cells are those of `scan` on the same rows, bit for bit, as long as scores are probabilities and weights whole
    numbers. A logarithm only proposes the cell; comparisons with the exact edges of the grid decide.

    Parameters
    ----------
    table : the table or view with the rows; dots divide schema and table, or pass the parts as a tuple.
    dialect : "duckdb", "postgresql", "bigquery", "snowflake", "spark", "clickhouse" or "trino".
    score, label, weight : names of columns; see Sketch.from_rows.
    field : the name of a field column, or a list of names.
    folds : into how many folds to split the rows, or the name of a column of fold numbers. A table has no order of
        rows, so a number splits the rows behind each cell at random when the result is read.
    resolution : cells per unit of logit, or "exact" to keep every distinct score.
    score_type : "probability" or "logit".
    negatives_kept : the fraction of negatives that survived down-sampling; they are weighted back.
    every : fields of timestamps and the periods to cut them to: {"time": "1h"}.
    where : a condition on the rows, in the engine's own SQL.
    label_type : "boolean" if the label is true or false and the engine casts no booleans to numbers (PostgreSQL,
        BigQuery, Snowflake).
    zoned : those names in `every` whose columns have a time zone, as `timestamptz` has: they are cut in UTC. Without it
        their days begin where the session's time zone says.

    Returns
    -------
    The text of the query, without a semicolon.
    """
    about = describe_rows(
        score=score,
        label=label,
        field=field,
        weight=weight,
        folds=folds,
        resolution=resolution,
        score_type=score_type,
        negatives_kept=negatives_kept,
        every=every,
    )
    if label_type not in ("number", "boolean"):
        raise InputError(f"label_type is {label_type!r}; it must be 'number' or 'boolean'")
    strangers = [name for name in zoned if name not in about.every]
    if strangers:
        raise InputError(f"zoned has {strangers[0]!r}, which is not in every; zoned names columns of every")
    words = dialect_named(dialect)
    check_names(about, folds if isinstance(folds, str) else None, table, where, words)
    # The condition may end in a comment.
    source = words.table(table) + ("" if where is None else f"\n  WHERE {where}\n")
    return query_text(about, source, words, folds=folds, label_type=label_type, zoned=zoned)


def describe_rows(
    *,
    score: str,
    label: str,
    field: str | Sequence[str] | None = None,
    weight: str | None = None,
    folds: int | str = 1,
    resolution: Resolution = DEFAULT_RESOLUTION,
    score_type: ScoreType = "probability",
    negatives_kept: float = 1.0,
    every: Mapping[str, str] | None = None,
) -> About:
    """Check how rows are to be read, and return it; see `sketch_query` for the parameters."""
    fields = [] if field is None else [field] if isinstance(field, str) else list(field)
    every = dict(every or {})
    check_columns(score, label, weight, folds, fields, every)
    check_negatives_kept(negatives_kept)
    if score_type not in ("probability", "logit"):
        raise InputError(f"score_type is {score_type!r}; it must be 'probability' or 'logit'")
    for name in fields:
        if name.lower() in (CELL, FOLD, ROWS, WEIGHT, POSITIVES, POSITION, ABOUT, MARKS):
            raise InputError(f"the field {name!r} has the name of a column of the result; rename it in a view")
    columns = {"score": score, "label": label} | ({} if weight is None else {"weight": weight})
    number = None if isinstance(folds, str) else check_folds(folds)
    return About(make_grid(resolution).resolution, columns, tuple(fields), number, score_type, negatives_kept, every)


def query_text(
    about: About,
    source: str,
    dialect: Dialect,
    *,
    folds: int | str = 1,
    label_type: LabelType = "number",
    zoned: Collection[str] = (),
    edge_list: EdgeList | None = None,
) -> str:
    """Return the text of the query.

    Parameters
    ----------
    about : how the rows are read.
    source : what FROM takes.
    dialect : the words of the engine.
    folds, label_type, zoned : as in `sketch_query`.
    edge_list : the arrays of `grid_arrays`, if the engine has them; otherwise the query makes its own, and logarithms
        propose cells.
    """
    grid = make_grid(about.resolution)
    rows = RowColumns(dialect, about, folds if isinstance(folds, str) else None, label_type, zoned)
    search = CellSearch(rows, grid if isinstance(grid, LogitGrid) else None, edge_list)
    tables = [*search.edges(), *rows.tables(source), *search.tables()]
    return (
        f"-- A sketch for mcnet.Sketch.from_table, in the words of {dialect.name}.\nWITH "
        + ",\n".join(tables)
        + f"\nSELECT {_results(rows, search)}\nFROM {search.found}"
        + f" GROUP BY {', '.join([*rows.fields, search.grouped, *rows.fold])}"
    )


def _results(rows: RowColumns, search: CellSearch) -> str:
    """Return the columns of the result."""
    label, weight, position = f"{OWN}label", f"{OWN}weight", search.position
    sums = {ROWS: "COUNT(*)"}
    if rows.weighted:
        sums |= {
            WEIGHT: f"SUM({weight})",
            POSITIVES: f"SUM({weight} * {label})",
            POSITION: f"SUM({weight} * {position})",
        }
    else:
        sums |= {WEIGHT: "COUNT(*)", POSITIVES: f"SUM({label})", POSITION: f"SUM({position})"}
    named = rows.dialect.column
    fetched = map(rows.dialect.fetched.format, rows.fields)
    columns = [f"{value} AS {named(name)}" for value, name in zip(fetched, rows.about.fields, strict=True)]
    columns += [f"{search.cell} AS {named(CELL)}"]
    columns += [f"{fold} AS {named(FOLD)}" for fold in rows.fold]
    columns += [f"{total} AS {named(name)}" for name, total in sums.items()]
    if rows.fields:
        columns.append(f"{' || '.join(_mark(field, rows.dialect) for field in rows.fields)} AS {named(MARKS)}")
    return ",\n  ".join([*columns, f"{rows.dialect.text(rows.about.text())} AS {named(ABOUT)}"])


def _mark(field: str, dialect: Dialect) -> str:
    """Return the expression of the letter that says how a field value is to be read."""
    types = "".join(f" WHEN {found} THEN '{mark}'" for found, mark in COLUMN_TYPES[dialect.name].marks(field))
    return f"CASE WHEN {field} IS NULL THEN '{MISSING_MARK}'{types} ELSE '{PLAIN_MARK}' END"


def grid_arrays(resolution: Resolution) -> dict[str, FloatArray]:
    """Return the arrays by which a query finds the cell of a score; none where every score is its own cell."""
    grid = make_grid(resolution)
    if not isinstance(grid, LogitGrid):
        return {}
    return {"edges": grid.edges, "units": grid.units_per_score, **root_lines(grid)}
