"""What a fit gives, and its parts that every method shares: a constant rate, parameters as plain values."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mcnet.curves.curves import Curves
from mcnet.curves.family import CurveFamily
from mcnet.data.contexts import Contexts
from mcnet.model.intervals import Uncertainty
from mcnet.sketch.sketch import Sketch

__all__ = ["Fitted", "constant_rate", "plain_value"]


@dataclass(frozen=True)
class Fitted:
    """What a fit gives: the parts of the model that only the method knows."""

    curves: Curves
    contexts: Contexts | None = None
    """The contexts of the curves; None for those of the sketch."""
    family: CurveFamily | None = None
    uncertainty: Uncertainty | None = None
    isotonic_share: float = 0.0
    balanced_by: tuple[str, ...] = ()
    """Fields that only weighed in the balance term."""
    history: dict[str, Any] = field(default_factory=dict)
    """What the method adds to the history of the model."""


def constant_rate(sketch: Sketch) -> float:
    """Return the rate of all rows; (positives + ½) / (weight + 1) when only one class is there."""
    weight, positives = sketch.total_weight, sketch.total_positives
    if 0.0 < positives < weight:
        return positives / weight
    return (positives + 0.5) / (weight + 1.0)


def plain_value(value: Any) -> Any:
    """Return a constructor argument as a JSON-able value."""
    if isinstance(value, np.generic):
        return plain_value(value.item())
    if hasattr(value, "_plain_parameters"):  # a calibrator inside another
        return {"method": value.method, **value._plain_parameters()}
    if isinstance(value, list | tuple):
        return [plain_value(entry) for entry in value]
    if isinstance(value, dict):
        return {str(name): plain_value(entry) for name, entry in value.items()}
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)  # JSON has no infinity
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
