"""Confidence intervals: around a mean, of a rate, and of an error that noise alone pushes up."""

from collections.abc import Callable

import numpy as np
from scipy.special import ndtri

from mcnet._shared.typing import FloatArray
from mcnet.errors import InputError

__all__ = ["noise_aware_interval", "normal_interval", "two_sided", "wilson"]

_FRACTIONS_OF_GUESS = (0.0, 0.2, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.6, 2.0)


def two_sided(level: float) -> float:
    """Return z such that a normal variable lies within ±z standard deviations with probability `level`.

    >>> round(two_sided(0.95), 3)
    1.96
    """
    if not 0 < level < 1:
        raise InputError(f"level is {level}; a confidence level lies between 0 and 1, for example 0.95")
    return float(ndtri(0.5 + level / 2))


def normal_interval(value: float, standard_error: float, level: float) -> tuple[float, float]:
    """Return `value ± z · standard_error`."""
    reach = two_sided(level) * standard_error
    return value - reach, value + reach


def wilson(positives: FloatArray, weight: FloatArray, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """Return Wilson's interval of a rate: `(q + z²/2n ± z·√(q(1−q)/n + z²/4n²)) / (1 + z²/n)`.

    >>> low, high = wilson(np.array([2.0]), np.array([100.0]))
    >>> np.round([low[0], high[0]], 4).tolist()
    [0.0055, 0.07]
    """
    z = two_sided(level)
    q = positives / weight
    centre = q + z * z / (2 * weight)
    reach = z * np.sqrt(np.maximum(q * (1 - q), 0.0) / weight + (z / (2 * weight)) ** 2)
    scale = 1 + z * z / weight
    return np.maximum((centre - reach) / scale, 0.0), np.minimum((centre + reach) / scale, 1.0)


def noise_aware_interval(
    observed: float, size: Callable[[float], float], draws: Callable[[float], FloatArray], level: float
) -> tuple[float, float]:
    """Return an interval for the true size of an error that noise pushes up.

    Errors such as F-RCE add up absolute differences, so noise pushes them up, and resampling the rows would
    push them up once more. Instead the test is inverted along a line of possible truths, λ = 0 being perfect
    calibration and λ = 1 the best guess: kept are those under which the observed value lies between the
    quantiles (1 ± level)/2 of its distribution. So the interval starts at 0 exactly when perfect calibration
    explains the value, and near the noise floor it lies below the observed value, which is then mostly noise.
    `size(λ)` is the error of that truth, `draws(λ)` a sample of what would be observed under it.
    """
    z = two_sided(level)
    tails = (0.5 - level / 2, 0.5 + level / 2)
    grid, lows, highs = [], [], []
    # A value luckier than most noise must not yield an empty interval: its upper end is the middle value's.
    least = observed
    for step in [*_FRACTIONS_OF_GUESS, *(_FRACTIONS_OF_GUESS[-1] * 2.0**k for k in range(1, 16))]:
        values = draws(step)
        if step == 0:
            least = max(observed, float(np.median(values)))
        if values.size < 1000:
            centre, reach = float(values.mean()), z * float(values.std(ddof=1))
            low, high = centre - reach, centre + reach
        else:
            low, high = (float(end) for end in np.quantile(values, tails))
        grid.append(step)
        lows.append(low)
        highs.append(high)
        if step >= 1 and low > least:
            break
    # Quantiles of finite samples may dip by chance; the truth does not.
    low_at = float(np.interp(observed, np.maximum.accumulate(highs), grid))
    high_at = float(np.interp(least, np.maximum.accumulate(lows), grid))
    return size(low_at) if observed > highs[0] else 0.0, size(high_at)
