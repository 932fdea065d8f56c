"""A small plot of lines in the characters of a terminal."""

from collections.abc import Mapping

import numpy as np

from mcnet._shared.typing import FloatArray

__all__ = ["terminal_plot"]


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
        found = np.interp(at, scale(x), scale(y))
        share = (found - scale(bottom)) / ((scale(top) - scale(bottom)) or 1.0)
        rows = np.rint((1.0 - share) * (4 * height - 1)).astype(int)
        inside = (at >= scale(x[0]) - 1e-12) & (at <= scale(x[-1]) + 1e-12)
        before = None
        for column, row in zip(columns[inside].tolist(), rows[inside].tolist(), strict=True):
            # A steep line leaves no gap: its column is filled down to where the line was before.
            ends = (row, row) if before is None or abs(row - before) < 2 else sorted((row, before))
            for dot in range(ends[0], ends[1] + 1):
                cells[dot // 4, column // 2] |= _DOTS[column % 2][dot % 4]
            before = row
    text = ["".join(map(chr, line)) for line in cells.tolist()]
    marks = [_mark(top), *[""] * (height - 2), _mark(bottom)] if height > 1 else [_mark(top)]
    margin = max(3, *map(len, marks))
    foot = _mark(left) + _mark(right).rjust(max(width - len(_mark(left)), 0))
    return "\n".join(
        [f"{m.rjust(margin)} {line}" for m, line in zip(marks, text, strict=True)] + [" " * (margin + 1) + foot]
    )


def _mark(value: float) -> str:
    return f"{value:.3g}"
