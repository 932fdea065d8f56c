"""Read a journal: the sketch of each period, and the weighted sum of many."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnet.errors import InputError
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.journal_entries import EntryBatch, counted_files
from mcnet.tracking.journal_readers import load_sketch_of_batch
from mcnet.tracking.period import elapsed_periods, period_text, periods_between, sorted_periods

if TYPE_CHECKING:
    from mcnet.tracking.arrival import ArrivalCurve

__all__ = ["period_factors", "period_sketches", "weighted_sum"]


def period_sketches(
    batches: Sequence[EntryBatch], since: Any, until: Any, arrival: "ArrivalCurve | None"
) -> Iterator[tuple[str, Sketch]]:
    """Yield (period, sketch) in order, one period in memory at a time; with `arrival`, late positives corrected."""
    files: dict[str, list[tuple[Path, float | None]]] = defaultdict(list)
    for path, entry in counted_files(batches).items():
        files[entry.period].append((path, entry.age))
    for period in periods_between(sorted_periods(list(files)), since, until):
        parts = [load_sketch_of_batch(path) for path, _ in files[period]]
        if arrival is not None:
            from mcnet.tracking.arrival import corrected_sketch

            ages = [age for _, age in files[period]]
            parts = [corrected_sketch(part, age, arrival) for part, age in zip(parts, ages, strict=True)]
        yield period, Sketch.merged(parts)


def period_factors(
    periods: Sequence[str], half_life: float | None, weights: Mapping[Any, float], known: Collection[str]
) -> dict[str, float]:
    """Return by how much the rows of each period count: the weight given, decayed from the last period backwards.

    Weights of periods that are not among `known` are refused.
    """
    if half_life is not None and not (isinstance(half_life, int | float | np.number) and half_life > 0.0):
        raise InputError(f"half_life is {half_life!r}; it must be a number of periods above 0")
    given = {period_text(period): _factor(period, factor) for period, factor in weights.items()}
    unknown = [period for period in given if period not in known]
    if unknown:
        raise InputError(f"weights has the period {unknown[0]}, of which the journal has no rows; leave it out")
    decay = np.ones(len(periods)) if half_life is None else 0.5 ** (elapsed_periods(periods) / half_life)
    return {period: given.get(period, 1.0) * float(factor) for period, factor in zip(periods, decay, strict=True)}


def _factor(period: Any, factor: Any) -> float:
    if isinstance(factor, bool) or not isinstance(factor, int | float | np.number) or not 0.0 <= factor < np.inf:
        raise InputError(f"the weight of {period} is {factor!r}; it must be a number, 0 or more")
    return float(factor)


def weighted_sum(sketches: Iterable[tuple[str, Sketch]], factors: Mapping[str, float]) -> Sketch:
    """Return the sum of sketches, each times the factor of its period; those of factor 0 are left out."""
    total: Sketch | None = None
    for period, sketch in sketches:
        factor = factors[period]
        if factor > 0.0:
            part = sketch if factor == 1.0 else factor * sketch
            total = part if total is None else total + part
    if total is None:
        raise InputError("every period has weight 0; leave at least one in")
    return total
