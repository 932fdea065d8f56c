"""A fitted function as one that is trained further on rows, beside an auxiliary network, and back again."""

import copy
import dataclasses
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcnet.networks.adaptive import AdaptiveFit, AdaptiveFunction
from mcnet.networks.bank import BankFit, order_violation
from mcnet.networks.shared_nodes import BankOnSharedNodes
from mcnet.networks.training import RowFunction

__all__ = ["FixedFunction", "row_function", "with_function"]

Fit = TypeVar("Fit", AdaptiveFit, BankFit)


class FixedFunction:
    """A function that stays as it is: its points are logits calibrated already."""

    space = "logit"
    work = 0.0

    def __init__(self) -> None:
        self.module = nn.Module()

    def at_rows(self, points: Tensor, codes: Tensor) -> Tensor:
        """Return the points themselves."""
        return points

    def order_penalty(self) -> Tensor:
        """Return 0: nothing falls that did not fall before."""
        return torch.zeros(())


def row_function(fit: AdaptiveFit | BankFit, codes: NDArray[np.int64]) -> RowFunction:
    """Return a copy of a fitted function, to be trained on rows with these field codes `[rows, fields]`.

    The order of a bank is watched in the contexts that occur.
    """
    if isinstance(fit, AdaptiveFit):
        return copy.deepcopy(fit.function)
    contexts = np.unique(codes, axis=0) if codes.shape[1] else np.empty((1, 0), dtype=np.int64)
    bank = copy.deepcopy(fit.bank)
    return BankOnSharedNodes(bank, torch.as_tensor(contexts, device=bank.left.device))


@torch.no_grad()
def with_function(fit: Fit, function: RowFunction) -> Fit:
    """Return the fit with the function that `row_function` made of it and that training has changed since."""
    if isinstance(fit, AdaptiveFit):
        assert isinstance(function, AdaptiveFunction)
        return dataclasses.replace(fit, function=function, order_loss=float(function.order_penalty()))
    assert isinstance(function, BankOnSharedNodes)
    violation = order_violation(function.bank, function.contexts.cpu().numpy())
    return dataclasses.replace(fit, bank=function.bank, order_loss=violation)
