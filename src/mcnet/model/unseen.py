"""Rows whose field values a model has not seen in its fit: how many there are, by field and altogether."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mcnet._shared.math import sums_by
from mcnet._shared.typing import FloatArray
from mcnet.data.contexts import ANY
from mcnet.data.fields import FieldColumn, field_columns
from mcnet.model.model import CalibrationModel

if TYPE_CHECKING:
    from mcnet.sketch.sketch import Sketch

__all__ = ["UnseenValues"]


class UnseenValues:
    """Counts rows, and those among them with a value that the model has not seen.

    Attributes
    ----------
    total : the rows counted, or their weight.
    unseen : those of them with an unseen value in at least one field.
    by_field : the same for each field of the model.
    """

    def __init__(self, model: CalibrationModel) -> None:
        """Count nothing yet."""
        self._contexts = model.contexts
        self.total = 0.0
        self.unseen = 0.0
        self.by_field = dict.fromkeys(model.fields, 0.0)

    @staticmethod
    def of_sketch(model: CalibrationModel, sketch: "Sketch") -> "UnseenValues":
        """Return the counts of the rows behind a sketch, by their weight."""
        counts = UnseenValues(model)
        columns = {column.name: column for column in sketch.contexts.columns(sketch.contexts.all())}
        weight = sums_by(sketch.context, sketch.weight, len(sketch.contexts))
        counts.add([columns[name] for name in model.fields], weight)
        return counts

    @property
    def share(self) -> float:
        """Return the share of rows with an unseen value, from 0 to 1."""
        return self.unseen / self.total if self.total else 0.0

    def add(self, field: Any, weight: FloatArray) -> None:
        """Count rows, given by their fields (as in `predict`) and their weights."""
        self.total += float(weight.sum())
        columns: Sequence[FieldColumn] = field_columns(field) if self.by_field else []
        if not columns:
            return
        unknown = self._contexts.field_codes(columns) == ANY
        if not unknown.any():
            return
        self.unseen += float(weight[unknown.any(axis=1)].sum())
        for place, name in enumerate(self.by_field):
            self.by_field[name] += float(weight[unknown[:, place]].sum())

    def to_dict(self) -> dict[str, Any]:
        """Return the share of rows with unseen values, altogether and by field."""
        total = self.total or 1.0
        return {"share": self.share, "by_field": {name: part / total for name, part in self.by_field.items()}}
