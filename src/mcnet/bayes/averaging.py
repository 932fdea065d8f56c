"""Average over how wrong the base scores may be, so that few positives do no harm.

The fit of BayesMCNet has one wide prior of the common level and slope. With few positives it follows their noise. Here
it is averaged with simpler models and with itself under tighter priors, each weighted by its evidence:

- the full fit, and straight lines `logit p = l + b + a (l − c)`, without a field or with a level for each of its values
  of prior standard deviation τ;
- each of them under every pair of prior widths of the common level b and the common slope a.

Every model is fitted once, under wide priors of (b, a) around 0. With the posterior covariance G of (b, a), their mode
r, a prior of mean m and precision W = diag(w_b⁻², w_a⁻²) instead, and D = W − P⁻¹, P the wide prior's variances, the
normal approximation gives the rest: the mode moves by −H⁻¹U q, q = (I + DG)⁻¹ g, g = D r − W m, where U picks out
(b, a), and the logarithm of the evidence changes by

    −½ (rᵀ(g − W m) − gᵀG q + mᵀW m) − ½ log det (I + DG) + ½ log det (I + DP).

Last comes the model that changes nothing. Rows that agree with scores as closely as they would if these were right keep
them as they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy

from mcnet._shared.arrays import FloatArray, IntArray, softplus
from mcnet.bayes.likelihood import Table
from mcnet.bayes.newton import ROUGHLY, Posterior
from mcnet.bayes.posterior import BayesFit, Covariance, JointCovariance
from mcnet.bayes.prior import LEVEL_VARIANCE, OFFSET_VARIANCE
from mcnet.bayes.solver import Arrow, Information, NewtonSystem
from mcnet.bayes.sparse_table import SparseTable
from mcnet.bayes.structure import Incidence, State

# Prior standard deviations of the common level (in logits) and the common slope, and how probable each is.
LEVEL_WIDTHS = np.array([0.03, 0.15, 0.5, 1.5])
LEVEL_SHARES = np.array([0.3, 0.3, 0.25, 0.15])
SLOPE_WIDTHS = np.array([0.001, 0.03, 0.1, 0.25, 0.5])
SLOPE_SHARES = np.array([0.25, 0.2, 0.15, 0.2, 0.2])
# Scores whose slope is far off are more often too spread out (an overfitted model) than too close together.
SLOPE_MEANS = np.array([0.0, 0.0, 0.0, -0.1, -0.2])
# Of every pair of widths: the precisions of level and slope `[2, pairs]`, the mean of the slope, how probable it is.
PRECISIONS = np.stack([np.repeat(LEVEL_WIDTHS, len(SLOPE_WIDTHS)), np.tile(SLOPE_WIDTHS, len(LEVEL_WIDTHS))]) ** -2.0
MEANS = np.tile(SLOPE_MEANS, len(LEVEL_WIDTHS))
LOG_SHARES = np.log(np.outer(LEVEL_SHARES, SLOPE_SHARES).ravel())
# Prior standard deviations of the levels of field values beside a line, and how probable each is.
FIELD_WIDTHS = np.array([0.0, 0.1, 0.3, 1.0])
FIELD_SHARES = np.array([0.4, 0.2, 0.2, 0.2])
# How probable the full fit is before any rows, beside lines; and, of it, the fit with one curve for all field values.
FULL_SHARE = 0.8
ALIKE_SHARE = 0.4
STEPS_TO_ALIKE = 2
# Scores stay as they are where the evidence against them is no larger than that of a level with this prior variance
# would be, if the rows agreed with the scores exactly.
TOLERATED_VARIANCE = 0.08
# From this information on (about as many positives) the fit stays as it is; from half of it on, in part.
MOST_INFORMATION = 2_500.0
# One score for all rows predicts nothing that could be believed: it has but one panel inside its edges.
FEWEST_EDGES = 3
# Newton's steps towards lines end after one as small as this: what is left is about its square. The level around which
# lines turn needs less.
LAST_STEP, ROUGH_STEP = 3e-4, 3e-2
# A line whose slope would be smaller or negative gets this one.
FLATTEST = 0.05


class Maximum(NamedTuple):
    """The maximum of a posterior, and the curvature there."""

    state: State
    posterior: Posterior
    arrow: Arrow
    information: Information


class Tightened(NamedTuple):
    """What tighter priors of level and slope do to fits, for every pair of widths."""

    evidence: FloatArray
    """The change of its logarithm, `[fits, pairs]`, with the logarithm of the pair's own share."""
    pull: FloatArray
    """The mode moves by H⁻¹U times it: `[fits, pairs, 2]`."""
    inner: FloatArray
    """The covariance falls by H⁻¹U times it times UᵀH⁻¹: `[fits, pairs, 2, 2]`."""


def tightened(covariance: FloatArray, away: FloatArray, prior: FloatArray) -> Tightened:
    """Return what every pair of prior widths does to fits.

    Parameters
    ----------
    covariance : the posterior covariance of (level, slope) of each fit under the wide prior, `[fits, 2, 2]`.
    away : their posterior mode, 0 being the identity: `[fits, 2]`.
    prior : the variances of the wide prior.
    """
    level, both, slope = (covariance[:, row, column, None] for row, column in ((0, 0), (0, 1), (1, 1)))
    (of_level, of_slope), (b, a) = PRECISIONS - 1.0 / prior[:, None], away.T[..., None]
    towards = PRECISIONS[1] * MEANS
    first, second = of_level * b, of_slope * a - towards  # g
    # I + DG, its determinant, and q
    upper, lower = 1.0 + of_level * level, 1.0 + of_slope * slope
    determinant = upper * lower - of_level * of_slope * both**2
    pulled_level = (lower * first - of_level * both * second) / determinant
    pulled_slope = (upper * second - of_slope * both * first) / determinant
    evidence = b * first + a * (second - towards) + towards * MEANS + np.log(determinant)
    evidence -= first * (level * pulled_level + both * pulled_slope)
    evidence -= second * (both * pulled_level + slope * pulled_slope)
    evidence -= np.log(PRECISIONS * prior[:, None]).sum(axis=0)
    shared = -of_level * of_slope * both
    inner = np.stack([of_level * lower, shared, shared, of_slope * upper], axis=-1) / determinant[..., None]
    return Tightened(
        LOG_SHARES - 0.5 * evidence,
        -np.stack([pulled_level, pulled_slope], axis=-1),
        inner.reshape(*determinant.shape, 2, 2),
    )


class Lines(NamedTuple):
    """Lines with levels of field values, one for each of FIELD_WIDTHS (the first alone where there is no field)."""

    evidence: FloatArray
    numbers: FloatArray
    """(b, a) and the level of every value: `[lines, 2 + values]`."""
    moves: FloatArray
    """H⁻¹U: how these move if level and slope are pulled, `[lines, 2, 2 + values]`."""
    centre: float
    """The raw logit c around which a line turns."""
    information: float
    """On the common level, at the first line."""


def fit_lines(
    logits: FloatArray, weight: FloatArray, positives: FloatArray, value: IntArray | None = None, values: int = 0
) -> Lines:
    """Fit `logit p = l + b + a (l − c) + level of the value` to weighted cells, under every width of the levels.

    Level and slope have the widest of their priors. A negative `value` is an unknown one, without a level of its own.
    """
    widths, owner, present, first = FIELD_WIDTHS[:1], *(np.zeros(0, dtype=np.int64) for _ in range(3))
    if value is not None:
        order = np.argsort(value, kind="stable")
        logits, weight, positives, owner = logits[order], weight[order], positives[order], value[order]
        present, first = (part[int(owner[0] < 0) :] for part in np.unique(owner, return_index=True))
        widths = FIELD_WIDTHS if len(present) else widths
    level = 0.0
    for _ in range(30):
        p = scipy.special.expit(logits + level)
        change = float(np.sum(positives - weight * p) / max(float(np.sum(weight * p * (1.0 - p))), 1e-300))
        level += min(max(change, -2.0), 2.0)
        if abs(change) < ROUGH_STEP:
            break
    p = scipy.special.expit(logits + level)
    information = weight * p * (1.0 - p)
    centre = float(information @ logits / max(float(information.sum()), 1e-300))
    turned = logits - centre
    wide = np.array([LEVEL_WIDTHS[-1], SLOPE_WIDTHS[-1]]) ** -2.0
    precision = np.array([[0.0], *(width**-2.0 for width in FIELD_WIDTHS[1 : len(widths), None])])
    powers = np.stack([np.ones_like(turned), turned, turned**2], axis=1)
    own, inverse, of_levels = (np.zeros((len(widths), values)) for _ in range(3))
    both = np.zeros((len(widths), 2, values))

    def by_value(cells: FloatArray) -> FloatArray:
        sums = np.zeros((len(widths), values))
        sums[:, present] = np.add.reduceat(cells, first, axis=1)
        return sums

    def at(numbers: FloatArray) -> FloatArray:
        z = logits + numbers[:, :1] + numbers[:, 1:2] * turned
        if len(widths) > 1:
            levels = np.zeros((len(widths), values + 1))
            levels[:, :-1] = numbers[:, 2:]
            z += levels.take(owner, axis=1)  # an unknown value has the last level, which is 0
        return np.asarray(z)

    numbers = np.zeros((len(widths), 2 + values))
    numbers[:, 0] = min(max(level, -1.0), 1.0)
    for _ in range(50):
        p = scipy.special.expit(at(numbers))
        left, known_of = positives - weight * p, weight * p * (1.0 - p)
        gradient = left @ powers[:, :2] - wide * numbers[:, :2]
        curvature = (known_of @ powers)[:, [[0, 1], [1, 2]]] + np.diag(wide)
        if len(widths) > 1:
            # Levels of values are eliminated (a Schur complement): what they leave is a system of two numbers.
            own = by_value(known_of)
            both = np.stack([own, by_value(known_of * turned)], axis=1)
            inverse[1:] = 1.0 / (own + precision)[1:]
            of_levels = inverse * (by_value(left) - precision * numbers[:, 2:])
            curvature -= (both * inverse[:, None]) @ np.swapaxes(both, 1, 2)
            gradient -= (both @ of_levels[:, :, None])[:, :, 0]
        step = np.linalg.solve(curvature, gradient[:, :, None])
        moved = np.concatenate([step[:, :, 0], of_levels - inverse * (step[:, :, 0][:, None] @ both)[:, 0]], axis=1)
        moved = np.minimum(np.maximum(moved, -1.0), 1.0)
        numbers += moved
        if max(moved.max(), -moved.min()) < LAST_STEP:
            break
    z = at(numbers)
    squares = (precision * numbers[:, 2:] ** 2).sum(axis=1)
    evidence = z @ positives - softplus(z) @ weight
    evidence += 0.5 * (np.log(wide).sum() - (numbers[:, :2] ** 2) @ wide - squares)
    evidence -= 0.5 * np.linalg.slogdet(curvature)[1]
    # log(precision of a level / its posterior precision), 0 where levels are held at 0
    shrunken = np.log1p(own[1:] / precision[1:])
    evidence[1:] -= 0.5 * shrunken.sum(axis=1)
    shared = np.linalg.inv(curvature)
    moves = np.concatenate([shared, -shared @ (both * inverse[:, None])], axis=2)
    return Lines(evidence, numbers, moves, centre, float(known_of[0].sum()))


def log_evidence(posterior: Posterior, state: State, arrow: Arrow) -> float:
    """Return the logarithm of the Laplace evidence at the maximum of a posterior, given the strengths of its priors.

    The determinant of the shared vector's prior, which all models of a fit have in common, is left out.
    """
    evidence = -posterior.value(state) - 0.5 * arrow.log_determinant()
    for precision, numbers in zip(posterior.precisions, state.values, strict=True):
        evidence += 0.5 * len(numbers) * float(np.log(precision).sum())
    return evidence


def averaged_share(table: Table | SparseTable) -> float:
    """Return how much of a fit is to be the average: all of it with few positives, nothing with many."""
    if len(table.panels.edges) < FEWEST_EDGES:
        return 0.0
    rows, positives, _ = table.panel_sums()
    information = float(np.sum(positives * (rows - positives) / np.maximum(rows, np.finfo(np.float64).tiny)))
    return min(max(2.0 - 2.0 * information / MOST_INFORMATION, 0.0), 1.0)


def averaged(lifted: BayesFit, full: Maximum, share: float = 1.0) -> BayesFit:
    """Return a fit averaged with itself under tighter priors, with lines, and with the scores as they are.

    Parameters
    ----------
    lifted : the fit, with the offset that makes up for treating the cells of a panel as one.
    full : the maximum of its posterior, without that offset.
    share : how much of the result is the average; the rest is the fit.
    """
    state, posterior = full.state, full.posterior
    unchanged = State(posterior.centre, [np.zeros_like(part) for part in state.values])
    pulled = [np.zeros_like(state.shared) for _ in range(2)]
    pulled[0][0] = 1.0
    pulled[1][1:] = lifted.shapes.level
    first = _tightened_fit(full, pulled)
    of_full, mean = np.log(FULL_SHARE) + first.evidence, first.mean
    of_full += 0.5 * float(np.linalg.slogdet(posterior.shared_precision)[1])
    between: list[tuple[FloatArray, list[State]]] = []
    if posterior.incidence.fields:
        second = _tightened_fit(_alike(full), pulled)
        same = State(second.mean.shared, unchanged.values)
        odds = second.evidence - first.evidence + np.log(ALIKE_SHARE / (1.0 - ALIKE_SHARE))
        weight = float(scipy.special.expit(odds))
        of_full += np.log1p(-ALIKE_SHARE) + float(np.logaddexp(0.0, odds))
        apart = same.plus(-1.0, mean)
        mean = mean.plus(weight, apart)
        between.append((np.array([[share * weight * (1.0 - weight)]]), [apart]))

    line, of_lines, known = _mean_line(posterior, lifted)
    total = float(np.logaddexp(of_full, of_lines))
    against = total + posterior.table.loss(*posterior.contexts(unchanged))
    if not np.isfinite(against):
        return lifted  # scores so wrong that the likelihood of the rows is 0
    weight = 1.0 - float(np.exp(of_lines - total))
    apart = line.plus(-1.0, mean)
    mean = mean.plus(1.0 - weight, apart)
    mean.shared[0] += lifted.state.shared[0] - state.shared[0]
    tolerated = -0.5 * np.log1p(TOLERATED_VARIANCE * known)
    kept = float(np.exp(2.0 * min(tolerated - against, 0.0)))
    changed = mean.plus(-1.0, unchanged)
    served = unchanged if kept == 1.0 else mean.plus(-kept, changed)
    if share < 1.0:
        served = lifted.state.plus(share, served.plus(-1.0, lifted.state))
    terms = [(share * first.spread, first.moves), *between]
    terms += [
        (np.array([[share * square]]), [way]) for square, way in ((weight * (1 - weight), apart), (kept**2, changed))
    ]
    return replace(
        lifted, state=served, covariance=lifted.covariance and _with(lifted.covariance, terms), maximum=lifted
    )


def _alike(full: Maximum) -> Maximum:
    """Return the maximum of the same model with one curve for all field values, as nearly as it matters.

    The strengths stay as they were learnt. A few steps lead there from the maximum with fields, by the curvature known
    from it: the less the values differ, and so the more this model weighs, the closer they get. They see the rows of
    all contexts as one; the evidence is that of the same cells as with fields, as evidences are to compare.
    """
    table, shapes = full.posterior.table, full.posterior.shapes
    strengths = replace(full.posterior.strengths, values=(), expected=())
    rows, positives, places = (sums[None] for sums in table.panel_sums())
    pooled = Table(table.panels, rows, positives, places / np.maximum(rows, np.finfo(np.float64).tiny))
    none = np.empty((len(full.posterior.incidence.codes), 0), dtype=np.int64)
    steps = Posterior(pooled, shapes, Incidence(none[:1], []), strengths)
    own = full.information.own[:0]
    information = replace(full.information, incidence=steps.incidence, own=own, couplings=[], precision=[])
    arrow = Arrow(information, full.arrow.ridge)
    state = State(full.state.shared, [])
    for _ in range(STEPS_TO_ALIKE):
        state = state.plus(-1.0, arrow.solve(steps.gradient(state)))
    return Maximum(state, Posterior(table, shapes, Incidence(none, []), strengths), arrow, information)


class _TightenedFit(NamedTuple):
    evidence: float
    mean: State
    spread: FloatArray
    moves: list[State]


def _tightened_fit(fit: Maximum, pulled: list[FloatArray]) -> _TightenedFit:
    """Return a fit averaged over the prior widths of its level and slope; `pulled` says what these are of its state."""
    state, posterior, arrow, information = fit
    nothing = [np.zeros_like(part) for part in state.values]
    system = NewtonSystem(information, arrow)
    moves = [system.solve(State(pull, nothing), ROUGHLY) for pull in pulled]
    covariance = np.array([[pull @ move.shared for move in moves] for pull in pulled])
    away = np.array([pull @ (state.shared - posterior.centre) for pull in pulled])
    tight = tightened(covariance[None], away[None], np.array([OFFSET_VARIANCE, LEVEL_VARIANCE]))
    total = float(np.logaddexp.reduce(tight.evidence[0]))
    weights = np.exp(tight.evidence[0] - total)
    pull = weights @ tight.pull[0]
    around = tight.pull[0] - pull
    spread = around.T @ (weights[:, None] * around) - np.tensordot(weights, tight.inner[0], 1)
    evidence = log_evidence(posterior, state, arrow) + total
    return _TightenedFit(evidence, state.plus(pull[0], moves[0]).plus(pull[1], moves[1]), spread, moves)


def _mean_line(posterior: Posterior, model: BayesFit) -> tuple[State, float, float]:
    """Return the mean of all lines in the parameters of a fit, the logarithm of their evidence, and the information."""
    context, logits, weight, positives = _points(posterior.table, float(posterior.centre[0]))
    incidence, state = posterior.incidence, model.state
    alone = incidence.fields == 1
    lines = fit_lines(
        logits, weight, positives, incidence.codes[context, 0] if alone else None, incidence.sizes[0] if alone else 0
    )
    prior = np.array([LEVEL_WIDTHS[-1], SLOPE_WIDTHS[-1]]) ** 2
    tight = tightened(lines.moves[:, :, :2], lines.numbers[:, :2], prior)
    shares = FIELD_SHARES[: len(lines.evidence)] / FIELD_SHARES[: len(lines.evidence)].sum()
    logs = (np.log((1.0 - FULL_SHARE) * shares) + lines.evidence)[:, None] + tight.evidence
    total = float(np.logaddexp.reduce(logs, axis=None))
    weights = np.exp(logs - total)
    mean = weights.sum(axis=1) @ lines.numbers
    mean += np.einsum("fp,fpi,fin->n", weights, tight.pull, lines.moves)
    level, slope = mean[:2]
    shared = posterior.centre.copy()
    shared[0] += level + slope * (shared[0] - lines.centre)
    shared += np.log(max(1.0 + slope, FLATTEST)) * model.shapes.deviation[:, 1]
    values = [np.zeros_like(part) for part in state.values]
    if alone:
        values[0][:, 0] = mean[2:]
    return State(shared, values), total, lines.information


def _points(table: Table | SparseTable, origin: float) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Return the cells of a table that have rows: context, mean raw logit, weight, positives."""
    panels = table.panels
    edge = origin + panels.scale * panels.cumulate(np.ones(panels.count))
    if isinstance(table, Table):
        context, panel = np.nonzero(table.weight)
        weight, positives, place = (part[context, panel] for part in (table.weight, table.positives, table.place))
    else:
        context, panel = np.repeat(np.arange(len(table.start) - 1), np.diff(table.start)), table.panel
        weight, positives, place = table.weight, table.positives, table.place
    return context, edge[panel] + panels.scale * place, weight, positives


def _with(covariance: Covariance, terms: list[tuple[FloatArray, list[State]]]) -> Covariance:
    """Return a covariance plus `Σ_ij c_ij m_i m_jᵀ` for every matrix c and its directions m.

    Priors of the shared numbers leave the values' own blocks, given the shared ones, as they are.
    """
    shared, joint = covariance.shared, covariance.fields
    for matrix, moves in terms:
        columns = np.stack([move.shared for move in moves])
        shared = shared + columns.T @ matrix @ columns
        if joint is not None:
            flat = [np.concatenate([move.shared, *(part.ravel() for part in move.values)]) for move in moves]
            columns = np.stack(flat)[:, : len(joint.matrix)]
            joint = JointCovariance(joint.matrix + columns.T @ matrix @ columns, joint.start)
    return replace(covariance, shared=shared, fields=joint)
