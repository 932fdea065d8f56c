"""The figures, drawn from numbers already computed."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnet._shared.arrays import FloatArray
from mcnet._shared.messages import install_hint
from mcnet.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from reproduction.literal import Forces

__all__ = ["draw_bins", "draw_curves", "draw_error", "draw_lines"]

COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#4a5568")


def _figure(columns: int, rows: int = 1, width: float = 4.0, height: float = 3.2) -> tuple["Figure", Any]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Drawing
    except ImportError:
        raise InputError(f"figures need matplotlib, which is not installed; {install_hint('paper')}") from None
    figure = Drawing(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25, linewidth=0.6)
    return figure, axes


def draw_curves(
    score: FloatArray,
    curves: Mapping[str, FloatArray],
    bars: tuple[FloatArray, FloatArray] | None = None,
    truth: FloatArray | None = None,
    edges: FloatArray | None = None,
) -> "Figure":
    """Draw one panel per method: its calibration function over the posterior of each bin or over the truth."""
    figure, axes = _figure(len(curves))
    top = max(float(np.nanmax(values)) for values in curves.values())
    for axis, (name, values), colour in zip(axes, curves.items(), COLOURS, strict=False):
        if bars is not None:
            ends, heights = bars
            axis.bar(ends[:-1], heights, np.diff(ends), align="edge", color="#d0d5dd", edgecolor="white")
            top = max(top, float(heights.max()))
        if truth is not None:
            axis.plot(score, truth, color="#1a202c", linewidth=1, linestyle="--", label="truth")
        axis.plot(score, values, color=colour, linewidth=1.8, label=name)
        for edge in [] if edges is None else edges:
            axis.axvline(edge, color="#a0aec0", linewidth=0.5, linestyle=":")
        axis.set_title(name)
        axis.set_xlabel("score")
        axis.set_ylim(0.0, 1.08 * top)
        axis.set_xlim(float(score[0]), float(score[-1]))
    axes[0].set_ylabel("probability")
    return figure


def draw_lines(
    rows: Mapping[str, Sequence[tuple[str, Sequence[float], Mapping[str, Sequence[float]]]]],
) -> "Figure":
    """Draw one row per figure of merit and one panel per parameter: lines over its values."""
    figure, axes = _figure(len(next(iter(rows.values()))), len(rows))
    panels = [(ylabel if i == 0 else "", *panel) for ylabel, row in rows.items() for i, panel in enumerate(row)]
    for axis, (ylabel, title, values, lines) in zip(axes, panels, strict=True):
        places = np.arange(len(values))
        for (name, heights), colour in zip(lines.items(), COLOURS, strict=False):
            axis.plot(places, heights, marker="o", color=colour, label=name)
        axis.set_xticks(places, [f"{value:g}" for value in values])
        axis.set_title(title)
        axis.set_ylabel(ylabel)
    axes[0].legend(frameon=False)
    return figure


def draw_bins(pcoc: Mapping[str, FloatArray], forces: Mapping[float, "Forces"]) -> "Figure":
    """Draw the PCOC of each bin, and the mean gradients by the offset of each bin."""
    figure, axes = _figure(2, width=5.5, height=3.6)
    for (name, heights), colour in zip(pcoc.items(), COLOURS, strict=False):
        axes[0].plot(np.arange(1, len(heights) + 1), heights, marker="o", markersize=4, color=colour, label=name)
    axes[0].axhline(1.0, color="#1a202c", linewidth=0.8)
    axes[0].set_title("PCOC of the fitted rows")
    order, found = max(forces.items())
    width = 0.4
    for place, (name, heights) in enumerate((("log-loss", found.log_loss), (f"order, β = {order:g}", found.order))):
        at = np.arange(1, len(heights) + 1) + width * (place - 0.5)
        axes[1].bar(at, heights, width, color=COLOURS[place], label=name)
    axes[1].axhline(0.0, color="#1a202c", linewidth=0.8)
    axes[1].set_title("mean gradient by the bin's offset")
    for axis in axes:
        axis.set_xlabel("bin, from low scores to high")
        axis.locator_params(axis="x", integer=True)
        axis.legend(frameon=False)
    return figure


def draw_error(sizes: Sequence[float], errors: Mapping[str, Sequence[float]], xlabel: str, ylabel: str) -> "Figure":
    """Draw errors against a size, both on logarithmic axes."""
    figure, axes = _figure(1, width=5.5, height=3.8)
    for (name, heights), colour in zip(errors.items(), COLOURS, strict=False):
        axes[0].loglog(sizes, heights, marker="o", color=colour, label=name)
    axes[0].set_xticks(list(sizes), [f"{size:g}" for size in sizes])
    axes[0].minorticks_off()
    axes[0].set_xlabel(xlabel)
    axes[0].set_ylabel(ylabel)
    axes[0].legend(frameon=False, loc="lower left")
    return figure
