"""The pieces of curves as arrays: a logarithm proposes the piece of a score, comparisons decide."""

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mcnet._shared.typing import FloatArray, IntArray
from mcnet.export.pieces import HIGHEST_SCORE, LOWEST_SCORE, Pieces
from mcnet.spark.tables import column_named, unused_name

__all__ = ["PieceArrays"]

_RESOLUTIONS = (64, 512)
"""Cells per unit of logit that are tried, until few pieces share a cell."""

_MOST_STEPS = 12
"""A score is compared with the ends of this many pieces at most."""

_MOST_CELLS = 2_000_000
"""The longest array that is sent to executors."""

_MARGIN = 1e-3
"""The part of a cell by which an engine's logarithm may be wrong, and much more."""


@dataclass(frozen=True)
class PieceArrays:
    """Where to begin the search for a score's piece, by grid and cell of the score."""

    pieces: Pieces
    resolution: int
    first: IntArray
    """By grid and cell, the first piece that the scores of the cell can be in."""
    steps: int
    """How many pieces further a score's own piece may be."""

    @staticmethod
    def of(pieces: Pieces) -> "PieceArrays | None":
        """Return the arrays, or None where they would be too long, or too many pieces share a cell."""
        for resolution in _RESOLUTIONS:
            found = _first_pieces(pieces, resolution)
            if found is not None and found[1] <= _MOST_STEPS:
                return PieceArrays(pieces, resolution, *found)
        return None

    def applied(self, rows: DataFrame, x: str, curve: str, column: str) -> DataFrame:
        """Return rows with the calibrated probability of the score `x` by the curve of that number."""
        pieces, grids = self.pieces, self.pieces.grid_of
        shift = pieces.curve_begin - pieces.grid_begin[grids]
        cells = len(self.first) // pieces.grids
        item = _Arrays(
            rows.sparkSession,
            first=self.first,
            begin=grids * cells,
            shift=shift,
            starts=pieces.starts,
            stops=pieces.stops,
            values=pieces.values,
            slopes=pieces.slopes,
            ceilings=pieces.ceilings,
        )
        names = [
            unused_name(name, [*rows.columns, column]) for name in ("clipped", "piece_from", "piece", "piece_values")
        ]
        clipped, begun, piece, values = map(F.col, names)
        logit = F.ln(clipped / (1.0 - clipped))
        cell = (logit * float(self.resolution) + float(_lowest_cell(self.resolution))).cast("int")
        chosen = F.when(clipped < item("stops", begun), begun)
        for step in range(1, self.steps):
            chosen = chosen.when(clipped < item("stops", begun + step), begun + step)
        number = column_named(x)
        kept = [column_named(name) for name in rows.columns if name.lower() != column.lower()]
        line = item("slopes", values) * (clipped - item("starts", piece)) + item("values", values)
        return (
            rows.withColumn(names[0], F.least(F.greatest(number, F.lit(LOWEST_SCORE)), F.lit(HIGHEST_SCORE)))
            .withColumn(names[1], item("first", item("begin", column_named(curve)) + cell))
            .withColumn(names[2], chosen.otherwise(begun + self.steps) if self.steps else begun)
            .withColumn(names[3], piece + item("shift", column_named(curve)))
            .select(*kept, F.when(number.isNotNull(), F.least(line, item("ceilings", values))).alias(column))
        )


def _lowest_cell(resolution: int) -> int:
    """Return what makes the number of the lowest score's cell a little more than 0."""
    return math.ceil(math.log(HIGHEST_SCORE / LOWEST_SCORE) * resolution) + 1


def _first_pieces(pieces: Pieces, resolution: int) -> tuple[IntArray, int] | None:
    """Return the first piece of each grid and cell, and how many more share the cell at most."""
    lowest = _lowest_cell(resolution)
    cells = np.arange(2.0 * lowest + 1.0) - lowest
    if pieces.grids * len(cells) > _MOST_CELLS:
        return None

    def piece_at(starts: FloatArray, numbers: FloatArray) -> IntArray:
        scores = np.clip(1.0 / (1.0 + np.exp(-numbers / resolution)), LOWEST_SCORE, HIGHEST_SCORE)
        return np.maximum(starts.searchsorted(scores, "right") - 1, 0)

    first, steps = [], 0
    for grid in range(pieces.grids):
        starts = pieces.starts[pieces.of_grid(grid)]
        low, high = piece_at(starts, cells - _MARGIN), piece_at(starts, cells + (1.0 + _MARGIN))
        first.append(low + pieces.grid_begin[grid])
        steps = max(steps, int((high - low).max()))
    return np.concatenate(first), steps


class _Arrays:
    """A table of one row with arrays, whose items are looked up."""

    def __init__(self, spark: SparkSession, **arrays: FloatArray | IntArray) -> None:
        columns = {}
        for name, array in arrays.items():
            kind = pa.int32() if array.dtype.kind == "i" else pa.float64()
            # Spark reads arrays faster when it knows that nothing in them is missing.
            columns[name] = pa.array([array], pa.list_(pa.field("item", kind, nullable=False)))
        self._table = spark.createDataFrame(pa.table(columns))

    def __call__(self, name: str, place: Column) -> Column:
        """Return the items of an array at these places."""
        return self._table.select(name).scalar()[place]
