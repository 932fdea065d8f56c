"""The monitor in the loop: is what was served in each period calibrated?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mcnet._shared.typing import FloatArray, ScoreType
from mcnet.errors import FileFormatError, InputError
from mcnet.loop.judged import period_pcoc
from mcnet.loop.version_times import VersionTimes, ends_at_or_after
from mcnet.metrics.evaluate_sketch import predict_cells
from mcnet.model.model import CalibrationModel
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.journal import Journal
from mcnet.tracking.monitor import Monitor
from mcnet.tracking.period import periods_between
from mcnet.versions.registry import Registry
from mcnet.versions.version import Version

__all__ = ["Watched", "watch"]


@dataclass(frozen=True)
class Watched:
    """The monitor after the new periods, and what was served in them."""

    monitor: Monitor
    served: list[dict[str, Any]]
    """Per period: the version that served it, and its PCOC with the interval."""


class _Cells:
    """Probabilities of the cells of one sketch, in the place of a model."""

    def __init__(self, probability: FloatArray) -> None:
        self._probability = probability

    def predict(self, scores: Any, field: Any = None, *, score_type: ScoreType | None = None) -> FloatArray:
        """Return the probabilities that were given."""
        return self._probability

    def predict_cells(self, _: Sketch) -> FloatArray:
        """Return the probabilities that were given."""
        return self._probability


def watch(
    journal: Journal,
    registry: Registry,
    state: Path,
    *,
    forecasts: Mapping[str, FloatArray],
    promoted: Sequence[Version],
    delay: int,
    until: str,
    alpha: float,
) -> Watched:
    """Let the monitor take in the periods since the last one it has seen, and save it.

    A period that a version served is tested. One from before the first version is a reference, with what the tracker
    forecast for it: it tells how much periods differ.

    Parameters
    ----------
    journal, registry : the rows, and the versions.
    state : the file of the monitor.
    forecasts : of periods learnt now, what the tracker forecast for each cell.
    promoted : the versions that were current one after the other, before this run.
    delay : after how many further periods labels are known.
    until : the last period to take in.
    alpha : the chance of ever raising a false alarm.
    """
    monitor = _continued(state, promoted, alpha)
    periods = periods_between(journal.periods, None, until)
    seen = set() if monitor.last_period is None else set(periods_between(periods, None, monitor.last_period))
    new = [period for period in periods if period not in seen]
    served: list[dict[str, Any]] = []
    times = VersionTimes(periods, promoted, delay)

    @cache
    def model(number: int) -> CalibrationModel | None:
        try:
            return registry.load(number)
        except (FileFormatError, InputError):  # damaged, or pruned, since it served
            return None

    for period, sketch in journal.sketches(new[0], new[-1]) if new else ():
        version = _served_in(period, promoted, times)
        if version is not None:
            loaded = model(version.number)
            if loaded is None or not set(version.fields) <= set(sketch.contexts.names):
                monitor.last_period = period  # a model of other fields cannot be judged by these rows
                continue
            probability = predict_cells(loaded, sketch.unfolded())
            monitor.update(sketch, period, _Cells(probability))
            pcoc = period_pcoc(sketch.unfolded(), probability)
            served.append({"period": period, "version": version.name, "pcoc": list(pcoc)})
        elif period in forecasts:
            monitor.learn(sketch, period, _Cells(forecasts[period]))
        else:
            monitor.last_period = period
    monitor.save(state)
    return Watched(monitor, served)


def _continued(state: Path, promoted: Sequence[Version], alpha: float) -> Monitor:
    """Return the monitor of the last run; one that starts again, if versions were published since its alarms."""
    if not state.exists():
        return Monitor(alpha)
    try:
        monitor = Monitor.load(state)
    except FileFormatError:
        return Monitor(alpha)
    answered = bool(promoted) and all(ends_at_or_after(promoted[-1], alarm.raised) for alarm in monitor.alarms)
    if monitor.alpha == alpha and not (monitor.alarms and answered):
        return monitor
    fresh = Monitor(alpha)
    fresh.last_period = monitor.last_period
    return fresh


def _served_in(period: str, promoted: Sequence[Version], times: VersionTimes) -> Version | None:
    """Return the version that served a period: the last one published from what was known then."""
    return next((v for v in reversed(promoted) if not times.tells(v) or times.could_serve(v, period)), None)
