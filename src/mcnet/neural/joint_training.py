"""Training a network on features beside a fitted calibrator."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnet._shared.math import logit
from mcnet._shared.typing import FloatArray, IntArray
from mcnet._shared.user_warnings import warn
from mcnet.calibrators.base import Calibrator
from mcnet.model.model import CalibrationModel
from mcnet.networks.compiled_curves import TrainedFunction
from mcnet.networks.training_points import as_codes
from mcnet.neural.fit_rows import FitRows
from mcnet.neural.line_plot import LinePlot
from mcnet.neural.network_calibrator import NetworkCalibrator

if TYPE_CHECKING:
    from mcnet.networks.auxiliary import AuxiliaryNetwork
    from mcnet.networks.training import RowFunction, RowSchedule

__all__ = ["FeatureTraining", "feature_schedule", "fit_features"]

_HELD_OUT = 0.1
_STEPS_PER_EPOCH = 50


def feature_schedule(rows: int, seed: int) -> "RowSchedule":
    """Return how a network on features is trained: batches of 2048, or fewer where an epoch would have few steps."""
    from mcnet.networks.training import RowSchedule

    batch = min(2048, max(64, rows // _STEPS_PER_EPOCH))
    return RowSchedule(
        epochs=30, batch=batch, rate=1e-3, decay=1e-4, held_out=_HELD_OUT, patience=3, unseen=0.02, seed=seed
    )


@dataclass(frozen=True)
class FeatureTraining:
    """What a training gives: the network on features, F if it was trained too, the rows that judged, the schedule."""

    network: "AuxiliaryNetwork"
    function: TrainedFunction | None
    held: IntArray
    schedule: "RowSchedule"


def fit_features(
    calibrator: Calibrator, rows: FitRows, plain: FloatArray, *, seed: int, device: str, progress: Any
) -> FeatureTraining:
    """Train a network on features, and the calibrator's function beside it where it is a trained one.

    Parameters
    ----------
    calibrator : fitted on the same rows without features.
    plain : its probabilities of the rows.
    """
    from mcnet.networks.auxiliary import fit_with_auxiliary
    from mcnet.networks.joint import FixedFunction
    from mcnet.networks.objective import Penalties

    assert rows.encoding is not None
    assert rows.features is not None
    # A constant has no function, and BayesMCNet and the classical methods are at their optimum: their F stays.
    joint = isinstance(calibrator, NetworkCalibrator) and hasattr(calibrator, "network_")
    codes, sizes = _codes(calibrator.model_, rows)
    schedule = feature_schedule(len(rows), seed)
    if not _enough_to_judge(rows):
        warn(f"{calibrator.method}: too few rows of one class to train a network on features; it adds nothing")
        schedule = replace(schedule, epochs=0)
    function: RowFunction = _row_function(calibrator, codes) if joint else FixedFunction()
    fitted = fit_with_auxiliary(
        function,
        logit(rows.score) if joint else logit(plain),
        rows.label,
        codes,
        sizes,
        rows.features.numbers,
        rows.features.categories,
        rows.encoding.sizes,
        rows.weight,
        penalties=Penalties(
            getattr(calibrator, "beta_order", None),
            getattr(calibrator, "alpha_balance", 0.0),
            getattr(calibrator, "balance", "global"),
        ),
        schedule=schedule,
        progress=progress,
        device=device,
        groups=_groups(rows),
    )
    trained = _with_function(calibrator, function) if joint else None
    return FeatureTraining(fitted.auxiliary, trained, fitted.held, schedule)


def _enough_to_judge(rows: FitRows) -> bool:
    """Tell whether the rows held back may be expected to include some of each class."""
    labels = rows.label if rows.weight is None else rows.label[rows.weight > 0.0]
    rarer = min(float((labels > 0.0).sum()), float((labels < 1.0).sum()))
    return rarer * _HELD_OUT >= 3.0


def _codes(model: CalibrationModel, rows: FitRows) -> tuple[IntArray, tuple[int, ...]]:
    """Return the field codes of the rows as the calibrator's function takes them."""
    codes, sizes = rows.codes(model.contexts)
    return as_codes(codes, len(rows), sizes), sizes


def _groups(rows: FitRows) -> IntArray | None:
    """Return the field values of the rows as numbers, for the balance term."""
    if not rows.fields:
        return None
    columns = [np.unique(column.codes, return_inverse=True)[1] for column in rows.fields]
    return np.column_stack(columns).astype(np.int64)


def _row_function(calibrator: Any, codes: IntArray) -> "RowFunction":
    """Return a copy of the calibrator's function that can be trained on rows."""
    from mcnet.networks.joint import row_function
    from mcnet.networks.line_function import LineFunction

    if isinstance(calibrator.network_, LinePlot):
        return LineFunction(calibrator.network_.knots, calibrator.network_.values)
    return row_function(calibrator.network_, codes)


def _with_function(calibrator: Any, function: Any) -> TrainedFunction:
    """Return the calibrator's function as training has left it."""
    from mcnet.networks.joint import with_function

    if isinstance(calibrator.network_, LinePlot):
        return LinePlot(calibrator.network_.knots, function.values_array())
    trained: TrainedFunction = with_function(calibrator.network_, function)
    return trained
