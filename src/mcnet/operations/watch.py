"""What was served in past periods: which version, how calibrated it was, and what its errors cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from mcnet._shared.arrays import FloatArray
from mcnet._shared.messages import warn
from mcnet.errors import FileFormatError, InputError
from mcnet.metrics.actions import MONEY_PERIODS, MoneyOverTime
from mcnet.model.model import CalibrationModel
from mcnet.operations.learning import period_pcoc, sketch_log_loss
from mcnet.rows.periods import HALF_A_PERIOD, elapsed_periods, periods_between, sorted_periods
from mcnet.sketch.sketch import Sketch
from mcnet.store.journal import Journal
from mcnet.store.state import MONITOR, STATUS, LoopState, Served
from mcnet.store.versions import Registry, Version
from mcnet.tracking.memories import coarse
from mcnet.tracking.monitor import Monitor

SERVED_READ = 200
"""Of so many periods, the latest, it is looked up which version served them."""
SHOWN_VALUES = 12

# Which periods came after the fit of a version.


def after_fit(periods: Sequence[str], version: Version | None, delay: int) -> list[str]:
    """Return the periods that a version could serve: it was made from what was known when they were predicted.

    All of them, if it does not tell until when it was fitted, or has periods of another kind.
    """
    end = None if version is None else version.fitted_until
    if end is None or not _are_alike(periods, end):
        return [] if version is None else list(periods)
    order = sorted_periods(list({*periods, end}))
    behind = dict(zip(order, elapsed_periods(order).tolist(), strict=True))
    return [period for period in periods if behind[end] > behind[period] + delay + HALF_A_PERIOD]


def _are_alike(periods: Sequence[str], other: str) -> bool:
    try:
        sorted_periods([*periods[:1], other])
    except InputError:
        return False
    return True


def ends_at_or_after(version: Version, period: str) -> bool:
    """Tell whether a version has learnt a period; False if it does not tell, or has periods of another kind."""
    end = version.fitted_until
    return end is not None and _are_alike([period], end) and sorted_periods([period, end])[-1] == end


def ends_after(version: Version, period: str) -> bool:
    """Tell whether a version has learnt a later period."""
    return version.fitted_until != period and ends_at_or_after(version, period)


# What was served in the periods since the last run, and how well.

LoadVersion = Callable[[int], CalibrationModel | None]
"""Returns the model of a version by its number; None if it cannot be read any more."""


def loader(registry: Registry) -> LoadVersion:
    """Return a function that loads a version, each once; None for one that was damaged or pruned since it served."""

    @cache
    def load(number: int) -> CalibrationModel | None:
        try:
            return registry.load(number)
        except (FileFormatError, InputError):
            return None

    return load


@dataclass(frozen=True)
class Watched:
    """The monitor after the new periods, and what was served in them."""

    monitor: Monitor
    served: list[Served]
    money: dict[str, Any] | None
    """What the errors of the probabilities served in the last periods cost; None if no row has a value."""
    kept_losses: dict[str, float]
    """The loss of periods, had the version that served the period before them stayed."""


def watch(
    journal: Journal,
    state: LoopState,
    load: LoadVersion,
    *,
    forecasts: Mapping[str, FloatArray],
    version: Version | None,
    delay: int,
    until: str,
    alpha: float,
    value: float | None,
) -> Watched:
    """Let the monitor take in the periods since the last one it has seen, up to `until`.

    A period that the current version served is tested. One from before is a reference, with what the tracker forecast
    for each of its cells: it tells how much periods differ.
    """
    monitor = _continued(state.get(MONITOR), version, alpha)
    periods = periods_between(journal.periods, None, until)
    seen = set() if monitor.last_period is None else set(periods_between(periods, None, monitor.last_period))
    new = [period for period in periods if period not in seen]
    recorded, served, valued = state.served(SERVED_READ), [], False
    watched = set(after_fit(periods, version, delay))
    earlier = recorded.get(periods[-len(new) - 1]) if new and len(periods) > len(new) else None
    kept = None if earlier is None else load(earlier.version)
    for period, sketch in journal.sketches(new[0], new[-1]) if new else ():
        if version is None or period not in watched:
            if period in forecasts:
                monitor.learn(sketch, period, forecasts[period])
            monitor.last_period = period
            continue
        model, rows, loss = load(version.number), sketch.unfolded(), _loss(kept, sketch)
        kept = model
        if model is None or not _fits(model, sketch):
            monitor.last_period = period  # a model of other fields cannot be judged by these rows
            continue
        probability = model.predict_cells(rows)
        monitor.update(sketch, period, probability, version=version.name)
        valued |= sketch.value_kind is not None
        served.append(Served(period, version.number, loss, *period_pcoc(rows, probability)))
    recorded |= {one.period: one for one in served}
    money = (state.get(STATUS) or {}).get("money")
    if (served and (money or valued)) or value != (money or {"value": None})["value"]:
        money = _money(journal, money, load, recorded, value)
    losses = {one.period: one.kept_loss for one in recorded.values() if one.kept_loss is not None}
    return Watched(monitor, served, money, losses)


def _fits(model: CalibrationModel, sketch: Sketch) -> bool:
    return set(model.fields) <= set(sketch.contexts.names)


def _loss(model: CalibrationModel | None, sketch: Sketch) -> float | None:
    """Return the log-loss of a model on a period; None if it cannot predict its rows."""
    if model is None or not _fits(model, sketch):
        return None
    rows = coarse(sketch.unfolded())
    return sketch_log_loss(rows, model.predict_cells(rows))


def _money(
    journal: Journal, before: Any, load: LoadVersion, recorded: Mapping[str, Served], value: float | None
) -> dict[str, Any] | None:
    """Return the money of the last periods that were served; of those that are known `before`, as it was."""
    versions = {one.period: one.version for one in recorded.values()}
    periods = sorted_periods(list(versions))[-MONEY_PERIODS:]
    known = {} if before is None or before["value"] != value else {one["period"]: one for one in before["periods"]}
    over_time = MoneyOverTime()
    for period, sketch in journal.sketches(periods[0], periods[-1]) if periods else ():
        served = load(versions[period]) if period in versions else None
        if served is not None and _fits(served, sketch):
            over_time.add_valued(period, sketch, served, value, known.get(period))
    total = over_time.total
    if total is None:
        return None
    actions = over_time.actions().to_dict()
    return {
        "value": value,
        "periods": over_time.periods,
        "periods_without_values": over_time.without,
        **{name: figures for name, figures in total.to_dict().items() if name != "fields"},
        "fields": {name: total.costliest(name, SHOWN_VALUES) for name in total.fields},
        "actions": {**actions, "listed": len(actions["actions"]), "actions": actions["actions"][:SHOWN_VALUES]},
    }


def _continued(known: Any, version: Version | None, alpha: float) -> Monitor:
    """Return the monitor of the last run; one that starts again, if versions were published since its alarms."""
    if known is None:
        return Monitor(alpha)
    try:
        monitor = Monitor.of_document(known, "the monitor of the last run")
    except FileFormatError as error:
        warn(f"{error}, and this run does")
        return Monitor(alpha)
    answered = version is not None and all(ends_at_or_after(version, alarm.raised) for alarm in monitor.alarms)
    if monitor.alpha == alpha and not (monitor.alarms and answered):
        return monitor
    fresh = Monitor(alpha)
    fresh.last_period = monitor.last_period
    return fresh
