"""A sketch as text: one line for a terminal, a card for a notebook."""

from mcnet._shared.terminal_text import count, counted
from mcnet.plots.html import card
from mcnet.sketch.sketch import Sketch

__all__ = ["sketch_card", "sketch_text"]


def sketch_text(sketch: Sketch) -> str:
    """Return a sketch in one line."""
    parts = [
        counted(sketch.rows, "row"),
        f"weight {count(sketch.total_weight)}",
        f"positives {count(sketch.total_positives)}",
        counted(len(sketch), "cell"),
    ]
    parts += [sketch.contexts.described()] if sketch.contexts.names else []
    parts += [f"{sketch.folds} folds"] if sketch.folds > 1 else []
    return f"Sketch({', '.join(parts)}, resolution {sketch.resolution})"


def sketch_card(sketch: Sketch) -> str:
    """Return a sketch as a small HTML table."""
    rows = [
        ["rows", f"{sketch.rows:,}"],
        ["weight", f"{count(sketch.total_weight)}"],
        ["positives", f"{count(sketch.total_positives)}"],
        ["cells", f"{len(sketch):,} (resolution {sketch.resolution}, {sketch.folds} folds)"],
    ]
    if len(sketch):
        rows.insert(3, ["rate", f"{sketch.total_positives / sketch.total_weight:.4g}"])
        rows.append(["scores", f"{sketch.score.min():.4g} … {sketch.score.max():.4g}"])
    for name, values in zip(sketch.contexts.names, sketch.contexts.values, strict=True):
        rows.append([f"field {name}", f"{len(values):,} values"])
    return card("Sketch", [], rows)
