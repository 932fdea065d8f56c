"""AdaCalib (Wei et al., SIGIR 2022), with its objective repaired."""

from typing import Any, Literal, Self

from mcnet._shared.extras import need_networks
from mcnet.calibrators.base import FieldUse
from mcnet.calibrators.parameter_checks import check_beta_order, check_bins, check_penalties, is_positive
from mcnet.calibrators.training_state import TrainingState
from mcnet.errors import InputError
from mcnet.networks.compiled_curves import TrainedFunction
from mcnet.networks.setting_checks import check_device, check_seed
from mcnet.neural.network_calibrator import NetworkCalibrator
from mcnet.neural.training_cells import training_cells
from mcnet.sketch.sketch import Sketch

__all__ = ["AdaCalib"]


class AdaCalib(NetworkCalibrator):
    """A line in logit space per context, given by a network of the context's own statistics, in adaptive bins.

    For each candidate number of bins a context has a line p^i through equal-mass knots; a second network chooses among
    them. The objective is Σ_i ℓ(p^i) + ℓ(Σ_i α_i p^i): the last term, absent in print, is what trains the choice.
    Needs torch (the extra `networks`).

    Parameters
    ----------
    candidates : the numbers of bins to choose from.
    beta_order : the weight of the penalty on falling lines; None takes 0.01, the right size in logit space.
    alpha_balance, balance : weight and kind of the field-balance regulariser, as in MCNet.
    guarantee : project what still falls, so that the order of scores holds for certain.
    warm_start : continue from the previous fit of this object.
    steps : training steps of the first cycle; cycles follow, of half the length each, until the loss has settled.
    seed, device : of the training; device is "cpu" or "cuda".
    """

    method = "adacalib"
    complexity = 120
    extra = "networks"

    def __init__(
        self,
        *,
        candidates: tuple[int, ...] = (5, 10, 20),
        beta_order: float | None = None,
        alpha_balance: float = 0.0,
        balance: Literal["global", "field"] = "global",
        guarantee: bool = True,
        warm_start: bool = False,
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
        self.steps = steps
        self.seed = seed
        self.device = device

    @property
    def field_use(self) -> FieldUse:  # type: ignore[override]
        """Whether a field is needed: the balance term compares field values."""
        return "required" if is_positive(self.alpha_balance) else "optional"

    def prepare(self) -> Self:
        """Load torch, so that a first fit is not timed with it.

        Returns
        -------
        self : unchanged.
        """
        need_networks(self.method)
        import mcnet.networks.adaptive  # noqa: F401

        return self

    def fit_sketch(self, sketch: Sketch) -> Self:
        """Fit on a sketch of any number of rows.

        Parameters
        ----------
        sketch : the rows, from `mcnet.scan` or `Sketch.from_rows`.

        Returns
        -------
        self : the fitted calibrator.
        """
        return self._fit_network(sketch, self._train)

    def _check_parameters(self) -> None:
        need_networks(self.method)
        if not isinstance(self.candidates, list | tuple) or not self.candidates:
            raise InputError(
                f"candidates is {self.candidates!r}; it must be a tuple of numbers of bins, such as (5, 10, 20)"
            )
        for bins in self.candidates:
            check_bins(bins)
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 1:
            raise InputError(f"steps is {self.steps!r}; it must be a whole number above 0")
        check_beta_order(self.beta_order)
        check_penalties(self.alpha_balance, self.balance)
        check_seed(self.seed)
        check_device(self.device)

    def _train(self, sketch: Sketch, earlier: Any) -> TrainedFunction:
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
        return fit_adaptive(training_cells(sketch), config, earlier)

    def _function_state(self, function: Any) -> TrainingState:
        return TrainingState(function.state(), function.description())

    def _restored_function(self, state: TrainingState) -> TrainedFunction:
        from mcnet.networks.adaptive import restore_adaptive

        return restore_adaptive(state.arrays, state.about)
