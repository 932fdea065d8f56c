"""Learn from the journal in the loop: forecasts judged, checkpoints of the tracker."""

import math
import time
from collections import deque
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np

from mcnet._shared.arrays import FloatArray, sigmoid
from mcnet.errors import FileFormatError, McnetError
from mcnet.metrics.scores import CLIP
from mcnet.model.model import CalibrationModel
from mcnet.rows.periods import HALF_A_PERIOD, periods_between
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.sketch_file import sketch_of_bytes, stored_bytes
from mcnet.store.entries import past_digests
from mcnet.store.journal import Journal
from mcnet.store.state import MONITOR, LoopState
from mcnet.tracking.forecast import Forecast
from mcnet.tracking.learner import Learner
from mcnet.tracking.monitor import Monitor
from mcnet.tracking.tracker_file import tracker_of_state, tracker_state

# The result of a period beside its forecasts.

Pcoc = tuple[float | None, float | None, float | None]
"""A PCOC and the ends of its interval; None for what is not finite."""
LEVEL, NORMAL_QUANTILE = 0.95, 1.959963984540054
"""Of these intervals, and where a normal variable has its ends."""


@dataclass(frozen=True)
class Judged:
    """The losses of one period, summed over its rows."""

    period: str
    digest: str
    """Of the rows of this and all earlier periods."""
    rows: int
    weight: float
    positives: float
    base_loss: float
    """Of the scores as they are."""
    tracker_loss: float
    """Of the model that the tracker had when the period was predicted."""
    base_pcoc: Pcoc
    tracker_pcoc: Pcoc
    suspect: str = ""
    """Why the period was not learnt when it came; empty if it was."""


def judge_forecast(period: str, digest: str, sketch: Sketch, tracker: FloatArray) -> Judged:
    """Judge the forecast for a period, one probability per cell, by its rows."""
    return Judged(
        period,
        digest,
        sketch.rows,
        sketch.total_weight,
        sketch.total_positives,
        sketch_log_loss(sketch, sketch.score),
        sketch_log_loss(sketch, tracker),
        period_pcoc(sketch, sketch.score),
        period_pcoc(sketch, tracker),
    )


def sketch_log_loss(sketch: Sketch, probability: FloatArray) -> float:
    """Return the log-loss of all rows of a sketch, given one probability per cell."""
    inside = np.clip(probability, CLIP, 1.0 - CLIP)
    positives = np.minimum(sketch.positives, sketch.weight)
    return -float(positives @ np.log(inside) + (sketch.weight - positives) @ np.log1p(-inside))


def period_pcoc(sketch: Sketch, probability: FloatArray) -> Pcoc:
    """Return predicted over observed positives of a period, with the 95 % interval of independent rows.

    It is that of `mcnet.metrics.calibration_error.pcoc`: the delta method's on the logarithm.
    """
    positives = np.minimum(sketch.positives, sketch.weight)
    predicted, observed = float(sketch.weight @ probability), float(positives.sum())
    if observed <= 0.0:
        return None, predicted / -math.log(0.5 * (1.0 - LEVEL)), None
    of_predicted, of_both = float(sketch.weight @ probability**2), float(positives @ probability)
    variance = 1.0 / observed + of_predicted / predicted**2 - 2.0 * of_both / (observed * predicted)
    with np.errstate(over="ignore"):  # much less weight than a row says nothing
        reach = float(np.exp(NORMAL_QUANTILE * np.sqrt(max(variance, 0.0))))
    value = predicted / observed
    return value, value / reach, value * reach if math.isfinite(reach) else None


# Saved states of the tracker, also older ones, so that rows which arrive late do not cost a replay of everything. Each
# has the periods that were judged on the way to it, and is of use as long as the periods that it learnt are the same in
# the journal. They are a cache: whatever is lost is learnt again from the journal.


def _saved_states(state: LoopState, problems: list[str]) -> Iterator[tuple[Learner, list[Judged]]]:
    """Yield the states that can be read, the latest first; say which ones cannot, a sentence each."""
    for ticks, document, sketches in state.checkpoints():
        name = f"the state of the tracker of {state.head} after {ticks} periods"
        again = "the next update learns it again from the journal"
        try:
            learner = tracker_of_state(document.get("tracker"), partial(_sketch_of, sketches), name, again)
            yield learner, msgspec.convert(document["judged"], list[Judged])
        except (McnetError, ValueError, TypeError, KeyError, AttributeError) as error:
            problems.append(str(error) if isinstance(error, McnetError) else f"{name} cannot be read; {again}")


def _save_state(state: LoopState, learnt: "Learnt") -> None:
    """Save a state as a whole, and drop those that are needed no more."""
    tracker, sketches = tracker_state(learnt.learner)
    document = {"tracker": tracker, "judged": [asdict(one) for one in learnt.judged]}
    content = {name: stored_bytes(sketch) for name, sketch in sketches.items()}
    state.save_checkpoint(learnt.learner.clock.ticks, document, content)


def check_loop(state: LoopState) -> list[str]:
    """Return what is wrong with the saved states of the tracker and the monitor of a head, a sentence each."""
    problems: list[str] = []
    for _ in _saved_states(state, problems):
        pass
    try:
        evidence = state.get(MONITOR)
        if evidence is not None:
            Monitor.of_document(evidence, f"the monitor of {state.head}")
    except FileFormatError as error:
        problems.append(f"{error}, as the next update does")
    except ValueError:
        pass  # no JSON, which `Store.check` says
    return problems


def _sketch_of(sketches: Mapping[str, bytes], name: str) -> Sketch:
    return sketch_of_bytes(sketches[name], name)


# Learn from a journal in order: each period is judged by the forecast made before it, then learnt.

MOST_JUDGED = 500
"""This many judged periods are remembered, the latest."""
MOST_FORECASTS = 60
"""Of so many periods, the latest that were learnt now, the forecasts are kept for the monitor."""
SECONDS_BETWEEN_CHECKPOINTS = 10.0


@dataclass
class Learnt:
    """What is known after learning a journal."""

    learner: Learner
    judged: list[Judged]
    new: list[str] = field(default_factory=list)
    """The periods that were learnt now."""
    forecasts: dict[str, FloatArray] = field(default_factory=dict)
    """Of the latest of them: the forecast probability of each cell of the journal's sketch."""

    @property
    def digest(self) -> str:
        """A digest of all rows that were learnt."""
        return self.learner.journal_digest or ""

    def only_suspects_since(self, digest: str | None) -> bool:
        """Tell whether all periods after those that have a digest are suspect, and so nothing was learnt since."""
        digests = [one.digest for one in self.judged]
        later = self.judged[digests.index(digest) + 1 :] if digest in digests else []
        return bool(later) and all(one.suspect for one in later)

    def model(self, first: str, columns: Mapping[str, Any]) -> CalibrationModel:
        """Return the model for the coming period; it tells what it was fitted on, and which columns logs have."""
        made = self.learner.model()
        last, number = self.learner.clock.last, self.learner.clock.ticks
        history = {"fitted_periods": {"first": first, "last": last, "number": number}, "journal_digest": self.digest}
        made.provenance.update(history)
        if columns:
            made.provenance["columns"] = dict(columns)
        return made


def learn_journal(
    journal: Journal,
    state: LoopState,
    *,
    method: str,
    delay: int,
    until: Any = None,
    look: bool = True,
) -> Learnt | None:
    """Learn the periods of a journal that are new, or changed, until one of them; None if it has no period yet.

    With a look, periods that are suspect are kept and not learnt; those that were released are.
    """
    digests = past_digests(journal)
    periods = periods_between(list(digests), None, until)
    if not periods:
        return None
    learnt = Learnt(Learner(method, None, delay), [])
    for learner, judged in _saved_states(state, []):  # the latest that has learnt what the journal still has
        last = learner.clock.last
        alike = (learner.method, learner.given_memories, learner.delay) == (method, None, delay)
        if alike and last in periods and digests[last] == learner.journal_digest:
            learnt = Learnt(learner, judged)
            break
    last = learnt.learner.clock.last
    left = periods if last is None else periods[periods.index(last) + 1 :]
    if not left:
        return learnt
    released = journal.released
    recent: deque[tuple[str, FloatArray]] = deque(maxlen=MOST_FORECASTS)
    saved = time.monotonic()
    for place, (period, sketch) in enumerate(journal.sketches(left[0], left[-1])):
        probability = _learn_period(learnt, period, digests[period], sketch, look=look and period not in released)
        if probability is not None:
            recent.append((period, probability))
        behind = len(left) - 1 - place
        if behind and (behind.bit_count() == 1 or time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS):
            _save_state(state, learnt)
            saved = time.monotonic()
    _save_state(state, learnt)
    learnt.forecasts = dict(recent)
    return learnt


def _learn_period(learnt: Learnt, period: str, digest: str, sketch: Sketch, *, look: bool) -> FloatArray | None:
    """Judge a period, learn it, and return the forecast probability of each of its cells; None if there was none."""
    learner = learnt.learner
    text = learner.clock.check(period)
    forecast = _forecast_for(learner, text)
    probability = None
    if forecast is not None:
        rows = learner.prepared(sketch)
        learnt.judged.append(judge_forecast(period, digest, rows, _probability(forecast, rows)))
        del learnt.judged[:-MOST_JUDGED]
        probability = _probability(forecast, sketch.unfolded())
    suspect = learner.learn(sketch, text, look=look)
    learner.journal_digest = digest
    learnt.new.append(period)
    if suspect is not None:
        learnt.judged[-1] = replace(learnt.judged[-1], suspect=suspect.cause)
        agreed = {one.period for one in learner.look.suspects if one.state == "learnt"}
        learnt.judged = [replace(one, suspect="") if one.period in agreed else one for one in learnt.judged]
    return probability


def _forecast_for(learner: Learner, period: str | None) -> Forecast | None:
    """Return the forecast that was there when a period was predicted; None if there was none."""
    if learner.delay == 0:
        return learner.forecasts[-1] if learner.forecasts else None
    clock = deepcopy(learner.clock)
    position = learner.position + (clock.advance(period) if learner.learnt else 0.0)
    known = [f for f in learner.forecasts if f.position < position - learner.delay - HALF_A_PERIOD]
    return known[-1] if known else None


def _probability(forecast: Forecast, sketch: Sketch) -> FloatArray:
    return np.asarray(sigmoid(forecast.of_cells(sketch) @ forecast.served))
