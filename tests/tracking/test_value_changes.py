"""The run-length filters of field values: probabilities, the common level, and their file."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from mcnet.rows.contexts import Contexts
from mcnet.tracking.tracker_file import Reader, Writer
from mcnet.tracking.value_changes import FOLLOWED, Runs, ValueChanges, ValueOffsets, twins_of

VALUES = tuple(f"v{code}" for code in range(6))
CONTEXTS = Contexts(("field",), (VALUES,), np.arange(6, dtype=np.int32)[:, None])


def learnt(changes, period, offset, rows=2000.0, step=1.0, present=6):
    """Learn one period in which each value has exactly the positives that its offset expects; one cell per value."""
    cells = np.arange(present)
    logit = np.full(present, -2.0)
    weight = np.full(present, rows)
    positives = weight * expit(logit + np.broadcast_to(offset, 6)[:present])
    return changes.learnt(
        CONTEXTS, cells, weight, positives, np.tile(logit, (len(FOLLOWED), 1)), period=str(period), step=step
    )


def offsets(changes):
    return changes.offsets().of_contexts(CONTEXTS)[0][:, 0]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.floats(-4.0, 4.0), min_size=6, max_size=6), min_size=1, max_size=5), st.floats(0.1, 1e6))
def test_whatever_comes_the_weights_are_probabilities_and_offsets_finite(periods, rows):
    changes = ValueChanges()
    for period, offset in enumerate(periods):
        changes = learnt(changes, period, offset, rows)
        (runs,) = changes.runs
        np.testing.assert_allclose(runs.weight.sum(axis=2), 1.0, atol=1e-5)
        assert (runs.weight >= 0.0).all()
        assert (runs.variance >= 0.0).all()
        assert np.abs(offsets(changes)).max() < 9.0
    assert 0.0 < changes.hazard <= 0.05


@pytest.mark.parametrize("level", [-1.0, 1.0])
def test_what_all_values_share_is_nobody_s_own(level):
    changes = ValueChanges()
    for period in range(6):
        changes = learnt(changes, period, level if period >= 3 else 0.0)
    assert np.abs(offsets(changes)).max() < 0.01
    assert changes.since == {}


def test_a_value_that_changes_is_found_with_its_period_and_returns():
    changes, still, apart = ValueChanges(), np.zeros(6), np.array([-0.8, 0.0, 0.0, 0.0, 0.0, 0.0])
    for period in range(10):
        changes = learnt(changes, period, apart if period >= 5 else still)
    assert changes.since == {"field=v0": "5"}
    assert offsets(changes)[0] == pytest.approx(-0.8, abs=0.1)
    assert np.abs(offsets(changes)[1:]).max() < 0.02
    for period in range(10, 13):
        changes = learnt(changes, period, still)
    assert changes.since == {}
    assert abs(offsets(changes)[0]) < 0.05


def test_what_a_candidate_has_learnt_of_a_change_is_taken_off_the_offset():
    changes, apart = ValueChanges(), np.array([-0.8, 0.0, 0.0, 0.0, 0.0, 0.0])
    for period in range(8):
        changes = learnt(changes, period, apart if period >= 4 else 0.0)
    movement = np.tile([-0.3, *[0.0] * 5], (len(FOLLOWED), 1))
    cells = CONTEXTS, np.arange(6), np.full(6, 2000.0)
    rebased = changes.rebased(*cells, movement)
    np.testing.assert_allclose(offsets(rebased) - offsets(changes), [0.3, *[0.0] * 5], atol=0.01)
    common = changes.rebased(*cells, movement + 0.2)  # which is nobody's own
    np.testing.assert_allclose(offsets(common), offsets(rebased), atol=1e-6)


def test_of_nested_values_only_the_one_that_took_the_change_is_rebased():
    nested = Contexts(("region", "city"), (("UT", "other"), VALUES), np.array([[int(c > 0), c] for c in range(6)]))
    changes, logit, weight = ValueChanges(), np.full(6, -2.0), np.full(6, 2000.0)
    for period in range(8):
        positives = weight * expit(logit - 0.8 * (np.arange(6) == 0) * (period >= 4))
        changes = changes.learnt(
            nested, np.arange(6), weight, positives, np.tile(logit, (len(FOLLOWED), 1)), str(period), 1.0
        )
    rebased = changes.rebased(nested, np.arange(6), weight, np.tile([-0.3, *[0.0] * 5], (len(FOLLOWED), 1)))
    (before, _), (after, _) = (one.offsets().of_contexts(nested) for one in (changes, rebased))
    np.testing.assert_allclose((after - before)[:, 0], [0.3, *[0.0] * 5], atol=0.02)


def test_a_value_without_rows_keeps_its_offset():
    changes, apart = ValueChanges(), np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.8])
    for period in range(8):
        changes = learnt(changes, period, apart if period >= 3 else 0.0)
    before = offsets(changes)[5]
    after = learnt(changes, 8, 0.0, rows=1.0, step=0.001, present=5)
    assert offsets(after)[5] == pytest.approx(before, rel=0.01)


def test_how_often_values_change_is_learnt_from_all_of_them():
    rng, busy, still = np.random.default_rng(0), ValueChanges(), ValueChanges()
    offset = np.zeros(6)
    for period in range(60):
        offset = np.where(rng.random(6) < 0.05, rng.normal(0.0, 1.0, 6), offset)
        busy, still = learnt(busy, period, offset), learnt(still, period, np.zeros(6))
    assert busy.hazard > 1.5 * still.hazard
    assert busy.deviation > still.deviation


def test_a_file_has_the_filters_to_the_bit():
    changes = ValueChanges()
    for period in range(5):
        changes = learnt(changes, period, np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0]) * (period > 2))
    written = json.loads(json.dumps(Writer().written([changes, changes.offsets(), changes])))
    restored, same, again = Reader(NotImplemented).read(written)
    assert restored is again
    assert restored.values[0] is same.values[0]
    np.testing.assert_array_equal(offsets(restored), offsets(changes))
    assert (restored.since, restored.hazard, restored.effect) == (changes.since, changes.hazard, changes.effect)
    np.testing.assert_array_equal(same.of_contexts(CONTEXTS), changes.offsets().of_contexts(CONTEXTS))


def test_values_that_are_not_known_have_the_offset_of_all_rows():
    other = Contexts(("field",), (("new", "v0"),), np.array([[0], [1], [-1]], dtype=np.int32))
    changes = ValueChanges()
    for period in range(5):
        changes = learnt(changes, period, np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0]) * (period > 1))
    found = changes.offsets()
    mean, variance = found.of_contexts(other)
    assert mean[0].tolist() == mean[2].tolist() == found.of_all_rows.tolist()
    assert mean[1][0] > 0.5
    assert mean[0][0] == pytest.approx(mean[1][0] / 6.0, abs=0.01)
    assert variance[0].tolist() == variance[2].tolist(), "it may have moved as far as the known ones"
    assert variance[0][0] > 5.0 / 6.0**2 * 0.9 > 10.0 * variance[1][0]
    assert not ValueOffsets().of_contexts(CONTEXTS)[0].any()


def test_the_offsets_of_each_of_several_fields_sum_to_zero_over_its_rows():
    table = np.array([[a, b] for a in range(6) for b in range(2)], dtype=np.int32)
    both = Contexts(("field", "device"), (VALUES, ("phone", "desk")), table)
    changes, logit, weight = ValueChanges(), np.full(12, -2.0), np.linspace(500.0, 3000.0, 12)
    for period in range(8):
        positives = weight * expit(logit - 0.8 * (table[:, 0] == 0) * (period >= 4))
        cells = both, np.arange(12), weight, positives
        changes = changes.learnt(*cells, np.tile(logit, (len(FOLLOWED), 1)), str(period), 1.0)
    found = changes.offsets()
    for number, mean in enumerate(found.means):
        rows = np.bincount(table[:, number], weights=weight)
        np.testing.assert_allclose(mean @ rows, 0.0, atol=1e-6 * rows.sum())
    np.testing.assert_allclose(found.of_contexts(both)[0][:, 0], -0.8 * (table[:, 0] == 0), atol=0.1)


def test_of_values_that_always_occur_together_the_coarser_field_takes_the_change_alone():
    table = np.array([[0, 0], *([1 + city % 2, city] for city in range(1, 6))], dtype=np.int32)
    nested = Contexts(("region", "city"), (("UT", "a", "b"), VALUES), table)
    assert twins_of(nested, 1, 0).tolist() == [0, -1, -1, -1, -1, -1]
    assert twins_of(nested, 0, 1).tolist() == [0, -1, -1]
    changes, logit, weight = ValueChanges(), np.full(6, -2.0), np.full(6, 400.0)
    for period in range(8):
        positives = weight * expit(logit - 0.5 * (np.arange(6) == 0) * (period >= 4))
        cells = nested, np.arange(6), weight, positives
        changes = changes.learnt(*cells, np.tile(logit, (len(FOLLOWED), 1)), str(period), 1.0)
    region, city = (runs.means()[0] for runs in changes.runs)
    assert region[0] < -0.3
    assert city[0] == 0.0
    assert set(changes.since) == {"region=UT"}


def test_the_variance_of_a_change_that_is_not_confirmed_is_about_what_is_served():
    runs = Runs.still(len(FOLLOWED), 1)
    weight, mean, variance = (array.copy() for array in (runs.weight, runs.mean, runs.variance))
    weight[:, 0, :2], mean[:, 0, 1], variance[:, 0, 1] = [0.0, 1.0], 0.6, 0.01
    offset, spread = Runs(weight, mean, variance).served()
    np.testing.assert_allclose(offset, 0.3, rtol=1e-6)
    np.testing.assert_allclose(spread, 0.01 + 0.3**2, rtol=1e-5)


def test_a_doubtful_change_is_served_less_than_its_mean_and_a_certain_one_in_full():
    runs = Runs.still(len(FOLLOWED), 2)
    weight, mean, variance = (array.copy() for array in (runs.weight, runs.mean, runs.variance))
    weight[:, 0, [0, 3]], weight[:, 1, [0, 3]], mean[:, :, 3] = [0.8, 0.2], [0.0, 1.0], 0.5
    found = Runs(weight, mean, variance)
    np.testing.assert_allclose(found.means()[0], [0.1, 0.5], rtol=1e-6)
    np.testing.assert_allclose(found.served()[0][0], [0.02, 0.5], rtol=1e-6)
