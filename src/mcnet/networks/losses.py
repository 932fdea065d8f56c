"""The three terms of the training objective: log-loss, order between bins, balance between fields.

Each is a small pure function of tensors. `weight` counts rows, `positives` the rows with label 1 among them,
so a row is simply a cell of weight one.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

__all__ = ["balance_loss", "log_loss_from_logits", "log_loss_from_probabilities", "order_loss"]


def log_loss_from_logits(logits: Tensor, weight: Tensor, positives: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of labels whose probabilities are `sigmoid(logits)`."""
    return (weight * softplus(logits) - positives * logits).sum() / weight.sum()


def _log_with_tangent(values: Tensor, least: float) -> Tensor:
    """Return the logarithm, continued by its tangent below `least` so that gradients stay alive outside (0, 1)."""
    inside = values.clamp_min(least)
    return inside.log() + (values - inside) / least


def log_loss_from_probabilities(
    probabilities: Tensor, weight: Tensor, positives: Tensor, least: float = 1e-4
) -> Tensor:
    """Return the mean negative log-likelihood of labels with these probabilities, which may stray outside (0, 1).

    Below `least`, and above 1 − `least`, the logarithm is continued by its tangent.
    """
    gain = positives * _log_with_tangent(probabilities, least)
    gain = gain + (weight - positives) * _log_with_tangent(1.0 - probabilities, least)
    return -gain.sum() / weight.sum()


def order_loss(ends: Tensor, starts: Tensor, rounding: float = 0.0) -> Tensor:
    """Return how far each bin's function ends above the start of the next one, summed over edges and contexts.

    `ends[k]` is the function of bin k at its right edge, `starts[k]` that of bin k + 1 at the same edge: Σ
    max(ends − starts, 0). With `rounding` δ, violations smaller than δ count x²/2δ and larger ones x − δ/2,
    so that the loss has a second derivative for Newton's method to use.
    """
    violation = (ends - starts).clamp_min(0.0)
    if rounding <= 0:
        return violation.sum()
    small = violation.clamp_max(rounding)
    return (small * (violation - small / 2.0)).sum() / rounding


def balance_loss(
    probabilities: Tensor,
    weight: Tensor,
    positives: Tensor,
    group: Tensor,
    groups: int,
    normalise: Literal["global", "field"] = "global",
) -> Tensor:
    """Return the spread between field values of how much each is over-predicted.

    DIFF_c = (1/N) Σ_{rows of c} (p − y), with N all rows (`"global"`, as in the paper) or the rows of c
    (`"field"`); the result is the population standard deviation of DIFF over the values. A value without rows
    counts as zero in the first variant and is left out in the second.
    """
    excess = (weight * probabilities - positives).reshape(-1)
    sums = torch.zeros(groups, dtype=excess.dtype, device=excess.device).index_add(0, group.reshape(-1), excess)
    if normalise == "global":
        difference = sums / weight.sum()
    else:
        mass = torch.zeros_like(sums).index_add(0, group.reshape(-1), weight.reshape(-1).to(sums.dtype))
        difference = sums[mass > 0] / mass[mass > 0]
    if difference.numel() < 2:
        return torch.zeros((), dtype=excess.dtype, device=excess.device)
    # The tiny constant keeps the slope of the root finite where all values are in balance.
    return (difference.var(correction=0) + 1e-12).sqrt()
