"""Calibration curves over the score, with their bands and the rows they were fitted on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mcnet._shared.typing import FloatArray
from mcnet.plots.style import (
    COUNT_DIGITS,
    INK,
    LINES,
    Rows,
    Spec,
    ThereAndBack,
    axis,
    error_bars,
    layout,
    looks_logarithmic,
    numbers,
    reference_line,
    span,
)
from mcnet.plots.style import translucent as faded

__all__ = ["Line", "Points", "draw_curves"]


@dataclass(frozen=True)
class Line:
    """One curve: the calibrated probability at some scores, and a band around it where there is one."""

    label: str
    score: FloatArray
    probability: FloatArray
    low: FloatArray | None = None
    high: FloatArray | None = None


@dataclass(frozen=True)
class Points:
    """Observed rates with intervals, one entry per group of neighbouring cells."""

    score: FloatArray
    rate: FloatArray
    low: FloatArray
    high: FloatArray
    weight: FloatArray


def draw_curves(lines: Sequence[Line], points: Points | None = None, *, height: int = 460) -> Spec:
    """Draw curves from score to probability; the first one is the main one."""
    logarithmic = looks_logarithmic(lines[0].probability)
    traces: list[dict[str, Any]] = []
    for place, line in enumerate(lines):
        colour = LINES[place % len(LINES)]
        if line.low is not None and line.high is not None:
            traces.append(_band(line, line.low, line.high, colour))
        traces.append(_curve(line, colour, main=place == 0))
    if points is not None:
        traces.append(_observed(points))
    x, y = [line.score for line in lines], [line.probability for line in lines]
    if points is not None:
        y.append(points.rate)
    ends = [10.0**end if logarithmic else end for end in span(x, logarithmic=logarithmic) or (0.0, 1.0)]
    traces.append(reference_line(ends, ends))
    return {
        "data": traces,
        "layout": layout(
            height,
            xaxis=axis("raw score", logarithmic=logarithmic, range=span(x, logarithmic=logarithmic)),
            yaxis=axis("calibrated probability", logarithmic=logarithmic, range=span(y, logarithmic=logarithmic)),
        ),
    }


def _curve(line: Line, colour: str, *, main: bool) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": line.label.replace("&", "&amp;").replace("<", "&lt;"),
        "x": numbers(line.score),
        "y": numbers(line.probability),
        "line": {"color": colour, "width": 2.5 if main else 1.25},
        "hovertemplate": "score %{x:.4~g} → %{y:.4~g}<extra>%{fullData.name}</extra>",
    }


def _band(line: Line, low: FloatArray, high: FloatArray, colour: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": ThereAndBack(numbers(line.score), numbers(line.score)),
        "y": ThereAndBack(numbers(low), numbers(high)),
        "fill": "toself",
        "fillcolor": faded(colour, 0.18),
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _observed(points: Points) -> dict[str, Any]:
    rate, low, high = numbers(points.rate), numbers(points.low), numbers(points.high)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "observed rate",
        "x": numbers(points.score),
        "y": rate,
        "customdata": Rows(low, high, numbers(points.weight, COUNT_DIGITS)),
        "hovertemplate": (
            "score %{x:.4~g}<br>observed %{y:.4~g} (%{customdata[0]:.4~g} … %{customdata[1]:.4~g})"
            "<br>weight %{customdata[2]:,.0f}<extra></extra>"
        ),
        "error_y": error_bars(rate, low, high, INK, 1),
        "marker": {"color": INK, "size": 6},
    }
