"""A sketch as one SQL query: the engine that has the rows groups them, to the same bits as `scan`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mcnet._shared.math import SCORE_FLOOR
from mcnet._shared.typing import FloatArray, ScoreType
from mcnet.data.negative_sampling import check_negatives_kept
from mcnet.data.periods import truncation_unit
from mcnet.errors import InputError
from mcnet.sketch.column_checks import check_columns
from mcnet.sketch.folds import MOST_FOLDS, check_folds
from mcnet.sketch.grid import DEFAULT_RESOLUTION, POSITION_UNITS, LogitGrid, Resolution, make_grid
from mcnet.sketch.query_grid import EDGE_LIST, LOGIT_RAISE, ROOT_LIMIT, edge_list_table, grid_tables, root_lines
from mcnet.sketch.query_result import (
    ABOUT,
    CELL,
    FOLD,
    HIGHEST_SCORES,
    LOWEST_SCORES,
    POSITION,
    POSITIVES,
    PROBLEMS,
    ROWS,
    WEIGHT,
    WITHOUT_WEIGHT,
    About,
)
from mcnet.sql.dialects import Dialect, dialect_named

__all__ = ["LabelType", "describe_rows", "grid_arrays", "query_text", "sketch_query"]

LabelType = Literal["number", "boolean"]

_LARGEST_LOGIT = 50.0
"""Logits beyond this are clipped, and some engines refuse the exponential of still larger ones."""


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
    every : fields of moments and the periods to cut them to: {"time": "1h"}. Days begin where the session's time
        zone says.
    where : a condition on the rows, in the engine's own SQL.
    label_type : "boolean" if the label is true or false and the engine casts no booleans to numbers (PostgreSQL,
        BigQuery, Snowflake).

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
        raise InputError(f"label_type is {label_type!r}; it is 'number' or 'boolean'")
    words = dialect_named(dialect)
    source = words.table(table) + ("" if where is None else f"\n  WHERE {where}")
    return query_text(about, source, words, folds=folds, label_type=label_type)


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
        raise InputError(f"score_type is {score_type!r}; it is 'probability' or 'logit'")
    for name in fields:
        if name.lower() in (CELL, FOLD, ROWS, WEIGHT, POSITIVES, POSITION, ABOUT):
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
    edge_list: str | None = None,
) -> str:
    """Return the text of the query.

    Parameters
    ----------
    about : how the rows are read.
    source : what FROM takes.
    dialect : the words of the engine.
    folds, label_type : as in `sketch_query`.
    edge_list : a table of one row with the arrays of `grid_arrays`, if there is one; otherwise the query makes its own
        and proposes cells by logarithms.
    """
    grid = make_grid(about.resolution)
    query = _Query(dialect, about, folds if isinstance(folds, str) else None, label_type, edge_list)
    return query.text(source, grid if isinstance(grid, LogitGrid) else None)


def grid_arrays(resolution: Resolution) -> dict[str, FloatArray]:
    """Return the arrays by which a query finds the cell of a score; none where every score is a cell of its own."""
    grid = make_grid(resolution)
    if not isinstance(grid, LogitGrid):
        return {}
    return {"edges": grid.edges, "units": grid.units_per_score, **root_lines(grid)}


@dataclass(frozen=True)
class _Query:
    """The parts of the query, in one dialect."""

    dialect: Dialect
    about: About
    folds: str | None
    label_type: LabelType
    edge_list: str | None

    def text(self, source: str, grid: LogitGrid | None) -> str:
        """Return the whole query."""
        carried = self._carried()
        kept = [name for name in carried if not name.endswith("_of_row")]
        parts = self._parts(grid)
        tables = [
            *self._grid(grid),
            f"numbers AS (SELECT {', '.join(self._columns())}\n  FROM {source})",
            f"scored AS (SELECT {', '.join((*kept, *self._checked(), *self._weights()))},\n"
            f"  {self._probability()} AS x FROM numbers)",
            *(self._rooted(parts) if parts else []),
            f"proposed AS (SELECT {', '.join(carried)}, x,\n  {self._proposed(grid)} AS k\n"
            f"  FROM {'parted' if parts else 'scored'})",
        ]
        rows, position = "proposed", "0"
        if grid is not None:
            tables += self._placed_by_array() if self._finds_by_array else self._placed_by_join()
            rows, position = "placed", "position_in_cell"
        grouped = "k" if grid is None else "n"
        cell = f"CASE WHEN n < 0 THEN n ELSE n + {grid.first} END" if grid and self._finds_by_array else grouped
        groups = [*(f"f{place}" for place in range(len(self.about.fields))), grouped]
        groups += [] if self.folds is None else ["fold"]
        return (
            f"-- A sketch for mcnet.Sketch.from_table, in the words of {self.dialect.name}.\nWITH "
            + ",\n".join(tables)
            + f"\nSELECT {self._results(cell, position)}\nFROM {rows} GROUP BY {', '.join(groups)}"
        )

    @property
    def _finds_by_array(self) -> bool:
        return self.dialect.sorted_array is not None

    def _parts(self, grid: LogitGrid | None) -> int:
        """Return into how many parts roots are cut to propose cells, or 0 where logarithms propose them.

        Engines may take much longer for a logarithm than for roots and items of arrays.
        """
        if grid is None or self.edge_list is None or not self._finds_by_array:
            return 0
        return len(root_lines(grid)["offsets"])

    def _array(self, name: str) -> str:
        """Return an array of the table of edges."""
        return f"(SELECT {name} FROM {self.edge_list or EDGE_LIST})"

    def _grid(self, grid: LogitGrid | None) -> list[str]:
        """Return the tables that have the edges of the grid."""
        if grid is None or self.edge_list is not None:
            return []
        if self._finds_by_array:
            return edge_list_table(grid, self.dialect)
        no_cells = [*(problem.number for problem in PROBLEMS), WITHOUT_WEIGHT, LOWEST_SCORES, HIGHEST_SCORES]
        return grid_tables(grid, self.dialect, no_cells)

    # A score so near an edge that its position would be rounded up beyond its cell was proposed the cell above. So only
    # where that has happened need the position be limited.

    def _placed_by_join(self) -> list[str]:
        """Return the table of rows in their cells: each row finds the edges of the proposed cell in `grid`."""
        below = f"LEAST((x - below) * units_below, {self.dialect.number(POSITION_UNITS - 1)})"
        return [
            f"placed AS (SELECT {', '.join(self._carried())},\n"
            "  CASE WHEN x < low THEN proposed.k - 1 ELSE proposed.k END AS n,\n"
            f"  FLOOR(CASE WHEN x < low THEN {below} ELSE (x - low) * units END) AS position_in_cell\n"
            "  FROM proposed JOIN grid ON proposed.k = grid.k)"
        ]

    def _placed_by_array(self) -> list[str]:
        """Return the tables of rows in their cells, numbered from 0: numbers below 0 are no cells."""
        carried, most = ", ".join(self._carried()), self.dialect.number(POSITION_UNITS - 1)
        edges = self._array("edges")
        position = f"(x - {edges}[n]) * {self._array('units')}[n]"
        limited, whole = (
            self.dialect.as_double(self.dialect.as_whole(p)) for p in (f"LEAST({position}, {most})", position)
        )
        return [
            f"decided AS (SELECT {carried}, x, k,\n"
            f"  CASE WHEN k < 0 THEN k WHEN x < {edges}[k] THEN k - 1 ELSE k END AS n FROM proposed)",
            f"placed AS (SELECT {carried}, n,\n"
            f"  CASE WHEN n < 0 THEN {self.dialect.number(0.0)} WHEN n < k THEN {limited}\n"
            f"    ELSE {whole} END AS position_in_cell FROM decided)",
        ]

    def _columns(self) -> list[str]:
        """Return the columns of the rows under names of the query's own."""
        quoted, double, names = self.dialect.column, self.dialect.as_double, self.about.columns
        label = quoted(names["label"])
        if self.label_type == "boolean":
            one, none = self.dialect.number(1.0), self.dialect.number(0.0)
            label = f"CASE WHEN {label} IS NULL THEN NULL WHEN {label} THEN {one} ELSE {none} END"
        columns = [f"{self._field(name)} AS f{place}" for place, name in enumerate(self.about.fields)]
        columns += [f"{double(quoted(names['score']))} AS s", f"{double(label)} AS y"]
        columns += [f"{double(quoted(names['weight']))} AS w"] if "weight" in names else []
        return [*columns, *([f"{double(quoted(self.folds))} AS fold"] if self.folds else [])]

    def _checked(self) -> list[str]:
        """Return the columns that are checked, beside those that are grouped."""
        return ["s", "y", *(["w"] if self._weighted_by_column else [])]

    def _field(self, name: str) -> str:
        """Return a field as it is, or a moment cut to a unit that the period is made of."""
        column = self.dialect.column(name)
        if name not in self.about.every:
            return column
        unit = truncation_unit(self.about.every[name])
        if unit is None:
            step = self.about.every[name]
            return f"FLOOR({self.dialect.as_double(column)} / {step}) * {step}"
        moment = f"CAST({column} AS {self.dialect.moment_type})"
        return self.dialect.truncated.format(unit=unit, moment=moment)

    def _probability(self) -> str:
        """Return the score as a probability."""
        if self.about.score_type == "probability":
            return "s"
        number = self.dialect.number
        near = f"LEAST(GREATEST(s, {number(-_LARGEST_LOGIT)}), {number(_LARGEST_LOGIT)})"
        small = f"EXP(-ABS({near}))"
        return f"CASE WHEN s >= 0 THEN {number(1.0)} ELSE {small} END / ({number(1.0)} + {small})"

    def _rooted(self, parts: int) -> list[str]:
        """Return the tables with the fourth root of scores, 0 where it proposes nothing, and its part of [0, 1]."""
        number = self.dialect.number
        low, high = number(SCORE_FLOOR), number(ROOT_LIMIT)
        part = self.dialect.as_whole(f"root * {number(parts)}")
        return [
            "rooted AS (SELECT *,\n"
            f"  CASE WHEN x > {low} AND x < {high} THEN SQRT(SQRT(x)) ELSE {number(0.0)} END AS root FROM scored)",
            f"parted AS (SELECT *, {part} AS part FROM rooted)",
        ]

    def _proposed(self, grid: LogitGrid | None) -> str:
        """Return the cell that a root or a logarithm proposes (the score itself if all are kept), or why there is none.

        Cells are counted from 0 where they are found in arrays, and otherwise have their numbers of the grid.
        """
        number, resolution = self.dialect.number, self.about.resolution
        first = grid.first if grid and self._finds_by_array else 0
        code: Callable[[int], str]
        if resolution == "exact":
            cell, code = "x", number
        else:
            logit = f"LN(x / ({number(1.0)} - x))"
            place = f"{number(resolution)} * {logit} + {number(LOGIT_RAISE - first)}"
            # A number above 0 is cut off where others are rounded down.
            cell = self.dialect.as_whole(place if first else f"FLOOR({place})")
            code = str
        # Nearly all labels are 0: engines that test one thing after the other need not test more.
        inside = ["(y = 0 OR y = 1 OR y > 0 AND y < 1)"]
        found = {("label", True): self._missing("y"), ("label", False): "y < 0 OR y > 1"}
        if self.about.score_type == "probability":
            found |= {("score", True): self._missing("s"), ("score", False): "s < 0 OR s > 1"}
        else:
            found |= {("score", True): f"s IS NULL OR {self.dialect.is_nan.format('s')}"}
        if self._weighted_by_column:
            inside.append(f"w > 0 AND w <= {number(sys.float_info.max)}")
            found |= {("weight", True): self._missing("w"), ("weight", False): "w < 0"}
        if self.folds is not None:
            fold = f"fold IS NOT NULL AND fold >= 0 AND fold < {MOST_FOLDS} AND fold = FLOOR(fold)"
            inside.append(fold)
            found["folds", False] = f"NOT ({fold})"
        cases = []
        if self._parts(grid):
            line = f"{self._array('offsets')}[part] + {self._array('slopes')}[part] * root"
            cases.append(f"WHEN {' AND '.join([*inside, 'part > 0'])} THEN {self.dialect.as_whole(line)}")
        inside.append(f"x > {number(SCORE_FLOOR)} AND x < {number(1.0 - SCORE_FLOOR)}")
        cases.append(f"WHEN {' AND '.join(inside)} THEN {cell}")
        cases += [
            f"WHEN {found[problem.column, problem.missing]} THEN {code(problem.number)}"
            for problem in PROBLEMS
            if (problem.column, problem.missing) in found
        ]
        cases += [f"WHEN w = 0 THEN {code(WITHOUT_WEIGHT)}"] if self._weighted_by_column else []
        cases += [f"WHEN x < {number(0.5)} THEN {code(LOWEST_SCORES)} ELSE {code(HIGHEST_SCORES)} END"]
        return "CASE " + "\n    ".join(cases)

    def _missing(self, column: str) -> str:
        """Return the condition that a number is NULL, NaN or infinite; NaN is above every number in some engines."""
        largest = self.dialect.number(sys.float_info.max)
        return f"{column} IS NULL OR NOT ({column} >= -{largest} AND {column} <= {largest})"

    @property
    def _weighted_by_column(self) -> bool:
        return "weight" in self.about.columns

    @property
    def _weighted(self) -> bool:
        return self._weighted_by_column or self.about.negatives_kept != 1.0

    def _weights(self) -> list[str]:
        """Return the weight and the label of a row as if no negative had been dropped, where weights are needed."""
        if not self._weighted:
            return ["y AS label_of_row"]
        number, counts = self.dialect.number, "w" if self._weighted_by_column else self.dialect.number(1.0)
        if self.about.negatives_kept == 1.0:
            return ["y AS label_of_row", "w AS weight_of_row"]
        restored = f"{counts} * (y + ({number(1.0)} - y) / {number(self.about.negatives_kept)})"
        return [f"{counts} * y / NULLIF({restored}, 0) AS label_of_row", f"{restored} AS weight_of_row"]

    def _carried(self) -> list[str]:
        """Return the columns that are grouped and added up beside the cell."""
        fields = [f"f{place}" for place in range(len(self.about.fields))]
        return [
            *fields,
            *(["fold"] if self.folds else []),
            "label_of_row",
            *(["weight_of_row"] if self._weighted else []),
        ]

    def _results(self, cell: str, position: str) -> str:
        """Return the columns of the result."""
        sums = {ROWS: "COUNT(*)"}
        if self._weighted:
            sums |= {WEIGHT: "SUM(weight_of_row)", POSITIVES: "SUM(weight_of_row * label_of_row)"}
            sums[POSITION] = f"SUM(weight_of_row * {position})"
        else:
            sums |= {WEIGHT: "COUNT(*)", POSITIVES: "SUM(label_of_row)", POSITION: f"SUM({position})"}
        names = {f"f{place}": name for place, name in enumerate(self.about.fields)}
        columns = [f"{column} AS {self.dialect.column(name)}" for column, name in names.items()]
        columns += [f"{cell} AS {self.dialect.column(CELL)}"]
        columns += [f"fold AS {self.dialect.column(FOLD)}"] if self.folds else []
        columns += [f"{total} AS {self.dialect.column(name)}" for name, total in sums.items()]
        return ",\n  ".join([*columns, f"{self.dialect.text(self.about.text())} AS {self.dialect.column(ABOUT)}"])
