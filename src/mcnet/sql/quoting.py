"""How engines quote: a text or a name that means exactly what it says, whatever is in it."""

import re
from collections.abc import Callable

__all__ = ["by_code", "doubled", "escaped", "postgresql_text"]

_CONTROL = re.compile(r"([\x00-\x1f\x7f-\x9f\u2028\u2029])")


def doubled(mark: str) -> Callable[[str], str]:
    """Return a quote that doubles its mark inside.

    >>> doubled("'")("it's")
    "'it''s'"
    """
    return lambda text: mark + text.replace(mark, mark * 2) + mark


def by_code(quote: Callable[[str], str], code: str = "chr({})", join: str = "{} || {}") -> Callable[[str], str]:
    """Return a quote that writes control characters by their number: a reader of text files may change a line's end.

    Parameters
    ----------
    quote : how the rest is quoted.
    code : the expression of a character, with {} for its number.
    join : the expression of two texts, one after the other.
    """

    def quoted(value: str) -> str:
        parts = _CONTROL.split(value)
        if len(parts) == 1:
            return quote(value)
        texts = [code.format(ord(part)) if place % 2 else quote(part) for place, part in enumerate(parts)]
        whole = texts[0]
        for text in texts[1:]:
            whole = join.format(whole, text)
        return f"({whole})"

    return quoted


def postgresql_text(value: str) -> str:
    """Return a text literal of PostgreSQL."""
    # An E-text means the same whatever the server's standard_conforming_strings.
    return "E" + doubled("'")(value.replace("\\", "\\\\")) if "\\" in value else doubled("'")(value)


def escaped(mark: str, code_point: Callable[[str], str]) -> Callable[[str], str]:
    """Return a quote that escapes with backslashes; `code_point` writes a character that cannot be printed."""

    def quote(text: str) -> str:
        inside = "".join(
            f"\\{char}" if char in ("\\", "'", '"', "`") else char if char.isprintable() else code_point(char)
            for char in text
        )
        return mark + inside + mark

    return quote
