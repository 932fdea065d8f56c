"""Undo the down-sampling of negatives, in the weights of rows or in scores."""

import numpy as np

from mcnet._shared.typing import FloatArray
from mcnet.errors import InputError

__all__ = ["check_negatives_kept", "correct_scores", "restore_negatives"]


def check_negatives_kept(negatives_kept: float) -> None:
    """Refuse what is no fraction of negatives."""
    if not 0.0 < negatives_kept <= 1.0:
        raise InputError(f"negatives_kept is {negatives_kept!r}; it must be the fraction of negatives kept, in (0, 1]")


def restore_negatives(
    labels: FloatArray, weights: FloatArray | None, negatives_kept: float
) -> tuple[FloatArray, FloatArray | None]:
    """Return labels and weights as if no negative had been dropped.

    A negative that survived with probability r stands for 1/r of them: w' = w·(y + (1 − y)/r), y' = w·y/w'.

    >>> labels, weights = restore_negatives(np.array([1.0, 0.0]), None, 0.1)
    >>> labels.tolist(), weights.tolist()
    ([1.0, 0.0], [1.0, 10.0])
    """
    check_negatives_kept(negatives_kept)
    if negatives_kept == 1.0:
        return labels, weights
    counts = np.ones_like(labels) if weights is None else weights
    restored = counts * (labels + (1.0 - labels) / negatives_kept)
    positives = counts * labels
    return np.divide(positives, restored, out=np.zeros_like(labels), where=restored > 0.0), restored


def correct_scores(scores: FloatArray, negatives_kept: float) -> FloatArray:
    """Return the score of a model trained on down-sampled negatives: q = p / (p + (1 − p)/r).

    >>> correct_scores(np.array([0.5]), 0.25)
    array([0.2])
    """
    check_negatives_kept(negatives_kept)
    return scores / (scores + (1.0 - scores) / negatives_kept)
