"""Which columns are worth being fields: forward selection by the log-loss of rows held back.

Every candidate is judged with a fast additive model on top of the score: an offset and a slope per value, and an offset
per pair of values with the fields chosen before, each shrunk by a variance that is learnt and may be zero.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import log_expit
from scipy.stats import norm

from mcnet._shared.arrays import CodeArray, FloatArray, ScoreType, logit, sigmoid, sums_by
from mcnet._shared.messages import aligned
from mcnet.errors import InputError
from mcnet.rows.candidates import Candidate, RowSample, candidate_fields, complete_rows, outcome_warning
from mcnet.rows.columns import labels_column, restore_negatives, scores_column, weights_column
from mcnet.rows.contexts import distinct_combinations
from mcnet.rows.fields import CLOCK, FieldColumn, is_table
from mcnet.rows.locations import read_options
from mcnet.rows.logs import batches, expand_paths, open_log, require_columns, source_name
from mcnet.rows.periods import timestamps_of
from mcnet.rows.spec import RowSpec, field_names

MOST_ROWS = 2_000_000
"""Of a longer log a sample of so many rows is searched."""
_MOST_CELLS = 30_000_000
"""Of a log of many columns, fewer rows: so many cells."""

_MOST_VALUES = 20_000
"""A column of more values is an id, not a field."""
_LEAST_ROWS_PER_VALUE = 5
_MOST_FIELDS = 8
_FOLDS = 4
_SPANS = 160
"""A log with timestamps is cut into so many spans of equal rows, of which every fourth is held back in turn."""
_LEVEL = 0.95
_TRIED_FIRST, _TRIED_EXACTLY = 6, 3
"""So many of the best candidates of the first and of a later round are judged by a whole fit."""
_SCREENED_BY_ALL_FOLDS = 20
"""More candidates than this are screened by one fold alone."""
_SWEEPS = 4
_LINE_STEPS = 30
_SCORE_BINS = 100
_RARE_ROWS = 100
"""A value of fewer rows is rare."""
_VARIANCES = np.concatenate([[0.0], np.exp(np.linspace(np.log(1e-5), np.log(9.0), 40))])
_MOST_PAIRS = 300_000
_WORTH = 0.00002
"""A field whose gain may be less than this is not worth its curves."""
_WORTH_OF_AN_HOUR_OF_THE_WEEK = 0.0003
"""Beside hour and weekday, whose pairs say the same, it has to gain more."""
_LEAST_PROPENSITY = 1.0 / 20.0
"""Rows that were logged less probably weigh no more than this lets them, as in a fit."""
_OUTCOME = 0.5
"""A column that takes more than this share of the log-loss away looks like the label."""

KNOWN_AT_SERVING = (
    "Only you know which columns are known when a score is served: leave out all others with --exclude, "
    "whatever they gain here."
)


# What is known of a column that may be a field.


@dataclass
class FieldGain:
    """A column, or what is derived from it, that may be a field, and what it gains.

    Attributes
    ----------
    name : as --field takes it.
    values : how many values it has in the rows.
    rare : the share of rows in values of fewer than 100 rows.
    gain : by how much it alone lowers the log-loss of rows held back.
    added, low, high : the same beside the fields chosen before, and its interval.
    chosen : its place among the chosen fields, from 1; None for the others.
    warning : why it looks like an outcome, or cannot be a field.
    """

    name: str
    values: int
    rare: float = 0.0
    gain: float | None = None
    added: float | None = None
    low: float | None = None
    high: float | None = None
    chosen: int | None = None
    warning: str | None = None
    codes: CodeArray = field(default_factory=lambda: np.empty(0, dtype=np.int32), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        names = ("name", "values", "rare", "gain", "added", "low", "high", "chosen", "warning")
        return {name: getattr(self, name) for name in names}


def _gain_of(made: FieldColumn, stands: FloatArray) -> FieldGain:
    """Return a candidate with the codes of its rows, each of which stands for so many rows of the log."""
    seen, codes = np.unique(made.codes, return_inverse=True)
    counts = np.bincount(codes, weights=stands)
    rare = float(counts[counts < _RARE_ROWS].sum() / max(float(counts.sum()), 1.0))
    return FieldGain(made.name, len(seen), rare, codes=codes.astype(np.int32))


# The additive model: terms of offsets (and slopes) per value, each with a variance that is learnt.


def learnt_variance(gradient: FloatArray, curvature: FloatArray) -> float:
    """Return the prior variance of the highest marginal likelihood for offsets with these gradients and curvatures."""
    used = curvature > 1e-12
    g, h = gradient[used], curvature[used]
    if len(g) == 0:
        return 0.0
    ratio = 1.0 + h[:, None] * _VARIANCES
    evidence = np.sum(0.5 * g[:, None] ** 2 * _VARIANCES / ratio - 0.5 * np.log(ratio), axis=0)
    return float(_VARIANCES[int(np.argmax(evidence))])


@dataclass(frozen=True)
class _Term:
    """Codes of a term, and what is multiplied with its coefficients: 1 for offsets, the centred score for slopes."""

    codes: CodeArray
    size: int
    times: FloatArray | None = None

    def sums(self, residual: FloatArray, curvature: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the gradient and the curvature of each coefficient."""
        if self.times is not None:
            residual, curvature = residual * self.times, curvature * self.times**2
        return sums_by(self.codes, residual, self.size), sums_by(self.codes, curvature, self.size)

    def add(self, z: FloatArray, coefficients: FloatArray) -> None:
        step = coefficients[self.codes]
        z += step if self.times is None else step * self.times


def _step(term: _Term, y: FloatArray, w: FloatArray, z: FloatArray, old: FloatArray) -> FloatArray:
    """Return the coefficients after a Newton step of one term, shrunk by a variance learnt from its own rows.

    A single coefficient, the level or the slope of all rows, is not shrunk: what it left, every field would gain by.
    """
    p = sigmoid(z)
    gradient, curvature = term.sums(w * (y - p), w * p * (1.0 - p))
    target = gradient + curvature * old  # the gradient at zero of the quadratic that the step follows
    if term.size == 1:
        return np.clip(target / np.maximum(curvature, 1e-12), -8.0, 8.0)
    variance = learnt_variance(target, curvature)
    if variance == 0.0:
        return np.zeros_like(old)
    return np.clip(target / (curvature + 1.0 / variance), -8.0, 8.0)


def _evidence(z: FloatArray, y: FloatArray, w: FloatArray) -> FloatArray:
    """Return weights scaled to what rows tell: the residuals of a sum have the variance that its curvature says.

    A row that stands for many is one row still. Taken for many, its noise would be learnt.
    """
    squares = w * (y - sigmoid(z)) ** 2
    scaled: FloatArray = w * (float(np.sum(squares)) / float(np.sum(w * squares)))
    return scaled


def _line(x: FloatArray, y: FloatArray, w: FloatArray, level: float, slope: float) -> FloatArray:
    """Return the logits of a logistic regression on the score: what is off for all rows, no field shall gain by.

    `level` and `slope` are those of the scores as they are; these are returned if no step is better.
    """
    z = level + slope * x
    best, least = z, np.inf
    for _ in range(_LINE_STEPS + 1):
        loss = float(w @ (np.logaddexp(0.0, z) - y * z))
        if loss < least:
            best, least = z, loss
        p = sigmoid(z)
        residual, curvature = w * (y - p), w * p * (1.0 - p)
        a, b, c = float(curvature.sum()), float(curvature @ x), float(curvature @ x**2)
        g, h = float(residual.sum()), float(residual @ x)
        size, level_alone = a * c - b * b, [g / max(a, 1e-300), 0.0]  # one score for all rows has no slope
        both = [(c * g - b * h) / size, (a * h - b * g) / size] if size > 1e-9 * a * c else level_alone
        steps = np.clip(both, -1.0, 1.0)
        level, slope = level + float(steps[0]), slope + float(steps[1])
        z = level + slope * x
        if np.abs(steps).max() < 1e-6:
            return z
    return best


class _Rows:
    """The rows of a search: labels, weights, base logits, and the folds by which they are held back in turn."""

    def __init__(self, score: FloatArray, y: FloatArray, w: FloatArray, folds: "list[tuple[Any, Any]]") -> None:
        self.y, self.w, self.folds = y, w, folds
        z = logit(score)
        mean = float(np.average(z, weights=w))
        spread = float(np.sqrt(np.average((z - mean) ** 2, weights=w)))
        spread = spread if spread > 1e-9 else 1.0  # one score for all rows
        self.x = (z - mean) / spread
        self.z = _line(self.x, y, w, mean, spread)
        self.evidence = _evidence(self.z, y, w)
        edges = np.unique(np.quantile(z, np.linspace(0.0, 1.0, _SCORE_BINS + 1)[1:-1]))
        bins = np.searchsorted(edges, z, side="right").astype(np.int32)
        common = np.zeros(len(z), dtype=np.int32)
        self.base = [_Term(common, 1), _Term(common, 1, self.x), _Term(bins, len(edges) + 1)]

    def loss(self, rows: Any, z: FloatArray) -> FloatArray:
        """Return the weighted log-loss of each row."""
        y = self.y[rows]
        loss: FloatArray = -self.w[rows] * (y * log_expit(z) + (1.0 - y) * log_expit(-z))
        return loss

    def terms(self, fields: "Sequence[FieldGain]") -> list[_Term]:
        """Return the terms of fields: offsets and slopes per value, offsets per pair of values."""
        terms = []
        for number, one in enumerate(fields):
            terms += [_Term(one.codes, one.values), _Term(one.codes, one.values, self.x)]
            for other in fields[:number]:
                if one.values * other.values <= 20 * _MOST_PAIRS:
                    _, both = distinct_combinations([one.codes, other.codes], [one.values, other.values])
                    size = int(both.max()) + 1
                    if max(one.values, other.values) < size <= _MOST_PAIRS:  # one does not follow from the other
                        terms.append(_Term(both.astype(np.int32), size))
        return terms

    def held_back(self, fields: "Sequence[FieldGain]") -> tuple[FloatArray, list[tuple[Any, FloatArray]]]:
        """Return the loss of each judged row with these fields, and the forecast of all rows for each fold."""
        terms, loss, forecasts = [*self.base, *self.terms(fields)], [], []
        for fit, judge in self.folds:
            z = self._fitted(terms, fit)
            loss.append(self.loss(judge, z[judge]))
            forecasts.append((fit, z))
        return np.concatenate(loss), forecasts

    def _fitted(self, terms: list[_Term], fit: Any) -> FloatArray:
        """Return the forecast of all rows of an additive model that was fitted on some of them, term after term."""
        inside = [_Term(t.codes[fit], t.size, None if t.times is None else t.times[fit]) for t in terms]
        coefficients = [np.zeros(term.size) for term in terms]
        y, w, z = self.y[fit], self.evidence[fit], self.z[fit].copy()
        for _ in range(_SWEEPS):
            for at, term in enumerate(inside):
                new = _step(term, y, w, z, coefficients[at])
                term.add(z, new - coefficients[at])
                coefficients[at] = new
        whole = self.z.copy()
        for term, coefficient in zip(terms, coefficients, strict=True):
            term.add(whole, coefficient)
        return whole

    def screened(self, one: "FieldGain", forecast: tuple[Any, FloatArray], judge: Any) -> float:
        """Return about how much a candidate lowers the loss of the rows held back from one forecast."""
        fit, z = forecast
        gain = 0.0
        p = sigmoid(z)
        residual, curvature = self.evidence * (self.y - p), self.evidence * p * (1.0 - p)
        for times in (None, self.x):
            parts = []
            for rows in (fit, judge):
                term = _Term(one.codes[rows], one.values, None if times is None else times[rows])
                parts.append(term.sums(residual[rows], curvature[rows]))
            (g, h), (held_g, held_h) = parts
            variance = learnt_variance(g, h)
            if variance > 0.0:
                a = g / (h + 1.0 / variance)
                gain += float(np.sum(a * held_g - 0.5 * a**2 * held_h))
        return gain / float(self.evidence[judge].sum())


def _splits(rows: int, time: "NDArray[Any] | None") -> tuple[list[tuple[Any, Any]], NDArray[Any]]:
    """Return which rows are fitted on and judged, and the block of each row: rows of a span of time are not parted."""
    if time is None:
        blocks = np.arange(rows)
        fold = np.random.default_rng(20).integers(0, _FOLDS, rows)
    else:
        cuts = np.unique(np.quantile(time, np.linspace(0.0, 1.0, _SPANS + 1)[1:-1], method="lower"))
        blocks = np.searchsorted(cuts, time, side="right")
        fold = blocks % _FOLDS
    parts = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(_FOLDS)]
    usable = [(fit, judge) for fit, judge in parts if len(fit) and len(judge)]
    if not usable:
        raise InputError("there are too few rows or timestamps to hold some back; give more rows, or no column of time")
    return usable, blocks


# The search.


@dataclass(frozen=True)
class FieldSearch:
    """What a search for fields has found.

    Attributes
    ----------
    fields : the chosen fields, in the order in which they were chosen, as --field takes them.
    candidates : every candidate with what it gains, chosen ones first.
    left_out : columns that are no candidates, and why.
    log_loss, base_log_loss : of rows held back, with the chosen fields and without any.
    rows, sampled : how many rows there are, and how many of them were searched.
    held_back : how rows were held back, in words.
    """

    fields: tuple[str, ...]
    candidates: tuple[FieldGain, ...]
    left_out: dict[str, str]
    log_loss: float
    base_log_loss: float
    rows: int
    sampled: int
    held_back: str

    def to_dict(self) -> dict[str, Any]:
        """Return the search as JSON-able values."""
        return {
            "fields": list(self.fields),
            "log_loss": self.log_loss,
            "base_log_loss": self.base_log_loss,
            "rows": self.rows,
            "sampled": self.sampled,
            "held_back": self.held_back,
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "left_out": self.left_out,
            "advice": KNOWN_AT_SERVING,
        }

    def __str__(self) -> str:
        def number(value: float | None, form: str = "{:.5f}") -> str:
            return "" if value is None else form.format(value)

        lines = [("column", "values", "rare", "gain alone", "gain added", "interval", "")]
        for one in self.candidates:
            interval = "" if one.low is None else f"{one.low:+.5f} … {one.high:+.5f}"
            mark = f"chosen {one.chosen}" if one.chosen else one.warning or ""
            lines.append(
                (one.name, f"{one.values:,}", f"{one.rare:.1%}", number(one.gain), number(one.added), interval, mark)
            )
        sample = "" if self.sampled == self.rows else f" Searched: a sample of {self.sampled:,} of {self.rows:,} rows."
        reasons: dict[str, list[str]] = {}
        for name, why in self.left_out.items():
            reasons.setdefault(why, []).append(name)
        left = [f"left out: {', '.join(names)} ({why})" for why, names in reasons.items()]
        chosen = " ".join(f"--field {shlex.quote(name)}" for name in self.fields) or "no field"
        return "\n".join(
            [
                aligned(lines),
                "",
                f"Log-loss {self.base_log_loss:.5f} without fields, {self.log_loss:.5f} with those chosen: {chosen}",
                f"Judged on {self.held_back}.{sample} Intervals (95 %) allow for the number of columns tried.",
                *left,
                KNOWN_AT_SERVING,
            ]
        )


def find_fields(
    rows: Any,
    *,
    score: str,
    label: str,
    weight: str | None = None,
    time: str | None = None,
    exclude: str | Sequence[str] = (),
    score_type: ScoreType = "probability",
    negatives_kept: float = 1.0,
) -> FieldSearch:
    """Find the columns of rows that are worth being fields: forward selection by the log-loss of rows held back.

    Candidates are columns of few values, whole numbers, other numbers in bins, and of timestamps the hour, the weekday
    and the hour of the week. Columns that look like outcomes are named and not chosen, but only you know what is known
    when a score is served: exclude the rest. Of more than 2 million rows (fewer, of very many columns) a sample is
    searched, positives first, with weights that make up for it.

    Parameters
    ----------
    rows : log files, as in `scan`, or a table of Polars, pandas or Arrow.
    score, label, weight : names of columns.
    time : a column of timestamps: spans of time are held back, instead of rows at random.
    exclude : columns that are no candidates: keys, prices, what is not known when a score is served.
    score_type, negatives_kept : as in `scan`.

    Returns
    -------
    FieldSearch : its `fields` are names that `scan` takes; printed, it is a table of all columns.
    """
    spec = RowSpec(score, label, weight=weight, score_type=score_type, negatives_kept=negatives_kept)
    spec.check()
    return search(rows, spec, exclude=exclude, time=time)


def search(
    rows: Any,
    spec: RowSpec,
    *,
    exclude: str | Sequence[str] = (),
    time: str | None = None,
    progress: Callable[[str], Any] | None = None,
) -> FieldSearch:
    """Do what `find_fields` does, for rows that are read as a spec says."""
    needed = [*spec.numbers, *([] if time is None else [time])]
    sample = RowSample(MOST_ROWS)
    drop_missing = spec.drop_missing or read_options().drop_missing
    for table in _tables(rows, spec, needed):
        batch = table[complete_rows(table, spec)] if drop_missing else table
        sample.most = min(MOST_ROWS, _MOST_CELLS // len(batch.columns))
        sample.add(batch, str(spec.label))
    table, stands = sample.table()
    w = stands if spec.weight is None else stands * weights_column(table[spec.weight], name=spec.weight)
    if spec.propensity is not None:
        logged = scores_column(table[spec.propensity], name=spec.propensity, clip=False)
        w = w / np.maximum(logged, _LEAST_PROPENSITY)
    y, restored = restore_negatives(labels_column(table[str(spec.label)], name=str(spec.label)), w, spec.negatives_kept)
    w = w if restored is None else restored
    if not 0.0 < float(np.sum(w * y)) < float(np.sum(w)):
        raise InputError("all rows are of one class, so that no field can gain anything; give positives and negatives")
    score = scores_column(table[str(spec.score)], score_type=spec.score_type, name=str(spec.score))
    exclude = field_names(exclude)
    never = [*needed, *spec.every, *exclude]
    unknown = [name for name in exclude if name not in table.columns]
    if unknown:
        raise InputError(f"{unknown[0]!r} is to be excluded and is no column; there are {', '.join(table.columns)}")
    candidates, left_out = candidate_fields(table, never)
    if time is not None:
        candidates += [Candidate(f"{time}:{part}", time) for part in CLOCK]
    moments = None if time is None else _moments(table[time])
    folds, blocks = _splits(len(y), moments)
    gains = []
    for candidate in candidates:
        made = candidate.values(table[candidate.column])
        one = _gain_of(made, stands)
        if one.values < 2:
            left_out[candidate.name] = "one value"
            continue
        if None in made.values:
            one.warning = outcome_warning(made.codes == made.values.index(None), y, w)
        if one.values > _MOST_VALUES or one.values * _LEAST_ROWS_PER_VALUE > len(y):
            left_out[candidate.name] = f"{one.values:,} values in {len(y):,} rows: nearly unique"
            continue
        gains.append(one)
    chosen = _Search(_Rows(score, y, w, folds), gains, blocks, progress or (lambda _: None))
    chosen.run()
    held = "rows held back at random, a quarter at a time (--time holds back spans of time)"
    return FieldSearch(
        tuple(one.name for one in chosen.chosen),
        tuple(sorted(gains, key=lambda one: (one.chosen or 99, -(one.added or 0.0), one.name))),
        left_out,
        chosen.log_loss,
        chosen.base_log_loss,
        sample.rows,
        len(y),
        held if time is None else f"spans of {time} held back in turn",
    )


def _tables(rows: Any, spec: RowSpec, needed: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Return all rows of log files or of a table, some at a time, with all their columns."""
    if is_table(rows):
        table = rows if isinstance(rows, pl.DataFrame) else pl.DataFrame(rows)
        lacking = [name for name in needed if name not in table.columns]
        if lacking:
            raise InputError(f"the table has no column {lacking[0]!r}; it has {', '.join(table.columns)}")
        return table.iter_slices(1 << 19)
    if not isinstance(rows, str | PathLike | Sequence):
        kind = type(rows).__name__
        raise InputError(f"fields are searched for in log files and tables, not in {kind}; name them with field=")
    paths = expand_paths(rows)
    frame = open_log(paths, numbers=spec.numbers)
    require_columns(frame, needed, source=source_name(paths))
    return batches(frame, frame.collect_schema().names(), source=source_name(paths), paths=paths)


def _moments(column: pl.Series) -> NDArray[Any]:
    timestamps = timestamps_of(column).cast(pl.Datetime("us"))
    if timestamps.null_count():
        raise InputError(f"{column.name} has {timestamps.null_count():,} rows without a timestamp; leave them out")
    return timestamps.to_physical().to_numpy()


class _Search:
    """Forward selection over candidates."""

    def __init__(
        self, rows: _Rows, gains: list[FieldGain], blocks: NDArray[Any], progress: Callable[[str], Any]
    ) -> None:
        self.rows, self.gains, self.progress = rows, gains, progress
        self.chosen: list[FieldGain] = []
        judged = np.concatenate([judge for _, judge in rows.folds])
        self.blocks = blocks[judged]
        self.block_weights = np.bincount(self.blocks, rows.w[judged])
        self.weight = float(self.block_weights.sum())
        self.log_loss = self.base_log_loss = 0.0

    def run(self) -> None:
        """Choose fields until none gains anything that is not noise."""
        loss, forecasts = self.rows.held_back([])
        self.base_log_loss = self.log_loss = float(loss.sum()) / self.weight
        tried = len(self.gains)
        while True:
            rest = [one for one in self.gains if one.chosen is None and not self._follows(one, self.chosen)]
            first = not self.chosen
            for one in rest:
                self.progress(one.name)
                each = [
                    self.rows.screened(one, forecast, judge)
                    for forecast, (_, judge) in zip(forecasts, self.rows.folds, strict=True)
                ][: 1 if len(rest) > _SCREENED_BY_ALL_FOLDS else None]
                one.added, one.low, one.high = float(np.mean(each)), None, None
                if first:
                    one.gain = one.added
                    if one.gain > _OUTCOME * self.base_log_loss:
                        one.warning = one.warning or "looks like an outcome: it predicts the label almost perfectly"
            usable = [one for one in rest if one.warning is None]
            best: tuple[FieldGain, FloatArray, Any] | None = None
            for one in sorted(usable, key=lambda one: -(one.added or 0.0))[: _TRIED_FIRST if first else _TRIED_EXACTLY]:
                self.progress(" + ".join(each.name for each in (*self.chosen, one)))
                new, made = self.rows.held_back([*self.chosen, one])
                one.added, one.low, one.high = self._interval(loss - new, tried)
                if first:
                    one.gain = one.added
                if best is None or one.added > (best[0].added or 0.0):
                    best = one, new, made
            if best is None or (best[0].low or 0.0) <= _WORTH or len(self.chosen) == _MOST_FIELDS:
                self._drop_the_redundant(loss, tried)
                return
            best[0].chosen = len(self.chosen) + 1
            self.chosen.append(best[0])
            loss, forecasts = best[1], best[2]
            self.log_loss = float(loss.sum()) / self.weight

    @staticmethod
    def _follows(one: FieldGain, others: Sequence[FieldGain]) -> bool:
        """Tell whether a candidate is the hour of the week, and hour and weekday are there."""
        column, _, kind = one.name.rpartition(":")
        names = {other.name for other in others}
        return kind == "hour-of-week" and {f"{column}:hour", f"{column}:weekday"} <= names

    def _drop_the_redundant(self, loss: FloatArray, tried: int) -> None:
        """Drop fields that gain next to nothing beside the others, such as the hour of the week beside hour and day."""
        for one in sorted(self.chosen, key=lambda one: -one.values):
            rest = [other for other in self.chosen if other is not one]
            if len(rest) < 1:
                return
            self.progress(f"without {one.name}")
            new, _ = self.rows.held_back(rest)
            added, low, high = self._interval(new - loss, tried)
            if low <= _WORTH or (added <= _WORTH_OF_AN_HOUR_OF_THE_WEEK and self._follows(one, rest)):
                one.added, one.low, one.high, one.chosen = added, low, high, None
                self.chosen, loss = rest, new
                self.log_loss = float(loss.sum()) / self.weight
        for place, one in enumerate(self.chosen, 1):
            one.chosen = place

    def _interval(self, gain: FloatArray, tried: int) -> tuple[float, float, float]:
        """Return the mean gain and an interval that allows for the number of columns tried."""
        mean = float(gain.sum()) / self.weight
        away = np.bincount(self.blocks, gain) - mean * self.block_weights
        error = float(np.sqrt(np.sum(away**2))) / self.weight
        far = float(norm.ppf(0.5 + 0.5 * _LEVEL ** (1.0 / max(tried, 1)))) * error
        return mean, mean - far, mean + far
