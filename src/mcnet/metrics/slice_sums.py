"""Sums of slices: rows of a log of any size, all columns, added up by value, probability and fold in bounded memory."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mcnet._shared.arrays import FloatArray, IndexArray, MaskArray, sums_by
from mcnet.errors import InputError
from mcnet.metrics.money import ValueSums
from mcnet.model.model import CalibrationModel, refuse_probabilities
from mcnet.rows.candidates import Candidate, complete_rows
from mcnet.rows.columns import (
    DescribeRow,
    describe_row,
    labels_column,
    restore_negatives,
    scores_column,
    weights_column,
)
from mcnet.rows.csv_files import types_of_texts
from mcnet.rows.fields import MISSING_LABEL, FieldColumn, derivation, is_lazy, is_table, source_column
from mcnet.rows.locations import Locations, read_options
from mcnet.rows.logs import batches, describe_row_in, expand_paths, file_format, open_log, source_name
from mcnet.rows.spec import RowSpec
from mcnet.sketch.folds import assign_folds

if TYPE_CHECKING:
    import polars as pl

FOLDS = 2
_SCORE_BINS = 64
"""Each slice is cut into so many bins, by the probability."""
_OTHERS = "(all other values)"


# Reading: batches of rows with their probabilities.


class Judged(NamedTuple):
    """Rows with their probabilities, labels, weights and folds."""

    frame: "pl.DataFrame"
    p: FloatArray
    y: FloatArray
    w: FloatArray
    fold: IndexArray


class LogRows:
    """Rows of files or of a table, all columns, some at a time, as often as asked for."""

    def __init__(self, rows: Any, spec: RowSpec, model: CalibrationModel | None) -> None:
        import polars as pl

        self.spec, self.model, self.paths = spec, model, Locations()
        self.describe_row: DescribeRow = describe_row
        self.types: dict[str, pl.DataType] = {}
        fields = () if model is None else model.needed_fields
        self._plain = [name for name in fields if derivation(name) is None]
        if is_table(rows) or is_lazy(rows):
            kind = type(rows).__module__.partition(".")[0]
            frame: Any = rows if kind == "polars" else pl.from_pandas(rows) if kind == "pandas" else pl.from_arrow(rows)
            self.frame, self.source, self._texts = frame.lazy(), "the table", False
        elif isinstance(rows, str | PathLike | Sequence):
            self.paths, self.source = expand_paths(rows), source_name(rows)
            self.describe_row = describe_row_in(self.paths)
            self._texts = file_format(self.paths[0]).is_csv
            # The types of CSV columns are found in a sample: guessed ones could be refused by a later row.
            self.frame = open_log(
                self.paths, numbers=spec.numbers, texts=self._plain, typed=not self._texts, all_kept=True
            )
        else:
            raise InputError(f"slices was given {type(rows).__name__}; give files or a table")
        self.names = self.frame.collect_schema().names()
        for name in (*spec.numbers, *map(source_column, fields)):
            if name not in self.names:
                raise InputError(f"{self.source} has no column {name!r}; it has {', '.join(self.names)}", column=name)

    def frames(self, progress: Callable[[int], Any] | None = None) -> "Iterator[pl.DataFrame]":
        """Yield all columns, some rows at a time."""
        return batches(self.frame, self.names, source=self.source, paths=self.paths, progress=progress)

    def learn_types(self, sample: "pl.DataFrame") -> None:
        """Find the types of the columns of CSV files, which have none."""
        if self._texts:
            others = [name for name in self.names if name not in (*self.spec.numbers, *self._plain)]
            self.types = types_of_texts(sample.lazy(), others)

    def typed(self, frame: "pl.DataFrame") -> "pl.DataFrame":
        """Return rows of CSV files with types; what is not of the type of its column is missing."""
        if not self.types:
            return frame
        import polars as pl

        numbers = {name: kind for name, kind in self.types.items() if kind != pl.Boolean}
        return frame.with_columns(frame[name].cast(kind, strict=False) for name, kind in numbers.items())

    def probabilities(self, sample: "pl.DataFrame", *, type_given: bool) -> FloatArray:
        """Return the probabilities of a sample; a wrong value is looked for in all rows, to name its row."""
        try:
            result = self.judged(sample, 0, describe_row).p
            if not type_given and self.spec.score_type == "logit":
                name = self.spec.name_of("score")
                scores = scores_column(sample[name].drop_nulls(), score_type="logit", name=name)
                refuse_probabilities(scores, len(scores), name=name)
        except InputError:
            first_row = 0
            for frame in self.frames():
                self.judged(frame, first_row, self.describe_row)
                first_row += len(frame)
            raise
        if not len(result):
            raise InputError(f"a value is missing in each row of {self.source}; check the columns")
        return result

    def judged(self, frame: "pl.DataFrame", first_row: int, describe: DescribeRow) -> Judged:
        """Return rows with their probabilities, labels, weights and folds."""
        spec, frame = self.spec, self.typed(frame)
        fold: IndexArray = assign_folds(first_row, len(frame), FOLDS)
        rows = np.arange(first_row, first_row + len(frame))
        if read_options().drop_missing:
            kept = complete_rows(frame, spec)
            frame, fold, rows = frame[kept], fold[kept], rows[kept]
        where: dict[str, Any] = {"describe_row": lambda row: describe(int(rows[row]))}
        if not len(frame):
            return Judged(frame, np.empty(0), np.empty(0), np.empty(0), fold)
        y = labels_column(frame[spec.name_of("label")], name=spec.name_of("label"), **where)
        w = None if spec.weight is None else weights_column(frame[spec.weight], name=spec.weight, **where)
        y, w = restore_negatives(y, w, spec.negatives_kept)
        name = spec.name_of("score")
        p = scores_column(frame[name], score_type=spec.score_type, name=name, **where)
        if self.model is not None:
            fields = {field: frame[source_column(field)] for field in self.model.needed_fields} or None
            p = self.model.predict(p, fields, score_type="probability")
        return Judged(frame, p, y, np.ones_like(p) if w is None else w, fold)


def bin_edges(p: FloatArray) -> FloatArray:
    """Return edges of bins of the probability with about the same noise Σp(1 − p) each."""
    ordered = np.sort(p)
    noise = np.cumsum(ordered * (1.0 - ordered))
    places = np.searchsorted(noise, noise[-1] * np.arange(1, _SCORE_BINS) / _SCORE_BINS)
    return np.unique(ordered[np.minimum(places, len(ordered) - 1)])


# Sums of each slice, within bins of the probability and two folds.


class SliceSums:
    """The sums Σw, Σwy, Σwp and Σwp² of each value of a candidate, of shape (values, bins, folds) each."""

    def __init__(self, candidate: Candidate, sample: "pl.DataFrame", most: int, bins: int) -> None:
        self.candidate = candidate
        values = candidate.values(sample[candidate.column])
        frequent = np.bincount(values.codes, minlength=len(values.values))
        order = np.argsort(-frequent, kind="stable")
        order = order[frequent[order] > 0]
        self.is_cut = len(order) > most
        kept = sorted(order[:most].tolist())
        self.index = {values.values[code]: place for place, code in enumerate(kept)}
        self.bins = bins
        self._sums = np.zeros((4, (len(self.index) + 1) * bins * FOLDS))

    def add(self, frame: "pl.DataFrame", base: IndexArray, products: Sequence[FloatArray]) -> None:
        """Add rows, given the number of each one's bin and fold, and what is added up."""
        if not len(frame):
            return
        column: FieldColumn = self.candidate.values(frame[self.candidate.column])
        others = len(self.index)
        table = np.array([self.index.get(value, others) for value in column.values], dtype=np.int32)
        groups = column.mapped(table).astype(np.int64, copy=False) * (self.bins * FOLDS) + base
        for total, product in zip(self._sums, products, strict=True):
            total += sums_by(groups, product, len(total))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The values, those without rows left out."""
        known = [MISSING_LABEL if value is None else value for value in self.index]
        return tuple(name for name, there in zip([*known, _OTHERS], self._there, strict=True) if there)

    @cached_property
    def _there(self) -> MaskArray:
        return np.asarray(self._sums[0].reshape(len(self.index) + 1, -1).sum(axis=1) > 0.0)

    @cached_property
    def cells(self) -> "Cells":
        """The sums by value, bin and fold."""
        shape = (len(self.index) + 1, self.bins, FOLDS)
        return Cells(*(total.reshape(shape)[self._there] for total in self._sums))


class Cells(NamedTuple):
    """Σw, Σwy, Σwp and Σwp², of shape (values, bins, folds)."""

    weight: FloatArray
    positives: FloatArray
    predicted: FloatArray
    squared: FloatArray

    @property
    def variance(self) -> FloatArray:
        return np.maximum(self.predicted - self.squared, 0.0)

    def of_values(self) -> ValueSums:
        """Return the sums of each value; a positive is worth 1."""
        weight, positives, predicted, variance = (
            column.sum(axis=(1, 2)) for column in (self.weight, self.positives, self.predicted, self.variance)
        )
        return ValueSums(predicted, positives, variance, weight, positives)
