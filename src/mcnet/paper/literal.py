"""MCNet trained as the paper says, on rows in mini-batches: the runs that its appendix is about."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.math import clip_scores, logit
from mcnet._shared.typing import FloatArray
from mcnet.networks.bank import BankFit
from mcnet.networks.literal import fit_bank_on_rows, paper_config
from mcnet.networks.objective import Penalties
from mcnet.paper.tasks import Sample, Task

__all__ = ["LiteralRecipe", "predict_literal", "train_literal"]


@dataclass(frozen=True)
class LiteralRecipe:
    """The paper's settings; `rate` None is its 1e-5 for MCNet-None and 1e-4 for MCNet-Field.

    `start` is where training starts, which the paper does not say: at the identity, or at random weights as PyTorch
    layers have them. `steps` is T; scores of a few percent are integrated as exactly with T = 10 as with 50.
    """

    field: bool = False
    bins: int = 20
    rate: float | None = None
    order: float = 1.0
    balance: float = 0.0
    epochs: int = 2
    batch: int = 2048
    steps: int = 50
    hidden: tuple[int, ...] = (128, 128)
    start: Literal["identity", "random"] = "identity"
    seed: int = 0

    def smaller(self) -> "LiteralRecipe":
        """Return the same run with networks and quadrature that a small machine trains quickly."""
        return replace(self, steps=8, hidden=(32, 32))


def train_literal(
    task: Task, recipe: LiteralRecipe, warm: BankFit | None = None, progress: Callable[[str], Any] | None = None
) -> BankFit:
    """Train on the validation rows of a task, from scratch or on from an earlier run."""
    config, schedule = paper_config(field=recipe.field)
    shape = replace(config.shape, hidden=recipe.hidden, start=recipe.start)
    config = replace(
        config,
        bins=recipe.bins,
        shape=shape,
        penalties=Penalties(order=recipe.order, balance=recipe.balance),
        seed=recipe.seed,
    )
    rate = schedule.rate if recipe.rate is None else recipe.rate
    schedule = replace(schedule, rate=rate, epochs=recipe.epochs, batch=recipe.batch, seed=recipe.seed)

    def tell(done: int, total: int, loss: float) -> None:
        if progress is not None:
            progress(f"{task.name}: literal training, step {done} of {total}")

    rows = task.validation
    codes, sizes = _codes(task, rows, recipe.field)
    label = rows.label.astype(np.float64)
    return fit_bank_on_rows(
        logit(clip_scores(rows.score)),
        label,
        codes,
        sizes,
        None,
        config,
        schedule,
        recipe.steps,
        warm=warm,
        progress=tell,
    )


def predict_literal(fit: BankFit, task: Task, sample: Sample, field: bool) -> FloatArray:
    """Return the probabilities that a literal run gives to rows; those outside (0, 1) are clipped, as they must be."""
    codes, _ = _codes(task, sample, field)
    return fit.predict(logit(clip_scores(sample.score)), codes)


def _codes(task: Task, sample: Sample, field: bool) -> tuple[NDArray[np.int64] | None, tuple[int, ...]]:
    if not field:
        return None, ()
    size = int(task.validation.field.max()) + 1
    return np.minimum(sample.field, size).astype(np.int64)[:, None], (size,)
