"""Output to terminals that cannot show every character: similar characters are printed instead."""

import codecs
import sys

__all__ = ["replace_what_cannot_be_shown"]

_HANDLER = "mcnet.similar_characters"

_REPLACEMENTS = {
    "→": "->",
    "←": "<",
    "…": "...",
    "–": "-",
    "—": "-",
    "─": "-",
    "━": "-",
    "−": "-",
    "×": "x",
    "±": "+-",
    "≤": "<=",
    "≥": ">=",
    "½": "1/2",
    "“": '"',
    "”": '"',
    "‘": "'",
    "’": "'",
    "ε": "epsilon",
    "β": "beta",
    "σ": "sigma",
    "⁻": "-",
    "\N{NO-BREAK SPACE}": " ",
    "\N{BRAILLE PATTERN BLANK}": " ",
    **dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True)),
}


def replace_what_cannot_be_shown() -> None:
    """Let stdout and stderr, whatever their encoding, print something similar for characters that it does not have."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_HANDLER)


def _fall_back(error: UnicodeError) -> tuple[str, int]:
    """Return what stands for the characters that a stream cannot encode: something similar, or an escape."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = error.object[error.start : error.end]
    return "".join(_similar(character) for character in found), error.end


def _similar(character: str) -> str:
    if character in _REPLACEMENTS:
        return _REPLACEMENTS[character]
    if "\u2801" <= character <= "\u28ff":
        return "*"  # the dots of a plot
    return character.encode("ascii", "backslashreplace").decode()


codecs.register_error(_HANDLER, _fall_back)
