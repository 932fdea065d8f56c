"""Smooth calibration error (smECE): bins replaced by a kernel whose width the data choose."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.fft import dct, idct

from mcnet._shared.arrays import FloatArray
from mcnet.metrics.intervals import Estimate, noise_aware_interval
from mcnet.metrics.sums import columns

_COARSEST, _FINEST = 2**12, 2**20
_POINTS_PER_WIDTH = 10
_DRAWS = 200
_FEWEST_DRAWS = 64
"""Draws of each of several parts, whose noise averages out."""


def smooth_ece(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Smooth calibration error: `smECE_h = ∫ |E[(y − p)·K_h(t, p)]| dt` at the width h where `smECE_h = h`.

    K is a Gaussian kernel reflected at 0 and 1. Reflection makes smoothing a multiplication of cosine
    coefficients, so the grid can be as fine as the width needs: at a click rate of 2 % the width is often
    below 0.001. The interval is that of the error at this width.
    """
    return mean_smooth_ece([columns(probabilities, labels, weight)], level=level, seed=seed)


def mean_smooth_ece(
    parts: Sequence[tuple[FloatArray, FloatArray, FloatArray]], *, level: float = 0.95, seed: int = 0
) -> Estimate:
    """Return the mean of the error over parts of the rows (p, y, w), each weighted by its rows."""
    rng = np.random.default_rng(seed)
    weights = [float(w.sum()) for _, _, w in parts]
    draws = max(_DRAWS // len(parts), _FEWEST_DRAWS)
    result = [_smooth_error(*_cells(p, y, w), rng, draws) for p, y, w in parts]
    shares = [weight / sum(weights) for weight in weights]
    value = sum(share * part.value for share, part in zip(shares, result, strict=True))
    floor = sum(share * part.floor for share, part in zip(shares, result, strict=True))
    differences = np.concatenate([share * part.differences for share, part in zip(shares, result, strict=True)])
    noise = np.concatenate([share * part.noise for share, part in zip(shares, result, strict=True)], axis=1)
    whole = float(np.abs(differences).sum())
    low, high = noise_aware_interval(
        whole, lambda step: step * whole, lambda step: np.abs(step * differences + noise).sum(axis=-1), level
    )
    return Estimate(value, low, high, floor)


@dataclass(frozen=True)
class _SmoothError:
    """The smooth error of some rows: its value and floor, smoothed differences along [0, 1], draws of their noise."""

    value: float
    floor: float
    differences: FloatArray
    noise: FloatArray


def _smooth_error(p: FloatArray, y: FloatArray, w: FloatArray, rng: np.random.Generator, draws: int) -> _SmoothError:
    total = float(w.sum())
    share = w / total
    size = _COARSEST
    while True:
        transformed = dct(_spread(p, share * (y - p), size), norm="ortho")
        width = _fixed_point(lambda h: float(np.abs(_smoothed(transformed, h)).sum()))  # noqa: B023
        if width * size >= _POINTS_PER_WIDTH or size == _FINEST or np.abs(transformed).max() < 1e-12:
            break
        size *= 4
    value = float(np.abs(_smoothed(transformed, width)).sum())
    floor = _floor(p, share, total, size)
    # An error far below the floor is luck, and its width too small to describe noise with.
    return _SmoothError(value, floor, *_noise(p, y, share, max(width, floor / 2), total, rng, draws))


def smooth_ece_at(
    width: float, probabilities: npt.ArrayLike, labels: npt.ArrayLike, weight: npt.ArrayLike | None = None
) -> float:
    """Return the smooth calibration error at a given kernel width."""
    p, y, w = _cells(*columns(probabilities, labels, weight))
    residual = _spread(p, w * (y - p) / w.sum(), _grid_size(width, _POINTS_PER_WIDTH, _COARSEST, _FINEST))
    return float(np.abs(_smoothed(dct(residual, norm="ortho"), width)).sum())


def _cells(p: FloatArray, y: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Merge rows closer than the finest grid can tell apart into one cell at their mean."""
    if p.size < _FINEST // 8:
        return p, y, w
    place = (p * _FINEST).astype(np.intp)
    weights: FloatArray = np.bincount(place, w).astype(np.float64, copy=False)
    kept = weights > 0
    weights = weights[kept]
    return np.bincount(place, w * p)[kept] / weights, np.bincount(place, w * y)[kept] / weights, weights


def _grid_size(width: float, points: int, least: int, most: int) -> int:
    """Return the power of two that puts this many grid points into a width, within limits."""
    return int(np.clip(2 ** np.ceil(np.log2(points / max(width, 1e-12))), least, most))


def _spread(p: FloatArray, mass: FloatArray, size: int) -> FloatArray:
    """Put each mass on the two nearest of `size` cell centres of [0, 1], in proportion to nearness."""
    position = p * size
    position += 0.5
    left = position.astype(np.intp)
    position -= left
    right_mass = position * mass
    padded = np.bincount(left, mass - right_mass, size + 2) + np.bincount(left + 1, right_mass, size + 2)
    grid: FloatArray = padded[1:-1].astype(np.float64)
    grid[0] += padded[0]
    grid[-1] += padded[-1]
    return grid


def _smoothed(transformed: FloatArray, width: float) -> FloatArray:
    """Smooth a measure given by its cosine coefficients with a reflected Gaussian of this width."""
    size = transformed.shape[-1]
    # Coefficients that the kernel takes below 1e-16 are left out: at wide kernels hardly any remain.
    kept = min(size, int(8.6 / (np.pi * max(width, 1e-12))) + 2)
    damped = np.zeros_like(transformed)
    damped[..., :kept] = transformed[..., :kept] * np.exp(-0.5 * (np.pi * width * np.arange(kept)) ** 2)
    smoothed: FloatArray = idct(damped, norm="ortho", axis=-1)
    return smoothed


def _fixed_point(error: Callable[[float], float]) -> float:
    """Return the width h at which the error, which falls as h grows, equals h."""
    low, high = 0.0, 1.0
    while high - low > 1e-4 * high and high > 1e-9:
        # Errors lie anywhere between 1e-5 and 1: halve the exponent until the bracket is narrow.
        middle = np.sqrt(max(low, 1e-3 * high) * high)
        low, high = (middle, high) if error(middle) > middle else (low, middle)
    return float((low + high) / 2)


def _floor(p: FloatArray, share: FloatArray, total: float, size: int) -> float:
    """Return the error to expect from true probabilities: the mean absolute value of smoothed label noise."""
    variance = dct(_spread(p, share * p * (1 - p) / total, size), norm="ortho")

    def error(width: float) -> float:
        # The square of a Gaussian of width h is one of width h/√2, divided by 2h√π.
        density = _smoothed(variance, width / np.sqrt(2)) / (2 * np.sqrt(np.pi) * max(width, 1e-12)) * size
        return float(np.sqrt(2 / np.pi * np.maximum(density, 0.0)).sum() / size)

    return float(_fixed_point(error))


def _noise(
    p: FloatArray, y: FloatArray, share: FloatArray, width: float, total: float, rng: np.random.Generator, draws: int
) -> tuple[FloatArray, FloatArray]:
    """Return the smoothed differences on a grid, and draws of the noise in them."""
    size = _grid_size(width, 3, 2**8, 2**16)
    variance = _spread(p, share * (y * (1 - 2 * p) + p * p) / total, size)
    weights = _smoothed(dct(_spread(p, share, size), norm="ortho"), width)
    # Where hardly a row lies, there is hardly an error: the tail of the grid is not worth its draws.
    kept = weights > 1e-6 * weights.max()
    differences = _smoothed(dct(_spread(p, share * (y - p), size), norm="ortho"), width)[kept]
    deviation = np.sqrt(np.maximum(variance, 0.0))
    noise = np.stack(
        [_smoothed(dct(deviation * rng.standard_normal(size), norm="ortho"), width)[kept] for _ in range(draws)]
    )
    return differences, noise
