"""Selection: rows held back in turn, the one-standard-error rule, ties, methods that fail, with fields and without."""

import warnings
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mcnet
from mcnet.calibrators.base import Calibrator, warn
from mcnet.curves.curves import Curves
from mcnet.datasets.simulator import simulate
from mcnet.errors import CalibrationWarning, InputError, NotSupportedError
from mcnet.metrics.evaluation import evaluate_cells
from mcnet.metrics.scores import log_loss_difference
from mcnet.sketch.sketch import Sketch


class Fixed(Calibrator):
    """The same probability whatever the rows; tells how many rows each fit had."""

    method = "fixed"
    seen: ClassVar[list] = []

    def __init__(self, *, value=0.3):
        self.value = value

    def _fit_curves(self, sketch):
        self.seen.append(sketch.rows)
        return Curves.constant(self.value, 1)


class Failing(Fixed):
    """Cannot be fitted to more than so many rows."""

    method = "failing"

    def __init__(self, *, most=0):
        self.most = most

    def _fit_curves(self, sketch):
        if sketch.rows > self.most:
            raise NotSupportedError("these rows are too many")
        return Curves.constant(0.3, 1)


class Talkative(Fixed):
    """Warns in every fit."""

    method = "talkative"

    def _fit_curves(self, sketch):
        warn(f"seen {sketch.rows} rows")
        return Curves.constant(0.3, 1)


def rows_of(number=4_000, seed=0, rate=0.2):
    return simulate(number, rate=rate, seed=seed)


def sketch_of(log, *, field=True, **options):
    return Sketch.from_rows(log.score, log.label, field={"field": log.text("field")} if field else None, **options)


@pytest.fixture(scope="module")
def with_field():
    return sketch_of(rows_of())


@pytest.fixture(scope="module")
def without_field(with_field):
    return with_field.pooled()


# --- what is judged --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folds", [1, 2, 3])
def test_every_cell_is_judged_by_a_fit_that_did_not_see_its_fold(folds):
    sketch = sketch_of(rows_of(), folds=folds)
    found = mcnet.select(sketch, methods=["base", "platt", "platt-field"])
    folded = sketch if folds > 1 else sketch.with_folds(5)
    assert found.judged.folds == folded.folds
    assert found.judged_on == f"rows held back in turn, {folded.folds} folds"
    for method in ("platt", "platt-field"):
        slow = np.empty(len(folded))
        for fold in range(folded.folds):
            train, held = folded.fold_parts(fold)
            names = held.contexts.columns(held.context)
            if method == "platt":
                slow[folded.fold == fold] = mcnet.Platt().fit_sketch(train.pooled().unfolded()).predict(held.score)
            else:
                fitted = mcnet.PlattField().fit_sketch(train.unfolded())
                slow[folded.fold == fold] = fitted.predict(held.score, names)
        np.testing.assert_allclose(found[method].probabilities, slow, rtol=1e-9)


def test_the_calibrator_returned_was_fitted_on_all_rows(with_field):
    found = mcnet.select(with_field, methods="mcnet-bayes")
    again = mcnet.BayesMCNet().fit_sketch(with_field)
    grid, field = np.linspace(0.01, 0.9, 50), ["1"] * 50
    np.testing.assert_allclose(found.calibrator.predict(grid, field), again.predict(grid, field), rtol=1e-9)
    assert found.calibrator.model_.provenance["rows"] == with_field.rows


def test_folds_do_not_overlap_and_miss_no_row(without_field):
    Fixed.seen.clear()
    mcnet.select(without_field, methods=Fixed())
    *parts, whole = Fixed.seen
    assert whole == without_field.rows
    assert sum(whole - part for part in parts) == whole


def test_a_test_sketch_is_judged_on_instead(with_field):
    test = sketch_of(rows_of(seed=9))
    Fixed.seen.clear()
    found = mcnet.select(with_field, methods=[Fixed(), "platt"], test=test)
    assert Fixed.seen == [with_field.rows]
    assert found.judged is test
    assert found.judged_on == "the test rows"
    np.testing.assert_array_equal(found["platt"].probabilities, found["platt"].calibrator.predict(test.score))


# --- what is chosen --------------------------------------------------------------------------------------------------


def slow_choice(found, order):
    """The one-standard-error rule in plain words."""
    judged = found.judged
    best = min(found.results, key=lambda result: result.log_loss)
    for method in order:
        gap = log_loss_difference(found[method].probabilities, best.probabilities, judged.rate, judged.weight)
        if gap.value <= gap.standard_error:
            return method
    return None


@settings(max_examples=6)
@given(
    seed=st.integers(0, 1000),
    number=st.sampled_from([200, 2_000]),
    chosen=st.permutations(["base", "isotonic", "platt", "beta"]),
)
def test_the_simplest_within_one_standard_error_is_chosen_in_whatever_order_methods_are_named(seed, number, chosen):
    sketch = sketch_of(rows_of(number, seed), field=False)
    found = mcnet.select(sketch, methods=chosen)
    known = [name for name in mcnet.methods() if name in chosen]
    assert found.chosen.method == slow_choice(found, known)
    losses = [result.log_loss for result in found.results]
    assert losses == sorted(losses)
    assert found.results[0].difference.value == 0.0
    assert all(result.difference.value >= 0.0 for result in found.results)


def test_a_worse_but_simpler_method_is_passed_over_once_rows_tell_them_apart():
    assert mcnet.select(sketch_of(rows_of(100_000)), methods=["base", "mcnet-bayes"]).chosen.method == "mcnet-bayes"


def test_a_tie_goes_to_the_simpler_method_however_it_is_named(without_field):
    tied = mcnet.select(without_field, methods=[Fixed(value=0.2), Fixed(value=0.2)])
    assert tied.chosen.method == "fixed"
    assert tied["fixed (1)"].difference.value == 0.0
    for order in (["platt", "base"], ["base", "platt"]):
        assert mcnet.select(perfect(), methods=order).chosen.method == "base"


def perfect():
    """Rows whose scores are the truth, so that no method can be told from the scores themselves."""
    draw = np.random.default_rng(3)
    scores = draw.uniform(0.05, 0.6, 5_000)
    return Sketch.from_rows(scores, draw.random(5_000) < scores)


def test_calibrators_keep_the_place_of_their_method_and_their_order_within_it(without_field):
    asked = []
    given_methods = [
        mcnet.BayesMCNet(bins=8),
        Fixed(),
        "platt",
        mcnet.BayesMCNet(bins=4),
        mcnet.Histogram(bins=3),
        "base",
    ]
    mcnet.select(without_field, methods=given_methods, progress=asked.append)
    # A method that is in no registry comes last.
    assert asked == ["base", "histogram", "platt", "mcnet-bayes", "mcnet-bayes (4)", "fixed"]
    found = mcnet.select(without_field, methods=[mcnet.BayesMCNet(bins=8), mcnet.BayesMCNet(bins=4)])
    assert found["mcnet-bayes"].calibrator.bins == 8
    assert found["mcnet-bayes (1)"].calibrator.bins == 4


# --- what may be asked -----------------------------------------------------------------------------------------------


def test_one_method_may_be_named_without_a_list(with_field):
    for one in ("platt", mcnet.Platt()):
        found = mcnet.select(with_field, methods=one)
        assert [result.method for result in found.results] == ["platt"]
    asked = mcnet.Platt()
    assert mcnet.select(with_field, methods=asked).calibrator is not asked
    assert not hasattr(asked, "model_")


def test_what_is_no_method_is_refused_by_name(with_field):
    with pytest.raises(InputError, match=r"there is no method 'mcnett' \(did you mean mcnet\?\)"):
        mcnet.select(with_field, methods="mcnett")
    with pytest.raises(InputError, match="methods is empty"):
        mcnet.select(with_field, methods=[])
    with pytest.raises(InputError, match="methods has 3 in it; a method is a name or a calibrator"):
        mcnet.select(with_field, methods=["platt", 3])


def test_all_methods_that_suit_the_rows_are_compared_if_none_is_named(monkeypatch, with_field, without_field):
    known = ["base", "platt", "platt-field", "per-field", "mcnet-bayes"]
    monkeypatch.setattr("mcnet.selection.registered_methods", lambda: known)
    assert {result.method for result in mcnet.select(with_field).results} == set(known)
    plain = mcnet.select(without_field)
    assert {result.method for result in plain.results} == {"base", "platt", "mcnet-bayes"}
    assert plain.failed == {}


def test_a_method_without_use_for_a_field_is_fitted_without_it(with_field, without_field):
    grid = np.linspace(0.01, 0.9, 50)
    alone = mcnet.select(without_field, methods="platt").calibrator.predict(grid)
    np.testing.assert_allclose(mcnet.select(with_field, methods="platt").calibrator.predict(grid), alone, rtol=1e-9)


def test_only_rows_with_fields_are_judged_inside_them(with_field, without_field):
    assert "F-RCE" in str(mcnet.select(with_field, methods=["base", "platt"]))
    assert "F-RCE" not in str(mcnet.select(without_field, methods=["base", "platt"]))


# --- what fails ------------------------------------------------------------------------------------------------------


def test_a_method_that_fails_is_named_with_its_reason_and_the_rest_is_compared(without_field):
    most = without_field.rows - 1
    found = mcnet.select(without_field, methods=["per-field", Failing(), Failing(most=most), "platt"])
    # One fails in the folds, one only on all rows; either way it is no candidate.
    assert set(found.failed) == {"per-field", "failing", "failing (3)"}
    assert found.failed["failing (3)"] == "these rows are too many"
    assert "needs a field" in found.failed["per-field"]
    assert [result.method for result in found.results] == ["platt"]
    with pytest.raises(InputError, match="per-field failed: per-field needs a field"):
        found["per-field"]
    with pytest.raises(InputError, match="'beta' was not compared; compared were platt"):
        found["beta"]
    assert "failing (3) failed: these rows are too many" in str(found)
    assert "failing (3) failed: these rows are too many" in found._repr_html_()


def test_if_all_fail_the_error_has_every_reason(without_field):
    with pytest.raises(InputError, match=r"no method could be fitted: per-field: .*needs a field.*; failing: these"):
        mcnet.select(without_field, methods=["per-field", Failing()])


class Broken(Fixed):
    """Fails with whatever it is given."""

    method = "broken"

    def __init__(self, *, error=ZeroDivisionError):
        self.error = error

    def _fit_curves(self, sketch):
        raise self.error("by nothing")


def test_an_unexpected_error_of_one_method_leaves_the_others(without_field):
    found = mcnet.select(without_field, methods=["platt", Broken()])
    assert found.failed == {"broken": "ZeroDivisionError: by nothing"}
    assert found.chosen.method == "platt"
    assert found.to_dict()["failed"] == found.failed


def test_an_unexpected_error_is_raised_if_no_method_is_left(without_field):
    with pytest.raises(ZeroDivisionError, match="by nothing") as caught:
        mcnet.select(without_field, methods=["per-field", Broken()])
    assert "needs a field" in caught.value.__notes__[0]


def test_an_interrupt_still_interrupts(without_field):
    with pytest.raises(KeyboardInterrupt):
        mcnet.select(without_field, methods=["platt", Broken(error=KeyboardInterrupt)])


def test_a_method_whose_library_is_missing_is_listed_as_failed(monkeypatch, without_field):
    def calibrator(name, make=mcnet.calibrator):
        if name == "beta":
            raise NotSupportedError("beta needs a library that is not installed")
        return make(name)

    monkeypatch.setattr("mcnet.selection.registered_methods", lambda: ["platt", "beta"])
    monkeypatch.setattr("mcnet.selection.calibrator", calibrator)
    found = mcnet.select(without_field)
    assert found.failed == {"beta": "beta needs a library that is not installed"}
    assert found.chosen.method == "platt"


def test_a_warning_that_all_methods_give_is_shown_once():
    sketch = Sketch.from_rows(np.linspace(0.1, 0.9, 50), np.zeros(50))
    with pytest.warns(CalibrationWarning) as caught:
        found = mcnet.select(sketch, methods=["isotonic", "platt", "beta"])
    assert [str(warning.message) for warning in caught] == [
        "every row is negative; the calibrated probability is a constant (3 methods)"
    ]
    assert len(found.results) == 3


def test_other_kinds_of_warnings_pass(without_field):
    class Deprecated(Fixed):
        def _fit_curves(self, sketch):
            warnings.warn("old", DeprecationWarning, stacklevel=1)
            return Curves.constant(0.3, 1)

    with pytest.warns(DeprecationWarning, match="old"):
        mcnet.select(without_field, methods=Deprecated())


# --- rows ------------------------------------------------------------------------------------------------------------


def test_rows_give_what_their_sketch_gives():
    log, test = rows_of(), rows_of(seed=9)
    names = ["base", "platt", "platt-field"]
    by_rows = mcnet.select(
        log.score,
        log.label,
        field={"field": log.text("field")},
        methods=names,
        test=(test.score, test.label, {"field": test.text("field")}),
    )
    by_sketch = mcnet.select(sketch_of(log), methods=names, test=sketch_of(test))
    assert [result.method for result in by_rows.results] == [result.method for result in by_sketch.results]
    for one, other in zip(by_rows.results, by_sketch.results, strict=True):
        assert one.log_loss == pytest.approx(other.log_loss, rel=1e-9)
    alone = mcnet.select(log.score, log.label, methods="platt", test=(test.score, test.label))
    assert alone.chosen.method == "platt"


def test_rows_that_are_not_complete_are_refused(with_field):
    with pytest.raises(InputError, match="scores without labels"):
        mcnet.select([0.1, 0.2])
    with pytest.raises(InputError, match="name the methods to compare with methods="):
        mcnet.select(with_field, ["platt"])
    with pytest.raises(InputError, match="a sketch has its fields"):
        mcnet.select(with_field, field=["a"])
    with pytest.raises(InputError, match="test is a sketch, or a tuple"):
        mcnet.select(with_field, methods="platt", test=[0.1])


def test_full_metrics_are_computed_only_for_what_is_reported(monkeypatch, with_field):
    evaluated = []
    monkeypatch.setattr(
        "mcnet.selection.evaluate_cells",
        lambda p, judged, **how: evaluated.append(p) or evaluate_cells(p, judged, **how),
    )
    found = mcnet.select(with_field, methods=["base", "platt", "isotonic"])
    assert evaluated == []
    assert found.chosen.evaluation.log_loss == pytest.approx(found.chosen.log_loss, rel=1e-12)
    assert len(evaluated) == 1
    assert "The floor is the F-RCE of noise alone" in str(found)
    assert len(evaluated) == 3


def test_only_the_fit_on_all_rows_may_warn(without_field):
    with pytest.warns(CalibrationWarning) as caught:
        mcnet.select(without_field, methods=Talkative())
    assert [str(warning.message) for warning in caught] == [f"seen {without_field.rows} rows"]


def test_the_comparison_is_plain_data(with_field):
    found = mcnet.select(with_field, methods=["platt", "per-field", Failing()])
    said = found.to_dict()
    assert said["chosen"] == found.chosen.method
    assert said["failed"] == {"failing": "these rows are too many"}
    assert [entry["method"] for entry in said["methods"]] == [result.method for result in found.results]
    assert said["methods"][0]["log_loss_difference"] == 0.0


def test_a_field_without_its_name_is_refused():
    with pytest.raises(mcnet.InputError, match=r"by position; name the rest: field=…, weight=…"):
        mcnet.select([0.1, 0.2], [0, 1], ["NL", "FR"])


def test_the_table_is_as_wide_for_slow_fits_and_large_errors():
    rng = np.random.default_rng(0)
    score, country = rng.uniform(0.02, 0.4, 400), rng.choice(["NL", "FR"], 400)
    found = mcnet.select(score, rng.random(400) < score, field={"c": country}, methods=["mcnet-bayes", "platt"])
    slow = [
        replace(r, fit_seconds=1234.5, difference=replace(r.difference, value=0.3, standard_error=0.2))
        for r in found.results
    ]
    wide = replace(found, results=tuple(slow), chosen=next(r for r in slow if r.method == "mcnet-bayes"))
    assert "30000 ± 20000" in str(wide)
    assert "1234" in str(wide)
    assert max(map(len, str(wide).splitlines())) <= 80
