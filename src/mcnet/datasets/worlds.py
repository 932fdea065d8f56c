"""Simulated worlds that change: streams of periods whose true probabilities are known, and late positives."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray, sigmoid
from mcnet.errors import InputError

# Simulated worlds that change: streams of periods whose true probabilities are known.
#
# In period t a row with raw logit x and field value c has the probability p with
#
#     logit p = level[t] + offset[t, c] + slope[c] · bend(x) + e[t] + e[t, c],
#
# where `bend` is a fixed rising function, and e are effects of the period and of a value within it, drawn anew in each
# period. Within a period and value p rises with the score, so perfect calibration is possible but for these effects.

WorldName = Literal[
    "still",
    "slow",
    "jump",
    "weekly",
    "one-value",
    "day-effects",
    "fast",
    "tiny",
    "many-values",
    "autoregressive",
    "rare",
]
WORLDS: tuple[WorldName, ...] = get_args(WorldName)
"""The names of the worlds."""

SPREAD_OF_LOGITS = 1.0
_QUADRATURE_POINTS = 15


@dataclass(frozen=True)
class WorldPeriod:
    """The rows of one period."""

    score: FloatArray
    field: NDArray[np.str_]
    label: NDArray[np.int8]
    probability: FloatArray
    """The probability that each label was drawn with."""
    expected: FloatArray
    """Its mean over the effects of the period: what a forecast can know at best."""


@dataclass(frozen=True)
class World:
    """A stream of periods: level, offsets and slopes move slowly or not at all; effects come and go.

    `share[c]` is the share of rows that have field value c, `period_effect` and `value_effect` are the standard
    deviations of the effects, and `mean_logit` is the mean of the raw logits.
    """

    seed: int
    rows: int
    share: FloatArray
    level: FloatArray
    offset: FloatArray
    slope: FloatArray
    period_effect: float = 0.0
    value_effect: float = 0.0
    mean_logit: float = -1.5

    @property
    def periods(self) -> int:
        """The number of periods."""
        return len(self.level)

    @property
    def values(self) -> NDArray[np.str_]:
        """The names of the field values."""
        return np.array([f"v{code}" for code in range(len(self.share))])

    def period(self, t: int, *, draw: int = 0) -> WorldPeriod:
        """Draw the rows of period t, from 0; another `draw` gives other rows with the same truth."""
        generator = np.random.default_rng([self.seed, 1 + draw, t])
        x = generator.normal(self.mean_logit, SPREAD_OF_LOGITS, self.rows)
        code = generator.choice(len(self.share), self.rows, p=self.share)
        steady = self.level[t] + self.offset[t, code] + self.slope[code] * bend(x)
        of_period = self.period_effect * generator.normal(0.0, 1.0)
        of_values = self.value_effect * generator.normal(0.0, 1.0, len(self.share))
        probability = sigmoid(steady + of_period + of_values[code])
        label = (generator.random(self.rows) < probability).astype(np.int8)
        expected = _mean_over_effects(steady, self.period_effect**2 + self.value_effect**2)
        return WorldPeriod(sigmoid(x), self.values[code], label, probability, expected)

    def with_rows(self, rows: int) -> "World":
        """Return the same world with this many rows per period."""
        return replace(self, rows=rows)


def bend(x: FloatArray) -> FloatArray:
    """Return a rising function that no line follows: its slope is between 0.7 and 1.3."""
    return np.asarray(x + 0.3 * np.sin(x), dtype=np.float64)


def _mean_over_effects(logits: FloatArray, variance: float) -> FloatArray:
    """Return the mean of sigmoid(logit + e), e normal with this variance, by Gauss–Hermite quadrature."""
    if variance == 0.0:
        return sigmoid(logits)
    nodes, weights = np.polynomial.hermite_e.hermegauss(_QUADRATURE_POINTS)
    weights = weights / weights.sum()
    parts = (w * sigmoid(logits + np.sqrt(variance) * node) for node, w in zip(nodes, weights, strict=True))
    return np.asarray(sum(parts))


def make_world(
    name: WorldName,
    seed: int = 0,
    *,
    periods: int = 100,
    rows: int = 1000,
    values: int = 8,
    jump_at: int = 60,
    jump: float = 0.7,
) -> World:
    """Make a world by its name.

    >>> world = make_world("jump", seed=1)
    >>> rows = world.period(0)
    >>> len(rows.score), bool((rows.probability > 0.0).all())
    (1000, True)
    """
    if name not in WORLDS:
        raise InputError(f"there is no world {name!r}; the worlds are {', '.join(WORLDS)}")
    generator = np.random.default_rng([seed, 0])
    mean_logit = -1.5
    if name == "tiny":
        rows = 50
    if name == "many-values":
        values, rows = 200, 4000
    if name == "rare":
        mean_logit, rows = -6.0, 20_000
    share = np.arange(1, values + 1, dtype=np.float64) ** -1.0
    share /= share.sum()
    level, offset = np.full(periods, -0.2), np.tile(generator.normal(0.0, 0.3, values), (periods, 1))
    slope = np.exp(generator.normal(0.0, 0.15, values))
    steps = generator.normal(0.0, 1.0, (periods, values + 1))
    if name in ("slow", "many-values", "tiny", "rare"):
        level = level + 0.05 * np.cumsum(steps[:, 0])
    if name == "many-values":
        offset = offset + 0.03 * np.cumsum(steps[:, 1:], axis=0)
    if name == "fast":
        level = level + _mean_reverting(steps[:, 0], 0.97)
        offset = offset + 0.3 * np.column_stack([_mean_reverting(column, 0.9) for column in steps[:, 1:].T])
    if name == "autoregressive":
        level = level + 0.5 * _mean_reverting(steps[:, 0], 0.55)
    if name == "jump":
        level[jump_at:] += jump
    if name == "weekly":
        level = level + 0.4 * np.sin(2.0 * np.pi * np.arange(periods) / 7.0)
    if name == "one-value":
        offset[:, min(1, values - 1)] += 0.15 * np.cumsum(steps[:, 0])
    period_effect, value_effect = {"day-effects": (0.5, 0.2), "rare": (0.2, 0.1)}.get(name, (0.0, 0.0))
    return World(seed, rows, share, level, offset, slope, period_effect, value_effect, mean_logit)


def _mean_reverting(steps: FloatArray, kept: float) -> FloatArray:
    """Return an autoregressive series of unit variance; `kept` is its correlation from one period to the next."""
    series = np.empty(len(steps))
    series[0] = steps[0]
    for t in range(1, len(steps)):
        series[t] = kept * series[t - 1] + np.sqrt(1.0 - kept**2) * steps[t]
    return series


# Streams whose positives arrive late: what had arrived of each period at every age.


@dataclass(frozen=True)
class DelayedWorld:
    """A simulated world whose positives arrive after an exponential delay, counted in periods from the period's end.

    Attributes
    ----------
    world : the world without delays.
    mean_delay : the mean delay, in periods.
    at_once : the share of positives that is there when the period ends.

    >>> from mcnet.datasets.worlds import make_world
    >>> delayed = DelayedWorld(make_world("still"), mean_delay=2.0)
    >>> rows = delayed.world.period(3)
    >>> bool(delayed.arrived(3, 0.0).sum() < delayed.arrived(3, 4.0).sum() <= rows.label.sum())
    True
    """

    world: World
    mean_delay: float = 2.0
    at_once: float = 0.3

    def arrived(self, t: int, age: float) -> NDArray[np.int8]:
        """Return the labels of period t as they are known `age` periods after its end."""
        rows = self.world.period(t)
        generator = np.random.default_rng([self.world.seed, 7, t])
        late = generator.random(len(rows.label)) >= self.at_once
        delay = np.where(late, generator.exponential(self.mean_delay, len(rows.label)), 0.0)
        return (rows.label * (delay <= age)).astype(np.int8)

    def period(self, t: int) -> WorldPeriod:
        """Return the rows of period t with their complete labels."""
        return self.world.period(t)
