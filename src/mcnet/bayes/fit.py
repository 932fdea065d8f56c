"""Fit BayesMCNet: maximise the posterior, learn the priors' strengths, make the family of curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import ThreadpoolController

from mcnet._shared.arrays import FloatArray, sigmoid, sums_by
from mcnet.bayes.fields import combine, telling, without_rare
from mcnet.bayes.likelihood import make_cells
from mcnet.bayes.model import Incidence, Panels, State, make_panels, make_shapes, step_basis
from mcnet.bayes.newton import Balance, Posterior, maximise, refine_balance
from mcnet.bayes.posterior import BayesFit, Covariance
from mcnet.bayes.prior import WIDE_COMMON, EmpiricalBayes, Prior, Strengths
from mcnet.curves.family import Combination, CurveFamily
from mcnet.errors import InputError
from mcnet.sketch.sketch import Sketch

AFFORDED = ((100, 48, 8), (2_000, 36, 6), (np.inf, 24, 4))
"""Up to so many contexts: how many panels curves have, and how many bends a field value's difference from the common
curve."""
LARGEST_LIFT = 0.1
"""An offset cannot correct more than this many logits."""
_NEWTON_STEPS = 30
_LARGEST_STEP = 2.0


def fit_bayes(
    logits: ArrayLike,
    contexts: ArrayLike,
    weight: ArrayLike,
    positives: ArrayLike,
    codes: ArrayLike,
    sizes: Sequence[int],
    *,
    pairs: Sequence[tuple[int, int]] = (),
    panels: int | None = None,
    basis: Callable[[Panels], FloatArray] = step_basis,
    bends: int | None = None,
    strengths: Strengths | None = None,
    decrement: float = 0.0,
    alpha_balance: float = 0.0,
    normalize: Literal["global", "field"] = "global",
    start: BayesFit | None = None,
    covariance: bool = True,
    iterations: int = 100,
    lift: bool = True,
    prior: Prior | None = None,
    believed: bool = True,
) -> BayesFit:
    """Fit `p = sigmoid(a_c + ∫ exp(φ₀ + b_c + u_c·φ) dt)` to weighted cells by empirical Bayes.

    A cell has a mean raw logit, the index of its context, a weight and weighted positives. `codes`
    `[contexts, fields]` names each context's field values, `sizes` how many values each field has; a negative code is
    no known value. `pairs` are combinations of fields that get their own deviations under a tighter prior.

    Prior strengths are learnt unless given, as `prior` says (EmpiricalBayes if None). `panels` and `bends`
    (of a value's log-slope) are as many as the contexts afford: resolution costs time, not accuracy, since smoothness
    is learnt. The log-slopes are combinations of the functions of `basis`. `lift` makes up for treating the cells of a
    panel as one. `start` continues from an earlier model: its panels, parameters and strengths; new values come after
    the old ones. After a step with a decrement below `decrement` the maximum counts as reached. Scores that are
    not `believed` have a wide prior of the common level and slope.
    """
    cells = tuple(np.asarray(column, dtype=np.float64) for column in (logits, weight, positives))
    where = np.asarray(contexts)
    used = cells[1] > 0
    if not used.any():
        raise InputError("no cell has a positive weight; there is nothing to fit")
    if not used.all():
        cells, where = tuple(column[used] for column in cells), where[used]
    x, w, y = cells
    given = np.atleast_2d(np.asarray(codes, dtype=np.int64))
    rate = float(y.sum() / w.sum())
    of_context = rate * (1.0 - rate) * sums_by(where, w, len(given))
    combinations = [combine(given, sizes, first, second, of_context) for first, second in pairs]
    if start and [(pair.first, pair.second) for pair in start.combinations] != [tuple(pair) for pair in pairs]:
        raise InputError("a fit can only continue from a model with the same combinations of fields")
    expanded = np.column_stack([given, *(pair.codes(given) for pair in combinations)]).astype(np.int64)
    counts = [*map(int, sizes), *(len(pair.keys) for pair in combinations)]

    _, most_panels, most_bends = next(line for line in AFFORDED if len(given) <= line[0])
    grid = start.panels if start else make_panels(x, w, y, panels or most_panels)
    shapes = start.shapes if start else make_shapes(grid, basis(grid), bends or most_bends)
    prior = prior or EmpiricalBayes()
    expected = strengths or (start.strengths if start else prior.first(len(counts), len(combinations)))
    if not (strengths or start) and (not believed or len(grid.mass) <= 3):
        expected = replace(expected, common=WIDE_COMMON, expected_common=WIDE_COMMON)
    incidence, rows = Incidence(expanded, counts), make_cells(grid, x, where, w, y, len(given))
    posterior = Posterior(rows, shapes, incidence, expected)
    # Thousands of small products: on a busy machine threads would wait for each other at every one.
    with _threads().limit(limits=1, user_api="blas"):
        first, learnt = _first_state(posterior, combinations, start), None if strengths else prior
        full = maximise(posterior, first, learnt, steps=iterations, gain=decrement)
        state, posterior, arrow = full.state, full.posterior, full.arrow
        if alpha_balance > 0:
            state = refine_balance(posterior, state, arrow, Balance(alpha_balance, normalize, len(sizes)))
        kept = Covariance(arrow.shared_covariance(), tuple(arrow.inverse), tuple(arrow.coupling))
    model = BayesFit(
        panels=grid,
        shapes=shapes,
        state=state,
        strengths=posterior.strengths,
        combinations=tuple(combinations),
        covariance=kept if covariance else None,
        rows_of_values=tuple(incidence.totals(rows.rows)),
        decrement=full.decrement,
        iterations=full.steps,
    )
    if not lift:
        return model
    # A panel's cells were fitted as one, at their mean score; on a bent curve they expect a little more or less. Under
    # a common offset they expect as many positives as their panels' means did.
    of_panels = float(rows.weight @ sigmoid(posterior.evaluate(state).logits))
    offset, _ = fitted_level(model.calibrate_contexts(given, where, x), w, w * (of_panels / float(w.sum())))
    return model.shifted(offset) if abs(offset) < LARGEST_LIFT else model


def fitted_level(logits: FloatArray, weight: FloatArray, positives: FloatArray) -> tuple[float, float]:
    """Return the constant that makes shifted logits expect the positives there are, and the information about it.

    A group of one class only has no finite level: half a positive and half a negative are added.

    >>> level, _ = fitted_level(np.zeros(2), np.array([50.0, 50.0]), np.array([20.0, 20.0]))
    >>> round(level, 2)
    -0.41
    """
    total, seen = float(weight.sum()), float(positives.sum())
    if not 0.5 <= seen <= total - 0.5:
        seen, share = seen + 0.5, (total + 1.0) / total
        weight = weight * share
    level = information = 0.0
    for _ in range(_NEWTON_STEPS):
        p = sigmoid(logits + level)
        information = max(float(weight @ (p * (1.0 - p))), 1e-300)
        step = float(np.clip((seen - float(weight @ p)) / information, -_LARGEST_STEP, _LARGEST_STEP))
        level += step
        if abs(step) < 1e-7:
            break
    return level, information


@cache
def _threads() -> Any:
    """Return the threads of the linear algebra libraries; finding them takes milliseconds, so it is done once."""
    return ThreadpoolController()


def _first_state(posterior: Posterior, combinations: list[Combination], start: BayesFit | None) -> State:
    """Return the identity curve, or the earlier model's parameters with zeros for values it did not know."""
    width = posterior.shapes.deviation.shape[1]
    values = [np.zeros((size, width)) for size in posterior.incidence.sizes]
    if start is None:
        return State(posterior.centre, values)
    for field, numbers in enumerate(start.state.values[: start.fields]):
        values[field][: len(numbers), : numbers.shape[1]] = numbers
    for field, (new, old) in enumerate(zip(combinations, start.combinations, strict=True), start.fields):
        place = old.codes(new.pairs())
        known = start.state.values[field][place[place >= 0]]
        values[field][place >= 0, : known.shape[1]] = known
    return State(start.state.shared.copy(), values)


# From a sketch to a fit of BayesMCNet, and from there to a family of curves.

# A prior variance that holds every field value on the common curve.
_HELD = 1e-10


def fit_bayes_sketch(
    sketch: Sketch,
    *,
    panels: int | None = None,
    alpha_balance: float = 0.0,
    balance: str = "global",
    pairs: Sequence[tuple[int, int]] | None = None,
    start: BayesFit | None = None,
    strengths: Strengths | None = None,
    covariance: bool = True,
    kept: tuple[int, ...] | None = None,
    prior: Prior | None = None,
    decrement: float = 0.0,
    believed: bool = True,
) -> BayesFit:
    """Fit the model to the cells of a sketch; values of a field from the number `kept` on share the common curve.

    `pairs` of fields have their own deviations: None are those that tell something, and of a later fit the same.
    """
    sizes = kept if kept is not None else tuple(len(known) for known in sketch.contexts.values)
    codes, which = without_rare(sketch.contexts.table, sizes)
    context = sketch.context if len(codes) == len(sketch.contexts) else which[sketch.context]
    if start is not None:
        pairs = [(pair.first, pair.second) for pair in start.combinations]
    elif pairs is None:
        pairs = telling(sketch).pairs
    fitted = fit_bayes(
        sketch.logit,
        context,
        sketch.weight,
        sketch.positives,
        codes,
        sizes,
        pairs=pairs,
        panels=panels,
        alpha_balance=alpha_balance,
        normalize=balance,  # type: ignore[arg-type]
        start=start,
        strengths=strengths,
        covariance=covariance,
        prior=prior,
        decrement=decrement,
        believed=believed,
    )
    # Where values share the common curve it is their own, and stays.
    whole = [size == len(known) for size, known in zip(sizes, sketch.contexts.values, strict=True)]
    return fitted.recentred(whole)


def fit_one_curve(
    sketch: Sketch,
    *,
    panels: int | None,
    alpha_balance: float,
    balance: str,
    start: BayesFit | None = None,
    believed: bool = True,
) -> BayesFit:
    """Fit one curve for all rows: the balance term sees the field values, the curve does not."""
    contexts = sketch.contexts
    balanced = alpha_balance > 0.0 and bool(contexts.names)
    alone = fit_bayes_sketch(sketch.pooled(), panels=panels, start=start, believed=believed)
    if not balanced:
        return alone
    fields = len(contexts.names)
    held = replace(EmpiricalBayes().first(fields, 0), values=np.full((fields, 3), _HELD), common=alone.strengths.common)
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
