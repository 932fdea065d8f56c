"""Text in a terminal: how many columns it takes, and control characters made visible."""

import unicodedata

__all__ = ["display_width", "one_line", "pad"]

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
    if text.isprintable():
        return text
    return "".join(
        letter.encode("unicode_escape").decode("ascii")
        if unicodedata.category(letter) in ("Cc", "Zl", "Zp")
        else letter
        for letter in text
    )


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return a text padded to a number of columns, at its end or (for figures) at its beginning."""
    blank = " " * max(0, width - display_width(text))
    return blank + text if right else text + blank
