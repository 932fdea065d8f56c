"""The page of a backtest and its figures."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnet._shared.arrays import FloatArray
from mcnet._shared.messages import Figure, count, counted, figure, with_interval
from mcnet.metrics.intervals import two_sided
from mcnet.plots.style import Spec
from mcnet.plots.timeline import Drift, Timeline, draw_drift, draw_shares, draw_timeline
from mcnet.report.page import figures_alone, write_page
from mcnet.rows.periods import shown_periods
from mcnet.tracking.backtest_result import Backtest
from mcnet.tracking.backtest_run import BASE, TRACKER

if TYPE_CHECKING:
    import polars as pl

# Figures of a backtest: regret, PCOC, memory and weights over time, PCOC of each field value.

MOST_POINTS = 200
"""Longer runs are drawn by blocks of periods, so that whiskers do not overlap."""
MOST_LINES = 8
"""Forecasters in the figure of regret."""
MOST_VALUES = 60
"""Field values that can be looked at, the largest."""


def _names(periods: Sequence[str]) -> tuple[str, ...]:
    """Return periods as an axis of dates writes them."""
    return tuple(period.replace("T", " ") for period in periods)


def shown_forecasters(backtest: Backtest) -> list[str]:
    """Return who is in the figure of regret: the tracker, the best in hindsight, the base scores, then the best others.

    Of each method its best memory comes first, then its fit "once", since that is what most people do.
    """
    summary = backtest.summary.to_dicts()
    names = [row["forecaster"] for row in summary]
    best_of: dict[str, str] = {}
    for row in summary:
        best_of.setdefault(row["method"], row["forecaster"])
    usual = [row["forecaster"] for row in summary if row["memory"] in ("once", "everything")]
    return list(dict.fromkeys([TRACKER, backtest.best, BASE, *best_of.values(), *usual, *names]))[:MOST_LINES]


def regret_figure(backtest: Backtest) -> Spec:
    """Draw the losses summed up over time, beside the best in hindsight, in units of the final mean log-loss."""
    shown = shown_forecasters(backtest)
    indices = [backtest.forecasters.index(name) for name in shown]
    weight = backtest.matrix("weight")
    losses = backtest.matrix("log_loss") * weight
    best = losses[backtest.forecasters.index(backtest.best)]
    excess = np.cumsum(losses[indices] - best, axis=1) / weight[0].sum()
    timeline = Timeline(_names(backtest.periods), tuple(shown), excess)
    return draw_timeline(timeline, "log-loss above the best", main=[TRACKER], zero=True, hover="+.5f")


def pcoc_figure(backtest: Backtest) -> Spec:
    """Draw PCOC per period of the base scores and the tracker, with intervals."""
    rows = [backtest.forecasters.index(name) for name in (BASE, TRACKER)]
    expected, positives, weight = (backtest.matrix(name)[rows] for name in ("expected", "positives", "weight"))
    low, high = (backtest.matrix(name)[rows] for name in ("pcoc_low", "pcoc_high"))
    with np.errstate(divide="ignore", invalid="ignore"):
        deviation = np.log(high / low) / (2.0 * two_sided(backtest.level))
    return draw_drift(_drift(backtest.periods, expected, positives[0], weight[0], deviation, backtest.level))


def _drift(
    periods: Sequence[str],
    expected: FloatArray,
    positives: FloatArray,
    weight: FloatArray,
    deviation: FloatArray,
    level: float,
) -> Drift:
    """Return PCOC by period, or by block of periods; `deviation` is that of the logarithm of each PCOC."""
    blocks = np.arange(len(periods)) * min(len(periods), MOST_POINTS) // max(len(periods), 1)
    starts = np.flatnonzero(np.diff(blocks, prepend=-1))
    observed = np.add.reduceat(positives, starts)
    known = np.where(np.isfinite(deviation), deviation, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        pcoc = np.add.reduceat(expected, starts, axis=1) / observed
        together = np.sqrt(np.add.reduceat((known * positives) ** 2, starts, axis=1)) / observed
        reach = np.exp(two_sided(level) * together)
        low, high = pcoc / reach, pcoc * reach
    pcoc = np.where(observed > 0.0, pcoc, np.nan)
    named = _names([periods[start] for start in starts.tolist()])
    return Drift(named, (BASE, TRACKER), pcoc, low, high, np.add.reduceat(weight, starts))


def memory_figure(backtest: Backtest) -> Spec | None:
    """Draw the mean age of the rows that the tracker follows; None if it does not tell."""
    timeline = _belief(backtest, "memory")
    return None if timeline is None else draw_timeline(timeline, "mean age in periods", logarithmic=True)


def weights_figure(backtest: Backtest) -> Spec | None:
    """Draw the weight of each memory in the tracker's curves; None if it does not tell."""
    timeline = _belief(backtest, "weight")
    return None if timeline is None else draw_shares(timeline, "weight in the curves")


def _belief(backtest: Backtest, part: str) -> Timeline | None:
    rows = backtest.beliefs.filter(backtest.beliefs["part"] == part)
    if rows.is_empty():
        return None
    table = rows.pivot("name", index="period", values="value", maintain_order=True)
    names = [name for name in table.columns if name != "period"]
    # A long run has more points than a screen.
    step = max(1, len(table) // (5 * MOST_POINTS))
    table = table.gather_every(step)
    order = sorted(names, key=_length)
    values = np.stack([table[name].fill_null(0.0).to_numpy() for name in order])
    return Timeline(_names(table["period"].to_list()), tuple(order), values)


def _length(name: str) -> float:
    """Return the half-life in the name of a memory: everything after the longest, the base scores last."""
    head, _, number = name.rpartition(" ")
    if head == "memory":
        return float(number)
    return np.inf if name == "base scores" else 1e300


def value_figures(backtest: Backtest) -> list[tuple[str, str, float, Spec]]:
    """Return (field, value, weight, figure of PCOC per period) for the largest field values."""
    if backtest.values.is_empty():
        return []
    import polars as pl

    totals = backtest.values.group_by("field", "value", maintain_order=True).agg(pl.col("weight").sum())
    largest = totals.sort("weight", descending=True, maintain_order=True).head(MOST_VALUES)
    parts = backtest.values.partition_by("field", "value", as_dict=True, maintain_order=True)
    return [
        (field, value, weight, draw_drift(_drift_of_value(parts[field, value], backtest.level)))
        for field, value, weight in largest.rows()
    ]


def _drift_of_value(rows: "pl.DataFrame", level: float) -> Drift:
    weight, positives = (rows[name].to_numpy() for name in ("weight", "positives"))
    expected = np.stack([rows[name].to_numpy() for name in ("base_expected", "tracker_expected")])
    with np.errstate(divide="ignore", invalid="ignore"):
        deviation = np.sqrt((1.0 - positives / weight) / positives)
    return _drift(rows["period"].to_list(), expected, positives, weight, np.stack([deviation, deviation]), level)


# The report of a backtest: one HTML page that needs nothing but a browser.


def write_backtest_report(path: str | PathLike[str], backtest: Backtest, *, title: str | None = None) -> Path:
    """Write a backtest as one self-contained HTML page.

    The page has the comparison, and over time regret, PCOC, the tracker's memory and weights, and the PCOC of each
    field value.

    Parameters
    ----------
    path : the file to write; it appears complete or not at all.
    backtest : what `mcnet.backtest` returned.
    title : the heading of the page.

    Returns
    -------
    path : the file written.
    """
    memory, weights = memory_figure(backtest), weights_figure(backtest)
    figures: dict[str, Spec] = {"regret": regret_figure(backtest), "pcoc": pcoc_figure(backtest)}
    figures |= {name: drawn for name, drawn in (("memory", memory), ("weights", weights)) if drawn is not None}
    values = value_figures(backtest)
    # The first view has everything; choosing a field value draws its own figure anew, and leaves the others.
    views = [{"level": drawn} for *_, drawn in values] or [{}]
    views[0] |= figures
    groups: dict[str, list[tuple[int, str, float]]] = {}
    for index, (field, value, weight, _) in enumerate(values):
        groups.setdefault(field, []).append((index, value, weight))
    return write_page(
        path,
        "backtest_page.html.j2",
        data=figures_alone(TRACKER, *views),
        title=title or "Backtest",
        conclusion=backtest.conclusion(),
        headline=_headline(backtest),
        comparison=_comparison(backtest),
        has_fields=bool(backtest.fields),
        level=f"{100 * backtest.level:g}\N{NO-BREAK SPACE}%",
        best=backtest.best,
        failures=backtest.failures,
        has_memory=memory is not None,
        groups=groups,
        facts=_facts(backtest),
    )


def _comparison(backtest: Backtest) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for row in backtest.summary.to_dicts():
        loss, difference, pcoc = (
            (row[name], row[f"{name}_low"], row[f"{name}_high"]) for name in ("log_loss", "difference", "pcoc")
        )
        name = row["forecaster"]
        lines.append(
            {
                "name": name,
                "tracker": name == TRACKER,
                "best": name == backtest.best,
                "log_loss": with_interval(*loss, digits=5),
                "difference": Figure("–") if name == TRACKER else _signed(*difference),
                "pcoc": with_interval(*pcoc),
                "f_rce": figure(row["f_rce"]),
            }
        )
    return lines


def _signed(value: float, low: float | None, high: float | None) -> Figure:
    """Return a difference with its sign in units of 10⁻⁵, and its interval where it is known."""
    beside = "" if low is None or high is None else f"{1e5 * low:+.1f} … {1e5 * high:+.1f}"
    return Figure(f"{1e5 * value:+.1f}", beside)


def _headline(backtest: Backtest) -> list[tuple[str, str]]:
    rows = {row["forecaster"]: row for row in backtest.summary.to_dicts()}
    before, after = rows[BASE], rows[TRACKER]
    metrics = [("Log-loss", "log_loss", 5), ("PCOC", "pcoc", 3), ("F-RCE", "f_rce", 4)]
    shown = [
        (name, f"{figure(before[key], digits)} → {figure(after[key], digits)}")
        for name, key, digits in metrics
        if key != "f_rce" or backtest.fields
    ]
    return [*shown, ("Regret to the best in hindsight (×10⁻⁵)", f"{1e5 * backtest.tracker_regret:+.1f}")]


def _facts(backtest: Backtest) -> list[tuple[str, str]]:
    tracker = backtest.by_period.filter(backtest.by_period["forecaster"] == TRACKER)
    rows, positives = float(tracker["rows"].sum()), float(tracker["positives"].sum())
    periods = shown_periods(backtest.periods)
    return [
        ("Periods", f"{count(len(periods))}, {periods[0]} to {periods[-1]}"),
        ("Rows", f"{count(rows)}, {count(positives)} positives"),
        ("Fields", ", ".join(backtest.fields) or "none"),
        (
            "Labels known",
            f"{counted(backtest.delay, 'period')} later" if backtest.delay else "at the end of each period",
        ),
        ("Forecasters", count(len(backtest.forecasters))),
    ]
