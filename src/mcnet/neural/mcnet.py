"""MCNet: monotone calibration with context (WWW 2025)."""

from collections.abc import Callable
from typing import Any, Literal, Self

from mcnet._shared.typing import FloatArray
from mcnet.calibrators.histogram import check_bins
from mcnet.calibrators.parameter_checks import check_beta_order, check_penalties
from mcnet.errors import InputError, NotSupportedError
from mcnet.neural.auxiliary import AuxiliaryCalibrator
from mcnet.neural.network import NetworkFit
from mcnet.neural.network_settings import check_network
from mcnet.neural.per_bin import bin_edges, fit_per_bin, fit_per_bin_on_rows
from mcnet.sketch.sketch import Sketch

__all__ = ["MCNet"]


class MCNet(AuxiliaryCalibrator):
    """Monotone calibration with context as published (WWW 2025): one monotone network per score bin.

    In bin k, p = σ(f_k(l, c)) with f_k(l, c) = a_k(c) + ∫ g_k(t, c) dt, where g_k > 0 is a network of the score and an
    embedding of the context, and a_k a bias network. An order regulariser joins the bins, a balance regulariser narrows
    the spread of the field values' biases. By default it is trained to the optimum on the sketch, in logit space, and
    the compiled curve is projected so that the order of scores holds for certain; `MCNet.paper` trains it literally.
    `BayesMCNet` has the same form without networks: it is faster, and better for small field values.

    Parameters
    ----------
    bins : the number of networks K; "auto" chooses it by the log-loss of rows held back.
    alpha_balance : the weight of the field-balance regulariser, which narrows the spread of the field values' biases.
    balance : "global" measures a field value's bias per row of all rows (the paper), "field" per row of its own.
    beta_order : the weight of the order regulariser; None takes what suits the space.
    guarantee : project the compiled curve, so that the order of scores holds for certain.
    warm_start : continue from the previous fit of this object; new field values are allowed. An auxiliary network
        starts anew.
    auxiliary : add a network on the features of a row, which may change the order: p = σ(F(l, c) + aux(x)).
    hidden, embedding, share_embedding, derivative, scale, space, lower : the shape of the networks.
    training : "sketch", full batch on cells, or "rows", mini-batches of rows as in the paper.
    epochs, batch, learning_rate, weight_decay, steps : (training on rows) the schedule, and the quadrature steps T.
    seed, device : of the training; device is "cpu" or "cuda".
    progress : is called with (steps done, steps at most, loss).

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.uniform(0.01, 0.2, 5_000)
    >>> fitted = MCNet(bins=2, hidden=(8,), embedding=4).fit(truth / 2, rng.random(5_000) < truth)
    >>> bool(abs(fitted.predict([0.05])[0] - 0.1) < 0.03)
    True
    """

    method = "mcnet"
    simplicity = 140
    _restored_by = "mcnet.networks.bank:restore_bank"

    def __init__(
        self,
        *,
        bins: int | Literal["auto"] = "auto",
        alpha_balance: float = 0.0,
        balance: Literal["global", "field"] = "global",
        beta_order: float | None = None,
        guarantee: bool = True,
        warm_start: bool = False,
        auxiliary: bool = False,
        hidden: tuple[int, ...] = (128, 128),
        embedding: int = 128,
        share_embedding: bool = False,
        derivative: Literal["sigmoid", "softplus", "elu"] = "sigmoid",
        scale: bool = True,
        space: Literal["logit", "probability"] = "logit",
        lower: Literal["zero", "edge", "centre"] = "centre",
        training: Literal["sketch", "rows"] = "sketch",
        epochs: int = 2,
        batch: int = 2048,
        learning_rate: float | None = None,
        weight_decay: float = 0.0,
        steps: int = 50,
        seed: int = 0,
        device: str = "cpu",
        progress: Callable[[int, int, float], Any] | None = None,
    ) -> None:
        """Store the parameters; they are checked in fit."""
        self.bins = bins
        self.alpha_balance = alpha_balance
        self.balance = balance
        self.beta_order = beta_order
        self.guarantee = guarantee
        self.warm_start = warm_start
        self.auxiliary = auxiliary
        self.hidden = hidden
        self.embedding = embedding
        self.share_embedding = share_embedding
        self.derivative = derivative
        self.scale = scale
        self.space = space
        self.lower = lower
        self.training = training
        self.epochs = epochs
        self.batch = batch
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.steps = steps
        self.seed = seed
        self.device = device
        self.progress = progress

    @classmethod
    def paper(cls, variant: Literal["none", "field"] = "field", **changes: Any) -> Self:
        """Return MCNet-None or MCNet-Field with the settings of the paper, to be fitted on rows.

        Probability space (logit space with an auxiliary network, as there), 20 networks of 2 × 128 with a sigmoid
        derivative, integrals from 0 with T = 50, β = 1, Adam on batches of 2048 rows with learning rate 1e-5 (None) or
        1e-4 (Field). The order guarantee is off, as it was: `order_violations_` reports what the training left.
        """
        if variant not in ("none", "field"):
            raise InputError(f"the variant is {variant!r}; it is 'none' or 'field'")
        settings: dict[str, Any] = {
            "bins": 20,
            "beta_order": 1.0,
            "guarantee": False,
            "space": "logit" if changes.get("auxiliary") else "probability",
            "lower": "zero",
            "training": "rows",
            "learning_rate": 1e-5 if variant == "none" else 1e-4,
        }
        return cls(**(settings | changes))

    @property
    def bins_(self) -> int:
        """The number of networks: what bins="auto" came to. A constant has one bin."""
        self._fitted()
        return 1 + len(bin_edges(self.network_)) if hasattr(self, "network_") else 1

    def _check_parameters(self) -> None:
        check_bins(self.bins, auto=True)
        check_beta_order(self.beta_order)
        check_penalties(self.alpha_balance, self.balance)
        check_network(self)
        if self.training == "rows" and not hasattr(self, "_rows"):
            raise NotSupportedError("training='rows' needs the rows themselves; call fit, or use training='sketch'")
        if self.auxiliary and self.space != "logit":
            raise InputError("auxiliary=True adds to logits: it needs space='logit'")

    def _trains_on_rows(self) -> bool:
        return self.training == "rows"

    def _integral_steps(self) -> int:
        return self.steps if self.lower == "zero" else super()._integral_steps()

    def _train(self, sketch: Sketch, warm: Any) -> NetworkFit:
        trained: NetworkFit
        if self.training == "rows":
            trained = fit_per_bin_on_rows(self, self._rows, sketch.contexts, warm)
        else:
            trained = fit_per_bin(self, sketch, warm)
        return trained

    def _breaks(self, network: Any) -> tuple[FloatArray | None, FloatArray | None]:
        return None, bin_edges(network)

    def _plain_parameters(self) -> dict[str, Any]:
        # A callback is no part of what was fitted.
        return super()._plain_parameters() | {"progress": None}
