"""From a sketch to a fit of BayesMCNet, and from there to a family of curves."""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
from scipy.special import expit

from mcnet._shared.math import sums_by
from mcnet._shared.user_warnings import warn
from mcnet.bayes.field_pairs import MOST_PAIRS, interacting_pairs
from mcnet.bayes.fit import fit_bayes
from mcnet.bayes.period_tempering import Cells
from mcnet.bayes.posterior_model import BayesFit
from mcnet.bayes.prior import Strengths, default_strengths
from mcnet.curves.family import CurveFamily
from mcnet.sketch.sketch import Sketch

__all__ = ["belief_limit", "family_of", "field_pairs", "fit_bayes_sketch", "fit_one_curve", "fit_quickly"]

_MOST_COMBINATIONS = 200_000
# A prior variance that holds every field value on the common curve.
_HELD = 1e-10


def field_pairs(sketch: Sketch) -> list[tuple[int, int]]:
    """Return the pairs of fields that get an interaction: all of them, unless they combine in too many ways."""
    names, table = sketch.contexts.names, sketch.contexts.table
    pairs = []
    for first, second in combinations(range(len(names)), 2):
        number = len(np.unique(table[:, [first, second]], axis=0))
        if number <= _MOST_COMBINATIONS:
            pairs.append((first, second))
        else:
            warn(
                f"mcnet-bayes: {names[first]} × {names[second]} has {number:,} combinations, more than "
                f"{_MOST_COMBINATIONS:,}: they get no deviations of their own, the two fields add up"
            )
    return pairs


def fit_bayes_sketch(
    sketch: Sketch,
    *,
    panels: int | None,
    interactions: bool,
    alpha_balance: float,
    balance: str,
    start: BayesFit | None = None,
    strengths: Strengths | None = None,
    covariance: bool = True,
) -> BayesFit:
    """Fit the model to the cells of a sketch."""
    contexts = sketch.contexts
    return fit_bayes(
        sketch.logit,
        sketch.context,
        sketch.weight,
        sketch.positives,
        contexts.table,
        [len(known) for known in contexts.values],
        pairs=_pairs(sketch, panels, start) if interactions else (),
        panels=panels,
        alpha_balance=alpha_balance,
        normalize=balance,  # type: ignore[arg-type]
        strengths=strengths,
        start=start,
        covariance=covariance,
    ).recentred()


def fit_quickly(sketch: Sketch, *, panels: int | None, interactions: bool) -> Callable[[Cells], BayesFit]:
    """Return a function that fits cells with the contexts of a sketch, without their covariance."""
    contexts = sketch.contexts
    sizes = [len(known) for known in contexts.values]
    pairs = _pairs(sketch, panels, None) if interactions else ()

    def fit(cells: Cells) -> BayesFit:
        columns = cells.logits, cells.context, cells.weight, cells.positives
        return fit_bayes(*columns, contexts.table, sizes, pairs=pairs, panels=panels, covariance=False, lift=False)

    return fit


def _pairs(sketch: Sketch, panels: int | None, start: BayesFit | None) -> list[tuple[int, int]]:
    """Return the pairs of fields that interact: those of the earlier fit, all, or those that a first fit asks for."""
    if start is not None:
        return [(pair.first, pair.second) for pair in start.combinations]
    fields = len(sketch.contexts.names)
    if fields * (fields - 1) // 2 <= MOST_PAIRS:
        return field_pairs(sketch)
    contexts = sketch.contexts
    sizes = [len(known) for known in contexts.values]
    cells = sketch.logit, sketch.context, sketch.weight, sketch.positives
    first = fit_bayes(*cells, contexts.table, sizes, panels=panels, covariance=False)
    p = expit(first.calibrate_contexts(contexts.table.astype(np.int64), sketch.context.astype(np.int64), sketch.logit))
    residual = sums_by(sketch.context, sketch.positives - sketch.weight * p, len(contexts))
    variance = sums_by(sketch.context, sketch.weight * p * (1.0 - p), len(contexts))
    return interacting_pairs(contexts.table.astype(np.int64), sizes, residual, variance)


def fit_one_curve(
    sketch: Sketch,
    *,
    panels: int | None,
    alpha_balance: float,
    balance: str,
    start: BayesFit | None = None,
) -> BayesFit:
    """Fit one curve for all rows: the balance term sees the field values, the curve does not."""
    alone = fit_bayes_sketch(
        sketch.pooled(), panels=panels, interactions=False, alpha_balance=0.0, balance=balance, start=start
    )
    contexts = sketch.contexts
    if alpha_balance == 0.0 or not contexts.names:
        return alone
    fields = len(contexts.names)
    held = replace(default_strengths(fields, 0), values=(np.full(3, _HELD),) * fields, shared=alone.strengths.shared)
    return fit_bayes(
        sketch.logit,
        sketch.context,
        sketch.weight,
        sketch.positives,
        contexts.table,
        [len(known) for known in contexts.values],
        strengths=held,
        alpha_balance=alpha_balance,
        normalize=balance,  # type: ignore[arg-type]
        start=alone,
    ).without_values()


def belief_limit(rows: float) -> float:
    """Return the largest logit that so many rows can tell from infinity: that of 1 − ½ / (rows + 1)."""
    return float(np.log(2.0 * rows + 1.0))


def family_of(model: BayesFit, limit: float = np.inf) -> CurveFamily:
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
