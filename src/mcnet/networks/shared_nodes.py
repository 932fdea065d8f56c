"""A bank on rows whose integrals share their nodes: many rows, one evaluation of the networks per bin and context.

The published training evaluates f₁ at T + 1 nodes for every row. But f₁ of a bin depends on the node and the context
alone, so rows of the same bin and context can share the nodes: the integral up to each row is a fixed linear
combination of the values there. The loss and its gradient are those of the row-by-row quadrature, up to the error of
either rule; a step takes a hundredth of the multiplications.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from mcnet._shared.typing import FloatArray, IntArray
from mcnet.networks.bank_of_contexts import BankOfContexts
from mcnet.networks.losses import order_loss

__all__ = ["BankOnSharedNodes"]

Functions = tuple[Tensor, Tensor, Tensor]
"""Derivative at the nodes `[K, C, n]`, offset with the lower limit, and scale `[K, C]`."""


@dataclass
class BankOnSharedNodes(BankOfContexts):
    """A bank as a function of rows; `nodes` Gauss nodes in each of a bin's two panels, shared by its rows."""

    nodes: int = 6
    # The functions of the contexts as the last call of `at_rows` found them: the order penalty of the same step.
    _kept: Functions | None = field(default=None, init=False, repr=False)

    @property
    def work(self) -> float:
        """Multiplications for one row: those of a bin and context are shared by its rows, so there are few."""
        return float(sum(w[0].numel() for w in self.bank.derivative_weights))

    @cached_property
    def _places(self) -> Tensor:
        return self.bank.nodes(self.nodes)[:, None, :]

    @cached_property
    def _at_edges(self) -> tuple[Tensor, Tensor]:
        """Return the rules `[K − 1, 1, n]` of the integrals up to the edges, from the bin on the left and the right."""
        edges, before = self.bank.edges.cpu().numpy(), np.arange(self.bank.bins - 1)
        left, right = (self._rule(edges, bins)[:, None, :] for bins in (before, before + 1))
        return left, right

    @cached_property
    def _rules(self) -> Callable[[FloatArray, IntArray], FloatArray]:
        return self.bank.rules(self.nodes)

    def _rule(self, points: FloatArray, bins: IntArray) -> Tensor:
        weights = self._rules(points, bins)
        return torch.as_tensor(weights, dtype=self.bank.score_weight.dtype, device=self.bank.left.device)

    @cached_property
    def _keys(self) -> tuple[Tensor, Tensor]:
        """Return one ascending number per context, and the contexts in that order."""
        return torch.sort(self._key(self.contexts))

    def _key(self, codes: Tensor) -> Tensor:
        key = codes.new_zeros(len(codes))
        for i, size in enumerate(self.bank.sizes):
            key = key * (size + 1) + codes[:, i]
        return key

    def _functions(self, contexts: Tensor) -> Functions:
        embedded = self.bank.embed(contexts)
        bias = self.bank.offset_and_scale(contexts, embedded)
        derivative = self.bank.derivative(self._places, embedded)
        return derivative, bias[..., 0] + self.bank.origin.to(bias.dtype)[:, None], bias[..., 1].exp()

    def at_rows(self, points: Tensor, codes: Tensor) -> Tensor:
        """Return the functions at rows."""
        bins, key = self.bank.bin_of(points), self._key(codes)
        keys, order = self._keys
        place = torch.searchsorted(keys, key).clamp_max(len(keys) - 1)
        if bool((keys[place] == key).all()):
            context = order[place]
            derivative, offset, scale = self._kept = self._functions(self.contexts)
        else:
            self._kept = None
            contexts, context = torch.unique(codes, dim=0, return_inverse=True)
            derivative, offset, scale = self._functions(contexts)
        rule = self._rule(points.detach().cpu().numpy(), bins.cpu().numpy())
        which = bins * derivative.shape[1] + context
        area = (rule * derivative.flatten(0, 1).index_select(0, which)).sum(-1)
        return offset.flatten().index_select(0, which) + scale.flatten().index_select(0, which) * area

    def order_penalty(self) -> Tensor:
        """Return the order loss over the contexts; after `at_rows`, at the parameters of that call."""
        derivative, offset, scale = self._kept or self._functions(self.contexts)
        self._kept = None
        left, right = self._at_edges
        ends = offset[:-1] + scale[:-1] * (derivative[:-1] * left).sum(-1)
        starts = offset[1:] + scale[1:] * (derivative[1:] * right).sum(-1)
        return order_loss(ends, starts)
