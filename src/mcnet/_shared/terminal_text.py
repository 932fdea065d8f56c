"""Text in a terminal: how many columns it takes, and control characters made visible."""

import re
import unicodedata

__all__ = ["display_width", "one_line", "pad", "safe_text", "shown_value"]

# Control characters (C0, DEL, C1), invisible and direction-changing marks, line separators, and lone surrogates;
# the joiner of emoji (U+200D) changes nothing else and stays.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_ZERO_WIDTH = ("Mn", "Me", "Cf")


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


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return a text padded to a number of columns, at its end or (for figures) at its beginning."""
    blank = " " * max(0, width - display_width(text))
    return blank + text if right else text + blank
