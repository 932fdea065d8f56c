"""Histograms of scores: the share of the weight per bin, before and after."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcnet._shared.typing import FloatArray
from mcnet.plots.style import AFTER, BEFORE, Spec, axis, layout, looks_logarithmic, numbers, translucent

__all__ = ["Masses", "draw_histogram", "prepare_histogram"]


_SHARE_DIGITS = 2


@dataclass(frozen=True)
class Masses:
    """Shares of the weight between edges, which are evenly spaced in logit (or in probability) space."""

    edges: FloatArray
    shares: dict[str, FloatArray]
    logarithmic: bool


def prepare_histogram(columns: Mapping[str, FloatArray], weight: FloatArray, *, bins: int = 40) -> Masses:
    """Return the share of the weight in each of `bins` bins that all columns have in common.

    >>> found = prepare_histogram({"p": np.array([0.2, 0.4, 0.6])}, np.array([1.0, 1.0, 2.0]), bins=2)
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


def draw_histogram(masses: Masses, *, height: int = 300) -> Spec:
    """Draw the shares as outlines."""
    colours = (BEFORE, AFTER) if len(masses.shares) > 1 else (AFTER,)
    traces: list[dict[str, Any]] = []
    for (name, shares), colour in zip(masses.shares.items(), colours, strict=False):
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
    return {
        "data": traces,
        "layout": layout(
            height,
            xaxis=axis("probability", logarithmic=masses.logarithmic),
            yaxis=axis("share of the weight", tickformat=".0%", rangemode="tozero"),
        ),
    }
