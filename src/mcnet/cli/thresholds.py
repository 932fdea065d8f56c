"""Thresholds: conditions on metrics, such as `f_rce>0.05`, under which a command fails.

THRESHOLD = SUBJECT COMPARISON NUMBER ["where" COUNT COMPARISON NUMBER {"and" …}]
SUBJECT   = METRIC [BOUND] | SCOPE ".pcoc" [BOUND] | SCOPE "." METRIC-OF-A-FIELD [BOUND]
BOUND     = ".low" | ".high" | ".floor"
SCOPE     = "field" (any field, also if one is called so) | the name of a field | "period"
COUNT     = "rows" | "weight" | "positives"
"""

import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer

from mcnet.cli.run import THRESHOLD_NOT_MET, Printer
from mcnet.errors import InputError

if TYPE_CHECKING:
    from mcnet.metrics.evaluation import Evaluation
    from mcnet.metrics.field_values import FieldTable

UNSEEN = "unseen"
"""The share of rows with a field value that the model has not seen in its fit."""

MISSING = "missing"
"""The share of rows without a score."""

ANY_FIELD, PERIOD = "field", "period"
_SHARES = (UNSEEN, MISSING)
_BOUNDS = ("low", "high", "floor")
_COUNTS = ("rows", "weight", "positives")
_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_THRESHOLD = re.compile(rf"\s*([^<>=]*[^<>=\s])\s*(>=|<=|>|<)\s*({_NUMBER})\s*(?:\swhere\s+(.+?))?\s*")
_CONDITION = re.compile(rf"\s*(\w+)\s*(>=|<=|>|<)\s*({_NUMBER})\s*")
_MOST_NAMED = 3


@dataclass(frozen=True)
class Condition:
    """What a count has to be for a threshold to be looked at."""

    count: str
    comparison: str
    limit: float

    def holds(self, counts: Mapping[str, float]) -> bool:
        """Tell whether the counts of all rows, a field value or a period meet the condition."""
        return bool(_COMPARE[self.comparison](counts[self.count], self.limit))


@dataclass(frozen=True)
class Threshold:
    """One condition: a metric or a bound of it, of all rows or of each value of a field, compared with a number."""

    metric: str
    comparison: str
    limit: float
    bound: str = "value"
    scope: str = ""
    where: tuple[Condition, ...] = ()

    @property
    def subject(self) -> str:
        """Return what is compared, as it is written."""
        parts = (self.scope, self.metric, "" if self.bound == "value" else self.bound)
        return ".".join(part for part in parts if part)

    def broken_by(self, figures: "Figures") -> str | None:
        """Return why the threshold is not met, or None. A metric that is not defined meets no threshold."""
        broken = []
        for name, value, counts in figures.of(self):
            if not all(condition.holds(counts) for condition in self.where):
                continue
            if math.isnan(value):
                if name:  # a field value or a period without rows has no PCOC
                    continue
                return f"{self.subject} is not defined on these rows, so it cannot be compared with {self.limit:g}"
            if _COMPARE[self.comparison](value, self.limit):
                broken.append((abs(value - self.limit), name, value))
        if not broken:
            return None
        broken.sort(reverse=True)
        named = ", ".join(f"{value:.6g}" + (f" for {name}" if name else "") for _, name, value in broken[:_MOST_NAMED])
        more = f" and {len(broken) - _MOST_NAMED} more" if len(broken) > _MOST_NAMED else ""
        return f"{self.subject} is {named}{more}, which is {self.comparison} {self.limit:g}"


@dataclass(frozen=True)
class Figures:
    """What thresholds can speak of: an evaluation, the PCOC of its periods, shares of unseen values, missing scores."""

    evaluation: "Evaluation | None" = None
    periods: "FieldTable | None" = None
    shares: Mapping[str, float] = field(default_factory=dict)

    def of(self, threshold: Threshold) -> Iterator[tuple[str, float, Mapping[str, float]]]:
        """Yield the name (empty for all rows), value and counts of each thing that a threshold looks at."""
        if threshold.metric in self.shares:
            yield "", self.shares[threshold.metric], {}
            return
        assert self.evaluation is not None
        counts = {name: float(getattr(self.evaluation, name)) for name in _COUNTS}
        if not threshold.scope:
            if threshold.metric in _COUNTS:
                yield "", counts[threshold.metric], counts
            else:
                yield "", float(getattr(self.evaluation.estimates[threshold.metric], threshold.bound)), counts
            return
        for name, table in self._tables(threshold.scope):
            if threshold.metric == "pcoc":
                column = getattr(table, "pcoc" if threshold.bound == "value" else f"pcoc_{threshold.bound}")
                for index, value in enumerate(table.values):
                    own = {"weight": float(table.weight[index]), "positives": float(table.positives[index])}
                    pcoc = float(column[index])
                    if threshold.bound == "value" and own["positives"] == 0.0 and float(table.pcoc_low[index]) > 0.0:
                        pcoc = math.inf  # positives were expected and none came: nothing is more over-predicted
                    yield f"{name} {value}", pcoc, own | {"rows": own["weight"]}
            else:
                estimate = self.evaluation.fields[name].estimates[threshold.metric]
                yield name, float(getattr(estimate, threshold.bound)), counts

    def _tables(self, scope: str) -> "list[tuple[str, FieldTable]]":
        assert self.evaluation is not None
        fields = self.evaluation.fields
        if scope == PERIOD and self.periods is not None:
            return [(PERIOD, self.periods)]
        if scope == ANY_FIELD and fields:
            return [(name, field.table) for name, field in fields.items()]
        if scope in fields:
            return [(scope, fields[scope].table)]
        if scope == PERIOD:
            raise InputError("--fail-if tests periods, but there are none; pass --time and --every, or a journal")
        known = ", ".join(fields) or "none; pass --field"
        raise InputError(f"--fail-if speaks of the field {scope!r}; the fields that are judged are {known}")


def threshold_names() -> list[str]:
    """Return the names of the metrics of an evaluation, and its counts."""
    from mcnet.metrics.metric import METRICS

    return [*METRICS, *_COUNTS]


def parse_thresholds(words: Sequence[str] | None, known: Sequence[str] | None = None) -> list[Threshold]:
    """Return the thresholds, or say what cannot be understood; metrics may be written as in the table.

    >>> parse_thresholds(["F-RCE > 0.05"])[0].subject
    'f_rce'
    >>> found = parse_thresholds(["country.pcoc.low>1.02 where positives>100"])[0]
    >>> found.scope, found.bound, found.where
    ('country', 'low', (Condition(count='positives', comparison='>', limit=100.0),))
    """
    if not words:
        return []
    names = threshold_names() if known is None else list(known)
    return [_parsed(word, names) for word in words]


def _parsed(word: str, names: Sequence[str]) -> Threshold:
    match = _THRESHOLD.fullmatch(word)
    if match is None:
        raise InputError(
            f"--fail-if {word!r} is not a threshold; write metric, comparison and number: '{names[0]}>0.05'"
        )
    subject, comparison, limit, where = match.groups()
    metric, bound, scope = _subject(word, subject, names)
    result = Threshold(metric, comparison, float(limit), bound, scope, _conditions(word, where))
    if result.metric in _SHARES and result.where:
        raise InputError(
            f"--fail-if {word!r}: {result.metric} is a share of all rows and has no volume; leave out where"
        )
    return result


def _subject(word: str, subject: str, names: Sequence[str]) -> tuple[str, str, str]:
    """Return metric, bound and scope."""
    parts = [part.strip() for part in subject.split(".")]
    bound = parts.pop() if len(parts) > 1 and parts[-1] in _BOUNDS else "value"
    metric, scope = parts[-1], ".".join(parts[:-1])
    name = _known_name(metric, names)
    if name is None:
        raise InputError(f"--fail-if {word!r}: there is no metric {metric!r}; there are {', '.join(names)}")
    if bound != "value" and name in (*_COUNTS, *_SHARES):
        raise InputError(f"--fail-if {word!r}: {name} has no interval; leave out .{bound}")
    if scope:
        from mcnet.metrics.metric import field_metrics

        allowed = ["pcoc"] if scope == PERIOD else ["pcoc", *field_metrics()]
        if name not in allowed:
            raise InputError(f"--fail-if {word!r}: of {scope} there is {', '.join(allowed)}, not {name}")
        if name == "pcoc" and bound == "floor":
            raise InputError(f"--fail-if {word!r}: PCOC has no noise floor; write .low or .high")
    return name, bound, scope


def _conditions(word: str, where: str | None) -> tuple[Condition, ...]:
    conditions = []
    for part in re.split(r"\sand\s", where) if where else ():
        match = _CONDITION.fullmatch(part)
        if match is None or match[1] not in _COUNTS:
            raise InputError(
                f"--fail-if {word!r}: {part.strip()!r} is no condition on {', '.join(_COUNTS)}; write 'positives>100'"
            )
        conditions.append(Condition(match[1], match[2], float(match[3])))
    return tuple(conditions)


def _known_name(written: str, known: Sequence[str]) -> str | None:
    """Return the name that is meant by a metric's label or by a name in other capitals, or None."""
    from mcnet.metrics.metric import find_metric

    if written.lower() in known:
        return written.lower()
    try:
        name = find_metric(written).name
    except InputError:
        return None
    return name if name in known else None


def broken_thresholds(thresholds: Sequence[Threshold], figures: Figures) -> list[str]:
    """Return what is wrong, one sentence per threshold that is not met."""
    return [reason for threshold in thresholds if (reason := threshold.broken_by(figures)) is not None]


def end_if_broken(printer: Printer, broken: Sequence[str], subject: str = "") -> None:
    """Say which thresholds are not met, and end the command with their exit code if any is not."""
    for sentence in broken:
        printer.note(f"not met{subject}: {sentence}")
    if broken:
        raise typer.Exit(THRESHOLD_NOT_MET)
