"""Split a sketch: by the values of a field, or into what a fit sees and what is held back from it."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mcnet._shared.typing import IntArray
from mcnet.data.fields import MISSING_LABEL, sort_key
from mcnet.sketch.cells import Cells
from mcnet.sketch.field_views import require_fields
from mcnet.sketch.sketch import Sketch

__all__ = ["held_back_parts", "sketches_by"]


def held_back_parts(sketch: Sketch) -> Iterator[tuple[Sketch, Sketch, IntArray]]:
    """Yield, for each fold that has rows, the rows outside it, those inside it, and which cells the latter are."""
    for fold in range(sketch.folds):
        inside = np.flatnonzero(sketch.fold == fold)
        if len(inside):
            train, held = sketch.fold_parts(fold)
            yield train.unfolded(), held, inside


def sketches_by(sketch: Sketch, name: str, wanted: Collection[str] | None = None) -> dict[str, Sketch]:
    """Return one sketch per value of a field (a day, an hour), in order, without that field.

    Scan the time column as one more field, and this splits the sketch by time. `wanted` names the values to return;
    None for all.

    >>> sketch = Sketch.from_rows([0.1, 0.2], [0, 1], field={"country": ["NL", "NL"], "day": ["mon", "tue"]})
    >>> {day: part.total_weight for day, part in sketches_by(sketch, "day").items()}
    {'mon': 1.0, 'tue': 1.0}
    """
    require_fields(sketch, [name])
    place = sketch.contexts.names.index(name)
    codes = sketch.contexts.table[sketch.context, place]
    others = [other for other in sketch.contexts.names if other != name]
    parts, weight, counted = {}, 0.0, 0
    values = sketch.contexts.values[place]
    # Sorted once: thousands of periods must not read all cells each. Stable, so cells keep their order.
    by_code = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[by_code], np.arange(len(values) + 1))
    for code in sorted(range(len(values)), key=_by_number_or_text(values)):
        value, inside = values[code], by_code[ends[code] : ends[code + 1]]
        label = MISSING_LABEL if value is None else value
        if len(inside) and (wanted is None or label in wanted):
            # Contexts that a period lacks go too: only() keeps what its cells use.
            used, renumbered = np.unique(sketch.context[inside], return_inverse=True)
            kept = sketch.cells.take(inside)
            cells = Cells(renumbered.astype(np.int32), kept.key, kept.fold, kept.sums)
            share = float(kept.sums[:, 0].sum()) / sketch.total_weight
            # Nobody knows which part a row belongs to that was left out: each has its share, and all together have all.
            weight += share
            dropped = round(sketch.dropped_rows * weight) - counted
            counted += dropped
            contexts = sketch.contexts.subset(used)
            # Parts of one sketch may be added again, so each is its own source.
            part = replace(
                sketch,
                contexts=contexts,
                cells=cells,
                rows=round(sketch.rows * share),
                known_sources=None,
                dropped_rows=dropped,
            )
            parts[label] = part.only(*others)
    return parts


def _by_number_or_text(values: Sequence[str | None]) -> Callable[[int], Any]:
    """Return the order of periods: by number if all are numbers (9 before 10), else by text; the missing one last."""
    try:
        numbers = [np.inf if value is None else float(value) for value in values]
    except ValueError:
        return lambda code: sort_key(values[code])
    return lambda code: (values[code] is None, numbers[code])
