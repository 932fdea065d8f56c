"""Splits: exact sizes, groups kept whole, time in order."""

import numpy as np
import pytest

from mcnet.datasets.flights import hold_back_groups, hold_back_rows, split_by_time
from mcnet.errors import InputError


def test_a_quarter_of_the_rows_is_held_back_exactly_as_in_the_paper():
    assert int(hold_back_rows(12_157_894).sum()) == 3_039_473


def test_the_same_seed_holds_back_the_same_rows():
    np.testing.assert_array_equal(hold_back_rows(100, seed=1), hold_back_rows(100, seed=1))
    assert not np.array_equal(hold_back_rows(100, seed=1), hold_back_rows(100, seed=2))


def test_a_search_is_never_on_both_sides_and_the_order_of_rows_does_not_matter():
    searches = np.random.default_rng(0).integers(0, 200, 2000)
    held = hold_back_groups(searches, 0.25, seed=3)
    assert not set(searches[held]) & set(searches[~held])
    assert len(set(searches[held])) == len(set(searches)) // 4
    order = np.random.default_rng(1).permutation(2000)
    np.testing.assert_array_equal(hold_back_groups(searches[order], 0.25, seed=3), held[order])


def test_periods_are_numbered_by_their_cuts():
    days = np.array(["2013-01-01", "2013-09-01", "2013-12-31"], dtype="datetime64[D]")
    assert split_by_time(days, np.datetime64("2013-09-01"), np.datetime64("2013-11-01")).tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="not in order"):
        split_by_time(days, 3, 2)


def test_a_share_outside_0_to_1_is_refused():
    with pytest.raises(InputError, match="between 0 and 1"):
        hold_back_rows(10, 1.5)
