"""Figures as plain data for Plotly: curves, reliability, histograms, field values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray
from mcnet.plots.style import (
    COUNT_DIGITS,
    INK,
    LINES,
    Spec,
    axis,
    band,
    error_bars,
    figure_of,
    in_rows,
    looks,
    looks_logarithmic,
    numbers,
    ratio_axis,
    ratio_reach,
    reference_line,
    span,
    translucent,
)

# Calibration curves over the score, with their bands and the rows they were fitted on.


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


def draw_curves(lines: Sequence[Line], points: Points | None = None) -> Spec:
    """Draw curves from score to probability; the first one is the main one."""
    logarithmic = looks_logarithmic(lines[0].probability)
    traces: list[dict[str, Any]] = []
    for index, line in enumerate(lines):
        colour = LINES[index % len(LINES)]
        if line.low is not None and line.high is not None:
            traces.append(band(line.score, line.low, line.high, translucent(colour, 0.18)))
        traces.append(_curve(line, colour, main=index == 0))
    if points is not None:
        traces.append(_observed(points))
    x, y = [line.score for line in lines], [line.probability for line in lines]
    if points is not None:
        y.append(points.rate)
    ends = [10.0**end if logarithmic else end for end in span(x, logarithmic=logarithmic) or (0.0, 1.0)]
    traces.append(reference_line(ends, ends))
    return figure_of(
        traces,
        460,
        xaxis=axis("raw score", logarithmic=logarithmic, range=span(x, logarithmic=logarithmic)),
        yaxis=axis("calibrated probability", logarithmic=logarithmic, range=span(y, logarithmic=logarithmic)),
    )


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


def _observed(points: Points) -> dict[str, Any]:
    rate, low, high = numbers(points.rate), numbers(points.low), numbers(points.high)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "observed rate",
        "x": numbers(points.score),
        "y": rate,
        "customdata": in_rows(low, high, numbers(points.weight, COUNT_DIGITS)),
        "hovertemplate": (
            "score %{x:.4~g}<br>observed %{y:.4~g} (%{customdata[0]:.4~g} … %{customdata[1]:.4~g})"
            "<br>weight %{customdata[2]:,.0f}<extra></extra>"
        ),
        "error_y": error_bars(rate, low, high, INK, 1),
        "marker": {"color": INK, "size": 6},
    }


# The reliability diagram: predicted against observed, and their ratio below.

_LARGEST_SHOWN_RATIO = 4.0
_RATIO_DIGITS = 3


@dataclass(frozen=True)
class Reliability:
    """What a reliability diagram shows, one entry per bin: prediction, observed rate and its interval."""

    lowest: FloatArray
    highest: FloatArray
    weight: FloatArray
    positives: FloatArray
    mean_prediction: FloatArray
    observed: FloatArray
    observed_low: FloatArray
    observed_high: FloatArray

    def __len__(self) -> int:
        return self.weight.size

    def to_dict(self) -> dict[str, list[float]]:
        """Return the columns as lists."""
        return {name: column.tolist() for name, column in vars(self).items()}


def draw_reliability(tables: Mapping[str, Reliability]) -> Spec:
    """Draw one or two reliability tables: "before" and "after", or any other names.

    Above, the observed rate of each bin against its mean prediction, with its interval as a band; below, the ratio
    predicted / observed (the PCOC of the bin), where an error of a few per cent is still seen.
    """
    logarithmic = looks_logarithmic(np.concatenate([table.mean_prediction for table in tables.values()]))
    traces: list[dict[str, Any]] = []
    for (name, table), (colour, symbol) in zip(tables.items(), looks(len(tables)), strict=False):
        traces += _series(name, table, colour, symbol)
    shown = [column for t in tables.values() for column in (t.mean_prediction, t.observed)]
    x_span = span([t.mean_prediction for t in tables.values()], logarithmic=logarithmic)
    ends = [10.0**end if logarithmic else end for end in span(shown, logarithmic=logarithmic) or (0.0, 1.0)]
    traces.append(reference_line(ends, ends))
    traces.append(reference_line(ends, [1.0, 1.0], yaxis="y2"))
    ratios = np.concatenate([_ratio(t.mean_prediction, t.observed) for t in tables.values()])
    return figure_of(
        traces,
        520,
        xaxis=axis("mean predicted probability", logarithmic=logarithmic, range=x_span, anchor="y2"),
        yaxis=axis(
            "observed rate",
            logarithmic=logarithmic,
            domain=[0.4, 1.0],
            range=span(shown, logarithmic=logarithmic),
        ),
        yaxis2=axis("PCOC", domain=[0.0, 0.32], range=_around_one(ratios)),
    )


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    ratio: FloatArray = np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0.0)
    return ratio


def _around_one(ratios: FloatArray) -> list[float]:
    """Return a range that has 1 inside; ratios beyond a factor of four would flatten everything else."""
    known = np.clip(ratios[np.isfinite(ratios)], 1.0 / _LARGEST_SHOWN_RATIO, _LARGEST_SHOWN_RATIO)
    low, high = min(0.9, float(known.min(initial=1.0))), max(1.1, float(known.max(initial=1.0)))
    margin = 0.08 * (high - low)
    return [round(low - margin, 4), round(high + margin, 4)]


def _series(name: str, table: Reliability, colour: str, symbol: str) -> list[dict[str, Any]]:
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
    known = np.isfinite(ratio_low) & np.isfinite(ratio_high)
    pale, group, below = translucent(colour, 0.16), {"legendgroup": name}, {"yaxis": "y2"}
    common = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": numbers(x),
        "customdata": in_rows(*map(numbers, (observed, low, high)), weight, numbers(ratio, _RATIO_DIGITS)),
        "hovertemplate": hover,
        **group,
        "line": {"color": colour, "width": 1.5},
        "marker": {"color": colour, "size": 7, "symbol": symbol, "line": {"width": 1.5, "color": colour}},
    }
    return [
        band(x, visible_low, high, pale, on={"yaxis": "y"}, group=group),
        band(x[known], ratio_low[known], ratio_high[known], pale, digits=_RATIO_DIGITS, on=below, group=group),
        {**common, "name": name, "y": [v if v else None for v in numbers(observed)]},
        {**common, "name": name, "y": numbers(ratio, _RATIO_DIGITS), **below, "showlegend": False},
    ]


# Histograms of scores: the share of the weight per bin, before and after.

_SHARE_DIGITS = 2


@dataclass(frozen=True)
class Masses:
    """Shares of the weight between edges, which are evenly spaced in logit (or in probability) space."""

    edges: FloatArray
    shares: dict[str, FloatArray]
    logarithmic: bool


def masses_of(columns: Mapping[str, FloatArray], weight: FloatArray, *, bins: int = 40) -> Masses:
    """Return the share of the weight in each of `bins` bins that all columns have in common.

    >>> found = masses_of({"p": np.array([0.2, 0.4, 0.6])}, np.array([1.0, 1.0, 2.0]), bins=2)
    >>> found.shares["p"].tolist()
    [0.25, 0.75]
    """
    values = np.concatenate(list(columns.values()))
    logarithmic = looks_logarithmic(values)
    low, high = float(values.min()), float(values.max())
    if logarithmic:
        ends = np.log(low / (1.0 - low)), np.log(high / (1.0 - high))
        edges = 1.0 / (1.0 + np.exp(-np.linspace(ends[0], ends[1], bins + 1)))
    else:
        edges = np.linspace(low, high, bins + 1)
    if not high > low:
        edges = np.array([low * 0.9, low * 1.1])
    # The outer edges are values themselves: rounding must not push those out.
    inner = edges[1:-1]
    shares = {
        name: np.bincount(np.searchsorted(inner, column, side="right"), weight, len(inner) + 1) / weight.sum()
        for name, column in columns.items()
    }
    return Masses(edges, shares, logarithmic)


def draw_histogram(masses: Masses) -> Spec:
    """Draw the shares as outlines."""
    traces: list[dict[str, Any]] = []
    for (name, shares), (colour, _) in zip(masses.shares.items(), looks(len(masses.shares)), strict=False):
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "x": numbers(masses.edges),
                "y": numbers(np.append(shares, shares[-1]), _SHARE_DIGITS),
                "line": {"shape": "hv", "color": colour, "width": 1.5},
                "fill": "tozeroy",
                "fillcolor": translucent(colour, 0.14),
                "hovertemplate": f"{name}: %{{y:.2%}} of the weight from %{{x:.3~g}}<extra></extra>",
            }
        )
    return figure_of(
        traces,
        300,
        xaxis=axis("probability", logarithmic=masses.logarithmic),
        yaxis=axis("share of the weight", tickformat=".0%", rangemode="tozero"),
    )


# The forest plot: the PCOC of every field value with its interval, the worst values first.


@dataclass(frozen=True)
class PcocTable:
    """The PCOC of every value of a field with its interval, one entry per value."""

    values: tuple[str, ...]
    weight: FloatArray
    positives: FloatArray
    mean_prediction: FloatArray
    pcoc: FloatArray
    pcoc_low: FloatArray
    pcoc_high: FloatArray

    def __len__(self) -> int:
        return len(self.values)

    @property
    def beyond_noise(self) -> FloatArray:
        """How many positives too many (negative: too few) are predicted, beyond what noise explains.

        It is the distance from the predicted positives to the nearest number of positives that the interval of PCOC
        allows: Σp − Σp/low above 1, Σp − Σp/high below 1, and 0 where the interval includes 1.
        """
        predicted = self.weight * self.mean_prediction
        # The nearest to 1 that the interval includes; without positives the upper end is infinite.
        nearest = np.clip(1.0, self.pcoc_low, np.fmax(self.pcoc_low, self.pcoc_high))
        allowed = np.divide(predicted, nearest, out=self.positives.copy(), where=nearest > 0.0)
        return np.where(nearest == 1.0, 0.0, predicted - allowed)


def worst_first(table: PcocTable) -> NDArray[np.intp]:
    """Return the values' indices by rows × error beyond noise; where it is equal, by rows × error."""
    return np.lexsort((-_impact(table), -np.abs(table.beyond_noise)))


def _impact(table: PcocTable) -> FloatArray:
    return table.weight * np.abs(table.mean_prediction - table.positives / table.weight)


_JUDGED = 1
"""The index of the judged series beside that of the scores as they are."""


@dataclass(frozen=True)
class Forest:
    """The values of a field, the worst first, each with the PCOC and its interval of every series.

    The worst are those of the judged series whose predicted positives are farthest off beyond noise (see `PcocTable`).
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

    @property
    def judged(self) -> int:
        """The index of the series that the values are sorted by."""
        return min(_JUDGED, len(self.series) - 1)

    def first(self, number: int) -> "Forest":
        """Return the `number` worst values among those that have a PCOC."""
        kept = np.flatnonzero(np.isfinite(self.pcoc).all(axis=0))[:number]
        columns = (self.weight, self.positives, self.impact, self.pcoc, self.low, self.high)
        return Forest(tuple(self.values[index] for index in kept), self.series, *(c[..., kept] for c in columns))


def forest_of(tables: dict[str, PcocTable]) -> Forest:
    """Match the tables (of the same rows) by value, the worst values of the one that is judged first.

    Of two or more tables the first is that of the scores as they are, and the second is judged.
    """
    judged = list(tables.values())[min(_JUDGED, len(tables) - 1)]
    order = worst_first(judged)
    values = tuple(judged.values[index] for index in order)
    columns = np.full((4, len(tables), len(values)), np.nan)
    for series, table in enumerate(tables.values()):
        index = {value: at for at, value in enumerate(table.values)}
        known = np.array([value in index for value in values], dtype=bool)
        found = [index[value] for value in values if value in index]
        columns[:, series, known] = [
            column[found] for column in (_impact(table), table.pcoc, table.pcoc_low, table.pcoc_high)
        ]
    return Forest(values, tuple(tables), judged.weight[order], judged.positives[order], *columns)


def draw_forest(forest: Forest, *, limit: int = 30) -> Spec:
    """Draw the `limit` worst values, one line each, the worst on top."""
    shown = forest.first(limit)
    indices = np.arange(len(shown), dtype=np.float64)
    traces: list[dict[str, Any]] = []
    for index, look in enumerate(looks(len(shown.series))):
        # Side by side on a value's line, so that neither hides the other.
        aside = 0.0 if len(shown.series) == 1 else 0.34 * index - 0.17
        traces.append(_points(shown, index, *look, indices + aside))
    traces.append(reference_line([1.0, 1.0], [-0.6, len(shown) - 0.4]))
    reach = ratio_reach(shown.pcoc, shown.low, shown.high)
    rows = max(len(shown), 3)
    return figure_of(
        traces,
        110 + 26 * rows,
        xaxis=ratio_axis("PCOC: predicted ÷ observed positives", 1.0 / reach, reach),
        yaxis=axis(
            "",
            tickvals=indices.tolist(),
            ticktext=[_short(value) for value in shown.values],
            range=[len(shown) - 0.4, -0.6],
        ),
    )


def _short(text: str, most: int = 22) -> str:
    # A field value can be any text: Plotly would read < and & as markup.
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _points(forest: Forest, series: int, colour: str, symbol: str, places: FloatArray) -> dict[str, Any]:
    name, pcoc, low, high = forest.series[series], forest.pcoc[series], forest.low[series], forest.high[series]
    value, least, most = numbers(pcoc), numbers(low), numbers(high)
    weight, positives = numbers(forest.weight, COUNT_DIGITS), numbers(forest.positives, COUNT_DIGITS)
    custom = in_rows(weight, positives, numbers(forest.impact[series]), least, most)
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
