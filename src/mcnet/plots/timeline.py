"""Figures over time: drift, backtests, memories of a tracker."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np

from mcnet._shared.arrays import FloatArray, MaskArray
from mcnet._shared.messages import count
from mcnet.plots.style import (
    AFTER,
    BEFORE,
    COUNT_DIGITS,
    INK,
    LINES,
    Spec,
    axis,
    error_bars,
    figure_of,
    in_rows,
    looks,
    numbers,
    ratio_axis,
    reference_line,
    span,
    translucent,
)

# Calibration over time: PCOC with its interval per period.

_DATE = re.compile(r"\d{4}-\d\d(-\d\d([ T]\d\d:\d\d(:\d\d)?)?)?")
_THIN_FACTOR = 2.5
"""A period is thin if its interval, on a log scale, is this many times as wide as that of a usual period."""
_THIN_OPACITY = 0.3
_PCOC_DIGITS = 3
"""The interval of a period is wider than a hundredth; the page has very many periods."""
_AXIS_MARGIN = 1.12
"""The axis goes beyond the farthest ratio by this factor."""


@dataclass(frozen=True)
class Drift:
    """PCOC and the ends of its interval, one row per series and one column per period.

    Periods are named by their beginnings; `2024-05`, `2024-05-01` and `2024-05-01 13:00` are drawn on an axis of dates,
    numbers on an axis of numbers, other texts one after the other.
    """

    periods: tuple[str, ...]
    series: tuple[str, ...]
    pcoc: FloatArray
    low: FloatArray
    high: FloatArray
    weight: FloatArray

    def extremes(self, series: int) -> tuple[float, float] | None:
        """Return the lowest and the highest PCOC of a period with enough rows; None if there are no two of them."""
        known = self.pcoc[series, ~_thin(self)]
        known = known[np.isfinite(known)]
        return (float(known.min()), float(known.max())) if len(known) > 1 else None


def draw_drift(drift: Drift) -> Spec:
    """Draw PCOC per period with whiskers, on a log scale; periods with few rows are faded and left out of the line."""
    indices, x_axis, shown = period_places(drift.periods)
    thin = _thin(drift)
    clear = shown & ~thin
    traces: list[dict[str, Any]] = []
    for series, (name, (colour, symbol)) in enumerate(zip(drift.series, looks(len(drift.series)), strict=False)):
        look = {"name": name, "legendgroup": name, "marker": {"color": colour, "size": 6, "symbol": symbol}}
        line = {"mode": "lines+markers", "line": {"color": colour, "width": 1.5}}
        traces.append({**_points(drift, series, indices, clear, colour), **look, **line})
        if (shown & thin).any():
            faded = {"mode": "markers", "opacity": _THIN_OPACITY, "showlegend": False}
            traces.append({**_points(drift, series, indices, shown & thin, colour), **look, **faded})
    kept = [index for index, keep in zip(indices, shown, strict=True) if keep]
    if kept:
        traces.append(reference_line([kept[0], kept[-1]], [1.0, 1.0]))
    y_axis = ratio_axis("PCOC: predicted ÷ observed", *_ends(drift.pcoc[:, clear]))
    more = {"annotations": [_beside(drift, shown)]} if not shown.all() else {}
    return figure_of(traces, 340, xaxis=axis("", **x_axis), yaxis=y_axis, **more)


def draw_rows(periods: tuple[str, ...], rows: Sequence[float], positives: Sequence[float]) -> Spec:
    """Draw the rows of each period as bars, their positives in front."""
    indices = list(range(len(periods)))
    most = max(*rows, 1)
    said = [
        f"{name}: {count(n)} rows, {count(k)} positives" for name, n, k in zip(periods, rows, positives, strict=True)
    ]
    x_axis: dict[str, Any] = {
        "tickvals": indices,
        "ticktext": list(periods),
        "range": [-0.5, max(len(indices), 6) - 0.5],
    }
    y_axis: dict[str, Any] = {"tickvals": [0, most], "ticktext": ["0", count(most)], "range": [0, most]}
    look = {"type": "bar", "x": indices, "text": said}
    traces = [
        {**look, "name": name, "y": list(values), "marker": {"color": colour}}
        for name, values, colour in (("rows", rows, AFTER), ("positives", positives, BEFORE))
    ]
    return figure_of(traces, 190, barmode="overlay", xaxis=axis("", **x_axis), yaxis=axis("", **y_axis))


def period_places(periods: tuple[str, ...]) -> tuple[list[Any], dict[str, Any], MaskArray]:
    """Return where each period stands on the axis, the axis, and which periods have a place on it."""
    dated = np.array([bool(_DATE.fullmatch(period)) for period in periods])
    # One period may be "(missing)": it has no place in time, and is printed beside the plot.
    if dated.sum() >= max(1, len(periods) - 1):
        return list(periods), {"type": "date", "showgrid": False}, dated
    counted = np.array([_is_number(period) for period in periods])
    if counted.sum() >= max(2, len(periods) - 1):
        return [float(p) if is_number else None for p, is_number in zip(periods, counted, strict=True)], {}, counted
    indices = list(range(len(periods)))
    every = max(1, -(-len(indices) // 12))
    ticks = {"tickvals": indices[::every], "ticktext": list(periods[::every]), "showgrid": False}
    return indices, {**ticks, "range": [-0.5, len(indices) - 0.5]}, np.ones(len(periods), dtype=bool)


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _thin(drift: Drift) -> MaskArray:
    """Return which periods have an interval much wider than usual, in any series that knows one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        width = np.log(drift.high / drift.low)
    width = np.where(np.isnan(width), -np.inf, width).max(axis=0, initial=-np.inf)
    known = width[np.isfinite(width)]
    usual = float(np.median(known)) if len(known) else np.inf
    thin: MaskArray = width > _THIN_FACTOR * usual
    return thin


def _ends(pcoc: FloatArray) -> tuple[float, float]:
    """Return the ends of the axis: 1 with some space around it, and all ratios; long whiskers may be cut."""
    known = pcoc[np.isfinite(pcoc) & (pcoc > 0.0)]
    return float(known.min(initial=1.0 / 1.1)) / _AXIS_MARGIN, float(known.max(initial=1.1)) * _AXIS_MARGIN


def _points(drift: Drift, series: int, places: list[Any], chosen: MaskArray, colour: str) -> dict[str, Any]:
    kept = np.flatnonzero(chosen)
    pcoc, low, high = (numbers(column[series, kept], _PCOC_DIGITS) for column in (drift.pcoc, drift.low, drift.high))
    return {
        "type": "scatter",
        "x": [places[index] for index in kept],
        "y": pcoc,
        "text": [drift.periods[index] for index in kept],
        "customdata": in_rows(low, high, numbers(drift.weight[kept], COUNT_DIGITS)),
        "hovertemplate": (
            f"<b>%{{text}}</b>, {drift.series[series]}<br>PCOC %{{y:.3~g}} "
            "(%{customdata[0]:.3~g} … %{customdata[1]:.3~g})<br>weight %{customdata[2]:,.0f}<extra></extra>"
        ),
        "error_y": error_bars(pcoc, low, high, colour, 1.25),
    }


def _beside(drift: Drift, shown: MaskArray) -> dict[str, Any]:
    """Return the PCOC of the period that has no place in time, as words."""
    (index,) = np.flatnonzero(~shown)
    figures = ", ".join(f"{name} {drift.pcoc[series, index]:.3f}" for series, name in enumerate(drift.series))
    return {
        "text": f"rows without a time: PCOC {figures}",
        "xref": "paper",
        "yref": "paper",
        "x": 1,
        "y": 1,
        "xanchor": "right",
        "yanchor": "bottom",
        "showarrow": False,
    }


# Lines over time: regret, memory and weights per period.

_DIGITS = 5
"""Differences of log-loss have many digits."""

_MAIN_WIDTH, _OTHER_WIDTH = 3.0, 1.5
_AREA_OPACITY = 0.55


@dataclass(frozen=True)
class Timeline:
    """A value per series (rows) and period (columns); periods are named as in `Drift`."""

    periods: tuple[str, ...]
    series: tuple[str, ...]
    values: FloatArray


def draw_timeline(
    timeline: Timeline,
    title: str,
    *,
    main: Sequence[str] = (),
    zero: bool = False,
    logarithmic: bool = False,
    hover: str = ".4g",
) -> Spec:
    """Draw a line per series."""
    traces, x_axis = _series_lines(timeline, hover)
    for trace in traces:
        trace["line"]["width"] = _MAIN_WIDTH if trace["name"] in main else _OTHER_WIDTH
    x = traces[0]["x"] if traces else []
    if zero and x:
        traces.append(reference_line([x[0], x[-1]], [0.0, 0.0]))
    ends = span([timeline.values], logarithmic=logarithmic)
    y_axis = axis(title, logarithmic=logarithmic, range=ends, tickformat="~g")
    more = _legend_below(len(timeline.series))
    return figure_of(traces, 340, xaxis=axis("", **x_axis), yaxis=y_axis, **more)


def draw_shares(timeline: Timeline, title: str) -> Spec:
    """Draw series that add up as areas on top of one another."""
    traces, x_axis = _series_lines(timeline, ".2f")
    for trace in traces:
        colour = trace["line"]["color"]
        trace |= {"stackgroup": "shares", "fillcolor": translucent(colour, _AREA_OPACITY)}
        trace["line"]["width"] = 0.5
    more = {"yaxis": axis(title, rangemode="tozero"), **_legend_below(len(timeline.series))}
    return figure_of(traces, 340, xaxis=axis("", **x_axis), **more)


def _series_lines(timeline: Timeline, hover: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a line per series over the periods that have a place in time, without widths, and the axis of periods."""
    indices, x_axis, shown = period_places(timeline.periods)
    kept = [index for index, keep in enumerate(shown) if keep]
    colours = chain(LINES, repeat(INK))  # ink for the series beyond the palette
    lines = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": [indices[index] for index in kept],
            "y": numbers(values[kept], _DIGITS),
            "text": [timeline.periods[index] for index in kept],
            "line": {"color": colour},
            "hovertemplate": f"<b>%{{text}}</b>, {name}<br>%{{y:{hover}}}<extra></extra>",
        }
        for name, values, colour in zip(timeline.series, timeline.values, colours, strict=False)
    ]
    return lines, x_axis


def _legend_below(series: int) -> dict[str, Any]:
    """Return a legend that has the whole width below the figure when there are many names, so that it hides nothing."""
    if series <= 3:
        return {}
    legend = {"orientation": "h", "x": 0, "y": -0.14, "yanchor": "top", "xanchor": "left"}
    return {"legend": legend, "margin": {"l": 56, "r": 16, "t": 16, "b": 110}}


# The weights of memories: how much of the recent and of the long past is in what is served.


def draw_memory_weights(memories: Sequence[str], weights: Mapping[str, Sequence[float]]) -> Spec:
    """Draw the weights of each memory, by what follows it, as bars side by side."""
    traces = [
        {
            "type": "bar",
            "name": name,
            "x": list(memories),
            "y": numbers(of_memories),
            "marker": {"color": colour},
            "hovertemplate": f"%{{x}}: %{{y:.3f}} of the {name}<extra></extra>",
        }
        for (name, of_memories), colour in zip(weights.items(), (AFTER, BEFORE), strict=False)
    ]
    return figure_of(
        traces,
        300,
        xaxis=axis("memory (half-life in periods)", type="category"),
        yaxis=axis("weight", rangemode="tozero"),
        barmode="group",
    )
