"""Fit one method on one task and measure what it does to the test rows."""

import runpy
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from mcnet._shared.arrays import SCORE_FLOOR, FloatArray
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.methods import calibrator, methods
from mcnet.errors import CalibrationWarning, InputError
from mcnet.metrics import auc, f_rce, group_pcoc, group_sums, kl_to_truth, log_loss, pcoc, pcoc_std
from mcnet.metrics.scores import CLIP
from mcnet.networks.bank import MANY_BINS, BankConfig, BankFit
from mcnet.networks.mcnet import MCNet
from mcnet.networks.objective import Penalties, Priors
from reproduction.literal import (
    LiteralRecipe,
    best_monotone_log_loss,
    objective_and_gradient,
    predict_literal,
    train_literal,
)
from reproduction.tasks import Sample, Task

__all__ = [
    "BAYES",
    "BAYES_NONE",
    "MCNETS",
    "PRIORS_OFF",
    "ROSTER",
    "TRAINED_ON",
    "TRAININGS",
    "Contender",
    "FittedTask",
    "Trained",
    "Trial",
    "column",
    "fit_contender",
    "fit_task",
    "judge",
    "measure",
    "order_violations",
    "own_methods",
    "run_trial",
    "settings_note",
    "trained_note",
]

Predict = Callable[[Sample], FloatArray]
"""Gives the calibrated probabilities of a sample."""

Training = Literal["as printed", "trained on", "priors off", "with our priors"]
"""As printed: the published network and schedule. Trained on: the same network and objective (no priors, β = 1), with a
schedule that gets further. With our priors: in logit space, with six Gaussian priors and β = 0. Priors off: the same as
with our priors, but for the priors and the order penalty in their place."""


@dataclass(frozen=True)
class Contender:
    """A line of a table: a method of the registry with its parameters, or a training of the published network on rows.

    `published` is the name under which the paper prints its figures.
    """

    name: str
    method: str
    sees_field: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    recipe: LiteralRecipe | None = None
    published: str | None = None

    @property
    def training(self) -> str | None:
        """Which of its trainings a row of the published network has; None for other methods."""
        return self.name.partition(", ")[2] if self.published in ("MCNet-None", "MCNet-Field") else None

    def build(self, seed: int = 0, **changes: Any) -> Calibrator:
        """Return an unfitted calibrator; the seed matters only to methods that have one."""
        given = {**self.parameters, **changes}
        made = _PriorsOff(**given) if self.training == "priors off" else calibrator(self.method, **given)
        return made.set_params(seed=seed) if "seed" in made.get_params() else made

    def settings(self) -> str:
        """Return the settings of a training in words, or a method with the parameters that differ from its defaults.

        >>> Contender("SIR", "sir", parameters={"bins": 20}).settings()
        'SIR = sir(bins=20)'
        """
        if self.recipe is not None:
            return f"{self.name} = {self.recipe.sentence()}"
        given = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        if self.method == "mcnet":
            if self.training == "priors off":
                return f"{self.name} = the same without the priors, with β = {Penalties().order_in('logit'):g}"
            return f"{self.name} = mcnet({given}), {_with_priors(self.build().get_params())}"
        return f"{self.name} = {self.method}({given})"


class _PriorsOff(MCNet):
    """MCNet on the sketch without its priors, and so with the order penalty: nothing else is different."""

    def _config(self, bins: int) -> BankConfig:
        return replace(super()._config(bins), priors=Priors(*[np.inf] * 6))


def _with_priors(parameters: Mapping[str, Any]) -> str:
    widths = " × ".join(map(str, parameters["hidden"]))
    nodes = BankConfig().nodes
    return (
        f"SiLU networks of {widths}, embedding {parameters['embedding']}, {parameters['space']} space, {nodes} nodes "
        f"of quadrature in each half of a bin ({-(-nodes // 2)} from {MANY_BINS} bins on), full batch on the sketch "
        "until it has converged, six Gaussian priors, β = 0, two numbers per field value and bin, order guaranteed"
    )


TRAINED_ON: Mapping[str, Any] = {
    "rate": 1e-3, "falling": True, "steps": 3_000, "batch": 16_384, "tangent_below": 1e-6,
}  # fmt: skip
"""The schedule of the published objective, trained on: of those tried, the one that gets furthest with many rows.

MCNet-Field on the CTR of AliExpress (simulated, 3 M rows) ends so many nats above the best monotone function: 10,000
batches of 2,048 at 1e-3 11,800; 5,000 at 3e-4 6,320; 10,000 at 1e-4 949; 3,000 batches of 16,384 at 1e-3 549. The order
penalty has the same gradient however small the fault, and the noise of small batches keeps it from settling. Of the
eight trainings of Table 1 three get much further than with 10,000 batches of 2,048 at 1e-3, and five end 2 to 36 nats
behind.
"""


def mcnet_row(field: bool, training: Training, bins: int = 20) -> Contender:
    """Return a row of the published network: MCNet-None or MCNet-Field, in one of its three trainings.

    >>> mcnet_row(True, "as printed").name
    'MCNet-Field, as printed'
    """
    variant = "MCNet-Field" if field else "MCNet-None"
    name, shared = f"{variant}, {training}", {"sees_field": field, "published": variant}
    if training in ("as printed", "trained on"):
        recipe = LiteralRecipe(field=field, bins=bins)
        recipe = replace(recipe, **TRAINED_ON) if training == "trained on" else recipe
        return Contender(name, "mcnet", recipe=recipe, **shared)  # type: ignore[arg-type]
    return Contender(name, "mcnet", parameters={"bins": bins, "field_aware": field}, **shared)  # type: ignore[arg-type]


TRAININGS: tuple[Training, ...] = ("as printed", "trained on", "with our priors")
MCNETS = tuple(mcnet_row(field, training) for field in (False, True) for training in TRAININGS)
"""The published networks: without and with the field, in each training."""

PRIORS_OFF = tuple(mcnet_row(field, "priors off") for field in (False, True))
"""What the rows with our priors are without them."""

BAYES_NONE = Contender("BayesMCNet, no field", "mcnet-bayes", parameters={"field_aware": False})
BAYES = Contender("BayesMCNet", "mcnet-bayes", sees_field=True)


def _baseline(name: str, method: str, sees_field: bool = False, **parameters: Any) -> Contender:
    return Contender(name, method, sees_field, parameters, published=name)


ROSTER = (
    _baseline("Base", "base"),
    _baseline("Histogram Binning", "histogram", bins=20),
    _baseline("Isotonic Regression", "isotonic"),
    _baseline("Platt Scaling", "platt"),
    _baseline("Gaussian Scaling", "gaussian"),
    _baseline("Gamma Scaling", "gamma"),
    _baseline("SIR", "sir", bins=20),
    _baseline("NeuCalib", "neucalib", bins=20),
    _baseline("AdaCalib", "adacalib", sees_field=True, candidates=(5, 10, 20)),
    *MCNETS,
    *PRIORS_OFF,
    BAYES_NONE,
    BAYES,
)
"""The methods of the paper's Table 1, its networks in each training and without our priors, and BayesMCNet."""

SHARED_NODES = (
    "As printed: where there are fewer rows than the paper has, as many steps as its epochs have. Training on rows: "
    "the rows of a bin share the nodes of their integrals, which gives the values and gradients of "
    "the paper's T = 50 nodes per row (to 2e-5 and 1e-3 of their size) at a fiftieth of the time or less; L2 "
    "regularisation, whose coefficient the paper does not give, is off; the start, which it does not give either, is "
    "the identity by default."
)


def own_methods(path: str) -> tuple[Contender, ...]:
    """Run a Python file that registers calibrators with `add_method`, and return them as rows of a table."""
    before = set(methods())
    runpy.run_path(path)
    added = [name for name in methods() if name not in before]
    if not added:
        raise InputError(f"{path} registers no method; call mcnet.calibrators.methods.add_method in it")
    return tuple(Contender(name, name, sees_field=calibrator(name).field_use != "none") for name in added)


def settings_note(roster: Sequence[Contender]) -> str:
    """Return the settings of the contenders that have any."""
    given = [c.settings() for c in roster if c.recipe is not None or c.parameters]
    note = f"Settings: {'; '.join(given)}; everything else as the library has it."
    return f"{note} {SHARED_NODES}" if any(c.recipe is not None for c in roster) else note


@dataclass(frozen=True)
class Trained:
    """What a training of MCNet's networks came to.

    Bins, steps, the nats left to gain if it has not converged and, for the published objective trained on, its value
    and the norm of its gradient over all rows, and the gap: the nats by which it lies above the best monotone function.
    """

    bins: int
    steps: int
    left: float | None = None
    objective: float | None = None
    gradient: float | None = None
    gap: float | None = None

    @classmethod
    def of(cls, network: Any) -> "Trained | None":
        """Return it for a bank of networks on a sketch; other functions have none."""
        if not isinstance(network, BankFit):
            return None
        descent = network.descent
        return cls(network.bank.bins, descent.steps, None if descent.converged else descent.remaining)

    @classmethod
    def on_rows(cls, fit: BankFit, task: Task, recipe: LiteralRecipe) -> "Trained":
        """Return it for a training on rows; how far it is from an optimum, if the learning rate has fallen to 0."""
        found = cls(fit.bank.bins, fit.descent.steps)
        if not recipe.falling:
            return found
        objective, gradient = objective_and_gradient(fit, task, recipe)
        gap = len(task.validation) * (objective - best_monotone_log_loss(task, recipe.field))
        return replace(found, objective=objective, gradient=gradient, gap=gap)


ROW_GROUPS = 1000


@dataclass(frozen=True)
class RowParts:
    """Sums over 1000 random groups of test rows, from which figures are drawn again: the bootstrap over rows.

    `sums` is `[groups, field values, 5]`: rows, predicted and observed positives, log-loss, divergence from the truth
    (NaN where it is unknown). All methods have the same groups, so their differences can be drawn.
    """

    sums: FloatArray

    @classmethod
    def of(cls, probability: FloatArray, sample: Sample) -> "RowParts":
        """Return the sums of predictions of a sample."""
        group = np.random.default_rng(7).integers(0, ROW_GROUPS, len(sample))
        values = int(sample.field.max()) + 1
        inside = np.clip(probability, CLIP, 1.0 - CLIP)
        loss = -np.where(sample.label == 1, np.log(inside), np.log1p(-inside))
        truth = np.clip(np.full(len(sample), np.nan) if sample.truth is None else sample.truth, CLIP, 1.0 - CLIP)
        distance = truth * np.log(truth / inside) + (1.0 - truth) * np.log((1.0 - truth) / (1.0 - inside))
        columns = (np.ones(len(sample)), probability, sample.label.astype(np.float64), loss, distance)
        where = group * values + sample.field
        sums = [np.bincount(where, column, ROW_GROUPS * values) for column in columns]
        return cls(np.stack(sums, axis=-1).reshape(ROW_GROUPS, values, 5).astype(np.float64))

    def drawn(self, figure: str, draws: int = 400) -> FloatArray:
        """Return a figure of so many bootstrap samples of the rows: log_loss, distance, pcoc (from 1) or f_rce."""
        shares = np.full(ROW_GROUPS, 1.0 / ROW_GROUPS)
        weights = np.random.default_rng(11).multinomial(ROW_GROUPS, shares, draws)
        rows, predicted, observed, *means = np.moveaxis(np.tensordot(weights, self.sums, 1), -1, 0)
        if figure in ("log_loss", "distance"):
            return np.asarray(means[figure == "distance"].sum(1) / rows.sum(1))
        if figure == "pcoc":
            return np.asarray(np.abs(predicted.sum(1) / observed.sum(1) - 1.0))
        error = rows * np.abs(observed - predicted) / np.maximum(observed + 0.01 * rows, 0.01)  # rows are whole numbers
        return np.asarray(error.sum(1) / rows.sum(1))


@dataclass(frozen=True)
class Trial:
    """One fit: the figures of its test predictions, the PCOC on the rows it was fitted to, and the seconds it took."""

    figures: Mapping[str, float]
    fields: FloatArray
    seconds: float
    trained: Trained | None = None
    parts: RowParts | None = None

    def __getitem__(self, name: str) -> float:
        return self.figures[name]


def fit_contender(contender: Contender, task: Task, seed: int = 0, **changes: Any) -> Calibrator:
    """Fit on the sketch of the validation rows; warnings about small field values belong to tiny scales."""
    made = contender.build(seed, **changes)
    sketch = task.sketch
    if made.field_use == "none" or not (contender.sees_field or changes.get("alpha_balance")):
        sketch = sketch.pooled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return made.fit_sketch(sketch)


def predict(fitted: Calibrator, sample: Sample) -> FloatArray:
    """Return the calibrated probabilities of a sample, with its field if the model has one."""
    needs_field = bool(fitted.model_.contexts.names)
    return fitted.predict(sample.score, field=sample.field if needs_field else None)


@dataclass(frozen=True)
class FittedTask:
    """A contender fitted on a task: what it predicts, the seconds it took, what the training of its networks came to.

    The sketch of the rows is made once for all methods, and is not part of the seconds.
    """

    predict: Predict
    seconds: float
    trained: Trained | None


def fit_task(contender: Contender, task: Task, seed: int = 0, alpha: float = 0.0) -> FittedTask:
    """Fit a contender on a task, with the balance term if `alpha` > 0."""
    _ = task.sketch
    start = time.perf_counter()
    if contender.recipe is not None:
        recipe = replace(contender.recipe, balance=alpha, seed=seed).as_long_as_printed(task)
        fit = train_literal(task, recipe)
        seconds = time.perf_counter() - start
        trained = Trained.on_rows(fit, task, recipe)
        return FittedTask(lambda sample: predict_literal(fit, task, sample, recipe.field), seconds, trained)
    fitted = fit_contender(contender, task, seed, **({"alpha_balance": alpha} if alpha else {}))
    seconds = time.perf_counter() - start
    return FittedTask(lambda sample: predict(fitted, sample), seconds, Trained.of(getattr(fitted, "network_", None)))


def run_trial(
    contender: Contender,
    task: Task,
    seed: int = 0,
    progress: Callable[[str], Any] | None = None,
    alpha: float = 0.0,
) -> Trial:
    """Fit a contender on a task and judge it on the test rows."""
    if progress is not None:
        progress(f"{task.name}, seed {seed}: {contender.name}")
    fitted = fit_task(contender, task, seed, alpha)
    trial = judge(task, fitted.predict(task.test), fitted.predict(task.validation), fitted.seconds)
    return replace(trial, trained=fitted.trained)


def judge(task: Task, test: FloatArray, validation: FloatArray, seconds: float = 0.0) -> Trial:
    """Measure predictions of the test rows, and the PCOC of those of the validation rows."""
    figures = measure(test, task.test)
    figures["fitted_pcoc"] = float(validation.sum() / max(task.validation.label.sum(), 1))
    by_field = group_pcoc(group_sums(test, task.test.label, task.test.field))[0]
    return Trial(figures, by_field, seconds, parts=RowParts.of(test, task.test))


def measure(probability: FloatArray, sample: Sample) -> dict[str, float]:
    """Return the figures of the paper, and those it does not have.

    These are log-loss, distance to the truth, falls, and the share of rows whose function left (0, 1), so that it was
    clipped there.
    """
    sums = group_sums(probability, sample.label, sample.field)
    return {
        "pcoc": pcoc(sums).value,
        "f_rce": f_rce(sums).value,
        "pcoc_std": pcoc_std(sums).value,
        "auc": auc(probability, sample.label).value,
        "log_loss": log_loss(probability, sample.label).value,
        "distance": np.nan if sample.truth is None else kl_to_truth(probability, sample.truth).value,
        "violations": float(order_violations(probability, sample)),
        "clipped": float(((probability <= SCORE_FLOOR) | (probability >= 1.0 - SCORE_FLOOR)).mean()),
    }


def order_violations(probability: FloatArray, sample: Sample) -> int:
    """Count the neighbours in the order of scores, inside a field value, that are put in the opposite order."""
    order = sample.order
    p, s, c = probability[order], sample.score[order], sample.field[order]
    falls = (p[1:] < p[:-1] - 1e-12) & (c[1:] == c[:-1]) & (s[1:] > s[:-1])
    return int(falls.sum())


def trained_note(found: Mapping[tuple[str, str], Sequence[Trained | None]]) -> tuple[str, ...]:
    """Return, by (method, task), the bins that networks really have and the steps their training really took.

    >>> trained_note({("MCNet-None", "CVR"): [Trained(1, 100), Trained(2, 100)], ("SIR", "CVR"): [None]})
    ('What training came to: MCNet-None: CVR 1 to 2 bins, 100 steps.',)
    """
    parts: dict[str, list[str]] = {}
    for (method, task), trainings in found.items():
        known = [training for training in trainings if training is not None]
        if known:
            text = f"{task} {_span([t.bins for t in known], 'bin')}, {_span([t.steps for t in known], 'step')}"
            left = [t.left for t in known if t.left is not None]
            text += f" (not converged: up to {max(left):.2g} nats left to gain)" if left else ""
            far = [(t.gradient, t.gap) for t in known if t.gradient is not None and t.gap is not None]
            if far:
                norm, gap = (max(values) for values in zip(*far, strict=True))
                text += f", gradient norm {norm:.2g}, {gap:.3g} nats above the best monotone function"
            parts.setdefault(method, []).append(text)
    listed = [f"{method}: {', '.join(dict.fromkeys(texts))}" for method, texts in parts.items()]
    return (f"What training came to: {'; '.join(listed)}.",) if listed else ()


def _span(numbers: Sequence[int], unit: str) -> str:
    low, high = min(numbers), max(numbers)
    units = unit if high == 1 else f"{unit}s"
    return f"{low:,} {units}" if low == high else f"{low:,} to {high:,} {units}"


def column(trials: Sequence[Trial], name: str) -> list[float]:
    """Return one figure of every trial."""
    return [trial[name] for trial in trials]
