"""What the pictures show, against numbers worked out by hand."""

import numpy as np
import pytest
from tests.report.conftest import Case

import mcnet
from mcnet.calibrators.binning import Histogram
from mcnet.calibrators.parametric import Identity, Platt
from mcnet.calibrators.per_field import PlattField
from mcnet.curves.curves import Curves
from mcnet.errors import InputError
from mcnet.metrics.intervals import wilson
from mcnet.model.drawing import lines_of
from mcnet.model.model import CalibrationModel
from mcnet.report.page_figures import (
    drift_of,
    order_of,
    period_sums,
    plot_curves,
    points_of,
    reliability_of,
    score_span,
    unite,
    views_of,
)
from mcnet.rows.contexts import Contexts
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.views import sketches_by


def sketch_of_rows(scores, labels, **more) -> Sketch:
    return Sketch.from_rows(scores, labels, resolution="exact", **more)


def test_points_are_the_rates_of_groups_of_equal_mass():
    # Nine positives allow three groups: a third of the weight each.
    sketch = sketch_of_rows(np.repeat([0.1, 0.2, 0.3], 10), [*[1] + [0] * 9, *[1] * 3 + [0] * 7, *[1] * 5 + [0] * 5])
    points = points_of(sketch, np.arange(len(sketch)))
    np.testing.assert_allclose(points.score, [0.1, 0.2, 0.3])
    np.testing.assert_allclose(points.rate, [0.1, 0.3, 0.5])
    np.testing.assert_allclose(points.weight, [10, 10, 10])
    low, high = wilson(np.array([1.0, 3.0, 5.0]), np.array([10.0, 10.0, 10.0]))
    np.testing.assert_allclose([points.low, points.high], [low, high])


def test_points_merge_neighbouring_cells_at_their_mean_score():
    sketch = sketch_of_rows([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1])
    points = points_of(sketch, np.array([0, 1]), groups=1)
    np.testing.assert_allclose([points.score[0], points.rate[0]], [0.15, 0.5])


def test_reliability_is_of_the_cells_given():
    sketch = sketch_of_rows([0.1, 0.2, 0.3, 0.4], [0, 1, 1, 1])
    table = reliability_of(np.array([0.2, 0.4, 0.6, 0.8]), sketch, np.array([2, 3]), bins=1)
    np.testing.assert_allclose(table.mean_prediction, [0.7])
    np.testing.assert_allclose(table.observed, [1.0])


def test_the_span_of_scores_leaves_out_a_hair_of_weight_on_both_sides():
    scores = np.array([0.5, 0.01, 0.1, 0.99])
    assert score_span(scores, np.array([5000.0, 1.0, 5000.0, 1.0])) == (0.1, 0.5)
    assert score_span(scores, np.ones(4)) == (0.01, 0.99)


def test_lines_are_the_curves_of_the_model():
    sketch = sketch_of_rows([0.1, 0.2, 0.3, 0.4] * 5, [0, 1, 0, 1] * 5, field=["a", "a", "b", "b"] * 5)
    fitted = PlattField().fit_sketch(sketch)
    pooled, second = lines_of(fitted, sketch.contexts.subset(np.array([1])), (0.1, 0.4), pooled=True)
    assert (pooled.label, second.label) == ("pooled", "b")
    assert pooled.low is None
    np.testing.assert_allclose(second.score[[0, -1]], [0.1, 0.4])
    np.testing.assert_array_equal(second.probability, fitted.predict(second.score, ["b"] * len(second.score)))
    np.testing.assert_array_equal(pooled.probability, fitted.predict(pooled.score, ["unseen"] * len(pooled.score)))


class WithBand(PlattField):
    """A calibrator that knows how sure it is."""

    method = "with-band"

    def interval(self, scores, field=None, *, level=0.9, score_type="probability"):
        middle = self.predict(scores, field)
        return 0.5 * middle, 0.5 * middle + 0.5


def test_a_calibrator_with_intervals_gets_bands_around_the_curves_of_contexts():
    sketch = sketch_of_rows([0.1, 0.2, 0.3, 0.4] * 5, [0, 1, 0, 1] * 5, field=["a", "a", "b", "b"] * 5)
    fitted = WithBand().fit_sketch(sketch)
    first = lines_of(fitted, sketch.contexts.subset(np.array([0])), (0.1, 0.4))[0]
    np.testing.assert_array_equal(first.low, 0.5 * first.probability)
    assert len(plot_curves(fitted, sketch, "a").data) == len(plot_curves(fitted, sketch).data) + 1


def test_an_unseen_combination_is_drawn_as_it_is_served():
    rng = np.random.default_rng(0)
    scores, codes = rng.uniform(0.01, 0.2, 4000), rng.integers(0, 3, 4000)
    fields = {"country": np.array(["NL", "NL", "FR"])[codes], "source": np.array(["x", "y", "x"])[codes]}
    fitted = mcnet.BayesMCNet().fit(scores, rng.random(4000) < scores * (1 + codes) / 2, field=fields)
    test = sketch_of_rows([0.1], [0], field={"country": ["FR"], "source": ["y"]})
    line = lines_of(fitted, test.contexts, (0.02, 0.1))[0]
    many = {"country": ["FR"] * len(line.score), "source": ["y"] * len(line.score)}
    np.testing.assert_array_equal(line.probability, fitted.predict(line.score, many))
    assert line.low is not None
    assert (line.low < line.probability).all()


def test_a_sketch_without_rows_of_a_value_cannot_be_shown():
    sketch = sketch_of_rows([0.1, 0.2], [0, 1], field=["a", "b"])
    with pytest.raises(InputError, match="no rows"):
        plot_curves(PlattField().fit_sketch(sketch), sketch, "c")


def test_views_are_all_rows_then_values_and_contexts_by_weight():
    fields = {"country": ["NL", "NL", "FR", "NL"], "source": ["x", "y", "x", None]}
    sketch = sketch_of_rows([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1], field=fields, weight=[5, 1, 3, 2])
    weight = np.bincount(sketch.context, sketch.weight)
    views = views_of(sketch.contexts, weight)
    assert [(view.group, view.label, view.weight) for view in views] == [
        ("", "All rows", 11.0),
        ("country", "NL", 8.0),
        ("country", "FR", 3.0),
        ("source", "x", 8.0),
        ("source", "(missing)", 2.0),
        ("source", "y", 1.0),
        ("country × source", "NL / x", 5.0),
        ("country × source", "FR / x", 3.0),
        ("country × source", "NL / (missing)", 2.0),
        ("country × source", "NL / y", 1.0),
    ]
    cells = views[1].of(sketch.context, len(sketch.contexts))
    assert sketch.weight[cells].sum() == 8.0
    assert [view.label for view in views_of(sketch.contexts, weight, limit=2)] == ["All rows", "NL", "x"]


def test_sketches_are_united_by_value_not_by_place():
    one = sketch_of_rows([0.1, 0.2], [0, 1], field=["b", "c"])
    other = sketch_of_rows([0.1, 0.2], [0, 1], field=["a", "c"])
    contexts, (first, second) = unite([one, other])
    assert [contexts.labels()[place] for place in first] == ["b", "c"]
    assert [contexts.labels()[place] for place in second] == ["a", "c"]


def test_a_monotone_calibrator_keeps_the_order():
    sketch = sketch_of_rows([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1])
    order = order_of(Platt().fit_sketch(sketch), sketch)
    assert order.kept
    assert (order.curves, order.falling, order.largest_drop, order.share_below) == (1, 0, 0.0, 0.0)


def test_a_fall_is_measured_and_the_rows_below_are_counted():
    # Rates 1/2, 1/4, 3/4 of three bins: the middle one, a quarter of the rows, lies below the first.
    scores = np.repeat([0.1, 0.2, 0.3], [4, 4, 8])
    labels = [1, 1, 0, 0, 1, 0, 0, 0, *[1] * 6, 0, 0]
    sketch = sketch_of_rows(scores, labels)
    values = np.array([0.5, 0.5, 0.25, 0.25, 0.75, 0.75])
    curve = (np.array([0.05, 0.15, 0.15, 0.25, 0.25, 0.35]), values)
    model = CalibrationModel("steps", {}, Contexts.none(), Curves.of([curve]), monotone=False)
    order = order_of(model, sketch)
    assert (order.curves, order.falling, order.largest_drop, order.share_below) == (1, 1, 0.25, 0.25)


def test_the_violations_a_calibrator_reports_are_passed_on():
    sketch = sketch_of_rows([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1])
    fitted = Histogram(bins=2).fit_sketch(sketch)
    fitted.order_violations_ = 0.25
    assert order_of(fitted, sketch).reported == 0.25


def test_drift_is_the_pcoc_of_each_period():
    # Predicted 4 × 0.2 against 1, then 4 × 0.2 against 2.
    fields = {"day": ["mon"] * 4 + ["tue"] * 4}
    sketch = sketch_of_rows([0.2] * 8, [1, 0, 0, 0, 1, 1, 0, 0], field=fields)
    periods = sketches_by(sketch, "day")
    everywhere = [np.zeros(len(part), dtype=np.int32) for part in periods.values()]
    drift = drift_of(period_sums(Identity().fit_sketch(sketch.pooled()), periods, everywhere, 1))
    assert drift.periods == ("mon", "tue")
    np.testing.assert_allclose(drift.pcoc, [[0.8, 0.4], [0.8, 0.4]], rtol=1e-9)
    assert (drift.low < drift.pcoc).all()
    assert (drift.high > drift.pcoc).all()
    np.testing.assert_array_equal(drift.weight, [4, 4])


def test_sketches_by_period_add_up_to_the_whole(case: Case):
    total = Sketch.merged(list(case.periods.values()))
    assert total == case.sketch
    assert sum(part.rows for part in case.periods.values()) == case.sketch.rows
    with pytest.raises(InputError, match="no field 'week'"):
        sketches_by(case.sketch, "week")


def test_periods_that_are_numbers_come_in_their_order():
    hours = ["10", "9", None, "-1", "100"]
    sketch = Sketch.from_rows([0.1, 0.2, 0.3, 0.4, 0.5], [0, 1, 0, 1, 0], field={"hour": hours})
    assert list(sketches_by(sketch, "hour")) == ["-1", "9", "10", "100", "(missing)"]
