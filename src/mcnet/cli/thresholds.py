"""Thresholds: conditions on metrics, such as `f_rce>0.05`, under which a command fails."""

import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from mcnet.errors import InputError

if TYPE_CHECKING:
    from mcnet.metrics.evaluation import Evaluation

__all__ = ["UNSEEN", "Threshold", "broken_thresholds", "evaluated_figures", "parse_thresholds", "threshold_names"]

UNSEEN = "unseen"
"""The share of rows with a field value that the model has not seen in its fit."""

_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_THRESHOLD = re.compile(r"\s*([A-Za-z][A-Za-z0-9 _-]*?)\s*(>=|<=|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")
_OTHER_NAMES = {"smece": "smooth_ece"}
"""Names in the table that differ from the attribute by more than hyphens, spaces and capital letters."""


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
    """Return the names of the metrics of an evaluation."""
    from mcnet.metrics.evaluation import Evaluation

    return [field.name for field in fields(Evaluation) if field.type in (float, int)]


def parse_thresholds(words: Sequence[str] | None, known: Sequence[str] | None = None) -> list[Threshold]:
    """Return the thresholds, or say what cannot be understood; metrics may be written as in the table.

    >>> parse_thresholds(["F-RCE > 0.05"])
    [Threshold(metric='f_rce', comparison='>', limit=0.05)]
    """
    if not words:
        return []
    names = threshold_names() if known is None else list(known)
    by_letters = {**{_letters(name): name for name in names}, **{o: n for o, n in _OTHER_NAMES.items() if n in names}}
    found = []
    for word in words:
        match = _THRESHOLD.fullmatch(word)
        if match is None:
            raise InputError(
                f"--fail-if {word!r} is not a threshold; write metric, comparison and number: '{names[0]}>0.05'"
            )
        metric, comparison, limit = match.groups()
        if _letters(metric) not in by_letters:
            raise InputError(f"--fail-if {word!r}: there is no metric {metric!r}; there are {', '.join(names)}")
        found.append(Threshold(by_letters[_letters(metric)], comparison, float(limit)))
    return found


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def evaluated_figures(evaluation: "Evaluation") -> dict[str, float]:
    """Return every metric of an evaluation by its name."""
    return {name: float(getattr(evaluation, name)) for name in threshold_names()}


def broken_thresholds(thresholds: Sequence[Threshold], figures: Mapping[str, float]) -> list[str]:
    """Return what is wrong, one sentence per threshold that is not met."""
    return [found for threshold in thresholds if (found := threshold.broken_by(figures)) is not None]
