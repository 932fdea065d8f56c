"""The update job: add rows, learn, gate, publish, watch."""

import dataclasses
import json
import time as clock
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

from mcnet._shared.arrays import ScoreType
from mcnet._shared.files import finite
from mcnet.errors import BusyError, InputError, McnetError
from mcnet.field_search import search
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import model_text
from mcnet.operations.alerts import Event, add_events, alarm_event, make_key
from mcnet.operations.gate import COMPARED_PERIODS, Current, Gate, LoadVersion, ServedPast, Verdict, ends_after
from mcnet.operations.learning import Learnt, learn_journal
from mcnet.operations.status import STATUS, Watched, loader, run_document, served_past, status_of, watch
from mcnet.report.status_page import write_status_page
from mcnet.rows.columns import check_value
from mcnet.rows.locations import Location
from mcnet.rows.logs import ChangedFileError
from mcnet.rows.periods import delay_in_periods, period_text, shown_periods
from mcnet.rows.spec import DEFAULT_RESOLUTION, Resolution, RowSpec, check_search, field_names
from mcnet.store.additions import shape_of
from mcnet.store.entries import Added, Addition, NewFiles, OtherRowsError, add_apart
from mcnet.store.journal import Journal
from mcnet.store.state import FILES, MONITOR, REFUSED, SUSPECT, LoopState, changed_settings
from mcnet.store.store import Head, Lease, Store
from mcnet.store.versions import Registry, Version, now
from mcnet.tracking.memories import BAYES, check_method
from mcnet.tracking.monitor import Alarm
from mcnet.tracking.suspect import Suspect

__all__ = ["Update", "record_failed_run", "update"]

# The new rows of a run: log files or sketches that go into the journal; files known from earlier runs are not read.


@dataclass(frozen=True)
class NewRows:
    """What a run has added to the journal."""

    rows: int = 0
    periods: tuple[str, ...] = ()
    files: int = 0
    """Files that were read."""
    unchanged: int = 0
    """Files that an earlier run had added, and that were not read again."""
    left_out: tuple[str, ...] = ()
    """Why files were left out."""


def add_rows(
    journal: Journal,
    loop: LoopState,
    files: NewFiles,
    progress: Callable[[int], Any] | None,
) -> NewRows:
    """Add the rows of files to a journal; the files that it has already, and that are as they were, are not read.

    Files are left out as `add_apart` says; if none can be used, that is an error.
    """
    known = loop.get(FILES) or {}  # without it all files are read again, which changes nothing
    sources = journal.sources() if known else set()
    states = [(path, files.how.source or fspath(path), files.state_of(path)) for path in files.paths]
    fresh = {path: (name, state) for path, name, state in states if known.get(name) != state or name not in sources}

    def add(path: Location) -> Added:
        spec = journal.with_edges(files.paths, files.spec)
        added = journal.add_file(path, spec, files.how, progress, files.period)
        name, state = fresh[path]
        known[name] = state
        return added

    changes, left_out = add_apart(list(fresh), add)
    other = [error for error in left_out if not isinstance(error, ChangedFileError | OtherRowsError)]
    if other and not changes and len(fresh) == len(files.paths):
        raise other[0]
    added = Added.of_files(changes, left_out)
    if fresh:
        loop.put(FILES, known)
    unchanged = len(files.paths) - len(fresh)
    return NewRows(added.rows, tuple(sorted(added.periods)), len(changes), unchanged, added.left_out)


# What one run of the update job did.

Outcome = Literal["published", "nothing new", "waiting", "refused", "held", "failed"]


@dataclass(frozen=True)
class Update:
    """What one run of the job did."""

    outcome: Outcome
    """ "published"; "nothing new": no rows since the last run; "waiting": too few periods to judge a model by;
    "refused": the gate kept the current version; "held": somebody went back to the current version, or holds it;
    "failed": only in the history, of a run that ended with an error."""
    reason: str
    """Why, in one line."""
    version: str | None
    """The current version after the run."""
    replaced: str | None = None
    """The version that was current before, if another one is now."""
    forced: bool = False
    """Whether it was published although the gate spoke against it."""
    added: NewRows = dataclasses.field(default_factory=NewRows)
    """The rows that this run added to the journal."""
    learnt: tuple[str, ...] = ()
    """The periods that the tracker learnt."""
    until: str | None = None
    """The last period that it has read; one that is suspect was not learnt."""
    verdict: Verdict | None = None
    """The verdict of the gate, if it was asked."""
    alarms: tuple[Alarm, ...] = ()
    """Alarms of the monitor that no earlier run has reported."""
    suspect: tuple[str, ...] = ()
    """Periods that came now, are suspect and so were kept and not learnt, each with its likely cause, in a sentence."""
    held: str | None = None
    """Since when and why the current version is held, if it is."""
    status: Path | None = None
    """The status page, if one was asked for."""
    fields: tuple[str, ...] | None = None
    """The fields that were chosen when the head was begun, if they were not named."""
    changed: tuple[str, ...] = ()
    """How the head reads logs from now on, and how it did before, where that is not the same."""

    def advice(self, alarm: Alarm) -> str:
        """Return what to do about an alarm, in one sentence.

        Parameters
        ----------
        alarm : Alarm
            One of `alarms`.
        """
        kept = self.reason if self.outcome == "held" else ""
        if self.outcome == "refused":
            kept = "the gate refused the new model, for the reason above"
        return alarm.advice(tracked=True, kept=kept)

    def to_dict(self) -> dict[str, Any]:
        """Return the run as JSON-able values."""
        return {
            "outcome": self.outcome,
            "reason": self.reason,
            "version": self.version,
            "replaced": self.replaced,
            "forced": self.forced,
            "added": asdict(self.added),
            "learnt": list(self.learnt),
            "until": self.until,
            "gate": None if self.verdict is None else self.verdict.to_dict(),
            "alarms": [{**asdict(alarm), "advice": self.advice(alarm)} for alarm in self.alarms],
            "suspect": list(self.suspect),
            "held": self.held,
            "status": None if self.status is None else str(self.status),
            "changed": list(self.changed),
            **({} if self.fields is None else {"fields": list(self.fields)}),
        }


# The history of runs: one line per run, including failed ones.


def record_failed_run(
    store: Store | str | PathLike[str], reason: str, *, head: str | None = None, wait_seconds: float = 60.0
) -> None:
    """Write the line of a run that could not do so itself, since something ended its process.

    Parameters
    ----------
    store, head : the store or its address, and the name of the head.
    reason : what is known of its end.
    wait_seconds : how long to wait for another run that is at work.
    """
    opened = store if isinstance(store, Store) else Store(store)
    name = opened.chosen_head(head)
    with opened.learning(name, wait_seconds=wait_seconds):
        _add_failed_run(opened, name, reason, "", clock.monotonic())


def _add_failed_run(store: Store, head: str, reason: str, note: str, started: float) -> None:
    """Write the line of a run that ended with an error; what earlier runs have decided stays."""
    state = store.state(head)
    last = (state.runs(1) or [{}])[0]
    version = last.get("version")
    with suppress(McnetError):  # somebody may have promoted another one since the last run
        number = store.versions(head).current_number
        version = None if number is None else str(number)
    kept = {"decided": last.get("decided")}
    kept |= {name: last.get(name, []) for name in ("alarms_told", "suspects_told")}
    _add_run(state, Update("failed", reason, version, until=last.get("until")), started, note, served=[], **kept)


def _add_run(state: LoopState, done: Update, started: float, note: str, **more: Any) -> None:
    """Write the line of a run, and what the next runs need to know of it."""
    seconds = round(clock.monotonic() - started, 3)
    state.add_run(finite({"time": now(), "seconds": seconds, **done.to_dict(), "note": note, **more}))


# The job: add the new rows, update the tracker, gate, publish, monitor and report; safe to retry at any time.


def update(
    store: Store | str | PathLike[str],
    logs: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    *,
    head: str | None = None,
    score: str | None = None,
    label: str | None = None,
    field: str | Sequence[str] | None = None,
    fields: str | None = None,
    exclude: Sequence[str] = (),
    weight: str | None = None,
    value: str | float | None = None,
    value_per_positive: str | None = None,
    time: str | None = None,
    every: str | None = None,
    period: Any = None,
    source: str | None = None,
    age: float | None = None,
    counted: Any = None,
    replace: bool = False,
    allow: str | Collection[str] = (),
    score_type: ScoreType = "probability",
    negatives_kept: float = 1.0,
    resolution: Resolution = DEFAULT_RESOLUTION,
    until: Any = None,
    delay: int | str = 0,
    method: str = BAYES,
    max_shift: float = 0.5,
    tolerance: float = 0.0,
    min_periods: int = 3,
    alpha: float = 0.01,
    look: bool = True,
    force: bool = False,
    note: str = "",
    status: str | PathLike[str] | None = None,
    wait_seconds: float = 60.0,
    reading: Callable[[int], Any] | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> Update:
    """Run the loop once: add new rows, learn them, and publish the model for the coming period if the gate lets it.

    Run it after every period, by whatever schedules jobs. It may be killed at any time and run again, also twice at
    once: rows count once, the served version is always a whole one, and a run that was cut off is completed by the
    next. A version that somebody went back to is held: nothing takes its place until it is released.

    Parameters
    ----------
    store : the store, or its address; it is made when it is not there.
    logs : files to add to the journal of the head first; none, if others add to it.
    head : the name of the head; the only or the default one if None.
    score, label, field, weight, score_type, negatives_kept, resolution : of logs, as in `mcnet.scan`. If neither score
        nor label is named, logs are read as the last run has read those of this head.
    value, value_per_positive : of logs, as in `mcnet.scan`: the journal keeps the sums, and the status and dashboard
        have money. A number is what every positive is worth, of logs and of feedback.
    fields : "auto" instead of `field`: those that `mcnet.find_fields` finds in the first logs of a head. The choice is
        kept with the head: a head that has rows stays as it is, and a new one chooses anew.
    exclude : with fields="auto", columns that are no candidates.
    time, every : of logs: the column of timestamps and the length of a period, such as "1h".
    period : instead of `time`: the one period of all rows; for saved sketches, too.
    source, age, counted, replace, allow : as in `Journal.add_files`.
    until : learn no period after this one, such as one that has not ended yet.
    delay : after how many further periods the labels of a period are known, or how long that takes ("2h").
    method : the calibrator of the tracker.
    max_shift : how far a mean probability may move at once, of all rows or of a field value with many positives.
    tolerance : the log-loss per row by which a new model may be worse than the current one.
    min_periods : so many periods must have been predicted and judged before a model is published.
    alpha : the monitor's chance of ever raising a false alarm.
    look : look at a period before it is learnt: a suspect one is kept and not learnt. False learns every period that
        comes from now on, whatever it is.
    force : publish whatever the gate says, also instead of a version that is held; the history says so.
    note : goes into the history.
    status : the file of a page about the state of the loop, written at the end.
    wait_seconds : how long to wait for another run that is at work.
    reading, progress : functions that are called with the rows of each batch read, and with the periods done and to do.

    Returns
    -------
    Update : what was done.

    Raises
    ------
    BusyError : another run is still at work after `wait_seconds`.
    InputError : the rows or parameters cannot be used; nothing was published.
    """
    started = clock.monotonic()
    gate = Gate(max_shift, tolerance, min_periods)
    check_method(method)
    opened = store if isinstance(store, Store) else Store(store)
    name = opened.chosen_head(head)
    journal, state = opened.journal(name), opened.state(name)
    columns: dict[str, Any] = {"score": score, "label": label, "field": field, "weight": weight}
    columns |= {"score_type": score_type, "negatives_kept": negatives_kept}
    money = {"value": value, "value_per_positive": value_per_positive}
    if value is not None and value_per_positive is not None:
        raise InputError("value and value_per_positive were both given; give the one that is known")
    if not isinstance(value, str | None):
        money["value"] = check_value(value)
    known = opened.find_head(name)
    if score is None and label is None and known is not None:  # logs are read as the last run has read them
        unnamed = [c for c in columns if columns[c] == {"score_type": "probability", "negatives_kept": 1.0}.get(c)]
        columns |= {column: value for column, value in known.settings.items() if column in unnamed}
        if time is None and period is None:
            time, every = known.settings.get("time"), every or known.settings.get("every")
        if value is None and value_per_positive is None:
            money = {role: known.settings.get(role) for role in money}
    every = every if known is None or time is None else every or known.settings.get("every")
    given = field_names(columns.pop("field"))
    named: dict[str, Any] = {role: column for role, column in money.items() if isinstance(column, str)}
    spec = RowSpec(fields=given, resolution=resolution, **columns, **named)
    chosen = _auto_fields(known, fields, spec, logs, time, exclude)
    spec = spec if chosen is None else dataclasses.replace(spec, fields=chosen)
    spec = spec if time is None else spec.with_time(time, every)
    how = Addition(source, age, counted, replace, allow)
    try:
        files = NewFiles.of(logs, spec, how, None if period is None else period_text(period), every)
        if not files.paths:
            opened.require_head(name)
    except McnetError as error:
        if state.runs(1):  # a loop that ran before tells of every run
            with suppress(BusyError):  # what is wrong with this run matters more than its line
                record_failed_run(opened, str(error), head=name, wait_seconds=wait_seconds)
        raise
    with opened.learning(name, wait_seconds=wait_seconds) as lease:
        try:
            added = add_rows(journal, state, files, reading)
            if chosen is not None:
                opened.configure(name, auto_fields=list(chosen))
            read: dict[str, Any] = {}
            if time is not None and (added.files or added.unchanged):
                read = {**columns, **money, "field": list(given) or None, "time": time, "every": every}
            if value is not None and not isinstance(value, str):
                opened.configure(name, **money)  # at once: the monitor of this run has money
            last = None if until is None else period_text(until)
            journal.compact_feedback(last)
            past = journal.snapshot()
            late = delay_in_periods(delay, past.periods, every)
            learnt = learn_journal(past, state, method=method, delay=late, until=last, look=look, progress=progress)
            run = _Run(opened, lease, opened.versions(name), state, past, gate, late, alpha, force, note, started, read)
            done = run.publish_and_record(learnt, added, status)
            past.close()
        except Exception as error:
            reason = str(error) if isinstance(error, McnetError) else f"{type(error).__name__}: {error}"
            with suppress(McnetError, OSError):  # what is wrong matters more than its line
                if known is not None or not opened.remove_head(name, if_empty=True):
                    _add_failed_run(opened, name, reason, note, started)
            raise
    done = done if chosen is None else dataclasses.replace(done, fields=chosen)
    if done.status is not None:
        write_status_page(done.status, status_of(opened, name))
    return done


def _auto_fields(
    head: Head | None, asked: str | None, spec: RowSpec, logs: Any, time: str | None, exclude: Sequence[str]
) -> tuple[str, ...] | None:
    """Return the fields that were chosen for a head, or are to be chosen now; None if fields are named."""
    check_search(asked, spec.fields, exclude)
    kept = None if head is None else head.settings.get("auto_fields")
    if kept is not None or asked is None:
        return tuple(kept) if kept is not None and not spec.fields else None
    shape = shape_of(head)
    if shape is not None:
        own = ", ".join(shape[0]) or "none"
        raise InputError(f"the head has rows with named fields ({own}); automatic fields are chosen for a new head")
    if not logs or spec.score is None or spec.label is None:
        raise InputError("fields are chosen from the first logs of a head; give logs, score and label")
    return search(logs, spec, exclude=exclude, time=time).fields


@dataclass(frozen=True)
class _Run:
    """One run, after the rows were added and learnt."""

    store: Store
    lease: Lease
    registry: Registry
    state: LoopState
    journal: Journal
    gate: Gate
    delay: int
    alpha: float
    force: bool
    note: str
    started: float
    settings: dict[str, Any]  # how the logs of this run were read

    def publish_and_record(self, learnt: Learnt | None, added: NewRows, page: str | PathLike[str] | None) -> Update:
        """Publish the new model if it may be, and keep the line of the run and the monitor, in one transaction."""
        last = (self.state.runs(1) or [{}])[0]
        promoted = self.registry.promoted
        before = promoted[-1] if promoted else None
        status = None if page is None else Path(page)
        if learnt is None:
            why = "the journal has no period to learn yet"
            done = Update("nothing new", why, _name(before), added=added, status=status)
            with self.store.transaction(self.lease):
                return self._record(done, None, None, (), last)
        until = learnt.learner.clock.last
        assert until is not None
        seconds = learnt.learner.clock.period_seconds
        (read,) = shown_periods([until], seconds=seconds)
        look = learnt.learner.look
        suspects = [one for one in look.suspects if one.state in ("waiting", "left out")]
        kept = {one.period for one in suspects}
        periods = tuple(period for period in learnt.new if period not in kept)
        facts: dict[str, Any] = {"added": added, "learnt": periods, "until": read, "status": status}
        made_current = before is not None and before.rows_digest == learnt.digest
        load = loader(self.registry)
        candidate: CalibrationModel | None = None
        if self._was_decided(last, learnt.digest, made_current):
            why = f"everything until {read} was learnt before"
        elif before is not None and made_current:
            why = f"version {before.name} is made of these very rows"
        elif before is not None and not self.force and ends_after(before, until):
            (fitted,) = shown_periods([before.fitted_until or ""], seconds=seconds)
            why = f"version {before.name} was fitted until {fitted}, later than {read}"
        elif before is not None and not self.force and learnt.only_suspects_since(before.rows_digest):
            why = f"every period since version {before.name} is suspect and was not learnt"
        else:
            head = self.store.require_head(self.lease.head)
            read_as = dataclasses.replace(head, settings={**head.settings, **self.settings})
            candidate = learnt.model(self.journal.periods[0], read_as.columns)
            verdict = self._judged(candidate, promoted, learnt, load)
        watched = watch(
            self.journal,
            self.state,
            load,
            forecasts=learnt.forecasts,
            promoted=promoted,
            delay=self.delay,
            until=until,
            alpha=self.alpha,
        )
        alarms = [*watched.monitor.alarms, *([look.alarm] if look.alarm is not None else [])]
        alarms_told, suspects_told = last.get("alarms_told", []), last.get("suspects_told", [])
        new = tuple(alarm for alarm in alarms if [alarm.what, alarm.raised] not in alarms_told)
        suspects = [one for one in suspects if [one.period, one.cause] not in suspects_told]
        told = tuple(self._suspect_line(one) for one in suspects)
        with self.store.transaction(self.lease):
            if candidate is None:
                done = Update("nothing new", why, _name(before), **facts)
            else:
                done = self._decide(candidate, verdict, learnt.digest, before, facts)
            done = dataclasses.replace(done, alarms=new, suspect=told)
            self._alert(done, suspects, last, learnt.digest)
            return self._record(done, learnt, watched, alarms, last)

    @property
    def _shell(self) -> str:
        """The store and the head, as commands take them."""
        name = self.lease.head
        return f"{self.store.name}{'' if self.store.heads == [name] else f' --head {name}'}"

    def _suspect_line(self, suspect: Suspect) -> str:
        """Return that a period is suspect, where its rows came from, and what to do, in one line."""
        sources = sorted({entry.source for entry in self.journal.entries() if entry.period == suspect.period})
        come = f"all from {sources[0]}" if len(sources) == 1 else f"from {len(sources)} sources"
        return f"{suspect} (rows {come}); {self._cure(suspect)}"

    def _cure(self, suspect: Suspect) -> str:
        release = f"mcnet journal release {self._shell} {suspect.period}"
        return f"add its rows again with --replace, or learn it all the same: `{release}`"

    def _alert(self, done: Update, suspects: Sequence[Suspect], last: dict[str, Any], digest: str) -> None:
        """Put into the outbox what a team wants to be told; of refusals in a row, the first."""
        events = [alarm_event(alarm, done.advice(alarm)) for alarm in done.alarms]
        if done.outcome == "refused" and (last.get("decided") or {}).get("outcome") != "refused":
            text = f"the gate refused a new model, and version {done.version} stays: {done.reason}"
            facts = {"version": done.version, "until": done.until, "reason": done.reason, "text": text}
            events.append(Event("refusal", digest, facts, done.verdict.names if done.verdict else ()))
        for one in suspects:
            facts = {"period": one.period, "kind": one.kind, "cause": one.cause, "text": f"{one}; {self._cure(one)}"}
            events.append(Event("suspect", f"{one.period} {one.cause}", facts, one.values))
        add_events(self.state, events)

    def _was_decided(self, last: dict[str, Any], digest: str, made_current: bool) -> bool:
        """Tell whether the last run has decided about these very rows, under these limits."""
        decided = last.get("decided") or {}
        if decided.get("digest") != digest:
            return False
        if decided["outcome"] == "published":
            return made_current or not self.force  # by force, a version that was rolled back from is published again
        released = decided["outcome"] == "held" and self.registry.held is None
        return not (self.force or released or decided["gate"] != asdict(self.gate))

    def _judged(
        self, candidate: CalibrationModel, promoted: Sequence[Version], learnt: Learnt, load: LoadVersion
    ) -> Verdict:
        """Ask the gate."""
        before = promoted[-1] if promoted else None
        periods = [one.period for one in learnt.judged[-COMPARED_PERIODS - 1 :]]
        current = None if before is None else Current(before, self.registry.load(before.number))
        served = served_past(self.registry, self.state, periods, promoted, self.delay)
        return self.gate.judge(
            candidate,
            current,
            learnt.judged,
            self.journal,
            until=learnt.learner.clock.last,
            alpha=self.alpha,
            period_effect=learnt.learner.period_effect,
            served=ServedPast(served, load, self.delay),
        )

    def _decide(
        self, candidate: CalibrationModel, verdict: Verdict, digest: str, before: Version | None, facts: dict[str, Any]
    ) -> Update:
        """Publish the candidate if it may be."""
        name = _name(before)
        obstacle = self._reason_not_to_publish(digest)
        if self.force or (verdict.passed and not obstacle):
            against = [] if verdict.passed else [verdict.reason]
            against += [obstacle] if obstacle else []
            why = f"forced, although: {'; '.join(against)}" if against else verdict.reason
            obstacle = self._publish(candidate, digest, before, f"{self.note}: {why}" if self.note else why)
            if not obstacle:
                version = self.registry.current.name
                return Update("published", why, version, name, bool(against), verdict=verdict, **facts)
        if obstacle:
            return Update("held", obstacle, self.registry.current.name, verdict=verdict, **facts)
        if verdict.waiting:
            return Update("waiting", verdict.waiting, name, verdict=verdict, **facts)
        self.state.put(REFUSED, json.loads(model_text(candidate)))
        self.registry.record("refused", reason=verdict.reason, until=facts["until"])
        return Update("refused", verdict.reason, name, verdict=verdict, **facts)

    def _reason_not_to_publish(self, digest: str) -> str:
        """Return why nothing may be published, whatever the gate says: somebody wants what is current now."""
        held, made = self.registry.held, self._version_made_of(digest)
        if held is not None:
            release = f"mcnet versions release {self._shell}"
            return f"version {self.registry.current.name} is {held}; `{release}` lets updates publish again"
        if made is not None and made.number in self.registry.withdrawn:
            return f"version {made.name}, which was rolled back from, is made of these very rows"
        return ""

    def _publish(self, candidate: CalibrationModel, digest: str, before: Version | None, note: str) -> str:
        """Add the candidate, unless it is the newest version already, and point to it; return why not."""
        added = self._version_made_of(digest) or self.registry.add(candidate, note)
        if self.force:
            self.registry.promote(added.number, note, force=True)
        elif not self.registry.publish(added, note, after=before) and self.registry.current != added:
            moved = f"version {self.registry.current.name} was promoted while this run was at work"
            return self._reason_not_to_publish(digest) or moved
        return ""

    def _version_made_of(self, digest: str) -> Version | None:
        """Return the newest version, if it was made of these rows."""
        newest = self.registry.newest(1)
        return newest[0] if newest and newest[0].rows_digest == digest else None

    def _record(
        self,
        done: Update,
        learnt: Learnt | None,
        watched: Watched | None,
        alarms: Sequence[Alarm],
        last: dict[str, Any],
    ) -> Update:
        """Keep the line of the run, the monitor, the marks of suspect periods, and what the status shows."""
        held = self.registry.held
        done = dataclasses.replace(done, held=None if held is None else str(held), changed=self._remember(done))
        decided = last.get("decided")
        if done.outcome != "nothing new" and learnt is not None:
            decided = {"digest": learnt.digest, "outcome": done.outcome, "gate": asdict(self.gate)}
        suspects = [] if learnt is None else learnt.learner.look.suspects
        served = [] if watched is None else watched.served
        told = {
            "alarms_told": [[alarm.what, alarm.raised] for alarm in alarms],
            "suspects_told": [[one.period, one.cause] for one in suspects],
        }
        _add_run(self.state, done, self.started, self.note, served=served, decided=decided, **told)
        if watched is not None:
            self.state.put(MONITOR, watched.monitor.document())
        if learnt is not None:
            marks = {str(one.period): {"cause": one.cause, "state": one.state} for one in suspects}
            self.state.replace_all(SUSPECT, marks)
        self.state.put(STATUS, run_document(self.journal, learnt, watched))
        make_key(self.state)
        return done

    def _remember(self, done: Update) -> tuple[str, ...]:
        """Let the head read logs from now on as this run did, unless the gate refused; return what changed by that."""
        before = self.store.require_head(self.lease.head).settings
        if not self.settings or (done.outcome == "refused" and "score" in before):
            return ()
        after = self.store.configure(self.lease.head, **self.settings)
        return changed_settings(before, after) if "score" in before else ()


def _name(version: Version | None) -> str | None:
    return None if version is None else version.name
