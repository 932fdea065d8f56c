"""The sketch: a small mergeable table of weighted cells that every calibrator fits on."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import CodeArray, FloatArray, ScoreType, by_pieces, logit
from mcnet._shared.files import whole_file
from mcnet._shared.messages import count, counted
from mcnet.errors import InputError
from mcnet.plots.style import card
from mcnet.rows.columns import check_value, warn_of_other_order
from mcnet.rows.contexts import Contexts
from mcnet.rows.fields import FieldColumn, field_column, field_columns
from mcnet.rows.periods import cut_to_periods
from mcnet.rows.spec import DEFAULT_RESOLUTION, Resolution, RowSpec, ValueKind, check_folds
from mcnet.sketch.folds import split_cells
from mcnet.sketch.grid import VALUE_UNITS, Cells, Grid, make_grid, scaled_cells, warn_of_small_values

DIGEST_BYTES = 8
"""The size of the digests by which rows that are added twice are noticed."""

_LEAST_ROWS_TO_RECOGNISE = 100
"""Sketches of fewer rows may be equal without being made of the same rows."""


@dataclass(frozen=True, eq=False)
class Sketch:
    """A table of weighted cells: for each context, score cell and fold, the weight, the positives and the mean score.

    Sketches add up (`a + b`: shards, hours, machines), scale (`0.5 * a`: decay) and are saved as Parquet.

    >>> sketch = Sketch.from_rows([0.1, 0.1, 0.4], [0, 1, 1], field=["NL", "FR", "NL"])
    >>> sketch
    Sketch(3 rows, weight 3, positives 2, 3 cells, 2 contexts of field, resolution 512)
    >>> sketch + 2 * Sketch.from_rows([0.3], [0], field=["NL"])
    Sketch(4 rows, weight 5, positives 2, 4 cells, 2 contexts of field, resolution 512)

    Attributes
    ----------
    contexts : the fields, and the combinations of their values.
    cells : the table.
    resolution : cells per unit of logit, or "exact".
    folds : into how many folds the rows are split.
    rows : the number of rows.
    columns : the columns `score`, `label` and `weight` that were read, as far as all rows agree on them.
    score_type : whether the scores were read as "probability" or "logit".
    negatives_kept : the fraction of negatives that survived down-sampling; None where parts of a sum differ.
    known_sources : digests of the files that the rows come from; None for rows in memory.
    dropped_rows : how many rows were left out because a value was missing, if that was allowed.
    value_kind : whether there are sums of what positives are worth: "row" if that is known for every row, "positive"
        if for positives alone.
    weight_squares : of rows weighted by inverse propensity, Σw²; None of others. `cells` have the sums of the weights
        as they are, and what a calibrator sees is scaled to the effective number of rows, (Σw)² / Σw².
    """

    contexts: Contexts
    cells: Cells
    resolution: Resolution
    folds: int
    rows: int
    columns: Mapping[str, str] = field(default_factory=dict)
    score_type: ScoreType = "probability"
    negatives_kept: float | None = 1.0
    known_sources: tuple[str, ...] | None = None
    dropped_rows: int = 0
    value_kind: ValueKind | None = None
    weight_squares: float | None = None

    def __post_init__(self) -> None:
        """Keep sums of values only if somebody knows what they are."""
        if self.cells.sums.shape[1] == 3:
            object.__setattr__(self, "value_kind", None)
        elif self.value_kind is None:
            object.__setattr__(self, "cells", replace(self.cells, sums=self.cells.sums[:, :3]))

    @property
    def reading(self) -> dict[str, Any]:
        """How scores and negatives were read, as far as it is known of all rows."""
        kept = {} if self.negatives_kept is None else {"negatives_kept": self.negatives_kept}
        return {"score_type": self.score_type, **kept}

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Return a short digest of each file that the rows come from; of rows in memory, one of what they add up to.

        A few rows in memory have none, since others may look the same.
        """
        if self.known_sources is not None:
            return self.known_sources
        return (_content_digest(self),) if self.rows >= _LEAST_ROWS_TO_RECOGNISE else ()

    @staticmethod
    def from_rows(
        scores: Any,
        labels: Any,
        *,
        field: Any = None,
        weight: Any = None,
        folds: Any = 1,
        resolution: Resolution = DEFAULT_RESOLUTION,
        score_type: ScoreType = "probability",
        negatives_kept: float = 1.0,
        value: Any = None,
        value_per_positive: Any = None,
        propensity: Any = None,
    ) -> "Sketch":
        """Sketch columns in memory.

        Parameters
        ----------
        scores, labels : columns (NumPy, pandas, Polars, Arrow, lists) of scores in [0, 1] and of labels in [0, 1].
        field : a column, a mapping of names to columns, or a table; None for no field.
        weight : a column of weights ≥ 0; a row of weight 0 changes nothing.
        folds : how many folds to split the rows into, or a column with each row's fold.
        resolution : cells per unit of logit, or "exact" to keep every distinct score.
        score_type : "probability" or "logit".
        negatives_kept : the fraction of negatives that survived down-sampling; they are weighted back.
        value : a column of what a positive is worth, known for every row; the sketch then carries its sums.
        value_per_positive : the same, known for positives alone.
        propensity : a column of the probability that the row was logged; its inverse, at most 20, weighs the row.

        Returns
        -------
        Sketch : what the rows add up to.
        """
        from mcnet.sketch.build import Batch, sketch_columns

        warn_of_other_order(field, score=scores, label=labels, weight=weight, folds=folds)
        is_number = isinstance(folds, int | np.integer)
        number = check_folds(folds) if is_number else 1
        spec = RowSpec(folds=number, resolution=resolution, score_type=score_type, negatives_kept=negatives_kept)
        more = {"value": value, "value_per_positive": value_per_positive, "propensity": propensity}
        more = {role: column for role, column in more.items() if column is not None}
        rows = Batch(0, scores, labels, weight, None if is_number else folds, field_columns(field), more)
        return sketch_columns(rows, spec)

    @staticmethod
    def from_table(table: Any, *, drop_missing: bool = False) -> "Sketch":
        """Make a sketch of the result of the query that `sketch_query` writes.

        Parameters
        ----------
        table : the result as a table of Arrow, Polars or pandas, as a Parquet or CSV file, or as a cursor (DB-API,
            ADBC, DuckDB) that has run the query.
        drop_missing : leave out the rows whose score, label or weight is missing, and count them in `dropped_rows`,
            instead of refusing the result.

        Returns
        -------
        Sketch : the same as `scan` gives for the rows.

        Raises
        ------
        InputError : the rows have values that cannot be used, or the table is no result of such a query.
        FileFormatError : the table was made by a query of another version, or was altered.
        """
        from mcnet.sketch.query import sketch_of_table

        return sketch_of_table(table, drop_missing=drop_missing)

    # -- the columns a calibrator sees, one entry per cell ------------------------------------------------------

    @cached_property
    def grid(self) -> Grid:
        """Return the grid that the keys of the cells refer to."""
        return make_grid(self.resolution)

    @cached_property
    def context(self) -> CodeArray:
        """Return the context of each cell, a place in `contexts`."""
        return self.cells.context

    @cached_property
    def fold(self) -> NDArray[np.int16]:
        """Return the fold of each cell."""
        return self.cells.fold

    @cached_property
    def scale(self) -> float:
        """Return what weights are multiplied by, so that they add up to the effective number of rows.

        A weight counts as that many rows, in fits and intervals. Rows of unequal propensity tell less than that.
        """
        return float(self.cells.sums[:, 0].sum()) / self.weight_squares if self.weight_squares else 1.0

    @cached_property
    def weight(self) -> FloatArray:
        """Return the weight (the number of rows, when they are unweighted) of each cell."""
        return self._scaled(0)

    @cached_property
    def positives(self) -> FloatArray:
        """Return the weighted positives of each cell."""
        return self._scaled(1)

    def _scaled(self, column: int) -> FloatArray:
        sums = self.cells.sums[:, column]
        return sums if self.weight_squares is None else sums * self.scale

    @cached_property
    def score(self) -> FloatArray:
        """Return the weighted mean score of each cell."""
        weight, position, grid = self.cells.sums[:, 0], self.cells.sums[:, 2], self.grid
        return by_pieces(lambda key, at, w: grid.scores(key, at / w), self.cells.key, position, weight)

    @cached_property
    def logit(self) -> FloatArray:
        """Return the logit of each cell's mean score."""
        return by_pieces(logit, self.score)

    @property
    def rate(self) -> FloatArray:
        """Return the positive rate of each cell."""
        return np.minimum(self.positives / self.weight, 1.0)

    @property
    def values(self) -> FloatArray:
        """Return Σwv, Σwvy and Σwv² of each cell in whole units (see VALUE_UNITS)."""
        return self.cells.sums[:, 3:]

    def with_value(self, value: float) -> "Sketch":
        """Return the same rows with one value for every positive.

        Parameters
        ----------
        value : what a positive is worth.

        Returns
        -------
        Sketch : the same cells, with sums of values.
        """
        each = check_value(value)
        weight, positives = self.cells.sums.T[:2]
        worth = np.column_stack([weight, positives, weight * each / self.scale]) * each
        sums = np.column_stack([self.cells.sums[:, :3], np.floor(worth * VALUE_UNITS + 0.5)])
        warn_of_small_values(each)
        return replace(self, cells=replace(self.cells, sums=sums), value_kind="row")

    def without_values(self) -> "Sketch":
        """Return the same rows without the sums of values."""
        return replace(self, value_kind=None)

    @cached_property
    def total_weight(self) -> float:
        """Return the weight of all rows."""
        return float(self.weight.sum())

    @cached_property
    def total_positives(self) -> float:
        """Return the weighted positives of all rows."""
        return float(self.positives.sum())

    @cached_property
    def context_sums(self) -> FloatArray:
        """Return the weight and the positives of each context, of shape (contexts, 2)."""
        # Cells are ordered by context; a part of a sketch may lack some.
        starts = np.flatnonzero(np.diff(self.context, prepend=-1))
        sums = np.zeros((len(self.contexts), 2))
        sums[self.context[starts]] = np.add.reduceat(self.cells.sums[:, :2], starts, axis=0)
        return sums if self.weight_squares is None else sums * self.scale

    def __len__(self) -> int:
        return len(self.cells)

    def __repr__(self) -> str:
        parts = [
            counted(self.rows, "row"),
            f"weight {count(self.total_weight)}",
            f"positives {count(self.total_positives)}",
            counted(len(self), "cell"),
        ]
        parts += [self.contexts.described()] if self.contexts.names else []
        parts += [f"{self.folds} folds"] if self.folds > 1 else []
        parts += ["with values"] if self.value_kind else []
        return f"Sketch({', '.join(parts)}, resolution {self.resolution})"

    def _repr_html_(self) -> str:
        rows = [
            ["rows", f"{self.rows:,}"],
            ["weight", f"{count(self.total_weight)}"],
            ["positives", f"{count(self.total_positives)}"],
            ["cells", f"{len(self):,} (resolution {self.resolution}, {self.folds} folds)"],
        ]
        if len(self):
            rows.insert(3, ["rate", f"{self.total_positives / self.total_weight:.4g}"])
            rows.append(["scores", f"{self.score.min():.4g} … {self.score.max():.4g}"])
        for name, values in zip(self.contexts.names, self.contexts.values, strict=True):
            rows.append([f"field {name}", f"{len(values):,} values"])
        return card("Sketch", [], rows)

    # -- arithmetic ---------------------------------------------------------------------------------------------

    def __add__(self, other: object) -> "Sketch":
        if not isinstance(other, Sketch):
            return NotImplemented
        return Sketch.merged([self, other])

    def __radd__(self, other: object) -> "Sketch":
        # sum([...]) starts from 0.
        return self if other == 0 else NotImplemented

    def __mul__(self, factor: object) -> "Sketch":
        if isinstance(factor, bool) or not isinstance(factor, int | float | np.number):
            return NotImplemented
        if not 0.0 < float(factor) < np.inf:
            raise InputError(f"a sketch was scaled by {factor}; the factor is a number above 0")
        cells = scaled_cells(self.cells, float(factor))
        squares = None if self.weight_squares is None else self.weight_squares * float(factor)
        return replace(self, cells=cells, known_sources=self.sources, weight_squares=squares)

    __rmul__ = __mul__
    __array_ufunc__ = None  # NumPy's numbers leave `number * sketch` to the sketch

    def __eq__(self, other: object) -> bool:
        """Tell whether two sketches have the same cells with the same sums, from whatever rows and columns."""
        if not isinstance(other, Sketch):
            return NotImplemented
        mine, its = self.cells, other.cells
        return (
            self.resolution == other.resolution
            and self.folds == other.folds
            and self.contexts == other.contexts
            and self.weight_squares == other.weight_squares
            and np.array_equal(mine.context, its.context)
            and np.array_equal(mine.key, its.key)
            and np.array_equal(mine.fold, its.fold)
            and np.array_equal(mine.sums, its.sums)
        )

    __hash__ = None  # type: ignore[assignment]

    # -- views --------------------------------------------------------------------------------------------------

    def pooled(self) -> "Sketch":
        """Return the sketch of the same rows without fields.

        Returns
        -------
        Sketch : rows of the same score added up.
        """
        return self._regrouped([]) if self.contexts.names else self

    def only(self, *names: str) -> "Sketch":
        """Return the sketch of the same rows with some fields alone.

        Parameters
        ----------
        names : the fields to keep, in their new order.

        Returns
        -------
        Sketch : rows of the same context added up.
        """
        columns = self.contexts.columns(self.contexts.all())
        return self._regrouped([columns[self.contexts.index_of_field(name)] for name in dict.fromkeys(names)])

    def in_periods(self, name: str, every: str) -> "Sketch":
        """Return the sketch of the same rows with a field of timestamps cut to periods.

        Parameters
        ----------
        name : the field.
        every : the length of a period, such as "1h", "1d" or "1mo".

        Returns
        -------
        Sketch : rows of the same period added up.
        """
        import polars as pl

        index, columns = self.contexts.index_of_field(name), self.contexts.columns(self.contexts.all())
        values = cut_to_periods(pl.Series(name, self.contexts.values[index], dtype=pl.String), every)
        columns[index] = field_column(name, values.gather(columns[index].codes), self.contexts.edges.get(name))
        return self._regrouped(columns)

    def _regrouped(self, columns: list[FieldColumn]) -> "Sketch":
        """Return the same rows under other fields, given as columns with one entry per context."""
        contexts, order = Contexts.of(columns, len(self.contexts))
        cells = Cells(order[self.context], self.cells.key, self.fold, self.cells.sums).added_up()
        return replace(self, contexts=contexts, cells=cells)

    def of_context(self, context: int) -> "Sketch":
        """Return the sketch of one context's rows, without fields.

        Parameters
        ----------
        context : the place of the context in `contexts`.

        Returns
        -------
        Sketch : the rows of this context.
        """
        # Cells are ordered by context.
        first, last = np.searchsorted(self.context, [context, context + 1])
        return self.part(self.cells.take(slice(first, last))).pooled()

    def fold_parts(self, fold: int) -> tuple["Sketch", "Sketch"]:
        """Return the rows outside a fold (to fit on) and inside it (to judge on).

        Parameters
        ----------
        fold : which fold, from 0.

        Returns
        -------
        tuple[Sketch, Sketch] : the rows outside and inside; contexts keep their places.
        """
        if not 0 <= fold < self.folds or self.folds < 2:
            raise InputError(f"fold {fold} was asked of a sketch with {self.folds} folds; make it with folds=")
        inside = self.fold == fold
        return self.part(self.cells.take(~inside)), self.part(self.cells.take(inside))

    def unfolded(self) -> "Sketch":
        """Return the sketch of the same rows, not split into folds.

        Returns
        -------
        Sketch : the folds added up.
        """
        if self.folds == 1:
            return self
        cells = Cells(self.context, self.cells.key, np.zeros_like(self.fold), self.cells.sums).added_up()
        return replace(self, cells=cells, folds=1)

    def with_folds(self, folds: int, seed: int = 0) -> "Sketch":
        """Return the sketch with the rows behind each cell split into folds at random.

        Parameters
        ----------
        folds : how many.
        seed : of the random numbers; the same seed splits the same way.

        Returns
        -------
        Sketch : the same rows in folds.
        """
        check_folds(folds)
        if self.folds > 1:
            raise InputError(f"the sketch is split into {self.folds} folds already; call unfolded() first")
        return replace(self, cells=split_cells(self.cells, folds, seed, self.scale), folds=folds)

    def part(self, cells: Cells, **changes: Any) -> "Sketch":
        """Return the sketch of some of the cells, with their share of the rows and the same scale of weights.

        Parameters
        ----------
        cells : the cells.
        changes : what else is different.

        Returns
        -------
        Sketch : parts of one sketch may be added again, so each is its own source.
        """
        share = float(cells.sums[:, 0].sum()) / float(self.cells.sums[:, 0].sum()) if len(self) else 0.0
        squares = None if self.weight_squares is None else self.weight_squares * share
        rows = round(self.rows * share)
        return replace(self, cells=cells, rows=rows, known_sources=None, weight_squares=squares, **changes)

    # -- files --------------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Save the sketch as a Parquet file, whole or not at all.

        Parameters
        ----------
        path : the file; one that is there is replaced.
        """
        from mcnet.sketch.sketch_file import parquet_bytes

        with whole_file(path) as part:
            part.write_bytes(parquet_bytes(self))

    @staticmethod
    def load(path: str | PathLike[str]) -> "Sketch":
        """Load a sketch that was saved.

        Parameters
        ----------
        path : the Parquet file.

        Returns
        -------
        Sketch : the sketch as it was saved; an altered or damaged file is refused.
        """
        from mcnet.sketch.sketch_file import load_sketch

        return load_sketch(path)

    @staticmethod
    def merged(sketches: Sequence["Sketch"]) -> "Sketch":
        """Return the sum of one or more sketches; warn if some have a source in common.

        Parameters
        ----------
        sketches : sketches of the same fields (in any order; the sum has that of the first one), resolution, folds and
            score type.

        Returns
        -------
        Sketch : all their rows.
        """
        from mcnet.sketch.views import sum_of_sketches

        return sum_of_sketches(sketches)


def _content_digest(sketch: Sketch) -> str:
    """Return a digest of the fields, their values and the cells of a sketch."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    contexts, cells = sketch.contexts, sketch.cells
    digest.update(repr((contexts.names, sketch.resolution, sketch.folds, sketch.rows)).encode())
    for values in contexts.values:
        digest.update(repr(values).encode())
    # An engine adds up scores in any order, so mean positions may differ in their last digits.
    for column in (contexts.table, cells.context, cells.key, cells.fold, np.delete(cells.sums, 2, axis=1)):
        digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()
