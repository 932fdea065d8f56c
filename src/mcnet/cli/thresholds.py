"""Bars: conditions on metrics, such as `f_rce>0.05`, under which a command fails."""

import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from mcnet.errors import InputError

if TYPE_CHECKING:
    from mcnet.metrics.evaluation import Evaluation

__all__ = ["Bar", "broken_bars", "parse_bars"]

_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_BAR = re.compile(r"\s*([a-z_0-9]+)\s*(>=|<=|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True)
class Bar:
    """One condition: a metric, a comparison and a number."""

    metric: str
    comparison: str
    limit: float

    def broken_by(self, evaluation: "Evaluation") -> str | None:
        """Return what the bar finds wrong, or None. A metric that is not defined cannot pass a bar."""
        value = float(getattr(evaluation, self.metric))
        if math.isnan(value):
            return f"{self.metric} is not defined on these rows, so it cannot be held against {self.limit:g}"
        if _COMPARE[self.comparison](value, self.limit):
            return f"{self.metric} is {value:.6g}, which is {self.comparison} {self.limit:g}"
        return None


def parse_bars(words: Sequence[str] | None) -> list[Bar]:
    """Return the bars, or say what cannot be understood.

    >>> parse_bars(["f_rce > 0.05"])
    [Bar(metric='f_rce', comparison='>', limit=0.05)]
    """
    if not words:
        return []
    from mcnet.metrics.evaluation import Evaluation

    known = [field.name for field in fields(Evaluation) if field.type in (float, int)]
    bars = []
    for word in words:
        match = _BAR.fullmatch(word)
        if match is None:
            raise InputError(f"--fail-if {word!r} is not a bar; write metric, comparison and number: 'f_rce>0.05'")
        metric, comparison, limit = match.groups()
        if metric not in known:
            raise InputError(f"--fail-if {word!r}: there is no metric {metric!r}; there are {', '.join(known)}")
        bars.append(Bar(metric, comparison, float(limit)))
    return bars


def broken_bars(bars: Sequence[Bar], evaluation: "Evaluation") -> list[str]:
    """Return what is wrong, a sentence for each bar that is not met."""
    return [found for bar in bars if (found := bar.broken_by(evaluation)) is not None]
