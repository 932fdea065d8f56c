"""NeuCalib's isotonic line-plot: one piecewise linear function of the logit, free at equal-mass knots.

η(l) = b_k + (l − a_k) (b_{k+1} − b_k) / (a_{k+1} − a_k) between the knots a, its end slopes extended, with a
penalty on every fall b_k > b_{k+1}. The problem is convex, so it is solved by Newton's method rather than
trained.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor, nn

from mcnet._shared.typing import FloatArray
from mcnet.networks.chain_newton import newton
from mcnet.networks.losses import balance_loss, log_loss_from_logits, order_loss
from mcnet.networks.objective import ROUNDING, Penalties
from mcnet.networks.training_points import TrainingCells, midpoint_edges

__all__ = ["LineConfig", "LineFit", "LineFunction", "fit_lines", "interpolate", "restore_lines"]


@dataclass(frozen=True)
class LineConfig:
    """Everything that decides a line-plot, besides the data.

    `level` is the standard deviation, in logits, of the prior on each knot's distance from the identity; it
    matters only where there are no positives or no negatives at all.
    """

    pieces: int = 20
    penalties: Penalties = field(default_factory=lambda: Penalties(order=1.0))
    level: float = 5.0

    def to_dict(self) -> dict[str, Any]:
        """The configuration as plain values, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "LineConfig":
        """The configuration that `to_dict` described."""
        return cls(**{**values, "penalties": Penalties(**values["penalties"])})


def interpolate(knots: Tensor, values: Tensor, points: Tensor) -> Tensor:
    """Piecewise linear functions through knots and values `[..., n]` at points `[..., P]`."""
    inside = torch.searchsorted(knots[..., 1:-1].contiguous(), points.contiguous(), right=True)
    left, right = torch.gather(knots, -1, inside), torch.gather(knots, -1, inside + 1)
    low, high = torch.gather(values, -1, inside), torch.gather(values, -1, inside + 1)
    share = ((points - left) / (right - left)).to(values.dtype)
    return low + share * (high - low)


class LineFunction(nn.Module):
    """A line-plot that can be trained on rows, alone or beside an auxiliary network."""

    knots: Tensor
    space = "logit"
    work = 10.0

    def __init__(self, knots: FloatArray) -> None:
        super().__init__()
        self.register_buffer("knots", torch.as_tensor(np.array(knots, dtype=np.float64)))
        # What is learned is the distance from the identity, so weight decay pulls towards no change.
        self.moves = nn.Parameter(torch.zeros(len(knots)))

    @property
    def module(self) -> nn.Module:
        """The function itself."""
        return self

    @property
    def values(self) -> Tensor:
        """The values at the knots."""
        return self.knots.to(self.moves.dtype) + self.moves

    def at_rows(self, points: Tensor, codes: Tensor) -> Tensor:
        """The function at rows; field codes are of no use to it."""
        return interpolate(self.knots, self.values, points)

    def order_penalty(self) -> Tensor:
        """How far the values fall from knot to knot."""
        values = self.values
        return order_loss(values[:-1], values[1:])


@dataclass(frozen=True)
class LineFit:
    """A fitted line-plot: plain knots and values."""

    knots: FloatArray
    values: FloatArray
    config: LineConfig
    loss: float
    order_loss: float

    def predict(self, logit: FloatArray, codes: NDArray[np.integer] | None = None) -> FloatArray:
        """Calibrated probabilities of rows with these logits; field codes make no difference to a line-plot."""
        points = torch.as_tensor(np.asarray(logit, dtype=np.float64))
        line = interpolate(torch.as_tensor(self.knots), torch.as_tensor(self.values), points)
        return np.asarray(expit(line.numpy()))

    def state(self) -> dict[str, Tensor]:
        """Knots and values as tensors, ready for safetensors."""
        return {"knots": torch.as_tensor(self.knots.copy()), "values": torch.as_tensor(self.values.copy())}

    def description(self) -> dict[str, Any]:
        """What is needed besides the tensors to restore the fit, ready for JSON."""
        return {"config": self.config.to_dict(), "loss": self.loss, "order_loss": self.order_loss}


def restore_lines(state: Mapping[str, Tensor], description: Mapping[str, Any]) -> LineFit:
    """The fit that `LineFit.state` and `LineFit.description` wrote down."""
    config = LineConfig.from_dict(description["config"])
    knots, values = state["knots"].numpy(), state["values"].numpy()
    return LineFit(knots, values, config, description["loss"], description["order_loss"])


def place_knots(points: FloatArray, weight: FloatArray, pieces: int) -> FloatArray:
    """Knots at the ends of the points and at equal-mass edges between; one point gets a unit interval."""
    low, high = float(points.min()), float(points.max())
    if low == high:
        return np.array([low - 0.5, low + 0.5])
    return np.concatenate([[low], midpoint_edges(points, weight, pieces), [high]])


def fit_lines(cells: TrainingCells, config: LineConfig | None = None, warm: LineFit | None = None) -> LineFit:
    """The best line-plot for weighted cells.

    With `warm`, the knots of a previous fit are kept and its values are where the search starts.
    """
    config = config or (warm.config if warm else LineConfig())
    known = place_knots(cells.logit, cells.weight, config.pieces) if warm is None else warm.knots
    knots = torch.as_tensor(known)
    points = torch.as_tensor(cells.logit)
    weight, positives = torch.as_tensor(cells.weight), torch.as_tensor(cells.positives)
    group, groups, mass = torch.as_tensor(cells.context), len(cells.codes), cells.mass
    order = config.penalties.order_in("logit")

    def loss(moves: list[Tensor]) -> Tensor:
        move = moves[0][:, 0, 0]
        values = knots + move
        line = interpolate(knots, values, points)
        total = log_loss_from_logits(line, weight, positives)
        total = total + (move.square().sum() / (2.0 * config.level**2)) / mass
        if order > 0:
            total = total + order * order_loss(values[:-1], values[1:], ROUNDING)
        if config.penalties.balance > 0:
            total = total + config.penalties.balance * balance_loss(
                torch.sigmoid(line), weight, positives, group, groups, config.penalties.normalise
            )
        return total

    start = torch.zeros_like(knots) if warm is None else torch.as_tensor(warm.values) - knots
    (moves,) = newton(loss, [start[:, None, None]], mass, steps=50)
    values = (knots + moves[:, 0, 0]).detach().numpy()
    falls = float(np.maximum(values[:-1] - values[1:], 0.0).sum())
    with torch.no_grad():
        final = float(loss([moves]))
    return LineFit(known, values, config, final, falls)
