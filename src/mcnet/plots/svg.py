"""Small drawings in SVG, without scripts."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from mcnet._shared.arrays import FloatArray
from mcnet.plots.figures import Line
from mcnet.plots.style import AFTER, BEFORE, LINES, looks_logarithmic, ratio_ticks

_WIDTH, _HEIGHT = 320, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 8, 8, 30
"""On the left a number such as 6.6e-05 has its place; of 11 pixels in height, a digit is about 7 wide."""
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


_DRIFT_HEIGHT = 260
_DRIFT_LEFT, _DRIFT_TOP, _DRIFT_BOTTOM = 40, 26, 24
_FARTHEST_RATIO = 3.0
"""Whiskers and ratios beyond this are cut, so that one thin period does not flatten all others."""


@dataclass(frozen=True)
class Whiskers:
    """Ratios with their intervals, one row (value, low, high) per period; NaN for what is unknown."""

    label: str
    ratios: FloatArray


def small_drift(periods: Sequence[str], series: Sequence[Whiskers], *, width: int = 720) -> str:
    """Return ratios around 1 over periods, on a log scale, with a whisker each; up to two series.

    >>> ratios = np.array([[1.0, 0.9, 1.1], [1.2, 1.0, 1.5]])
    >>> small_drift(["mon", "tue"], [Whiskers("PCOC", ratios)]).startswith("<svg ")
    True
    """
    values = np.concatenate([one.ratios[:, 0] for one in series])
    known = values[np.isfinite(values) & (values > 0.0)]
    low = max(min(float(known.min(initial=1.0)) / 1.1, 1.0 / 1.2), 1.0 / _FARTHEST_RATIO)
    high = min(max(float(known.max(initial=1.0)) * 1.1, 1.2), _FARTHEST_RATIO)
    bottom, right = _DRIFT_HEIGHT - _DRIFT_BOTTOM, width - 8

    def y(ratio: float) -> float:
        share = (np.log(min(max(ratio, low), high)) - np.log(low)) / (np.log(high) - np.log(low))
        return float(bottom - (bottom - _DRIFT_TOP) * share)

    step = (right - _DRIFT_LEFT) / max(len(periods), 1)
    parts = []
    for tick in ratio_ticks(low, high):
        dash = ' stroke-dasharray="2 3" stroke-opacity=".8"' if tick == 1.0 else ' stroke-opacity=".18"'
        parts.append(f'<path d="M{_DRIFT_LEFT} {y(tick):.1f}H{right}" stroke="currentColor"{dash}/>')
        parts.append(f'<text x="{_DRIFT_LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for place in sorted({0, (len(periods) - 1) // 2, len(periods) - 1} if len(periods) > 6 else {0, len(periods) - 1}):
        anchor = "start" if place == 0 and len(periods) > 1 else "end" if place == len(periods) - 1 else "middle"
        at = _DRIFT_LEFT + step * (place + {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor])
        name = escape(periods[place])
        parts.append(f'<text x="{at:.1f}" y="{_DRIFT_HEIGHT - 6}" text-anchor="{anchor}">{name}</text>')
    colours = (BEFORE, AFTER) if len(series) > 1 else (AFTER,)
    start = float(_DRIFT_LEFT)
    for which, (one, colour) in enumerate(zip(series, colours, strict=False)):
        offset = step * (0.5 + (which - 0.5 * (len(series) - 1)) * 0.3)
        for place, (value, least, most) in enumerate(one.ratios.tolist()):
            if not (np.isfinite(value) and value > 0.0):
                continue
            x = _DRIFT_LEFT + step * place + offset
            ends = [end if np.isfinite(end) and end > 0.0 else value for end in (least, most)]
            title = f"{periods[place]}, {one.label}: {value:.3f} ({least:.3f} … {most:.3f})"
            parts.append(
                f'<g stroke="{colour}" fill="{colour}"><title>{escape(title)}</title>'
                f'<path d="M{x:.1f} {y(ends[0]):.1f}V{y(ends[1]):.1f}" stroke-opacity=".55"/>'
                f'<circle cx="{x:.1f}" cy="{y(value):.1f}" r="{min(3.0, 0.35 * step):.1f}" stroke="none"/></g>'
            )
        parts.append(f'<circle cx="{start + 5:.1f}" cy="10" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{start + 14:.1f}" y="14">{escape(one.label)}</text>')
        start += 30.0 + 6.6 * len(one.label)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" viewBox="0 0 {width} {_DRIFT_HEIGHT}" role="img" '
        'aria-label="PCOC of each period" font-size="12" font-family="system-ui, sans-serif" '
        f'fill="currentColor">{"".join(parts)}</svg>'
    )
