"""Calibration by field: a table with one line per field value, and the metrics that sum it up."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mcnet._shared.typing import FloatArray, IndexArray
from mcnet.metrics.estimates import Estimates
from mcnet.metrics.field_error import group_pcoc
from mcnet.metrics.group_sums import GroupSums
from mcnet.metrics.judged_rows import JudgedSums
from mcnet.metrics.registry import field_metrics
from mcnet.metrics.settings import MetricSettings
from mcnet.plots.forest import beyond_noise

__all__ = ["CodedField", "FieldEvaluation", "FieldTable", "combine", "compact", "evaluate_field"]

_LARGEST_TABLE = 2**24
"""IndexArray are renumbered through a table up to this span, else by sorting."""


class CodedField(NamedTuple):
    """A field as numbers: row `i` has the value `values[codes[i]]`."""

    codes: npt.NDArray[np.intp]
    values: tuple[str, ...]


@dataclass(frozen=True)
class FieldTable:
    """One line per field value: weight, positives, mean prediction, PCOC with its interval."""

    values: tuple[str, ...]
    weight: FloatArray
    positives: FloatArray
    mean_prediction: FloatArray
    pcoc: FloatArray
    pcoc_low: FloatArray
    pcoc_high: FloatArray

    def __len__(self) -> int:
        return len(self.values)

    @property
    def beyond_noise(self) -> FloatArray:
        """How many positives too many (negative: too few) are predicted, beyond what noise explains."""
        return beyond_noise(self)

    def to_dict(self) -> dict[str, list[str] | list[float | None]]:
        """Return the columns as lists, with None for what is undefined or infinite."""
        result: dict[str, list[str] | list[float | None]] = {"value": list(self.values)}
        for name in ("weight", "positives", "mean_prediction", "pcoc", "pcoc_low", "pcoc_high", "beyond_noise"):
            column: FloatArray = getattr(self, name)
            result[name] = [value if np.isfinite(value) else None for value in column.tolist()]
        return result


@dataclass(frozen=True)
class FieldEvaluation:
    """How well one field is calibrated: its table and the estimates over its values."""

    name: str
    table: FieldTable
    estimates: Estimates

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
    """Return the table and the estimates of a field from the sums of its values.

    Parameters
    ----------
    name, values : of the field.
    sums : the sums of each value.
    settings : of the metrics.
    compared : the sums of each value in each fold, if the estimates are to compare these instead.
    """
    pcoc, low, high = group_pcoc(sums, level=settings.level)
    mean = sums.predicted / sums.weight
    table = FieldTable(values, sums.weight, sums.positives, mean, pcoc, low, high)
    return FieldEvaluation(
        name, table, Estimates(JudgedSums(settings, sums if compared is None else compared), field_metrics())
    )


def compact(codes: IndexArray) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Renumber codes without gaps; also return the old code of each new one.

    >>> renumbered, old = compact(np.array([7, 2, 7]))
    >>> renumbered.tolist(), old.tolist()
    ([1, 0, 1], [2, 7])
    """
    low, high = int(codes.min()), int(codes.max())
    if high - low >= _LARGEST_TABLE:
        old, renumbered = np.unique(codes, return_inverse=True)
        return renumbered.astype(np.intp, copy=False), old.astype(np.intp)
    shifted = codes - low if low else codes
    present = np.bincount(shifted) > 0
    new = np.cumsum(present) - 1
    return new[shifted].astype(np.intp, copy=False), np.flatnonzero(present) + low


def combine(fields: Mapping[str, CodedField], rows: int) -> tuple[CodedField, dict[str, npt.NDArray[np.intp]]]:
    """Return the contexts, numbered, and for each field the code that each context has in it."""
    codes, members = np.zeros(rows, dtype=np.intp), dict[str, npt.NDArray[np.intp]]()
    for name, field in fields.items():
        count = len(field.values)
        codes, pairs = compact(codes * count + field.codes)
        members = {earlier: known[pairs // count] for earlier, known in members.items()}
        members[name] = pairs % count
    size = len(next(iter(members.values()))) if members else 1
    parts = [[fields[name].values[code] for code in known] for name, known in members.items()]
    values = tuple(" / ".join(words) for words in zip(*parts, strict=True)) if parts else ("all rows",) * size
    return CodedField(codes, values), members
