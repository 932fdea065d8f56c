"""A small picture of curves as SVG, for places that run no JavaScript."""

from collections.abc import Sequence
from html import escape

import numpy as np

from mcnet._shared.typing import FloatArray
from mcnet.plots.curves import Line
from mcnet.plots.style import LINES, looks_logarithmic

__all__ = ["small_curves"]


_WIDTH, _HEIGHT = 320, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 8, 8, 30
_LEGEND_LINE = 16
_LONGEST_LABEL = 40


def small_curves(lines: Sequence[Line]) -> str:
    """Return curves from score to probability, with the diagonal that would leave the score as it is.

    >>> line = Line("NL", np.array([0.1, 0.5]), np.array([0.2, 0.4]))
    >>> small_curves([line]).startswith("<svg ")
    True
    """
    logarithmic = looks_logarithmic(lines[0].probability)
    x, y = (
        _Axis([getattr(line, name) for line in lines], ends, logarithmic)
        for name, ends in (("score", (_LEFT, _WIDTH - _RIGHT)), ("probability", (_HEIGHT - _BOTTOM, _TOP)))
    )
    parts = [*_frame(x, y), _diagonal(x, y)]
    for place, line in enumerate(lines):
        colour, width = LINES[place % len(LINES)], 2 if place == 0 else 1.2
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.at(line.score), y.at(line.probability), strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        middle = _HEIGHT + _LEGEND_LINE * place + 6
        parts.append(f'<path d="M{_LEFT} {middle}h16" stroke="{colour}" stroke-width="2"/>')
        label = line.label if len(line.label) <= _LONGEST_LABEL else line.label[: _LONGEST_LABEL - 1] + "…"
        parts.append(f'<text x="{_LEFT + 22}" y="{middle + 4}">{escape(label)}</text>')
    height = _HEIGHT + _LEGEND_LINE * len(lines) + 4
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        'role="img" aria-label="Calibration curves" font-size="11" font-family="system-ui, sans-serif" '
        f'fill="currentColor">{"".join(parts)}</svg>'
    )


class _Axis:
    """The position of values in the picture."""

    def __init__(self, columns: Sequence[FloatArray], ends: tuple[float, float], logarithmic: bool) -> None:
        self._scale = np.log if logarithmic else np.asarray
        self.low = float(min(column.min() for column in columns))
        self.high = float(max(column.max() for column in columns))
        self.ends = ends
        self._first = float(self._scale(self.low))
        # A constant has no height; it is drawn in the middle.
        self._span = float(self._scale(self.high)) - self._first

    def at(self, values: FloatArray) -> FloatArray:
        share = (self._scale(values) - self._first) / self._span if self._span > 0.0 else np.full(len(values), 0.5)
        return np.asarray(self.ends[0] + (self.ends[1] - self.ends[0]) * share)


def _frame(x: _Axis, y: _Axis) -> list[str]:
    left, bottom, right = _LEFT, _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    return [
        f'<path d="M{left} {_TOP}V{bottom}H{right}" fill="none" stroke="currentColor" stroke-opacity=".4"/>',
        f'<text x="{left - 4}" y="{_TOP + 9}" text-anchor="end">{y.high:.2g}</text>',
        f'<text x="{left - 4}" y="{bottom}" text-anchor="end">{y.low:.2g}</text>',
        f'<text x="{left}" y="{bottom + 13}">{x.low:.2g}</text>',
        f'<text x="{right}" y="{bottom + 13}" text-anchor="end">{x.high:.2g}</text>',
        f'<text x="{(left + right) // 2}" y="{bottom + 13}" text-anchor="middle" opacity=".7">score</text>',
    ]


def _diagonal(x: _Axis, y: _Axis) -> str:
    """Return the part of the line y = x that is inside the picture, if any."""
    ends = np.array([max(x.low, y.low), min(x.high, y.high)])
    if not ends[0] < ends[1]:
        return ""
    (a, b), (c, d) = x.at(ends), y.at(ends)
    return (
        f'<path d="M{a:.1f} {c:.1f}L{b:.1f} {d:.1f}" stroke="currentColor" stroke-opacity=".5" stroke-dasharray="2 3"/>'
    )
