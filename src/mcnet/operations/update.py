"""The update job: add rows, learn, gate, publish, watch."""

import dataclasses
import json
import time as clock
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

from mcnet._shared.files import finite
from mcnet.errors import BusyError, InputError, McnetError
from mcnet.field_search import search
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import model_text
from mcnet.operations.alerts import Event, alarm_event, new_events
from mcnet.operations.gate import Current, Gate, Verdict
from mcnet.operations.learning import Learnt, learn_journal
from mcnet.operations.status import run_document, status_of
from mcnet.operations.watch import Watched, ends_after, loader, watch
from mcnet.report.status_page import write_status_page
from mcnet.rows.logs import ChangedFileError
from mcnet.rows.periods import delay_in_periods, period_text, shown_periods
from mcnet.rows.spec import check_search
from mcnet.store.additions import Shape, shape_of
from mcnet.store.entries import Added, OtherRowsError
from mcnet.store.files import Addition, NewFiles, change_of
from mcnet.store.journal import Journal
from mcnet.store.settings import OF_THE_LOOP, HeadSettings
from mcnet.store.state import DECIDED, FILES, MONITOR, REFUSED, STATUS, LoopState
from mcnet.store.store import Lease, Store
from mcnet.store.versions import Registry, Version, now
from mcnet.tracking.memories import check_method
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

    Files are left out as `NewFiles.add_to` says; if none can be used, that is an error.
    """
    known = loop.get(FILES) or {}  # without it all files are read again, which changes nothing
    sources = journal.sources() if known else set()
    states = [(path, files.how.source or fspath(path), files.state_of(path)) for path in files.paths]
    fresh = {path: (name, state) for path, name, state in states if known.get(name) != state or name not in sources}
    outcomes = files.add_to(journal, progress, only=fresh)
    known |= dict(fresh[path] for path, outcome in outcomes.items() if isinstance(outcome, Added))
    changes = sum(isinstance(outcome, Added) for outcome in outcomes.values())
    other = [one for one in outcomes.values() if not isinstance(one, Added | ChangedFileError | OtherRowsError)]
    if other and not changes and len(fresh) == len(files.paths):
        raise other[0]
    added = change_of(outcomes.values())
    if fresh:
        loop.put(FILES, known)
    unchanged = len(files.paths) - len(fresh)
    return NewRows(added.rows, tuple(sorted(added.periods)), changes, unchanged, added.left_out)


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
    """Which settings of the head this run has changed, and what they were before, in phrases."""

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
        shown = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.name != "verdict"}
        shown |= {name: list(value) for name, value in shown.items() if isinstance(value, tuple)}
        shown["added"], shown["status"] = asdict(self.added), None if self.status is None else str(self.status)
        shown["gate"] = None if self.verdict is None else self.verdict.to_dict()
        shown["alarms"] = [{**asdict(alarm), "advice": self.advice(alarm)} for alarm in self.alarms]
        return shown


# The history of runs: one line per run, including failed ones.


def record_failed_run(
    store: Store | str | PathLike[str], reason: str, *, head: str | None = None, wait_seconds: float = 60.0
) -> None:
    """Write the line of a run that could not do so itself, since something ended its process."""
    opened = store if isinstance(store, Store) else Store(store)
    name = opened.chosen_head(head)
    with opened.learning(name, wait_seconds=wait_seconds):
        _add_failed_run(opened, name, reason, "", clock.monotonic())


def _add_failed_run(store: Store, head: str, reason: str, note: str, started: float) -> None:
    version = None
    with suppress(McnetError):  # a damaged pointer
        version = store.versions(head).current_number
    _add_run(store.state(head), Update("failed", reason, None if version is None else str(version)), started, note)


def _add_run(state: LoopState, done: Update, started: float, note: str) -> None:
    seconds = round(clock.monotonic() - started, 3)
    state.add_run(finite({"time": now(), "seconds": seconds, **done.to_dict(), "note": note}))


# The job: add the new rows, update the tracker, gate, publish, monitor and report; safe to retry at any time.


def update(
    store: Store | str | PathLike[str],
    logs: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    settings: HeadSettings | None = None,
    *,
    head: str | None = None,
    until: Any = None,
    force: bool = False,
    note: str = "",
    status: str | PathLike[str] | None = None,
    wait_seconds: float = 60.0,
    progress: Callable[[int], Any] | None = None,
    **named: Any,
) -> Update:
    """Run the loop once: add new rows, learn them, and publish the model for the coming period if the gate lets it.

    Run it after every period, by whatever schedules jobs. It may be killed at any time and run again, also twice at
    once: rows count once, the served version is always a whole one, and a run that was cut off is completed by the
    next. A version that somebody went back to is held: nothing takes its place until it is released.

    Parameters
    ----------
    store : the store, or its address; it is made when it is not there.
    logs : files to add to the journal of the head first; none, if others add to it.
    settings : how logs are read, and how the loop learns, publishes and watches. The head keeps them: a later run need
        not give them again.
    head : the name of the head; the only or the default one if None.
    until : learn no period after this one, such as one that has not ended yet.
    force : publish whatever the gate says, also instead of a version that is held; the history says so.
    note : goes into the history.
    status : the file of a page about the state of the loop, written at the end.
    wait_seconds : how long to wait for another run that is at work.
    progress : a function that is called with the number of rows of each batch that was read.
    named : settings by their names: score, label, field, time, every … as in `HeadSettings`. For this run alone, how
        its logs are added: source, age, counted, replace, allow, as in `Journal.add_files`, and period: the one period
        of all rows, if there is no column of time; for saved sketches, too.

    Returns
    -------
    Update : what was done.

    Raises
    ------
    BusyError : another run is still at work after `wait_seconds`.
    InputError : the rows or settings cannot be used; nothing was published.
    """
    started = clock.monotonic()
    period = named.pop("period", None)
    how = Addition(**{one.name: named.pop(one.name) for one in dataclasses.fields(Addition) if one.name in named})
    asked = HeadSettings.of(named, settings)
    opened = store if isinstance(store, Store) else Store(store)
    name = opened.chosen_head(head)
    journal, state, known = opened.journal(name), opened.state(name), opened.find_head(name)
    before = HeadSettings() if known is None else known.settings
    asked = _with_fields(asked, before, shape_of(known), logs)
    used = before.changed_by(asked)
    check_method(used.method)
    try:
        files = NewFiles.of(logs, used, how, period=period, named=asked)
        if not files.paths:
            opened.require_head(name)
    except McnetError as error:
        if state.runs(1):  # a loop that ran before tells of every run
            with suppress(BusyError):  # what is wrong with this run matters more than its line
                record_failed_run(opened, str(error), head=name, wait_seconds=wait_seconds)
        raise
    with opened.learning(name, wait_seconds=wait_seconds) as lease:
        try:
            added = add_rows(journal, state, files, progress)
            if asked.fields is not None:  # they were chosen from these rows
                opened.configure(name, fields=asked.fields, field=asked.field)
            last = None if until is None else period_text(until)
            journal.compact_feedback(last)
            past = journal.snapshot()
            late = delay_in_periods(used.delay, past.periods, used.every)
            learnt = learn_journal(past, state, method=used.method, delay=late, until=last, look=used.look)
            gate = Gate(used.max_shift, used.tolerance, used.min_periods)
            run = _Run(opened, lease, opened.versions(name), state, past, used, asked, gate, late, force, note, started)
            done = run.publish_and_record(learnt, added, status)
            past.close()
        except Exception as error:
            reason = str(error) if isinstance(error, McnetError) else f"{type(error).__name__}: {error}"
            with suppress(McnetError, OSError):  # what is wrong matters more than its line
                if known is not None or not opened.remove_head(name, if_empty=True):
                    _add_failed_run(opened, name, reason, note, started)
            raise
    if used.fields is not None:
        done = dataclasses.replace(done, fields=tuple(used.field))
    if done.status is not None:
        write_status_page(done.status, status_of(opened, name))
    return done


def _with_fields(asked: HeadSettings, before: HeadSettings, shape: Shape | None, logs: Any) -> HeadSettings:
    """Return what is asked, with the fields that are chosen from the first logs of a head, if they are to be."""
    check_search(asked.fields, tuple(asked.field), asked.exclude)
    if asked.fields is None:
        return asked
    if before.fields is not None:
        return asked.without(("fields",))  # they were chosen in an earlier run
    if shape is not None:
        own = ", ".join(shape[0]) or "none"
        raise InputError(f"the head has rows with named fields ({own}); automatic fields are chosen for a new head")
    used = before.changed_by(asked)
    if not logs or used.score is None or used.label is None:
        raise InputError("fields are chosen from the first logs of a head; give logs, score and label")
    chosen = search(logs, used.row_spec(), exclude=used.exclude, time=used.time).fields
    return HeadSettings(**{**asked.given, "field": chosen})


@dataclass(frozen=True)
class _Run:
    """One run, after the rows were added and learnt."""

    store: Store
    lease: Lease
    registry: Registry
    state: LoopState
    journal: Journal
    settings: HeadSettings
    asked: HeadSettings  # those that this run gave
    gate: Gate
    delay: int
    force: bool
    note: str
    started: float

    def publish_and_record(self, learnt: Learnt | None, added: NewRows, page: str | PathLike[str] | None) -> Update:
        """Watch what was served, judge the new model, then publish and record, in one transaction."""
        before = None if self.registry.pointer().current is None else self.registry.current
        name = None if before is None else before.name
        facts: dict[str, Any] = {"added": added, "status": None if page is None else Path(page)}
        if learnt is None:
            done = Update("nothing new", "the journal has no period to learn yet", name, **facts)
            with self.store.transaction(self.lease):
                return self._record(done, None, None)
        until, seconds = str(learnt.learner.clock.last), learnt.learner.clock.period_seconds
        (facts["until"],) = shown_periods([until], seconds=seconds)
        kept = {one.period for one in _kept_out(learnt)}
        facts["learnt"] = tuple(period for period in learnt.new if period not in kept)
        decided = self.state.get(DECIDED) or {}
        load = loader(self.registry)
        watched = watch(
            self.journal,
            self.state,
            load,
            forecasts=learnt.forecasts,
            version=before,
            delay=self.delay,
            until=until,
            alpha=self.settings.alpha,
            value=self.settings.worth,
        )
        why, judged = self._nothing_new(learnt, before, decided, facts["until"]), None
        if not why:
            candidate = learnt.model(self.journal.periods[0], self.settings.columns)
            verdict = self.gate.judge(
                candidate,
                None if before is None else Current(before, self.registry.load(before.number)),
                learnt.judged,
                self.journal,
                until=learnt.learner.clock.last,
                delay=self.delay,
                kept_losses=watched.kept_losses,
            )
            judged = candidate, verdict
        with self.store.transaction(self.lease):
            if judged is None:
                done = Update("nothing new", why, name, **facts)
            else:
                done = self._decide(*judged, learnt.digest, before, facts)
                decided = {
                    "digest": learnt.digest,
                    "outcome": done.outcome,
                    "reason": done.reason,
                    "gate": asdict(self.gate),
                }
                self.state.put(DECIDED, decided)
            return self._record(self._tell(done, learnt, watched, decided), learnt, watched)

    def _nothing_new(self, learnt: Learnt, before: Version | None, decided: dict[str, Any], read: str) -> str:
        """Return why there is no new model to judge; empty if there is one."""
        made_current = before is not None and before.rows_digest == learnt.digest
        if self._was_decided(decided, learnt.digest, made_current):
            return f"everything until {read} was learnt before"
        if before is None:
            return ""
        if made_current:
            return f"version {before.name} is made of these very rows"
        if not self.force and ends_after(before, str(learnt.learner.clock.last)):
            (fitted,) = shown_periods([before.fitted_until or ""], seconds=learnt.learner.clock.period_seconds)
            return f"version {before.name} was fitted until {fitted}, later than {read}"
        if not self.force and learnt.only_suspects_since(before.rows_digest):
            return f"every period since version {before.name} is suspect and was not learnt"
        return ""

    def _was_decided(self, decided: dict[str, Any], digest: str, made_current: bool) -> bool:
        """Tell whether the last decision was about these very rows, under these limits."""
        if decided.get("digest") != digest:
            return False
        if decided["outcome"] == "published":
            return made_current or not self.force  # by force, a version that was rolled back from is published again
        released = decided["outcome"] == "held" and self.registry.held is None
        return not (self.force or released or decided["gate"] != asdict(self.gate))

    @property
    def _shell(self) -> str:
        """The store and the head, as commands take them."""
        name = self.lease.head
        return f"{self.store.name}{'' if self.store.heads == [name] else f' --head {name}'}"

    def _tell(self, done: Update, learnt: Learnt, watched: Watched, decided: dict[str, Any]) -> Update:
        """Note what people are to be told, and return what of it no earlier run has found."""
        look = learnt.learner.look
        alarms = [*watched.monitor.alarms, *([] if look.alarm is None else [look.alarm])]
        events = [alarm_event(alarm, done.advice(alarm)) for alarm in alarms]
        sentences = {}
        for one in _kept_out(learnt):
            release = f"mcnet journal release {self._shell} {one.period}"
            cure = f"add its rows again with --replace, or learn it all the same: `{release}`"
            facts = {"period": one.period, "kind": one.kind, "cause": one.cause, "text": f"{one}; {cure}"}
            events.append(Event("suspect", f"{one.period} {one.cause}", facts, one.values))
            sentences[events[-1].key] = f"{one} (rows {self._origin(one.period)}); {cure}"
        if decided.get("outcome") == "refused":  # refusals in a row are one event
            text = f"the gate refused a new model, and version {done.version} stays: {decided['reason']}"
            facts = {"version": done.version, "until": done.until, "reason": decided["reason"], "text": text}
            events.append(Event("refusal", "", facts, done.verdict.names if done.verdict else ()))
        new = {(event.kind, event.key) for event in new_events(self.state, events)}
        told = tuple(alarm for alarm, event in zip(alarms, events, strict=False) if ("alarm", event.key) in new)
        suspect = tuple(line for key, line in sentences.items() if ("suspect", key) in new)
        return dataclasses.replace(done, alarms=told, suspect=suspect)

    def _origin(self, period: str | None) -> str:
        sources = sorted({entry.source for entry in self.journal.entries() if entry.period == period})
        return f"all from {sources[0]}" if len(sources) == 1 else f"from {len(sources)} sources"

    def _decide(
        self, candidate: CalibrationModel, verdict: Verdict, digest: str, before: Version | None, facts: dict[str, Any]
    ) -> Update:
        """Publish the candidate if it may be."""
        name = None if before is None else before.name
        obstacle = self._reason_not_to_publish(digest)
        if self.force or (verdict.passed and not obstacle):
            against = [] if verdict.passed else [verdict.reason]
            against += [obstacle] if obstacle else []
            why = f"forced, although: {'; '.join(against)}" if against else verdict.reason
            obstacle = self._publish(candidate, digest, before, f"{self.note}: {why}" if self.note else why)
            if not obstacle:
                version = self.registry.pointer().current
                return Update("published", why, str(version), name, bool(against), verdict=verdict, **facts)
        if obstacle:
            return Update("held", obstacle, self.registry.current.name, verdict=verdict, **facts)
        if verdict.waiting:
            return Update("waiting", verdict.waiting, name, verdict=verdict, **facts)
        self.state.put(REFUSED, json.loads(model_text(candidate)))
        self.registry.record("refused", reason=verdict.reason, until=facts["until"])
        return Update("refused", verdict.reason, name, verdict=verdict, **facts)

    def _reason_not_to_publish(self, digest: str) -> str:
        """Return why nothing may be published, whatever the gate says: somebody wants what is current now."""
        pointer, made = self.registry.pointer(), self._version_made_of(digest)
        if pointer.held is not None:
            release = f"mcnet versions release {self._shell}"
            return f"version {pointer.current} is {pointer.held}; `{release}` lets updates publish again"
        if made is not None and made.number in pointer.withdrawn:
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

    def _record(self, done: Update, learnt: Learnt | None, watched: Watched | None) -> Update:
        """Keep the run, what was served, the monitor, and what the status shows."""
        held = self.registry.pointer().held
        done = dataclasses.replace(done, held=None if held is None else str(held), changed=self._remember(done))
        _add_run(self.state, done, self.started, self.note)
        if watched is not None:
            self.state.put(MONITOR, watched.monitor.document())
            self.state.add_served(watched.served)
        self.state.put(STATUS, run_document(self.journal, learnt, watched))
        return done

    def _remember(self, done: Update) -> tuple[str, ...]:
        """Let the head keep the settings of this run; of a refused model, not how its logs were read."""
        before = self.store.require_head(self.lease.head).settings
        refused = done.outcome == "refused" and before.score is not None
        asked = self.asked.without(self.asked.given.keys() - OF_THE_LOOP) if refused else self.asked
        if not asked.given:
            return ()
        after = self.store.configure(self.lease.head, asked)
        return after.changes(before) if before.given else ()


def _kept_out(learnt: Learnt) -> list[Suspect]:
    """Return the periods that are kept and not learnt."""
    return [one for one in learnt.learner.look.suspects if one.state in ("waiting", "left out")]
