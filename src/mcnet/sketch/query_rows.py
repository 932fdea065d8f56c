"""Rows in a sketch query: their columns, weights and periods, why some cannot be used, and what is returned."""

import json
import re
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from mcnet._shared.arrays import SCORE_FLOOR
from mcnet.errors import Advice, FileFormatError, InputError
from mcnet.rows.columns import LOGITS_ADVICE, NEGATIVE_VALUE_ADVICE, VALUE_ADVICE
from mcnet.rows.derived import check_edges
from mcnet.rows.fields import derivation, source_column
from mcnet.rows.periods import truncation_unit
from mcnet.rows.spec import MOST_FOLDS, RowSpec
from mcnet.rows.sql_dialects import Dialect, name_parts
from mcnet.sketch.grid import VALUE_UNITS

# What a sketch query returns: the names of its columns, what it says of itself, and the numbers of unusable rows.

CELL, FOLD = "mcnet_cell", "mcnet_fold"
ROWS, WEIGHT, POSITIVES, SCORES = "mcnet_rows", "mcnet_weight", "mcnet_positives", "mcnet_scores"
VALUES = ("mcnet_value", "mcnet_value_positive", "mcnet_value_squares")
ABOUT = "mcnet_sketch"
MARKS = "mcnet_types"
"""The column that has one letter per field: how its value is to be read where a client has made a string of it."""

MISSING_MARK, PLAIN_MARK = "m", "p"
"""The letters of a missing value, and of one whose string is what it is; see `ColumnTypes.marks` for the others."""

_QUERY_VERSION = 1
"""The version of the grid and of the columns; a result of another version is refused."""

WITHOUT_WEIGHT = -1_000_000
"""The number that stands in the column of cells for rows of weight 0."""


@dataclass(frozen=True)
class RowProblem:
    """Why rows cannot be used; no cell of any grid has such a number."""

    number: int
    column: str
    what: str
    advice: Advice | str
    missing: bool


PROBLEMS = (
    RowProblem(-1_000_001, "label", "missing, NaN or infinite", "drop these rows", True),
    RowProblem(
        -1_000_002,
        "label",
        "outside [0, 1]",
        "labels are 0/1, booleans, or fractions with the number of impressions as weight",
        False,
    ),
    RowProblem(-1_000_003, "weight", "missing, NaN or infinite", "give them a number", True),
    RowProblem(-1_000_004, "weight", "below 0", "weights are counts or importances ≥ 0", False),
    RowProblem(-1_000_005, "score", "missing, NaN or infinite", "drop or fill these rows", True),
    RowProblem(
        -1_000_006,
        "score",
        "outside [0, 1]",
        LOGITS_ADVICE,
        False,
    ),
    RowProblem(-1_000_007, "folds", "missing, or no whole number from 0 to 99", "give them a fold", False),
    RowProblem(-1_000_008, "value", "missing, NaN or infinite", VALUE_ADVICE, True),
    RowProblem(-1_000_009, "value", "below 0", NEGATIVE_VALUE_ADVICE, False),
)


def spec_text(spec: RowSpec) -> str:
    """Return how rows are read as a short string, usual values left out; a query writes it into every row."""
    usual = RowSpec()
    values = {
        name: getattr(spec, name)
        for name in ("fields", "folds", "score_type", "negatives_kept", "every", "edges")
        if getattr(spec, name) != getattr(usual, name)
    }
    if spec.fold_column is not None:
        values["folds"] = None
    values |= {"version": _QUERY_VERSION, "resolution": spec.resolution, "columns": spec.columns}
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def read_spec(written: str) -> RowSpec:
    """Read what `spec_text` wrote; refuse that of another version."""
    refusal = FileFormatError(
        f"the column {ABOUT} has {str(written)[:60]!r}, which no query of mcnet writes; leave it as it is"
    )
    try:
        values: dict[str, Any] = json.loads(written)
        version = values.pop("version")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise refusal from None
    if version != _QUERY_VERSION:
        raise FileFormatError(
            f"the table was made by a query of version {version}, and this mcnet reads {_QUERY_VERSION}: "
            "run the query that mcnet.sketch_query writes now"
        )
    try:
        columns, fields = values.pop("columns"), tuple(values.pop("fields", ()))
        edges = {name: check_edges(name, given) for name, given in values.pop("edges", {}).items()}
        spec = RowSpec(**columns, fields=fields, edges=edges, **values)
        return replace(spec, folds=FOLD) if spec.folds is None else spec
    except (KeyError, TypeError):
        raise refusal from None


# Rows in a sketch query: their columns under names of the query's own, their weights, and why some cannot be used.

LabelType = Literal["number", "boolean"]

OWN = "mcnet__"
"""How every name begins that stands in one SELECT with names of the user.

ClickHouse takes a name for an alias of the same SELECT before it takes it for a column, and a part of the query would
hide a table of the user that has its name.
"""

SCORE = f"{OWN}x"
"""The name of the score as a probability, clipped, in the query."""

UNITS = (f"{OWN}units", f"{OWN}squares")
"""The names of what a row is worth, and of its square, in the query."""

_LARGEST_LOGIT = 50.0
"""Logits beyond this are clipped, and some engines refuse the exponential of still larger ones."""


def check_names(spec: RowSpec, table: str | Sequence[str], where: str | None, dialect: Dialect) -> None:
    """Refuse names that the query uses itself, and names that the engine takes for one."""
    columns = [*spec.numbers, *spec.fields]
    used = [name for name in (*columns, *name_parts(table)) if name.lower().startswith(OWN)]
    if where is not None and re.search(rf"\b{OWN}", where, re.IGNORECASE):
        used.append(where)
    if used:
        raise InputError(
            f"{used[0]!r} has a name that begins with {OWN}, as those of the query do; rename it in a view"
        )
    if dialect.ignores_case:
        known: dict[str, str] = {}
        for name in columns:
            other = known.setdefault(name.lower(), name)
            if other != name:
                raise InputError(f"{dialect.name} takes {other!r} and {name!r} for one column; rename one in a view")


@dataclass(frozen=True)
class RowColumns:
    """The columns of rows, in one dialect."""

    dialect: Dialect
    spec: RowSpec
    label_type: LabelType
    zoned: Collection[str] = ()
    """The columns of timestamps that have a time zone."""

    @property
    def fields(self) -> list[str]:
        """Return the names of the fields in the query."""
        return [f"{OWN}f{index}" for index in range(len(self.spec.fields))]

    @property
    def fold(self) -> list[str]:
        """Return the name of the column of folds in the query, if there is one."""
        return [] if self.spec.fold_column is None else [f"{OWN}fold"]

    @property
    def weighted_by_column(self) -> bool:
        """Whether rows have their own weights."""
        return self.spec.weight is not None

    @property
    def weighted(self) -> bool:
        """Whether rows count other than once."""
        return self.weighted_by_column or self.spec.negatives_kept != 1.0

    @property
    def carried(self) -> list[str]:
        """Return the columns that are grouped and added up beside the cell."""
        weight = [f"{OWN}weight"] if self.weighted else []
        return [*self.fields, *self.fold, f"{OWN}label", *weight, *([] if self.value is None else UNITS)]

    @property
    def value(self) -> str | None:
        """Return the column of what a positive is worth."""
        return self.spec.value or self.spec.value_per_positive

    def tables(self, source: str) -> list[str]:
        """Return the tables that end in `placed`: the columns carried, the score, and its cell or why it has none."""
        checked = [f"{OWN}s", f"{OWN}y", *([f"{OWN}w"] if self.weighted_by_column else [])]
        kept = [*self.fields, *self.fold, *checked, *([] if self.value is None else [f"{OWN}v"])]
        return [
            f"{OWN}numbers AS (SELECT {', '.join(self._columns())}\n  FROM {source})",
            f"{OWN}scored AS (SELECT {', '.join((*kept, *self._weights()))},\n"
            f"  {self._probability()} AS {SCORE} FROM {OWN}numbers)",
            f"{OWN}placed AS (SELECT {', '.join(self.carried)}, {SCORE},\n  {self._cell()} AS {OWN}k FROM {OWN}scored)",
        ]

    def _cell(self) -> str:
        """Return the cell of a score by its logarithm (the score itself if all are kept), or why there is none.

        A score within rounding of an edge may fall into the cell beside it, which moves no fit.
        """
        number, resolution = self.dialect.number, self.spec.resolution
        shown: Callable[[int], str] = number
        cell = SCORE
        if resolution != "exact":
            logit = f"LN({SCORE} / ({number(1.0)} - {SCORE}))"
            shown, cell = str, self.dialect.as_whole(f"FLOOR({number(float(resolution))} * {logit})")
        cases = [f"WHEN {' AND '.join(self.usable())} THEN {cell}"]
        cases += [f"WHEN {condition} THEN {shown(problem.number)}" for condition, problem in self.problems()]
        return "CASE " + "\n    ".join([*cases, f"ELSE {shown(WITHOUT_WEIGHT)} END"])

    def usable(self) -> list[str]:
        """Return the conditions that a row has a score, a label, a weight and a fold."""
        s, y, w = f"{OWN}s", f"{OWN}y", f"{OWN}w"
        # Nearly all labels are 0: an engine that goes row by row need not test more. Others take longer for each OR.
        by_row = f"({y} = 0 OR {y} = 1 OR {y} > 0 AND {y} < 1)"
        conditions = [by_row if self.dialect.goes_by_row else f"{y} >= 0 AND {y} <= 1"]
        if self.spec.score_type == "probability":
            conditions.append(f"{s} >= 0 AND {s} <= 1")
        else:
            conditions.append(f"NOT ({s} IS NULL OR {self.dialect.is_nan.format(s)})")
        if self.weighted_by_column:
            conditions.append(f"{w} > 0 AND {w} <= {self.dialect.number(sys.float_info.max)}")
        if self.value is not None:
            conditions.append(f"{OWN}v >= 0 AND {OWN}v <= {self.dialect.number(sys.float_info.max)}")
        return [*conditions, *([] if self.spec.fold_column is None else [self._has_fold()])]

    def problems(self) -> list[tuple[str, RowProblem]]:
        """Return the conditions of rows that cannot be used, in the order in which they are reported."""
        s, y, w = (f"{OWN}{name}" for name in "syw")
        conditions = {("label", True): self._missing(y), ("label", False): f"{y} < 0 OR {y} > 1"}
        if self.spec.score_type == "probability":
            conditions |= {("score", True): self._missing(s), ("score", False): f"{s} < 0 OR {s} > 1"}
        else:
            conditions |= {("score", True): f"{s} IS NULL OR {self.dialect.is_nan.format(s)}"}
        if self.weighted_by_column:
            conditions |= {("weight", True): self._missing(w), ("weight", False): f"{w} < 0"}
        if self.value is not None:
            conditions |= {("value", True): self._missing(f"{OWN}v"), ("value", False): f"{OWN}v < 0"}
        if self.spec.fold_column is not None:
            conditions["folds", False] = f"NOT ({self._has_fold()})"
        return [
            (conditions[problem.column, problem.missing], problem)
            for problem in PROBLEMS
            if (problem.column, problem.missing) in conditions
        ]

    def _has_fold(self) -> str:
        fold = f"{OWN}fold"
        return f"{fold} IS NOT NULL AND {fold} >= 0 AND {fold} < {MOST_FOLDS} AND {fold} = FLOOR({fold})"

    def _missing(self, column: str) -> str:
        """Return the condition that a number is NULL, NaN or infinite; NaN is above every number in some engines."""
        largest = self.dialect.number(sys.float_info.max)
        return f"{column} IS NULL OR NOT ({column} >= -{largest} AND {column} <= {largest})"

    def _columns(self) -> list[str]:
        """Return the columns of the rows under names of the query's own."""
        quoted, double, names = self.dialect.column, self.dialect.double_column, self.spec.columns
        label = quoted(names["label"])
        if self.label_type == "boolean":
            one, none = self.dialect.number(1.0), self.dialect.number(0.0)
            label = f"CASE WHEN {label} IS NULL THEN NULL WHEN {label} THEN {one} ELSE {none} END"
        columns = [f"{self._field(name)} AS {own}" for name, own in zip(self.spec.fields, self.fields, strict=True)]
        columns += [f"{double(quoted(names['score']))} AS {OWN}s", f"{double(label)} AS {OWN}y"]
        others = {"w": self.spec.weight, "fold": self.spec.fold_column, "v": self.spec.value}
        if self.spec.value_per_positive is not None:
            worth = double(quoted(self.spec.value_per_positive))
            columns.append(f"CASE WHEN {double(label)} > 0 THEN {worth} ELSE {self.dialect.number(0.0)} END AS {OWN}v")
        return [
            *columns,
            *(f"{double(quoted(column))} AS {OWN}{own}" for own, column in others.items() if column is not None),
        ]

    def _field(self, name: str) -> str:
        """Return a field as it is or derived, or a timestamp cut to a unit that the period is made of."""
        source = source_column(name)
        column = self.dialect.column(source)
        if derivation(name) is not None:
            return self.dialect.derived(name, column, self.spec.edges.get(name), source in self.zoned)
        if name not in self.spec.every:
            return column
        step = str(self.spec.every[name])
        unit = truncation_unit(step)
        if unit is None:
            return f"FLOOR({self.dialect.as_double(column)} / {step}) * {step}"
        timestamp = self.dialect.timestamp(column, name in self.zoned)
        return self.dialect.truncated.format(unit=unit, timestamp=timestamp)

    def _probability(self) -> str:
        """Return the score as a probability, clipped."""
        s, number = f"{OWN}s", self.dialect.number
        if self.spec.score_type == "probability":
            return f"LEAST(GREATEST({s}, {number(SCORE_FLOOR)}), {number(1.0 - SCORE_FLOOR)})"
        near = f"LEAST(GREATEST({s}, {number(-_LARGEST_LOGIT)}), {number(_LARGEST_LOGIT)})"
        small = f"EXP(-ABS({near}))"
        p = f"CASE WHEN {s} >= 0 THEN {number(1.0)} ELSE {small} END / ({number(1.0)} + {small})"
        return f"LEAST(GREATEST({p}, {number(SCORE_FLOOR)}), {number(1.0 - SCORE_FLOOR)})"

    def _weights(self) -> list[str]:
        """Return the weight and the label of a row as if no negative had been dropped, where weights are needed."""
        y, w, label = f"{OWN}y", f"{OWN}w", f"{OWN}label"
        if not self.weighted:
            return [f"{y} AS {label}", *self._units(None)]
        number, counts = self.dialect.number, w if self.weighted_by_column else self.dialect.number(1.0)
        if self.spec.negatives_kept == 1.0:
            return [f"{y} AS {label}", f"{w} AS {OWN}weight", *self._units(w)]
        restored = f"{counts} * ({y} + ({number(1.0)} - {y}) / {number(self.spec.negatives_kept)})"
        restored_label = f"{counts} * {y} / NULLIF({restored}, 0) AS {label}"
        return [restored_label, f"{restored} AS {OWN}weight", *self._units(f"({restored})")]

    def _units(self, weight: str | None) -> list[str]:
        """Return what a row is worth in whole units, and its square, see `Worth.units`; nothing without a value."""
        if self.value is None:
            return []
        worth, number = f"{OWN}v" if weight is None else f"{OWN}v * {weight}", self.dialect.number
        return [
            f"FLOOR({part} * {number(VALUE_UNITS)} + {number(0.5)}) AS {name}"
            for part, name in zip((worth, f"{worth} * {OWN}v"), UNITS, strict=True)
        ]
