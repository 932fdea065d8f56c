"""Small HTML tables that notebooks show for our objects."""

from collections.abc import Sequence
from html import escape

__all__ = ["card"]

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
        f'<{tag} style="{style.format("right" if place else "left")}">{escape(word)}</{tag}>'
        for place, word in enumerate(words)
    )
