"""Views: the parts of the rows that a reader can choose: all rows, one field value, one context."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.math import sums_by
from mcnet._shared.typing import CodeArray, FloatArray
from mcnet.data.contexts import ANY, Contexts
from mcnet.data.fields import MISSING_LABEL
from mcnet.errors import InputError
from mcnet.sketch.field_views import in_field_order
from mcnet.sketch.sketch import Sketch

__all__ = ["ALL_ROWS", "View", "prepare_views", "unite"]

ALL_ROWS = "All rows"


@dataclass(frozen=True)
class View:
    """A choice of rows: a label, the group of labels it belongs to, and its contexts, the largest first."""

    label: str
    group: str
    contexts: NDArray[np.intp]
    weight: float

    def of(self, cell_contexts: CodeArray, number: int) -> NDArray[np.intp]:
        """Return which cells are in the view, given the context of each and the number of contexts."""
        inside = np.zeros(number, dtype=bool)
        inside[self.contexts] = True
        return np.flatnonzero(inside[cell_contexts])


def unite(sketches: Sequence[Sketch]) -> tuple[Contexts, list[CodeArray]]:
    """Return the contexts of all sketches together, and for each sketch the context of every cell among them."""
    contexts = sketches[0].contexts
    sketches = [in_field_order(sketch, contexts.names) for sketch in sketches]
    places = [contexts.all()]
    for sketch in sketches[1:]:
        if sketch.contexts.names != contexts.names:
            here, there = (", ".join(names) or "none" for names in (contexts.names, sketch.contexts.names))
            raise InputError(f"the sketches have different fields: {here} and {there}; make them alike with only(…)")
        contexts, mine, its = contexts.united(sketch.contexts)
        places = [*(mine[place] for place in places), its]
    return contexts, [place[sketch.context] for place, sketch in zip(places, sketches, strict=True)]


def prepare_views(contexts: Contexts, weight: FloatArray, *, limit: int = 300) -> list[View]:
    """Return all rows first, then the largest field values and contexts, `limit` in all.

    `weight` is the weight of each context; one without weight is not offered.
    """
    largest = np.argsort(-weight, kind="stable")
    largest = largest[weight[largest] > 0.0]
    parts = list(_by_value(contexts, weight, largest))
    if len(contexts.names) > 1:
        name, offered = " × ".join(contexts.names), largest[:limit]
        labels = contexts.subset(offered.astype(np.int32)).labels()
        parts += [
            View(label, name, np.array([context]), float(weight[context]))
            for label, context in zip(labels, offered, strict=True)
        ]
    kept = set(sorted(range(len(parts)), key=lambda place: -parts[place].weight)[:limit])
    whole = View(ALL_ROWS, "", largest, float(weight.sum()))
    return [whole, *(part for place, part in enumerate(parts) if place in kept)]


def _by_value(contexts: Contexts, weight: FloatArray, largest: NDArray[np.intp]) -> Iterable[View]:
    for field, name in enumerate(contexts.names):
        codes = contexts.table[:, field]
        known = codes != ANY
        by_code = sums_by(codes[known].astype(np.intp), weight[known], len(contexts.values[field]))
        members: dict[int, list[int]] = {}
        for context in largest:
            members.setdefault(int(codes[context]), []).append(int(context))
        for code in np.argsort(-by_code, kind="stable").tolist():
            if code in members:
                value = contexts.values[field][code]
                label = MISSING_LABEL if value is None else value
                yield View(label, name, np.array(members[code]), float(by_code[code]))
