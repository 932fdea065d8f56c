"""Cells: adding up equal ones, and growing tables that take little memory."""

import tracemalloc

import numpy as np
import pytest

from mcnet.sketch.grid import CellParts, Cells


def make_cells(number, contexts, keys=7, folds=2, seed=0):
    rng = np.random.default_rng(seed)
    weight = rng.integers(0, 3, number).astype(float)
    return Cells(
        rng.integers(0, contexts, number).astype(np.int32),
        rng.integers(-keys, keys, number),
        rng.integers(0, folds, number).astype(np.int16),
        np.column_stack([weight, weight * rng.integers(0, 2, number), weight * rng.integers(0, 9, number)]),
    )


def copied(cells):
    return Cells(cells.context.copy(), cells.key.copy(), cells.fold.copy(), cells.sums.copy())


def plainly_added(cells):
    sums = {}
    for context, key, fold, three in zip(cells.context, cells.key, cells.fold, cells.sums, strict=True):
        place = int(context), int(key), int(fold)
        sums[place] = sums.get(place, 0.0) + three
    return {place: three.tolist() for place, three in sorted(sums.items()) if three[0] > 0.0}


def as_dict(cells):
    places = zip(cells.context.tolist(), cells.key.tolist(), cells.fold.tolist(), strict=True)
    return dict(zip(places, cells.sums.tolist(), strict=True))


@pytest.mark.parametrize(("number", "contexts"), [(1, 1), (300, 2), (300, 60), (300, 5_000)])
def test_equal_cells_are_added_up_in_order_with_or_without_memory_of_their_own(number, contexts):
    cells = make_cells(number, contexts)
    expected = plainly_added(cells)
    found = cells.added_up()
    assert as_dict(found) == expected
    assert list(as_dict(found)) == list(expected)
    assert as_dict(copied(cells).added_up_in_place()) == expected
    parts = CellParts()
    for chosen in np.array_split(np.arange(number), 3):
        parts.add(cells.take(chosen))
    assert len(parts) == number
    parts.add_up()
    assert len(parts) == len(expected)
    assert as_dict(parts.together()) == expected
    assert len(parts) == 0


def test_a_growing_table_is_added_up_within_a_few_columns_more_than_itself():
    number = 200_000
    table_bytes = number * (4 + 8 + 2 + 3 * 8)
    tracemalloc.start()
    try:
        parts = CellParts()
        for seed in range(10):
            parts.add(make_cells(number // 10, 100_000, keys=500, seed=seed))
        tracemalloc.reset_peak()
        found = parts.together().added_up_in_place()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found) > 0.5 * number
    assert peak < table_bytes + 5 * 8 * number  # three of them are the sums, which are not yet touched
