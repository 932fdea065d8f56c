"""How a row finds its cell in SQL: a logarithm proposes the cell, comparisons with exact edges decide."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mcnet._shared.arrays import SCORE_FLOOR, FloatArray, IntArray
from mcnet.rows.sql_dialects import Dialect
from mcnet.sketch.grid import POSITION_UNITS, LogitGrid
from mcnet.sketch.query_rows import HIGHEST_SCORES, LOWEST_SCORES, OWN, PROBLEMS, WITHOUT_WEIGHT, RowColumns

# The edges of a grid in SQL: every double exact, in a twentieth of the text that listing them would take.
#
# An edge is 1 / (1 + exp(-k/resolution)). Engines disagree on the last bits of exp, so the query has none: exp(-k/r) is
# the product of two numbers from short tables, one per block of cells and one per position inside a block. Products,
# quotients and sums of doubles round the same on every engine. What they miss of the exact edge is known when the query
# is written, and is a digit or two per edge.

LOGIT_RAISE = 3e-5
"""A logarithm, raised by this part of a cell, proposes the cell of a score, or the one above it.

It covers the rounding of edges near 1 (2.3e-6 of a cell at resolution 4096) and of any engine's logarithm (below 1e-9).
The last cell of every resolution ends 7e-4 of a cell or more below the next edge: no cell beyond it is proposed.
"""

EDGE_LIST, GRID = "mcnet__edge_list", "mcnet__grid"
"""The names of the table of one row that has all edges as one array, and of the table of one row per cell."""

_HALF_STEP = 2.0**-53
"""A correction is a number of these parts of the edge itself."""

_MOST_CORRECTIONS = 50


def _factors(grid: LogitGrid) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return the tables `blocks` and `inside`, and the corrections of their products.

    Of blocks of `size` edges, edge number block * size + i is about 1 / (1 + blocks[block] * inside[i + 1]). `inside`
    and the corrections of a block go from one edge before its first to one after its last.
    """
    size = math.isqrt(len(grid)) + 1
    numbers = range(-(-len(grid) // size))
    blocks = np.array([math.exp(-(grid.first + size * block) / grid.resolution) for block in numbers])
    inside = np.array([math.exp(-index / grid.resolution) for index in range(-1, size + 1)])
    about = 1.0 / (1.0 + blocks[:, None] * inside)
    which = np.arange(-1, size + 1) + size * np.arange(len(blocks))[:, None]
    exact = grid.edges[np.clip(which, 0, len(grid))]
    corrections = np.full(about.shape, _MOST_CORRECTIONS)
    for correction in sorted(range(-_MOST_CORRECTIONS + 1, _MOST_CORRECTIONS), key=abs, reverse=True):
        # What the query computes, in the same order of operations.
        edges = np.clip(about + correction * _HALF_STEP * about, SCORE_FLOOR, 1.0 - SCORE_FLOOR)
        corrections[edges == exact] = correction
    if (corrections == _MOST_CORRECTIONS).any():
        raise AssertionError(f"an edge of resolution {grid.resolution} is too far from its factors")
    return blocks, inside, corrections


def grid_tables(grid: LogitGrid, dialect: Dialect, others: Sequence[int]) -> list[str]:
    """Return the common table expressions that end in GRID: one row per cell, and one per number that is no cell.

    Its columns are the number k of the cell, its lower edge `low`, the position units per unit of score inside it
    (`units`), and the same of the cell below it (`below`, `units_below`).

    Parameters
    ----------
    grid : the grid.
    dialect : the words of the engine.
    others : numbers that rows without a cell have in its place, so that each row finds one line in the grid.
    """
    number, nothing = dialect.number, dialect.as_double("NULL")
    units = number(POSITION_UNITS)
    return [
        *_edge_tables(grid, dialect, {"below": 0, "low": 1, "high": 2}),
        f"{GRID} AS (SELECT k, below, low, {units} / NULLIF(low - below, {number(0.0)}) AS units_below,\n"
        f"  {units} / (high - low) AS units FROM mcnet__edges\n"
        f"  UNION ALL SELECT k, {nothing}, {nothing}, {nothing}, {nothing} FROM "
        + dialect.inline_table([("k", "whole")], [[str(other)] for other in others])
        + ")",
    ]


def edge_list_table(grid: LogitGrid, dialect: Dialect) -> list[str]:
    """Return the common table expressions that end in EDGE_LIST: one row with two arrays in the order of cells.

    `edges` are the lower edges of cells, `units` the position units per unit of score inside them.
    """
    array = dialect.sorted_array or ""
    edges, units = (array.format(key="low", value=value) for value in ("low", "units"))
    each = f"{dialect.number(POSITION_UNITS)} / (high - low)"
    return [
        *_edge_tables(grid, dialect, {"low": 1, "high": 2}),
        f"{EDGE_LIST} AS (SELECT {edges} AS edges, {units} AS units\n"
        f"  FROM (SELECT low, {each} AS units FROM mcnet__edges) AS t)",
    ]


def _edge_tables(grid: LogitGrid, dialect: Dialect, columns: Mapping[str, int]) -> list[str]:
    """Return the common table expressions that end in `mcnet__edges`: per cell its number k and its edges.

    The columns are named, each with the edge it has: 0 is the one before the cell's own, 1 its own, 2 the one after
    it.
    """
    (outer, inner, corrections), number = _factors(grid), dialect.number
    size = len(inner) - 2
    bias = int(np.abs(corrections).max())
    width = len(str(2 * bias))
    blocks = [
        (str(block), number(factor), dialect.text("".join(f"{c + bias:0{width}d}" for c in those)))
        for block, (factor, those) in enumerate(zip(outer, corrections.tolist(), strict=True))
    ]
    inside = [(str(index), *(number(inner[index + which]) for which in columns.values())) for index in range(size)]

    def about(factor: str) -> str:
        product = f"{dialect.as_double('a')} * {dialect.as_double(factor)}"
        return f"{number(1.0)} / ({number(1.0)} + {product})"

    def correction(which: int) -> str:
        digits = f"SUBSTR(digits, {width} * (j + {which}) + 1, {width})"
        return f"({dialect.as_double(digits)} - {number(bias)}) * {number(_HALF_STEP)}"

    def edge(which: int) -> str:
        exact = f"e{which} + c{which} * e{which}"
        return f"LEAST(GREATEST({exact}, {number(SCORE_FLOOR)}), {number(1.0 - SCORE_FLOOR)})"

    return [
        "mcnet__blocks AS (SELECT * FROM "
        + dialect.inline_table([("i", "whole"), ("a", "double"), ("digits", "text")], blocks)
        + ")",
        "mcnet__places AS (SELECT * FROM "
        + dialect.inline_table([("j", "whole"), *((f"b{n}", "double") for n in columns.values())], inside)
        + ")",
        f"mcnet__factored AS (SELECT {size} * i + j + {grid.first} AS k,\n"
        + ",\n".join(f"  {about(f'b{n}')} AS e{n}, {correction(n)} AS c{n}" for n in columns.values())
        + f"\n  FROM mcnet__blocks CROSS JOIN mcnet__places WHERE {size} * i + j < {len(grid)})",
        "mcnet__edges AS (SELECT k, "
        + ",\n  ".join(f"{edge(n)} AS {name}" for name, n in columns.items())
        + "\n  FROM mcnet__factored)",
    ]


@dataclass(frozen=True)
class CellSearch:
    """The tables that lead from scores to cells."""

    rows: RowColumns
    grid: LogitGrid | None
    """None where every score is its own cell."""
    given: str | None
    """The table of one row that has the arrays of edges already; without one the query makes its own."""

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
    def located(self) -> str:
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
        """Return the tables from `scored` to `located`."""
        proposed = (
            f"{OWN}proposed AS (SELECT {', '.join(self.rows.carried)}, x,\n  {self._proposed()} AS {OWN}k\n"
            f"  FROM {OWN}scored)"
        )
        if self.grid is None:
            return [proposed]
        return [proposed, *(self._placed_by_array() if self.by_array else self._placed_by_join())]

    def _array(self, name: str) -> str:
        """Return an array of the table of edges."""
        return f"(SELECT {name} FROM {self.given or EDGE_LIST})"

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

    def _proposed(self) -> str:
        """Return the cell that a logarithm proposes (the score itself if all are kept), or why there is none.

        Cells are counted from 0 where they are found in arrays, and otherwise have their numbers of the grid.
        """
        number, usable = self.dialect.number, self.rows.usable()
        code: Callable[[int], str] = number if self.grid is None else str
        inside = f"x > {number(SCORE_FLOOR)} AND x < {number(1.0 - SCORE_FLOOR)}"
        cases = [f"WHEN {' AND '.join([*usable, inside])} THEN {self._proposed_by_logarithm()}"]
        cases += [f"WHEN {condition} THEN {code(problem.number)}" for condition, problem in self.rows.problems()]
        cases += [f"WHEN {OWN}w = 0 THEN {code(WITHOUT_WEIGHT)}"] if self.rows.weighted_by_column else []
        cases += [f"WHEN x < {number(0.5)} THEN {code(LOWEST_SCORES)} ELSE {code(HIGHEST_SCORES)} END"]
        return "CASE " + "\n    ".join(cases)

    def _proposed_by_logarithm(self) -> str:
        if self.grid is None:
            return "x"
        number, first = self.dialect.number, self.grid.first if self.by_array else 0
        logit = f"LN(x / ({number(1.0)} - x))"
        position = f"{number(self.grid.resolution)} * {logit} + {number(LOGIT_RAISE - first)}"
        # A number above 0 is cut off where others are rounded down.
        return self.dialect.as_whole(position if first else f"FLOOR({position})")
