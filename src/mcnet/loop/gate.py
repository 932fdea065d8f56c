"""The gate: a new model is published only if it is valid, no worse than the current one, and not too far from it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mcnet.errors import InputError
from mcnet.loop.comparison import Comparison, compared
from mcnet.loop.judged import Judged, sketch_log_loss
from mcnet.loop.shift import Shift, shift_between
from mcnet.loop.validity import invalid
from mcnet.loop.version_times import VersionTimes
from mcnet.metrics.evaluate_sketch import predict_cells
from mcnet.model.model import CalibrationModel
from mcnet.tracking.journal import Journal
from mcnet.tracking.memories import coarse
from mcnet.tracking.period import periods_between
from mcnet.versions.version import Version

__all__ = ["Current", "Gate", "Verdict", "later_than_fit"]

COMPARED_PERIODS = 28
"""Models are compared on this many periods at most, the latest."""
RECENT_PERIODS = 7
"""How far probabilities move is weighed by the rows of this many periods, the latest."""


@dataclass(frozen=True)
class Current:
    """The version that is served, and its model."""

    version: Version
    model: CalibrationModel


@dataclass(frozen=True)
class Verdict:
    """What the gate found: a candidate passes if nothing speaks against it."""

    problems: tuple[str, ...] = ()
    """Why the candidate must not be published, in sentences."""
    waiting: str = ""
    """Why there is no judging yet, if there are too few periods."""
    comparison: Comparison | None = None
    shift: Shift | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> bool:
        """Whether the candidate may be published."""
        return not self.problems and not self.waiting

    @property
    def reason(self) -> str:
        """What was decided by, in one line."""
        return "; ".join(self.problems) or self.waiting or "; ".join(self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON-able values."""
        return {
            "passed": self.passed,
            "problems": list(self.problems),
            "waiting": self.waiting,
            "notes": list(self.notes),
            "comparison": None if self.comparison is None else self.comparison.to_dict(),
            "shift": None if self.shift is None else {**vars(self.shift), "size": self.shift.size},
        }


@dataclass(frozen=True)
class Gate:
    """The limits that a candidate is held to.

    Parameters
    ----------
    max_shift : how far a mean probability may move, of all rows or of a context with at least 100 expected positives:
        0.5 allows half as much again, and a third less, which is as far down.
    tolerance : the log-loss per row by which the candidate may be worse; it is refused if the whole interval of the
        difference lies above.
    min_periods : so many periods must have been predicted and judged before anything is published.
    """

    max_shift: float = 0.5
    tolerance: float = 0.0
    min_periods: int = 3

    def __post_init__(self) -> None:
        """Refuse limits that are none."""
        if not (isinstance(self.max_shift, int | float) and self.max_shift >= 0.0):
            raise InputError(f"max_shift is {self.max_shift!r}; it must be a share, 0 or more: 0.2 allows 20 %")
        if not (isinstance(self.tolerance, int | float) and 0.0 <= self.tolerance < math.inf):
            raise InputError(f"tolerance is {self.tolerance!r}; it must be a log-loss, 0 or more")
        if isinstance(self.min_periods, bool) or not isinstance(self.min_periods, int) or self.min_periods < 2:
            raise InputError(f"min_periods is {self.min_periods!r}; it must be a whole number, 2 or more")

    def judge(
        self,
        candidate: CalibrationModel,
        current: Current | None,
        judged: Sequence[Judged],
        journal: Journal,
        *,
        delay: int = 0,
        until: str | None = None,
    ) -> Verdict:
        """Decide whether a candidate may be published.

        Parameters
        ----------
        candidate : the tracker's model for the coming period.
        current : what is served now; None before the first version.
        judged : how the past periods came out, in order.
        journal : their rows.
        delay : after how many further periods labels are known.
        until : the last period that the candidate was fitted on.
        """
        periods = periods_between(journal.periods, None, until)[-RECENT_PERIODS:]
        rows = coarse(journal.sketch(periods[0], periods[-1]).unfolded())
        problem = invalid(candidate, rows, None if current is None else current.model)
        if problem:
            return Verdict((problem,))
        comparison = self._comparison(current, judged, journal, delay)
        if comparison is None or comparison.periods < self.min_periods:
            number = 0 if comparison is None else comparison.periods
            return Verdict(waiting=f"{number} of the {self.min_periods} periods to judge by were predicted so far")
        if current is None and comparison.difference > self.tolerance:
            return Verdict(
                waiting=f"nothing is published before it gains: {_in_words(comparison)}", comparison=comparison
            )
        problems, notes = [], [_in_words(comparison)]
        if comparison.low > self.tolerance:
            problems.append(_in_words(comparison))
        shift = None
        if current is not None:
            shift = shift_between(current.model, candidate, rows)
            move = f"the mean probability of {shift.where} moves by {shift.largest:+.1%}"
            notes.append(move)
            if shift.size > self.max_shift:
                least = 1.0 / (1.0 + self.max_shift) - 1.0
                problems.append(f"{move}; allowed is {least:+.1%} to {self.max_shift:+.1%} (--max-shift)")
        return Verdict(tuple(problems), "", comparison, shift, tuple(notes))

    def _comparison(
        self, current: Current | None, judged: Sequence[Judged], journal: Journal, delay: int
    ) -> Comparison | None:
        """Compare on periods that neither side was fitted on.

        1. No version yet: what the tracker had forecast, beside the scores as they are.
        2. The current version has seen at least `min_periods` periods that it was not fitted on: what the tracker
           had forecast for those, beside the current version itself.
        3. The current version is newer than that, as in a loop that publishes after every period: what the tracker
           had forecast for each recent period, beside the model that it had one period earlier. That is what keeping
           the model of the period before would have been worth in the past.
        """
        if current is None:
            chosen = list(judged)[-COMPARED_PERIODS:]
            losses = [one.tracker_loss - one.base_loss for one in chosen]
            return _compared("the scores as they are", chosen, losses)
        later = later_than_fit(judged, current.version, delay)[-COMPARED_PERIODS:]
        if len(later) >= self.min_periods:
            by_period = {one.period: one for one in later}
            losses = [
                by_period[period].tracker_loss - sketch_log_loss(rows, predict_cells(current.model, rows))
                for period, sketch in journal.sketches(later[0].period, later[-1].period)
                if period in by_period
                for rows in [coarse(sketch.unfolded())]
            ]
            return _compared(f"version {current.version.name}", later, losses)
        pairs = [(one, one.before_loss) for one in judged if one.before_loss is not None][-COMPARED_PERIODS:]
        losses = [one.tracker_loss - before for one, before in pairs]
        return _compared("the model of the period before", [one for one, _ in pairs], losses)


def later_than_fit(judged: Sequence[Judged], version: Version, delay: int) -> list[Judged]:
    """Return the judged periods whose rows a version was not fitted on, and that were its to predict.

    All of them, if the version does not tell until when it was fitted: it may have an advantage then, the candidate has
    none. The first period after the fit of a tracker's version is left out: the tracker's forecast for it is that very
    version.
    """
    times = VersionTimes([one.period for one in judged], [version], delay)
    if not times.tells(version):
        return list(judged)
    later = [one for one in judged if times.could_serve(version, one.period)]
    return later[1:] if version.rows_digest is not None else later


def _compared(other: str, judged: Sequence[Judged], losses: Sequence[float]) -> Comparison | None:
    if not judged:
        return None
    return compared(other, [one.period for one in judged], losses, [one.weight for one in judged])


def _in_words(comparison: Comparison) -> str:
    how = "worse" if comparison.is_worse else "better" if comparison.high < 0.0 else "no more than chance"
    interval = f"{comparison.low:+.5f} … {comparison.high:+.5f}"
    return (
        f"log-loss {comparison.difference:+.5f} beside {comparison.other} ({interval}: {how}) on {comparison.periods} "
        "periods that neither was fitted on"
    )
