"""MCNet as published: one monotone network a score bin, trained on a sketch or, literally, on rows."""

from typing import TYPE_CHECKING, Any

import numpy as np

from mcnet._shared.math import clip_scores, logit, sigmoid
from mcnet._shared.typing import FloatArray
from mcnet.calibrators.logistic import log_loss_sum
from mcnet.data.contexts import Contexts
from mcnet.neural.fit_rows import FitRows
from mcnet.neural.network import network_cells
from mcnet.sketch.sketch import Sketch

if TYPE_CHECKING:
    from mcnet.neural.mcnet import MCNet

__all__ = ["bin_edges", "fit_per_bin", "fit_per_bin_on_rows"]

_CANDIDATES = (5, 10, 20, 40)
_FOLDS = 5
_USUAL = 20


def bank_config(calibrator: "MCNet", bins: int) -> Any:
    """Return the settings of a calibrator as the networks room takes them."""
    from mcnet.networks.bank import BankConfig
    from mcnet.networks.monotone import BankShape
    from mcnet.networks.objective import Penalties, Priors

    literal = calibrator.training == "rows"
    shape = BankShape(
        hidden=tuple(calibrator.hidden),
        embedding=calibrator.embedding,
        share_embedding=calibrator.share_embedding,
        positive=calibrator.derivative,
        activation="relu" if literal else "silu",
        scale=calibrator.scale,
        space=calibrator.space,
        lower=calibrator.lower,
        standardise="none" if literal else "bin",
        direct=not literal,
    )
    return BankConfig(
        bins=bins,
        shape=shape,
        # The priors are ours; the paper has none.
        priors=Priors(*[np.inf] * 6) if literal else Priors(),
        penalties=Penalties(calibrator.beta_order, calibrator.alpha_balance, calibrator.balance),
        least_positives=0.0 if literal else 25.0,
        unseen=0.0 if literal else 0.03,
        seed=calibrator.seed,
        device=calibrator.device,
    )


def fit_per_bin(calibrator: "MCNet", sketch: Sketch, warm: Any) -> Any:
    """Train the bank of networks on a sketch; bins="auto" is settled by the log-loss of rows held back."""
    from mcnet.networks.bank import fit_bank

    bins = calibrator.bins if calibrator.bins != "auto" else _choose_bins(calibrator, sketch)
    return fit_bank(network_cells(sketch), bank_config(calibrator, bins), warm, calibrator.progress)


def _choose_bins(calibrator: "MCNet", sketch: Sketch) -> int:
    from mcnet.networks.bank import affordable_bins, fit_bank

    train, held = sketch.dealt(_FOLDS).fold_parts(0)
    if not 0.0 < train.total_positives < train.total_weight or len(held) == 0:
        return _USUAL
    rows = (train.total_weight, train.total_positives)
    candidates = sorted({affordable_bins(*rows, bank_config(calibrator, bins)) for bins in _CANDIDATES})
    if len(candidates) == 1:
        return candidates[0]
    codes = held.contexts.table[held.context].astype(np.int64)
    losses = {}
    for bins in candidates:
        fitted = fit_bank(network_cells(train), bank_config(calibrator, bins))
        predicted = logit(clip_scores(fitted.predict(held.logit, codes)))
        losses[bins] = log_loss_sum(predicted, held.weight, held.positives)
    return min(losses, key=lambda bins: losses[bins])


def fit_per_bin_on_rows(calibrator: "MCNet", rows: FitRows, contexts: Contexts, warm: Any) -> Any:
    """Train the bank of networks on rows in mini-batches: the paper taken literally."""
    from mcnet.networks.literal import fit_bank_on_rows
    from mcnet.networks.training import RowSchedule

    codes, sizes = rows.codes(contexts)
    rate = calibrator.learning_rate or (1e-4 if sizes else 1e-5)
    schedule = RowSchedule(
        epochs=calibrator.epochs,
        batch=calibrator.batch,
        rate=rate,
        decay=calibrator.weight_decay,
        seed=calibrator.seed,
    )
    return fit_bank_on_rows(
        logit(rows.score),
        rows.label,
        codes,
        sizes,
        rows.weight,
        bank_config(calibrator, _USUAL if calibrator.bins == "auto" else calibrator.bins),
        schedule,
        calibrator.steps,
        warm=warm,
        progress=calibrator.progress,
    )


def bin_edges(fit: Any) -> FloatArray:
    """Return the edges between the bins as scores: the function jumps there."""
    edges: FloatArray = fit.bank.edges.cpu().numpy().astype(np.float64)
    return sigmoid(edges) if fit.bank.shape.space == "logit" else edges
