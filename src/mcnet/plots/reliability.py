"""The reliability diagram: predicted against observed, and their ratio below."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from mcnet._shared.typing import FloatArray
from mcnet.plots.style import (
    AFTER,
    BEFORE,
    COUNT_DIGITS,
    Rows,
    Spec,
    ThereAndBack,
    axis,
    layout,
    looks_logarithmic,
    numbers,
    reference_line,
    span,
    translucent,
)

__all__ = ["ReliabilityTable", "draw_reliability"]

_LARGEST_SHOWN_RATIO = 4.0
_RATIO_DIGITS = 3


class ReliabilityTable(Protocol):
    """What the diagram needs of a reliability table: one entry per bin."""

    @property
    def mean_prediction(self) -> FloatArray: ...
    @property
    def observed(self) -> FloatArray: ...
    @property
    def observed_low(self) -> FloatArray: ...
    @property
    def observed_high(self) -> FloatArray: ...
    @property
    def weight(self) -> FloatArray: ...


def draw_reliability(tables: Mapping[str, ReliabilityTable], *, height: int = 520) -> Spec:
    """Draw one or two reliability tables: "before" and "after", or any other names.

    Above, the observed rate of each bin against its mean prediction, with its interval as a band; below, the ratio
    predicted / observed (the PCOC of the bin), where an error of a few per cent is still seen.
    """
    logarithmic = looks_logarithmic(np.concatenate([table.mean_prediction for table in tables.values()]))
    traces: list[dict[str, Any]] = []
    colours = (BEFORE, AFTER) if len(tables) > 1 else (AFTER,)
    for place, ((name, table), colour) in enumerate(zip(tables.items(), colours, strict=False)):
        symbol = "circle-open" if place == 0 and len(tables) > 1 else "circle"
        traces += _series(name, table, colour, symbol)
    shown = [column for t in tables.values() for column in (t.mean_prediction, t.observed)]
    x_span = span([t.mean_prediction for t in tables.values()], logarithmic=logarithmic)
    ends = [10.0**end if logarithmic else end for end in span(shown, logarithmic=logarithmic) or (0.0, 1.0)]
    traces.append(reference_line(ends, ends))
    traces.append(reference_line(ends, [1.0, 1.0], yaxis="y2"))
    ratios = np.concatenate([_ratio(t.mean_prediction, t.observed) for t in tables.values()])
    return {
        "data": traces,
        "layout": layout(
            height,
            xaxis=axis("mean predicted probability", logarithmic=logarithmic, range=x_span, anchor="y2"),
            yaxis=axis(
                "observed rate",
                logarithmic=logarithmic,
                domain=[0.4, 1.0],
                range=span(shown, logarithmic=logarithmic),
            ),
            yaxis2=axis("PCOC", domain=[0.0, 0.32], range=_around_one(ratios)),
        ),
    }


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    ratio: FloatArray = np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0.0)
    return ratio


def _around_one(ratios: FloatArray) -> list[float]:
    """Return a range that has 1 inside; ratios beyond a factor of four would flatten everything else."""
    known = np.clip(ratios[np.isfinite(ratios)], 1.0 / _LARGEST_SHOWN_RATIO, _LARGEST_SHOWN_RATIO)
    low, high = min(0.9, float(known.min(initial=1.0))), max(1.1, float(known.max(initial=1.0)))
    margin = 0.08 * (high - low)
    return [round(low - margin, 4), round(high + margin, 4)]


def _series(name: str, table: ReliabilityTable, colour: str, symbol: str) -> list[dict[str, Any]]:
    x, observed = table.mean_prediction, table.observed
    low, high = table.observed_low, table.observed_high
    # A bin without positives cannot be shown on a logarithmic axis: its band starts at a tenth of its upper end.
    visible_low = np.where(low > 0.0, low, 0.1 * high)
    ratio = _ratio(x, observed)
    ratio_low, ratio_high = _ratio(x, high), np.minimum(_ratio(x, visible_low), 10.0 * _LARGEST_SHOWN_RATIO)
    hover = (
        f"<b>{name}</b><br>predicted %{{x:.4~g}}<br>observed %{{customdata[0]:.4~g}}"
        " (%{customdata[1]:.4~g} … %{customdata[2]:.4~g})<br>ratio %{customdata[4]:.3~f}"
        "<br>weight %{customdata[3]:,.0f}<extra></extra>"
    )
    weight = numbers(table.weight, COUNT_DIGITS)
    common = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": numbers(x),
        "customdata": Rows(*map(numbers, (observed, low, high)), weight, numbers(ratio, _RATIO_DIGITS)),
        "hovertemplate": hover,
        "legendgroup": name,
        "line": {"color": colour, "width": 1.5},
        "marker": {"color": colour, "size": 7, "symbol": symbol, "line": {"width": 1.5, "color": colour}},
    }
    return [
        _band(x, visible_low, high, name, colour, "y", 4),
        _band(x, ratio_low, ratio_high, name, colour, "y2", _RATIO_DIGITS),
        {**common, "name": name, "y": [v if v else None for v in numbers(observed)]},
        {**common, "name": name, "y": numbers(ratio, _RATIO_DIGITS), "yaxis": "y2", "showlegend": False},
    ]


def _band(
    x: FloatArray, low: FloatArray, high: FloatArray, name: str, colour: str, on: str, digits: int
) -> dict[str, Any]:
    known = np.isfinite(low) & np.isfinite(high)
    x, low, high = x[known], low[known], high[known]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": ThereAndBack(numbers(x), numbers(x)),
        "y": ThereAndBack(numbers(low, digits), numbers(high, digits)),
        "yaxis": on,
        "fill": "toself",
        "fillcolor": translucent(colour, 0.16),
        "line": {"width": 0},
        "hoverinfo": "skip",
        "legendgroup": name,
        "showlegend": False,
    }
