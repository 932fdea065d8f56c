"""A bank and the contexts that it is trained on: what every way to evaluate it at rows has in common."""

from dataclasses import dataclass

from torch import Tensor, nn

from mcnet.networks.monotone import MonotoneBank

__all__ = ["BankOfContexts"]


@dataclass
class BankOfContexts:
    """A bank, and the field codes `[C, fields]` of the contexts over which the order penalty is summed."""

    bank: MonotoneBank
    contexts: Tensor

    @property
    def space(self) -> str:
        """The space the bank lives in."""
        return self.bank.shape.space

    @property
    def module(self) -> nn.Module:
        """The bank."""
        return self.bank
