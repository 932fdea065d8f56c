"""Continuing from an earlier fit: what a warm start keeps, and what it needs of the next sketch."""

from dataclasses import dataclass
from typing import Any

from mcnet.calibrators.base import Calibrator
from mcnet.data.contexts import Contexts
from mcnet.errors import InputError
from mcnet.sketch.field_views import in_field_order, value_order_of
from mcnet.sketch.sketch import Sketch

__all__ = ["EarlierFit"]


@dataclass(frozen=True)
class EarlierFit:
    """The fit that a warm start continues from."""

    contexts: Contexts
    fit: Any
    """What the calibrator kept of it: a network, or a posterior."""

    @staticmethod
    def of(calibrator: Calibrator, attribute: str) -> "EarlierFit | None":
        """Return the earlier fit of a calibrator, kept in one of its attributes; None where there is none."""
        fit = vars(calibrator).get(attribute)
        return None if fit is None else EarlierFit(calibrator.model_.contexts, fit)

    def aligned(self, sketch: Sketch) -> Sketch:
        """Return the sketch with its fields and their values in the order of the earlier fit, new values last."""
        sketch = in_field_order(sketch, self.contexts.names)
        if self.contexts.names != sketch.contexts.names:
            known, given = ", ".join(self.contexts.names) or "none", ", ".join(sketch.contexts.names) or "none"
            raise InputError(f"a warm start needs the fields of the earlier fit ({known}); this sketch has {given}")
        return value_order_of(self.contexts, sketch)
