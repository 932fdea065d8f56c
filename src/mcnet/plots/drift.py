"""Calibration over time: PCOC with its interval, period by period."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mcnet._shared.typing import FloatArray
from mcnet.plots.style import AFTER, BEFORE, Spec, axis, layout, numbers, reference_line

__all__ = ["Drift", "draw_drift"]


@dataclass(frozen=True)
class Drift:
    """PCOC and the ends of its interval, one row a series and one column a period."""

    periods: tuple[str, ...]
    series: tuple[str, ...]
    pcoc: FloatArray
    low: FloatArray
    high: FloatArray
    weight: FloatArray


def draw_drift(drift: Drift, *, height: int = 340) -> Spec:
    """Draw PCOC by period as lines with whiskers."""
    colours = (BEFORE, AFTER) if len(drift.series) > 1 else (AFTER,)
    places = np.arange(len(drift.periods), dtype=np.float64)
    traces: list[dict[str, Any]] = []
    for place, (name, colour) in enumerate(zip(drift.series, colours, strict=False)):
        pcoc, low, high = drift.pcoc[place], drift.low[place], drift.high[place]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": numbers(places + (0.06 * place if len(drift.series) > 1 else 0.0)),
                "y": numbers(pcoc),
                "text": list(drift.periods),
                "customdata": [list(row) for row in zip(numbers(low), numbers(high), strict=True)],
                "hovertemplate": (
                    f"<b>%{{text}}</b>, {name}<br>PCOC %{{y:.3f}} (%{{customdata[0]:.3f}} … %{{customdata[1]:.3f}})"
                    "<extra></extra>"
                ),
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": numbers(high - pcoc),
                    "arrayminus": numbers(pcoc - low),
                    "color": colour,
                    "thickness": 1.25,
                    "width": 0,
                },
                "line": {"color": colour, "width": 1.5},
                "marker": {"color": colour, "size": 7, "symbol": "circle" if place else "circle-open"},
            }
        )
    traces.append(reference_line([-0.5, len(places) - 0.5], [1.0, 1.0]))
    every = max(1, -(-len(places) // 12))
    return {
        "data": traces,
        "layout": layout(
            height,
            xaxis=axis(
                "period",
                tickvals=places[::every].tolist(),
                ticktext=list(drift.periods[::every]),
                range=[-0.5, len(places) - 0.5],
                showgrid=False,
            ),
            yaxis=axis("PCOC: predicted ÷ observed"),
        ),
    }
