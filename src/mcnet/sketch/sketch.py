"""The sketch: a small mergeable table of weighted cells that every calibrator fits on."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.math import logit
from mcnet._shared.typing import FloatArray, ScoreType
from mcnet._shared.user_warnings import warn
from mcnet.data.contexts import Contexts
from mcnet.data.fields import FieldColumn, field_columns
from mcnet.data.periods import cut_to_periods
from mcnet.errors import InputError
from mcnet.sketch.cells import Cells
from mcnet.sketch.folds import check_folds, split_counts
from mcnet.sketch.grid import DEFAULT_RESOLUTION, Grid, Resolution, make_grid
from mcnet.sketch.sources import LEAST_ROWS_TO_RECOGNISE, content_digest

__all__ = ["Sketch"]

_LEAST_WEIGHT = 1e-250
"""Cells below this weight are dropped when a sketch is scaled."""


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

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Return a short digest of each file that the rows come from; of rows in memory, one of what they add up to.

        A few rows in memory have none, since others may look the same.
        """
        if self.known_sources is not None:
            return self.known_sources
        return (content_digest(self),) if self.rows >= LEAST_ROWS_TO_RECOGNISE else ()

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
        """
        from mcnet.sketch.build import ColumnNames
        from mcnet.sketch.rows import sketch_columns

        return sketch_columns(
            scores,
            labels,
            weight,
            field_columns(field),
            folds,
            ColumnNames(),
            resolution=resolution,
            score_type=score_type,
            negatives_kept=negatives_kept,
        )

    # -- the columns a calibrator sees, one entry per cell ------------------------------------------------------

    @cached_property
    def grid(self) -> Grid:
        """Return the grid that the keys of the cells refer to."""
        return make_grid(self.resolution)

    @property
    def context(self) -> NDArray[np.int32]:
        """Return the context of each cell, a place in `contexts`."""
        return self.cells.context

    @property
    def fold(self) -> NDArray[np.int16]:
        """Return the fold of each cell."""
        return self.cells.fold

    @cached_property
    def weight(self) -> FloatArray:
        """Return the weight (the number of rows, when they are unweighted) of each cell."""
        return self.cells.sums[:, 0]

    @cached_property
    def positives(self) -> FloatArray:
        """Return the weighted positives of each cell."""
        return self.cells.sums[:, 1]

    @cached_property
    def score(self) -> FloatArray:
        """Return the weighted mean score of each cell."""
        return self.grid.scores(self.cells.key, self.cells.sums[:, 2] / self.weight)

    @cached_property
    def logit(self) -> FloatArray:
        """Return the logit of each cell's mean score."""
        return logit(self.score)

    @property
    def rate(self) -> FloatArray:
        """Return the positive rate of each cell."""
        return np.minimum(self.positives / self.weight, 1.0)

    @cached_property
    def total_weight(self) -> float:
        """Return the weight of all rows."""
        return float(self.weight.sum())

    @cached_property
    def total_positives(self) -> float:
        """Return the weighted positives of all rows."""
        return float(self.positives.sum())

    def __len__(self) -> int:
        return len(self.cells)

    def __repr__(self) -> str:
        names = " × ".join(self.contexts.names)
        parts = [
            f"{self.rows:,} rows",
            f"weight {self.total_weight:,.15g}",
            f"positives {self.total_positives:,.15g}",
        ]
        parts.append(f"{len(self):,} cells")
        parts += [f"{len(self.contexts):,} contexts of {names}"] if names else []
        parts += [f"{self.folds} folds"] if self.folds > 1 else []
        return f"Sketch({', '.join(parts)}, resolution {self.resolution})"

    def _repr_html_(self) -> str:
        from mcnet.plots.html import card

        rows = [
            ["rows", f"{self.rows:,}"],
            ["weight", f"{self.total_weight:,.15g}"],
            ["positives", f"{self.total_positives:,.15g}"],
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

    def _plus(self, other: "Sketch") -> "Sketch":
        for what, here, there in (
            ("resolution", self.resolution, other.resolution),
            ("fields", self.contexts.names, other.contexts.names),
            ("folds", self.folds, other.folds),
            ("score type", self.score_type, other.score_type),
        ):
            if here != there:
                raise InputError(f"sketches of different {what} do not add up: {here} and {there}; make both alike")
        contexts, mine, its = self.contexts.united(other.contexts)
        both = Cells.concatenate(
            Cells(mine[self.context], self.cells.key, self.fold, self.cells.sums),
            Cells(its[other.context], other.cells.key, other.fold, other.cells.sums),
        )
        return replace(
            self,
            contexts=contexts,
            cells=both.added_up(),
            rows=self.rows + other.rows,
            columns={name: column for name, column in self.columns.items() if other.columns.get(name) == column},
            negatives_kept=self.negatives_kept if self.negatives_kept == other.negatives_kept else None,
            known_sources=tuple(dict.fromkeys((*self.sources, *other.sources))),
        )

    def __radd__(self, other: object) -> "Sketch":
        # sum([...]) starts from 0.
        return self if other == 0 else NotImplemented

    def __mul__(self, factor: object) -> "Sketch":
        if isinstance(factor, bool) or not isinstance(factor, int | float | np.number):
            return NotImplemented
        if not 0.0 < float(factor) < np.inf:
            raise InputError(f"a sketch was scaled by {factor}; the factor is a number above 0")
        cells = Cells(self.context, self.cells.key, self.fold, self.cells.sums * float(factor))
        # After years of decay a cell that nobody fills comes to numbers too small to divide by.
        cells = cells.take(cells.sums[:, 0] > _LEAST_WEIGHT)
        return replace(self, cells=cells, known_sources=self.sources)

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
            and np.array_equal(mine.context, its.context)
            and np.array_equal(mine.key, its.key)
            and np.array_equal(mine.fold, its.fold)
            and np.array_equal(mine.sums, its.sums)
        )

    __hash__ = None  # type: ignore[assignment]

    # -- views --------------------------------------------------------------------------------------------------

    def pooled(self) -> "Sketch":
        """Return the sketch of the same rows without fields."""
        return self.only()

    def only(self, *names: str) -> "Sketch":
        """Return the sketch of the same rows with these fields alone."""
        unknown = [name for name in names if name not in self.contexts.names]
        if unknown:
            raise InputError(
                f"the sketch has no field {unknown[0]!r}; it has {', '.join(self.contexts.names) or 'none'}"
            )
        columns = [c for c in self.contexts.columns(self.contexts.all()) if c.name in names]
        columns.sort(key=lambda column: names.index(column.name))
        return self._regrouped(columns)

    def in_periods(self, name: str, every: str) -> "Sketch":
        """Return the sketch of the same rows with a field of moments cut to periods, such as "1h", "1d" or "1mo"."""
        import polars as pl

        self.only(name)  # refuses a field that is not there
        columns = self.contexts.columns(self.contexts.all())
        place = self.contexts.names.index(name)
        periods = cut_to_periods(pl.Series(name, columns[place].values, dtype=pl.String), every)
        columns[place : place + 1] = field_columns({name: periods.gather(columns[place].codes)})
        return self._regrouped(columns)

    def renamed_values(self, name: str, texts: Mapping[str | None, str | None]) -> "Sketch":
        """Return the sketch of the same rows with other values of a field; rows of equal values are added up."""
        import polars as pl

        columns = self.contexts.columns(self.contexts.all())
        place = self.contexts.names.index(name)
        values = pl.Series(name, [texts.get(value, value) for value in columns[place].values], dtype=pl.String)
        columns[place : place + 1] = field_columns({name: values.gather(columns[place].codes)})
        return self._regrouped(columns)

    def _regrouped(self, columns: list[FieldColumn]) -> "Sketch":
        """Return the same rows under other fields, given as columns with one entry per context."""
        contexts, order = Contexts.of(columns, len(self.contexts))
        cells = Cells(order[self.context], self.cells.key, self.fold, self.cells.sums).added_up()
        return replace(self, contexts=contexts, cells=cells)

    def with_values_like(self, contexts: Contexts) -> "Sketch":
        """Return the same sketch with each field's values in the order of other contexts, new values last."""
        values, table = [], []
        for which, known in enumerate(self.contexts.values):
            order = tuple(dict.fromkeys((*contexts.values[which], *known)))
            place = {value: code for code, value in enumerate(order)}
            values.append(order)
            table.append(np.array([place[value] for value in known], dtype=np.int32)[self.contexts.table[:, which]])
        stacked = np.column_stack(table) if table else self.contexts.table
        reordered = Contexts(self.contexts.names, tuple(values), stacked)
        return replace(self, contexts=reordered)

    def of_context(self, context: int) -> "Sketch":
        """Return the sketch of one context's rows, without fields."""
        # Cells are ordered by context.
        first, last = np.searchsorted(self.context, [context, context + 1])
        return self._restricted(np.arange(first, last)).pooled()

    def fold_parts(self, fold: int) -> tuple["Sketch", "Sketch"]:
        """Return the rows outside a fold (to fit on) and inside it (to judge on); contexts keep their places."""
        if not 0 <= fold < self.folds or self.folds < 2:
            raise InputError(f"fold {fold} was asked of a sketch with {self.folds} folds; make it with folds=")
        inside = self.fold == fold
        return self._restricted(~inside), self._restricted(inside)

    def unfolded(self) -> "Sketch":
        """Return the sketch of the same rows, not split into folds."""
        if self.folds == 1:
            return self
        cells = Cells(self.context, self.cells.key, np.zeros_like(self.fold), self.cells.sums).added_up()
        return replace(self, cells=cells, folds=1)

    def with_folds(self, folds: int, seed: int = 0) -> "Sketch":
        """Return the sketch with the rows behind each cell split into folds at random."""
        check_folds(folds)
        if self.folds > 1:
            raise InputError(f"the sketch is split into {self.folds} folds already; call unfolded() first")
        weight, positives = split_counts(self.weight, self.positives, folds, seed)
        cell, fold = np.nonzero(weight)
        # Whole positions stay whole: each fold has the part below its share, and the last one what is left.
        shares = np.floor(weight * (self.cells.sums[:, 2] / self.weight)[:, None])
        last = weight.shape[1] - 1 - np.argmax(weight[:, ::-1] > 0.0, axis=1)
        shares[np.arange(len(shares)), last] += self.cells.sums[:, 2] - shares.sum(axis=1)
        position = shares[cell, fold]
        sums = np.column_stack([weight[cell, fold], positives[cell, fold], position])
        cells = Cells(self.context[cell], self.cells.key[cell], fold.astype(np.int16), sums).added_up()
        return replace(self, cells=cells, folds=folds)

    def _restricted(self, keep: NDArray[Any]) -> "Sketch":
        cells = self.cells.take(keep)
        share = float(cells.sums[:, 0].sum()) / self.total_weight if len(self) else 0.0
        # Parts of one sketch may be added again, so each is a source of its own.
        return replace(self, cells=cells, rows=round(self.rows * share), known_sources=None)

    # -- files --------------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Save the sketch as a Parquet file, whole or not at all."""
        from mcnet.sketch.file import save_sketch

        save_sketch(self, path)

    @staticmethod
    def load(path: str | PathLike[str]) -> "Sketch":
        """Load a sketch saved as Parquet."""
        from mcnet.sketch.file import load_sketch

        return load_sketch(path)

    @staticmethod
    def merged(sketches: Sequence["Sketch"]) -> "Sketch":
        """Return the sum of one or more sketches; warn if some have a source in common."""
        if not sketches:
            raise InputError("there is no sketch to merge; give at least one")
        if len(sketches) > 1:
            counts = Counter(source for sketch in sketches for source in sketch.sources)
            repeated = sum(count > 1 for count in counts.values())
            if repeated:
                warn(
                    f"{repeated:,} of the {len(counts):,} sources of these sketches are in more than one of them: "
                    "the rows of these count more than once"
                )
        total = sketches[0]
        for sketch in sketches[1:]:
            total = total._plus(sketch)
        return total
