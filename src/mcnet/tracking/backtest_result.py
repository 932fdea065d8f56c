"""What a backtest found, as tidy tables with intervals over periods."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnet._shared.arrays import FloatArray
from mcnet._shared.messages import aligned, counted
from mcnet.metrics.calibration_error import group_pcoc
from mcnet.metrics.sums import GroupSums
from mcnet.rows.periods import shown_periods
from mcnet.tracking.backtest_run import TRACKER, Record

if TYPE_CHECKING:
    import polars as pl


# Intervals over periods: rows of one period are not independent, and neither are neighbouring periods.

REPLICATES = 1000
_CHUNK = 100


def block_bootstrap(
    sums: FloatArray, weight: FloatArray, *, level: float = 0.95, seed: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Return percentile intervals of the ratios Σ sums / Σ weight, periods drawn in blocks of neighbours.

    The blocks of the circular block bootstrap have n^(1/3) periods. Every ratio (a row of `sums`) sees the same draws,
    so an interval of differences is paired. The ends are NaN for fewer than two periods.

    >>> low, high = block_bootstrap(np.array([[1.0, 2.0, 3.0, 2.0]]), np.ones(4))
    >>> bool(1.0 <= low[0] < 2.0 < high[0] <= 3.0)
    True
    """
    number = len(weight)
    if number < 2:
        return np.full(len(sums), np.nan), np.full(len(sums), np.nan)
    length = max(1, round(number ** (1.0 / 3.0)))
    blocks = -(-number // length)
    rng = np.random.default_rng(seed)
    values = []
    for _ in range(REPLICATES // _CHUNK):
        starts = rng.integers(0, number, (_CHUNK, blocks))
        drawn = ((starts[:, :, None] + np.arange(length)) % number).reshape(_CHUNK, -1)[:, :number]
        times = np.stack([np.bincount(one, minlength=number) for one in drawn]).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            values.append((times @ sums.T) / (times @ weight)[:, None])
    found = np.concatenate(values)
    with np.errstate(invalid="ignore"):
        low, high = np.quantile(found, [0.5 - level / 2.0, 0.5 + level / 2.0], axis=0)
    return low, high


# What a backtest found, as tidy tables.


@dataclass(frozen=True)
class Backtest:
    """Forecasters compared period by period, each predicted from earlier periods alone.

    Tables are tidy Polars tables:

    - `by_period`: for each period and forecaster `method`, `memory`, `rows`, `weight`, `positives`, the `expected`
      positives, `log_loss`, `pcoc` with `pcoc_low` and `pcoc_high` (rows taken as independent), and `f_rce` where there
      is a field;
    - `summary`: for each forecaster, the best first, `log_loss` with its interval, `difference` to the tracker
      (positive: worse than the tracker) with its interval, `pcoc` with its interval, `f_rce` (the mean over periods),
      and `failures`, the number of fits that failed. Intervals are those of a block bootstrap over periods;
    - `regret`: for each period and forecaster the mean log-loss so far, and its `regret`: how far that is above the
      best of all forecasters but the tracker so far. A tracker below zero is better than the best in hindsight;
    - `values`: for each period and field value (the 50 largest) weight, positives, and the positives that the base
      scores and the tracker expected;
    - `beliefs`: for each period what the tracker believed: its memory, the weights of memories, the effects of periods.

    Attributes
    ----------
    by_period, values, beliefs : tables, as above.
    failures : how many fits failed, by forecaster.
    fields, seed : the fields that were used; of the bootstrap.
    """

    by_period: "pl.DataFrame"
    values: "pl.DataFrame"
    beliefs: "pl.DataFrame"
    failures: dict[str, int]
    delay: int
    """In periods."""
    fields: tuple[str, ...]
    level: float = 0.95
    """The level of all intervals."""
    seed: int = 0

    @cached_property
    def periods(self) -> list[str]:
        """The periods that were judged, in order."""
        return self.by_period["period"].unique(maintain_order=True).to_list()

    @cached_property
    def forecasters(self) -> list[str]:
        """The names of all forecasters: the base scores, the tracker, then each method with each memory."""
        return self.by_period["forecaster"].unique(maintain_order=True).to_list()

    def matrix(self, name: str) -> FloatArray:
        """Return a column of `by_period` as a matrix: a row per forecaster, as `forecasters` has them, by period.

        Parameters
        ----------
        name : the column.
        """
        column = self.by_period[name].to_numpy().astype(np.float64)
        return column.reshape(len(self.periods), len(self.forecasters)).T

    @cached_property
    def _cumulative(self) -> FloatArray:
        """The mean log-loss of each forecaster (rows) up to each period (columns)."""
        weight = self.matrix("weight")
        return np.cumsum(self.matrix("log_loss") * weight, axis=1) / np.cumsum(weight, axis=1)

    @property
    def _others(self) -> list[int]:
        return [place for place, name in enumerate(self.forecasters) if name != TRACKER]

    @property
    def best(self) -> str:
        """The best forecaster in hindsight, the tracker left out."""
        return self.forecasters[min(self._others, key=lambda place: float(self._cumulative[place, -1]))]

    @property
    def tracker_regret(self) -> float:
        """The mean log-loss of the tracker above that of the best in hindsight; below zero if it is better."""
        tracker, best = (self._cumulative[self.forecasters.index(name), -1] for name in (TRACKER, self.best))
        return float(tracker - best)

    @cached_property
    def summary(self) -> "pl.DataFrame":
        """One row per forecaster, the best first."""
        import polars as pl

        losses = self.matrix("log_loss") * self.matrix("weight")
        expected, weight, positives = self.matrix("expected"), self.matrix("weight")[0], self.matrix("positives")[0]
        errors = self.matrix("f_rce") * weight if self.fields else np.full(losses.shape, np.nan)
        gaps = losses - losses[self.forecasters.index(TRACKER)]
        table = self.by_period.head(len(self.forecasters)).select("forecaster", "method", "memory")
        ratios = (("log_loss", losses, weight), ("difference", gaps, weight), ("pcoc", expected, positives))
        for name, sums, over in ratios:
            with np.errstate(divide="ignore", invalid="ignore"):
                value = sums.sum(axis=1) / over.sum()
            low, high = block_bootstrap(sums, over, level=self.level, seed=self.seed)
            table = table.with_columns(**{name: value, f"{name}_low": low, f"{name}_high": high})
        table = table.with_columns(
            f_rce=errors.sum(axis=1) / weight.sum(),
            failures=pl.Series([self.failures.get(name, 0) for name in self.forecasters]),
        )
        table = table.with_columns(pl.when(pl.col(pl.Float64).is_finite()).then(pl.col(pl.Float64)))
        return table.sort("log_loss", maintain_order=True)

    @cached_property
    def regret(self) -> "pl.DataFrame":
        """One row per period and forecaster: the mean log-loss so far, above the best of the others so far."""
        import polars as pl

        best = self._cumulative[self._others].min(axis=0)
        return self.by_period.select("period", "forecaster").with_columns(
            pl.Series("log_loss_so_far", self._cumulative.T.ravel()),
            pl.Series("regret", (self._cumulative - best).T.ravel()),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able values."""
        return {
            "first_period": self.periods[0],
            "last_period": self.periods[-1],
            "periods": len(self.periods),
            "rows": int(self.by_period["rows"].sum()) // len(self.forecasters),
            "delay": self.delay,
            "fields": list(self.fields),
            "level": self.level,
            "best_in_hindsight": self.best,
            "tracker_regret": self.tracker_regret,
            "summary": self.summary.to_dicts(),
            "by_period": self.by_period.drop("expected").to_dicts(),
        }

    def lines(self) -> list[tuple[str, ...]]:
        """Return a line of words for each forecaster, the best first, below a line of headings."""
        errors = ("F-RCE",) if self.fields else ()
        lines: list[tuple[str, ...]] = [("forecaster", "log-loss", "over the tracker ×10⁻⁵", "PCOC", *errors)]
        for row in self.summary.to_dicts():
            gap = "–"
            if row["forecaster"] != TRACKER:
                gap = _interval(1e5 * row["difference"], row["difference_low"], row["difference_high"])
            figures = [f"{row['log_loss']:.5f}", gap, "–" if row["pcoc"] is None else f"{row['pcoc']:.3f}"]
            name = f"{row['forecaster']} ←" if row["forecaster"] == TRACKER else row["forecaster"]
            lines.append((name, *figures, *((f"{row['f_rce']:.4f}",) if self.fields else ())))
        return lines

    def conclusion(self) -> str:
        """Return what came out, in a sentence or two."""
        regret = self.tracker_regret
        against = f"the best in hindsight ({self.best})"
        better = f"is better than {against} by" if regret < 0.0 else f"has a regret to {against} of"
        late = f", labels known {counted(self.delay, 'period')} late" if self.delay else ""
        periods = shown_periods(self.periods)
        return (
            f"{counted(len(periods), 'period')}, {periods[0]} to {periods[-1]}{late}. "
            f"The tracker {better} {1e5 * abs(regret):.1f}×10⁻⁵."
        )

    def __str__(self) -> str:
        return f"{self.conclusion()}\n\n{aligned(self.lines())}"

    def _repr_html_(self) -> str:
        from mcnet.plots.style import card

        headings, *rows = self.lines()
        return card(f"Backtest: {self.conclusion()}", list(headings), [list(row) for row in rows])


def _interval(value: float, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return f"{value:+.1f}"
    return f"{value:+.1f} ({1e5 * low:+.1f} … {1e5 * high:+.1f})"


def backtest_of(
    record: Record, failures: dict[str, int], *, delay: int, fields: tuple[str, ...], level: float, seed: int
) -> Backtest:
    """Return the result of a run from what it has recorded."""
    import polars as pl

    table = pl.DataFrame(record.figures, infer_schema_length=None)
    moments = ("weight", "positives", "expected", "expected_squared", "expected_positive")
    pcoc, low, high = group_pcoc(GroupSums(*(table[name].to_numpy() for name in moments)), level=level)
    names = [name.rpartition(", ") for name in table["forecaster"]]
    table = table.select(
        "period",
        "forecaster",
        pl.Series("method", [method or name for method, _, name in names]),
        pl.Series("memory", [memory if method else None for method, _, memory in names], pl.String),
        pl.col("rows", "weight", "positives", "expected", "log_loss"),
        pl.Series("pcoc", pcoc),
        pl.Series("pcoc_low", low),
        pl.Series("pcoc_high", high),
        pl.col("f_rce").cast(pl.Float64),
    )
    table = table.with_columns(pl.when(pl.col(pl.Float64).is_finite()).then(pl.col(pl.Float64)))
    texts, counts = ("period", "field", "value"), ("weight", "positives", "base_expected", "tracker_expected")
    of_values = dict.fromkeys(texts, pl.String) | dict.fromkeys(counts, pl.Float64)
    of_beliefs = dict.fromkeys(("period", "part", "name"), pl.String) | {"value": pl.Float64}
    values, beliefs = pl.DataFrame(record.values, of_values), pl.DataFrame(record.beliefs, of_beliefs)
    return Backtest(table, values, beliefs, failures, delay, fields, level, seed)
