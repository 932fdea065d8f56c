"""What the fields of a fit contribute: log-loss without each, its strongest values, and what their rows say of them."""

from dataclasses import replace
from typing import Any

import numpy as np

from mcnet._shared.arrays import FloatArray, IndexArray, IntArray, sigmoid, sums_by
from mcnet.bayes.posterior import BayesFit
from mcnet.bayes.rare_values import without_rare
from mcnet.bayes.structure import State
from mcnet.sketch.sketch import Sketch

STRONGEST = 5
"""So many values of each field are named."""
_ROUNDS = 3


def field_contributions(fit: BayesFit, sketch: Sketch, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return for each field how much log-loss it saves, and its strongest values, as plain numbers and strings.

    A field is left out by dropping its terms, and those of its pairs, from the fitted sum; then the levels of all rows
    and of the values of the other fields are fitted again under their priors, so that what another field could take
    over is not counted. The log-loss of the rows of the fit is corrected for the effective number of parameters of
    these terms, as Akaike's criterion does: a field of noise contributes nothing.

    Of a value there are: its rows; `odds`, by what its terms multiply the odds of its rows on average; and `own`, the
    share of its level that its own rows say, 1 − posterior variance / prior variance. The prior says the rest.

    Parameters
    ----------
    fit : with its covariance.
    sketch : the rows of the fit, rare values last.
    sizes : how many values of each field have terms.
    """
    covariance = fit.covariance
    if covariance is None or not fit.fields:
        return []
    codes, which = without_rare(sketch.contexts.table, sizes)
    context = sketch.context if len(codes) == len(sketch.contexts) else which[sketch.context]
    expanded = fit.expand(codes)
    weight, positives, logits = sketch.weight, sketch.positives, sketch.logit
    total = float(weight.sum())
    whole = fit.calibrate_contexts(codes, context, logits)
    loss = _loss(whole, weight, positives)
    known = [
        1.0 - np.diagonal(blocks, axis1=1, axis2=2) * fit.strengths.value_precision(part, fit.shapes)
        for part, blocks in enumerate(covariance.blocks)
    ]
    result = []
    for field, name in enumerate(sketch.contexts.names):
        dropped = [field, *(fit.fields + i for i, p in enumerate(fit.combinations) if field in (p.first, p.second))]
        values = [0.0 * numbers if part in dropped else numbers for part, numbers in enumerate(fit.state.values)]
        alone = replace(fit, state=State(fit.state.shared, values)).calibrate_contexts(codes, context, logits)
        others = {part: expanded[:, part] for part in range(expanded.shape[1]) if part not in dropped}
        without = _loss(_levels_again(fit, alone, others, context, weight, positives), weight, positives)
        parameters = sum(float(np.clip(known[part], 0.0, 1.0).sum()) for part in dropped)
        size = len(fit.state.values[field])
        code = np.where(expanded[:, field] >= 0, expanded[:, field], size)[context]
        rows = sums_by(code, weight, size + 1)[:size]
        moved = sums_by(code, weight * (whole - alone), size + 1)[:size] / np.maximum(rows, 1e-300)
        own = np.clip(known[field][:, 0], 0.0, 1.0)
        strongest = [value for value in np.argsort(-np.abs(moved), kind="stable")[:STRONGEST] if rows[value] > 0.0]
        result.append(
            {
                "field": name,
                "values": size,
                "log_loss": _rounded(loss / total),
                "log_loss_saved": _rounded((without - loss - parameters) / total),
                "own": _rounded(float(rows @ own) / max(float(rows.sum()), 1e-300)),
                "strongest": [
                    {
                        "value": sketch.contexts.values[field][value],
                        "rows": _rounded(float(rows[value])),
                        "odds": _rounded(float(np.exp(moved[value]))),
                        "own": _rounded(float(own[value])),
                    }
                    for value in strongest
                ],
            }
        )
    return result


def _rounded(number: float) -> float:
    return float(f"{number:.6g}")


def _loss(calibrated: FloatArray, weight: FloatArray, positives: FloatArray) -> float:
    return float((weight * np.logaddexp(0.0, calibrated) - positives * calibrated).sum())


def _levels_again(
    fit: BayesFit,
    calibrated: FloatArray,
    others: dict[int, IntArray],
    context: IndexArray,
    weight: FloatArray,
    positives: FloatArray,
) -> FloatArray:
    """Return calibrated logits after the levels of all rows and of other fields' values were fitted again.

    One Newton step for each field in turn, a few times: near the maximum, that is enough.
    """
    shared = np.zeros(int(context.max()) + 1, dtype=np.int64)
    parts = [(shared, np.zeros(1), 0.0)]
    for part, codes in others.items():
        size = len(fit.state.values[part])
        if size:
            precision = float(fit.strengths.value_precision(part, fit.shapes)[0])
            levels = np.append(fit.state.values[part][:, 0], 0.0)
            parts.append((np.where(codes >= 0, codes, size), levels, precision))
    for _ in range(_ROUNDS):
        for codes, levels, precision in parts:
            p, of_row = sigmoid(calibrated), codes[context]
            gradient = sums_by(of_row, positives - weight * p, len(levels)) - precision * levels
            step = gradient / (sums_by(of_row, weight * p * (1.0 - p), len(levels)) + precision + 1e-9)
            if precision:
                step[-1] = 0.0  # rows of values without terms
            step = np.clip(step, -1.0, 1.0)
            levels += step
            calibrated = calibrated + step[of_row]
    return calibrated
