"""Candidate fields: which columns of a log may be fields or slices, and how each is cut into few values."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray, IntArray
from mcnet.errors import InputError
from mcnet.rows.columns import row_hashes
from mcnet.rows.derived import chosen_edges, derived_column
from mcnet.rows.fields import CLOCK, FieldColumn, field_column
from mcnet.rows.periods import parsed_timestamps, timestamps_of
from mcnet.rows.spec import RowSpec

FEW_WHOLE_NUMBERS = 100
"""A column of whole numbers with more values than this is cut into bins, as other numbers are."""
SAMPLED_ROWS = 100_000
"""Values and bins are chosen by a sample of at most twice as many rows."""
_MOST_VALUES_OF_A_SMALL_LOG = 50
"""A column of strings with more values than this, most of them in one row only, is a key."""


@dataclass(frozen=True)
class Candidate:
    """A column, or what is cut from it, that may be a field.

    Attributes
    ----------
    name : the name of the field: that of its column, or with what is cut from it, such as ts:hour and age:number.
    column : its column in the log.
    edges : where the bins of a number begin, but for the first one.
    """

    name: str
    column: str
    edges: tuple[float, ...] | None = None

    def values(self, column: pl.Series) -> FieldColumn:
        """Return the field value of each row; what is missing, or is no number or timestamp, is missing."""
        if self.name == self.column:
            return field_column(self.name, column)
        if self.edges is not None:
            column = column.cast(pl.Float64, strict=False)
        elif column.dtype in (pl.String, pl.Categorical, pl.Enum):
            column = parsed_timestamps(column.cast(pl.String))
        return derived_column(self.name, column, self.edges)


def sample_rows(batches: Iterable[pl.DataFrame], rows: int = SAMPLED_ROWS) -> pl.DataFrame:
    """Return a random sample of rows, in their order, at least so many and fewer than twice as many (all, if fewer).

    A row is chosen by a hash of its number, so the same rows give the same sample.
    """
    kept: list[pl.DataFrame] = []
    hashes: list[NDArray[np.uint64]] = []
    first, size, limit = 0, 0, np.uint64(2**64 - 1)
    for batch in batches:
        drawn = row_hashes(first, len(batch))
        first += len(batch)
        chosen = np.flatnonzero(drawn <= limit)
        kept.append(batch[chosen])
        hashes.append(drawn[chosen])
        size += len(chosen)
        while size >= 2 * rows:
            limit = limit // np.uint64(2)
            masks = [part <= limit for part in hashes]
            kept = [frame.filter(pl.Series(mask)) for frame, mask in zip(kept, masks, strict=True)]
            hashes = [part[mask] for part, mask in zip(hashes, masks, strict=True)]
            size = sum(map(len, hashes))
    return pl.concat(kept).rechunk() if kept else pl.DataFrame()


def complete_rows(table: pl.DataFrame, spec: RowSpec) -> IntArray:
    """Return the indices of the rows that have all numbers of a spec, as where rows are sketched; infinite is missing.

    Values that positives alone have are not looked at. What is no number at all is refused where it is read.
    """
    complete = np.ones(len(table), dtype=np.bool_)
    for name in spec.numbers:
        numbers = table[name].cast(pl.Float64, strict=False)
        logits = name == spec.score and spec.score_type == "logit"  # may be infinite
        known = table[name].is_not_null() & (numbers.is_not_nan() if logits else numbers.is_finite()).fill_null(True)
        complete &= known.to_numpy() | (name == spec.value_per_positive)
    return np.flatnonzero(complete)


_CHANCE, _POSITIVE = "mcnet chance", "mcnet positive"


class RowSample:
    """Rows of a log, batch after batch; of very many, a sample by a hash that keeps positives first."""

    def __init__(self, most: int) -> None:
        """Start without rows."""
        self.most, self.rows = most, 0
        self._parts: list[pl.DataFrame] = []
        self._limits = {False: 1.0, True: 1.0}
        """The share of negatives and of positives that is kept."""

    def add(self, table: pl.DataFrame, label: str) -> None:
        """Add the next rows."""
        chance = pl.Series(_CHANCE, row_hashes(self.rows, len(table)) / 2.0**64)
        positive = (table[label].cast(pl.Float64, strict=False).fill_null(0.0) > 0.0).alias(_POSITIVE)
        self.rows += len(table)
        self._parts.append(self._kept(table.with_columns(chance, positive)))
        if sum(map(len, self._parts)) > 1.25 * self.most:
            self._thin()

    def _kept(self, table: pl.DataFrame) -> pl.DataFrame:
        limit = pl.when(pl.col(_POSITIVE)).then(self._limits[True]).otherwise(self._limits[False])
        return table.filter(pl.col(_CHANCE) < limit)

    def _thin(self) -> None:
        whole = pl.concat(self._parts, how="vertical_relaxed")
        positives = int(whole[_POSITIVE].sum())
        kept = min(positives, self.most // 2)
        shares = {True: kept / max(positives, 1), False: (self.most - kept) / max(len(whole) - positives, 1)}
        self._limits = {kind: limit * min(shares[kind], 1.0) for kind, limit in self._limits.items()}
        self._parts = [self._kept(whole)]

    def table(self) -> tuple[pl.DataFrame, FloatArray]:
        """Return the rows kept, and for how many rows each stands."""
        if self.rows == 0:
            raise InputError("there are no rows to search; at least one is needed")
        if sum(map(len, self._parts)) > self.most:
            self._thin()
        whole = pl.concat(self._parts, how="vertical_relaxed")
        positive = whole[_POSITIVE].to_numpy()
        stands = np.where(positive, 1.0 / self._limits[True], 1.0 / self._limits[False])
        return whole.drop(_CHANCE, _POSITIVE), stands


def candidate_fields(sample: pl.DataFrame, left_out: Collection[str] = ()) -> tuple[list[Candidate], dict[str, str]]:
    """Return the columns that may be fields, and why each of the others may not.

    Strings, flags and whole numbers of few values are taken as they are; other numbers are cut into bins of about
    equal rows; of timestamps there are the hour, the weekday and the hour of the week. Left out are columns with one
    value, with a value per row (keys), and of lists.

    >>> import polars as pl
    >>> rows = pl.DataFrame({"age": [20.5, 31.0, 44.2, 58.9], "country": ["NL", "NL", "US", "US"], "v": [1, 1, 1, 1]})
    >>> found, others = candidate_fields(rows)
    >>> [candidate.name for candidate in found], others
    (['age:number', 'country'], {'v': 'one value'})
    """
    found: list[Candidate] = []
    others: dict[str, str] = {}
    for column in sample.iter_columns():
        if column.name in left_out:
            continue
        reason = ""
        for candidate in _cuts(column):
            if isinstance(candidate, str):
                reason = candidate
            elif len(np.unique(candidate.values(column).codes)) > 1:
                found.append(candidate)
            else:
                reason = "one value"
        if reason and not any(candidate.column == column.name for candidate in found):
            others[column.name] = reason
    return found, others


def outcome_warning(missing: NDArray[np.bool_], y: FloatArray, w: FloatArray) -> str | None:
    """Return the warning that a column is filled for positives alone; None if it is not."""
    positives, negatives = float(np.sum(w * y)), float(np.sum(w * (1.0 - y)))
    filled = w * ~missing
    among_positives = float(np.sum(filled * y)) / max(positives, 1e-300)
    among_negatives = float(np.sum(filled * (1.0 - y))) / max(negatives, 1e-300)
    if among_positives > 0.5 and among_negatives < 0.01:
        return "looks like an outcome: it is filled for positives alone"
    if among_negatives > 0.5 and among_positives < 0.01:
        return "looks like an outcome: it is filled for negatives alone"
    return None


def _cuts(column: pl.Series) -> Iterator[Candidate | str]:
    """Yield the candidates of a column, or why there is none."""
    kind, known, name = column.dtype, column.drop_nulls(), column.name
    if kind.is_nested() or kind in (pl.Object, pl.Duration, pl.Time):
        yield f"a column of {kind}"
    elif len(known) == 0:
        yield "one value"
    elif (timestamps := _timestamps(known)) is not None:
        # Hours and weekdays come again; bins of the time itself would be left behind by it.
        midnight = bool((timestamps.dt.truncate("1d") == timestamps).all())
        for part in ("weekday",) if midnight else CLOCK:
            yield Candidate(f"{name}:{part}", name)
    elif kind.is_numeric() and not _few_whole(known):
        edges = chosen_edges(known.cast(pl.Float64).to_numpy())
        yield Candidate(f"{name}:number", name, edges) if edges else "one value"
    elif kind == pl.String and known.n_unique() > max(_MOST_VALUES_OF_A_SMALL_LOG, len(known) / 2):
        yield "a value per row, as a key has"
    else:
        yield Candidate(name, name)


def _few_whole(known: pl.Series) -> bool:
    if known.dtype.is_float():
        finite = known.filter(known.is_finite())
        if len(finite) == 0 or not (finite == finite.floor()).all():
            return False
    return known.n_unique() <= FEW_WHOLE_NUMBERS


def _timestamps(known: pl.Series) -> pl.Series | None:
    """Return the timestamps that a column holds: as such, as strings, or as numbers that all look like times."""
    if known.dtype.is_numeric():
        try:
            known = timestamps_of(known)
        except InputError:
            return None
    elif known.dtype == pl.String:
        if not known.head(1000).str.contains(r"^\d{4}-\d\d-\d\d").all():
            return None
        known = parsed_timestamps(known)
        if known.null_count():
            return None
    return known.cast(pl.Datetime("us")) if known.dtype in (pl.Date, pl.Datetime) else None
