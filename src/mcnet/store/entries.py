"""Entries of a journal: what they are, which rows are refused, and a log split into periods."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from datetime import UTC, datetime
from os import SEEK_END, PathLike
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnet._shared.messages import warn
from mcnet.errors import Advice, FileFormatError, InputError, McnetError, NoRowsError
from mcnet.rows.columns import check_total_weight
from mcnet.rows.locations import Location, Locations, file_state, fingerprint, read_options
from mcnet.rows.logs import expand_paths
from mcnet.rows.periods import (
    duration_seconds,
    elapsed_periods,
    is_timestamp,
    parse_every,
    period_length,
    period_position,
    period_text,
    sorted_periods,
)
from mcnet.rows.spec import RowSpec
from mcnet.sketch.scan import are_sketches, unnamed_column
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.sketch_file import stored_bytes
from mcnet.sketch.views import sketches_by
from mcnet.store.settings import HeadSettings

if TYPE_CHECKING:
    from mcnet.store.journal import Journal

COMPACTED = "(compacted)"
"""The source of what compacting has merged."""

EntryKey = tuple[str, str, float | None]


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
    def age_or_end(self) -> float:
        """The age; infinite if the labels were complete."""
        return np.inf if self.age is None else self.age

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


def entry_key(entry: Entry) -> EntryKey:
    """Return what must be unique: the same source says one thing of a period at an age."""
    return entry.source, entry.period, entry.age


# The age of a count: how many periods after the end of a period its positives were counted.


@dataclass(frozen=True)
class Addition:
    """How rows are added to a journal: see `Journal.add_files` for what its parts mean."""

    source: str | None = None
    age: float | None = None
    counted: Any = None
    replace: bool = False
    allow: str | Collection[str] = ()

    def check(self, files: int = 1) -> None:
        """Refuse an age without the name of a source, and one source for several files.

        Counts of one source at several ages replace one another.
        """
        if self.age is not None and self.counted is not None:
            raise InputError("age and counted both give the time of counting; give one of them")
        if (self.age is not None or self.counted is not None) and self.source is None:
            raise InputError(
                f"{'age' if self.counted is None else 'counted'} was given without a source; a count of a later age "
                "replaces the earlier ones of the same source",
                advice=Advice(
                    "name the source alike for every count ({source}), or all counts add up", source="orders"
                ),
            )
        if self.source is not None and files > 1:
            raise InputError(f"source names one file, but {files} were given; leave it out, or add one at a time")


@dataclass(frozen=True)
class NewFiles:
    """Log files or sketches to add to a journal, and how."""

    paths: Locations
    spec: RowSpec
    how: Addition
    period: str | None
    """The one period of all rows, if there is no column of time."""

    @staticmethod
    def of(
        logs: Any, settings: HeadSettings, how: Addition, *, period: Any = None, named: HeadSettings | None = None
    ) -> "NewFiles":
        """Expand the names of files; refuse options that do not fit them.

        Of the settings, `named` are those that this call names: saved sketches know the others.
        """
        if hasattr(logs, "columns") or hasattr(logs, "column_names"):
            raise InputError(
                f"logs are named by their files, not given as {type(logs).__name__}; write the rows to a file, or add "
                "them to the journal as a sketch: Journal.add(mcnet.scan(table, …), period)"
            )
        files = [logs] if isinstance(logs, str | PathLike) else list(logs)
        name = None if period is None else period_text(period)
        if not files:
            return NewFiles(Locations(), RowSpec(), how, name)
        asked = settings if named is None else named
        paths = expand_paths(logs)
        sketched = are_sketches(paths)
        spec = (asked if sketched else settings).row_spec()
        time = asked.time if sketched or period is not None else settings.time
        every = asked.every if sketched or time is None else settings.every
        if sketched and (time is not None or every is not None):
            advice = Advice("name its period with {period}", period=None)
            raise InputError(f"{files[0]} is a sketch and has no rows to split by time", advice=advice)
        if (time is None) == (period is None) or (time is None) != (every is None):
            how_to = "name the column of time and the length of a period with {}, or one period of all rows with {}"
            words = how_to.format("--time and --every", "--period")
            advice = Advice(how_to.format("time and every", "period"), shell=words)
            raise InputError("the period of the rows is not known", advice=advice)
        spec = spec if time is None else spec.with_time(time, every)
        for role in () if sketched else ("score", "label"):
            if getattr(spec, role) is None:
                raise unnamed_column(files[0], role)
        how.check(len(paths))
        if how.counted is not None and spec.time is None:
            advice = Advice("give the age of one period with age", shell="give the age of one period with --age")
            raise InputError("counted gives the age of each period of a column of time", advice=advice)
        return NewFiles(paths, spec, how, name)

    def state_of(self, path: Location) -> list[Any]:
        """Return what tells whether a file, and what becomes of it, is as it was."""
        time = self.spec.time
        cut = (time, None if time is None else self.spec.every[time], self.period, self.how.age, self.how.counted)
        options = read_options()
        chosen = tuple(option for option in (options.where, options.separator, options.drop_missing) if option)
        read = (sorted(self.spec.arguments().items()), *cut, *chosen)
        digest = hashlib.sha256(repr(read).encode()).hexdigest()[:16]
        # What is not on disk is read each time; the journal knows rows that it has.
        return [*(file_state(path) if isinstance(path, Path) else [fingerprint(path)]), digest]


def age_when_counted(period: str, every: str, counted: Any) -> float:
    """Return how many periods after the end of a period lies the moment at which its positives were counted.

    Parameters
    ----------
    period : the canonical period, by its beginning.
    every : the length of a period, such as "1d"; a plain number where periods are numbers.
    counted : a moment, or a number where periods are numbers.

    >>> age_when_counted("2026-11-14", "1d", "2026-11-16T12:00"), age_when_counted("7", "1", 10)
    (1.5, 2.0)
    """
    moment = counted.replace(microsecond=0) if isinstance(counted, datetime) else counted
    text = period_text(moment)
    begin, now = period_position(period), period_position(text)
    step = parse_every(every)
    if begin is None or now is None or (step.unit is None) != text.lstrip("-").isdigit():
        raise InputError(f"counted is {counted!r}, and a period is {period}; give a moment on the same line of time")
    end = begin + step.number if step.unit is None else _end(period, every)
    if now < end:
        raise InputError(
            f"counted is {text}, but the period {period} ends after that; leave its rows out until it is over"
        )
    return (now - end) / (end - begin)


def _end(period: str, every: str) -> float:
    import polars as pl

    end = pl.Series([datetime.fromisoformat(period)]).dt.offset_by(every)[0]
    found = period_position(period_text(end))
    assert found is not None
    return found


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


class ImplausibleError(InputError):
    """A weight or a period is so far from all others that a wrong unit or a wrong clock is likely."""

    @staticmethod
    def of(guard: str, problem: str, advice: str) -> "ImplausibleError":
        """Return the error about a weight or a period, which advises to allow it by name, too."""
        by_name = Advice(
            f"{advice}, or allow it by name: pass {{allow}}",
            service=f'{advice}, or allow it by name: send "allow": ["{guard}"]',
            allow=guard,
        )
        return ImplausibleError(problem, advice=by_name, column=guard)


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

    @staticmethod
    def of_files(changes: Sequence["Added"], left_out: Sequence[McnetError]) -> "Added":
        """Return what several files have changed; warn of files left out, and of rows that are there by another name.

        Parameters
        ----------
        changes, left_out : what each file has changed, and why others were left out.
        """
        for error in left_out:
            warn(f"a file is left out: {error.what}", error.advice)
        periods, known = (
            tuple(sorted_periods(list({period for change in changes for period in getattr(change, name)})))
            for name in ("periods", "known")
        )
        copies = tuple(copy for change in changes for copy in change.copies)
        if copies:
            source, other, period = copies[0]
            more = f" (and so for {len(copies) - 1:,} more periods or files)" if len(copies) > 1 else ""
            warn(
                f"{source} gave the same rows for {period} as {other} did before{more}, and they count twice now; if "
                f"it is one file under two names, take one out: Journal.remove({source!r}) or `mcnet journal remove`"
            )
        return Added(periods, sum(change.rows for change in changes), known, copies, tuple(map(str, left_out)))


def add_apart(files: Sequence[Location], add: Callable[[Location], Added]) -> tuple[list[Added], list[McnetError]]:
    """Add files one by one, and return what each has changed, and why others were left out.

    A file is left out if it changes while it is read, if it has other rows for a period than when it was added, or if
    it cannot be used: the others are added all the same. A file without rows changes nothing.

    Parameters
    ----------
    files : the files.
    add : adds one of them as a whole, or nothing of it.
    """
    options = read_options()
    changes: list[Added] = []
    left_out: list[McnetError] = []
    for file in files:
        dropped = options.dropped_rows
        try:
            changes.append(add(file))
        except NoRowsError:
            warn(f"{file} has no rows")
            changes.append(Added((), 0))
        except (InputError, FileFormatError) as found:
            options.dropped_rows = dropped
            named = len(files) == 1 or str(file) in found.what
            left_out.append(found if named else InputError(f"{file}: {found.what}", advice=found.advice))
    return changes, left_out


def entry_of(
    sketch: Sketch, period: str, source: str | None, age: float | None, largest_weight: float | None = None
) -> tuple[Entry, Sketch]:
    """Describe the rows of one period from one source; refuse an age or a source that is none."""
    if age is not None and not (isinstance(age, int | float | np.number) and 0.0 <= float(age) < np.inf):
        raise InputError(f"age is {age!r}; it must be a number of periods, 0 or more, or None for complete labels")
    if source is not None and (not isinstance(source, str) or not source or source == COMPACTED):
        raise InputError(f"source is {source!r}; it must be a text that names where the rows come from")
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


def checked_guards(allow: str | Collection[str]) -> set[str]:
    """Return the names of the guards that are off; refuse others."""
    allowed = {allow} if isinstance(allow, str) else set(allow)
    if not allowed <= set(GUARDS):
        raise InputError(f"allow is {sorted(allowed - set(GUARDS))[0]!r}; there are {' and '.join(GUARDS)}")
    return allowed


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
            raise ImplausibleError.of("weight", problem, "correct the weight")


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
            problem = f"the period {text} lies more than {_MOST_PERIODS_AWAY} periods after now"
            raise ImplausibleError.of("period", problem, "correct the clock or the unit of the timestamps")
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
            raise ImplausibleError.of("period", problem, "correct the clock or the unit of the timestamps")
        if position < first:
            first, name = position, text


def check_first_period(period: str, every: str | None) -> None:
    """Refuse a period far before now as the first one of a journal that is filled by a running service.

    Logs of any age may begin a journal. A service gets rows soon after they were served, and whatever period comes
    first is the one that later ones are compared with.

    Parameters
    ----------
    period : its canonical name.
    every : the length of a period, if it is known.

    Raises
    ------
    ImplausibleError : the period lies more than 400 periods before now.
    """
    length, position = period_length([period], every), period_position(period)
    if length is None or position is None or not is_timestamp(period):
        return
    number = round((datetime.now(UTC).timestamp() - position) / length)
    if number > _MOST_PERIODS_AWAY:
        problem = f"the period {period} lies {number:,} periods before now, and the journal has no rows yet"
        raise ImplausibleError.of("period", problem, "correct the clock or the unit of the timestamps")


# Sketches of very many periods from one log: those that memory would not hold wait in a temporary file.

_BYTES_IN_MEMORY = 64 << 20


class Spool(SpooledTemporaryFile[bytes]):
    """Keeps bytes for a while, in a temporary file where they are many."""

    def __init__(self) -> None:
        super().__init__(max_size=_BYTES_IN_MEMORY)

    def put(self, content: bytes) -> Callable[[], bytes]:
        """Keep bytes; return what reads them again."""
        self.seek(0, SEEK_END)
        begin, size = self.tell(), self.write(content)

        def read() -> bytes:
            self.seek(begin)
            return self.read(size)

        return read


def sketches_by_period(
    sketches: Iterable[Sketch], time: str, spool: Spool
) -> dict[str, list[Sketch | Callable[[], bytes]]]:
    """Split the sketches of a log into periods.

    Parameters
    ----------
    sketches : parts of the rows of a log, with the time as a field.
    time : that field.
    spool : where all but the last part wait.

    Returns
    -------
    dict : the sketches of each period, without the time; of those that wait, what reads their bytes.
    """
    periods: dict[str, list[Sketch | Callable[[], bytes]]] = defaultdict(list)
    last: dict[str, Sketch] = {}
    for sketch in sketches:
        for period, part in last.items():
            periods[period][-1] = spool.put(stored_bytes(part))
        last = sketches_by(sketch, time)
        for period, part in last.items():
            periods[period].append(part)
    return periods


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
