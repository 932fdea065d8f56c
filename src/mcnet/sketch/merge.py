"""Sums of sketches: of shards, of hours, of machines."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from mcnet._shared.messages import warn
from mcnet.errors import InputError
from mcnet.sketch.grid import Cells
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.views import in_field_order


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
