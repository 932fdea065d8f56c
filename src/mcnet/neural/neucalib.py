"""NeuCalib's isotonic line plot (Pan et al., WWW 2020)."""

from typing import Any, Literal, Self

import numpy as np

from mcnet.calibrators.base import FieldUse
from mcnet.calibrators.parameter_checks import check_beta_order, check_bins, check_penalties, is_positive
from mcnet.calibrators.training_state import TrainingState
from mcnet.neural.line_plot import LinePlot, LinePlotProblem, fit_line_plot
from mcnet.neural.network_calibrator import NetworkCalibrator
from mcnet.sketch.sketch import Sketch

__all__ = ["NeuCalib"]

_USUAL_BETA = 0.01
"""The weight of the order regulariser that suits logits."""


class NeuCalib(NetworkCalibrator):
    """A line through K + 1 knots in logit space with free values: p = σ(η(l)), fitted with a penalty on falls.

    η(l) = b_k + (l − a_k)(b_{k+1} − b_k)/(a_{k+1} − a_k) on [a_k, a_{k+1}); the knots a are at equal-mass edges, and
    the loss is log-loss + β·Σ(b_k − b_{k+1})₊. Fields do not change the line; they matter to the balance term alone.
    The optimum is found by Newton's method, without torch.

    Parameters
    ----------
    bins : the number of pieces K.
    beta_order : β; None takes 0.01, the right size in logit space.
    alpha_balance, balance : weight and kind of the field-balance regulariser, as in MCNet.
    guarantee : project what still falls, so that the order of scores holds for certain.
    warm_start : continue from the previous fit of this object.
    """

    method = "neucalib"
    complexity = 110
    _field_advice = "set alpha_balance > 0 to have it balanced, use mcnet-bayes or per-field, or leave the field out"

    def __init__(
        self,
        *,
        bins: int = 20,
        beta_order: float | None = None,
        alpha_balance: float = 0.0,
        balance: Literal["global", "field"] = "global",
        guarantee: bool = True,
        warm_start: bool = False,
    ) -> None:
        """Store the parameters; they are checked in fit."""
        self.bins = bins
        self.beta_order = beta_order
        self.alpha_balance = alpha_balance
        self.balance = balance
        self.guarantee = guarantee
        self.warm_start = warm_start

    @property
    def field_use(self) -> FieldUse:  # type: ignore[override]
        """Whether a field is of use: to the balance term alone."""
        return "required" if is_positive(self.alpha_balance) else "none"

    @property
    def _one_curve(self) -> bool:
        return True

    def fit_sketch(self, sketch: Sketch) -> Self:
        """Fit on a sketch of any number of rows.

        Parameters
        ----------
        sketch : the rows, from `mcnet.scan` or `Sketch.from_rows`.

        Returns
        -------
        self : the fitted calibrator.
        """
        return self._fit_network(sketch, self._solve)

    def _solve(self, sketch: Sketch, earlier: Any) -> LinePlot:
        problem = LinePlotProblem(
            sketch.logit,
            sketch.weight,
            sketch.positives,
            sketch.context.astype(np.int64),
            len(sketch.contexts),
            order=_USUAL_BETA if self.beta_order is None else float(self.beta_order),
            balance=float(self.alpha_balance),
            normalise=self.balance,
        )
        return fit_line_plot(problem, self.bins, earlier)

    def _check_parameters(self) -> None:
        check_bins(self.bins)
        check_beta_order(self.beta_order)
        check_penalties(self.alpha_balance, self.balance)

    def _function_state(self, function: Any) -> TrainingState:
        return TrainingState({"knots": function.knots, "values": function.values}, {})

    def _restored_function(self, state: TrainingState) -> LinePlot:
        return LinePlot(state.arrays["knots"], state.arrays["values"])
