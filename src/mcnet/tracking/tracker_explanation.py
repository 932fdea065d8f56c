"""The beliefs of a tracker, as a table and a plot."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnet._shared.math import sums_by
from mcnet._shared.typing import FloatArray
from mcnet.plots.memories import MemoryWeights, draw_memory_weights
from mcnet.plots.style import as_plotly
from mcnet.tracking.forecast import Forecast
from mcnet.tracking.learner import Learner
from mcnet.tracking.switching import candidate_names

if TYPE_CHECKING:
    import polars as pl

__all__ = ["TrackerExplanation", "explained"]

LARGEST_CHANGES_SHOWN = 5
"""Contexts whose change the text names."""


@dataclass(frozen=True)
class TrackerExplanation:
    """What a tracker believes after its last period.

    `table` is tidy, with the columns `part`, `name`, `value` and `before` (the same one period ago, where it is known):

    - memory: the mean age, in periods, of the rows that the level follows, and of those that slope and shape follow;
    - weight of curves, weight of level: the share that each memory and the base scores have in what is served;
    - belief: the probability that each candidate is the right forecast;
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
    """

    periods: int
    last_period: str | None
    learnt: str
    table: "pl.DataFrame"

    def part(self, name: str) -> dict[str, float]:
        """Return one part of the table as a mapping of names to values.

        Parameters
        ----------
        name : such as "memory" or "weight of level".
        """
        import polars as pl

        rows = self.table.filter(pl.col("part") == name)
        return dict(zip(rows["name"].to_list(), rows["value"].to_list(), strict=True))

    def plot(self) -> Any:
        """Show the weights of the memories, in the level and in slope and shape, as a Plotly figure.

        Returns
        -------
        figure : of Plotly.
        """
        curves, level = self.part("weight of curves"), self.part("weight of level")
        weights = MemoryWeights(
            tuple(curves), ("level", "slope and shape"), np.array([[*level.values()], [*curves.values()]])
        )
        return as_plotly(draw_memory_weights(weights))

    def __str__(self) -> str:
        memory, effects, belief = (self.part(name) for name in ("memory", "period effects", "belief"))
        curves = self.part("weight of curves")
        lines = [
            self.learnt,
            f"mean age of what is followed: level {memory['level']:.3g} periods, slope and shape "
            f"{memory['slope and shape']:.3g}",
            "weights of curves: " + ", ".join(f"{name} {weight:.2f}" for name, weight in curves.items()),
            "belief: " + ", ".join(f"{n} {b:.2f}" for n, b in sorted(belief.items(), key=lambda i: -i[1]) if b > 0.01),
            f"a period moves the level by {effects['level of a period']:.2f} logits, a value within it by "
            f"{effects['value within a period']:.2f} (standard deviations)",
        ]
        if "rows per independent row" in effects:
            lines.append(f"{effects['rows per independent row']:.3g} rows of the last period count as one")
        changes = self._largest_changes()
        if changes:
            lines.append("largest changes in logits: " + ", ".join(f"{n} {c:+.2f}" for n, c in changes))
        return "\n".join(lines)

    def _largest_changes(self) -> list[tuple[str, float]]:
        import polars as pl

        rows = self.table.filter((pl.col("part") == "change") & pl.col("before").is_not_null())
        changes = zip(rows["name"].to_list(), (rows["value"] - rows["before"]).to_list(), strict=True)
        return sorted(changes, key=lambda change: -abs(change[1]))[:LARGEST_CHANGES_SHOWN]

    def _repr_html_(self) -> str:
        from mcnet.plots.html import card

        rows = [line.partition(": ")[::2] for line in str(self).splitlines()[1:]]
        return card(f"Tracker: {str(self).splitlines()[0]}", [], rows)


def explained(learner: Learner) -> TrackerExplanation:
    """Return what a learner believes."""
    import polars as pl

    latest, previous = learner.forecasts[-1], learner.previous
    half_lives = [memory.half_life for memory in learner.memories[:-1]]
    candidates = candidate_names(half_lives, learner.levels)
    memories = [*(f"memory {half_life:g}" for half_life in half_lives), "everything", "base scores"]
    rows: list[tuple[str, str, float, float | None]] = []

    def add(part: str, names: list[str], now: FloatArray, before: FloatArray | None = None) -> None:
        old = [None] * len(names) if before is None else before.tolist()
        rows.extend((part, name, value, was) for name, value, was in zip(names, now.tolist(), old, strict=True))

    of_curves, of_level = _weights(latest, learner.levels)
    was_curves, was_level = (None, None) if previous is None else _weights(previous, learner.levels)
    ages = np.array([memory.age for memory in learner.memories])
    mean_ages = [_mean_age(weights, ages) for weights in (of_level, of_curves)]
    add("memory", ["level", "slope and shape"], np.array(mean_ages))
    add("weight of curves", memories, of_curves, was_curves)
    add("weight of level", memories, of_level, was_level)
    add("belief", candidates, latest.belief, None if previous is None else previous.belief)
    number = len(memories)
    add("stack", memories, latest.stack[:number], None if previous is None else previous.stack[:number])
    seasons = [f"season of {length} periods" for length in learner.seasons.lengths if length]
    expected = latest.stack[number:] * latest.seasonal
    add("season", seasons, expected[np.array(learner.seasons.lengths) > 0])
    effects = {
        "level of a period": float(np.sqrt(learner.level_spread.value)),
        "value within a period": float(np.sqrt(learner.value_spread.value)),
    }
    judged = learner.judgement
    if judged is not None:
        effects["rows per independent row"] = judged.overdispersion
    add("period effects", list(effects), np.array(list(effects.values())))
    if judged is not None and len(judged.losses) == len(candidates):
        losses = np.append(judged.served_loss, judged.losses)
        add("loss of the last period", ["served", *candidates], losses)
    add("change", *_changes(learner, latest, previous))
    schema = {"part": pl.String, "name": pl.String, "value": pl.Float64, "before": pl.Float64}
    table = pl.DataFrame(rows, schema=schema, orient="row")
    return TrackerExplanation(learner.clock.ticks, learner.clock.last, learner.clock.described(), table)


def _weights(forecast: Forecast, levels: int) -> tuple[FloatArray, FloatArray]:
    """Return the weight of each memory, then of the base scores: in the curves, and in the level."""
    curves = forecast.served[:-1]
    level = curves.copy()
    moved = forecast.belief[len(forecast.belief) - levels :]
    level[len(forecast.experts) - 1] -= moved.sum()
    level[:levels] += moved
    return curves, level


def _mean_age(weights: FloatArray, ages: FloatArray) -> float:
    """Return the mean age of the rows that weights follow; the base scores have no age."""
    of_memories = np.maximum(weights[:-1], 0.0)
    return float(of_memories @ ages / max(float(of_memories.sum()), 1e-12))


def _changes(
    learner: Learner, latest: Forecast, previous: Forecast | None
) -> tuple[list[str], FloatArray, FloatArray | None]:
    """Return contexts with the mean served logit at their recent rows, now and one period ago."""
    recent = learner.memories[0].sketch
    assert recent is not None
    weight = sums_by(recent.context, recent.weight, len(recent.contexts))

    def mean(forecast: Forecast) -> FloatArray:
        logits = forecast.of_cells(recent) @ forecast.served
        return sums_by(recent.context, recent.weight * logits, len(recent.contexts)) / np.maximum(weight, 1e-300)

    return recent.contexts.labels(), mean(latest), None if previous is None else mean(previous)
