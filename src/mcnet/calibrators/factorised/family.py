"""From a sketch to the fitted factorised model, and from there to a family of curves."""

from itertools import combinations

import numpy as np

from mcnet.calibrators.factorised.fit import fit_factorised
from mcnet.calibrators.factorised.model import FactorisedModel
from mcnet.curves.family import CurveFamily
from mcnet.sketch.sketch import Sketch

__all__ = ["belief_limit", "family_of", "field_pairs", "fit_sketch_factorised"]

_MOST_COMBINATIONS = 200_000


def field_pairs(sketch: Sketch) -> list[tuple[int, int]]:
    """Return the pairs of fields that get an interaction: all of them, unless they combine in too many ways."""
    table = sketch.contexts.table
    pairs = []
    for first, second in combinations(range(len(sketch.contexts.names)), 2):
        if len(np.unique(table[:, [first, second]], axis=0)) <= _MOST_COMBINATIONS:
            pairs.append((first, second))
    return pairs


def fit_sketch_factorised(
    sketch: Sketch,
    *,
    panels: int | None,
    interactions: bool,
    alpha_balance: float,
    balance: str,
    start: FactorisedModel | None = None,
) -> FactorisedModel:
    """Fit the factorised model to the cells of a sketch."""
    contexts = sketch.contexts
    return fit_factorised(
        sketch.logit,
        sketch.context,
        sketch.weight,
        sketch.positives,
        contexts.table,
        [len(known) for known in contexts.values],
        pairs=field_pairs(sketch) if interactions else (),
        panels=panels,
        alpha_balance=alpha_balance,
        normalize=balance,  # type: ignore[arg-type]
        start=start,
    ).recentred()


def belief_limit(sketch: Sketch) -> float:
    """Return the largest logit that so many rows can tell from infinity: that of 1 − ½ / (rows + 1)."""
    return float(np.log(2.0 * sketch.total_weight + 1.0))


def family_of(model: FactorisedModel, limit: float = np.inf) -> CurveFamily:
    """Return the fitted curves as a family that needs nothing but NumPy to be evaluated."""
    shapes, panels = model.shapes, model.panels
    return CurveFamily(
        knots=panels.centre + panels.scale * panels.edges,
        origin=panels.origin,
        offset=float(model.state.shared[0]),
        log_slope=shapes.basis @ model.state.shared[1:],
        offset_by=shapes.deviation[0],
        log_slope_by=shapes.bends,
        numbers=tuple(model.state.values),
        combinations=model.combinations,
        limit=limit,
    )
