"""The style of figures: colours, axes, layout, small HTML tables, and lines in a terminal."""

from collections.abc import Mapping, Sequence
from html import escape, unescape
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mcnet._shared.arrays import FloatArray

# Small HTML tables that notebooks show for our objects.

_HEAD = "text-align:{};font-weight:600;padding:2px 10px 2px 0;border-bottom:1px solid rgba(128,128,128,.4)"
_BODY = "text-align:{};padding:2px 10px 2px 0;font-variant-numeric:tabular-nums"


def card(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], note: str = "", picture: str = "") -> str:
    """Return a titled table, the first column text, the others figures; a picture (SVG) comes below the title.

    >>> card("A <model>", ["method", "AUC"], [["platt", "0.71"]]).startswith("<div><strong>A &lt;model&gt;</strong>")
    True
    """
    lines = "".join(f"<tr>{_cells('td', row, _BODY)}</tr>" for row in rows)
    heading = f"<thead><tr>{_cells('th', head, _HEAD)}</tr></thead>" if head else ""
    below = f'<div style="opacity:.7">{escape(note)}</div>' if note else ""
    shown = f'<div style="margin:.3em 0">{picture}</div>' if picture else ""
    table = f'<table style="border-collapse:collapse;margin:.3em 0">{heading}<tbody>{lines}</tbody></table>'
    return f"<div><strong>{escape(title)}</strong>{shown}{table}{below}</div>"


def _cells(tag: str, words: Sequence[str], style: str) -> str:
    return "".join(
        f'<{tag} style="{style.format("right" if index else "left")}">{escape(word)}</{tag}>'
        for index, word in enumerate(words)
    )


# The style of all figures: palette, axes, layout.

Spec = dict[str, Any]
"""A figure as Plotly's JSON: {"data": [trace, …], "layout": {…}}."""

# Orange and blue are distinct for every kind of colour blindness, and have a contrast above 3 on white and on black.
BEFORE, AFTER = "#c9700a", "#2f86c9"
INK, QUIET = "#6b7280", "rgba(128, 128, 128, 0.28)"
LINES = ("#2f86c9", "#c9700a", "#009e73", "#b8609a", "#8a8f00", "#3fa7b8", "#d0553f", "#7d74c9")


def looks(series: int) -> list[tuple[str, str]]:
    """Return the colour and the symbol of each series: before, after and one more; of one alone, those of after."""
    before, *others = (BEFORE, "circle-open"), (AFTER, "circle"), (LINES[2], "circle")
    return [before, *others][:series] if series > 1 else others[:1]


_SIGNIFICANT_DIGITS = 4
COUNT_DIGITS = 9
"""Numbers of rows are shown to the last one."""


def numbers(values: ArrayLike, digits: int = _SIGNIFICANT_DIGITS) -> list[float | None]:
    """Return values as JSON-able numbers of so many significant digits, None for what is not finite.

    Whole numbers are written without a fraction.

    >>> numbers([0.123456789, float("nan"), 1234567])
    [0.1235, None, 1235000]
    """
    column = np.asarray(values, dtype=np.float64)
    rounded = (float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in column.tolist())
    return [int(value) if value is not None and value.is_integer() else value for value in rounded]


def difference(above: Sequence[float | None], below: Sequence[float | None]) -> list[float | None]:
    """Return the difference of two columns of `numbers`, None where one of the two is."""
    return numbers(np.array(above, dtype=np.float64) - np.array(below, dtype=np.float64))


def in_rows(*columns: Sequence[float | None]) -> list[list[float | None]]:
    """Return the rows of a table of columns."""
    return [list(row) for row in zip(*columns, strict=True)]


def error_bars(
    value: Sequence[float | None],
    low: Sequence[float | None],
    high: Sequence[float | None],
    colour: str,
    thickness: float,
) -> dict[str, Any]:
    """Return the error bars of points, from `low` to `high`; the columns are those of `numbers`."""
    return {
        "type": "data",
        "symmetric": False,
        "array": difference(high, value),
        "arrayminus": difference(value, low),
        "color": colour,
        "thickness": thickness,
        "width": 0,
    }


def translucent(colour: str, opacity: float) -> str:
    """Return a #rrggbb colour as rgba.

    >>> translucent("#2f86c9", 0.2)
    'rgba(47, 134, 201, 0.2)'
    """
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity})"


def looks_logarithmic(probabilities: ArrayLike) -> bool:
    """Tell whether probabilities are better seen on a logarithmic axis: most of them are below one in ten."""
    column = np.asarray(probabilities, dtype=np.float64)
    return bool(column.size and np.median(column) < 0.1)


def span(columns: Sequence[ArrayLike], *, logarithmic: bool) -> list[float] | None:
    """Return the range of an axis that shows all values with a small margin; None when there are none."""
    values = np.concatenate([np.asarray(column, dtype=np.float64).ravel() for column in columns])
    values = values[np.isfinite(values) & ((values > 0.0) | (not logarithmic))]
    if values.size == 0:
        return None
    low, high = (float(np.log10(v)) if logarithmic else float(v) for v in (values.min(), values.max()))
    margin = 0.04 * (high - low) or 0.05
    return [round(low - margin, 4), round(high + margin, 4)]


def axis(title: str, *, logarithmic: bool = False, **more: Any) -> dict[str, Any]:
    """Return an axis with a thin grid and no frame."""
    ticks: dict[str, Any] = {"type": "linear"}
    if logarithmic:
        # "D2": ticks at 1, 2 and 5 of each decade, as a reader of rates expects.
        ticks = {"type": "log", "dtick": "D2", "tickformat": "~g", "exponentformat": "none"}
    return {
        "title": {"text": title, "standoff": 8},
        "gridcolor": QUIET,
        "zeroline": False,
        "linecolor": QUIET,
        "ticks": "",
        "automargin": True,
        **ticks,
        **more,
    }


def ratio_reach(ratios: FloatArray, low: FloatArray, high: FloatArray) -> float:
    """Return the ratio up to which an axis around 1 goes: all ratios inside, intervals cut at twice the farthest."""
    known = ratios[np.isfinite(ratios) & (ratios > 0.0)]
    farthest = np.abs(np.log(known)).max(initial=np.log(1.1))
    ends = np.concatenate([np.ravel(low), np.ravel(high)])
    ends = np.abs(np.log(ends[np.isfinite(ends) & (ends > 0.0)]))
    return float(np.exp(1.05 * max(farthest, min(ends.max(initial=0.0), 2.0 * farthest))))


def ratio_axis(title: str, low: float, high: float, **more: Any) -> dict[str, Any]:
    """Return a logarithmic axis between two ratios, on which twice and half are as far from 1."""
    ends = [float(np.log10(low)), float(np.log10(high))]
    return axis(title, type="log", tickvals=ratio_ticks(low, high), tickformat=".2~f", range=ends, **more)


def ratio_ticks(low: float, high: float) -> list[float]:
    """Return the ticks of an axis between two ratios, 1 among them.

    >>> ratio_ticks(0.85, 1.2)
    [0.9, 1.0, 1.1, 1.2]
    """
    for step in (0.02, 0.05, 0.1, 0.2, 0.5):
        ticks = [1.0 + step * k for k in range(-8, 60)]
        inside = [round(t, 2) for t in ticks if low <= t <= high]
        if len(inside) <= 7:
            return inside
    return [v for v in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0) if low <= v <= high]


def figure_of(traces: Sequence[dict[str, Any]], height: int, **more: Any) -> Spec:
    """Return traces in the common layout: transparent, so that the page's or the notebook's own background shows."""
    layout = {
        "height": height,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": INK, "size": 13, "family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"},
        "margin": {"l": 56, "r": 16, "t": 36, "b": 48},
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "xanchor": "left"},
        "hovermode": "closest",
        # Dragging a finger must scroll the page, not zoom the picture.
        "dragmode": False,
        **more,
    }
    return {"data": list(traces), "layout": layout}


def band(
    x: FloatArray,
    low: FloatArray,
    high: FloatArray,
    colour: str,
    *,
    digits: int = _SIGNIFICANT_DIGITS,
    on: Mapping[str, Any] = MappingProxyType({}),
    group: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the area between two lines over x, with so many digits; `on` names its axis, `group` its legend."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*numbers(x), *reversed(numbers(x))],
        "y": [*numbers(low, digits), *reversed(numbers(high, digits))],
        **on,
        "fill": "toself",
        "fillcolor": colour,
        "line": {"width": 0},
        "hoverinfo": "skip",
        **group,
        "showlegend": False,
    }


def reference_line(x: Sequence[float], y: Sequence[float], **more: Any) -> dict[str, Any]:
    """Return the dotted line of perfect calibration."""
    line = {"color": INK, "width": 1, "dash": "dot"}
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(x),
        "y": list(y),
        "line": line,
        "hoverinfo": "skip",
        "showlegend": False,
        **more,
    }


def as_plotly(spec: Spec) -> Any:
    """Return a figure as a `plotly.graph_objects.Figure`, which notebooks show."""
    from plotly.graph_objects import Figure

    return Figure(data=spec["data"], layout={"template": "none", **spec["layout"]})


# The same figures as small drawings in SVG, for cards in notebooks and pages without scripts.

_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 8, 8, 30
"""The margins in pixels. On the left there is space for a number such as 6.6e-05, whose digits are up to 7 wide."""
_LEGEND_LINE = 16
_LONGEST_LABEL = 40
_TICKS_APART = 14
"""Powers of ten are named between the ends of an axis, so many pixels away from them."""
_PIXELS_PER_LETTER = 6.5
_MOST_TICKS_AT_THE_ENDS = 6
"""So many names below the horizontal axis are the first and the last one; of more, one in the middle is named too."""


_FITTING = "max-width:100%;height:auto"


def as_svg(spec: Spec, label: str, *, width: int = 320, height: int = 200, style: str = _FITTING) -> str:
    """Return a figure of lines, points and bars as a drawing that needs no script, its legend below.

    >>> as_svg(figure_of([reference_line([0, 1], [0, 1])], 100, xaxis={}, yaxis={}), "a")[:5]
    '<svg '
    """
    traces = spec["data"]
    # The ends of the axes are named by what was measured: not by bands and reference lines.
    measured = [trace for trace in traces if trace.get("hoverinfo") != "skip"] or traces
    x = _DrawnAxis(spec["layout"]["xaxis"], [trace["x"] for trace in measured], (_LEFT, width - _RIGHT))
    y = _DrawnAxis(spec["layout"]["yaxis"], [trace["y"] for trace in measured], (height - _BOTTOM, _TOP))
    parts = [*_frame(x, y), *(_drawn(trace, x, y) for trace in traces)]
    for note in spec["layout"].get("annotations", ()):
        parts.append(f'<text x="{width - _RIGHT}" y="{_TOP + 9}" text-anchor="end">{escape(note["text"])}</text>')
    named = [trace for trace in traces if trace.get("name") and trace.get("showlegend", True)]
    for line, trace in enumerate(named):
        middle, name = height + _LEGEND_LINE * line + 6, unescape(trace["name"])
        colour = (trace.get("line") or trace["marker"])["color"]
        name = name if len(name) <= _LONGEST_LABEL else name[: _LONGEST_LABEL - 1] + "…"
        parts.append(f'<path d="M{_LEFT} {middle}h16" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{_LEFT + 22}" y="{middle + 4}">{escape(name)}</text>')
    height += _LEGEND_LINE * len(named) + 4
    own_style = f'style="{style}" ' if style else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'{own_style}role="img" aria-label="{escape(label)}" font-size="11" '
        f'font-family="system-ui, sans-serif" fill="currentColor">{"".join(parts)}</svg>'
    )


class _DrawnAxis:
    """Where the values of an axis are in a drawing, and its ticks: (position, name)."""

    def __init__(self, axis: Mapping[str, Any], columns: Sequence[Sequence[Any]], ends: tuple[float, float]) -> None:
        self._type, self.ends, self.title = axis.get("type"), ends, axis.get("title", {}).get("text", "")
        values = [value for column in columns for value in column if value is not None]
        known = self._scaled(values)
        known = known[np.isfinite(known)] if np.isfinite(known).any() else np.zeros(1)
        first, last = axis.get("range") or (float(known.min()), float(known.max()))
        # A constant has no height; it is drawn in the middle.
        margin = 0.5 if first == last else 0.0
        self._first, self._last = first - margin, last + margin
        if "tickvals" in axis:
            names = axis.get("ticktext") or [f"{value:g}" for value in axis["tickvals"]]
            ticks = list(zip(self.at(axis["tickvals"]).tolist(), names, strict=True))
        elif self._type == "date":
            ticks = [(float(self.at([day])[0]), day) for day in sorted(set(values))]
        else:
            low, high = (10.0**end if self._type == "log" else float(end) for end in (known.min(), known.max()))
            between = 10.0 ** np.arange(np.ceil(known.min()), known.max()) if self._type == "log" else np.empty(0)
            named = [(float(self.at([value])[0]), f"{value:.2g}") for value in (low, *between.tolist(), high)]
            outer = (named[0][0], named[-1][0])
            far = [tick for tick in named[1:-1] if min(abs(tick[0] - end) for end in outer) >= _TICKS_APART]
            ticks = [named[0], *far, named[-1]]
        self.ticks = ticks

    def _scaled(self, values: Sequence[Any]) -> FloatArray:
        if self._type == "date":
            return np.array(values, dtype="datetime64[s]").astype(np.float64)
        column = np.array(values, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log10(column) if self._type == "log" else column

    def at(self, values: Sequence[Any], *, inside: bool = True) -> FloatArray:
        """Return the positions of values; those beyond the axis are at its ends, unless they may be outside."""
        share = (self._scaled(values) - self._first) / (self._last - self._first)
        return np.asarray(
            self.ends[0] + (self.ends[1] - self.ends[0]) * (np.clip(share, 0.0, 1.0) if inside else share)
        )


def _frame(x: _DrawnAxis, y: _DrawnAxis) -> list[str]:
    (left, right), (bottom, top) = x.ends, y.ends
    parts = [f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="currentColor" stroke-opacity=".4"/>']
    parts += [
        f'<text x="{left - 4}" y="{min(max(position + 4, top + 9), bottom):.0f}" text-anchor="end">{name}</text>'
        for position, name in y.ticks
    ]
    last = len(x.ticks) - 1
    names_fit = 3 * _PIXELS_PER_LETTER * max(len(name) for _, name in x.ticks) < right - left
    middle = {last // 2} if last >= _MOST_TICKS_AT_THE_ENDS and names_fit else set()
    for index in sorted({0, last} | middle):
        anchor = "end" if index == last else "middle" if index else "start"
        position, name = x.ticks[index]
        parts.append(f'<text x="{position:.0f}" y="{bottom + 13}" text-anchor="{anchor}">{escape(name)}</text>')
    if x.title and not middle:
        centre = f'<text x="{(left + right) // 2}" y="{bottom + 13}" text-anchor="middle" opacity=".7">'
        parts.append(f"{centre}{escape(x.title)}</text>")
    return parts


def _drawn(trace: Mapping[str, Any], x: _DrawnAxis, y: _DrawnAxis) -> str:
    """Return a trace as polygons, lines and points with their whiskers."""
    known = [index for index, pair in enumerate(zip(trace["x"], trace["y"], strict=True)) if None not in pair]
    across, up = ([trace[name][index] for index in known] for name in ("x", "y"))
    points = list(zip(x.at(across).tolist(), y.at(up).tolist(), strict=True))
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    line = trace.get("line", {})
    if trace["type"] == "bar":
        half = 0.34 * float(np.diff(x.at([0, 1]))[0])
        size = [
            f'width="{2 * half:.1f}" height="{y.ends[0] - b:.1f}" fill="{trace["marker"]["color"]}"' for _, b in points
        ]
        return "".join(
            f'<rect x="{a - half:.1f}" y="{b:.1f}" {size[bar]}>'
            f"<title>{escape(trace['text'][known[bar]])}</title></rect>"
            for bar, (a, b) in enumerate(points)
        )
    if trace.get("fill") == "toself":
        return f'<polygon points="{path}" fill="{trace["fillcolor"]}"/>'
    if line.get("dash"):
        return _dotted(across, up, x, y)
    parts = []
    if "lines" in trace["mode"] and points:
        stroke = f'stroke="{line["color"]}" stroke-width="{line["width"]}"'
        parts.append(f'<polyline points="{path}" fill="none" {stroke}/>')
    if "markers" in trace["mode"]:
        bars, marker = trace["error_y"], trace["marker"]
        hollow = marker["symbol"].endswith("open")
        parts.append(f'<g stroke="{marker["color"]}" opacity="{trace.get("opacity", 1)}">')
        for index, value, (a, b) in zip(known, up, points, strict=True):
            low, high = (value - (bars["arrayminus"][index] or 0.0), value + (bars["array"][index] or 0.0))
            bottom, top = y.at([max(low, 0.0), high]).tolist()
            interval = f" ({low:.3g} … {high:.3g})" if low < high else ""
            title = f"{trace['text'][index]}, {trace['name']}: {value:.3g}{interval}"
            parts.append(
                f'<g><title>{escape(title)}</title><path d="M{a:.1f} {bottom:.1f}V{top:.1f}" stroke-opacity=".55"/>'
                f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{"none" if hollow else marker["color"]}"/></g>'
            )
        parts.append("</g>")
    return "".join(parts)


def _dotted(across: Sequence[Any], up: Sequence[Any], x: _DrawnAxis, y: _DrawnAxis) -> str:
    """Return the part of a straight reference line that is inside the drawing, if any."""
    share = np.linspace(0.0, 1.0, 201)
    (a, b), (c, d) = x.at(across, inside=False), y.at(up, inside=False)
    horizontal, vertical = a + share * (b - a), c + share * (d - c)
    inside = (horizontal >= x.ends[0]) & (horizontal <= x.ends[1]) & (vertical <= y.ends[0]) & (vertical >= y.ends[1])
    if not inside.any():
        return ""
    first, last = np.flatnonzero(inside)[[0, -1]]
    ends = f"M{horizontal[first]:.1f} {vertical[first]:.1f}L{horizontal[last]:.1f} {vertical[last]:.1f}"
    return f'<path d="{ends}" stroke="currentColor" stroke-opacity=".5" stroke-dasharray="2 3"/>'


# A small plot of lines in the characters of a terminal.

# The eight dots of a braille character, by (column, row).
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_EMPTY = 0x2800


def terminal_plot(
    lines: Mapping[str, tuple[FloatArray, FloatArray]], *, width: int = 60, height: int = 16, log: bool = True
) -> str:
    """Draw lines of (x, y) with braille dots; logarithmic axes suit rates of a few percent.

    >>> print(terminal_plot({"a": (np.array([1.0, 4.0]), np.array([1.0, 4.0]))}, width=4, height=2, log=False))
      4 ⠀⠀⡠⠊
      1 ⡠⠊⠀⠀
        1  4
    """
    scale = np.log if log else np.asarray
    x_all = np.concatenate([x for x, _ in lines.values()])
    y_all = np.concatenate([y for _, y in lines.values()])
    left, right, bottom, top = x_all.min(), x_all.max(), y_all.min(), y_all.max()
    cells = np.full((height, width), _EMPTY, dtype=np.int64)
    columns = np.arange(2 * width)
    at = scale(left) + (scale(right) - scale(left)) * columns / max(2 * width - 1, 1)
    for x, y in lines.values():
        result = np.interp(at, scale(x), scale(y))
        share = (result - scale(bottom)) / ((scale(top) - scale(bottom)) or 1.0)
        rows = np.rint((1.0 - share) * (4 * height - 1)).astype(int)
        inside = (at >= scale(x[0]) - 1e-12) & (at <= scale(x[-1]) + 1e-12)
        before = None
        for column, row in zip(columns[inside].tolist(), rows[inside].tolist(), strict=True):
            # A steep line leaves no gap: its column is filled down to where the line was before.
            ends = (row, row) if before is None or abs(row - before) < 2 else sorted((row, before))
            for dot in range(ends[0], ends[1] + 1):
                cells[dot // 4, column // 2] |= _DOTS[column % 2][dot % 4]
            before = row
    string = ["".join(map(chr, line)) for line in cells.tolist()]
    marks = [_mark(top), *[""] * (height - 2), _mark(bottom)] if height > 1 else [_mark(top)]
    margin = max(3, *map(len, marks))
    foot = _mark(left) + _mark(right).rjust(max(width - len(_mark(left)), 0))
    return "\n".join(
        [f"{m.rjust(margin)} {line}" for m, line in zip(marks, string, strict=True)] + [" " * (margin + 1) + foot]
    )


def _mark(value: float) -> str:
    return f"{value:.3g}"
