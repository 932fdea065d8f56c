"""Docstrings as Markdown, for the reference page: sections become lists, doctests become code blocks."""

import re
from typing import Any

import griffe

__all__ = ["AsMarkdown", "as_markdown"]

_SECTION = re.compile(r"^(Parameters|Attributes|Returns|Yields|Raises)\n-+\n((?:.+\n?)+)", re.MULTILINE)
_DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


def as_markdown(text: str) -> str:
    """Return a docstring in Markdown.

    >>> print(as_markdown("Add.\\n\\nParameters\\n----------\\na, b : one\\n    number each."))
    Add.
    <BLANKLINE>
    * `a`, `b`: one number each.
    <BLANKLINE>
    <BLANKLINE>
    >>> print(as_markdown("Returns\\n-------\\ntotal : the sum."))
    **Returns**
    <BLANKLINE>
    * `total`: the sum.
    <BLANKLINE>
    <BLANKLINE>
    >>> as_markdown(">>> 1 + 1\\n2").splitlines()
    ['```pycon', '>>> 1 + 1', '2', '```']
    """
    return _DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", _SECTION.sub(_list, text))


def _list(found: re.Match[str]) -> str:
    title = "" if found[1] == "Parameters" else f"**{found[1]}**\n\n"
    joined = re.sub(r"\n\s+", " ", found[2].strip())
    return title + "".join(f"* {_entry(line)}\n" for line in joined.splitlines()) + "\n"


def _entry(line: str) -> str:
    """Return `name : text` with its name as code, and a line without a name as it is."""
    names, colon, what = line.partition(" : ")
    return f"{_names(names)}: {what}" if colon else line


def _names(names: str) -> str:
    return ", ".join(f"`{name.strip()}`" for name in names.split(","))


class AsMarkdown(griffe.Extension):
    """Rewrites every docstring before it is rendered."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
