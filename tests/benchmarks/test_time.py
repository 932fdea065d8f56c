"""Small forms of the benchmarks of worlds that move in parts, and of broken hours in the loop."""

import numpy as np
import pytest

from benchmarks import report, time_parts, time_poison


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setattr(report, "KEPT", tmp_path)
    for part, sizes in (
        (time_parts, {"PERIODS": 16, "CHANGE": 10, "ROWS": 4_000, "HALF_LIVES": (np.inf,)}),
        (time_poison, {"BROKEN_AT": 12, "ROWS": 4_000, "AFTER": 3}),
    ):
        for name, size in sizes.items():
            monkeypatch.setattr(part, name, size)


def test_of_a_value_that_drops_the_others_know_nothing(small):
    found = time_parts.run("one value drops by 0.6", 100)
    error = {label: np.abs(found[label][-1]) for label in ("tracker", "as one")}  # six periods after
    assert error["tracker"][0] < 0.6 * error["as one"][0]
    assert time_parts.rms(found["tracker"][:, 1:]) < 1.1 * time_parts.rms(found["as one"][:, 1:])


def test_few_rows_after_a_gap_move_nothing_far_and_many_do_as_without_it(small):
    found = time_parts.after_gaps(100)
    for gap in (23, 100):
        assert found[gap, 3][0] < 0.05
        assert found[gap, 200][0] < 0.25
        assert found[gap, 2_000][1] == pytest.approx(found[0, 2_000][1], rel=0.2)


def test_after_a_broken_hour_the_loop_serves_what_it_would_have_served(small):
    for name, off in time_poison.poisoned(0, ["labels shuffled", "none positive, two hours"]).items():
        assert max(off) < 0.08, name  # a twelfth of all rows is missing


def test_a_common_drop_is_published_by_the_third_hour_and_is_as_right_as_can_be(small):
    ours, best, shrinking = time_poison.changed(2, ["all values -0.6"])["all values -0.6"]
    assert ours[0] > 0.5
    assert ours[2] < 0.1 + best[2]
    assert 0.0 < abs(shrinking[2] - best[2]) < 0.1
