"""Methods that bin or rank the scores: histogram binning, isotonic regression, SIR."""

from typing import Literal, get_args

import numpy as np
import scipy

from mcnet._shared.arrays import SCORE_FLOOR, FloatArray, clip_scores, sums_by
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.parameters import check_count
from mcnet.curves.curves import Curves
from mcnet.errors import InputError
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.views import bin_of, equal_mass_edges

# Histogram binning (Zadrozny & Elkan 2001).


def step_curve(edges: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (knots, probabilities) of a step function: `values[k]` on [edges[k-1], edges[k])."""
    if len(edges) == 0:
        return np.array([0.5]), values
    return np.repeat(edges, 2), np.concatenate([[values[0]], np.repeat(values[1:-1], 2), [values[-1]]])


class Histogram(Calibrator):
    """The positive rate of each of K equal-mass bins: p = (Σy + m·ȳ) / (n + m) inside a bin.

    Not monotone by nature (a bin may have a lower rate than the one before), and never projected: it is kept as it was
    published, for comparison.

    Parameters
    ----------
    bins : the number of bins; fewer if there are fewer distinct scores.
    prior : m, how many rows of the overall rate each bin starts with.

    >>> Histogram(bins=2).fit([0.1, 0.2, 0.7, 0.8], [0, 1, 1, 1], resolution="exact").predict([0.15, 0.75]).round(3)
    array([0.5, 1. ])
    """

    method = "histogram"
    complexity = 10
    monotone = False

    def __init__(self, *, bins: int = 20, prior: float = 0.0) -> None:
        """Store the parameters; they are checked in fit."""
        self.bins = bins
        self.prior = prior

    def _check_parameters(self) -> None:
        check_count("bins", self.bins)
        if not 0.0 <= self.prior < np.inf:
            raise InputError(f"prior is {self.prior!r}; it must be a number of rows ≥ 0")

    def _fit_curves(self, sketch: Sketch) -> Curves:
        edges = equal_mass_edges(sketch, self.bins)
        index = bin_of(sketch.score, edges)
        weight = sums_by(index, sketch.weight, len(edges) + 1)
        positives = sums_by(index, sketch.positives, len(edges) + 1)
        rate = sketch.total_positives / sketch.total_weight
        values = (positives + self.prior * rate) / (weight + self.prior)
        return Curves.of([step_curve(edges, clip_scores(values))])


# Isotonic regression (Zadrozny & Elkan 2002).


def isotonic_blocks(rates: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the non-decreasing values closest to the rates in weighted least squares (pool adjacent violators)."""
    fitted: FloatArray = scipy.optimize.isotonic_regression(rates, weights=weights).x
    # The blocks' means are rounded one by one; the running maximum only ever corrects the last bit.
    return np.maximum.accumulate(fitted)


def isotonic_curve(scores: FloatArray, rates: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the knots and probabilities of the isotonic fit to rates at rising scores."""
    values = clip_scores(isotonic_blocks(rates, weights))
    # Inside a block only the two ends are needed.
    inner = (values[1:-1] == values[:-2]) & (values[1:-1] == values[2:])
    ends = np.concatenate([[True], ~inner, [True]])[: len(values)]
    return scores[ends], values[ends]


class Isotonic(Calibrator):
    """The non-decreasing function closest to the labels: min Σ w (y − m(s))², m non-decreasing.

    Straight lines join the blocks, as in scikit-learn. Where a block has no positives (or only positives) the value is
    kept just inside (0, 1).

    >>> Isotonic().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1], resolution="exact").predict([0.25]).round(3)
    array([0.5])
    """

    method = "isotonic"
    complexity = 20

    def _fit_curves(self, sketch: Sketch) -> Curves:
        sketch = sketch.unfolded()
        return Curves.of([isotonic_curve(sketch.score, sketch.rate, sketch.weight)])


# SIR, smoothed isotonic regression (Deng et al., ECML-PKDD 2020).

Knots = Literal["mean", "midpoint"]


def pool_bins(bins: FloatArray) -> FloatArray:
    """Return rows (low, high, weight, positives, weight × score) of bins merged until their rates strictly rise."""
    merged: list[FloatArray] = []
    for row in bins:
        merged.append(row.copy())
        while len(merged) > 1 and merged[-1][3] * merged[-2][2] <= merged[-2][3] * merged[-1][2]:
            last = merged.pop()
            merged[-1][1] = last[1]
            merged[-1][2:] += last[2:]
    return np.array(merged)


def knot_scores(pooled: FloatArray, knots: Knots) -> FloatArray:
    """Return where the line passes through the rate of each pooled bin."""
    if knots == "midpoint":
        return 0.5 * (pooled[:, 0] + pooled[:, 1])
    # Rounding may carry a mean past the ends of its bin.
    return np.clip(pooled[:, 4] / pooled[:, 2], pooled[:, 0], pooled[:, 1])


class SIR(Calibrator):
    """Equal-mass bins, pooled until their rates strictly rise, joined by straight lines.

    Left of the first knot the line starts at (0, 0); right of the last one p = min(1, s·v/m), with the knot m and its
    rate v. With a knot at the mean score, a bin that is a straight line from the origin is fitted exactly.

    Parameters
    ----------
    bins : the number of bins before pooling.
    knots : "mean" puts the knot of a bin at its mean score; "midpoint", as printed, at the middle of its range, which
        differs much where a bin is wide and its rows lie at one end.
    samples_per_bin : the rows of a bin, instead of `bins` (1000 in the publication); None takes `bins`.

    >>> SIR(bins=2).fit([0.1, 0.2, 0.7, 0.8], [0, 1, 1, 1], resolution="exact").predict([0.15, 0.45]).round(3)
    array([0.5 , 0.75])
    """

    method = "sir"
    complexity = 80

    def __init__(self, *, bins: int = 20, knots: Knots = "mean", samples_per_bin: int | None = None) -> None:
        """Store the parameters; they are checked in fit."""
        self.bins = bins
        self.knots = knots
        self.samples_per_bin = samples_per_bin

    def _check_parameters(self) -> None:
        check_count("bins", self.bins)
        if self.knots not in get_args(Knots):
            raise InputError(f"knots is {self.knots!r}; it must be 'mean' or 'midpoint'")
        check_count("samples_per_bin", self.samples_per_bin, None)

    def _fit_curves(self, sketch: Sketch) -> Curves:
        sketch = sketch.unfolded()
        bins = self.bins
        if self.samples_per_bin is not None:
            bins = max(1, int(sketch.total_weight // self.samples_per_bin))
        edges = equal_mass_edges(sketch, bins)
        index = bin_of(sketch.score, edges)
        number = len(edges) + 1
        low, high = np.full(number, np.inf), np.full(number, -np.inf)
        np.minimum.at(low, index, sketch.score)
        np.maximum.at(high, index, sketch.score)
        sums = (sums_by(index, x, number) for x in (sketch.weight, sketch.positives, sketch.weight * sketch.score))
        pooled = pool_bins(np.stack([low, high, *sums], axis=1))
        knots = knot_scores(pooled, self.knots)
        rate = clip_scores(pooled[:, 3] / pooled[:, 2])
        full = 1.0 - SCORE_FLOOR
        slope = rate[-1] / knots[-1]
        # The last line reaches 1 at s = m/v, or the right end before that.
        scores = [0.0, *knots, max(min(full / slope, 1.0), knots[-1])]
        values = [0.0, *rate, min(slope, full)]
        return Curves.of([(np.array(scores), clip_scores(np.array(values)))])
