"""MCNet-None with an auxiliary network, trained for as many epochs as one likes, without early stopping."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mcnet._shared.math import clip_scores, logit
from mcnet._shared.typing import FloatArray
from mcnet.errors import InputError
from mcnet.networks.auxiliary import AuxiliaryFit, fit_with_auxiliary
from mcnet.networks.bank import BankConfig, fit_bank
from mcnet.networks.literal import BankOnRows
from mcnet.networks.monotone import BankShape
from mcnet.networks.training import RowSchedule
from mcnet.networks.training_points import TrainingCells
from mcnet.paper.tasks import Features, Sample, Task

__all__ = ["FittedBeside", "batch_for", "fit_epochs"]


@dataclass(frozen=True)
class FittedBeside:
    """A calibrator and its auxiliary network, with the categories they know."""

    fit: AuxiliaryFit
    known: tuple[NDArray[np.int32], ...]

    def predict(self, sample: Sample) -> FloatArray:
        """Return the probabilities of rows with features."""
        features = _features(sample)
        places = _places(features.categories, self.known)
        return self.fit.predict(logit(clip_scores(sample.score)), _no_field(sample), features.numbers, places)


def fit_epochs(task: Task, epochs: int, seed: int = 0, progress: Callable[[str], Any] | None = None) -> FittedBeside:
    """Fit MCNet-None on the scores of the validation rows, then for some epochs with a network on their features.

    `WithFeatures` holds rows back and stops in time; here the point is not to stop.
    """
    sample = task.validation
    features = _features(sample)
    known = tuple(np.unique(features.categories[:, i]) for i in range(features.categories.shape[1]))

    def tell(done: int, total: int, loss: float) -> None:
        if progress is not None:
            progress(f"{task.name}, seed {seed}: MCNet-None-Aux, step {done} of {total}")

    pooled = task.sketch.pooled()
    cells = TrainingCells.of(pooled.logit, pooled.weight, pooled.positives)
    bank = fit_bank(cells, BankConfig(shape=BankShape(hidden=(32, 32), embedding=1), seed=seed)).bank
    fit = fit_with_auxiliary(
        BankOnRows(bank, torch.as_tensor(cells.codes), steps=8),
        logit(clip_scores(sample.score)),
        sample.label.astype(np.float64),
        _no_field(sample),
        (),
        features.numbers,
        _places(features.categories, known),
        tuple(len(ids) for ids in known),
        hidden=(64, 64),
        embedding=8,
        schedule=RowSchedule(epochs=epochs, batch=batch_for(len(sample)), rate=1e-3, decay=1e-5, seed=seed),
        progress=tell,
    )
    return FittedBeside(fit, known)


def batch_for(rows: int) -> int:
    """Return the batch size: 2048 as in the paper, smaller for few rows, so that an epoch still has steps."""
    return int(np.clip(rows // 50, 64, 2048))


def _features(sample: Sample) -> Features:
    if sample.features is None:
        raise InputError("the rows have no features; the auxiliary network needs them")
    return sample.features


def _no_field(sample: Sample) -> NDArray[np.int64]:
    return np.zeros((len(sample), 0), dtype=np.int64)


def _places(categories: NDArray[np.int32], known: tuple[NDArray[np.int32], ...]) -> NDArray[np.int64]:
    """Return the place of each category among the known ones, -1 where it is unseen."""
    result = np.empty(categories.shape, dtype=np.int64)
    for i, ids in enumerate(known):
        place = np.minimum(np.searchsorted(ids, categories[:, i]), len(ids) - 1)
        result[:, i] = np.where(ids[place] == categories[:, i], place, -1)
    return result
