"""Checks of the rows given to a module: what their tensors are, and their values.

A batch costs one look at the least and the largest value of each tensor; which row is wrong is found only after that.
While torch traces a program (`torch.export`) there are no values to look at, and only types and shapes
are checked.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mcnet._shared.typing import ScoreType
from mcnet.data.columns import labels_column, scores_column, weights_column
from mcnet.errors import InputError

__all__ = ["check_labels", "check_scores", "check_weights", "checked_codes", "plain_column"]

_LARGEST = float(torch.finfo(torch.float32).max)


def plain_column(values: Any) -> Any:
    """Return a tensor as a NumPy array, whatever its type and device; other columns as they are."""
    if not isinstance(values, Tensor):
        return values
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()


def check_scores(score: Any, score_type: ScoreType) -> None:
    """Raise unless the scores are a floating-point tensor `[rows]` of probabilities, or of finite logits."""
    if not isinstance(score, Tensor):
        raise InputError(f"score is {type(score).__name__}; give a tensor, such as torch.as_tensor(score)")
    if not score.is_floating_point():
        raise InputError(f"score is a tensor of {score.dtype}; scores are floating-point numbers")
    if score.ndim != 1:
        advice = ", such as score[:, 0]" if score.ndim == 2 and score.shape[1] == 1 else ""
        raise InputError(f"score has shape {tuple(score.shape)}; give one number per row, [rows]{advice}")
    low, high = (0.0, 1.0) if score_type == "probability" else (-_LARGEST, _LARGEST)
    if not _are_within(score, low, high):
        scores_column(plain_column(score), score_type=score_type)
        raise InputError("score has infinite logits; clip them, to −30 … 30 for example")


def check_labels(label: Any, score: Tensor) -> None:
    """Raise unless there is a label from 0 to 1 for each score."""
    _check_column("label", label, score, labels_column, 1.0)
    if len(score) == 0:
        raise InputError("the batch is empty; a loss needs at least one row")


def check_weights(weight: Any, score: Tensor) -> None:
    """Raise unless there is a finite weight ≥ 0 for each score, and some weight in all."""
    _check_column("weight", weight, score, weights_column, _LARGEST)
    if _has_values(weight) and not bool(weight.detach().sum() > 0):
        raise InputError("weight is 0 for every row of the batch; a loss needs some weight")


def checked_codes(context: Any, score: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return the codes `[rows, fields]`, with the code `size` for values never seen; raise if they are no codes."""
    if context is None:
        if sizes:
            raise InputError(f"the module has {len(sizes)} field(s); give their codes as `context`")
        return torch.zeros(score.shape[0], 0, dtype=torch.long, device=score.device)
    if not isinstance(context, Tensor):
        raise InputError(f"context is {type(context).__name__}; give a tensor of codes, such as torch.as_tensor(codes)")
    if context.is_floating_point() or context.is_complex() or context.dtype == torch.bool:
        raise InputError(f"context is a tensor of {context.dtype}; codes are whole numbers, such as torch.int64")
    if context.ndim not in (1, 2) or context.shape[0] != score.shape[0]:
        wanted = f"[{score.shape[0]}] or [{score.shape[0]}, fields]"
        raise InputError(f"context has shape {tuple(context.shape)}; give the codes of each row, {wanted}")
    codes = context.long()
    codes = codes[:, None] if codes.ndim == 1 else codes
    if codes.shape[1] != len(sizes):
        raise InputError(f"context has {codes.shape[1]} field(s); the module has {len(sizes)}")
    limit = torch.tensor(sizes, dtype=torch.long, device=codes.device)
    if _has_values(codes):
        wrong = (codes < -1) | (codes >= limit)
        if bool(wrong.any()):
            row, field = (int(i) for i in wrong.nonzero()[0])
            raise InputError(
                f"context has the code {int(codes[row, field])} in row {row}, field {field}, whose codes are 0 … "
                f"{sizes[field] - 1}; −1 is a value never seen"
            )
    return torch.where((codes < 0) | (codes >= limit), limit, codes)


def _check_column(name: str, values: Any, score: Tensor, column: Callable[[Any], np.ndarray], most: float) -> None:
    if not isinstance(values, Tensor):
        raise InputError(f"{name} is {type(values).__name__}; give a tensor, such as torch.as_tensor({name})")
    if values.is_complex():
        raise InputError(f"{name} is a tensor of {values.dtype}, not of plain numbers")
    if values.shape != score.shape:
        # A column [rows, 1] would be broadcast to every pair of rows.
        raise InputError(f"{name} has shape {tuple(values.shape)}; give one per score, {tuple(score.shape)}")
    if not _are_within(values, 0.0, most):
        column(plain_column(values))


def _are_within(values: Tensor, low: float, high: float) -> bool:
    """Tell whether all values are known to lie in an interval; NaN does not."""
    if not _has_values(values):
        return True
    least, most = values.detach().aminmax()
    return bool((least >= low) & (most <= high))


def _has_values(values: Tensor) -> bool:
    return values.numel() > 0 and not torch.compiler.is_compiling()
