"""The report of a backtest: one HTML page that needs nothing but a browser."""

from dataclasses import dataclass
from math import isnan
from os import PathLike
from pathlib import Path
from typing import Any

from mcnet._shared.atomic_files import whole_file
from mcnet._shared.terminal_text import Figure, count, counted, figure, with_interval
from mcnet.data.periods import shown_periods
from mcnet.plots.style import Spec
from mcnet.report.assets import packed_data, packed_plotly, read_asset, template
from mcnet.report.backtest_figures import memory_figure, pcoc_figure, regret_figure, value_figures, weights_figure
from mcnet.tracking.backtest_forecasters import BASE, TRACKER
from mcnet.tracking.backtest_result import Backtest

__all__ = ["write_backtest_report"]


@dataclass(frozen=True)
class _Line:
    name: str
    tracker: bool
    best: bool
    log_loss: Figure
    difference: Figure
    pcoc: Figure
    f_rce: str


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
    views = [_view({"level": drawn}) for *_, drawn in values] or [_view({})]
    views[0]["figures"] |= figures
    groups: dict[str, list[tuple[int, str, float]]] = {}
    for place, (field, value, weight, _) in enumerate(values):
        groups.setdefault(field, []).append((place, value, weight))
    page = template("backtest_page.html.j2").render(
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
        count=count,
        style=read_asset("page.css"),
        script=read_asset("unpack.js") + read_asset("page.js"),
        plotly=packed_plotly(),
        data=packed_data([{"method": TRACKER, "order": "", "views": views, "forests": []}]),
    )
    with whole_file(path) as part:
        part.write_text(page, encoding="utf-8")
    return Path(path)


def _view(figures: dict[str, Spec]) -> dict[str, Any]:
    """Return a view as the script of the page reads it."""
    return {"summary": "", "explanation": "", "figures": figures}


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _comparison(found: Backtest) -> list[_Line]:
    lines = []
    for row in found.summary.to_dicts():
        loss, difference, pcoc = (
            (_number(row[name]), _number(row[f"{name}_low"]), _number(row[f"{name}_high"]))
            for name in ("log_loss", "difference", "pcoc")
        )
        name = row["forecaster"]
        lines.append(
            _Line(
                name,
                name == TRACKER,
                name == found.best,
                with_interval(*loss, digits=5),
                Figure("–") if name == TRACKER else _signed(*difference),
                with_interval(*pcoc),
                figure(_number(row["f_rce"])),
            )
        )
    return lines


def _signed(value: float, low: float, high: float) -> Figure:
    """Return a difference with its sign in units of 10⁻⁵, and its interval where it is known."""
    value, low, high = 1e5 * value, 1e5 * low, 1e5 * high
    return Figure(f"{value:+.1f}", "" if isnan(low) else f"{low:+.1f} … {high:+.1f}")


def _headline(found: Backtest) -> list[tuple[str, str]]:
    rows = {row["forecaster"]: row for row in found.summary.to_dicts()}
    before, after = rows[BASE], rows[TRACKER]
    metrics = [("Log-loss", "log_loss", 5), ("PCOC", "pcoc", 3), ("F-RCE", "f_rce", 4)]
    shown = [
        (name, f"{figure(_number(before[key]), digits)} → {figure(_number(after[key]), digits)}")
        for name, key, digits in metrics
        if key != "f_rce" or found.fields
    ]
    return [*shown, ("Regret to the best in hindsight (×10⁻⁵)", f"{1e5 * found.tracker_regret:+.1f}")]


def _facts(found: Backtest) -> list[tuple[str, str]]:
    tracker = found.by_period.filter(found.by_period["forecaster"] == TRACKER)
    rows, positives = float(tracker["rows"].sum()), float(tracker["positives"].sum())
    periods = shown_periods(found.periods)
    return [
        ("Periods", f"{count(len(periods))}, {periods[0]} to {periods[-1]}"),
        ("Rows", f"{count(rows)}, {count(positives)} positives"),
        ("Fields", ", ".join(found.fields) or "none"),
        ("Labels known", f"{counted(found.delay, 'period')} later" if found.delay else "at the end of each period"),
        ("Forecasters", count(len(found.forecasters))),
    ]
