"""MCNet as published: monotone calibration with context, one network per score bin (WWW 2025)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from mcnet._shared.extras import need_networks
from mcnet._shared.typing import ScoreType
from mcnet._shared.user_warnings import warn
from mcnet.calibrators.base import FieldUse
from mcnet.calibrators.parameter_checks import balanced_field_use, check_beta_order, check_bins, check_penalties
from mcnet.calibrators.training_state import TrainingState
from mcnet.errors import InputError, NotSupportedError
from mcnet.networks.compiled_curves import TrainedFunction
from mcnet.neural.bank_training import USUAL_BINS, choose_bins, fit_on_rows, fit_on_sketch
from mcnet.neural.fit_rows import FitRows
from mcnet.neural.network_calibrator import NetworkCalibrator
from mcnet.neural.network_settings import check_network
from mcnet.sketch.grid import DEFAULT_RESOLUTION, Resolution
from mcnet.sketch.sketch import Sketch

if TYPE_CHECKING:
    from mcnet.networks.bank import BankConfig

__all__ = ["MCNet"]

_PAPER_RATE = {"none": 1e-5, "field": 1e-4}


class MCNet(NetworkCalibrator):
    """Monotone calibration with context as published (WWW 2025): one monotone network per score bin.

    In bin k, p = σ(f_k(l, c)) with f_k(l, c) = a_k(c) + ∫ g_k(t, c) dt, where g_k > 0 is a network of the score and an
    embedding of the context, and a_k a bias network. An order regulariser joins the bins, a balance regulariser narrows
    the spread of the field values' biases. By default it is trained to the optimum on the sketch, in logit space, and
    the compiled curve is projected so that the order of scores holds for certain; `MCNet.paper` trains it literally.
    `BayesMCNet` has the same form without networks: it is faster, and better for small field values. Needs torch (the
    extra `networks`).

    Parameters
    ----------
    bins : the number of networks K; "auto" chooses it by the log-loss of rows held back.
    field_aware : False gives one curve for all rows (MCNet-None); a field then matters to the balance term alone.
    alpha_balance : the weight of the field-balance regulariser, which narrows the spread of the field values' biases.
    balance : "global" measures a field value's bias per row of all rows (the paper), "field" per row of its own.
    beta_order : the weight of the order regulariser; None takes what suits the space.
    guarantee : project the compiled curve, so that the order of scores holds for certain.
    warm_start : continue from the previous fit of this object; new field values are allowed.
    hidden, embedding, share_embedding, derivative, scale, space, lower : the shape of the networks.
    training : "sketch", full batch on cells, or "rows", mini-batches of rows as in the paper.
    epochs, batch, learning_rate, weight_decay : (training on rows) the schedule.
    steps : (training on rows) the quadrature steps T for every row; None lets the rows of a bin share their nodes,
        which is the same training in a fiftieth of the time or less.
    seed, device : of the training; device is "cpu" or "cuda".
    progress : is called with (steps done, steps at most, loss).

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.uniform(0.01, 0.2, 5_000)
    >>> fitted = MCNet(bins=2, hidden=(8,), embedding=4).fit(truth / 2, rng.random(5_000) < truth)
    >>> bool(abs(fitted.predict([0.05])[0] - 0.1) < 0.03)
    True
    """

    method = "mcnet"
    complexity = 140
    extra = "networks"
    _field_advice = "set field_aware=True, set alpha_balance > 0 to have it balanced, or leave the field out"

    def __init__(
        self,
        *,
        bins: int | Literal["auto"] = "auto",
        field_aware: bool = True,
        alpha_balance: float = 0.0,
        balance: Literal["global", "field"] = "global",
        beta_order: float | None = None,
        guarantee: bool = True,
        warm_start: bool = False,
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
        steps: int | None = 50,
        seed: int = 0,
        device: str = "cpu",
        progress: Callable[[int, int, float], Any] | None = None,
    ) -> None:
        """Store the parameters; they are checked in fit."""
        self.bins = bins
        self.field_aware = field_aware
        self.alpha_balance = alpha_balance
        self.balance = balance
        self.beta_order = beta_order
        self.guarantee = guarantee
        self.warm_start = warm_start
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

        Probability space, 20 networks of 2 × 128 with a sigmoid derivative, integrals from 0 with T = 50, β = 1, Adam
        on batches of 2048 rows with learning rate 1e-5 (None) or 1e-4 (Field), 2 epochs. The order guarantee is off, as
        it was: `order_violations_` reports what the training left. MCNet-None is one curve for all rows; it takes a
        field only with alpha_balance > 0, for the balance term.

        Parameters
        ----------
        variant : "none" or "field".
        changes : settings to change, by name.
        """
        if variant not in _PAPER_RATE:
            raise InputError(f"the variant is {variant!r}; it must be 'none' or 'field'")
        settings: dict[str, Any] = {
            "bins": USUAL_BINS,
            "field_aware": variant == "field",
            "beta_order": 1.0,
            "guarantee": False,
            "space": "probability",
            "lower": "zero",
            "training": "rows",
            "learning_rate": _PAPER_RATE[variant],
        }
        return cls(**(settings | changes))

    @property
    def field_use(self) -> FieldUse:  # type: ignore[override]
        """Whether a field is of use to the curves, needed by the balance term, or of no use."""
        return balanced_field_use(self.alpha_balance, self.field_aware)

    @property
    def bins_(self) -> int:
        """The number of networks: what bins="auto" came to. A constant has one bin."""
        self._fitted()
        return 1 + len(self.network_.jumps()) if hasattr(self, "network_") else 1

    def prepare(self) -> Self:
        """Load torch, so that a first fit is not timed with it.

        Returns
        -------
        self : unchanged.
        """
        need_networks(self.method)
        import mcnet.networks.bank  # noqa: F401

        return self

    def fit(
        self,
        scores: Any,
        labels: Any,
        *misplaced: Any,
        field: Any = None,
        weight: Any = None,
        resolution: Resolution = DEFAULT_RESOLUTION,
        score_type: ScoreType = "probability",
        negatives_kept: float = 1.0,
    ) -> Self:
        """Fit on rows held in memory, on their sketch or, with training="rows", one by one.

        Parameters
        ----------
        scores, labels, field, weight, resolution, score_type, negatives_kept : as in `Calibrator.fit`.

        Returns
        -------
        self : the fitted calibrator.
        """
        kept: dict[str, Any] = {"score_type": score_type, "negatives_kept": negatives_kept}
        if misplaced or self.training != "rows":
            return super().fit(scores, labels, *misplaced, field=field, weight=weight, resolution=resolution, **kept)
        self._check_field_use(field is not None)
        if self.field_aware and field is None:
            warn("there is no field, so this is MCNet-None; MCNet.paper('none') has the settings of the paper for it")
        sketch = Sketch.from_rows(scores, labels, field=field, weight=weight, resolution=resolution, **kept)
        rows = FitRows.of(scores, labels, field, weight, None, **kept)
        return self._fit_network(sketch, lambda given, earlier: self._train_on_rows(given, rows, earlier))

    def fit_sketch(self, sketch: Sketch) -> Self:
        """Fit on a sketch of any number of rows.

        Parameters
        ----------
        sketch : the rows, from `mcnet.scan` or `Sketch.from_rows`.

        Returns
        -------
        self : the fitted calibrator.
        """
        if self.training == "rows":
            raise NotSupportedError("training='rows' needs the rows themselves; call fit, or use training='sketch'")
        return self._fit_network(sketch, self._train_on_sketch)

    @property
    def _one_curve(self) -> bool:
        return not self.field_aware

    def _check_parameters(self) -> None:
        need_networks(self.method)
        check_bins(self.bins, auto=True)
        check_beta_order(self.beta_order)
        check_penalties(self.alpha_balance, self.balance)
        check_network(self)

    def _train_on_sketch(self, sketch: Sketch, earlier: Any) -> TrainedFunction:
        aware, bins = self.field_aware, self.bins
        if bins == "auto":
            bins = choose_bins(sketch, self._config, field_aware=aware)
        return fit_on_sketch(sketch, self._config(bins), field_aware=aware, earlier=earlier, progress=self.progress)

    def _train_on_rows(self, sketch: Sketch, rows: FitRows, earlier: Any) -> TrainedFunction:
        from mcnet.networks.training import RowSchedule

        schedule = RowSchedule(
            epochs=self.epochs,
            batch=self.batch,
            rate=self.learning_rate or _PAPER_RATE["field" if sketch.contexts.names and self.field_aware else "none"],
            decay=self.weight_decay,
            seed=self.seed,
        )
        config = self._config(USUAL_BINS if self.bins == "auto" else self.bins)
        given: dict[str, Any] = {"field_aware": self.field_aware, "earlier": earlier, "progress": self.progress}
        return fit_on_rows(rows, sketch.contexts, config, schedule, self.steps, **given)

    def _config(self, bins: int) -> "BankConfig":
        """Return the settings as the networks take them."""
        from mcnet.networks.bank import BankConfig
        from mcnet.networks.monotone import BankShape
        from mcnet.networks.objective import Penalties, Priors

        literal = self.training == "rows"
        shape = BankShape(
            hidden=tuple(self.hidden),
            embedding=self.embedding,
            share_embedding=self.share_embedding,
            positive=self.derivative,
            activation="relu" if literal else "silu",
            scale=self.scale,
            space=self.space,
            lower=self.lower,
            standardise="none" if literal else "bin",
            direct=not literal,
        )
        return BankConfig(
            bins=bins,
            shape=shape,
            # The priors are ours; the paper has none.
            priors=Priors(*[np.inf] * 6) if literal else Priors(),
            penalties=Penalties(self.beta_order, self.alpha_balance, self.balance),
            least_positives=0.0 if literal else 25.0,
            unseen=0.0 if literal else 0.03,
            seed=self.seed,
            device=self.device,
        )

    def _function_state(self, function: Any) -> TrainingState:
        return TrainingState(function.state(), function.description())

    def _restored_function(self, state: TrainingState) -> TrainedFunction:
        from mcnet.networks.bank import restore_bank

        return restore_bank(state.arrays, state.about)

    def _plain_parameters(self) -> dict[str, Any]:
        # A callback is no part of what was fitted.
        return super()._plain_parameters() | {"progress": None}
