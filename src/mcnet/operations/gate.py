"""The gate: whether a new model may be published."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from mcnet._shared.arrays import FloatArray, IndexArray
from mcnet._shared.messages import UNIT_OF_DIFFERENCES, signed_differences
from mcnet.errors import McnetError
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import model_text, other_requests, parse_model
from mcnet.operations.learning import Judged, sketch_log_loss
from mcnet.operations.watch import after_fit
from mcnet.rows.fields import MISSING_LABEL
from mcnet.rows.periods import periods_between
from mcnet.sketch.sketch import Sketch
from mcnet.store.journal import Journal
from mcnet.store.versions import Version
from mcnet.tracking.memories import coarse

# The difference in loss between two forecasts of the same periods, with an interval over periods.

LEVEL = 0.95
RECOVERED_PERIODS = 3
"""What was worse for a while, after a broken period say, is good again once each of so many was predicted no worse."""
MOST_DEVIATIONS = 6.0
"""A period counts at most as one that is so many median deviations from the median period."""
LEAST_TO_TRIM = 5
"""With fewer periods none can be told from the others; one that is wild makes their interval wide."""


@dataclass(frozen=True)
class Comparison:
    """The candidate's way of predicting beside another, on periods that neither was fitted on."""

    other: str
    """What it was compared with."""
    periods: int
    first: str
    last: str
    difference: float
    """Log-loss per unit of weight, above that of the other: negative is better."""
    low: float
    high: float
    """The 95 % interval of the difference; it takes periods, not rows, as independent, and neighbours as related."""
    latest: float = -math.inf
    """The largest difference of a single period among the last three: below 0, each of them was better."""

    @property
    def is_worse(self) -> bool:
        """Whether more than chance says that the candidate is worse."""
        return bool(self.low > 0.0)


def compared(other: str, periods: Sequence[str], losses: ArrayLike, weight: ArrayLike) -> Comparison:
    """Compare on periods, given the summed loss of the candidate above that of the other in each."""
    latest = float(np.max((np.asarray(losses) / np.asarray(weight))[-RECOVERED_PERIODS:]))
    return Comparison(other, len(periods), periods[0], periods[-1], *mean_difference(losses, weight), latest)


def mean_difference(losses: ArrayLike, weight: ArrayLike) -> tuple[float, float, float]:
    """Return Σ losses / Σ weight over periods, with its 95 % interval: (value, low, high).

    The error is that of a ratio over clusters, which are the periods. Neighbouring periods may be related:
    covariances up to a lag of n^(1/3) periods count, with falling weights (Bartlett). Few periods tell little of
    their spread, which Student's t takes into account. One period has no interval: its ends are infinite.

    >>> value, low, high = mean_difference([1.0, 2.0, 3.0, 2.0], [1.0, 1.0, 1.0, 1.0])
    >>> value, round(low, 2), round(high, 2)
    (2.0, 0.7, 3.3)
    """
    size = np.asarray(weight, dtype=np.float64)
    loss = without_wild_periods(np.asarray(losses, dtype=np.float64), size)
    number, total = len(size), float(size.sum())
    value = float(loss.sum()) / total
    if number < 2:
        return value, -np.inf, np.inf
    rest = loss - value * size
    variance = float(rest @ rest)
    reach = int(number ** (1.0 / 3.0))
    for lag in range(1, min(reach, number - 1)):
        variance += 2.0 * (1.0 - lag / reach) * float(rest[lag:] @ rest[:-lag])
    error = np.sqrt(max(variance, 0.0) * number / (number - 1.0)) / total
    reach_of_interval = float(stdtrit(number - 1, 0.5 + LEVEL / 2.0)) * float(error)
    return value, value - reach_of_interval, value + reach_of_interval


def without_wild_periods(loss: FloatArray, size: FloatArray) -> FloatArray:
    """Return losses of which none is farther from the median than `MOST_DEVIATIONS`: one period decides nothing.

    Deviations are counted in the median one of all periods, as large as rows make them: √weight.
    """
    if len(loss) < LEAST_TO_TRIM:
        return loss
    middle = float(np.median(loss / size)) * size
    apart = (loss - middle) / np.sqrt(size)
    reach = MOST_DEVIATIONS * float(np.median(np.abs(apart)))
    return np.asarray(middle + np.clip(apart, -reach, reach) * np.sqrt(size))


# How far mean probabilities move from the current model to a new one.

ALL_ROWS, MOVES = "all rows", "the mean probability of"
SHOWN_MOVES = 4
"""Of what moves farthest, so many are told."""
LEAST_POSITIVES = 100.0
"""A field value counts for the largest shift from so many expected positives on."""


@dataclass(frozen=True)
class Shift:
    """How far mean probabilities move from the current model to the candidate: 0.02 is 2 % more."""

    overall: float
    largest: float
    """Of all rows and of every context with enough positives, the one that moves farthest, up or down."""
    where: str
    moves: tuple[tuple[str, float], ...] = ()
    """All of them, the largest first."""

    @property
    def size(self) -> float:
        """The largest move as a factor above 1, less 1: half is as far as double."""
        return _size(self.largest)

    def to_dict(self) -> dict[str, Any]:
        """Return the largest moves as JSON-able values."""
        moves = [list(move) for move in self.moves if move[0] != ALL_ROWS][:SHOWN_MOVES]
        shown = {"overall": self.overall, "largest": self.largest, "where": self.where, "moves": moves}
        return {**shown, "size": self.size}


def _size(move: float) -> float:
    return math.expm1(abs(math.log1p(move)))


def shift_between(current: CalibrationModel, candidate: CalibrationModel, rows: Sketch) -> Shift:
    """Return how far mean probabilities move, weighed by rows: of all, of every field value and of every context."""
    rows = _of_models(rows, current, candidate)
    old, new = (rows.weight * model.predict_cells(rows) for model in (current, candidate))
    overall = float(new.sum() / old.sum()) - 1.0
    moved = [(ALL_ROWS, overall)]
    for names, codes in _groups(rows):
        before, after = (np.bincount(codes, weights=part, minlength=len(names)) for part in (old, new))
        # By either model: a value that rises from few positives to many moves, too.
        for code in np.flatnonzero(np.maximum(before, after) >= LEAST_POSITIVES).tolist():
            moved.append((names[code], float(after[code] / before[code]) - 1.0))
    moved.sort(key=lambda one: -abs(math.log1p(one[1])))
    return Shift(overall, moved[0][1], moved[0][0], tuple(moved))


def _of_models(rows: Sketch, *models: CalibrationModel) -> Sketch:
    """Return rows with the fields that models need alone."""
    return rows.unfolded().only(*dict.fromkeys(name for model in models for name in model.fields))


def _groups(rows: Sketch) -> list[tuple[list[str], IndexArray]]:
    """Return the groups of cells that are judged by themselves, by name: field values and, of several fields, contexts.

    Each entry has the names of a grouping, and the index of each cell's group.
    """
    columns = rows.contexts.columns(rows.context)
    shown = [[f"{c.name}={MISSING_LABEL if value is None else value}" for value in c.values] for c in columns]
    groups: list[tuple[list[str], IndexArray]] = [
        (names, column.codes) for names, column in zip(shown, columns, strict=True)
    ]
    if len(columns) > 1:
        table = rows.contexts.table.tolist()
        joined = [", ".join(names[code] for names, code in zip(shown, line, strict=True)) for line in table]
        groups.append((joined, rows.context))
    return groups


# What the latest periods say about a large move.

CONFIRMING_PERIODS = 2
"""A move beyond the limit must be confirmed by each of so many periods, the latest that are not suspect …"""
LEAST_CONFIRMATION = 1.5
"""… by this much log-likelihood of its number of positives."""
LEAST_CONTRADICTION = math.log(100.0)
"""What each of them contradicts by so much is refused, however small it is."""


def gains(rows: Sketch, current: CalibrationModel, candidate: CalibrationModel) -> dict[str, float]:
    """Return the log-likelihood of a period's positives by the candidate above that by the current model.

    Of all rows, of every field value and of every context of the period, by name.
    """
    rows = _of_models(rows, current, candidate)
    parts = [rows.positives, *(rows.weight * model.predict_cells(rows) for model in (current, candidate))]
    found = {}
    for names, codes in [([ALL_ROWS], np.zeros(len(rows), dtype=np.intp)), *_groups(rows)]:
        sums = (np.bincount(codes, weights=part, minlength=len(names)).tolist() for part in parts)
        for name, positives, old, new in zip(names, *sums, strict=True):
            found[name] = positives * math.log(new / old) - (new - old) if old > 0.0 and new > 0.0 else 0.0
    return found


# Whether a new model can be served: its file, its fields and scores, and its probabilities on rows of the journal.


def invalid(candidate: CalibrationModel, rows: Sketch, current: CalibrationModel | None) -> str:
    """Return what is wrong with a candidate, in a sentence; nothing if it can be served.

    It must come back from its file as it was (checksum, schema, order of scores), take the same scores and fields as
    the current model and the rows, and give probabilities inside (0, 1) that rise with the score on the rows.
    """
    try:
        served = parse_model(model_text(candidate), "its file")
    except (McnetError, ValueError) as error:
        return f"the new model is not valid: {error}"
    problem = other_requests(served, current)
    if problem:
        return f"the new model {problem}"
    lacking = [name for name in rows.contexts.names if name not in served.fields]
    if lacking:
        return f"the new model lacks the field {lacking[0]!r} of the rows"
    try:
        probability = served.predict_cells(rows)
    except McnetError as error:
        return f"the new model cannot predict the rows of the journal: {error}"
    if not (np.isfinite(probability).all() and (probability > 0.0).all() and (probability < 1.0).all()):
        return "the new model gives probabilities that are not inside (0, 1)"
    order = np.lexsort((rows.score, rows.context))
    falls = (np.diff(probability[order]) < 0.0) & (np.diff(rows.context[order]) == 0)
    return f"the new model gives a higher score a lower probability, {int(falls.sum())} times" if falls.any() else ""


# The gate: a new model is published only if it is valid, no worse than the current one, and not too far from it.

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
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """The contexts that its sentences name."""

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
            "comparison": None if self.comparison is None else asdict(self.comparison),
            "shift": None if self.shift is None else self.shift.to_dict(),
        }


@dataclass(frozen=True)
class Gate:
    """The limits that a candidate is held to, as in `HeadSettings`."""

    max_shift: float = 0.5
    tolerance: float = 0.0
    min_periods: int = 3

    def judge(
        self,
        candidate: CalibrationModel,
        current: Current | None,
        past: Sequence[Judged],
        journal: Journal,
        *,
        until: str | None = None,
        delay: int = 0,
        kept_losses: Mapping[str, float] | None = None,
    ) -> Verdict:
        """Decide whether a candidate may be published that was fitted on the journal `until` a period.

        Of past periods it is known how they came out, and what the version that was served when they were predicted has
        lost there (`kept_losses`).
        """
        suspect = {one.period for one in past if one.suspect}
        periods = periods_between(journal.periods, None, until)[-RECENT_PERIODS:]
        left_out = {period: 0.0 for period in periods if period in suspect}
        if len(left_out) == len(periods):
            return Verdict(waiting=f"the last {len(periods)} periods are suspect")
        rows = coarse(journal.sketch(periods[0], periods[-1], weights=left_out).unfolded())
        problem = invalid(candidate, rows, None if current is None else current.model)
        if problem:
            return Verdict((problem,))
        usual = [one for one in past if not one.suspect]
        comparison = self._comparison(current, usual, journal, delay, kept_losses or {})
        if comparison is None or comparison.periods < self.min_periods:
            number = 0 if comparison is None else comparison.periods
            return Verdict(waiting=f"{number} of the {self.min_periods} periods to judge by were predicted so far")
        if current is None and comparison.difference > self.tolerance:
            return Verdict(
                waiting=f"nothing is published before it gains: {_in_words(comparison)}", comparison=comparison
            )
        problems, notes = [], [_in_words(comparison)]
        if comparison.low > self.tolerance and comparison.latest > self.tolerance:
            problems.append(_in_words(comparison))
        elif comparison.low > self.tolerance:
            notes.append(f"but each of the last {RECOVERED_PERIODS} periods was predicted no worse")
        if current is None:
            return Verdict(tuple(problems), "", comparison, None, tuple(notes))
        shift = shift_between(current.model, candidate, rows)
        last = [period for period in periods if period not in suspect][-CONFIRMING_PERIODS:]
        sketches = [coarse(s.unfolded()) for p, s in journal.sketches(last[0], last[-1]) if p in last]
        latest = [gains(rows, current.model, candidate) for rows in sketches]
        notes.append(_moves(shift.where, shift.largest))
        names, far = self._unconfirmed(shift, latest)
        problems += far
        if shift.size > self.max_shift and not far:
            notes.append(f"beyond --max-shift, but each of the last {CONFIRMING_PERIODS} periods says so")
        return Verdict(tuple(problems), "", comparison, shift, tuple(notes), (shift.where, *names))

    def _unconfirmed(self, shift: Shift, latest: Sequence[Mapping[str, float]]) -> tuple[list[str], list[str]]:
        """Return what moves without reason, by name and in a sentence: too far, or against the last periods."""
        said_by = {where: [period.get(where, 0.0) for period in latest] for where, _ in [(ALL_ROWS, 0.0), *shift.moves]}
        confirming = {where: sum(gain > LEAST_CONFIRMATION for gain in said) for where, said in said_by.items()}
        # Of a common move that is confirmed, no small value has to say so by itself.
        common = shift.overall if confirming[ALL_ROWS] == CONFIRMING_PERIODS else 0.0
        for where, move in shift.moves:
            if min(_size(move), _size((1.0 + move) / (1.0 + common) - 1.0)) <= self.max_shift:
                continue
            agree = confirming[where]
            if agree < CONFIRMING_PERIODS:
                least = 1.0 / (1.0 + self.max_shift) - 1.0
                said = f"{'only one' if agree else 'none'} of the last {CONFIRMING_PERIODS} periods says so"
                allowed = f"allowed is {least:+.1%} to {self.max_shift:+.1%} (--max-shift)"
                return [where], [f"{_moves(where, move)}, and {said}; {allowed}"]
        for where, move in shift.moves[:SHOWN_MOVES]:
            if len(latest) == CONFIRMING_PERIODS and max(said_by[where]) < -LEAST_CONTRADICTION:
                said = f"each of the last {CONFIRMING_PERIODS} periods speaks against it"
                return [where], [f"{_moves(where, move)}, and {said}"]
        return [], []

    def _comparison(
        self,
        current: Current | None,
        past: Sequence[Judged],
        journal: Journal,
        delay: int,
        kept_losses: Mapping[str, float],
    ) -> Comparison | None:
        """Compare what the tracker had forecast for past periods with something else, on rows new to both.

        1. The current version has seen at least `min_periods` periods that it was not fitted on: with that version.
        2. It is newer, as in a loop that publishes after every period: with the version that was served when each
           period was predicted. That is what keeping it would have been worth at every step so far.
        3. Too few periods were served yet: with the scores as they are.
        """
        later = [] if current is None else later_than_fit(past, current.version, delay)[-COMPARED_PERIODS:]
        if current is not None and len(later) >= self.min_periods:
            losses = _losses(journal, [one.period for one in later], current.model)
            return _compared(f"version {current.version.name}", later, losses)
        recent = [one for one in past[-COMPARED_PERIODS:] if one.period in kept_losses]
        if current is not None and len(recent) >= self.min_periods:
            return _compared("the versions served then", recent, kept_losses)
        recent = list(past[-COMPARED_PERIODS:])
        return _compared("the scores as they are", recent, {one.period: one.base_loss for one in recent})


def _losses(journal: Journal, periods: Sequence[str], model: CalibrationModel) -> dict[str, float]:
    """Return the loss of a model in periods; those that lack a field of it are left out."""
    result = {}
    for period, sketch in journal.sketches(periods[0], periods[-1]):
        if period in periods and set(model.fields) <= set(sketch.contexts.names):
            rows = coarse(sketch.unfolded())
            result[period] = sketch_log_loss(rows, model.predict_cells(rows))
    return result


def later_than_fit(judged: Sequence[Judged], version: Version, delay: int) -> list[Judged]:
    """Return the judged periods whose rows a version was not fitted on, and that were its to predict.

    All of them, if the version does not tell until when it was fitted: it may have an advantage then, the candidate has
    none. The first period after the fit of a tracker's version is left out: the tracker's forecast for it is that very
    version.
    """
    served = after_fit([one.period for one in judged], version, delay)
    later = [one for one in judged if one.period in served]
    return later[1:] if version.rows_digest is not None else later


def _compared(other: str, past: Sequence[Judged], losses: Mapping[str, float]) -> Comparison | None:
    """Compare the tracker's forecasts with something else, given what that has lost in each period."""
    beside = [(one.period, one.tracker_loss - losses[one.period], one.weight) for one in past if one.period in losses]
    return compared(other, *zip(*beside, strict=True)) if beside else None


def _moves(where: str, move: float) -> str:
    shown = f"{move:+.1%}"
    return f"{MOVES} {where} " + ("stays as it is" if shown in ("+0.0%", "-0.0%") else f"moves by {shown}")


def _in_words(comparison: Comparison) -> str:
    how = "worse than" if comparison.is_worse else "better than" if comparison.high < 0.0 else "as good as"
    value, low, high = signed_differences(comparison.difference, comparison.low, comparison.high)
    on = f"{comparison.other} on {comparison.periods} unseen periods"
    return f"{how} {on}: log-loss {value} {UNIT_OF_DIFFERENCES} ({low} … {high})"
