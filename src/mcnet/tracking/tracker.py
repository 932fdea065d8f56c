"""The tracker: a calibrator for the coming period that adapts to changes over time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mcnet._shared.arrays import FloatArray, ScoreType, sums_by
from mcnet._shared.messages import warn
from mcnet.errors import InputError, NotFittedError
from mcnet.model.model import CalibrationModel
from mcnet.plots.style import as_plotly, card
from mcnet.plots.timeline import draw_memory_weights
from mcnet.rows.columns import as_array, scores_column
from mcnet.rows.fields import field_columns
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.forecast import Forecast, expert_names
from mcnet.tracking.learner import Learner
from mcnet.tracking.memories import BAYES, RESOLUTION, check_method
from mcnet.tracking.suspect import Suspect
from mcnet.tracking.value_changes import twins_of

if TYPE_CHECKING:
    import polars as pl

    from mcnet.store.journal import Journal


# The beliefs of a tracker, as a table and a plot.

LARGEST_CHANGES_SHOWN = 5
"""Contexts whose change the text names."""
TWO_SIDED_90 = 1.645
"""Standard deviations to either side that a normal distribution has 90 % of its probability in."""


@dataclass(frozen=True)
class TrackerExplanation:
    """What a tracker believes after its last period.

    `table` is tidy, with the columns `part`, `name`, `value` and `before` (the same one period ago, where it is known):

    - memory: the mean age, in periods, of the rows that the level follows, and of those that slope and shape follow;
    - weight: the share that each memory and the base scores have in what is served;
    - belief: the probability that each candidate is the right forecast;
    - values apart: the share of that belief that goes to following single field values by themselves;
    - stack: the weights inside the candidate of that name;
    - season: by how many logits the stack moves the level of the coming period for its place in the day or the week;
    - period effects: standard deviations in logits, and how many rows of the last period count as one independent row;
    - loss of the last period: the log-loss of what was served, and of each candidate;
    - change: the mean served logit of each context at its recent rows.

    Attributes
    ----------
    periods : how many periods were learnt from.
    last_period : the last of them.
    learnt : both in words.
    table : as above.
    values : one row per field value: the mean age in periods of what is followed for it (`memory`); if it moves by
        itself, since which period (`since`), by how many logits (`offset`, and the ends of its 90 % interval, `low` and
        `high`), and which values of other fields always occur with it and so cannot be told apart from it (`same_as`).
    suspects : the latest periods that were suspect when they came: the likely cause, and what became of each.
    """

    periods: int
    last_period: str | None
    learnt: str
    table: "pl.DataFrame"
    values: "pl.DataFrame"
    suspects: tuple[Suspect, ...] = ()

    def part(self, name: str) -> dict[str, float]:
        """Return one part of the table as a mapping of names to values.

        Parameters
        ----------
        name : such as "memory" or "weight".
        """
        import polars as pl

        rows = self.table.filter(pl.col("part") == name)
        return dict(zip(rows["name"].to_list(), rows["value"].to_list(), strict=True))

    def plot(self) -> Any:
        """Show the weights of the memories as a Plotly figure.

        Returns
        -------
        figure : of Plotly.
        """
        weights = self.part("weight")
        return as_plotly(draw_memory_weights(list(weights), {"weight": [*weights.values()]}))

    def __str__(self) -> str:
        memory, effects, belief = (self.part(name) for name in ("memory", "period effects", "belief"))
        lines = [
            self.learnt,
            f"mean age of what is followed: level {memory['level']:.3g} periods, slope and shape "
            f"{memory['slope and shape']:.3g}",
            "weights: " + ", ".join(f"{name} {weight:.2f}" for name, weight in self.part("weight").items()),
            "belief: " + ", ".join(f"{n} {b:.2f}" for n, b in sorted(belief.items(), key=lambda i: -i[1]) if b > 0.01),
            f"effects of a period: it moves the level by {effects['level of a period']:.2f} logits, a value within it "
            f"by {effects['value within a period']:.2f} (standard deviations)",
        ]
        if "rows per independent row" in effects:
            lines.append(
                f"independent rows: {effects['rows per independent row']:.3g} rows of the last period count as one"
            )
        apart = self._moving()
        if apart:
            lines.append("moving by themselves: " + "; ".join(apart))
        lines += [f"suspect: {one.named}, {one.state}: {one.cause}" for one in self.suspects[-LARGEST_CHANGES_SHOWN:]]
        changes = self._largest_changes()
        if changes:
            lines.append("largest changes in logits: " + ", ".join(f"{n} {c:+.2f}" for n, c in changes))
        return "\n".join(lines)

    def _moving(self) -> list[str]:
        """Return the values that move by themselves, the furthest first, in words."""
        import polars as pl

        rows = self.values.filter(pl.col("since").is_not_null()).sort(pl.col("offset").abs(), descending=True)
        return [
            f"{row['field']}={row['value']} since {row['since']} by {row['offset']:+.2f} logits "
            f"({row['low']:+.2f} … {row['high']:+.2f})"
            + f", mean age {row['memory']:.3g} periods"
            + (f", or {row['same_as']}, which cannot be told apart from it" if row["same_as"] else "")
            for row in rows.head(LARGEST_CHANGES_SHOWN).to_dicts()
        ]

    def _largest_changes(self) -> list[tuple[str, float]]:
        import polars as pl

        rows = self.table.filter((pl.col("part") == "change") & pl.col("before").is_not_null())
        changes = zip(rows["name"].to_list(), (rows["value"] - rows["before"]).to_list(), strict=True)
        return sorted(changes, key=lambda change: -abs(change[1]))[:LARGEST_CHANGES_SHOWN]

    def _repr_html_(self) -> str:
        rows = [line.partition(": ")[::2] for line in str(self).splitlines()[1:]]
        return card(f"Tracker: {str(self).splitlines()[0]}", [], rows)


def explained(learner: Learner) -> TrackerExplanation:
    """Return what a learner believes."""
    import polars as pl

    latest, previous, judged = learner.forecasts[-1], learner.previous, learner.judgement
    before = None if previous is None or len(previous.experts) < len(latest.experts) else previous
    experts, names = expert_names(learner.half_lives), [candidate.name for candidate in learner.candidates]
    rows: list[tuple[str, str, float, float | None]] = []

    def add(part: str, now: Mapping[str, float], was: Mapping[str, float] | None = None) -> None:
        rows.extend((part, name, value, None if was is None else was[name]) for name, value in now.items())

    def add_both(part: str, told: Callable[[Forecast], Mapping[str, float]]) -> None:
        add(part, told(latest), None if before is None else told(before))

    def belief(forecast: Forecast) -> dict[str, float]:
        pairs = [*zip(names, forecast.belief.tolist(), strict=True)]
        return {name: sum(share for other, share in pairs if other == name) for name in names}

    add("memory", dict(zip(("level", "slope and shape"), learner.followed_ages(), strict=True)))
    add_both("weight", lambda forecast: dict(zip(experts, forecast.memory_weights.tolist(), strict=True)))
    add_both("belief", belief)
    add("values apart", {"share of belief": float(latest.offset_weights.sum())})
    add_both("stack", lambda forecast: dict(zip(experts, forecast.stack.tolist(), strict=False)))
    expected = latest.stack[len(experts) :] * latest.seasonal
    seasons = zip(learner.seasons.lengths, expected.tolist(), strict=True)
    add("season", {f"season of {length} periods": offset for length, offset in seasons if length})
    spreads = learner.effects.level_spread, learner.effects.value_spread
    of_level, of_values = (float(np.sqrt(spread.value)) for spread in spreads)
    add("period effects", {"level of a period": of_level, "value within a period": of_values})
    if judged is not None:
        add("period effects", {"rows per independent row": judged.overdispersion})
        add("loss of the last period", {"served": judged.served_loss, **judged.losses})
    recent = learner.memories[0].sketch
    assert recent is not None
    add_both("change", lambda forecast: _mean_logits(forecast, recent))
    schema = {"part": pl.String, "name": pl.String, "value": pl.Float64, "before": pl.Float64}
    table = pl.DataFrame(rows, schema=schema, orient="row")
    told = learner.clock.ticks, learner.clock.last, learner.clock.described()
    return TrackerExplanation(*told, table, followed_values(learner), tuple(learner.look.suspects))


def _mean_logits(forecast: Forecast, rows: Sketch) -> dict[str, float]:
    """Return the mean served logit of each context at some rows."""
    number, logits = len(rows.contexts), forecast.of_cells(rows) @ forecast.served
    weight, total = (sums_by(rows.context, part, number) for part in (rows.weight, rows.weight * logits))
    return dict(zip(rows.contexts.labels(), (total / np.maximum(weight, 1e-300)).tolist(), strict=True))


def followed_values(learner: Learner) -> "pl.DataFrame":
    """Return what is followed for each field value, as `TrackerExplanation.values` has it."""
    import polars as pl

    age, _ = learner.followed_ages()
    changes, weight = learner.changes, learner.forecasts[-1].offset_weights
    rows = []
    for number, (name, index) in enumerate(zip(changes.names, changes.values, strict=True)):
        moved, run = (weight @ part for part in changes.runs[number].moved())
        mean, variance = (weight @ part for part in changes.runs[number].served())
        others = [other for other in range(len(changes.names)) if other != number]
        twins = [twins_of(learner.contexts, number, other) for other in others]
        reach = TWO_SIDED_90 * np.sqrt(variance)
        ages = age + np.minimum(run / 2.0 - moved * age, 0.0)
        for code, value in enumerate(index):
            since = changes.since.get(f"{name}={value}") if moved[code] > 0.5 else None
            shown: tuple[float | str | None, ...] = (None, None, None, None)
            if since is not None:
                offset, width = float(mean[code]), float(reach[code])
                place = learner.contexts.values[number].index(value)
                pairs = [(other, codes[place]) for other, codes in zip(others, twins, strict=True) if codes[place] >= 0]
                same = ", ".join(f"{changes.names[o]}={learner.contexts.values[o][code]}" for o, code in pairs)
                shown = (offset, offset - width, offset + width, same or None)
            rows.append((name, value, float(ages[code]), since, *shown))
    numbers = dict.fromkeys(("offset", "low", "high"), pl.Float64)
    text = dict.fromkeys(("field", "value"), pl.String)
    schema = {**text, "memory": pl.Float64, "since": pl.String, **numbers, "same_as": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


# The tracker: a calibrator for the coming period that adapts to changes over time.


class Tracker:
    """Calibrates the scores of the coming period from the labels of the periods so far.

    Curves are fitted to several memories at once, from half a period to everything. Each period first judges what was
    forecast for it: how the memories are best weighted, whether the world moved, and how much one period differs from
    another; then it is learnt from. Rows of one period are not taken for independent. Nothing has to be set.

    Parameters
    ----------
    method : the calibrator that is fitted to each memory, by its name in the registry; one that keeps the order of
        scores.
    memories : half-lives in periods; None for ½, 2, 8, 32, and four times as long whenever the stream has become long
        enough. Everything, without forgetting, is always one more.
    delay : after how many further periods the labels of a period are known. A period is judged by the forecast that was
        made from what was known then.

    >>> rng = np.random.default_rng(0)
    >>> tracker = Tracker()
    >>> for day in range(1, 8):
    ...     score = rng.uniform(0.05, 0.3, 2000)
    ...     label = rng.random(2000) < 0.5 * score
    ...     tracker = tracker.update(score, label, period=f"2026-11-{day:02}")
    >>> tracker
    Tracker(7 periods until 2026-11-07, no field)
    >>> tracker.predict([0.1, 0.2]).round(2)
    array([0.05, 0.1 ])
    """

    def __init__(self, *, method: str = BAYES, memories: Sequence[float] | None = None, delay: int = 0) -> None:
        """Check the parameters and start without any knowledge."""
        check_method(method)
        if isinstance(delay, bool) or not isinstance(delay, int | np.integer) or delay < 0:
            raise InputError(f"delay is {delay!r}; it must be a whole number of periods, 0 or more")
        self.method = method
        self.memories = None if memories is None else _half_lives(memories)
        self.delay = int(delay)
        self._learner = Learner(method, self.memories, self.delay)
        self._curves_made = 0
        """How many curves were compiled for rows to be predicted, since the last update."""

    def __repr__(self) -> str:
        learner = self._learner
        if not learner.clock.ticks:
            return "Tracker(no period yet)"
        return f"Tracker({learner.clock.described()}, {learner.contexts.described()})"

    def _repr_html_(self) -> str:
        if self._learner.clock.ticks:
            return self.explain()._repr_html_()
        return card("Tracker: no period yet", [], [])

    # -- learning -----------------------------------------------------------------------------------------------------

    def update(
        self,
        scores: Any,
        labels: Any = None,
        *misplaced: Any,
        field: Any = None,
        weight: Any = None,
        period: Any = None,
        score_type: ScoreType = "probability",
        negatives_kept: float = 1.0,
        look: bool = True,
    ) -> Self:
        """Learn from the rows of a period.

        Parameters
        ----------
        scores, labels, field, weight, score_type, negatives_kept : as in `Sketch.from_rows`.
        period : a moment, a date, a whole number, or a label that sorts, after all periods so far. Periods that a gap
            has left out move the seasons and widen the intervals; what was learnt before is not forgotten by them.
            None, if no period has a name.
        look : look at the period first: one whose labels, scores or rows are suspect is kept and not learnt, with a
            warning, until two further periods agree with it or `release` is called. False learns whatever comes.

        Returns
        -------
        self : the tracker.
        """
        if isinstance(scores, Sketch):
            raise InputError("update was given a sketch; pass it to update_sketch")
        if misplaced or labels is None:
            raise InputError("update takes scores and labels by position; name the rest: field=…, weight=…, period=…")
        if len(as_array(scores, "score")) == 0:
            return self._skip(self._learner.clock.check(period))
        if self._learner.contexts.derived and field is not None:
            field = self._learner.contexts.given(field)  # numbers are cut as in the first period
        sketch = Sketch.from_rows(
            scores,
            labels,
            field=field,
            weight=weight,
            resolution=RESOLUTION,
            score_type=score_type,
            negatives_kept=negatives_kept,
        )
        return self.update_sketch(sketch, period, look=look)

    def update_sketch(self, sketch: Sketch, period: Any = None, *, look: bool = True) -> Self:
        """Learn from the rows of a period, given as a sketch; a sketch without rows is a period without any.

        Parameters
        ----------
        sketch : the rows of the period.
        period, look : as in `update`.

        Returns
        -------
        self : the tracker.
        """
        if not isinstance(sketch, Sketch):
            raise InputError(f"update_sketch was given {type(sketch).__name__}; make a Sketch with mcnet.scan first")
        text = self._learner.clock.check(period)
        if len(sketch) == 0:
            return self._skip(text)
        learner = self._learner.copied()
        suspect = learner.learn(sketch, text, look=look)
        self._become(learner)
        if suspect is not None:
            hint = f"; Tracker.release({suspect.period or ''!r}) learns it all the same" if learner.look.waiting else ""
            warn(learner.look.told(suspect) + hint)
        return self

    def release(self, period: Any = None) -> Self:
        """Learn a period that was suspect, and so was kept and not learnt.

        One that came after the last period learnt is learnt in its order. Of an earlier one the rows are added to the
        memories; a tracker that follows a journal is better released there: `Journal.release`.

        Parameters
        ----------
        period : as it was given to `update`; None for the last one of a tracker whose periods have no names.

        Returns
        -------
        self : the tracker.
        """
        learner = self._learner.copied()
        learner.release(period)
        return self._become(learner)

    @property
    def suspects(self) -> list[Suspect]:
        """The latest periods that were suspect when they came: the likely cause, and what became of each."""
        return list(self._learner.look.suspects)

    def follow(self, journal: "Journal") -> Self:
        """Learn from the periods that a journal has beyond the last one learnt; afterwards be as if replayed from it.

        If rows of an earlier period were added to the journal, replaced or removed since, all periods are learnt anew,
        in their order. Sources that were merged by compacting count as changed.

        Parameters
        ----------
        journal : the periods.

        Returns
        -------
        self : the tracker.
        """
        from mcnet.tracking.tracker_file import follow_journal

        learner = self._learner.copied()
        return self._become(follow_journal(journal, learner, lambda: Learner(self.method, self.memories, self.delay)))

    @classmethod
    def from_journal(cls, journal: "Journal", **parameters: Any) -> Self:
        """Return a tracker that has learnt from every period of a journal, in their order.

        Parameters
        ----------
        journal : the periods.
        parameters : of the constructor.

        Returns
        -------
        Tracker : ready for the period after the last.
        """
        return cls(**parameters).follow(journal)

    # -- serving ------------------------------------------------------------------------------------------------------

    @property
    def model_(self) -> CalibrationModel:
        """The model for the next period: plain curves, to save, export and serve as any other."""
        if not self._learner.forecasts:
            raise NotFittedError("this Tracker has seen no labels yet; call update first")
        return self._compiled

    @cached_property
    def _compiled(self) -> CalibrationModel:
        return self._learner.model()

    def _skip(self, period: str | None) -> Self:
        self._learner.skip(period)
        return self._become(self._learner)

    def _become(self, learner: Learner) -> Self:
        """Take over what was learnt, and forget the curves of before."""
        self._learner = learner
        self.__dict__.pop("_compiled", None)
        self._curves_made = 0
        return self

    def _model_for(self, scores: Any, field: Any) -> CalibrationModel:
        """Return the model with the curves that rows need, or the whole one once as many have been made as it has."""
        if "_compiled" in vars(self) or field is None or np.ndim(scores) == 0 or not self._learner.contexts.names:
            return self.model_
        contexts = self._learner.served_contexts
        needed = np.unique(contexts.lookup(contexts.given(field)))
        self._curves_made += len(needed)
        return self.model_ if self._curves_made > len(contexts) else self._learner.model(needed[needed >= 0])

    def predict(self, scores: Any, field: Any = None, *, score_type: ScoreType | None = None) -> FloatArray:
        """Return the probability of each row of the coming period: what `model_` gives, to rounding.

        Before any label that is the score itself. Of very many contexts only those of the rows get a curve, until as
        many have been asked for as there are.

        Parameters
        ----------
        scores, field, score_type : as in `Calibrator.predict`.

        Returns
        -------
        array : one probability per score.
        """
        if not self._learner.forecasts:
            score = scores_column(scores, score_type=score_type or "probability")
            if field is not None:
                field_columns(field)
            return score
        return self._model_for(scores, field).predict(scores, field, score_type=score_type)

    def interval(
        self, scores: Any, field: Any = None, level: float = 0.9, *, score_type: ScoreType | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return an interval for the rate of the coming period at each score: (low, high).

        It includes the uncertainty of the curves and what a period may change: how far the level of a period, and of a
        field value within it, has been from its forecast. It is not that of a single click. Both ends rise with the
        score, and what `predict` gives lies between them. `model_` has the same intervals, also once it is saved. A
        method that tells no uncertainty of its curves has intervals of what a period may change alone, and warns.

        Parameters
        ----------
        scores, field, score_type : as in `predict`.
        level : the probability that the interval includes the rate.

        Returns
        -------
        tuple[array, array] : the lower and the upper end at each score.
        """
        found = self.model_.interval(scores, field, level, score_type=score_type)
        if self.method != BAYES:
            warn(
                f"the intervals of a tracker of {self.method} include what a period may change, but not the "
                "uncertainty of its curves, which that method does not estimate; Tracker() includes both"
            )
        return found

    def plot(self, field: Any = None) -> Any:
        """Show the curves for the coming period as a Plotly figure.

        Parameters
        ----------
        field : a field value, or a mapping of names to values; None for the largest contexts.

        Returns
        -------
        figure : of Plotly.
        """
        return self.model_.plot(field)

    # -- belief and files ---------------------------------------------------------------------------------------------

    def explain(self) -> "TrackerExplanation":
        """Return what the tracker believes: memories, weights, effects of periods, and what changed last."""
        if not self._learner.forecasts:
            raise NotFittedError("this Tracker has seen no labels yet; call update first")
        return explained(self._learner)

    def save(self, folder: str | PathLike[str]) -> None:
        """Save everything that is needed to go on, whole or not at all: a JSON file and a sketch per memory.

        Parameters
        ----------
        folder : where; one that has a tracker is replaced.
        """
        from mcnet.tracking.tracker_file import save_tracker

        save_tracker(self._learner, folder)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Load a saved tracker; files that were altered or damaged are refused.

        Parameters
        ----------
        folder : where `save` wrote it.

        Returns
        -------
        Tracker : as it was saved.
        """
        from mcnet.tracking.tracker_file import load_tracker

        learner = load_tracker(folder)
        tracker = cls(method=learner.method, memories=learner.given_memories, delay=learner.delay)
        tracker._learner = learner
        return tracker


def _half_lives(memories: Sequence[float]) -> tuple[float, ...]:
    """Return half-lives in order; everything, which needs no mention, is left out."""
    try:
        given = sorted({float(half_life) for half_life in memories})
    except (TypeError, ValueError):
        given = [0.0]
    if not all(half_life > 0.0 for half_life in given):
        raise InputError(f"memories is {memories!r}; it must be a list of half-lives in periods, each above 0")
    return tuple(half_life for half_life in given if np.isfinite(half_life))
