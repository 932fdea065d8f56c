"""Learn from a journal in order: each period is judged by the forecast made before it, then learnt."""

import time
from collections import deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mcnet._shared.math import sigmoid
from mcnet._shared.typing import FloatArray
from mcnet.loop.checkpoints import Checkpoints
from mcnet.loop.judged import Judged, judge_forecasts
from mcnet.model.model import CalibrationModel
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.forecast import Forecast
from mcnet.tracking.journal import Journal
from mcnet.tracking.learner import Learner
from mcnet.tracking.period import periods_between
from mcnet.tracking.replay import past_digests

__all__ = ["Learnt", "learn_journal"]

MOST_JUDGED = 500
"""This many judged periods are remembered, the latest."""
MOST_FORECASTS = 60
"""Of so many periods, the latest that were learnt now, the forecasts are kept for the monitor."""
SECONDS_BETWEEN_CHECKPOINTS = 10.0
HALF_A_PERIOD = 0.5
"""Slack for periods that are not all of one length, such as months."""


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

    def model(self, first: str) -> CalibrationModel:
        """Return the model for the coming period; it tells what it was fitted on."""
        made = self.learner.model()
        last, number = self.learner.clock.last, self.learner.clock.ticks
        history = {"fitted_periods": {"first": first, "last": last, "number": number}, "journal_digest": self.digest}
        made.provenance.update(history)
        return made


def learn_journal(
    journal: Journal,
    checkpoints: Checkpoints,
    *,
    method: str,
    delay: int,
    until: Any = None,
    progress: Callable[[int, int], Any] | None = None,
) -> Learnt | None:
    """Learn the periods of a journal that are new, or changed; None if it has no period yet.

    Parameters
    ----------
    journal : the rows.
    checkpoints : where the states of earlier runs are, and that of this one is saved.
    method, delay : as in `Tracker`.
    until : the last period to learn; all if None.
    progress : a function that is called with the number of periods done, and of all that are to be learnt.
    """
    digests = past_digests(journal)
    periods = periods_between(list(digests), None, until)
    if not periods:
        return None
    known = checkpoints.latest({period: digests[period] for period in periods}, (method, None, delay))
    learnt = Learnt(Learner(method, None, delay), []) if known is None else Learnt(*known)
    last = learnt.learner.clock.last
    left = periods if last is None else periods[periods.index(last) + 1 :]
    if not left:
        return learnt
    recent: deque[tuple[str, FloatArray]] = deque(maxlen=MOST_FORECASTS)
    saved = time.monotonic()
    for place, (period, sketch) in enumerate(journal.sketches(left[0], left[-1])):
        probability = _learn_period(learnt, period, digests[period], sketch)
        if probability is not None:
            recent.append((period, probability))
        behind = len(left) - 1 - place
        if behind and (behind.bit_count() == 1 or time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS):
            checkpoints.save(learnt.learner, learnt.judged)
            saved = time.monotonic()
        if progress is not None:
            progress(place + 1, len(left))
    checkpoints.save(learnt.learner, learnt.judged)
    learnt.forecasts = dict(recent)
    return learnt


def _learn_period(learnt: Learnt, period: str, digest: str, sketch: Sketch) -> FloatArray | None:
    """Judge a period, learn it, and return the forecast probability of each of its cells; None if there was none."""
    learner = learnt.learner
    text = learner.clock.check(period)
    made = _forecasts_for(learner, text)
    probability = None
    if made:
        rows = learner.prepared(sketch)
        tracker, *older = (_served(forecast, rows) for forecast in made)
        learnt.judged.append(judge_forecasts(period, digest, rows, tracker, older[0] if older else None))
        del learnt.judged[:-MOST_JUDGED]
        probability = _served(made[0], sketch.unfolded())
    learner.learn(sketch, text)
    learner.journal_digest = digest
    learnt.new.append(period)
    return probability


def _forecasts_for(learner: Learner, period: str | None) -> list[Forecast]:
    """Return the forecast that was there when a period was predicted, and the one before it, where there are any."""
    if learner.delay == 0:
        found = [*learner.forecasts[-1:], *([] if learner.previous is None else [learner.previous])]
        return found if learner.forecasts else []
    clock = deepcopy(learner.clock)
    position = learner.position + (clock.advance(period) if learner.learnt else 0.0)
    known = [f for f in learner.forecasts if f.position < position - learner.delay - HALF_A_PERIOD]
    return known[:-3:-1]


def _served(forecast: Forecast, sketch: Sketch) -> FloatArray:
    return np.asarray(sigmoid(forecast.of_cells(sketch) @ forecast.served))
