"""The monitor: is the served model still calibrated, overall, in its slope and in each field value?"""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mcnet._shared.arrays import FloatArray, IndexArray, logit, sigmoid, sums_by
from mcnet._shared.files import checksum, write_json
from mcnet.errors import FileFormatError, InputError
from mcnet.metrics.evaluation import Predictor, predict_cells
from mcnet.rows.columns import check_total_weight
from mcnet.rows.periods import period_text, shown_periods, sorted_periods
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.evidence import (
    MOST_PERIODS,
    NULLS_KEPT,
    Evidence,
    pcoc_of_shift,
    period_likelihoods,
    shift_interval,
)

if TYPE_CHECKING:
    import polars as pl


_FORMAT, _VERSION = "mcnet monitor", 4
SHARES = {"level": 0.7, "slope": 0.07}
"""How the chance of a false alarm is shared out: to the level of all rows, to their slope …"""
_VALUES = 0.23
"""… and to all field values together."""

_LEVEL_STEPS = 12
_TRACKED = (
    "the loop learns this from periods that are not suspect; if the next versions are no better, check the labels and "
    "scores of these periods"
)


@dataclass(frozen=True)
class Alarm:
    """One finding: where the model is miscalibrated, since when, and by how much."""

    what: str
    """ "level", "slope" (the upper half of the scores beside the level), a field value as "country=NL", or "learning":
    suspect periods in a row are not learnt."""
    raised: str
    """The period in which the evidence first sufficed."""
    since: str
    """The period in which it most probably began."""
    pcoc: float
    """Predicted over observed positives since then."""
    pcoc_low: float
    """The lower end of the 95 % interval of the PCOC, which includes how much periods differ …"""
    pcoc_high: float
    """… and the upper one."""
    excess: float
    """Predicted minus observed positives since then: what bids were wrong by, in positives."""
    rows: float
    """The weight of the rows since then."""
    log_evidence: float
    """The logarithm of the e-value, weighted by its share of alpha; log(1/alpha) raises an alarm."""

    def advice(self, *, tracked: bool = False, kept: str = "") -> str:
        """Return what to do, in one sentence.

        Parameters
        ----------
        tracked : a tracker learns every period and publishes by itself, so that publishing is no advice.
        kept : why it publishes nothing at present, if so.
        """
        since, _ = shown_periods([self.since, self.raised])
        if self.what == "learning":
            return (
                f"all periods since {since} are suspect and nothing is being learnt: correct their rows or release them"
            )
        learnt = f"the loop has learnt this, but publishes nothing: {kept}" if kept else _TRACKED
        cure = learnt if tracked else "update the model and publish it"
        direction = "over" if self.excess > 0.0 else "under"
        if self.what == "slope":
            cure = learnt if tracked else "fit the model again on recent periods"
            return f"high scores are {direction}-predicted beside low ones since {since}: {cure}"
        where = "" if self.what == "level" else f" of {self.what}"
        return f"the probabilities{where} are {direction}-predicted since {since}: {cure}"


@dataclass(frozen=True)
class ServedPcoc:
    """Predicted over observed positives since a version is served, and the confidence sequence of the true ratio.

    With a probability of 95 % the interval includes the true ratio of a hypothesis in all periods of a version at once,
    however often one looks. That holds for period effects that are normal with any standard deviation, or wild with a
    chance of 0.3 %; the periods before the version are taken as calibrated but for such effects.
    """

    what: str
    since: str
    """The first period that the version served, or the first of the latest 16 to 32 if it has served for longer."""
    pcoc: float
    """Their ratio. Where a wild period, such as one without positives, moves that out of the interval: the most likely
    one."""
    low: float
    high: float
    excess: float = np.nan
    """Predicted minus observed positives since then: the rows times their mean error."""
    rows: float = np.nan
    """The weight of the rows since then."""

    @property
    def includes_one(self) -> bool:
        """Whether the version may be calibrated."""
        return self.low <= 1.0 <= self.high

    def __str__(self) -> str:
        name = "all rows" if self.what == "level" else self.what
        since = shown_periods([self.since])[0]
        if self.includes_one:
            return f"{name}: PCOC {self.pcoc:.3g} ({self.low:.3g} … {self.high:.3g}), since {since}"
        way, sign = ("over", 1.0) if self.low > 1.0 else ("under", -1.0)
        value, *ends = (100.0 * sign * (end - 1.0) for end in (self.pcoc, self.low, self.high))
        shown = [f"{end:.0f}" if abs(end) >= 9.5 else f"{end:.2g}" for end in (value, min(ends), max(ends))]
        ends_at = "∞" if shown[2] == "inf" else shown[2]
        return f"{name} {way}-predicted by {shown[0]} % ({shown[1]} … {ends_at}), since {since}"


@dataclass
class _Watched:
    """One hypothesis, its share of alpha, and the sums that an alarm is described by."""

    share: float
    evidence: Evidence
    sums: list[float] = field(default_factory=lambda: [0.0] * 4)
    """Positives, expected positives, their information and the weight of the rows, of all periods so far."""
    marks: dict[int, tuple[str, list[float]]] = field(default_factory=dict)
    """At the periods in which a change may have begun: the period, and the sums before it."""
    raised: str | None = None
    before: FloatArray = field(default_factory=lambda: np.zeros((2, len(NULLS_KEPT))))
    """The log-likelihoods of nulls before the served version, for its confidence sequence …"""
    since: list[tuple[str, list[float]]] = field(default_factory=list)
    """… and the periods since, with their sums."""

    def add(self, period: str, likelihood: FloatArray, sums: list[float]) -> None:
        if not self.since:
            self.before = self.evidence.null[:, NULLS_KEPT]
        self.since.append((period, sums))
        if len(self.since) > MOST_PERIODS:
            del self.since[: MOST_PERIODS // 2]
        self.marks[self.evidence.periods] = (period, self.sums)
        self.evidence.update(likelihood)
        possible = {*self.evidence.began.ravel().tolist(), self.evidence.periods - 1}
        self.marks = {place: mark for place, mark in self.marks.items() if place in possible}
        self.sums = np.add(self.sums, sums).tolist()

    @property
    def log_evidence(self) -> float:
        return float(self.evidence.log_value + np.log(self.share))

    def served(self, what: str) -> ServedPcoc:
        """Return the PCOC since the present version is served."""
        periods = np.array([sums for _, sums in self.since])
        positives, expected, _, rows = periods.sum(axis=0).tolist()
        shifts = shift_interval(periods[:, :3], self.before, self.evidence.largest_effect)
        likely, high, low = (pcoc_of_shift(periods[:, :3], shift) for shift in shifts)
        pcoc = expected / positives if positives > 0.0 else np.inf
        pcoc = pcoc if low <= pcoc <= high else likely
        return ServedPcoc(what, self.since[0][0], pcoc, low, high, expected - positives, rows)

    def alarm(self, what: str) -> Alarm:
        """Return what is known since the most probable change."""
        since, before = self.marks.get(self.evidence.since) or next(iter(self.marks.values()))
        positives, expected, information, rows = np.subtract(self.sums, before).tolist()
        periods = self.evidence.periods - min(self.evidence.since, self.evidence.periods - 1)
        low, high = _pcoc_interval(expected, positives, information, self.evidence.effect**2 / periods)
        pcoc, excess = expected / positives if positives > 0.0 else np.inf, expected - positives
        return Alarm(what, self.raised or "", since, pcoc, low, high, excess, rows, self.log_evidence)

    def state(self) -> dict[str, Any]:
        marks = [[place, *mark] for place, mark in self.marks.items()]
        return vars(self) | {"marks": marks, "evidence": self.evidence.state(), "before": self.before.tolist()}

    @staticmethod
    def restored(state: Mapping[str, Any]) -> "_Watched":
        marks = {int(place): (period, sums) for place, period, sums in state["marks"]}
        evidence, before = Evidence.restored(state["evidence"]), np.array(state["before"], dtype=np.float64)
        since = [(period, sums) for period, sums in state["since"]]
        return _Watched(**{**state, "marks": marks, "evidence": evidence, "before": before, "since": since})


class Monitor:
    """Watch a served model on sketches of periods, with a guarantee on false alarms.

    The chance that a calibrated model ever raises an alarm, however often one looks and however many field values there
    are, is at most `alpha`. Period effects (a day with bad weather, an outage) are no miscalibration: how much periods
    differ is learnt from the periods themselves, and from those that `learn` is given.

    Parameters
    ----------
    alpha : the chance of ever raising a false alarm.
    period_effects : "learn", or an upper limit of the standard deviation of period effects, in logits; 0 states that
        there are none, which finds miscalibration sooner and raises false alarms where there are some.

    >>> rng = np.random.default_rng(0)
    >>> monitor = Monitor(alpha=0.01)
    >>> for day in range(1, 40):
    ...     score = rng.uniform(0.01, 0.2, 20_000)
    ...     truth = score if day < 30 else 0.8 * score  # from day 30 on scores are too high
    ...     found = monitor.update(Sketch.from_rows(score, rng.random(20_000) < truth), day)
    ...     if found:
    ...         break
    >>> found[0].what, found[0].since
    ('level', '30')
    """

    def __init__(self, alpha: float = 0.01, period_effects: float | Literal["learn"] = "learn") -> None:
        """Start without evidence."""
        if not (isinstance(alpha, int | float | np.number) and 0.0 < alpha < 1.0):
            raise InputError(f"alpha is {alpha!r}; it must be a probability, such as 0.01")
        if period_effects != "learn" and not (isinstance(period_effects, int | float) and period_effects >= 0.0):
            raise InputError(f"period_effects is {period_effects!r}; it must be 'learn' or a number ≥ 0, in logits")
        self.alpha = float(alpha)
        self.period_effects = period_effects
        self.last_period: str | None = None
        self.version: str | None = None
        self._watched: dict[str, _Watched] = {}
        self._values = 0

    def learn(self, sketch: Sketch, period: Any, model: Predictor | FloatArray | None = None) -> None:
        """Take in a period before the watch, on which the model is known to be calibrated: how much do periods differ?

        The period is not tested; recalibrate the model on these periods first, or
        its bias is taken for a period effect.

        Parameters
        ----------
        sketch, period, model : as in `update`.
        """
        text = self._next(period)
        for what, likelihood, _ in _hypotheses(sketch, model):
            self._watch(what).evidence.learn(likelihood)
        self.last_period = text

    def update(
        self, sketch: Sketch, period: Any, model: Predictor | FloatArray | None = None, *, version: str | None = None
    ) -> list[Alarm]:
        """Take in the labels of one more period.

        Parameters
        ----------
        sketch : the rows of the period.
        period : later than all periods before it.
        model : what served these rows, or the probabilities served in its cells; None if these are the scores.
        version : the name of the model, if it may change: with another one the intervals of `served` begin anew.

        Returns
        -------
        list[Alarm] : the alarms that this period raises for the first time.
        """
        text = self._next(period)
        if version != self.version:
            self.version = version
            for watched in self._watched.values():
                watched.since = []
        new = []
        for what, likelihood, sums in _hypotheses(sketch, model):
            watched = self._watch(what)
            watched.add(text, likelihood, sums)
            if watched.raised is None and watched.log_evidence >= -np.log(self.alpha):
                watched.raised = text
                new.append(what)
        self.last_period = text
        return [alarm for alarm in self.alarms if alarm.what in new]

    @property
    def alarms(self) -> list[Alarm]:
        """Return every alarm raised so far, the costliest first, as it stands now."""
        found = [watched.alarm(what) for what, watched in self._watched.items() if watched.raised is not None]
        return sorted(found, key=lambda alarm: -abs(alarm.excess))

    def served(self, what: Collection[str] | None = None, most: int | None = None) -> list[ServedPcoc]:
        """Return the PCOC since the present version is served, with a confidence sequence, the costliest first.

        Parameters
        ----------
        what : as in `Alarm`; everything that had rows since then if None. The slope has none.
        most : return so many of them; all if None.
        """
        costs = {}
        for name, watched in self._watched.items():
            if watched.since and name != "slope" and (what is None or name in what):
                positives, expected, *_ = np.sum([sums for _, sums in watched.since], axis=0)
                costs[name] = abs(expected - positives)
        chosen = sorted(costs, key=lambda name: -costs[name])[:most]
        return [self._watched[name].served(name) for name in chosen]

    def table(self) -> "pl.DataFrame":
        """Return everything that is watched: evidence, PCOC since the most probable change, the period effect."""
        import polars as pl

        rows = [
            asdict(watched.alarm(what))
            | {"alarm": watched.raised is not None, "period_effect": watched.evidence.effect}
            for what, watched in self._watched.items()
            if watched.evidence.periods
        ]
        return pl.DataFrame(rows).sort("log_evidence", descending=True) if rows else pl.DataFrame()

    def _watch(self, what: str) -> _Watched:
        if what not in self._watched:
            share = SHARES.get(what)
            if share is None:
                # The k-th value to appear gets 1/(k(k + 1)) of the share of all: that sums to 1 however many come.
                self._values += 1
                share = _VALUES / (self._values * (self._values + 1))
            bound = np.inf if self.period_effects == "learn" else float(self.period_effects)
            self._watched[what] = _Watched(share, Evidence(bound))
        return self._watched[what]

    def _next(self, period: Any) -> str:
        text = period_text(period)
        if self.last_period is not None and (
            text == self.last_period or sorted_periods([self.last_period, text])[-1] != text
        ):
            raise InputError(f"the period {text} does not come after {self.last_period}, which was seen before")
        return text

    # -- files ----------------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Save the evidence as JSON, whole or not at all.

        Parameters
        ----------
        path : the file.
        """
        write_json(path, self.document())

    def document(self) -> dict[str, Any]:
        """Return the evidence as JSON-able values, with a checksum."""
        document: dict[str, Any] = {
            "format": _FORMAT,
            "version": _VERSION,
            "alpha": self.alpha,
            "period_effects": self.period_effects,
            "last_period": self.last_period,
            "values": self._values,
            "served_version": self.version,
            "watched": {what: watched.state() for what, watched in self._watched.items()},
        }
        return {**document, "checksum": checksum(document)}

    @staticmethod
    def load(path: str | PathLike[str]) -> "Monitor":
        """Load a saved monitor.

        Parameters
        ----------
        path : the file that `save` wrote.

        Returns
        -------
        Monitor : as it was saved.
        """
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"there is no file {path}") from None
        except (OSError, ValueError) as error:
            raise FileFormatError(f"{path} cannot be read as a monitor ({error}); start a new one") from None
        return Monitor.of_document(document, str(path))

    @staticmethod
    def of_document(document: Any, path: str) -> "Monitor":
        """Return the monitor that `document`, with its checksum, described.

        Parameters
        ----------
        document : JSON-able values.
        path : what messages call them.
        """
        try:
            if document["format"] != _FORMAT or document["version"] != _VERSION:
                raise FileFormatError(f"{path} is not a monitor that this mcnet can read; start a new one")
            if document["checksum"] != checksum(document):
                raise FileFormatError(f"{path} was altered: its checksum does not fit; start a new one")
            monitor = Monitor(document["alpha"], document["period_effects"])
            monitor.last_period = document["last_period"]
            monitor._values = int(document["values"])
            monitor.version = document["served_version"]
            monitor._watched = {what: _Watched.restored(state) for what, state in document["watched"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FileFormatError(f"{path} cannot be read as a monitor ({error}); start a new one") from None
        return monitor


def _pcoc_interval(expected: float, positives: float, variance: float, between: float) -> tuple[float, float]:
    """Return the 95 % interval of a PCOC: noise of the labels, and the variance `between` periods of log PCOC."""
    if positives <= 0.0:
        return float(expected / -np.log(0.025)), np.inf  # Poisson: so many expected ones give none in 2.5 % of cases
    # The variance is that of served probabilities; of true ones it is as many times that as positives are of expected.
    error = np.sqrt(variance / (expected * positives) + between)
    ratio, reach = expected / positives, np.exp(1.96 * error)
    return float(ratio / reach), float(ratio * reach)


def _hypotheses(sketch: Sketch, model: Predictor | FloatArray | None) -> list[tuple[str, FloatArray, list[float]]]:
    """Return what is tested on a period: its name, its likelihood, and the sums that `_Watched` adds up."""
    if not isinstance(sketch, Sketch):
        raise InputError(f"the monitor was given {type(sketch).__name__}; make a Sketch with mcnet.scan first")
    check_total_weight(sketch.weight)
    sketch = sketch.unfolded()
    served = sketch.score if model is None else model
    probability = served if isinstance(served, np.ndarray) else predict_cells(served, sketch)
    weight, positives = sketch.weight, np.minimum(sketch.positives, sketch.weight)
    information = weight * probability * (1.0 - probability)
    parts = (positives, probability * weight, information, weight)

    def sums(codes: IndexArray, number: int) -> FloatArray:
        return np.column_stack([sums_by(codes, part, number) for part in parts])

    names, groups = ["level"], [np.sum(parts, axis=1)[None]]
    upper = upper_half(probability, weight, positives)
    if upper is not None:
        names, groups = [*names, "slope"], [*groups, upper[None]]
    values = []
    for column in sketch.contexts.columns(sketch.context):
        shown = ("(missing)" if value is None else value for value in column.values)
        of_values = sums(column.codes, len(column.values))
        values += [(f"{column.name}={value}", of) for value, of in zip(shown, of_values, strict=True) if of[3] > 0.0]
    values.sort(key=lambda value: -value[1][3])  # the first to appear get most of alpha: the largest, of any field
    names += [name for name, _ in values]
    groups += [of[None] for _, of in values]
    every = np.concatenate(groups)
    return list(zip(names, period_likelihoods(every[:, :3]), every.tolist(), strict=True))


def upper_half(probability: FloatArray, weight: FloatArray, positives: FloatArray) -> FloatArray | None:
    """Return the sums of the upper half of the scores, given how many positives the period has; None if that tells all.

    At the level that explains the positives of all rows, the halves' expected positives and information I, J leave
    those of the upper half alone an information of I J / (I + J). So what shifts all logits is no slope.
    """
    logits, total = logit(probability), float(positives.sum())
    if not 0.0 < total < float(weight.sum()):
        return None
    level = 0.0
    for _ in range(_LEVEL_STEPS):
        chance = sigmoid(logits + level)
        information = weight * chance * (1.0 - chance)
        level += float(np.clip((total - weight @ chance) / information.sum(), -1.0, 1.0))
    distinct, codes = np.unique(probability, return_inverse=True)
    own = sums_by(codes, information, len(distinct))
    upper = (np.cumsum(own) - 0.5 * own > 0.5 * own.sum())[codes]
    share = float(information[upper].sum() / information.sum())
    if not 0.0 < share < 1.0:
        return None
    parts = (positives, weight * chance, (1.0 - share) * information, weight)
    return np.array([part[upper].sum() for part in parts])
