"""Fit BayesMCNet: maximise the posterior, learn the priors' strengths, make the family of curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike
from threadpoolctl import ThreadpoolController

from mcnet._shared.arrays import ROWS_AT_A_TIME, FloatArray, IntArray, sums_by
from mcnet._shared.loops import numba_installed
from mcnet.bayes.averaging import Maximum, averaged, averaged_share
from mcnet.bayes.likelihood import Table, make_table
from mcnet.bayes.newton import ROUGHLY, Balance, Posterior, Search, refine_balance
from mcnet.bayes.posterior import BayesFit, Covariance, JointCovariance
from mcnet.bayes.prior import (
    COMBINATION_SHARE,
    EXPECTED,
    BolderIteration,
    EmpiricalBayes,
    Prior,
    StrengthIteration,
    Strengths,
    default_strengths,
)
from mcnet.bayes.rare_values import LEAST_INFORMATION, without_rare
from mcnet.bayes.solver import Information, joint_information
from mcnet.bayes.sparse_table import SparseTable, make_sparse_table
from mcnet.bayes.structure import (
    MOST_PAIRS,
    Incidence,
    Panels,
    Shapes,
    State,
    combine,
    field_pairs,
    interacting_pairs,
    make_panels,
    make_shapes,
    step_basis,
)
from mcnet.bayes.tempering import CellColumns
from mcnet.curves.family import Combination, CurveFamily
from mcnet.errors import InputError
from mcnet.sketch.sketch import Sketch

# How finely the curve of a field value can differ from the common one, given its number of rows.

# A bend of which the rows know this much, beside what its prior says, moves a curve by about that share of what the
# curve is uncertain by.
WORTHWHILE = 1e-3


def worthwhile_bends(table: Table | SparseTable, shapes: Shapes, incidence: Incidence, strengths: Strengths) -> int:
    """Return how many bends, smoothest first, the rows of the largest field value can tell anything about.

    Information on a bend over its prior precision falls with the fourth power of its number. It is measured on all
    rows at once, as though every value had the same scores, at the identity and the rates observed.
    """
    if not incidence.fields:
        return 0
    weight, positives, places = table.panel_sums()
    known = np.maximum(weight, np.finfo(np.float64).tiny)
    place = places / known
    moves = table.panels.scale * shapes.bends.T
    change = table.panels.cumulate(moves) + place * moves + shapes.deviation[0][:, None]
    information = change**2 @ (positives * (weight - positives) / known)
    evidence = np.zeros(len(information))
    for field in range(incidence.fields):
        share = float(incidence.total(field, table.rows).max(initial=0.0) / weight.sum())
        evidence = np.maximum(evidence, share * information / strengths.value_precision(field, shapes))
    worth = np.flatnonzero(evidence[2:] > WORTHWHILE)
    return int(worth[-1]) + 1 if len(worth) else 0


# Fitting BayesMCNet: maximise the posterior, learn the priors' strengths, keep the covariance.

# The maximum counts as reached when twice the log-posterior still to be gained is below this; no data can tell.
DECREMENT = 1e-5
# Nor can floating point tell a gain smaller than this share of the log-likelihood.
RELATIVE_DECREMENT = 1e-11
# With several fields a step takes long, and this share of the log-likelihood moves no log-loss that anyone looks at.
RELATIVE_DECREMENT_OF_SEVERAL = 1e-6
# Where a fit may end with something left to be gained, the share of it that the directions of its steps may miss.
LEFT_BY_DIRECTIONS = 0.1
# Coefficients of several fields up to which their joint covariance is computed, which takes a fifth of a second.
LARGEST_JOINT_COVARIANCE = 1_000
# Up to this many contexts, tables of contexts × panels are fast; with more they would be mostly empty. Combinations of
# several fields have fewer rows each, and so are their tables with fewer of them.
MOST_DENSE_CONTEXTS = 2_000
MOST_DENSE_COMBINATIONS = 300
# Variances of the priors to five per cent: the evidence is flat around its maximum.
SETTLED = 0.05
SETTLED_OF_SEVERAL = 0.1


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
    deviations: int | None = None,
    most_deviations: int | None = None,
    strengths: Strengths | None = None,
    decrement: float = 0.0,
    alpha_balance: float = 0.0,
    normalize: Literal["global", "field"] = "global",
    start: BayesFit | None = None,
    covariance: bool = True,
    iterations: int = 100,
    lift: bool = True,
    prior: Prior | None = None,
    average: bool = False,
) -> BayesFit:
    """Fit `p = sigmoid(a_c + ∫ exp(φ₀ + b_c + u_c·φ) dt)` to weighted cells by empirical Bayes.

    A cell has a mean raw logit, the index of its context, a weight and weighted positives. `codes`
    `[contexts, fields]` names each context's field values, `sizes` how many values each field has; a negative code is
    no known value. `pairs` are combinations of fields that get their own deviations under a tighter prior.

    Prior strengths are learnt unless given, as `prior` says (EmpiricalBayes if None). `panels` and `deviations` (the
    number of bends of a value's log-slope) default to what the number of contexts affords and the number of rows can
    tell (`most_deviations` of them at most): resolution costs time, not accuracy, since smoothness is learnt. The
    log-slopes are combinations of the functions of `basis`. `lift` makes up for treating the cells of a panel as one,
    `average` averages the result over how wrong the scores may be. `start` continues from an earlier model: its panels,
    parameters and strengths; new values come after the old ones. After a step with a decrement below `decrement` the
    maximum counts as reached.
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
    combinations = _combinations(given, sizes, pairs, start, of_context)
    expanded = np.column_stack([given, *(pair.codes(given) for pair in combinations)]).astype(np.int64)
    counts = [*map(int, sizes), *(len(pair.keys) for pair in combinations)]

    afforded = _affordable(max([len(given), *counts]))
    grid = start.panels if start else make_panels(x, w, y, panels or afforded[0])
    functions = start.shapes.basis if start else basis(grid)
    incidence = Incidence(expanded, counts, [(pair.first, pair.second) for pair in combinations])
    most_dense = MOST_DENSE_COMBINATIONS if incidence.several else MOST_DENSE_CONTEXTS
    sparse = len(given) > most_dense and alpha_balance == 0.0 and numba_installed()
    table = (make_sparse_table if sparse else make_table)(grid, x, where, w, y, len(given))
    prior = prior or EmpiricalBayes()
    expected = strengths or (start.strengths if start else prior.first(len(counts), len(combinations)))
    most = deviations or min(afforded[1], most_deviations or afforded[1])
    known = start.every_bend if start else None
    whole = known is not None and len(known.roughness) == min(most, functions.shape[1] - 1)
    every = known if known and whole else make_shapes(grid, functions, most)
    shapes = every if deviations else every.smoothest(worthwhile_bends(table, every, incidence, expected))
    if start:
        shapes = start.shapes.extended(shapes)
    posterior = Posterior(table, shapes, incidence, expected)
    # Thousands of small products: on a busy machine threads would wait for each other at every one.
    with _threads().limit(limits=1, user_api="blas"):
        search = Search(posterior, _first_state(posterior, combinations, start))
        if decrement > 0.0:
            search.near, search.closely, search.enough = start is not None, ROUGHLY, LEFT_BY_DIRECTIONS * decrement
        taken = _maximise(search, None if strengths else prior, iterations=iterations, gain=decrement)
        arrow = search.arrow  # which may change the curvature
        posterior, state, information, left = search.posterior, search.state, search.information, search.decrement
        del search  # with very many contexts a lot of memory
        if alpha_balance > 0:
            state = refine_balance(posterior, state, arrow, Balance(alpha_balance, normalize, len(sizes)))
        joint = _joint_covariance(information, len(sizes)) if covariance else None
        kept = Covariance(arrow.shared_covariance(), tuple(arrow.inverse), tuple(arrow.coupling), joint)
    model = BayesFit(
        panels=grid,
        shapes=shapes,
        state=state,
        strengths=posterior.strengths,
        combinations=tuple(combinations),
        covariance=kept if covariance else None,
        rows_of_values=tuple(incidence.total(field, table.rows) for field in range(incidence.fields)),
        every_bend=every,
        decrement=float(left),
        iterations=taken,
    )
    if not lift:
        return model
    share = averaged_share(posterior.table) if average else 0.0
    full = Maximum(state, posterior, arrow, information) if share > 0.0 else None
    del arrow, information
    of_panels = posterior.table.expected(*posterior.contexts(state))
    lifted = _lifted(model, model.calibrate_contexts(given, where, x), w, of_panels)
    return lifted if full is None else averaged(lifted, full, share)


def _lifted(model: BayesFit, calibrated: FloatArray, weight: FloatArray, expected: float) -> BayesFit:
    """Return the model with a common offset under which its cells expect as many positives as their panels' means did.

    A panel's cells were fitted as one, at their mean score; on a bent curve they expect a little more or less.
    """
    offset = 0.0
    pieces = [slice(start, start + ROWS_AT_A_TIME) for start in range(0, len(weight), ROWS_AT_A_TIME)]
    for _ in range(3):
        slope, excess = 0.0, -expected
        for piece in pieces:
            chance = scipy.special.expit(calibrated[piece] + offset)
            excess += float(weight[piece] @ chance)
            slope += float(weight[piece] @ (chance * (1.0 - chance)))
        offset -= excess / max(slope, 1e-300)
    if not abs(offset) < 0.1:  # an offset cannot correct this
        return model
    return model.shifted(offset)


@cache
def _threads() -> Any:
    """Return the threads of the linear algebra libraries; finding them takes milliseconds, so it is done once."""
    return ThreadpoolController()


def _maximise(search: Search, prior: Prior | None, *, iterations: int, gain: float) -> int:
    """Take Newton steps, and near the maximum a step of the strengths after each, until neither moves; count them."""
    several = search.posterior.incidence.several
    iteration = BolderIteration(SETTLED_OF_SEVERAL) if several else StrengthIteration(SETTLED)
    search.settled = prior is None
    share = RELATIVE_DECREMENT_OF_SEVERAL if several else RELATIVE_DECREMENT
    taken = 0
    while taken < max(iterations, 1):
        taken += 1
        decrement = search.step()
        if search.stuck:
            break
        if search.settled and decrement < max(DECREMENT + share * search.loss, gain):
            break
        if prior is not None and search.learnable and not search.settled:
            strengths = search.posterior.strengths
            shared = search.arrow.shared_covariance()
            variances = search.arrow.value_variances(shared)
            learnt = prior.learn(strengths, search.posterior.shapes, search.state, variances, shared)
            near = decrement < (search.flat if several else 1.0)
            following, settled = iteration.step(strengths, learnt)
            search.settled = settled and near
            search.believe(following)
    return taken


def _joint_covariance(information: Information, fields: int) -> JointCovariance | None:
    """Return the covariance of several fields together; None for one field (its arrow is exact) or too many values."""
    width, size = information.own.shape[1], len(information.shared)
    if (
        sum(size > 0 for size in information.incidence.sizes[:fields]) < 2
        or size + width * sum(information.incidence.sizes[:fields]) > LARGEST_JOINT_COVARIANCE
    ):
        return None
    matrix, start = joint_information(information, fields)
    try:
        return JointCovariance(np.asarray(np.linalg.inv(matrix), dtype=np.float64), start)
    except np.linalg.LinAlgError:
        return None


def _affordable(contexts: int) -> tuple[int, int]:
    """Return panels and deviations for a number of contexts: time and memory grow with their product."""
    if contexts <= 100:
        return 48, 47
    if contexts <= 2_000:
        return 48, 16
    if contexts <= 30_000:
        return (40, 8) if contexts <= 10_000 else (32, 6)
    return 24, 4


def _combinations(
    codes: IntArray,
    sizes: Sequence[int],
    pairs: Sequence[tuple[int, int]],
    start: BayesFit | None,
    information: FloatArray,
) -> list[Combination]:
    least = LEAST_INFORMATION / (EXPECTED[0] * COMBINATION_SHARE)
    found = [combine(codes, sizes, first, second, information, least) for first, second in pairs]
    if start is None:
        return found
    if [(pair.first, pair.second) for pair in start.combinations] != [tuple(pair) for pair in pairs]:
        raise InputError("a fit can only continue from a model with the same combinations of fields")
    return found


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
    panels: int | None,
    interactions: bool,
    alpha_balance: float,
    balance: str,
    pairs: Sequence[tuple[int, int]] | None = None,
    start: BayesFit | None = None,
    strengths: Strengths | None = None,
    covariance: bool = True,
    kept: tuple[int, ...] | None = None,
    prior: Prior | None = None,
    average: bool = True,
    most_deviations: int | None = None,
    decrement: float = 0.0,
) -> BayesFit:
    """Fit the model to the cells of a sketch; values of a field from the number `kept` on share the common curve.

    `pairs` of fields have their own deviations; None are as many as can. The fit is averaged over how wrong the scores
    may be, if it has the default prior and no balance term.
    """
    sizes = kept if kept is not None else tuple(len(known) for known in sketch.contexts.values)
    codes, which = without_rare(sketch.contexts.table, sizes)
    context = sketch.context if len(codes) == len(sketch.contexts) else which[sketch.context]
    cells = CellColumns(sketch.logit, context, sketch.weight, sketch.positives)
    given: dict[str, Any] = {
        "panels": panels,
        "alpha_balance": alpha_balance,
        "normalize": balance,
        "strengths": strengths,
        "covariance": covariance,
        "prior": prior,
        "most_deviations": most_deviations,
        "decrement": decrement,
        "average": average and type(prior) in (type(None), EmpiricalBayes) and alpha_balance == 0.0,
    }
    chosen = interactions and pairs is None and start is None and _are_too_many(sizes)
    if not interactions:
        pairs = []
    elif chosen:
        start, pairs = _first_fit(cells, codes, sizes, {**given, "alpha_balance": 0.0})
    elif start is not None:
        pairs = [(pair.first, pair.second) for pair in start.combinations]
    elif pairs is None:
        pairs = field_pairs(sketch.contexts.names, codes, sizes)
    if chosen and start is not None and not pairs and alpha_balance == 0.0:
        fitted = start  # nothing is left to be fitted
    else:
        fitted = fit_bayes(*cells, codes, sizes, pairs=pairs, start=start, **given)
    # Where values share the common curve it is their own, and stays.
    whole = [size == len(known) for size, known in zip(sizes, sketch.contexts.values, strict=True)]
    return fitted.recentred(whole)


def fit_quickly(sketch: Sketch, *, panels: int | None, interactions: bool) -> Callable[[CellColumns], BayesFit]:
    """Return a function that fits cells with the contexts of a sketch, without their covariance."""
    codes = sketch.contexts.table.astype(np.int64)
    sizes = tuple(len(known) for known in sketch.contexts.values)
    pairs: list[tuple[int, int]] = []
    if interactions and _are_too_many(sizes):
        whole = CellColumns(sketch.logit, sketch.context, sketch.weight, sketch.positives)
        _, pairs = _first_fit(whole, codes, sizes, {"panels": panels, "covariance": False})
    elif interactions:
        pairs = field_pairs(sketch.contexts.names, codes, sizes)

    def fit(cells: CellColumns) -> BayesFit:
        return fit_bayes(*cells, codes, sizes, pairs=pairs, panels=panels, covariance=False, lift=False)

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
    p = scipy.special.expit(first.calibrate_contexts(codes, context, logits))
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
    average: bool = True,
) -> BayesFit:
    """Fit one curve for all rows: the balance term sees the field values, the curve does not."""
    contexts = sketch.contexts
    balanced = alpha_balance > 0.0 and bool(contexts.names)
    alone = fit_bayes_sketch(
        sketch.pooled(),
        panels=panels,
        interactions=False,
        alpha_balance=0.0,
        balance=balance,
        start=start,
        average=average and not balanced,
    )
    if not balanced:
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
