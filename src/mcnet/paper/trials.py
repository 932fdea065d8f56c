"""Fit one method on one task and measure what it does to the test rows."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mcnet._shared.typing import FloatArray
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.registry import calibrator
from mcnet.errors import CalibrationWarning
from mcnet.metrics import auc, f_rce, group_pcoc, group_sums, kl_to_truth, log_loss, pcoc, pcoc_std
from mcnet.paper.tasks import Sample, Task

__all__ = [
    "BAYES",
    "BAYES_NONE",
    "MCNET_FIELD",
    "MCNET_NONE",
    "ROSTER",
    "Contender",
    "Trial",
    "contenders",
    "fit_contender",
    "measure",
    "order_violations",
    "run_trial",
    "settings_note",
]


@dataclass(frozen=True)
class Contender:
    """A line of a table: a method of the registry, its parameters, and whether it sees the field."""

    name: str
    method: str
    sees_field: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that a quick run changes, so that it takes seconds."""

    def build(self, seed: int = 0, **changes: Any) -> Calibrator:
        """Return an unfitted calibrator; the seed matters only to methods that have one."""
        made = calibrator(self.method, **{**self.parameters, **changes})
        return made.set_params(seed=seed) if "seed" in made.get_params() else made

    def settings(self) -> str:
        """Return the method with the parameters that differ from its defaults.

        >>> Contender("SIR", "sir", parameters={"bins": 20}).settings()
        'SIR = sir(bins=20)'
        """
        given = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        return f"{self.name} = {self.method}({given})"


QUICK_NETWORKS: Mapping[str, Any] = {"bins": 5, "hidden": (16,), "embedding": 4}
"""The networks of a quick run: a few small ones instead of 20 of 2 × 128."""

MCNET_NONE = Contender("MCNet-None", "mcnet", parameters={"field_aware": False, "bins": 20}, quick=QUICK_NETWORKS)
MCNET_FIELD = Contender("MCNet-Field", "mcnet", sees_field=True, parameters={"bins": 20}, quick=QUICK_NETWORKS)
BAYES_NONE = Contender("BayesMCNet, no field", "mcnet-bayes", parameters={"field_aware": False})
BAYES = Contender("BayesMCNet", "mcnet-bayes", sees_field=True)

ROSTER = (
    Contender("Base", "base"),
    Contender("Histogram Binning", "histogram", parameters={"bins": 20}),
    Contender("Isotonic Regression", "isotonic"),
    Contender("Platt Scaling", "platt"),
    Contender("Gaussian Scaling", "gaussian"),
    Contender("Gamma Scaling", "gamma"),
    Contender("SIR", "sir", parameters={"bins": 20}),
    Contender("NeuCalib", "neucalib", parameters={"bins": 20}),
    Contender("AdaCalib", "adacalib", sees_field=True),
    MCNET_NONE,
    MCNET_FIELD,
    BAYES_NONE,
    BAYES,
)
"""The methods of the paper's Table 1, and BayesMCNet without and with the field."""


def contenders(roster: Sequence[Contender], quick: bool) -> list[Contender]:
    """Return the contenders of a run, with their smaller settings if it is quick."""
    if not quick:
        return list(roster)
    return [replace(contender, parameters={**contender.parameters, **contender.quick}) for contender in roster]


def settings_note(roster: Sequence[Contender]) -> str:
    """Return a sentence with the settings of those contenders whose parameters are not all defaults."""
    return f"Settings: {'; '.join(contender.settings() for contender in roster if contender.parameters)}."


@dataclass(frozen=True)
class Trial:
    """One fit: the figures of its test predictions, the PCOC on the rows it was fitted to, and the seconds it took."""

    figures: Mapping[str, float]
    fields: FloatArray
    seconds: float

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


def run_trial(
    contender: Contender, task: Task, seed: int = 0, progress: Callable[[str], Any] | None = None, **changes: Any
) -> Trial:
    """Fit a contender on a task and judge it on the test rows."""
    if progress is not None:
        progress(f"{task.name}, seed {seed}: {contender.name}")
    start = time.perf_counter()
    fitted = fit_contender(contender, task, seed, **changes)
    seconds = time.perf_counter() - start
    return judge(task, predict(fitted, task.test), predict(fitted, task.validation), seconds)


def judge(task: Task, test: FloatArray, validation: FloatArray, seconds: float = 0.0) -> Trial:
    """Measure predictions of the test rows, and the PCOC of those of the validation rows."""
    figures = measure(test, task.test)
    figures["fitted_pcoc"] = float(validation.sum() / max(task.validation.label.sum(), 1))
    by_field = group_pcoc(group_sums(test, task.test.label, task.test.field))[0]
    return Trial(figures, by_field, seconds)


def measure(probability: FloatArray, sample: Sample) -> dict[str, float]:
    """Return the figures of the paper, and those it does not have: log-loss, distance to the truth, falls."""
    sums = group_sums(probability, sample.label, sample.field)
    return {
        "pcoc": pcoc(sums).value,
        "f_rce": f_rce(sums).value,
        "pcoc_std": pcoc_std(sums).value,
        "auc": auc(probability, sample.label).value,
        "log_loss": log_loss(probability, sample.label).value,
        "distance": np.nan if sample.truth is None else kl_to_truth(probability, sample.truth).value,
        "violations": float(order_violations(probability, sample)),
    }


def order_violations(probability: FloatArray, sample: Sample) -> int:
    """Count the neighbours in the order of scores, inside a field value, that are put in the opposite order."""
    order = sample.order
    p, s, c = probability[order], sample.score[order], sample.field[order]
    falls = (p[1:] < p[:-1] - 1e-12) & (c[1:] == c[:-1]) & (s[1:] > s[:-1])
    return int(falls.sum())


def column(trials: Sequence[Trial], name: str) -> list[float]:
    """Return one figure of every trial."""
    return [trial[name] for trial in trials]
