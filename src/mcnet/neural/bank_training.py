"""Training of MCNet's networks, one per score bin: on a sketch or, as published, on rows."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnet._shared.math import clip_scores, logit
from mcnet._shared.typing import FloatArray
from mcnet._shared.user_warnings import warn
from mcnet.calibrators.logistic import log_loss_sum
from mcnet.data.contexts import Contexts
from mcnet.neural.fit_rows import FitRows
from mcnet.neural.training_cells import training_cells
from mcnet.sketch.sketch import Sketch

if TYPE_CHECKING:
    from mcnet.networks.bank import BankConfig, BankFit
    from mcnet.networks.training import RowSchedule

__all__ = ["USUAL_BINS", "choose_bins", "fit_on_rows", "fit_on_sketch", "warn_of_literal_fit"]

USUAL_BINS = 20
_CANDIDATE_BINS = (5, 10, 20)
_FOLDS = 5
_NATS_TO_COMPARE = 0.1
"""How far from its optimum, in nats over all rows, a candidate may be left."""
_NATS_ALIKE = 0.5
"""Numbers of bins whose log-losses differ by no more, in nats over the rows held back, count as equal."""

Progress = Callable[[int, int, float], Any]


def fit_on_sketch(
    sketch: Sketch,
    config: "BankConfig",
    *,
    field_aware: bool,
    earlier: "BankFit | None" = None,
    progress: Progress | None = None,
) -> "BankFit":
    """Train the networks on the cells of a sketch until they have converged."""
    from mcnet.networks.bank import fit_bank

    return fit_bank(training_cells(sketch, field_aware=field_aware), config, earlier, progress)


def choose_bins(sketch: Sketch, config_of: Callable[[int], "BankConfig"], *, field_aware: bool) -> int:
    """Return the number of bins with the lowest log-loss on one fold of rows held back, the largest of those alike.

    The prior makes functions equally smooth whatever the number of bins, so more of them cost time, not accuracy. The
    candidates are compared by what can be solved for, the offset and scale of every bin and field value: training
    their networks lowers the loss of each by about as much and takes ten times as long. Where field values are so many
    that the smaller ones share networks, 20 bins are no candidate: they look better while nothing is trained, but once
    trained, 10 bins have the lower loss in half the time.
    """
    from mcnet.networks.bank import affordable_bins
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
        smallest = replace(config.shape, hidden=(1,), embedding=1)
        untrained = Schedule(cycles=0, solved=_NATS_TO_COMPARE)
        config = replace(config, shape=smallest, schedule=untrained, nodes=1)
        fitted = fit_on_sketch(train, config, field_aware=field_aware)
        predicted = logit(clip_scores(fitted.predict(held.logit, codes, nodes=1)))
        losses[bins] = log_loss_sum(predicted, held.weight, held.positives)
    least = min(losses.values())
    return max(bins for bins, loss in losses.items() if loss <= least + _NATS_ALIKE)


def fit_on_rows(
    rows: FitRows,
    contexts: Contexts,
    config: "BankConfig",
    schedule: "RowSchedule",
    steps: int | None,
    *,
    field_aware: bool,
    earlier: "BankFit | None" = None,
    progress: Progress | None = None,
) -> "BankFit":
    """Train the networks on rows in mini-batches, with `steps` steps of quadrature per row, as published.

    Without `steps` the rows of a bin share the nodes of their integrals.
    """
    from mcnet.networks.literal import fit_bank_on_rows

    codes, sizes = rows.codes(contexts)
    groups = None
    if not field_aware and sizes:
        groups, codes, sizes = codes, codes[:, :0], ()
    fitted = fit_bank_on_rows(
        logit(rows.score),
        rows.label,
        codes,
        sizes,
        rows.weight,
        config,
        schedule,
        steps,
        warm=earlier,
        progress=progress,
        groups=groups,
    )
    warn_of_literal_fit(fitted, rows, codes)
    return fitted


def warn_of_literal_fit(fitted: "BankFit", rows: FitRows, codes: Any) -> None:
    """Warn if probabilities of the fitted rows had to be clipped, or are worse than the base scores."""
    logits, weight = logit(rows.score), np.ones(len(rows)) if rows.weight is None else rows.weight
    mass = float(weight.sum())
    if fitted.bank.shape.space == "probability":
        values = fitted.values(logits, codes)
        clipped = float(weight[(values <= 0.0) | (values >= 1.0)].sum()) / mass
        if clipped > 0.0:
            warn(
                f"mcnet: the function left (0, 1) for {clipped:.2%} of the rows it was fitted on; their probabilities "
                "were clipped, and there the compiled curve differs from the function. Train longer, use "
                "space='logit', or train on the sketch"
            )
    after, before = (
        log_loss_sum(predicted, weight, weight * rows.label) / mass
        for predicted in (_logits(fitted.predict(logits, codes)), logits)
    )
    if after > before:
        warn(
            f"mcnet: on the rows it was fitted on, the log-loss is {after:.6g}, worse than that of the base scores "
            f"({before:.6g}); train longer, or train on the sketch (training='sketch')"
        )


def _logits(probabilities: FloatArray) -> FloatArray:
    return logit(clip_scores(probabilities))
