"""Piecewise linear functions of the logit in torch: NeuCalib's line plot trained on rows, and lines per context."""

import numpy as np
import torch
from torch import Tensor, nn

from mcnet._shared.typing import FloatArray
from mcnet.networks.losses import order_loss

__all__ = ["LineFunction", "interpolate"]


def interpolate(knots: Tensor, values: Tensor, points: Tensor) -> Tensor:
    """Return piecewise linear functions through knots and values `[..., n]` at points `[..., P]`."""
    inside = torch.searchsorted(knots[..., 1:-1].contiguous(), points.contiguous(), right=True)
    left, right = torch.gather(knots, -1, inside), torch.gather(knots, -1, inside + 1)
    low, high = torch.gather(values, -1, inside), torch.gather(values, -1, inside + 1)
    share = ((points - left) / (right - left)).to(values.dtype)
    return low + share * (high - low)


class LineFunction(nn.Module):
    """A line plot that can be trained on rows, alone or beside an auxiliary network."""

    knots: Tensor
    space = "logit"
    work = 10.0

    def __init__(self, knots: FloatArray, values: FloatArray | None = None) -> None:
        super().__init__()
        self.register_buffer("knots", torch.as_tensor(np.array(knots, dtype=np.float64)))
        # What is learnt is the distance from the identity, so weight decay pulls towards no change.
        moves = np.zeros(len(knots)) if values is None else np.asarray(values) - knots
        self.moves = nn.Parameter(torch.as_tensor(moves, dtype=torch.float32))

    @property
    def module(self) -> nn.Module:
        """The function itself."""
        return self

    @property
    def values(self) -> Tensor:
        """The values at the knots."""
        return self.knots.to(self.moves.dtype) + self.moves

    def values_array(self) -> FloatArray:
        """Return the values at the knots as an array."""
        values: FloatArray = (self.knots + self.moves.detach().double()).cpu().numpy()
        return values

    def at_rows(self, points: Tensor, codes: Tensor) -> Tensor:
        """Return the function at rows; field codes make no difference."""
        return interpolate(self.knots, self.values, points)

    def order_penalty(self) -> Tensor:
        """Return how far the values fall from knot to knot."""
        values = self.values
        return order_loss(values[:-1], values[1:])
