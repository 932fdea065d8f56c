"""The forest plot: the PCOC of every field value with its interval, the worst values first."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.typing import FloatArray
from mcnet.plots.style import (
    AFTER,
    BEFORE,
    COUNT_DIGITS,
    Rows,
    Spec,
    axis,
    error_bars,
    layout,
    numbers,
    ratio_axis,
    ratio_reach,
    reference_line,
)

__all__ = ["Forest", "PcocTable", "beyond_noise", "draw_forest", "prepare_forest", "worst_first"]


class PcocTable(Protocol):
    """What the plot needs of a field's table: one entry per value."""

    @property
    def values(self) -> tuple[str, ...]: ...
    @property
    def weight(self) -> FloatArray: ...
    @property
    def positives(self) -> FloatArray: ...
    @property
    def mean_prediction(self) -> FloatArray: ...
    @property
    def pcoc(self) -> FloatArray: ...
    @property
    def pcoc_low(self) -> FloatArray: ...
    @property
    def pcoc_high(self) -> FloatArray: ...


def beyond_noise(table: PcocTable) -> FloatArray:
    """Return how many positives too many (or, negative, too few) each value is predicted, beyond what noise explains.

    It is the distance from the predicted positives to the nearest number of positives that the interval of PCOC
    allows: Σp − Σp/low above 1, Σp − Σp/high below 1, and 0 where the interval includes 1.
    """
    predicted = table.weight * table.mean_prediction
    # The nearest to 1 that the interval includes; without positives the upper end is infinite.
    nearest = np.clip(1.0, table.pcoc_low, np.fmax(table.pcoc_low, table.pcoc_high))
    allowed = np.divide(predicted, nearest, out=table.positives.copy(), where=nearest > 0.0)
    return np.where(nearest == 1.0, 0.0, predicted - allowed)


def worst_first(table: PcocTable) -> NDArray[np.intp]:
    """Return the values' indices by rows × error beyond noise; where it is equal, by rows × error."""
    return np.lexsort((-_impact(table), -np.abs(beyond_noise(table))))


def _impact(table: PcocTable) -> FloatArray:
    return table.weight * np.abs(table.mean_prediction - table.positives / table.weight)


@dataclass(frozen=True)
class Forest:
    """The values of a field, the worst first, each with the PCOC and its interval of every series.

    The worst are those of the first series whose predicted positives are farthest off beyond noise (`beyond_noise`).
    The impact of a value is weight × |mean prediction − observed rate|: how many positives too many or too few were
    predicted. The arrays of impact and PCOC have one row per series.
    """

    values: tuple[str, ...]
    series: tuple[str, ...]
    weight: FloatArray
    positives: FloatArray
    impact: FloatArray
    pcoc: FloatArray
    low: FloatArray
    high: FloatArray

    def __len__(self) -> int:
        return len(self.values)

    def first(self, number: int) -> "Forest":
        """Return the `number` worst values among those that have a PCOC."""
        kept = np.flatnonzero(np.isfinite(self.pcoc).all(axis=0))[:number]
        return Forest(
            tuple(self.values[place] for place in kept),
            self.series,
            self.weight[kept],
            self.positives[kept],
            self.impact[:, kept],
            self.pcoc[:, kept],
            self.low[:, kept],
            self.high[:, kept],
        )


def prepare_forest(tables: dict[str, PcocTable]) -> Forest:
    """Match the tables (of the same rows) by value; the values that are worst in the first table come first."""
    first = next(iter(tables.values()))
    impact = _stack([_impact(table) for table in tables.values()], tables)
    order = worst_first(first)
    return Forest(
        values=tuple(first.values[place] for place in order),
        series=tuple(tables),
        weight=first.weight[order],
        positives=first.positives[order],
        impact=impact[:, order],
        pcoc=_stack([t.pcoc for t in tables.values()], tables)[:, order],
        low=_stack([t.pcoc_low for t in tables.values()], tables)[:, order],
        high=_stack([t.pcoc_high for t in tables.values()], tables)[:, order],
    )


def draw_forest(forest: Forest, *, limit: int = 30) -> Spec:
    """Draw the `limit` worst values, one line each, the worst on top."""
    shown = forest.first(limit)
    places = np.arange(len(shown), dtype=np.float64)
    colours = (BEFORE, AFTER) if len(shown.series) > 1 else (AFTER,)
    traces: list[dict[str, Any]] = []
    for place, (name, colour) in enumerate(zip(shown.series, colours, strict=False)):
        # Side by side on a value's line, so that neither hides the other.
        aside = 0.0 if len(shown.series) == 1 else 0.34 * place - 0.17
        traces.append(_points(shown, place, name, colour, places + aside))
    traces.append(reference_line([1.0, 1.0], [-0.6, len(shown) - 0.4]))
    reach = ratio_reach(shown.pcoc, shown.low, shown.high)
    rows = max(len(shown), 3)
    return {
        "data": traces,
        "layout": layout(
            110 + 26 * rows,
            xaxis=ratio_axis("PCOC: predicted ÷ observed positives", 1.0 / reach, reach),
            yaxis=axis(
                "",
                tickvals=places.tolist(),
                ticktext=[_short(value) for value in shown.values],
                range=[len(shown) - 0.4, -0.6],
            ),
        ),
    }


def _stack(columns: list[FloatArray], tables: dict[str, PcocTable]) -> FloatArray:
    """Return the columns as rows, with the values of each table in the order of the first."""
    names = next(iter(tables.values())).values
    rows = []
    for column, table in zip(columns, tables.values(), strict=True):
        place = {value: at for at, value in enumerate(table.values)}
        rows.append([column[place[value]] if value in place else np.nan for value in names])
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(names))


def _short(text: str, most: int = 22) -> str:
    # A field value can be any text: Plotly would read < and & as markup.
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _points(forest: Forest, series: int, name: str, colour: str, places: FloatArray) -> dict[str, Any]:
    pcoc, low, high = forest.pcoc[series], forest.low[series], forest.high[series]
    value, least, most = numbers(pcoc), numbers(low), numbers(high)
    weight, positives = numbers(forest.weight, COUNT_DIGITS), numbers(forest.positives, COUNT_DIGITS)
    custom = Rows(weight, positives, numbers(forest.impact[series]), least, most)
    symbol = "circle-open" if series == 0 and len(forest.series) > 1 else "circle"
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": value,
        "y": numbers(places),
        "text": [_short(value, 60) for value in forest.values],
        "customdata": custom,
        "hovertemplate": (
            f"<b>%{{text}}</b>, {name}<br>PCOC %{{x:.3f}} (%{{customdata[3]:.3f}} … %{{customdata[4]:.3f}})"
            "<br>%{customdata[1]:,.0f} positives of %{customdata[0]:,.0f}"
            "<br>%{customdata[2]:,.1f} positives off<extra></extra>"
        ),
        "error_x": error_bars(value, least, most, colour, 1.5),
        "marker": {"color": colour, "size": 8, "symbol": symbol, "line": {"width": 1.5, "color": colour}},
    }
