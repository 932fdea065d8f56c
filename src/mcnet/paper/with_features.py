"""Calibrators with an auxiliary network beside them, fitted on a task that has features."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mcnet.errors import InputError
from mcnet.networks.adaptive import AdaptiveConfig, fit_adaptive
from mcnet.networks.auxiliary import AuxiliaryFit, fit_with_auxiliary
from mcnet.networks.bank import BankConfig, fit_bank
from mcnet.networks.cells import Cells
from mcnet.networks.lines import LineConfig, LineFunction, fit_lines
from mcnet.networks.literal import BankOnRows
from mcnet.networks.monotone import BankShape
from mcnet.networks.training import RowFunction, RowSchedule
from mcnet.paper.tasks import Features, Sample, Task
from mcnet.rows.columns import clip_scores, logit

__all__ = ["MODELS", "Fitted", "batch_for", "fit_with_features"]

Floats = NDArray[np.float64]

MODELS = ("NeuCalib", "AdaCalib", "MCNet-None", "MCNet-Field")
_SEES_FIELD = ("AdaCalib", "MCNet-Field")


@dataclass(frozen=True)
class Fitted:
    """A calibrator and its auxiliary network, with the categories they know."""

    fit: AuxiliaryFit
    known: tuple[NDArray[np.int32], ...]
    values: int
    sees_field: bool

    def predict(self, sample: Sample) -> Floats:
        """The probabilities of rows with features."""
        features = _features(sample)
        codes = _field_codes(sample, self.values, self.sees_field)
        places = _places(features.categories, self.known)
        return self.fit.predict(logit(clip_scores(sample.score)), codes, features.numbers, places)


def fit_with_features(
    model: str,
    task: Task,
    seed: int = 0,
    schedule: RowSchedule | None = None,
    progress: Callable[[str], Any] | None = None,
) -> Fitted:
    """Fit a model on the scores of the validation rows, then on with an auxiliary network on their features.

    The validation rows must be new to the base predictor: on rows it was trained on, its score is better than it will
    ever be again, and the auxiliary network would learn to trust it.
    """
    sample = task.validation
    features = _features(sample)
    sees_field = model in _SEES_FIELD
    values = int(sample.field.max()) + 1
    known = tuple(np.unique(features.categories[:, i]) for i in range(features.categories.shape[1]))

    def tell(done: int, total: int, loss: float) -> None:
        if progress is not None:
            progress(f"{task.name}, seed {seed}: {model}-Aux, step {done} of {total}")

    default = RowSchedule(
        epochs=8, batch=batch_for(len(sample)), rate=1e-3, decay=1e-5, held_out=0.1, patience=2, unseen=0.02, seed=seed
    )
    fit = fit_with_auxiliary(
        _function(model, task, seed),
        logit(clip_scores(sample.score)),
        sample.label.astype(np.float64),
        _field_codes(sample, values, sees_field),
        (values,) if sees_field else (),
        features.numbers,
        _places(features.categories, known),
        tuple(len(ids) for ids in known),
        hidden=(64, 64),
        embedding=8,
        schedule=schedule or default,
        progress=tell,
    )
    return Fitted(fit, known, values, sees_field)


def batch_for(rows: int) -> int:
    """The paper's batches of 2048, smaller where there are few rows, so that an epoch still has steps to take."""
    return int(np.clip(rows // 50, 64, 2048))


def _function(model: str, task: Task, seed: int) -> RowFunction:
    """The calibration function of a model, fitted without features: where the common training starts."""
    sketch = task.sketch if model in _SEES_FIELD else task.sketch.pooled()
    if sketch.contexts.names:
        sizes = tuple(len(known) for known in sketch.contexts.values)
        table = sketch.contexts.table.astype(np.int64)
        context = sketch.context.astype(np.int64)
        cells = Cells.of(sketch.logit, sketch.weight, sketch.positives, context, table, sizes)
    else:
        cells = Cells.of(sketch.logit, sketch.weight, sketch.positives)
    if model == "NeuCalib":
        line = fit_lines(cells, LineConfig(20))
        function = LineFunction(line.knots)
        with torch.no_grad():
            function.moves.copy_(torch.as_tensor(line.values - line.knots))
        return function
    if model == "AdaCalib":
        return fit_adaptive(cells, AdaptiveConfig(seed=seed)).function
    if model in ("MCNet-None", "MCNet-Field"):
        shape = BankShape(hidden=(32, 32), embedding=8)
        bank = fit_bank(cells, BankConfig(shape=shape, seed=seed)).bank
        return BankOnRows(bank, torch.as_tensor(cells.codes), steps=8)
    raise InputError(f"there is no model {model!r}; the models are {', '.join(MODELS)}")


def _features(sample: Sample) -> Features:
    if sample.features is None:
        raise InputError("the rows have no features; the auxiliary network needs them")
    return sample.features


def _field_codes(sample: Sample, values: int, sees_field: bool) -> NDArray[np.int64]:
    if not sees_field:
        return np.zeros((len(sample), 0), dtype=np.int64)
    return np.minimum(sample.field, values).astype(np.int64)[:, None]


def _places(categories: NDArray[np.int32], known: tuple[NDArray[np.int32], ...]) -> NDArray[np.int64]:
    """The place of each category among the known ones, -1 where it is unseen."""
    result = np.empty(categories.shape, dtype=np.int64)
    for i, ids in enumerate(known):
        place = np.minimum(np.searchsorted(ids, categories[:, i]), len(ids) - 1)
        result[:, i] = np.where(ids[place] == categories[:, i], place, -1)
    return result
