"""MCNet (WWW 2025): monotone networks per bin of scores, with the field's embedding."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from mcnet._shared.arrays import FloatArray, IntArray, ScoreType, clip_scores, log_loss_sum, logit
from mcnet._shared.messages import need_extra, warn
from mcnet.calibrators.base import FieldUse
from mcnet.calibrators.parameters import balanced_field_use, check_beta_order, check_count, check_penalties
from mcnet.calibrators.training_state import TrainingState
from mcnet.errors import InputError, NotSupportedError
from mcnet.networks.calibrator import FitRows, NetworkCalibrator, training_cells
from mcnet.networks.training_points import (
    TrainedFunction,
    check_choices,
    check_device,
    check_rate,
    check_seed,
    check_switch,
    check_unused,
    check_used_by_kind,
    check_widths,
)
from mcnet.rows.spec import DEFAULT_RESOLUTION, Resolution
from mcnet.sketch.sketch import Sketch

if TYPE_CHECKING:
    from mcnet.networks.bank import BankConfig, BankFit

# How many bins, and what a training on rows has to be warned of.

USUAL_BINS = 20
_CANDIDATE_BINS = (5, 10, 20)
_FOLDS = 5
_NATS_TO_COMPARE = 0.1
"""How far from its optimum, in nats over all rows, a candidate may be left."""
_NATS_ALIKE = 0.5
"""Numbers of bins whose log-losses differ by no more, in nats over the rows held back, count as equal."""


def choose_bins(sketch: Sketch, config_of: Callable[[int], "BankConfig"], *, field_aware: bool) -> int:
    """Return the number of bins with the lowest log-loss on one fold of rows held back, the largest of those alike.

    The prior makes functions equally smooth whatever the number of bins, so more of them cost time, not accuracy. The
    candidates are compared by what can be solved for, the offset and scale of every bin and field value: training
    their networks lowers the loss of each by about as much and takes ten times as long. Where field values are so many
    that the smaller ones share networks, 20 bins are no candidate: they look better while nothing is trained, but once
    trained, 10 bins have the lower loss in half the time.
    """
    from mcnet.networks.bank import affordable_bins, fit_bank
    from mcnet.networks.optimise import Schedule

    train, held = sketch.with_folds(_FOLDS).fold_parts(0)
    if not 0.0 < train.total_positives < train.total_weight or len(held) == 0:
        return USUAL_BINS
    rows = (train.total_weight, train.total_positives)
    many = field_aware and len(sketch.contexts) > config_of(USUAL_BINS).own_shapes
    known = _CANDIDATE_BINS[:-1] if many else _CANDIDATE_BINS
    candidates = sorted({affordable_bins(*rows, config_of(bins)) for bins in known})
    if len(candidates) == 1:
        return candidates[0]
    codes = held.contexts.table[held.context].astype(np.int64) if field_aware else None
    losses = {}
    for bins in candidates:
        # The networks start constant and are not trained here: the smallest are the same function, and one node per
        # half of a bin measures their integrals exactly.
        config = config_of(bins)
        smallest = replace(config.shape, hidden=(1,), embedding=1, network="umnn", start="identity")
        untrained = Schedule(cycles=0, solved=_NATS_TO_COMPARE)
        config = replace(config, shape=smallest, schedule=untrained, nodes=1)
        fitted = fit_bank(training_cells(train, field_aware=field_aware), config)
        predicted = logit(clip_scores(fitted.predict(held.logit, codes, nodes=1)))
        losses[bins] = log_loss_sum(predicted, held.weight, held.positives)
    least = min(losses.values())
    return max(bins for bins, loss in losses.items() if loss <= least + _NATS_ALIKE)


def warn_of_literal_fit(fitted: "BankFit", rows: FitRows, codes: Any) -> None:
    """Warn if probabilities of the fitted rows had to be clipped, or are worse than the base scores."""
    logits, weight = logit(rows.score), np.ones(len(rows)) if rows.weight is None else rows.weight
    mass = float(weight.sum())
    if fitted.bank.shape.space == "probability":
        values = fitted.values(logits, codes, score=rows.score)
        clipped = float(weight[(values <= 0.0) | (values >= 1.0)].sum()) / mass
        if clipped > 0.0:
            warn(
                f"mcnet: the function left (0, 1) for {clipped:.2%} of the rows it was fitted on; their probabilities "
                "were clipped, and there the compiled curve differs from the function. Train longer, use "
                "space='logit', or train on the sketch"
            )
    after, before = (
        log_loss_sum(predicted, weight, weight * rows.label) / mass
        for predicted in (logit(clip_scores(fitted.predict(logits, codes, score=rows.score))), logits)
    )
    if after > before:
        warn(
            f"mcnet: on the rows it was fitted on, the log-loss is {after:.6g}, worse than that of the base scores "
            f"({before:.6g}); train longer, or train on the sketch (training='sketch')"
        )


# MCNet as published: monotone calibration with context, one network per score bin (WWW 2025).

_FOR_ROWS = ("epochs", "batch", "learning_rate", "weight_decay", "steps", "quadrature")
"""The settings that count only in a training on rows."""

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
    network : the kind of monotone network (`mcnet.networks.kinds`): "umnn", the integral of a positive network (the
        paper); "lmn", a Lipschitz monotonic network, or "minmax", a smooth min-max network, both without an integral.
    hidden, embedding, share_embedding, derivative, scale, space, lower : the shape of the networks; `derivative` is for
        "umnn"; scale=False leaves out exp(r), as the printed formula does.
    activation : "silu", "tanh" or "relu"; None is silu on a sketch and relu on rows, as UMNN has it.
    start : where training starts: "identity", "random" (weights at random; constants 0, but for "lmn" and "minmax"
        at random too) or "torch" (weights and constants as torch's layers have them). The paper does not say.
    training : "sketch", full batch on cells, or "rows", mini-batches of rows as in the paper.
    epochs, batch, learning_rate, weight_decay : (training on rows) the schedule; refused on a sketch, as the next two.
    steps : (training on rows, networks with an integral) the quadrature steps T for every row; None lets the rows of a
        bin share their nodes, which is the same training in a fiftieth of the time or less.
    quadrature : (training on rows, with steps) "plain" differentiates the integral, "lean" integrates the gradient
        (Algorithm 2 of the paper), in memory that does not grow with `steps`.
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
        network: str = "umnn",
        hidden: tuple[int, ...] = (128, 128),
        embedding: int = 128,
        share_embedding: bool = False,
        derivative: Literal["sigmoid", "softplus", "elu"] = "sigmoid",
        activation: Literal["silu", "tanh", "relu"] | None = None,
        scale: bool = True,
        start: Literal["identity", "random", "torch"] = "identity",
        space: Literal["logit", "probability"] = "logit",
        lower: Literal["zero", "edge", "centre"] = "centre",
        training: Literal["sketch", "rows"] = "sketch",
        epochs: int = 2,
        batch: int = 2048,
        learning_rate: float | None = None,
        weight_decay: float = 0.0,
        steps: int | None = 50,
        quadrature: Literal["plain", "lean"] = "plain",
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
        self.network = network
        self.hidden = hidden
        self.embedding = embedding
        self.share_embedding = share_embedding
        self.derivative = derivative
        self.activation = activation
        self.scale = scale
        self.start = start
        self.space = space
        self.lower = lower
        self.training = training
        self.epochs = epochs
        self.batch = batch
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.steps = steps
        self.quadrature = quadrature
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
        }
        if changes.get("training", "rows") == "rows":
            settings["learning_rate"] = _PAPER_RATE[variant]
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
        train = self._fitting(lambda given, earlier: self._train_on_rows(given, rows, earlier))
        return self._fit_by(sketch, train)

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
        return super().fit_sketch(sketch)

    @property
    def _one_curve(self) -> bool:
        return not self.field_aware

    def _check_parameters(self) -> None:
        need_extra("networks", self.method)
        check_count("bins", self.bins, "auto")
        check_beta_order(self.beta_order)
        check_penalties(self.alpha_balance, self.balance)
        check_choices(
            network=self.network,
            derivative=self.derivative,
            space=self.space,
            lower=self.lower,
            training=self.training,
            start=self.start,
            quadrature=self.quadrature,
        )
        if self.activation is not None:
            check_choices(activation=self.activation)
        for name in ("field_aware", "guarantee", "warm_start", "share_embedding", "scale"):
            check_switch(name, getattr(self, name))
        for name in ("embedding", "epochs", "batch"):
            check_count(name, getattr(self, name))
        if self.steps is not None:
            check_count("steps", self.steps)
        check_widths("hidden", self.hidden)
        if self.learning_rate is not None:
            check_rate("learning_rate", self.learning_rate, above_zero=True)
        check_rate("weight_decay", self.weight_decay)
        check_seed(self.seed)
        if self.progress is not None and not callable(self.progress):
            raise InputError(f"progress is {self.progress!r}; it must be a function of (steps done, steps, loss)")
        check_device(self.device)
        if not self.scale and self.training == "sketch":
            raise InputError(
                "scale=False leaves out the scale of each bin, which training on a sketch solves for; "
                "use training='rows', or leave scale=True"
            )
        if self.training == "sketch":
            check_unused(MCNet, vars(self), _FOR_ROWS, "it counts only with training='rows'")
        check_used_by_kind(MCNet, vars(self))
        if self.quadrature == "lean" and self.steps is None:
            raise InputError(
                "quadrature='lean' integrates the gradient of each row's own integral; it needs a number of steps, as "
                "the rows of a bin share their nodes otherwise"
            )

    def _train(self, sketch: Sketch, earlier: Any) -> TrainedFunction:
        from mcnet.networks.bank import fit_bank

        aware, bins = self.field_aware, self.bins
        if bins == "auto":
            bins = choose_bins(sketch, self._config, field_aware=aware)
        return fit_bank(training_cells(sketch, field_aware=aware), self._config(bins), earlier, self.progress)

    def _train_on_rows(self, sketch: Sketch, rows: FitRows, earlier: Any) -> TrainedFunction:
        from mcnet.networks.bank import fit_bank_on_rows
        from mcnet.networks.training import RowSchedule

        codes, sizes = rows.codes(sketch.contexts)
        groups = None
        if not self.field_aware and sizes:
            groups, codes, sizes = codes, codes[:, :0], ()
        schedule = RowSchedule(
            epochs=self.epochs,
            batch=self.batch,
            rate=self.learning_rate or _PAPER_RATE["field" if sketch.contexts.names and self.field_aware else "none"],
            decay=self.weight_decay,
            seed=self.seed,
        )
        config = self._config(USUAL_BINS if self.bins == "auto" else self.bins)
        fitted = fit_bank_on_rows(
            logit(rows.score),
            rows.label,
            codes,
            sizes,
            rows.weight,
            config,
            schedule,
            self.steps,
            self.quadrature == "lean",
            warm=earlier,
            progress=self.progress,
            groups=groups,
            score=rows.score,
        )
        warn_of_literal_fit(fitted, rows, codes)
        return fitted

    def _exact(self, scores: FloatArray, codes: IntArray) -> FloatArray:
        result: FloatArray = self.network_.predict(logit(scores), codes, score=scores)
        return result

    def _config(self, bins: int) -> "BankConfig":
        """Return the settings as the networks take them."""
        from mcnet.networks.bank import BankConfig, paper_config
        from mcnet.networks.objective import Penalties

        literal = self.training == "rows"
        usual = paper_config(self.field_aware)[0] if literal else BankConfig(least_positives=25.0)
        shape = replace(
            usual.shape,
            hidden=tuple(self.hidden),
            embedding=self.embedding,
            share_embedding=self.share_embedding,
            positive=self.derivative,
            activation=self.activation or usual.shape.activation,
            scale=self.scale,
            space=self.space,
            lower=self.lower,
            start=self.start,
            network=self.network,
        )
        penalties = Penalties(self.beta_order, self.alpha_balance, self.balance)
        return replace(usual, bins=bins, shape=shape, penalties=penalties, seed=self.seed, device=self.device)

    def _restored_function(self, state: TrainingState) -> TrainedFunction:
        from mcnet.networks.bank import restore_bank

        return restore_bank(state)

    def _plain_parameters(self) -> dict[str, Any]:
        # A callback is no part of what was fitted.
        return super()._plain_parameters() | {"progress": None}
