"""The types of arrays, one name each."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["CodeArray", "FloatArray", "IndexArray", "IntArray", "MaskArray", "ScoreType"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
CodeArray = NDArray[np.int32]
IndexArray = NDArray[np.integer]
"""Whole numbers of any width."""
MaskArray = NDArray[np.bool_]
ScoreType = Literal["probability", "logit"]
"""What the scores are: probabilities in [0, 1], or logits."""
