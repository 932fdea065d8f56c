"""NeuCalib's isotonic line-plot (Pan et al., WWW 2020)."""

from typing import Any, Literal

from mcnet._shared.math import sigmoid
from mcnet._shared.typing import FloatArray
from mcnet.calibrators.base import FieldUse
from mcnet.calibrators.histogram import check_bins
from mcnet.calibrators.parameter_checks import check_beta_order, check_penalties
from mcnet.neural.auxiliary import AuxiliaryCalibrator
from mcnet.neural.network import NetworkFit, network_cells
from mcnet.sketch.sketch import Sketch

__all__ = ["NeuCalib"]


class NeuCalib(AuxiliaryCalibrator):
    """A line through K + 1 knots in logit space with free values: p = σ(η(l)), fitted with a penalty on falls.

    η(l) = b_k + (l − a_k)(b_{k+1} − b_k)/(a_{k+1} − a_k) on [a_k, a_{k+1}); the knots a are at equal-mass edges, and
    the loss is log-loss + β·Σ(b_k − b_{k+1})₊. Fields do not bend the line; they matter to the balance term alone.

    Parameters
    ----------
    bins : the number of pieces K.
    beta_order : β; None takes 0.01, the right size in logit space.
    alpha_balance, balance : weight and kind of the field-balance regulariser, as in MCNet.
    guarantee : project what still falls, so that the order of scores holds for certain.
    warm_start : go on from the previous fit of this object; an auxiliary network starts anew.
    auxiliary : add a network on the features of a row, which may change the order: p = σ(η(l) + aux(x)).
    seed : of the auxiliary network's training.
    """

    method = "neucalib"
    simplicity = 110
    _field_advice = "set alpha_balance > 0 to have it balanced, use mcnet-bayes or per-field, or leave the field out"
    _one_curve = True
    _restored_by = "mcnet.networks.line_plot:restore_lines"

    def __init__(
        self,
        *,
        bins: int = 20,
        beta_order: float | None = None,
        alpha_balance: float = 0.0,
        balance: Literal["global", "field"] = "global",
        guarantee: bool = True,
        warm_start: bool = False,
        auxiliary: bool = False,
        seed: int = 0,
    ) -> None:
        """Store the parameters; they are checked in fit."""
        self.bins = bins
        self.beta_order = beta_order
        self.alpha_balance = alpha_balance
        self.balance = balance
        self.guarantee = guarantee
        self.warm_start = warm_start
        self.auxiliary = auxiliary
        self.seed = seed

    @property
    def field_use(self) -> FieldUse:  # type: ignore[override]
        """Whether a field is of use: to the balance term alone."""
        return "optional" if self.alpha_balance > 0.0 else "none"

    def _learns_from_one_score(self, has_fields: bool) -> bool:
        return self.auxiliary

    def _check_parameters(self) -> None:
        check_bins(self.bins)
        check_beta_order(self.beta_order)
        check_penalties(self.alpha_balance, self.balance)

    def _train(self, sketch: Sketch, warm: Any) -> NetworkFit:
        from mcnet.networks.line_plot import LineConfig, fit_lines
        from mcnet.networks.objective import Penalties

        penalties = Penalties(self.beta_order, self.alpha_balance, self.balance)
        return fit_lines(network_cells(sketch), LineConfig(self.bins, penalties), warm)

    def _breaks(self, network: Any) -> tuple[FloatArray | None, FloatArray | None]:
        return sigmoid(network.knots), None
