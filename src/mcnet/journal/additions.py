"""Add to a journal and remove from it: which rows are new, known, replaced or refused."""

import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from mcnet._shared.messages import warn
from mcnet.errors import Advice, CalibrationWarning, InputError
from mcnet.journal.entries import COMPACTED, Entry, EntryBatch, counted_entries, entry_key, sketch_digest
from mcnet.journal.storage import commit_batch, file_name, retire_batch
from mcnet.rows.columns import check_total_weight
from mcnet.rows.fields import MISSING_LABEL
from mcnet.rows.locations import Location, read_options
from mcnet.rows.logs import ChangedFileError
from mcnet.rows.periods import duration_seconds, is_moment, period_length, period_position, sorted_periods
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.views import in_field_order, sketches_by

# Sketches of very many periods from one log: collected in parts, on disk where memory would not hold them.

MOST_CELLS_IN_MEMORY = 2_000_000
"""A sketch of all periods beyond this many cells (about 40 bytes each) is written to disk, and a new one begun."""


@dataclass(frozen=True)
class PeriodParts:
    """The rows of many periods as several sketches that each have a part of them, with the time as a field.

    With one part everything is in memory; with several, one part and the periods of one group are at a time.
    """

    time: str
    cells: dict[str, dict[int, int]]
    """For each period, the number of its cells in each part that has some."""
    parts: Sequence[Callable[[], Sketch]]
    """Each returns a part; those on disk are read every time."""

    def sketches(self) -> Iterator[tuple[str, Sketch]]:
        """Yield each period, in the order in which the log brought them, with its rows, without the time."""
        for periods in self._groups():
            found: dict[str, list[Sketch]] = {period: [] for period in periods}
            for number in sorted({number for period in periods for number in self.cells[period]}):
                for period, sketch in sketches_by(self.parts[number](), self.time, found.keys()).items():
                    found[period].append(sketch)
            for period, sketches in found.items():
                yield period, Sketch.merged(sketches)

    def _groups(self) -> Iterator[list[str]]:
        """Yield groups of periods that together fit into memory."""
        group: list[str] = []
        size = 0
        for period, cells in self.cells.items():
            needed = sum(cells.values())
            if group and len(self.parts) > 1 and size + needed > MOST_CELLS_IN_MEMORY:
                yield group
                group, size = [], 0
            group.append(period)
            size += needed
        if group:
            yield group


@contextmanager
def period_parts(sketches: Iterable[Sketch], time: str) -> Iterator[PeriodParts]:
    """Collect sketches with the time as a field; all but a single one go to a temporary folder.

    Parameters
    ----------
    sketches : parts of the rows of a log.
    time : the field that has the periods.
    """
    with TemporaryDirectory(prefix="mcnet-periods-") as folder:
        cells: dict[str, dict[int, int]] = defaultdict(dict)
        parts: list[Callable[[], Sketch]] = []
        last: Sketch | None = None
        for number, sketch in enumerate(sketches):
            if last is not None:
                parts.append(_saved(last, Path(folder) / f"{number - 1}.parquet"))
            last = sketch
            for period, size in _cells_by_period(sketch, time).items():
                cells[period][number] = size
        if last is not None:
            parts.append(_saved(last, Path(folder) / f"{len(parts)}.parquet") if parts else partial(_itself, last))
            del last, sketch
        yield PeriodParts(time, dict(cells), parts)


def _itself(sketch: Sketch) -> Sketch:
    return sketch


def _saved(sketch: Sketch, path: Path) -> Callable[[], Sketch]:
    sketch.save(path)
    return partial(Sketch.load, path)


def _cells_by_period(sketch: Sketch, time: str) -> dict[str, int]:
    place = sketch.contexts.names.index(time)
    values = sketch.contexts.values[place]
    numbers = np.bincount(sketch.contexts.table[sketch.context, place], minlength=len(values)).tolist()
    return {MISSING_LABEL if value is None else value: n for value, n in zip(values, numbers, strict=True)}


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
    """Why files were left out: they changed while they were read, or have other rows than when they were added."""

    @staticmethod
    def of_files(changes: Sequence["Added"], left_out: Sequence[str] = ()) -> "Added":
        """Return what several files have changed; warn of rows that are in the journal under another name."""
        periods, known = (
            tuple(sorted_periods(list({period for change in changes for period in getattr(change, name)})))
            for name in ("periods", "known")
        )
        copies = tuple(copy for change in changes for copy in change.copies)
        if copies:
            source, other, period = copies[0]
            more = f" (and so for {len(copies) - 1:,} more periods or files)" if len(copies) > 1 else ""
            warnings.warn(
                f"{source} gave the same rows for {period} as {other} did before{more}, and they count twice now; if "
                f"it is one file under two names, take one out: Journal.remove({source!r}) or `mcnet journal remove`",
                CalibrationWarning,
                stacklevel=3,
            )
        return Added(periods, sum(change.rows for change in changes), known, copies, tuple(left_out))


def add_apart(files: Sequence[Location], add: Callable[[Location], Added]) -> Added:
    """Add files one by one, and return what all of them have changed.

    A file is left out, with a warning, if it changes while it is read, or if it has other rows for a period than when
    it was added: the others are added all the same. If no file could be added, the first reason is raised.

    Parameters
    ----------
    files : the files.
    add : adds one of them as a whole, or nothing of it.
    """
    options = read_options()
    changes: list[Added] = []
    left_out: list[InputError] = []
    for file in files:
        dropped = options.dropped_rows
        try:
            changes.append(add(file))
        except (ChangedFileError, OtherRowsError) as found:
            options.dropped_rows = dropped
            left_out.append(found)
    if left_out and not changes:
        raise left_out[0]
    for error in left_out:
        warn(f"a file is left out: {error.what}", error.advice)
    return Added.of_files(changes, [str(error) for error in left_out])


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
        file_name(period),
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


def commit_parts(
    root: Path,
    batches: Sequence[EntryBatch],
    parts: Callable[[], Iterable[tuple[Entry, Sketch]]],
    *,
    replace: bool,
    every: str | None = None,
    allow: str | Collection[str] = (),
) -> Added:
    """Commit what is not there yet as one batch; the caller has the lock of the journal.

    `parts` gives the entries with their rows, and is called twice, so that one period at a time is in memory: first to
    find out what is new, then to write it. `every` is the length of a period, if it is known, and `allow` names the
    guards that are off.
    """
    allowed = checked_guards(allow)
    there = {entry_key(entry): entry for entry in counted_entries(batches).values()}
    merged = {(source, period, age): digest for b in batches for source, period, digest, age in b.includes}
    given: list[Entry] = []
    first = _first_sketch(batches)
    for entry, sketch in _aligned(parts(), first):
        if not given:
            _check_alike(sketch, first)
        given.append(entry)
    sorted_periods(list({entry.period for entry in given} | {entry.period for entry in there.values()}))
    fresh: list[Entry] = []
    known: list[str] = []
    rows_of = {(period, digest): source for source, period, digest in _given(there.values(), batches)}
    copies: list[tuple[str, str, str]] = []
    for entry in given:
        key = entry_key(entry)
        before = there[key].digest if key in there else merged.get(key)
        if before == entry.digest:
            known.append(entry.period)
            continue
        if before is not None and key in merged:
            raise OtherRowsError(
                f"{entry.source} gave other rows for {entry.period} before, and they are compacted, so they "
                "cannot be replaced; add the rows under another source, or rebuild the journal"
            )
        if before is not None and not replace:
            advice = Advice("pass {replace} to replace them, or give late rows another source", replace=True)
            problem = f"{entry.source} gave {there[key].rows:,} other rows for {entry.period} before"
            raise OtherRowsError(problem, advice=advice, file=entry.source)
        fresh.append(entry)
        other = rows_of.get((entry.period, entry.digest), entry.source)
        if other != entry.source:
            copies.append((entry.source, other, entry.period))
    if fresh:
        if "weight" not in allowed:
            check_weights(fresh, max((entry.heaviest for entry in there.values()), default=None))
        if "period" not in allowed:
            check_periods([entry.period for entry in fresh], [entry.period for entry in there.values()], every)
        new = set(fresh)
        written = ((entry, sketch) for entry, sketch in _aligned(parts(), first) if entry in new)
        commit_batch(root, 1 + max((batch.serial for batch in batches), default=0), written)
    rows = sum(entry.rows for entry in fresh)
    return Added(tuple(entry.period for entry in fresh), rows, tuple(known), tuple(copies))


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
    if is_moment(new[0][1]):
        now = datetime.now(UTC).timestamp()
        latest, text = max(new)
        if latest > now + _MOST_PERIODS_AWAY * length:
            problem = f"the period {text} lies more than {_MOST_PERIODS_AWAY} periods after now"
            raise ImplausibleError.of("period", problem, "correct the clock or the unit of the timestamps")
    gap = _MOST_PERIODS_AWAY * length
    if known:
        first, name = min((period_position(text) or 0.0, text) for text in known)
    else:
        gap = max(gap, _LEAST_GAP_AT_FIRST) if is_moment(new[0][1]) else gap
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
    if length is None or position is None or not is_moment(period):
        return
    number = round((datetime.now(UTC).timestamp() - position) / length)
    if number > _MOST_PERIODS_AWAY:
        problem = f"the period {period} lies {number:,} periods before now, and the journal has no rows yet"
        raise ImplausibleError.of("period", problem, "correct the clock or the unit of the timestamps")


def _given(there: Iterable[Entry], batches: Sequence[EntryBatch]) -> Iterator[tuple[str, str, str]]:
    """Yield (source, period, digest) of everything that counts, also of what was compacted."""
    yield from ((entry.source, entry.period, entry.digest) for entry in there if entry.source != COMPACTED)
    yield from ((source, period, digest) for b in batches for source, period, digest, _ in b.includes)


def _first_sketch(batches: Sequence[EntryBatch]) -> Sketch | None:
    """Return rows of the journal, None if it has none."""
    if not batches or not batches[-1].entries:
        return None
    return Sketch.load(batches[-1].folder / batches[-1].entries[0].file)


def _aligned(parts: Iterable[tuple[Entry, Sketch]], before: Sketch | None) -> Iterator[tuple[Entry, Sketch]]:
    """Yield entries with the fields in the order of the journal, so that equal rows have equal digests."""
    for entry, sketch in parts:
        ordered = sketch if before is None else in_field_order(sketch, before.contexts.names)
        if ordered is not sketch:
            digest = sketch_digest(ordered)
            source = digest if entry.source == entry.digest else entry.source
            entry = replace_fields(entry, source=source, digest=digest)
        yield entry, ordered


def _check_alike(sketch: Sketch, before: Sketch | None) -> None:
    """Refuse rows that do not add up with those that are there: other fields, another resolution."""
    if before is None:
        return
    for what, here, there in (
        ("fields", sketch.contexts.names, before.contexts.names),
        ("resolution", sketch.resolution, before.resolution),
    ):
        if here != there:
            raise InputError(f"the {what} of these rows are {here}, those of the journal {there}; make both alike")


def remove_source(root: Path, batches: Sequence[EntryBatch], source: str, wanted: str | None) -> int:
    """Remove what a source gave for a period (None: for all) and return how many rows; the caller has the lock."""
    merged = sorted_periods(
        list({when for b in batches for name, when, *_ in b.includes if name == source and wanted in (None, when)})
    )
    if merged:
        which = merged[0] if len(merged) == 1 else f"{len(merged):,} periods, {merged[0]} to {merged[-1]},"
        raise InputError(
            f"what {source} gave for {which} is compacted and can no longer be removed; nothing was removed: name "
            "one period that is not compacted, or rebuild the journal"
        )
    removed = 0
    counted = set(counted_entries(batches))
    for batch in batches:
        gone = [e for e in batch.entries if e.source == source and wanted in (None, e.period)]
        if not gone:
            continue
        kept = [e for e in batch.entries if e not in gone]
        removed += sum(e.rows for e in gone if (batch.serial, e.file, e.source, e.age) in counted)
        if kept:
            # The new batch takes the serial of the old one, which is removed next; were both to stay, equal
            # entries count once.
            commit_batch(root, batch.serial, ((e, Sketch.load(batch.folder / e.file)) for e in kept))
        retire_batch(batch)
    if removed == 0:
        raise InputError(f"the journal has nothing from {source!r}; `mcnet journal list` names its sources")
    return removed
