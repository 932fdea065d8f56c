"""How a row finds its cell in SQL: a root or a logarithm proposes the cell, comparisons with exact edges decide."""

from collections.abc import Callable
from dataclasses import dataclass

from mcnet._shared.math import SCORE_FLOOR
from mcnet.sketch.grid import POSITION_UNITS, LogitGrid
from mcnet.sketch.query_grid import EDGE_LIST, GRID, LOGIT_RAISE, ROOT_LIMIT, edge_list_table, grid_tables
from mcnet.sketch.query_result import HIGHEST_SCORES, LOWEST_SCORES, PROBLEMS, WITHOUT_WEIGHT
from mcnet.sketch.query_rows import OWN, RowColumns
from mcnet.sql.dialects import Dialect

__all__ = ["CellSearch", "EdgeList"]


@dataclass(frozen=True)
class EdgeList:
    """A table of one row that has the arrays of a grid, and into how many parts of [0, 1] its lines are cut."""

    table: str
    parts: int


@dataclass(frozen=True)
class CellSearch:
    """The tables that lead from scores to cells."""

    rows: RowColumns
    grid: LogitGrid | None
    """None where every score is its own cell."""
    given: EdgeList | None
    """Arrays that the engine has already; without them the query makes its own, and logarithms propose cells."""

    @property
    def dialect(self) -> Dialect:
        """Return the words of the engine."""
        return self.rows.dialect

    @property
    def by_array(self) -> bool:
        """Whether edges are items of arrays; otherwise they are lines of a table that is joined."""
        return self.dialect.sorted_array is not None

    @property
    def grouped(self) -> str:
        """Return the column that rows are grouped by."""
        return f"{OWN}k" if self.grid is None else f"{OWN}n"

    @property
    def cell(self) -> str:
        """Return the number of the cell as the result has it."""
        if self.grid is None or not self.by_array:
            return self.grouped
        return f"CASE WHEN {self.grouped} < 0 THEN {self.grouped} ELSE {self.grouped} + {self.grid.first} END"

    @property
    def position(self) -> str:
        """Return the position of a row's score inside its cell."""
        return "0" if self.grid is None else f"{OWN}place"

    @property
    def found(self) -> str:
        """Return the table of rows with their cells."""
        return f"{OWN}proposed" if self.grid is None else f"{OWN}placed"

    def edges(self) -> list[str]:
        """Return the tables that have the edges of the grid."""
        if self.grid is None or self.given is not None:
            return []
        if self.by_array:
            return edge_list_table(self.grid, self.dialect)
        no_cells = [*(problem.number for problem in PROBLEMS), WITHOUT_WEIGHT, LOWEST_SCORES, HIGHEST_SCORES]
        return grid_tables(self.grid, self.dialect, no_cells)

    def tables(self) -> list[str]:
        """Return the tables from `scored` to `found`."""
        rooted = self._rooted() if self._parts else []
        source = f"{OWN}parted" if rooted else f"{OWN}scored"
        proposed = (
            f"{OWN}proposed AS (SELECT {', '.join(self.rows.carried)}, x,\n  {self._proposed()} AS {OWN}k\n"
            f"  FROM {source})"
        )
        if self.grid is None:
            return [*rooted, proposed]
        return [*rooted, proposed, *(self._placed_by_array() if self.by_array else self._placed_by_join())]

    @property
    def _parts(self) -> int:
        """Return into how many parts roots are cut to propose cells, or 0 where logarithms propose them.

        Engines may take much longer for a logarithm than for roots and items of arrays.
        """
        return 0 if self.grid is None or self.given is None or not self.by_array else self.given.parts

    def _array(self, name: str) -> str:
        """Return an array of the table of edges."""
        return f"(SELECT {name} FROM {EDGE_LIST if self.given is None else self.given.table})"

    # A score so near an edge that its position would be rounded up beyond its cell was proposed the cell above. So only
    # where that has happened need the position be limited.

    def _placed_by_join(self) -> list[str]:
        """Return the table of rows in their cells: each row finds the edges of the proposed cell in the grid."""
        below = f"LEAST((x - below) * units_below, {self.dialect.number(POSITION_UNITS - 1)})"
        k = f"{OWN}proposed.{OWN}k"
        return [
            f"{OWN}placed AS (SELECT {', '.join(self.rows.carried)},\n"
            f"  CASE WHEN x < low THEN {k} - 1 ELSE {k} END AS {OWN}n,\n"
            f"  FLOOR(CASE WHEN x < low THEN {below} ELSE (x - low) * units END) AS {OWN}place\n"
            f"  FROM {OWN}proposed JOIN {GRID} ON {k} = {GRID}.k)"
        ]

    def _placed_by_array(self) -> list[str]:
        """Return the tables of rows in their cells, numbered from 0: numbers below 0 are no cells."""
        carried, most = ", ".join(self.rows.carried), self.dialect.number(POSITION_UNITS - 1)
        edges, k, n = self._array("edges"), f"{OWN}k", f"{OWN}n"
        position = f"(x - {edges}[{n}]) * {self._array('units')}[{n}]"
        limited, whole = (
            self.dialect.as_double(self.dialect.as_whole(p)) for p in (f"LEAST({position}, {most})", position)
        )
        return [
            f"{OWN}decided AS (SELECT {carried}, x, {k},\n"
            f"  CASE WHEN {k} < 0 THEN {k} WHEN x < {edges}[{k}] THEN {k} - 1 ELSE {k} END AS {n} FROM {OWN}proposed)",
            f"{OWN}placed AS (SELECT {carried}, {n},\n"
            f"  CASE WHEN {n} < 0 THEN {self.dialect.number(0.0)} WHEN {n} < {k} THEN {limited}\n"
            f"    ELSE {whole} END AS {OWN}place FROM {OWN}decided)",
        ]

    def _rooted(self) -> list[str]:
        """Return the tables with the fourth root of scores, 0 where it proposes nothing, and its part of [0, 1]."""
        number = self.dialect.number
        low, high = number(SCORE_FLOOR), number(ROOT_LIMIT)
        part = self.dialect.as_whole(f"root * {number(self._parts)}")
        return [
            f"{OWN}rooted AS (SELECT *,\n"
            f"  CASE WHEN x > {low} AND x < {high} THEN SQRT(SQRT(x)) ELSE {number(0.0)} END AS root FROM {OWN}scored)",
            f"{OWN}parted AS (SELECT *, {part} AS part FROM {OWN}rooted)",
        ]

    def _proposed(self) -> str:
        """Return the cell that a root or a logarithm proposes (the score itself if all are kept), or why there is none.

        Cells are counted from 0 where they are found in arrays, and otherwise have their numbers of the grid.
        """
        number, usable = self.dialect.number, self.rows.usable()
        code: Callable[[int], str] = number if self.grid is None else str
        cases = []
        if self._parts:
            line = f"{self._array('offsets')}[part] + {self._array('slopes')}[part] * root"
            cases.append(f"WHEN {' AND '.join([*usable, 'part > 0'])} THEN {self.dialect.as_whole(line)}")
        inside = f"x > {number(SCORE_FLOOR)} AND x < {number(1.0 - SCORE_FLOOR)}"
        cases.append(f"WHEN {' AND '.join([*usable, inside])} THEN {self._proposed_by_logarithm()}")
        cases += [f"WHEN {found} THEN {code(problem.number)}" for found, problem in self.rows.problems()]
        cases += [f"WHEN {OWN}w = 0 THEN {code(WITHOUT_WEIGHT)}"] if self.rows.weighted_by_column else []
        cases += [f"WHEN x < {number(0.5)} THEN {code(LOWEST_SCORES)} ELSE {code(HIGHEST_SCORES)} END"]
        return "CASE " + "\n    ".join(cases)

    def _proposed_by_logarithm(self) -> str:
        if self.grid is None:
            return "x"
        number, first = self.dialect.number, self.grid.first if self.by_array else 0
        logit = f"LN(x / ({number(1.0)} - x))"
        place = f"{number(self.grid.resolution)} * {logit} + {number(LOGIT_RAISE - first)}"
        # A number above 0 is cut off where others are rounded down.
        return self.dialect.as_whole(place if first else f"FLOOR({place})")
