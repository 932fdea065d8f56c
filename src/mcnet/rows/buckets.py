"""Buckets of scores that are read off their bits: the first step of finding a score in an ordered list."""

import numpy as np

from mcnet.rows.columns import SCORE_FLOOR, FloatArray

__all__ = ["bucket_starts"]


def bucket_starts(shift: int) -> FloatArray:
    """Return the lowest score of each bucket, or a hair below it.

    The bucket of a score is what remains of the bits of min(s, 1 − s) after a shift: the exponent and the first bits of
    the mantissa. Buckets are fine where the scores of rare events crowd, and need no logarithm. Those of the upper half
    run backwards, so that all are in the order of scores.
    """
    first = int(np.float64(SCORE_FLOOR).view(np.int64)) >> shift
    numbers = np.arange(first, (int(np.float64(0.5).view(np.int64)) >> shift) + 1, dtype=np.int64)
    low = (numbers << shift).view(np.float64)
    following = ((numbers + 1) << shift).view(np.float64)
    return np.concatenate([low, np.nextafter(1.0 - following[::-1], 0.0)])
