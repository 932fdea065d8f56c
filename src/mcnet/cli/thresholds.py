"""Thresholds: conditions on metrics, such as `f_rce>0.05`, under which a command fails."""

import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcnet.errors import InputError

if TYPE_CHECKING:
    from mcnet.metrics.evaluation import Evaluation

__all__ = ["UNSEEN", "Threshold", "broken_thresholds", "evaluated_figures", "parse_thresholds", "threshold_names"]

UNSEEN = "unseen"
"""The share of rows with a field value that the model has not seen in its fit."""

_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_THRESHOLD = re.compile(r"\s*([A-Za-z][A-Za-z0-9 _-]*?)\s*(>=|<=|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")
_COUNTS = ("rows", "weight", "positives")


@dataclass(frozen=True)
class Threshold:
    """One condition: a metric, a comparison and a number."""

    metric: str
    comparison: str
    limit: float

    def broken_by(self, figures: Mapping[str, float]) -> str | None:
        """Return why the threshold is not met, or None. A metric that is not defined meets no threshold."""
        value = figures[self.metric]
        if math.isnan(value):
            return f"{self.metric} is not defined on these rows, so it cannot be compared with {self.limit:g}"
        if _COMPARE[self.comparison](value, self.limit):
            return f"{self.metric} is {value:.6g}, which is {self.comparison} {self.limit:g}"
        return None


def threshold_names() -> list[str]:
    """Return the names of the metrics of an evaluation, and its counts."""
    from mcnet.metrics.registry import METRICS

    return [*METRICS, *_COUNTS]


def parse_thresholds(words: Sequence[str] | None, known: Sequence[str] | None = None) -> list[Threshold]:
    """Return the thresholds, or say what cannot be understood; metrics may be written as in the table.

    >>> parse_thresholds(["F-RCE > 0.05"])
    [Threshold(metric='f_rce', comparison='>', limit=0.05)]
    """
    if not words:
        return []
    names = threshold_names() if known is None else list(known)
    found = []
    for word in words:
        match = _THRESHOLD.fullmatch(word)
        if match is None:
            raise InputError(
                f"--fail-if {word!r} is not a threshold; write metric, comparison and number: '{names[0]}>0.05'"
            )
        metric, comparison, limit = match.groups()
        name = _known_name(metric, names)
        if name is None:
            raise InputError(f"--fail-if {word!r}: there is no metric {metric!r}; there are {', '.join(names)}")
        found.append(Threshold(name, comparison, float(limit)))
    return found


def _known_name(written: str, known: Sequence[str]) -> str | None:
    """Return the name that is meant by a metric's label or by a name in other capitals, or None."""
    from mcnet.metrics.registry import find_metric

    if written.lower() in known:
        return written.lower()
    try:
        name = find_metric(written).name
    except InputError:
        return None
    return name if name in known else None


def evaluated_figures(evaluation: "Evaluation", thresholds: Sequence[Threshold]) -> dict[str, float]:
    """Return the metrics of an evaluation that thresholds name."""
    return {one.metric: float(getattr(evaluation, one.metric)) for one in thresholds if one.metric != UNSEEN}


def broken_thresholds(thresholds: Sequence[Threshold], figures: Mapping[str, float]) -> list[str]:
    """Return what is wrong, one sentence per threshold that is not met."""
    return [found for threshold in thresholds if (found := threshold.broken_by(figures)) is not None]
