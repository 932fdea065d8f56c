"""From a sketch to a fit of BayesMCNet, and from there to a family of curves."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from mcnet._shared.math import sums_by
from mcnet._shared.typing import FloatArray, IntArray
from mcnet.bayes.field_pairs import MOST_PAIRS, field_pairs, interacting_pairs
from mcnet.bayes.fit import fit_bayes
from mcnet.bayes.period_tempering import BlockCells
from mcnet.bayes.posterior_model import BayesFit
from mcnet.bayes.prior import Prior, Strengths, default_strengths
from mcnet.bayes.rare_values import without_rare
from mcnet.curves.family import CurveFamily
from mcnet.sketch.sketch import Sketch

__all__ = ["belief_limit", "family_of", "fit_bayes_sketch", "fit_one_curve", "fit_quickly"]

CellColumns = tuple[FloatArray, NDArray[np.integer], FloatArray, FloatArray]
# A prior variance that holds every field value on the common curve.
_HELD = 1e-10


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
    kept: tuple[int, ...] | None = None,
    prior: Prior | None = None,
) -> BayesFit:
    """Fit the model to the cells of a sketch; values of a field from the number `kept` on share the common curve."""
    sizes = kept if kept is not None else tuple(len(known) for known in sketch.contexts.values)
    codes, which = without_rare(sketch.contexts.table, sizes)
    context = sketch.context if len(codes) == len(sketch.contexts) else which[sketch.context]
    cells = sketch.logit, context, sketch.weight, sketch.positives
    given: dict[str, Any] = {
        "panels": panels,
        "alpha_balance": alpha_balance,
        "normalize": balance,
        "strengths": strengths,
        "covariance": covariance,
        "prior": prior,
    }
    pairs: list[tuple[int, int]] = []
    chosen = interactions and start is None and _are_too_many(sizes)
    if chosen:
        start, pairs = _first_fit(cells, codes, sizes, {**given, "alpha_balance": 0.0})
    elif interactions and start is not None:
        pairs = [(pair.first, pair.second) for pair in start.combinations]
    elif interactions:
        pairs = field_pairs(sketch.contexts.names, codes, sizes)
    if chosen and start is not None and not pairs and alpha_balance == 0.0:
        fitted = start  # nothing is left to be fitted
    else:
        fitted = fit_bayes(*cells, codes, sizes, pairs=pairs, start=start, **given)
    # Where values share the common curve it is their own, and stays.
    whole = [size == len(known) for size, known in zip(sizes, sketch.contexts.values, strict=True)]
    return fitted.recentred(whole)


def fit_quickly(sketch: Sketch, *, panels: int | None, interactions: bool) -> Callable[[BlockCells], BayesFit]:
    """Return a function that fits cells with the contexts of a sketch, without their covariance."""
    codes = sketch.contexts.table.astype(np.int64)
    sizes = tuple(len(known) for known in sketch.contexts.values)
    pairs: list[tuple[int, int]] = []
    if interactions and _are_too_many(sizes):
        whole = sketch.logit, sketch.context, sketch.weight, sketch.positives
        _, pairs = _first_fit(whole, codes, sizes, {"panels": panels, "covariance": False})
    elif interactions:
        pairs = field_pairs(sketch.contexts.names, codes, sizes)

    def fit(cells: BlockCells) -> BayesFit:
        columns = cells.logits, cells.context, cells.weight, cells.positives
        return fit_bayes(*columns, codes, sizes, pairs=pairs, panels=panels, covariance=False, lift=False)

    return fit


def _are_too_many(sizes: Sequence[int]) -> bool:
    """Tell whether there are more pairs of fields than can have their own deviations."""
    return len(sizes) * (len(sizes) - 1) // 2 > MOST_PAIRS


def _first_fit(
    cells: CellColumns, codes: IntArray, sizes: Sequence[int], given: dict[str, Any]
) -> tuple[BayesFit, list[tuple[int, int]]]:
    """Return a fit without pairs, ready for those that it asks for, and these pairs."""
    first = fit_bayes(*cells, codes, sizes, **given)
    logits, context, weight, positives = cells
    p = expit(first.calibrate_contexts(codes, context.astype(np.int64), logits))
    residual = sums_by(context, positives - weight * p, len(codes))
    variance = sums_by(context, weight * p * (1.0 - p), len(codes))
    pairs = interacting_pairs(codes, sizes, residual, variance)
    return first.with_pairs(pairs), pairs


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
