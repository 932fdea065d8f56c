"""The same rows under other fields: fewer of them, other values, periods instead of moments."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mcnet.data.contexts import Contexts
from mcnet.data.fields import FieldColumn, field_columns
from mcnet.data.periods import cut_to_periods
from mcnet.errors import InputError
from mcnet.sketch.cells import Cells
from mcnet.sketch.sketch import Sketch

if TYPE_CHECKING:
    import polars as pl

__all__ = ["cut_field", "in_field_order", "keep_fields", "rename_values", "require_fields", "value_order_of"]


def keep_fields(sketch: Sketch, names: Sequence[str]) -> Sketch:
    """Return the sketch of the same rows with these fields alone."""
    require_fields(sketch, names)
    columns = [c for c in sketch.contexts.columns(sketch.contexts.all()) if c.name in names]
    columns.sort(key=lambda column: names.index(column.name))
    return _regrouped(sketch, columns)


def in_field_order(sketch: Sketch, names: Sequence[str]) -> Sketch:
    """Return the same rows with the fields in this order; a sketch that has other fields stays as it is."""
    own = sketch.contexts.names
    return keep_fields(sketch, names) if own != tuple(names) and sorted(own) == sorted(names) else sketch


def cut_field(sketch: Sketch, name: str, every: str) -> Sketch:
    """Return the sketch of the same rows with a field of timestamps cut to periods."""
    import polars as pl

    require_fields(sketch, [name])
    moments = sketch.contexts.values[sketch.contexts.names.index(name)]
    return _with_values(sketch, name, cut_to_periods(pl.Series(name, moments, dtype=pl.String), every))


def rename_values(sketch: Sketch, name: str, texts: Mapping[str | None, str | None]) -> Sketch:
    """Return the sketch of the same rows with other values of a field; rows of equal values are added up."""
    import polars as pl

    values = sketch.contexts.values[sketch.contexts.names.index(name)]
    return _with_values(sketch, name, pl.Series(name, [texts.get(v, v) for v in values], dtype=pl.String))


def value_order_of(contexts: Contexts, sketch: Sketch) -> Sketch:
    """Return the same sketch with each field's values in the order of other contexts, new values last."""
    values, table = [], []
    for which, known in enumerate(sketch.contexts.values):
        order = tuple(dict.fromkeys((*contexts.values[which], *known)))
        place = {value: code for code, value in enumerate(order)}
        values.append(order)
        table.append(np.array([place[value] for value in known], dtype=np.int32)[sketch.contexts.table[:, which]])
    stacked = np.column_stack(table) if table else sketch.contexts.table
    return replace(sketch, contexts=Contexts(sketch.contexts.names, tuple(values), stacked))


def require_fields(sketch: Sketch, names: Sequence[str]) -> None:
    """Refuse fields that a sketch does not have."""
    known = sketch.contexts.names
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"the sketch has no field {unknown[0]!r}; it has {', '.join(known) or 'none'}")


def _with_values(sketch: Sketch, name: str, values: "pl.Series") -> Sketch:
    """Return the same rows with the values of one field replaced, one for one."""
    columns = sketch.contexts.columns(sketch.contexts.all())
    place = sketch.contexts.names.index(name)
    columns[place : place + 1] = field_columns({name: values.gather(columns[place].codes)})
    return _regrouped(sketch, columns)


def _regrouped(sketch: Sketch, columns: list[FieldColumn]) -> Sketch:
    """Return the same rows under other fields, given as columns with one entry per context."""
    contexts, order = Contexts.of(columns, len(sketch.contexts))
    cells = Cells(order[sketch.context], sketch.cells.key, sketch.fold, sketch.cells.sums).added_up()
    return replace(sketch, contexts=contexts, cells=cells)
