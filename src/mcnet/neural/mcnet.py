"""MCNet: monotone calibration with context (WWW 2025)."""

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.math import clip_scores, logit, sigmoid
from mcnet._shared.typing import FloatArray, ScoreType
from mcnet.bayes.fit_sketch import (
    belief_limit,
    family_of,
    fit_bayes_sketch,
    fit_one_curve,
)
from mcnet.bayes.isotonic_mixture import earned_share, mixed_with_isotonic
from mcnet.bayes.posterior_model import BayesFit
from mcnet.calibrators.base import FieldUse, Fitted
from mcnet.calibrators.histogram import check_bins
from mcnet.calibrators.one_class_warnings import warn_of_gaps
from mcnet.curves.compile import family_curves
from mcnet.curves.curves import Curves
from mcnet.curves.family import believable
from mcnet.data.columns import scores_column
from mcnet.data.contexts import Contexts
from mcnet.errors import InputError, NotSupportedError
from mcnet.neural.auxiliary import AuxiliaryCalibrator
from mcnet.neural.network import NetworkFit
from mcnet.neural.parameters import NETWORK_SETTINGS, check_level, check_network, check_penalties
from mcnet.neural.per_bin import bin_edges, fit_per_bin, fit_per_bin_on_rows
from mcnet.sketch.sketch import Sketch

__all__ = ["MCNet"]


class MCNet(AuxiliaryCalibrator):
    """Monotone calibration with context: logit p = a_c + ∫ f₁(t, c) dt with a strictly positive derivative f₁.

    Two architectures share everything else. "factorised" (the default): the derivative is log-linear in the context,
    f₁(t, c) = exp(φ₀(t) + b_c + u_c·φ(t)), several fields add up, and how much field values may differ and how rough
    the curves may be is learnt from the data by empirical Bayes: small field values sit on the common curve, large ones
    are free. The order of scores is kept by construction. "per-bin", as published: one network a score bin, with
    an embedding of the context.

    Parameters
    ----------
    architecture : "factorised" or "per-bin".
    bins : how many pieces the curve has; "auto" lets the data decide.
    field_aware : (factorised) False gives one curve for all rows, the paper's MCNet-None; a field then serves the
        balance term alone.
    interactions : (factorised) give pairs of fields deviations of their own, which the data must earn.
    isotonic_share : (factorised) how much of each context's own isotonic fit is mixed into its curve, from 0 to 1;
        "auto" takes what clearly lowers the log-loss of rows held back, most often nothing.
    alpha_balance : the weight of the field-balance regulariser, which narrows the spread of the fields' biases.
    balance : "global" measures a field value's bias per row of all rows (the paper), "field" per row of its own.
    beta_order : (per-bin) the weight of the order regulariser; None takes what suits the space.
    guarantee : (per-bin) project the compiled curve, so that the order of scores holds for certain.
    warm_start : go on from the previous fit of this object; new field values are welcome. An auxiliary network starts
        anew.
    auxiliary : add a network on the features of a row, which may change the order: p = σ(F(l, c) + aux(x)).
    hidden, embedding, share_embedding, derivative, scale, space, lower : (per-bin) the networks' shape.
    training : (per-bin) "sketch", full batch on cells, or "rows", mini-batches of rows as in the paper.
    epochs, batch, learning_rate, weight_decay, steps : (per-bin on rows) the paper's schedule and quadrature steps T.
    seed, device : (per-bin, auxiliary) of the training; device is "cpu" or "cuda".
    progress : (per-bin, auxiliary) is called with (steps done, steps at most, loss).

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.uniform(0.01, 0.2, 50_000)
    >>> country = rng.choice(["NL", "FR"], 50_000)
    >>> scores = truth * np.where(country == "NL", 0.8, 1.3)
    >>> fitted = MCNet().fit(scores, rng.random(50_000) < truth, field=country)
    >>> fitted.predict([0.08, 0.13], field=["NL", "FR"]).round(2)
    array([0.1, 0.1])
    """

    method = "mcnet"
    simplicity = 140
    _field_advice = "leave field_aware=True, set alpha_balance > 0 to have it balanced, or leave the field out"
    _restored_by = "mcnet.networks.bank:restore_bank"

    compiled_error_: float
    isotonic_share_: float

    def __init__(
        self,
        *,
        architecture: Literal["factorised", "per-bin"] = "factorised",
        bins: int | Literal["auto"] = "auto",
        field_aware: bool = True,
        interactions: bool = True,
        isotonic_share: float | Literal["auto"] = "auto",
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
        self.architecture = architecture
        self.bins = bins
        self.field_aware = field_aware
        self.interactions = interactions
        self.isotonic_share = isotonic_share
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
            "architecture": "per-bin",
            "bins": 20,
            "beta_order": 1.0,
            "guarantee": False,
            "space": "logit" if changes.get("auxiliary") else "probability",
            "lower": "zero",
            "training": "rows",
            "learning_rate": 1e-5 if variant == "none" else 1e-4,
        }
        return cls(**(settings | changes))

    def interval(
        self, scores: Any, field: Any = None, *, level: float = 0.9, score_type: ScoreType | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return a credible interval of the true probability at each score: (low, high).

        It is the uncertainty of the curve, not of a single click. An unseen field value adds the spread that the values
        of its field have.
        """
        if self.auxiliary:
            raise NotSupportedError("with auxiliary=True the uncertainty is not known; fit a second MCNet without it")
        check_level(level)
        score = scores_column(scores, score_type=score_type or self._fitted().score_type)
        codes = self._field_codes(field, len(score))
        network = getattr(self, "network_", None)
        if network is None:
            raise NotSupportedError(f"this fit is a constant ({self.constant_because_}): its uncertainty is not known")
        if not isinstance(network, BayesFit):
            raise NotSupportedError("this fit knows no uncertainty; fit MCNet with architecture='factorised'")
        if network.covariance is None:
            raise NotSupportedError("the uncertainty of so many field values is not saved; fit again to have intervals")
        logits = logit(score)
        served = self.predict(score, field, score_type="probability")
        low, high = (self._believable(logit(clip_scores(edge)), logits) for edge in network.band(codes, logits, level))
        return np.minimum(sigmoid(low), served), np.maximum(sigmoid(high), served)

    def _believable(self, calibrated: FloatArray, logits: FloatArray) -> FloatArray:
        # A model that serves every context by a curve of its own is saved without its family.
        return believable(calibrated, logits, belief_limit(self._fitted().total_weight))

    @property
    def field_use(self) -> FieldUse:  # type: ignore[override]
        """Whether a field is of use: to the curves, or to the balance term alone."""
        return "optional" if self.field_aware or self.alpha_balance > 0.0 else "none"

    @property
    def _one_curve(self) -> bool:  # type: ignore[override]
        return not self.field_aware

    @property
    def bins_(self) -> int:
        """How many pieces the scores were cut into: what bins="auto" came to. A constant is of one piece."""
        self._fitted()
        network = getattr(self, "network_", None)
        if network is None:
            return 1
        inner = network.panels.edges[1:-1] if isinstance(network, BayesFit) else bin_edges(network)
        return 1 + len(inner)

    def prepare(self) -> Self:
        """Load the libraries that fitting needs: torch, for the networks per bin alone."""
        return super().prepare() if self.architecture == "per-bin" else self

    def _check_parameters(self) -> None:
        if self.architecture not in ("factorised", "per-bin"):
            raise InputError(f"architecture is {self.architecture!r}; it is 'factorised' or 'per-bin'")
        check_bins(self.bins, auto=True)
        check_penalties(self.beta_order, self.alpha_balance, self.balance)
        if self.training == "rows" and self.architecture == "per-bin" and not hasattr(self, "_rows"):
            raise NotSupportedError("training='rows' needs the rows themselves; call fit, or use training='sketch'")
        if self.auxiliary and self.architecture == "per-bin" and self.space != "logit":
            raise InputError("auxiliary=True adds to logits: it needs space='logit'")
        share = self.isotonic_share
        if share != "auto" and not (isinstance(share, int | float) and 0.0 <= share <= 1.0):
            raise InputError(f"isotonic_share is {share!r}; it is 'auto' or a number from 0 to 1")
        if self.architecture == "factorised":
            self._refuse_network_settings()
        else:
            check_network(self)
            if share != "auto":
                raise NotSupportedError("isotonic_share is for architecture='factorised'; networks per bin have none")
            if not self.field_aware:
                raise NotSupportedError("field_aware is for architecture='factorised'; here, leave the field out")
            if not self.interactions:
                raise NotSupportedError("interactions is for architecture='factorised'; networks have no such setting")

    def _refuse_network_settings(self) -> None:
        """Refuse what only the networks per bin can honour, unless it is left as it was."""
        usual = _usual_settings()
        for name in NETWORK_SETTINGS:
            if getattr(self, name) != usual[name]:
                raise NotSupportedError(f"{name} is for architecture='per-bin'; the factorised one has no such setting")

    def _monotone_curves(self) -> bool:
        return self.guarantee or self.architecture == "factorised"

    def _trains_on_rows(self) -> bool:
        return self.training == "rows"

    def _trains_jointly(self) -> bool:
        return self.architecture == "per-bin"

    def _integral_steps(self) -> int:
        return self.steps if self.lower == "zero" else super()._integral_steps()

    def _fit(self, sketch: Sketch) -> Fitted:
        if self.architecture == "per-bin":
            return super()._fit(sketch)
        warn_of_gaps(self.method, sketch)
        given_rows = sketch.pooled() if self._one_curve else sketch
        sketch, warm = self._warm_sketch(sketch.unfolded())
        given: dict[str, Any] = {
            "panels": None if self.bins == "auto" else max(self.bins, 2),
            "alpha_balance": self.alpha_balance,
            "balance": self.balance,
            "start": warm,
        }
        if self.field_aware:
            self.network_ = fit_bayes_sketch(sketch, interactions=self.interactions, **given)
        else:
            self.network_ = fit_one_curve(sketch, **given)
        self.order_violations_ = 0.0
        family = family_of(self.network_, belief_limit(sketch.total_weight)).rounded()
        contexts = self._contexts(sketch)
        curves, self.compiled_error_ = family_curves(family, contexts.table)
        self.isotonic_share_ = self._share(given_rows, curves, contexts)
        if self.isotonic_share_ > 0.0:
            curves = mixed_with_isotonic(given_rows, curves, contexts, self.isotonic_share_)
        return Fitted(
            curves, contexts, family, isotonic_share=self.isotonic_share_, balanced_by=self._balanced_by(sketch)
        )

    def _share(self, sketch: Sketch, curves: Curves, contexts: Contexts) -> float:
        if self.isotonic_share != "auto":
            return float(self.isotonic_share)
        # The auxiliary network adds to the smooth curve.
        return 0.0 if self.auxiliary else earned_share(sketch, curves, contexts)

    def _train(self, sketch: Sketch, warm: Any) -> NetworkFit:
        trained: NetworkFit
        if self.training == "rows":
            trained = fit_per_bin_on_rows(self, self._rows, sketch.contexts, warm)
        else:
            trained = fit_per_bin(self, sketch, warm)
        return trained

    def _breaks(self, network: Any) -> tuple[FloatArray | None, FloatArray | None]:
        return None, bin_edges(network)

    def _exact(self, logits: FloatArray, codes: NDArray[Any]) -> FloatArray:
        if isinstance(getattr(self, "network_", None), BayesFit):
            return sigmoid(self._believable(self.network_.calibrate(codes, logits), logits))
        return super()._exact(logits, codes)

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        if isinstance(self.network_, BayesFit):
            about = {"compiled_error": self.compiled_error_, "isotonic_share": self.isotonic_share_}
            return dict(self.network_.arrays()), about
        return super()._state()

    def _restore(self, arrays: dict[str, NDArray[Any]], description: dict[str, Any]) -> None:
        if self.architecture == "per-bin":
            super()._restore(arrays, description)
        else:
            self.network_ = BayesFit.from_arrays(arrays)
            self.compiled_error_ = description["compiled_error"]
            self.isotonic_share_ = description["isotonic_share"]

    def _plain_parameters(self) -> dict[str, Any]:
        # A callback is no part of what was fitted.
        return super()._plain_parameters() | {"progress": None}


@cache
def _usual_settings() -> dict[str, Any]:
    settings: dict[str, Any] = MCNet().get_params(deep=False)
    return settings
