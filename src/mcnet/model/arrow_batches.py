"""What an executor of Spark runs: a packed model applied to batches of Arrow columns.

The module imports little, since every Python process of every executor imports it.
"""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np

from mcnet._shared.typing import FloatArray, ScoreType
from mcnet.model.model import CalibrationModel

__all__ = ["calibrated_batch", "packed_model", "unpacked_model"]

_MODELS_KEPT = 4
"""How many models a Python process of an executor keeps, so that its next task need not unpack them again."""

_unpacked: dict[bytes, CalibrationModel] = {}


def packed_model(model: CalibrationModel) -> bytes:
    """Return a model as it travels to executors.

    Its curves go as they are: executors with another processor might compile them to other last digits.
    """
    return pickle.dumps(replace(model, provenance={}), protocol=5)


def unpacked_model(digest: bytes, packed: bytes) -> CalibrationModel:
    """Return the model of a digest, from those that this process has already if it is one of them."""
    found = _unpacked.get(digest)
    if found is None:
        while len(_unpacked) >= _MODELS_KEPT:
            _unpacked.pop(next(iter(_unpacked)))
        found = _unpacked[digest] = pickle.loads(packed)
    return found


def calibrated_batch(
    model: CalibrationModel, scores: Any, fields: dict[str, Any], score_type: ScoreType, interval: float | None
) -> Any:
    """Return the calibrated probabilities of one batch of Arrow columns; a missing score stays missing.

    With an interval they are structs of the probability (`served`) and its bounds (`low`, `high`).
    """
    import pyarrow as pa

    missing = scores.is_null().to_numpy(zero_copy_only=False) if scores.null_count else None
    numbers = np.asarray(scores.fill_null(0.5) if missing is not None else scores, dtype=np.float64)
    columns = fields or None
    made = [model.predict(numbers, columns, score_type=score_type)]
    if interval is None:
        return _arrow(made[0], missing)
    made += model.interval(numbers, columns, interval, score_type=score_type)
    return pa.StructArray.from_arrays([_arrow(part, missing) for part in made], names=["served", "low", "high"])


def _arrow(numbers: FloatArray, missing: Any) -> Any:
    import pyarrow as pa

    return pa.array(numbers, mask=missing, type=pa.float64())
