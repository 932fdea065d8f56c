"""Entries of a journal: what they are, which rows are refused as implausible, and the sum of many periods."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnet.errors import Advice, InputError
from mcnet.rows.columns import check_total_weight
from mcnet.rows.periods import (
    duration_seconds,
    elapsed_periods,
    is_timestamp,
    period_length,
    period_position,
    period_text,
    sorted_periods,
)
from mcnet.sketch.sketch import Sketch

if TYPE_CHECKING:
    from mcnet.store.journal import Journal

COMPACTED = "(compacted)"
"""The source of what compacting has merged."""
FEEDBACK = "feedback "
"""What the source of feedback begins with; its key follows."""


@dataclass(frozen=True)
class Entry:
    """The count of one source for one period, made at one age."""

    period: str
    source: str
    digest: str
    """Of the cells: the same rows have the same digest."""
    rows: int
    weight: float
    positives: float
    age: float | None = None
    """How long after the end of the period it was counted, in periods; None if the labels were complete."""
    largest_weight: float | None = None
    """The largest weight of a row; None if it is not known, or no larger than the mean."""

    @property
    def heaviest(self) -> float:
        """The largest weight of a row, as far as it is known: at least the mean of all."""
        return max(self.largest_weight or 0.0, self.weight / self.rows if self.rows else 0.0)


def sketch_digest(sketch: Sketch) -> str:
    """Return a digest of the cells: equal sketches have equal digests."""
    found = hashlib.sha256()
    cells = sketch.cells
    for part in (sketch.contexts.names, sketch.contexts.values, sketch.resolution):
        found.update(repr(part).encode())
    for array in (sketch.contexts.table, cells.context, cells.key, cells.sums):
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:32]


def past_digests(journal: "Journal") -> dict[str, str]:
    """Return, for each period in order, a digest of the rows of this and all earlier periods.

    Where positives are still missing, it is also one of the share that is believed to have arrived.
    """
    found: dict[str, list[str]] = defaultdict(list)
    arrival = journal.arrival()
    for period in journal.released:
        found[period].append("released")
    for entry in journal.entries():
        arrived = (1.0, 0.0) if arrival is None else arrival.at(entry.age)
        found[entry.period].append(entry.digest if arrived[0] == 1.0 else f"{entry.digest} {arrived}")
    result, before = {}, ""
    for period in sorted_periods(list(found)):
        text = "\n".join([before, period, *sorted(found[period])])
        result[period] = before = hashlib.sha256(text.encode()).hexdigest()
    return result


# What an addition changes, and what is refused as implausible.

GUARDS = ("weight", "period")
"""What is refused as implausible, unless it is allowed by this name."""

_MOST_TIMES_LARGEST, _LARGEST_AT_FIRST = 1_000.0, 1e6
"""How much heavier a row may be than every one before it, and how heavy a row of an empty journal."""

_MOST_PERIODS_AWAY = 400
"""How many periods may lie between a new period and the first one, or the present."""

_LEAST_GAP_AT_FIRST = duration_seconds("1y")
"""In the first rows of a journal a shorter gap than this is no sign of a wrong clock."""


class OtherRowsError(InputError):
    """A source gave other rows for the same period before."""


def _implausible(guard: str, problem: str, advice: str) -> InputError:
    """Return the error about a weight or a period, which advises to allow it by name, too."""
    by_name = Advice(
        f"{advice}, or allow it by name: pass {{allow}}",
        service=f'{advice}, or allow it by name: send "allow": ["{guard}"]',
        allow=guard,
    )
    return InputError(problem, advice=by_name, column=guard)


def _implausible_period(problem: str) -> InputError:
    return _implausible("period", problem, "correct the clock or the unit of the timestamps")


@dataclass(frozen=True)
class Added:
    """What an addition changed: the periods that got rows, how many rows, and the periods that had them already."""

    periods: tuple[str, ...]
    rows: int
    known: tuple[str, ...] = ()
    copies: tuple[tuple[str, str, str], ...] = ()
    """(source, other source, period) of rows that another source had given for the same period; both count."""
    left_out: tuple[str, ...] = ()
    """Why files were left out: they changed while they were read, have other rows than when they were added, or cannot
    be used."""


def entry_of(
    sketch: Sketch, period: str, source: str | None, age: float | None, largest_weight: float | None = None
) -> tuple[Entry, Sketch]:
    """Describe the rows of one period from one source; refuse an age or a source that is none."""
    if age is not None and not (isinstance(age, int | float | np.number) and 0.0 <= float(age) < np.inf):
        raise InputError(f"age is {age!r}; it must be a number of periods, 0 or more, or None for complete labels")
    if source is not None and (not isinstance(source, str) or not source or source == COMPACTED):
        raise InputError(f"source is {source!r}; it must be a text that names where the rows come from")
    if len(sketch) == 0:
        raise InputError("the sketch has no rows; at least one row is needed")
    check_total_weight(sketch.weight)
    sketch = sketch.unfolded()
    digest = sketch_digest(sketch)
    entry = Entry(
        period,
        source or digest,
        digest,
        sketch.rows,
        sketch.total_weight,
        sketch.total_positives,
        None if age is None else float(age),
    )
    if largest_weight is not None and largest_weight > entry.heaviest:
        entry = replace_fields(entry, largest_weight=float(largest_weight))
    return entry, sketch


def check_weights(fresh: Iterable[Entry], largest: float | None) -> None:
    """Refuse a weight that is far above the largest one so far, None if there is none."""
    most = _LARGEST_AT_FIRST if largest is None else _MOST_TIMES_LARGEST * largest
    for entry in fresh:
        if entry.heaviest > most:
            than = (
                f"{_LARGEST_AT_FIRST:,.0f}, the most in an empty journal"
                if largest is None
                else f"{_MOST_TIMES_LARGEST:,.0f} times the largest so far ({largest:.6g})"
            )
            problem = f"{entry.source} has a row of weight {entry.heaviest:.6g} for {entry.period}, above {than}"
            raise _implausible("weight", problem, "correct the weight")


def check_periods(fresh: Sequence[str], there: Sequence[str], every: str | None) -> None:
    """Refuse a period that lies far before the first one, or far in the future.

    Rows that reach back without a long gap are no mistake, so each new period is compared with the one that follows.
    """
    known = sorted_periods(list(set(there)))
    length = period_length(known or sorted_periods(list(set(fresh))), every)
    if length is None:
        return
    new = [(position, text) for text in set(fresh) if (position := period_position(text)) is not None]
    if is_timestamp(new[0][1]):
        now = datetime.now(UTC).timestamp()
        latest, text = max(new)
        if latest > now + _MOST_PERIODS_AWAY * length:
            raise _implausible_period(f"the period {text} lies more than {_MOST_PERIODS_AWAY} periods after now")
    gap = _MOST_PERIODS_AWAY * length
    if known:
        first, name = min((period_position(text) or 0.0, text) for text in known)
    else:
        gap = max(gap, _LEAST_GAP_AT_FIRST) if is_timestamp(new[0][1]) else gap
        first, name = max(new)
    for position, text in sorted(new, reverse=True):
        if position < first - gap:
            number = round((first - position) / length)
            problem = f"the period {text} lies {number:,} periods before {name}, the first one after it"
            raise _implausible_period(problem)
        if position < first:
            first, name = position, text


def check_first_period(period: str, every: str | None) -> None:
    """Refuse a period far before now as the first one of a running service, which later ones are compared with."""
    length, position = period_length([period], every), period_position(period)
    if length is None or position is None or not is_timestamp(period):
        return
    number = round((datetime.now(UTC).timestamp() - position) / length)
    if number > _MOST_PERIODS_AWAY:
        problem = f"the period {period} lies {number:,} periods before now, and the journal has no rows yet"
        raise _implausible_period(problem)


# The sum of many periods.


def period_factors(
    periods: Sequence[str], half_life: float | None, weights: Mapping[Any, float], known: Collection[str]
) -> dict[str, float]:
    """Return by how much the rows of each period count: the weight given, decayed from the last period backwards.

    Weights of periods that are not among `known` are refused.
    """
    if half_life is not None and not (isinstance(half_life, int | float | np.number) and half_life > 0.0):
        raise InputError(f"half_life is {half_life!r}; it must be a number of periods above 0")
    given = {period_text(period): _factor(period, factor) for period, factor in weights.items()}
    unknown = [period for period in given if period not in known]
    if unknown:
        raise InputError(f"weights has the period {unknown[0]}, of which the journal has no rows; leave it out")
    decay = np.ones(len(periods)) if half_life is None else 0.5 ** (elapsed_periods(periods) / half_life)
    return {period: given.get(period, 1.0) * float(factor) for period, factor in zip(periods, decay, strict=True)}


def _factor(period: Any, factor: Any) -> float:
    if isinstance(factor, bool) or not isinstance(factor, int | float | np.number) or not 0.0 <= factor < np.inf:
        raise InputError(f"the weight of {period} is {factor!r}; it must be a number, 0 or more")
    return float(factor)


def weighted_sum(sketches: Iterable[tuple[str, Sketch]], factors: Mapping[str, float]) -> Sketch:
    """Return the sum of sketches, each times the factor of its period; those of factor 0 are left out."""
    total: Sketch | None = None
    for period, sketch in sketches:
        factor = factors[period]
        if factor > 0.0:
            part = sketch if factor == 1.0 else factor * sketch
            total = part if total is None else total + part
    if total is None:
        raise InputError("every period has weight 0; leave at least one in")
    return total
