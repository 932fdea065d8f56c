"""`mcnet monitor`: is the served model still calibrated, with a guarantee on false alarms?"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mcnet._shared.files import checksum, write_json
from mcnet._shared.messages import aligned, counted
from mcnet.cli import options
from mcnet.cli.compare import write_table
from mcnet.cli.run import THRESHOLD_NOT_MET, Printer, table
from mcnet.cli.sources import check_output, load_model, open_journal
from mcnet.errors import InputError

if TYPE_CHECKING:
    from mcnet.metrics.actions import Actions, MoneyOverTime
    from mcnet.model.model import CalibrationModel
    from mcnet.tracking.monitor import Monitor

# The state of `mcnet monitor`: the evidence, its model and its options in one file, which `Monitor.load` can read.

_KEY = "watch"


@dataclass(frozen=True)
class Watch:
    """What evidence is collected about, and how; None is what the command line has left open."""

    model: str | None
    """The checksum of the model; None for the scores themselves."""
    alpha: float | None = None
    period_effects: float | str | None = None
    since: str | None = None
    reference_until: str | None = None


def _effects(typed: str | None) -> float | str | None:
    """Return the largest size of period effects, or "learn"."""
    try:
        return typed if typed is None or typed == "learn" else float(typed)
    except ValueError:
        raise InputError(f"--period-effects {typed!r} is neither learn nor a number of logits") from None


def _begun_or_continued(state: str | None, asked: Watch) -> tuple["Monitor", Watch]:
    """Return the monitor, new or of a state, and what it watches; refuse another model, and options that differ."""
    from mcnet.tracking.monitor import Monitor

    if state is None or not Path(state).exists():
        alpha = 0.01 if asked.alpha is None else asked.alpha
        effects: Any = "learn" if asked.period_effects is None else asked.period_effects
        return Monitor(alpha, effects), asked
    loaded = Monitor.load(state)
    kept = json.loads(Path(state).read_text(encoding="utf-8")).get(_KEY)
    # A state that was saved in Python tells nothing of its model; from now on it does.
    known = asked if kept is None else Watch(**kept)
    known = replace(known, alpha=loaded.alpha, period_effects=loaded.period_effects)
    if asked.model != known.model:
        which = "the scores themselves" if known.model is None else "another model"
        raise InputError(
            f"{state} has evidence on {which}, which cannot be added to that on "
            f"{'the scores themselves' if asked.model is None else 'this model'}; start a new state: name another file"
        )
    for name in ("alpha", "period_effects", "since", "reference_until"):
        given, before = getattr(asked, name), getattr(known, name)
        if given is not None and given != before:
            option = "--" + name.replace("_", "-")
            begun_with = f"no {option}" if before is None else f"{option} {before}"
            raise InputError(
                f"{state} was begun with {begun_with}, which cannot change later; leave {option} out, or start a "
                "new state: name another file"
            )
    return loaded, known


def _save(state: str, watching: "Monitor", watch: Watch) -> None:
    """Write the evidence and what it is about, whole or not at all."""
    document: dict[str, Any] = watching.document() | {_KEY: asdict(watch)}
    write_json(state, {**document, "checksum": checksum(document)})


# `mcnet monitor`: is the served model still calibrated, with a guarantee on false alarms?

_CONDITIONS = ("alarm", "level", "slope", "value")
_MOST_LINES = 12


def monitor(
    context: typer.Context,
    folder: str = options.argument("STORE", "A store; mcnet journal add makes it."),
    model: str | None = options.option("FILE", "The model that served; the scores if not given."),
    alpha: float | None = options.option("SHARE", "The chance of ever raising a false alarm; 0.01 if not given."),
    since: str | None = options.option("P", "Watch from this period on; earlier ones are the reference."),
    reference_until: str | None = options.option("P", "The last period of the reference; watch later ones."),
    until: str | None = options.UNTIL,
    value: float | None = options.option(
        "N", "What a positive is worth; not needed if the rows were added with --value. Adds figures in money."
    ),
    actions_table: str | None = options.option("FILE", "Write the field values to act on (.csv, .parquet)."),
    period_effects: str | None = options.option(
        "SIZE", "learn (if not given), or the largest size in logits; 0 for none."
    ),
    state: str | None = options.option("FILE", "Continue from this file, if it is there, and write it."),
    fail_if: list[str] | None = options.option(
        "WHAT", "Exit with 1 if there is an alarm: alarm (any), level, slope or value."
    ),
    force: bool = options.FORCE,
    webhook: str | None = options.WEBHOOK_ADDRESS,
    field_values: str = options.FIELD_VALUES,
    printer: Printer = options.PRINTER,
) -> None:
    """Watch a served model on the periods of a journal.

    Reference periods, on which the model is known to be calibrated, show how much periods differ: those before --since,
    those until --reference-until or, by default, those that the model was fitted on. All later periods are tested:
    the level, the slope, and every field value. With --until the last periods, whose labels are not complete
    yet, are left for a later run. With --state only new periods are read. A state belongs to one model: start a new one
    when another model is published. If the rows have values, or with --value, the last 30 watched periods are also
    shown in money, with the field values to act on.

    \b
    Example:
      mcnet monitor ads.db --model model.json --fail-if alarm
    """
    from mcnet.metrics.actions import MONEY_PERIODS, MoneyOverTime
    from mcnet.model.model_file import model_document
    from mcnet.operations.alerts import alarm_event, new_events
    from mcnet.rows.columns import check_value
    from mcnet.rows.periods import period_text, periods_between

    receiver = options.webhook_of(context)
    for word in fail_if or ():
        if word not in _CONDITIONS:
            raise InputError(
                f"--fail-if {word!r} is not one of {', '.join(_CONDITIONS)}; a monitor has alarms, not metrics"
            )
    if since is not None and reference_until is not None:
        raise InputError("--since and --reference-until both give the end of the reference; give one of them")
    check_output(actions_table, [], force=force, endings=(".csv", ".parquet"))
    journal = open_journal(folder).snapshot()
    served = None if model is None else load_model(model)
    about = None if served is None else model_document(served)["checksum"]
    ends = (None if end is None else period_text(end) for end in (since, reference_until))
    watching, watch = _begun_or_continued(state, Watch(about, alpha, _effects(period_effects), *ends))
    periods = periods_between(journal.periods, None, until)
    reference, watched = _split(periods, served, watch.since, watch.reference_until)
    last = watching.last_period
    new = set(reference + watched) - set([] if last is None else periods_between(periods, None, last))
    number = journal.store.require_head(journal.head).settings.worth if value is None else check_value(value)
    over_time, recent = MoneyOverTime(), {p for p in watched if p in new and p in watched[-MONEY_PERIODS:]}
    with printer.progress("reading", len(new), "periods") as advance:
        for period, sketch in journal.sketches():
            if period in new:
                if period in reference:
                    watching.learn(sketch, period, served)
                else:
                    watching.update(sketch, period, served)
                if period in recent:
                    over_time.add_valued(period, sketch, served, number)
                advance(1)
    document, lines, to_do = _in_money(over_time)
    if actions_table is not None:
        if to_do is None:
            lack = "the periods that are watched now have no values; say what a positive is worth with --value"
            raise InputError(f"there is no action list to write: {lack}")
        write_table(actions_table, to_do.table())
        printer.note(f"{len(to_do):,} field values → {actions_table}")
    if state is not None:
        _save(state, watching, watch)
    alarms = watching.alarms
    tracked = served is not None and served.method == "tracker"
    _print(printer, watching, reference, watched, (document, lines), tracked=tracked)
    if receiver is not None:
        events = [alarm_event(alarm, alarm.advice(tracked=tracked)) for alarm in alarms]
        new_events(journal.store.state(journal.head), events, f"monitor of {watch.model or 'the scores'}")
        options.send_told(journal.store, receiver)
    broken = [word for word in fail_if or () if any(_concerns(word, alarm.what) for alarm in alarms)]
    if broken:
        raise typer.Exit(THRESHOLD_NOT_MET)


def _in_money(over_time: "MoneyOverTime") -> tuple[dict[str, Any], list[str], "Actions | None"]:
    """Return what the watched periods come to in money: as JSON-able values and in words; and the action list."""
    money = over_time.total
    if money is None:
        return {}, [], None
    to_do = over_time.actions()
    head = f"money of the last {counted(len(over_time.periods), 'watched period')}"
    head += f"; {counted(over_time.without, 'period')} without values left out" if over_time.without else ""
    document = {**money.to_dict(), "periods": over_time.periods, "actions": to_do.to_dict()}
    lines = ["", head, money.describe(), "", aligned(over_time.lines()), "", str(to_do)]
    return {"money": document}, lines, to_do


def _concerns(word: str, what: str) -> bool:
    """Tell whether an alarm is of the kind that was asked for."""
    kind = what if what in ("level", "slope") else "value"
    return word in ("alarm", kind)


def _split(
    periods: Sequence[str], model: "CalibrationModel | None", since: str | None, reference_until: str | None
) -> tuple[list[str], list[str]]:
    """Return the reference periods and those to watch, in order."""
    from mcnet.rows.periods import periods_between

    if since is not None:
        watched = periods_between(periods, since, None)
        return [period for period in periods if period not in set(watched)], watched
    if reference_until is not None:
        reference = periods_between(periods, None, reference_until)
        return reference, [period for period in periods if period not in set(reference)]
    fitted = {} if model is None else model.provenance.get("fitted_periods") or {}
    if not fitted:
        return [], list(periods)
    earlier = set(periods_between(periods, None, fitted["last"]))
    return periods_between(periods, fitted["first"], fitted["last"]), [p for p in periods if p not in earlier]


def _print(
    printer: Printer,
    watching: "Monitor",
    reference: list[str],
    watched: list[str],
    money: tuple[dict[str, Any], list[str]],
    *,
    tracked: bool,
) -> None:
    from mcnet.report.status_page import evidence_text
    from mcnet.rows.periods import shown_periods

    lines, alarms = watching.table().to_dicts(), watching.alarms
    ordered = sorted(lines, key=lambda line: not line["alarm"])[: max(_MOST_LINES, len(alarms))]
    served = watching.served([line["what"] for line in ordered])
    periods = [*reference, *watched]
    read = dict(zip(periods, shown_periods(periods), strict=True))
    document = {
        "alpha": watching.alpha,
        "reference": reference,
        "watched": watched,
        "last_period": watching.last_period,
        "alarms": [{**asdict(alarm), "advice": alarm.advice(tracked=tracked)} for alarm in alarms],
        "table": lines,
        "served": [{**asdict(one), "text": str(one)} for one in served],
        **money[0],
    }
    if not lines:
        printer.note("no period has been watched yet: all are reference periods")
    shown = table(
        ["what", "alarm in", "since", "PCOC", "95 %", "positives off", "weight", "evidence"],
        [
            [
                line["what"],
                read.get(line["raised"], line["raised"]) or "–",
                read.get(line["since"], line["since"]),
                f"{line['pcoc']:.3f}",
                f"{line['pcoc_low']:.3f} … {line['pcoc_high']:.3f}",
                f"{line['excess']:+,.0f}",
                f"{line['rows']:,.0f}",
                evidence_text(line["log_evidence"]),
            ]
            for line in ordered
        ],
        left=3,
    )
    limit = f"evidence of {1 / watching.alpha:,.6g} is an alarm"
    head = f"{counted(len(reference), 'reference period')}, {len(watched):,} watched; {limit}"
    more = len(lines) - max(_MOST_LINES, len(alarms))
    below = [f"{more:,} more are watched, with less evidence"] if more > 0 else []
    told = [str(one) for one in served if one.what == "level" or not one.includes_one]
    if told:
        told = ["", "PCOC since the model is watched, in 95 % of cases inside the interval at all times:", *told]
    advice = [f"{alarm.what}: {alarm.advice(tracked=tracked)}" for alarm in alarms] or ["no alarm"]
    printer.result(document, head, "", shown, *below, *told, *money[1], "", *advice)
