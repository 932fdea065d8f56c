"""Docstrings as Markdown, for the reference page: parameters become a list, doctests become code blocks."""

import re
from typing import Any

import griffe

__all__ = ["AsMarkdown", "as_markdown"]

_PARAMETERS = re.compile(r"^Parameters\n-+\n((?:.+\n?)+)", re.MULTILINE)
_DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


def as_markdown(text: str) -> str:
    """Return a docstring in Markdown.

    >>> print(as_markdown("Add.\\n\\nParameters\\n----------\\na, b : one\\n    number each."))
    Add.
    <BLANKLINE>
    * `a`, `b`: one number each.
    <BLANKLINE>
    <BLANKLINE>
    >>> as_markdown(">>> 1 + 1\\n2").splitlines()
    ['```pycon', '>>> 1 + 1', '2', '```']
    """
    return _DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", _PARAMETERS.sub(_list, text))


def _list(found: re.Match[str]) -> str:
    joined = re.sub(r"\n\s+", " ", found[1].strip())
    lines = (line.partition(" : ") for line in joined.splitlines())
    return "".join(f"* {_names(names)}: {what}\n" for names, _, what in lines) + "\n"


def _names(names: str) -> str:
    return ", ".join(f"`{name.strip()}`" for name in names.split(","))


class AsMarkdown(griffe.Extension):
    """Rewrites every docstring before it is rendered."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
