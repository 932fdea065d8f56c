"""Which scores a model is given: its own type, the type that the caller names, and data that show another one."""

from typing import Any

import numpy as np

from mcnet._shared.math import sigmoid
from mcnet._shared.typing import FloatArray, ScoreType
from mcnet.data.columns import as_floats, scores_column
from mcnet.errors import InputError

__all__ = ["FEWEST_ROWS_TO_JUDGE", "as_probabilities", "refuse_probabilities", "refuse_probabilities_read_as_logits"]

FEWEST_ROWS_TO_JUDGE = 32
"""Fewer logits than this may all lie in [0, 1] by chance; more are taken for probabilities."""


def as_probabilities(scores: Any, own: ScoreType, given: ScoreType | None) -> FloatArray:
    """Return scores as probabilities, neither clipped nor checked where they are probabilities already.

    Parameters
    ----------
    scores : the column as it was given.
    own : what the model was fitted on.
    given : what the caller says that the scores are; None leaves it to the model, and to the data to contradict.
    """
    score_type = given or own
    if score_type == "probability":
        return as_floats(scores, "score")
    logits = as_floats(scores, "score")
    if given is None and len(logits):
        refuse_probabilities(np.min(logits), np.max(logits), len(logits))
    return scores_column(logits, score_type=score_type, clip=False)


def refuse_probabilities(lowest: float, highest: float, rows: int, *, name: str = "score") -> None:
    """Raise if so many values from `lowest` to `highest` cannot be the logits that a model was fitted on."""
    if rows >= FEWEST_ROWS_TO_JUDGE and lowest >= 0.0 and highest <= 1.0:
        raise InputError(
            f"{name} has {rows:,} values, all in [0, 1], but the model was fitted on logits; pass "
            "score_type='probability' if they are probabilities, score_type='logit' if they are logits"
        )


def refuse_probabilities_read_as_logits(scores: FloatArray, rows: int, *, name: str = "score") -> None:
    """Raise if scores that were logits, and are probabilities now, cannot have been logits.

    Parameters
    ----------
    scores : the sigmoids of what was read, or their extremes.
    rows : how many rows they stand for.
    """
    if len(scores) == 0:
        return
    lowest, highest = sigmoid(np.array([0.0, 1.0]))
    rounding = 1.0 + 1e-12
    inside = scores.min() * rounding >= lowest and scores.max() <= highest * rounding
    refuse_probabilities(0.0 if inside else -1.0, 1.0, rows, name=name)
