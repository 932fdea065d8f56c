"""Sketches from sketches: sums, fields and values in another order, parts of the rows, bins of equal mass."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray, IntArray, sums_by
from mcnet._shared.messages import warn
from mcnet.errors import InputError
from mcnet.rows.contexts import Contexts
from mcnet.rows.fields import MISSING_LABEL, sort_key
from mcnet.sketch.grid import Cells
from mcnet.sketch.sketch import Sketch

# Equal-mass bins over the cells of a sketch.


def equal_mass_cuts(numbers: NDArray[Any], weight: FloatArray, bins: int) -> NDArray[np.intp]:
    """Return after which of the distinct values to cut, for at most `bins` parts of (nearly) equal weight, none empty.

    `numbers` has the number of each entry's value, from 0, all of which occur.

    >>> equal_mass_cuts(np.array([0, 1, 2, 3]), np.ones(4), 2)
    array([1])
    """
    mass = np.cumsum(sums_by(numbers, weight, int(numbers.max()) + 1))
    wanted = mass[-1] * np.arange(1, bins) / bins
    # A tiny slack: the cut belongs after the value whose mass reaches the target, rounding or not.
    last = np.unique(np.searchsorted(mass, wanted * (1.0 - 1e-12)))
    return last[last < len(mass) - 1]


def equal_mass_edges(sketch: Sketch, bins: int) -> FloatArray:
    """Return the interior edges that cut the rows into `bins` parts of (nearly) equal weight.

    Rows of one cell are never parted, so there may be fewer bins than asked; no bin is empty. An edge lies midway
    between the cells it parts.
    """
    keys, inverse = np.unique(sketch.cells.key, return_inverse=True)
    last = equal_mass_cuts(inverse, sketch.weight, bins)
    below, above = sketch.grid.upper(keys[last]), sketch.grid.lower(keys[last + 1])
    middle = 0.5 * (below + above)
    # Between neighbouring floats the middle may round to the lower one, which belongs left of the edge.
    return np.where(middle > below, middle, above)


def bin_of(scores: FloatArray, edges: FloatArray) -> NDArray[np.intp]:
    """Return the bin of each score: bins are half-open [edge, next edge)."""
    return np.searchsorted(edges, scores, side="right")


# The same rows with fields or values in another order.


def in_field_order(sketch: Sketch, names: Sequence[str]) -> Sketch:
    """Return the same rows with the fields in this order; a sketch that has other fields stays as it is."""
    own = sketch.contexts.names
    return sketch.only(*names) if own != tuple(names) and sorted(own) == sorted(names) else sketch


def value_order_of(contexts: Contexts, sketch: Sketch) -> Sketch:
    """Return the same sketch with each field's values in the order of other contexts, new values last."""
    values, table = [], []
    for which, known in enumerate(sketch.contexts.values):
        order = tuple(dict.fromkeys((*contexts.values[which], *known)))
        index = {value: code for code, value in enumerate(order)}
        values.append(order)
        table.append(np.array([index[value] for value in known], dtype=np.int32)[sketch.contexts.table[:, which]])
    stacked = np.column_stack(table) if table else sketch.contexts.table
    return replace(sketch, contexts=replace(sketch.contexts, values=tuple(values), table=stacked))


# Split a sketch: by the values of a field, or into what a fit sees and what is held back from it.


def held_back_parts(sketch: Sketch) -> Iterator[tuple[Sketch, Sketch, IntArray]]:
    """Yield, for each fold that has rows, the rows outside it, those inside it, and which cells the latter are."""
    for fold in range(sketch.folds):
        inside = np.flatnonzero(sketch.fold == fold)
        if len(inside):
            train, held = sketch.fold_parts(fold)
            yield train.unfolded(), held, inside


def sketches_by(sketch: Sketch, name: str) -> dict[str, Sketch]:
    """Return one sketch per value of a field (a day, an hour), in order, without that field.

    Scan the time column as one more field, and this splits the sketch by time.

    >>> sketch = Sketch.from_rows([0.1, 0.2], [0, 1], field={"country": ["NL", "NL"], "day": ["mon", "tue"]})
    >>> {day: part.total_weight for day, part in sketches_by(sketch, "day").items()}
    {'mon': 1.0, 'tue': 1.0}
    """
    index = sketch.contexts.index_of_field(name)
    codes = sketch.contexts.table[sketch.context, index]
    others = [other for other in sketch.contexts.names if other != name]
    parts, weight, counted, total = {}, 0.0, 0, float(sketch.cells.sums[:, 0].sum())
    values = sketch.contexts.values[index]
    # Sorted once: thousands of periods must not read all cells each. Stable, so cells keep their order.
    by_code = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[by_code], np.arange(len(values) + 1))
    for code in sorted(range(len(values)), key=_by_number_or_text(values)):
        value, inside = values[code], by_code[ends[code] : ends[code + 1]]
        label = MISSING_LABEL if value is None else value
        if len(inside):
            # Contexts that a period lacks go too: only() keeps what its cells use.
            used, renumbered = np.unique(sketch.context[inside], return_inverse=True)
            kept = sketch.cells.take(inside)
            cells = Cells(renumbered.astype(np.int32), kept.key, kept.fold, kept.sums)
            share = float(kept.sums[:, 0].sum()) / total
            # Nobody knows which part a row belongs to that was left out: each has its share, and all together have all.
            weight += share
            dropped = round(sketch.dropped_rows * weight) - counted
            counted += dropped
            part = sketch.part(cells, contexts=sketch.contexts.subset(used), dropped_rows=dropped)
            parts[label] = part.only(*others)
    return parts


def _by_number_or_text(values: Sequence[str | None]) -> Callable[[int], Any]:
    """Return the order of periods: by number if all are numbers (9 before 10), else by text; the missing one last."""
    try:
        numbers = [np.inf if value is None else float(value) for value in values]
    except ValueError:
        return lambda code: sort_key(values[code])
    return lambda code: (values[code] is None, numbers[code])


# Sums of sketches: of shards, of hours, of machines.


def sum_of_sketches(sketches: Sequence[Sketch]) -> Sketch:
    """Return the sum of one or more sketches; see `Sketch.merged`."""
    if not sketches:
        raise InputError("there is no sketch to merge; give at least one")
    if len(sketches) > 1:
        counts = Counter(source for sketch in sketches for source in sketch.sources)
        repeated = sum(count > 1 for count in counts.values())
        if repeated:
            which = f"{repeated:,} of the {len(counts):,} sources of these sketches are"
            which = which if len(counts) > 1 else "the source of these sketches is"
            warn(f"{which} in more than one of them: rows count more than once")
    parts = list(sketches)
    if len({sketch.value_kind for sketch in parts}) > 1:
        warn("the sum of these sketches has no values: one has none, or knows them of positives alone")
        parts = [sketch.without_values() for sketch in parts]
    while len(parts) > 1:  # neighbours first: one after the other, thousands of them would take the square of the time
        left = parts[-1:] if len(parts) % 2 else []
        parts = [*(_sum(one, other) for one, other in zip(parts[::2], parts[1::2], strict=False)), *left]
    return parts[0]


def _sum(one: Sketch, other: Sketch) -> Sketch:
    other = in_field_order(other, one.contexts.names)
    for what, here, there in (
        ("resolution", one.resolution, other.resolution),
        ("fields", one.contexts.names, other.contexts.names),
        ("folds", one.folds, other.folds),
        ("score type", one.score_type, other.score_type),
    ):
        if here != there:
            raise InputError(f"sketches of different {what} do not add up: {here} and {there}; make both alike")
    if (one.weight_squares is None) != (other.weight_squares is None):
        raise InputError(
            "a sketch whose rows are weighted by propensity and one without do not add up: make both with propensity; "
            "rows that are always logged have 1"
        )
    contexts, first, second = one.contexts.united(other.contexts)
    both = Cells.concatenate(
        Cells(first[one.context], one.cells.key, one.fold, one.cells.sums),
        Cells(second[other.context], other.cells.key, other.fold, other.cells.sums),
    )
    return replace(
        one,
        contexts=contexts,
        cells=both.added_up(),
        rows=one.rows + other.rows,
        dropped_rows=one.dropped_rows + other.dropped_rows,
        columns={name: column for name, column in one.columns.items() if other.columns.get(name) == column},
        negatives_kept=one.negatives_kept if one.negatives_kept == other.negatives_kept else None,
        known_sources=tuple(dict.fromkeys((*one.sources, *other.sources))),
        weight_squares=None if one.weight_squares is None else one.weight_squares + (other.weight_squares or 0.0),
    )
