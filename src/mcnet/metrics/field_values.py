"""Metrics per field value and per fold, and their table."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mcnet._shared.arrays import FloatArray, IndexArray
from mcnet._shared.files import finite
from mcnet.metrics.calibration_error import group_pcoc
from mcnet.metrics.intervals import Estimate
from mcnet.metrics.judged_rows import JudgedSums, MetricSettings
from mcnet.metrics.metric import METRICS, field_metrics, find_metric
from mcnet.metrics.sums import GroupSums, group_sums
from mcnet.plots.figures import PcocTable
from mcnet.rows.contexts import distinct_combinations
from mcnet.rows.fields import MISSING_LABEL, FieldColumn

# The estimates of an evaluation, each computed when it is first asked for.


class Estimates(Mapping[str, Estimate]):
    """Metrics by name (or label, in any spelling), computed from the judged rows when first asked for.

    Those that `shared` has are taken from there.
    """

    def __init__(
        self, judged: JudgedSums, names: Iterable[str], *, shared: Mapping[str, Estimate] | None = None
    ) -> None:
        """Remember the rows and which metrics there are."""
        self._judged: JudgedSums | None = judged
        self._shared = shared or {}
        self._found: dict[str, Estimate | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> Estimate:
        known = name if name in self._found else find_metric(name).name
        result = self._found[known]
        if result is None:
            result = self._shared[known] if known in self._shared else METRICS[known].function(self._judged)
            self._found[known] = result
        return result

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def compute_all(self) -> None:
        """Compute what has not been asked for yet, and release the rows."""
        for name in self:
            self[name]
        self._judged = None

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return the estimates as plain numbers and text, with None for what is undefined or infinite."""
        return {
            name: {
                "label": METRICS[name].label,
                "better": METRICS[name].better,
                **finite(asdict(result)),
            }
            for name, result in self.items()
        }


# Calibration by field: a table with one line per field value, and the metrics that sum it up.


class CodedField(NamedTuple):
    """A field as numbers: row `i` has the value `values[codes[i]]`."""

    codes: npt.NDArray[np.intp]
    values: tuple[str, ...]

    def of(self, rows: Any) -> "CodedField":
        """Return the field of some rows, given by a slice, their numbers or a mask."""
        return CodedField(self.codes[rows], self.values)


def coded_fields(columns: Iterable[FieldColumn]) -> dict[str, CodedField]:
    """Number the values of field columns, the missing value under the name people read."""
    return {
        column.name: CodedField(
            column.codes.astype(np.intp), tuple(MISSING_LABEL if value is None else value for value in column.values)
        )
        for column in columns
    }


@dataclass(frozen=True)
class FieldTable(PcocTable):
    """One line per field value: weight, positives, mean prediction, PCOC with its interval."""

    def to_dict(self) -> dict[str, list[str] | list[float | None]]:
        """Return the columns as lists, with None for what is undefined or infinite."""
        names = ("weight", "positives", "mean_prediction", "pcoc", "pcoc_low", "pcoc_high", "beyond_noise")
        columns = {name: finite(getattr(self, name).tolist()) for name in names}
        return {"value": list(self.values), **columns}


@dataclass(frozen=True)
class FieldEvaluation:
    """How well one field is calibrated: its table and the estimates over its values."""

    name: str
    table: FieldTable
    estimates: Estimates

    def to_dict(self) -> dict[str, Any]:
        """Return metrics and table as plain lists, numbers and text."""
        return {"metrics": self.estimates.to_dict(), "table": self.table.to_dict()}

    @property
    def f_rce(self) -> float:
        """Relative calibration error over the field's values."""
        return self.estimates["f_rce"].value

    @property
    def pcoc_std(self) -> float:
        """Spread of PCOC over the field's values."""
        return self.estimates["pcoc_std"].value


def evaluate_field(
    name: str, values: tuple[str, ...], sums: GroupSums, settings: MetricSettings, compared: GroupSums | None = None
) -> FieldEvaluation:
    """Return the table and the estimates of a field from the sums of its values."""
    pcoc, low, high = group_pcoc(sums, level=settings.level)
    mean = sums.predicted / sums.weight
    table = FieldTable(values, sums.weight, sums.positives, mean, pcoc, low, high)
    return FieldEvaluation(
        name, table, Estimates(JudgedSums(settings, sums if compared is None else compared), field_metrics())
    )


def compact(codes: IndexArray) -> tuple[npt.NDArray[np.intp], IndexArray]:
    """Renumber codes without gaps; also return the old code of each new one.

    >>> renumbered, old = compact(np.array([7, 2, 7]))
    >>> renumbered.tolist(), old.tolist()
    ([1, 0, 1], [2, 7])
    """
    low = int(codes.min())
    table, renumbered = distinct_combinations([codes - low], [int(codes.max()) - low + 1])
    return renumbered, table[:, 0] + low


def seen_values(field: CodedField) -> CodedField:
    """Keep only the values that some row has."""
    renumbered, old = compact(field.codes)
    return CodedField(renumbered, tuple(field.values[code] for code in old))


def combine(fields: Mapping[str, CodedField], rows: int) -> tuple[CodedField, dict[str, IndexArray]]:
    """Return the contexts, numbered, and for each field the code that each context has in it."""
    if not fields:
        return CodedField(np.zeros(rows, dtype=np.intp), ("all rows",)), {}
    columns = list(fields.values())
    table, codes = distinct_combinations([field.codes for field in columns], [len(field.values) for field in columns])
    words = ([field.values[code] for code in known] for field, known in zip(columns, table.T, strict=True))
    return CodedField(codes, tuple(map(" / ".join, zip(*words, strict=True)))), dict(zip(fields, table.T, strict=True))


# Sums of field values within folds, where each fold was predicted by a fit on the other ones.
#
# Summed over all folds, the positives that such fits expect of a field value are nearly those that it has, however
# wrong each fit is: a value with more positives in one fold makes the other fits expect more. So the error of a field
# value is looked at within a fold.


@dataclass(frozen=True)
class FoldSums:
    """The sums of each context in each fold, and which context and fold these are."""

    sums: GroupSums
    context: IndexArray
    fold: IndexArray

    @classmethod
    def of(cls, p: FloatArray, y: FloatArray, w: FloatArray, contexts: IndexArray, folds: IndexArray) -> "FoldSums":
        """Sum rows by context and fold."""
        table, codes = distinct_combinations([contexts, folds], [int(contexts.max()) + 1, int(folds.max()) + 1])
        return cls(group_sums(p, y, codes, w, count=len(table)), *table.T)

    def of_values(self, members: IndexArray) -> GroupSums:
        """Return the sums of each value of one field in each fold, given the value of each context."""
        sizes = int(members.max()) + 1, int(self.fold.max()) + 1
        table, codes = distinct_combinations([members[self.context], self.fold], sizes)
        return self.sums.merged(codes, len(table))
