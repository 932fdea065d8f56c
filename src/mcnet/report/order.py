"""Order: whether a higher score can get a lower probability, and for which share of the weight."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mcnet.metrics.evaluate_sketch import predict_cells
from mcnet.model.drawing import fitted_model
from mcnet.sketch.sketch import Sketch

__all__ = ["Order", "prepare_order"]


@dataclass(frozen=True)
class Order:
    """How many of a calibrator's curves fall somewhere, by how much at most, and the share of the weight below.

    A row is *below* if its probability is lower than that of a row of its context with a lower score. `reported` is
    the calibrator's own `order_violations_`, where it keeps one: by how much its guarantee had to move a probability.
    """

    curves: int
    falling: int
    largest_drop: float
    share_below: float
    reported: float | None

    @property
    def kept(self) -> bool:
        """Tell whether the order of scores is kept everywhere."""
        return self.falling == 0


def prepare_order(calibrator: Any, sketch: Sketch) -> Order:
    """Find falls in the curves of a calibrator, and the share of the rows of a sketch that they affect."""
    model = fitted_model(calibrator)
    falling = sum(bool((np.diff(values) < 0.0).any()) for _, values in model.curves.pairs())
    reported = getattr(calibrator, "order_violations_", None)
    return Order(
        curves=len(model.curves),
        falling=falling,
        largest_drop=model.curves.largest_drop(),
        share_below=_share_below(calibrator, sketch) if falling else 0.0,
        reported=None if reported is None else float(reported),
    )


def _share_below(calibrator: Any, sketch: Sketch) -> float:
    # The cells of a sketch come in the order of context and score; folds of one cell do not matter here.
    whole = sketch.unfolded()
    probabilities = predict_cells(calibrator, whole)
    starts = np.flatnonzero(np.diff(whole.context, prepend=-1))
    highest = np.concatenate([np.maximum.accumulate(part) for part in np.split(probabilities, starts[1:])])
    return float(whole.weight[probabilities < highest].sum() / whole.total_weight)
