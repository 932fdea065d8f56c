"""MCNet with an auxiliary network, trained on rows for a number of epochs, all of them or the best one of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray, clip_scores, logit
from mcnet.errors import InputError
from mcnet.networks.bank import BankConfig, BankOnSharedNodes, fit_bank, paper_config, place_bins
from mcnet.networks.monotone import MonotoneBank
from mcnet.networks.training import AuxiliaryFit, RowSchedule, fit_with_auxiliary
from mcnet.networks.training_points import TrainingCells
from mcnet.networks.with_features import feature_schedule
from mcnet.rows.contexts import distinct_contexts
from reproduction.tasks import Features, Sample, Task

__all__ = ["STOPPING", "BesideRecipe", "FittedBeside", "fit_beside"]

STOPPING = (
    "Adam at 0.001 on batches of 2048 or a fiftieth of the rows, stopping early on a tenth of them held back, L2 of "
    "0.0001"
)
"""The schedule of `WithFeatures` in words."""


@dataclass(frozen=True)
class BesideRecipe:
    """How to train beside an auxiliary network.

    "as printed": the paper's network on logits, as its variant with features has it, from the identity, with the
    paper's learning rate for both networks, β = 1, batches of 2048, for `epochs` epochs of the paper's rows.
    "trained on": the same for ten epochs of the rows here at 1e-3 falling to 0, of which the one that is best on rows
    held back is taken, as more steps overfit few rows. "with our priors": the network at its optimum without features,
    then both trained at 1e-3 for `epochs`, without stopping.
    """

    field: bool = False
    training: Literal["as printed", "trained on", "with our priors"] = "as printed"
    epochs: int = 2
    seed: int = 0

    def sentence(self) -> str:
        """Return the settings in words."""
        if self.training == "trained on":
            return (
                "logit space from the identity, β = 1, Adam at 0.001 falling to 0 for 10 epochs, batches of 2048 or a "
                "fiftieth of the rows, L2 of 0.0001, the epoch that is best on a tenth of the rows held back"
            )
        if self.training == "as printed":
            rate = paper_config(field=self.field)[1].rate
            return (
                f"logit space from the identity, Adam at {rate:g} for both networks, β = 1, batches of 2048, "
                f"{self.epochs} epochs of the paper's rows"
            )
        return "from the optimum without features, Adam at 0.001 for both, batches of 2048 or a fiftieth of the rows"


@dataclass(frozen=True)
class FittedBeside:
    """A calibrator and its auxiliary network, with the categories they know."""

    fit: AuxiliaryFit
    known: tuple[NDArray[np.int32], ...]
    field: bool

    def predict(self, sample: Sample) -> FloatArray:
        """Return the probabilities of rows with features."""
        features, points = _features(sample), logit(clip_scores(sample.score))
        codes = _codes(sample, self.field)
        return self.fit.predict(points, codes, features.numbers, features.places(self.known))


def fit_beside(
    task: Task, recipe: BesideRecipe, after_epoch: Callable[[int, FittedBeside], Any] | None = None
) -> FittedBeside:
    """Train MCNet and a network on the features of the validation rows; `after_epoch` sees what is there so far."""
    sample = task.validation
    features = _features(sample)
    known = tuple(np.unique(features.categories[:, i]) for i in range(features.categories.shape[1]))
    points, label, codes = (
        logit(clip_scores(sample.score)),
        sample.label.astype(np.float64),
        _codes(sample, recipe.field),
    )
    sizes = (int(codes.max()) + 1,) if recipe.field else ()
    paper, schedule = paper_config(field=recipe.field)
    if recipe.training != "with our priors":
        config = replace(paper, shape=replace(paper.shape, space="logit"), seed=recipe.seed)
        bank = MonotoneBank(config.shape, sizes, place_bins(points, np.ones(len(points)), label, config), recipe.seed)
        schedule = replace(schedule, epochs=task.passes(recipe.epochs, schedule.batch), seed=recipe.seed)
        if recipe.training == "trained on":
            usual = feature_schedule(len(sample), recipe.seed)
            schedule = replace(usual, epochs=10, patience=10, falling=True, unseen=0.0)
    else:
        ones = np.ones(len(points))
        cells = TrainingCells.of(points, ones, label, *((codes[:, 0], None, sizes) if recipe.field else ()))
        config = BankConfig(least_positives=25.0, seed=recipe.seed)
        bank = fit_bank(cells, config).bank
        batch = int(np.clip(len(sample) // 50, 64, 2048))
        schedule = RowSchedule(epochs=recipe.epochs, batch=batch, rate=1e-3, decay=1e-5, seed=recipe.seed)
    contexts, _ = distinct_contexts(codes)

    def tell(epoch: int, fit: AuxiliaryFit) -> None:
        if after_epoch is not None:
            after_epoch(epoch, FittedBeside(fit, known, recipe.field))

    fit = fit_with_auxiliary(
        BankOnSharedNodes(bank, torch.as_tensor(contexts)),
        points,
        label,
        codes,
        sizes,
        features.numbers,
        features.places(known),
        tuple(len(ids) for ids in known),
        penalties=config.penalties,
        schedule=schedule,
        after_epoch=tell,
    )
    return FittedBeside(fit, known, recipe.field)


def _features(sample: Sample) -> Features:
    if sample.features is None:
        raise InputError("the rows have no features; the auxiliary network needs them")
    return sample.features


def _codes(sample: Sample, field: bool) -> NDArray[np.int64]:
    return sample.field[:, None].astype(np.int64) if field else np.zeros((len(sample), 0), dtype=np.int64)
