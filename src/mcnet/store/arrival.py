"""Positives that arrive late: the share that has arrived by age, and the correction of recent periods by it."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mcnet._shared.arrays import FloatArray
from mcnet.bayes.estimator import BayesMCNet
from mcnet.errors import CalibrationWarning
from mcnet.sketch.grid import Cells
from mcnet.sketch.sketch import Sketch

if TYPE_CHECKING:
    from mcnet.store.entries import Entry

MOST_AGES = 64
"""Counts of more different ages are looked at on as many quantiles of the ages."""
PRIOR_COUNT = 0.5
"""Jeffreys' prior of a share: half a positive that was there, half a one that was not."""
FEWEST_POSITIVES = 20.0
"""A period with fewer positives gets one rate for all its rows instead of curves."""
HIGHEST_RATE = 0.999
"""No cell is believed to have a higher rate once all positives have arrived."""


@dataclass(frozen=True)
class ArrivalCurve:
    """The share of positives that has arrived by an age, in periods; it never falls, and is 1 at the last age.

    Attributes
    ----------
    ages : the ages, rising; the last may be infinite, where complete counts are known.
    share : the share that has arrived by each age.
    log_variance : the variance of the logarithm of the share, for a period to come.
    """

    ages: FloatArray
    share: FloatArray
    log_variance: FloatArray

    @staticmethod
    def learn(entries: Iterable[Entry]) -> ArrivalCurve | None:
        """Learn from periods that were counted at several ages; None if no period was.

        From one age to the next, q = (positives by the earlier age) / (positives by the later one), summed over the
        periods counted at both, has a Beta posterior: a hazard in reverse time. The share by an age is the product of
        the q from there to the last age. Between two counts of a period its positives are interpolated. How much
        periods differ from the common q adds to the variance.

        Parameters
        ----------
        entries : the counts of a journal, at whatever ages they were made.

        Returns
        -------
        ArrivalCurve : what was learnt; None if no period was counted at several ages.
        """
        counts: dict[tuple[str, str], dict[float, float]] = defaultdict(dict)
        for entry in entries:
            counts[entry.source, entry.period][np.inf if entry.age is None else entry.age] = entry.positives
        several = [sorted(found.items()) for found in counts.values() if len(found) > 1]
        if not several:
            return None
        ages = np.unique([age for found in several for age, _ in found])
        if len(ages) > MOST_AGES:
            ages = np.unique(np.quantile(ages[np.isfinite(ages)], np.linspace(0.0, 1.0, MOST_AGES)).round(9))
            ages = np.append(ages, [np.inf] * any(np.isinf(age) for found in several for age, _ in found))
        # A step of age may be infinite: places on the grid stand for ages.
        arrived = np.stack([_arrived(found, ages) for found in several])
        kept, variance = np.ones(len(ages) - 1), np.zeros(len(ages) - 1)
        for step in range(len(ages) - 1):
            before, after = arrived[:, step], arrived[:, step + 1]
            known = np.isfinite(before) & np.isfinite(after) & (after > 0.0)
            if known.any():
                kept[step], variance[step] = _step(before[known], after[known])
        share = np.append(np.cumprod(kept[::-1])[::-1], 1.0)
        return ArrivalCurve(ages, share, np.append(np.cumsum(variance[::-1])[::-1], 0.0))

    def at(self, age: float | None) -> tuple[float, float]:
        """Return the share that has arrived by an age, and the variance of its logarithm; None is complete.

        Parameters
        ----------
        age : in periods; None is complete.
        """
        if age is None or age >= self.ages[-1]:
            return 1.0, 0.0
        finite = np.isfinite(self.ages)
        share = np.interp(age, self.ages[finite], self.share[finite])
        return float(share), float(np.interp(age, self.ages[finite], self.log_variance[finite]))


def _arrived(found: list[tuple[float, float]], ages: FloatArray) -> FloatArray:
    """Return the positives of a period at each age, NaN outside of the ages at which it was counted."""
    known = np.array([age for age, _ in found])
    positives = np.maximum.accumulate([number for _, number in found])
    finite = np.isfinite(known)
    result = np.full(len(ages), np.nan)
    if finite.any():
        inside = (ages >= known[finite][0]) & (ages <= known[finite][-1])
        result[inside] = np.interp(ages[inside], known[finite], positives[finite])
    if not finite[-1]:
        result[ages == np.inf] = positives[-1]
        if len(known) > 1:  # the last finite count is the best guess until the complete one
            later = (ages > known[-2]) & np.isfinite(ages)
            result[later] = np.nan
    return result


def _step(before: FloatArray, after: FloatArray) -> tuple[float, float]:
    """Return the share of later positives that were there before, and the variance of its logarithm."""
    there, gone = float(before.sum()) + PRIOR_COUNT, float((after - before).sum()) + PRIOR_COUNT
    share = there / (there + gone)
    odds = (1.0 - share) / share
    spread = 1.0
    if len(after) > 1:
        expected = after * share * (1.0 - share)
        spread = max(float(np.sum((before - share * after) ** 2) / expected.sum()) * len(after) / (len(after) - 1), 1.0)
    # The error of the common share, and how much the share of one more period differs from it.
    return share, odds * (spread / (there + gone) + (spread - 1.0) / float(after.mean()))


def corrected_sketch(sketch: Sketch, age: float | None, arrival: ArrivalCurve | None) -> Sketch:
    """Return the rows of a period as they are expected to be once all positives have arrived.

    With the share s that has arrived, a positive counts 1 / s. A negative may still become a positive: with the rate q
    of positives so far, a smooth curve per context, it counts (1 − q/s) / (1 − q), so that the weight of the rows stays
    what it is. Sums of values are changed alike. All weights are then reduced to what such rows can tell: with N
    expected positives and the variance v of log s, the information of N complete positives is N, of these
    N / ((1 − s·p) / (s·(1 − p)) + N·v/(1 − p)). Complete labels (age None) are returned as they are.
    """
    share, variance = (1.0, 0.0) if arrival is None else arrival.at(age)
    if share >= 1.0 or sketch.total_weight <= 0.0:
        return sketch
    so_far = np.minimum(_rates(sketch), HIGHEST_RATE * share)
    positives = sketch.positives / share
    negatives = (sketch.weight - sketch.positives) * (1.0 - so_far / share) / (1.0 - so_far)
    expected = float(positives.sum())
    rate = min(expected / sketch.total_weight, HIGHEST_RATE)
    information = (1.0 - rate) / ((1.0 - share * rate) / share + expected * variance)
    weight = positives + negatives
    position = sketch.cells.sums[:, 2] * weight / sketch.weight
    sums = np.column_stack([weight, positives, position, _values(sketch, share, negatives)]) * information
    cells = Cells(sketch.cells.context, sketch.cells.key, sketch.fold, sums)
    return replace(sketch, cells=cells.take(weight > 0.0), known_sources=sketch.sources)


def _values(sketch: Sketch, share: float, negatives: FloatArray) -> FloatArray:
    """Return the sums of values once the positives have arrived; no columns for a sketch without values."""
    if sketch.value_kind is None:
        return sketch.values

    def ratio(after: FloatArray, before: FloatArray) -> FloatArray:
        return np.divide(after, before, out=np.ones(len(before)), where=before > 0.0)

    worth, positive, squares = sketch.values.T
    kept = ratio(negatives, sketch.weight - sketch.positives)
    rows = ratio(sketch.positives / share + negatives, sketch.weight)
    return np.column_stack([positive / share + kept * (worth - positive), positive / share, squares * rows])


def _rates(sketch: Sketch) -> FloatArray:
    """Return the rate of positives of each cell so far: of smooth curves per context, or one rate if they are few."""
    rarer = min(sketch.total_positives, sketch.total_weight - sketch.total_positives)
    if rarer < FEWEST_POSITIVES:
        return np.full(len(sketch), sketch.total_positives / sketch.total_weight)
    with warnings.catch_warnings():
        # A fit on the corrected rows warns of their gaps.
        warnings.simplefilter("ignore", CalibrationWarning)
        fitted = BayesMCNet(isotonic_share=0.0).fit_sketch(sketch)
    columns = sketch.contexts.columns(sketch.context)
    return fitted.predict(sketch.score, columns or None, score_type="probability")
