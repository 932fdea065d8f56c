"""Lines over time: regret, memory and weights per period."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mcnet._shared.typing import FloatArray
from mcnet.plots.drift import period_places
from mcnet.plots.style import INK, LINES, Spec, axis, layout, numbers, reference_line, span, translucent

__all__ = ["Timeline", "draw_shares", "draw_timeline"]

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
    height: int = 340,
) -> Spec:
    """Draw a line per series.

    Parameters
    ----------
    timeline : what to draw.
    title : of the vertical axis.
    main : series with a thick line.
    zero : draw a dotted line at zero.
    logarithmic : the vertical axis.
    hover : how numbers are written, as Plotly has it.
    height : in pixels.
    """
    places, x_axis, shown = period_places(timeline.periods)
    kept = [place for place, keep in enumerate(shown) if keep]
    x = [places[place] for place in kept]
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": x,
            "y": numbers(values[kept], _DIGITS),
            "text": [timeline.periods[place] for place in kept],
            "line": {"color": colour, "width": _MAIN_WIDTH if name in main else _OTHER_WIDTH},
            "hovertemplate": f"<b>%{{text}}</b>, {name}<br>%{{y:{hover}}}<extra></extra>",
        }
        for name, values, colour in zip(timeline.series, timeline.values, _colours(len(timeline.series)), strict=True)
    ]
    if zero and x:
        traces.append(reference_line([x[0], x[-1]], [0.0, 0.0]))
    ends = span([timeline.values], logarithmic=logarithmic)
    return {
        "data": traces,
        "layout": layout(
            height,
            xaxis=axis("", **x_axis),
            yaxis=axis(title, logarithmic=logarithmic, range=ends, tickformat="~g"),
            **_legend_below(len(timeline.series)),
        ),
    }


def draw_shares(timeline: Timeline, title: str, *, height: int = 340) -> Spec:
    """Draw series that add up as areas on top of one another."""
    places, x_axis, shown = period_places(timeline.periods)
    kept = [place for place, keep in enumerate(shown) if keep]
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "stackgroup": "shares",
            "x": [places[place] for place in kept],
            "y": numbers(values[kept], _DIGITS),
            "text": [timeline.periods[place] for place in kept],
            "line": {"color": colour, "width": 0.5},
            "fillcolor": translucent(colour, _AREA_OPACITY),
            "hovertemplate": f"<b>%{{text}}</b>, {name}<br>%{{y:.2f}}<extra></extra>",
        }
        for name, values, colour in zip(timeline.series, timeline.values, _colours(len(timeline.series)), strict=True)
    ]
    return {
        "data": traces,
        "layout": layout(
            height,
            xaxis=axis("", **x_axis),
            yaxis=axis(title, rangemode="tozero"),
            **_legend_below(len(timeline.series)),
        ),
    }


def _colours(number: int) -> list[str]:
    """Return a colour per series; ink for those beyond the palette."""
    return [LINES[place] if place < len(LINES) else INK for place in range(number)]


def _legend_below(series: int) -> dict[str, Any]:
    """Return a legend that has the whole width below the figure when there are many names, so that it hides nothing."""
    if series <= 3:
        return {}
    legend = {"orientation": "h", "x": 0, "y": -0.14, "yanchor": "top", "xanchor": "left"}
    return {"legend": legend, "margin": {"l": 56, "r": 16, "t": 16, "b": 110}}
