"""AdaCalib (Wei et al., SIGIR 2022), with its objective repaired."""

from typing import Any, Literal

from mcnet._shared.math import sigmoid
from mcnet._shared.typing import FloatArray
from mcnet.calibrators.histogram import check_bins
from mcnet.calibrators.parameter_checks import check_beta_order, check_penalties
from mcnet.errors import InputError
from mcnet.neural.auxiliary import AuxiliaryCalibrator
from mcnet.neural.network import NetworkFit, network_cells
from mcnet.sketch.sketch import Sketch

__all__ = ["AdaCalib"]


class AdaCalib(AuxiliaryCalibrator):
    """A line in logit space per context, read by a network off the context's own statistics, in adaptive bins.

    For each candidate number of bins a context has a line p^i through equal-mass knots; a second network chooses among
    them. The objective is Σ_i ℓ(p^i) + ℓ(Σ_i α_i p^i): the last term, absent in print, is what trains the choice.

    Parameters
    ----------
    candidates : the numbers of bins to choose from.
    beta_order : the weight of the penalty on falling lines; None takes 0.01, the right size in logit space.
    alpha_balance, balance : weight and kind of the field-balance regulariser, as in MCNet.
    guarantee : project what still falls, so that the order of scores holds for certain.
    warm_start : go on from the previous fit of this object; an auxiliary network starts anew.
    auxiliary : add a network on the features of a row, which may change the order: p = σ(F(l, c) + aux(x)).
    steps : training steps of the first cycle; cycles follow, of half the length each, until the loss has settled.
    seed, device : of the training; device is "cpu" or "cuda".
    """

    method = "adacalib"
    simplicity = 120
    _restored_by = "mcnet.networks.adaptive:restore_adaptive"

    def __init__(
        self,
        *,
        candidates: tuple[int, ...] = (5, 10, 20),
        beta_order: float | None = None,
        alpha_balance: float = 0.0,
        balance: Literal["global", "field"] = "global",
        guarantee: bool = True,
        warm_start: bool = False,
        auxiliary: bool = False,
        steps: int = 300,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        """Store the parameters; they are checked in fit."""
        self.candidates = candidates
        self.beta_order = beta_order
        self.alpha_balance = alpha_balance
        self.balance = balance
        self.guarantee = guarantee
        self.warm_start = warm_start
        self.auxiliary = auxiliary
        self.steps = steps
        self.seed = seed
        self.device = device

    def _check_parameters(self) -> None:
        if not isinstance(self.candidates, list | tuple) or not self.candidates:
            raise InputError(
                f"candidates is {self.candidates!r}; it is a tuple of numbers of bins, such as (5, 10, 20)"
            )
        for bins in self.candidates:
            check_bins(bins)
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 1:
            raise InputError(f"steps is {self.steps!r}; it is a whole number above 0")
        check_beta_order(self.beta_order)
        check_penalties(self.alpha_balance, self.balance)

    def _train(self, sketch: Sketch, warm: Any) -> NetworkFit:
        from mcnet.networks.adaptive import AdaptiveConfig, fit_adaptive
        from mcnet.networks.objective import Penalties
        from mcnet.networks.optimise import Schedule

        config = AdaptiveConfig(
            candidates=tuple(self.candidates),
            penalties=Penalties(self.beta_order, self.alpha_balance, self.balance),
            schedule=Schedule(steps=self.steps, peak=1e-2, cycles=4),
            seed=self.seed,
            device=self.device,
        )
        return fit_adaptive(network_cells(sketch), config, warm)

    def _breaks(self, network: Any) -> tuple[FloatArray | None, FloatArray | None]:
        return sigmoid(network.function.knots.cpu().numpy().ravel()), None
