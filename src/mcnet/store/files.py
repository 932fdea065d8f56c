"""Log files and saved sketches that are added to a journal: options that fit, and each file as a whole."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from os import SEEK_END, PathLike, fspath
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any

from mcnet._shared.messages import warn
from mcnet.errors import Advice, FileFormatError, InputError, McnetError, NoRowsError
from mcnet.rows.fields import MISSING_LABEL, number_fields
from mcnet.rows.locations import Location, Locations, file_state, fingerprint, read_options
from mcnet.rows.logs import expand_paths
from mcnet.rows.periods import parse_every, period_position, period_text, sorted_periods
from mcnet.rows.spec import RowSpec
from mcnet.sketch.build import LargestWeight
from mcnet.sketch.scan import are_sketches, scan_in_parts, sketch_files, unnamed_column, with_edges
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.sketch_file import sketch_of_bytes, stored_bytes
from mcnet.sketch.views import sketches_by
from mcnet.store.additions import SourceRows, add_rows
from mcnet.store.entries import Added, Entry, entry_of
from mcnet.store.settings import HeadSettings

if TYPE_CHECKING:
    from mcnet.store.journal import Journal

Progress = Callable[[int], Any] | None
"""What is called with the number of rows of each batch that was read."""

_MOST_CELLS_IN_MEMORY = 2_000_000
"""Of a log whose periods have more cells than this (about 40 bytes each), a part at a time is in memory."""
_BYTES_IN_MEMORY = 64 << 20
"""Of what waits to be written, more than this lies in a temporary file."""


@dataclass(frozen=True)
class Addition:
    """How rows are added to a journal: see `Journal.add_files` for what its parts mean."""

    source: str | None = None
    age: float | None = None
    counted: Any = None
    replace: bool = False
    allow: str | Collection[str] = ()

    def check(self, files: int = 1) -> None:
        """Refuse an age without a source, since counts of a source replace one another, and a source of many files."""
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
    period: str | None = None
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

    def add_to(
        self, journal: "Journal", progress: Progress = None, *, only: Collection[Location] | None = None
    ) -> dict[Location, Added | McnetError]:
        """Add the files one by one, and return what each has changed, or why it was left out.

        A file is left out if it changes while it is read, if it has other rows for a period than when it was added, or
        if it cannot be used: the others are added all the same. A file without rows changes nothing.
        """
        spec, paths = self.spec, self.paths if only is None else only
        if paths and number_fields(spec.fields):  # cut as the rows that are there
            spec = with_edges(self.paths, replace(spec, edges={**spec.edges, **journal.edges()}))
        outcomes: dict[Location, Added | McnetError] = {}
        options = read_options()
        for path in paths:
            dropped = options.dropped_rows
            try:
                outcomes[path] = self._add(path, spec, journal, progress)
            except NoRowsError:
                warn(f"{path} has no rows")
                outcomes[path] = Added((), 0)
            except (InputError, FileFormatError) as error:
                options.dropped_rows = dropped
                named = len(self.paths) == 1 or str(path) in error.what
                outcomes[path] = error if named else InputError(f"{path}: {error.what}", advice=error.advice)
        return outcomes

    def _add(self, path: Location, spec: RowSpec, journal: "Journal", progress: Progress) -> Added:
        """Add one file as a whole, or nothing of it."""
        source, largest = self.how.source or fspath(path), LargestWeight()
        with Spool() as spool:
            if self.period is None:
                every = str(spec.every[str(spec.time)])
                parts = _parts(path, spec, largest, spool, progress)
            else:
                every = None
                rows = sketch_files(Locations([path]), spec, largest_weight=largest, progress=progress)
                parts = {self.period: [rows]}

            def described() -> Iterator[tuple[Entry, Sketch]]:
                for period, waiting in parts.items():
                    read = [part if isinstance(part, Sketch) else sketch_of_bytes(part(), period) for part in waiting]
                    age = self.how.age
                    if self.how.counted is not None:
                        age = age_when_counted(period, str(every), self.how.counted)
                    yield entry_of(Sketch.merged(read), period, source, age, largest.value)

            added = SourceRows(described, every, self.how.allow, replace=self.how.replace, keep=spool.put)
            return add_rows(journal.store, journal.head, added)


def change_of(outcomes: Collection[Added | McnetError]) -> Added:
    """Return what several files have changed; warn of files left out, and of rows that are there by another name."""
    changes = [one for one in outcomes if isinstance(one, Added)]
    left_out = [one for one in outcomes if isinstance(one, McnetError)]
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


# A log of very many periods: parts that memory would not hold wait in a temporary file.

Waiting = list[Sketch | Callable[[], bytes]]


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


def _parts(
    path: Location, spec: RowSpec, largest: LargestWeight, spool: Spool, progress: Progress
) -> dict[str, Waiting]:
    """Return the sketches of each period of a log; of those that wait, what reads their bytes."""
    time = str(spec.time)
    found: dict[str, Waiting] = defaultdict(list)
    last: dict[str, Sketch] = {}
    for sketch in scan_in_parts(
        Locations([path]), spec, most_cells=_MOST_CELLS_IN_MEMORY, largest_weight=largest, progress=progress
    ):
        for period, part in last.items():
            found[period][-1] = spool.put(stored_bytes(part))
        last = sketches_by(sketch, time)
        for period, part in last.items():
            found[period].append(part)
    if MISSING_LABEL in found:
        raise InputError(f"{path} has rows without a timestamp in {time}; drop them, or give them one")
    return {period_text(period): parts for period, parts in found.items()}


# The age of a count: how many periods after the end of a period its positives were counted.


def age_when_counted(period: str, every: str, counted: Any) -> float:
    """Return how many periods after the end of a period lies the moment, or the number, at which it was counted.

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
