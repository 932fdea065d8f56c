"""What users are told: warnings at their own line, missing extras, numbers and text as people read them."""

import re
import sys
import textwrap
import unicodedata
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import isfinite, isnan

from mcnet.errors import Advice, CalibrationWarning, NotSupportedError

# Warn the caller, at the line that called into mcnet.


def warn(message: str, advice: Advice | None = None) -> None:
    """Raise a CalibrationWarning that points to the first line outside mcnet."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("mcnet."):
        frame, level = frame.f_back, level + 1
    warnings.warn(CalibrationWarning(message, advice=advice), stacklevel=level)


def first_line(error: BaseException) -> str:
    r"""Return the first line of what an error of a library says, or its type if it says nothing.

    >>> first_line(ValueError("no such table\nLINE 1: SELECT")), first_line(KeyError())
    ('no such table', 'KeyError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


# Libraries that only some parts of mcnet need: one clear message where they are missing.

_LIBRARIES = {
    "networks": ("torch", "safetensors"),
    "serve": ("uvicorn", "httptools", "starlette", "prometheus_client", "pyarrow"),
    "spark": ("pyspark", "pyarrow"),
    "mlflow": ("mlflow", "pandas"),
    "delta": ("deltalake",),
    "iceberg": ("pyiceberg",),
    "postgresql": ("psycopg",),
}
"""What an extra of mcnet installs, as far as it is asked for before it is imported."""


def install_hint(extra: str) -> str:
    """Return the command that installs an extra, as messages say it: mcnet is installed from a clone.

    >>> install_hint("serve")
    "in a clone of mcnet: pip install '.[serve]'"
    """
    return f"in a clone of mcnet: pip install '.[{extra}]'"


def has_extra(extra: str) -> bool:
    """Tell whether the libraries of an extra are installed."""
    return all(map(_is_installed, _LIBRARIES[extra]))


def need_extra(extra: str, what: str) -> None:
    """Raise NotSupportedError unless the libraries of an extra are installed."""
    missing = [name for name in _LIBRARIES[extra] if not _is_installed(name)]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise NotSupportedError(
            f"{what} needs {' and '.join(missing)}, which {verb} not installed; {install_hint(extra)}"
        )


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


# Strings that people read: numbers and counts in words, aligned columns, control characters made visible.

# Control characters (C0, DEL, C1), invisible and direction-changing marks, line separators, and lone surrogates;
# the joiner of emoji (U+200D) changes nothing else and stays.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_ZERO_WIDTH = ("Mn", "Me", "Cf")
_FEWEST_WORDS = 20
"""A column of words is broken into lines of at least so many characters."""


def display_width(text: str) -> int:
    """Return how many columns of a terminal a text takes: wide characters take two, combining ones none.

    >>> display_width("abc"), display_width("東京"), display_width("e\\u0301")
    (3, 4, 1)
    """
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.category(letter) in _ZERO_WIDTH else 1 + (unicodedata.east_asian_width(letter) in "WF")
        for letter in text
    )


def one_line(text: str) -> str:
    r"""Return a text with control characters (newlines, escape sequences) written out, so that it stays on its line.

    >>> print(one_line("two\nlines, \x1b[31mred"))
    two\nlines, \x1b[31mred
    """
    return text if text.isprintable() else _UNSAFE.sub(_escaped, text)


def safe_text(text: str) -> str:
    r"""Return a text with control characters written out, save for line breaks.

    >>> print(safe_text("two\nlines, \x1b[31mred"))
    two
    lines, \x1b[31mred
    """
    return "\n".join(map(one_line, text.split("\n")))


def shown_value(text: str) -> str:
    r"""Return a field value as it stands in a table: on one line, and quoted if it has no visible beginning or end.

    >>> shown_value("NL"), shown_value(""), shown_value(" a"), shown_value("a\nb")
    ('NL', '""', '" a"', 'a\\nb')
    """
    shown = one_line(text)
    return shown if shown and shown == shown.strip() else f'"{shown}"'


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return a text padded to a number of columns, at its end or (for figures) at its beginning."""
    blank = " " * max(0, width - display_width(text))
    return blank + text if right else text + blank


def aligned(lines: Sequence[Sequence[str]], *, left: int = 1, width: int | None = None) -> str:
    """Return a table with columns of equal width: the first `left` columns to the left, the others to the right.

    Widths are those of a terminal, where some characters take two columns; control characters are written out. A last
    column of words is broken into several lines where the table would be wider than `width`.

    >>> print(aligned([("city", "rows"), ("東京", "12"), ("Oslo", "3")]))
    city  rows
    東京    12
    Oslo     3
    """
    cells = [[one_line(word) for word in line] for line in lines]
    widths = [max(map(display_width, column)) for column in zip(*cells, strict=True)]
    if width is not None and left == len(widths):
        room = max(width - sum(widths[:-1]) - 2 * (left - 1), _FEWEST_WORDS)
        broken = [(line[:-1], textwrap.wrap(line[-1], room) or [""]) for line in cells]
        cells = [
            [*(first if index == 0 else [""] * len(first)), part]
            for first, parts in broken
            for index, part in enumerate(parts)
        ]
    padded = (
        "  ".join(pad(word, size, right=i >= left) for i, (word, size) in enumerate(zip(line, widths, strict=True)))
        for line in cells
    )
    return "\n".join(line.rstrip() for line in padded)


def figure(value: float | None, digits: int = 4) -> str:
    """Return a number with `digits` decimals, below 0.1 with as many significant digits; – if it is not known.

    >>> figure(1.23456), figure(0.0123456), figure(1.2345e-05), figure(None), figure(float("inf"))
    ('1.2346', '0.01235', '1.234e-05', '–', '∞')
    """
    if value is None or isnan(value):
        return "–"
    if not isfinite(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.{digits}f}" if abs(value) >= 0.1 or value == 0 else f"{value:.{digits}g}"


def amount(value: float | None) -> str:
    """Return a sum of money with about four digits, and a separator of thousands; – if it is not known.

    >>> amount(17233.17), amount(-120.44), amount(14.3406), amount(0.009531), amount(0.0)
    ('17,233', '-120.4', '14.34', '0.009531', '0')
    """
    if value is None or not isfinite(value) or value == 0.0:
        return "0" if value == 0.0 else figure(value)
    whole = len(str(int(abs(value))))
    return f"{value:,.{max(4 - whole, 0)}f}" if abs(value) >= 1.0 else f"{value:.4g}"


def signed_amount(value: float) -> str:
    """Return a difference of money with its sign.

    >>> signed_amount(17233.17), signed_amount(-1.5)
    ('+17,233', '-1.500')
    """
    return ("+" if value > 0.0 else "") + amount(value)


UNIT_OF_DIFFERENCES = "×10⁻⁵"
"""The unit of differences of log-loss, wherever they are printed."""


def signed_differences(*differences: float) -> tuple[str, ...]:
    """Return differences of log-loss that may be of either sign in their unit.

    >>> signed_differences(-0.00662, 0.000053)
    ('-662.0', '+5.3')
    """
    return tuple(f"{1e5 * difference:+,.1f}" for difference in differences)


def narrow(value: float, decimals: int) -> str:
    """Return a number with fewer decimals the larger it is, so that a column keeps its width.

    >>> narrow(3.14159, 2), narrow(314.159, 2), narrow(31415.9, 1)
    ('3.14', '314.2', '31416')
    """
    whole = len(f"{abs(value):.0f}")
    return f"{value:.{min(decimals, max(4 - whole, 0))}f}"


def count(value: float) -> str:
    """Return a number of rows or positives with a separator of thousands; decimals only for small sums of weights.

    >>> count(1234567.0), count(4505.543855), count(0.5)
    ('1,234,567', '4,506', '0.5')
    """
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.4g}"


def counted(number: float, noun: str) -> str:
    """Return a number of things in words, with the plural where there is not one.

    >>> counted(1, "period"), counted(1200, "period")
    ('1 period', '1,200 periods')
    """
    return f"{count(number)} {noun if number == 1 else noun + 's'}"


def percent(share: float) -> str:
    """Return a share in per cent, with a space before the sign that does not break.

    >>> percent(0.01234)
    '1.23\\xa0%'
    """
    return f"{100.0 * share:.3g}\N{NO-BREAK SPACE}%"


@dataclass(frozen=True)
class Figure:
    """A value in words, and the words beside (or below) it: its interval or its error."""

    value: str
    beside: str = ""

    def __str__(self) -> str:
        return f"{self.value} ({self.beside})" if self.beside else self.value


def with_interval(value: float | None, low: float | None, high: float | None, digits: int = 3) -> Figure:
    """Return a value and, where it is known, its interval.

    >>> str(with_interval(1.1, 1.0, 1.2)), str(with_interval(1.1, float("nan"), float("nan")))
    ('1.100 (1.000 … 1.200)', '1.100')
    """
    known = low is not None and isfinite(low)
    return Figure(figure(value, digits), f"{figure(low, digits)} … {figure(high, digits)}" if known else "")
