"""The history of a fit: facts about the rows that a model was fitted on, for people and plots."""

from datetime import UTC, datetime
from typing import Any

import numpy as np

from mcnet.sketch.sketch import Sketch
from mcnet.version import __version__

__all__ = ["fit_history", "largest_contexts"]

MOST_LARGEST_CONTEXTS = 12
"""How many of the largest contexts a model's history names, so that plots can show those."""


def fit_history(sketch: Sketch) -> dict[str, Any]:
    """Return what a model keeps of the rows of its fit, for people and plots; nothing that is served depends on it."""
    return {
        "rows": sketch.rows,
        "weight": sketch.total_weight,
        "positives": sketch.total_positives,
        "lowest_score": float(sketch.score.min()),
        "highest_score": float(sketch.score.max()),
        "resolution": sketch.resolution,
        "base_pcoc": _ratio(float(sketch.weight @ sketch.score), sketch.total_positives),
        "columns": {**sketch.columns, **_reading(sketch)},
        "largest_contexts": largest_contexts(sketch),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "library": f"mcnet {__version__}",
    }


def largest_contexts(sketch: Sketch, number: int = MOST_LARGEST_CONTEXTS) -> list[list[str | None]]:
    """Return the field values of the contexts with the most weight, the largest first.

    >>> largest_contexts(Sketch.from_rows([0.1] * 3, [0, 1, 0], field={"country": ["NL", "US", "US"]}))
    [['US'], ['NL']]
    """
    contexts = sketch.contexts
    if not contexts.names:
        return []
    largest = np.argsort(-sketch.context_sums[:, 0], kind="stable")[:number]
    return [
        [values[code] for values, code in zip(contexts.values, contexts.table[place], strict=True)] for place in largest
    ]


def _reading(sketch: Sketch) -> dict[str, Any]:
    """Return how the rows were read, as far as it is known of all of them."""
    kept = sketch.negatives_kept
    return {"score_type": sketch.score_type} | ({} if kept is None else {"negatives_kept": kept})


def _ratio(above: float, below: float) -> float | None:
    return above / below if below > 0.0 else None
