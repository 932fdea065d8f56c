"""What every method in the registry keeps, whoever wrote it: a new method is tested by being registered."""

import json
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone

import mcnet
from mcnet._shared.arrays import SCORE_FLOOR
from mcnet._shared.messages import has_extra
from mcnet.calibrators.methods import calibrator_class
from mcnet.datasets.simulator import SimulatedField, simulate

# Slow methods say here with which parameters they are still themselves, but quick.
SMALL_SETTINGS = {
    "adacalib": {"candidates": (2, 4), "steps": 60},
    "mcnet": {"bins": 2, "hidden": (8, 8), "embedding": 4},
}

NAMES = mcnet.methods()
METHODS = [
    pytest.param(name, marks=pytest.mark.networks) if calibrator_class(name).extra == "networks" else name
    for name in NAMES
]
ROWS = 3_000


def make(name):
    return mcnet.calibrator(name, **SMALL_SETTINGS.get(name, {}))


def available(name):
    return calibrator_class(name).extra is None or has_extra("networks")


def uses_field(name):
    return make(name).field_use != "none"


def fields_of(name, field):
    return {"field": field} if uses_field(name) else {}


@pytest.fixture(scope="module")
def log():
    spec = SimulatedField(shares=(0.6, 0.3, 0.1), names=("NL", "FR", "ES"))
    return simulate(ROWS, fields={"country": spec}, rate=0.2, seed=11)


@pytest.fixture(scope="module")
def fitted(log):
    """Every method fitted once on the same rows."""
    return {
        name: make(name).fit(log.score, log.label, **fields_of(name, log.text("country")))
        for name in NAMES
        if available(name)
    }


def predictions(calibrator, name, scores, value="NL"):
    return calibrator.predict(scores, **fields_of(name, [value] * len(scores)))


def same_curves(one, other, rtol=1e-6):
    """Compare two fits, which go through BLAS and so agree up to rounding, whatever equal sketches they had."""
    scores = np.linspace(0.0, 1.0, 1501)
    for value in ["NL", "FR", "ES", "never seen", None]:
        kw = {"field": [value] * len(scores)} if one.model_.fields else {}
        kw["score_type"] = "probability"
        np.testing.assert_allclose(one.predict(scores, **kw), other.predict(scores, **kw), rtol=rtol, atol=0.0)


def nasty_scores(calibrator):
    """Scores around every knot, and around the ends, in order."""
    knots = np.unique(calibrator.curves_.knots)
    knots = knots[:: max(1, len(knots) // 3000)]
    around = [knots, np.nextafter(knots, 0.0), np.nextafter(knots, 1.0), np.linspace(0.0, 1.0, 4001)]
    ends = [0.0, 5e-324, SCORE_FLOOR, np.nextafter(SCORE_FLOOR, 1), 1 - SCORE_FLOOR, np.nextafter(1.0, 0.0), 1.0]
    return np.unique(np.clip(np.concatenate([*around, ends]), 0.0, 1.0))


@pytest.mark.parametrize("name", METHODS)
class TestEstimator:
    def test_its_class_knows_its_name_in_the_registry(self, name):
        assert make(name).method == name

    def test_clone_copies_parameters_and_forgets_the_fit(self, name, fitted):
        copy = clone(fitted[name])
        assert copy.get_params() == fitted[name].get_params()
        with pytest.raises(mcnet.NotFittedError):
            copy.predict([0.5])

    def test_fit_returns_itself_and_leaves_parameters_untouched(self, name, log):
        calibrator = make(name)
        before = calibrator.get_params()
        assert calibrator.fit(log.score, log.label, **fields_of(name, log.text("country"))) is calibrator
        after = calibrator.get_params()
        assert after.keys() == before.keys()
        assert all(after[key] is before[key] for key in before)

    def test_before_fitting_it_says_what_to_do(self, name):
        for call in (
            lambda: make(name).predict([0.5]),
            lambda: make(name).save("model.json"),
            lambda: make(name).curves_,
        ):
            with pytest.raises(mcnet.NotFittedError, match="fit"):
                call()

    def test_refitting_forgets_the_past(self, name, log, fitted):
        calibrator = make(name)
        calibrator.fit(log.score[:500] ** 2, log.label[:500], **fields_of(name, log.text("country")[:500]))
        calibrator.fit(log.score, log.label, **fields_of(name, log.text("country")))
        same_curves(calibrator, fitted[name])

    def test_refitting_on_one_class_leaves_no_trace_of_the_past(self, name, log):
        if name == "base":
            return
        calibrator = make(name).fit(log.score, log.label, **fields_of(name, log.text("country")))
        with pytest.warns(mcnet.CalibrationWarning):
            calibrator.fit([0.1, 0.2], [0, 0], **fields_of(name, ["NL", "FR"]))
        with pytest.warns(mcnet.CalibrationWarning):
            fresh = make(name).fit([0.1, 0.2], [0, 0], **fields_of(name, ["NL", "FR"]))
        assert {k for k in vars(calibrator) if k.endswith("_")} == {k for k in vars(fresh) if k.endswith("_")}

    def test_an_unknown_parameter_is_refused_by_name(self, name):
        with pytest.raises(mcnet.InputError, match="no parameter 'wings'"):
            mcnet.calibrator(name, wings=2)


@pytest.mark.parametrize("name", METHODS)
class TestData:
    def test_a_weight_is_a_repetition(self, name, log):
        weight = np.random.default_rng(0).integers(0, 4, ROWS)
        country = log.text("country")
        weighted = make(name).fit(log.score, log.label, weight=weight, **fields_of(name, country))
        repeated = make(name).fit(
            np.repeat(log.score, weight), np.repeat(log.label, weight), **fields_of(name, np.repeat(country, weight))
        )
        same_curves(weighted, repeated)

    def test_the_order_of_rows_does_not_matter(self, name, log, fitted):
        order = np.random.default_rng(1).permutation(ROWS)
        shuffled = make(name).fit(log.score[order], log.label[order], **fields_of(name, log.text("country")[order]))
        same_curves(shuffled, fitted[name])

    def test_the_sketch_of_rows_is_as_good_as_the_rows(self, name, log):
        for resolution in (64, "exact"):
            given = fields_of(name, log.text("country"))
            from_rows = make(name).fit(log.score, log.label, resolution=resolution, **given)
            sketch = mcnet.Sketch.from_rows(log.score, log.label, resolution=resolution, **given)
            same_curves(from_rows, make(name).fit_sketch(sketch))

    def test_fractions_with_weights_are_aggregated_rows(self, name, log):
        # Halves, quarters and eighths: weight × fraction is exact, so even the bits agree.
        rng = np.random.default_rng(2)
        count = 2 ** rng.integers(0, 4, 300)
        positives = rng.integers(0, count + 1)
        score, country = log.score[:300], log.text("country")[:300]
        parts = make(name).fit(score, positives / count, weight=count, **fields_of(name, country))
        whole = make(name).fit(
            np.repeat(score, count),
            np.concatenate([np.arange(n) < k for n, k in zip(count, positives, strict=True)]),
            **fields_of(name, np.repeat(country, count)),
        )
        same_curves(parts, whole)

    def test_logits_are_scores_in_other_clothes(self, name, log, fitted):
        logits = np.log(log.score) - np.log1p(-log.score)
        given = fields_of(name, log.text("country"))
        other = make(name).fit(logits, log.label, score_type="logit", **given)
        # A score on the edge of a cell may land in the next one, which moves the ramps of step-like methods a little.
        same_curves(other, fitted[name], rtol=2e-2)
        # A ramp between two scores that are all but equal turns a rounding into a step.
        ours = other.predict(logits, **given)
        theirs = other.predict(log.score, score_type="probability", **given)
        assert np.isclose(ours, theirs, rtol=1e-6).mean() > 0.99

    def test_dropped_negatives_are_weighted_back(self, name, log):
        given = fields_of(name, log.text("country"))
        told = make(name).fit(log.score, log.label, negatives_kept=0.25, **given)
        weighted = make(name).fit(log.score, log.label, weight=np.where(log.label == 1, 1.0, 4.0), **given)
        same_curves(told, weighted)

    def test_it_does_not_change_its_input(self, name, log):
        score, label = log.score.copy(), log.label.astype(np.float64)
        kept = score.copy(), label.copy()
        calibrator = make(name).fit(score, label, **fields_of(name, log.text("country")))
        predictions(calibrator, name, score)
        np.testing.assert_array_equal(score, kept[0])
        np.testing.assert_array_equal(label, kept[1])


@pytest.mark.parametrize("name", METHODS)
class TestCurves:
    def test_it_never_falls_and_stays_inside_0_and_1(self, name, fitted):
        calibrator = fitted[name]
        scores = nasty_scores(calibrator)
        for value in ["NL", "ES", "never seen"]:
            found = predictions(calibrator, name, scores, value)
            assert found.dtype == np.float64
            assert ((found > 0.0) & (found < 1.0)).all()
            if calibrator.monotone:
                assert (np.diff(found) >= 0.0).all()

    def test_large_and_small_arrays_get_the_same_bits(self, name, fitted):
        scores = nasty_scores(fitted[name])
        many = np.resize(scores, 120_000)
        large = predictions(fitted[name], name, many)
        np.testing.assert_array_equal(large[: len(scores)], predictions(fitted[name], name, scores))
        few = np.concatenate([predictions(fitted[name], name, scores[i : i + 3].tolist()) for i in range(0, 600, 3)])
        np.testing.assert_array_equal(large[:600], few)

    def test_saved_and_loaded_it_gives_the_same_bits(self, name, fitted, tmp_path):
        calibrator = fitted[name]
        calibrator.save(tmp_path / "model.json")
        loaded = mcnet.load(tmp_path / "model.json")
        scores = nasty_scores(calibrator)
        for value in ["NL", "FR", "ES", "never seen", None]:
            given = fields_of(name, [value] * len(scores))
            np.testing.assert_array_equal(loaded.predict(scores, **given), calibrator.predict(scores, **given))

    def test_the_file_is_json_that_tells_where_it_comes_from(self, name, fitted, tmp_path, monkeypatch):
        def refuse(*args, **kwargs):
            raise AssertionError("a model is never pickled")

        for function in ("dump", "dumps", "load", "loads"):
            monkeypatch.setattr(pickle, function, refuse)
        fitted[name].save(tmp_path / "model.json")
        document = json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))
        assert document["method"] == name
        assert document["schema"] == 3
        assert document["provenance"]["rows"] == ROWS
        assert document["provenance"]["positives"] > 0
        assert document["provenance"]["library"] == f"mcnet {mcnet.__version__}"
        assert set(document["parameters"]) == set(fitted[name].get_params(deep=False))
        assert mcnet.load(tmp_path / "model.json").method == name

    def test_unseen_values_get_one_curve_and_missing_ones_their_own(self, name, log):
        if not uses_field(name):
            return
        country = np.where(np.arange(ROWS) % 5 == 0, None, log.text("country"))
        calibrator = make(name).fit(log.score, log.label, field=country)
        scores = np.linspace(0.01, 0.99, 50)
        unseen = calibrator.predict(scores, field=["never seen"] * 50)
        np.testing.assert_array_equal(unseen, calibrator.predict(scores, field=["nor this"] * 50))
        np.testing.assert_array_equal(unseen, calibrator.model_.predict_pooled(scores))
        missing = calibrator.predict(scores, field=[None] * 50)
        np.testing.assert_array_equal(missing, calibrator.predict(scores, field=[float("nan")] * 50))
        assert None in calibrator.model_.contexts.values[0]


@pytest.mark.parametrize("name", METHODS)
class TestRefusal:
    def test_a_field_it_cannot_use_is_pooled_with_one_warning_and_one_it_lacks_is_refused(self, name):
        use = make(name).field_use
        if use == "none":
            scores, labels = [0.1, 0.9, 0.3, 0.6], [0, 1, 1, 0]
            sketch = mcnet.Sketch.from_rows(scores, labels, field={"land": ["a", "b", "a", "b"]})
            expected = make(name).fit_sketch(sketch.pooled()).predict(scores)
            for fit in (
                lambda: make(name).fit(scores, labels, field={"land": ["a", "b", "a", "b"]}),
                lambda: make(name).fit_sketch(sketch),
            ):
                with pytest.warns(mcnet.CalibrationWarning) as caught:
                    pooled = fit()
                about = [str(warning.message) for warning in caught if "does not use" in str(warning.message)]
                assert len(about) == 1
                assert about[0].startswith(f"{name} does not use the field land: its values are pooled; ")
                assert pooled.model_.fields == ()
                np.testing.assert_allclose(pooled.predict(scores), expected, rtol=1e-9)
        if use == "required":
            with pytest.raises(mcnet.NotSupportedError, match=f"{name} needs a field"):
                make(name).fit([0.1, 0.9], [0, 1])
            with pytest.raises(mcnet.NotSupportedError, match=f"{name} needs a field"):
                make(name).fit_sketch(mcnet.Sketch.from_rows([0.1, 0.9], [0, 1]))

    def test_predict_wants_the_fields_of_the_fit(self, name, fitted):
        if not uses_field(name):
            with pytest.raises(mcnet.NotSupportedError, match="without a field"):
                fitted[name].predict([0.5], field=["NL"])
            return
        with pytest.raises(mcnet.InputError, match="needs the field"):
            fitted[name].predict([0.5])
        with pytest.raises(mcnet.InputError, match="needed: "):
            fitted[name].predict([0.5], field={"a": ["NL"], "b": ["NL"]})
        with pytest.raises(mcnet.InputError, match="differ in length"):
            fitted[name].predict([0.5, 0.6], field=["NL"])

    def test_a_field_without_its_name_is_refused(self, name):
        with pytest.raises(mcnet.InputError, match=r"by position; name the rest: field=…, weight=…"):
            make(name).fit([0.1, 0.2], [0, 1], ["NL", "FR"])

    def test_what_is_not_a_sketch_is_refused(self, name):
        with pytest.raises(mcnet.InputError, match="given list"):
            make(name).fit_sketch([0.1, 0.2])


def fit_quietly(name, scores, labels, field):
    """Fit, and return the documented warnings; any other warning is an error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        warnings.simplefilter("always", mcnet.CalibrationWarning)
        calibrator = make(name).fit(scores, labels, **fields_of(name, field))
    return calibrator, [str(w.message) for w in caught]


@pytest.mark.parametrize("name", METHODS)
class TestDegenerateData:
    @pytest.mark.parametrize(("label", "kind"), [(0, "negative"), (1, "positive")])
    def test_one_class_gives_a_constant_with_a_warning(self, name, label, kind):
        calibrator, caught = fit_quietly(name, np.linspace(0.1, 0.9, 9), [label] * 9, list("aaabbbccc"))
        if name == "base":
            return
        assert any(f"every row is {kind}" in text for text in caught)
        expected = (9 * label + 0.5) / 10
        for value in ("a", "c", "never seen"):
            np.testing.assert_allclose(predictions(calibrator, name, [0.0, 0.5, 1.0], value), expected, rtol=1e-12)

    def test_one_distinct_score_gives_the_rate(self, name):
        calibrator, caught = fit_quietly(name, [0.3] * 8, [0, 1, 0, 0] * 2, list("aaaabbbb"))
        if name == "base":
            return
        found = predictions(calibrator, name, [0.0, 0.3, 1.0], "a")
        if not uses_field(name):
            assert any("all rows have one score" in text for text in caught)
            np.testing.assert_allclose(found, 0.25, rtol=1e-12)
        assert found[1] == pytest.approx(0.25, rel=0.05)
        if make(name).field_use == "optional":
            # Without a field there is nothing to learn from, whatever the method.
            with pytest.warns(mcnet.CalibrationWarning, match="all rows have one score"):
                plain = make(name).fit([0.3] * 8, [0, 1, 0, 0] * 2)
            np.testing.assert_allclose(plain.predict([0.0, 0.3, 1.0]), 0.25, rtol=1e-12)

    @pytest.mark.parametrize("rows", [2, 3, 10])
    def test_a_few_rows_are_enough_to_be_valid(self, name, rows):
        rng = np.random.default_rng(rows)
        scores, labels = rng.random(rows), np.arange(rows) % 2
        calibrator, _ = fit_quietly(name, scores, labels, np.array(list("ab"))[rng.integers(0, 2, rows)])
        found = predictions(calibrator, name, nasty_scores(calibrator), "a")
        assert ((found > 0.0) & (found < 1.0)).all()
        if calibrator.monotone:
            assert (np.diff(found) >= 0.0).all()

    def test_separable_rows_are_no_trouble(self, name):
        scores = np.linspace(0.01, 0.99, 40)
        calibrator, _ = fit_quietly(name, scores, scores > 0.5, ["a", "b"] * 20)
        found = predictions(calibrator, name, np.array([0.1, 0.9]), "a")
        assert found[0] < 0.5 < found[1]

    def test_scores_against_the_labels_are_no_trouble(self, name):
        scores = np.linspace(0.01, 0.99, 40)
        calibrator, _ = fit_quietly(name, scores, scores < 0.5, ["a", "b"] * 20)
        found = predictions(calibrator, name, np.linspace(0, 1, 101), "b")
        assert ((found > 0.0) & (found < 1.0)).all()
        if calibrator.monotone:
            assert (np.diff(found) >= 0.0).all()

    def test_scores_of_exactly_0_and_1_are_welcome(self, name):
        scores = [0.0, 0.0, 0.0, 0.2, 0.5, 0.8, 1.0, 1.0, 1.0]
        calibrator, _ = fit_quietly(name, scores, [0, 0, 1, 0, 1, 0, 1, 1, 0], list("abcabcabc"))
        found = predictions(calibrator, name, np.array([0.0, 1e-9, 0.5, 1 - 1e-9, 1.0]), "a")
        assert ((found > 0.0) & (found < 1.0)).all()
        assert found[0] == found[1]
        assert found[3] == found[4]

    def test_a_context_without_positives_is_no_trouble(self, name, log):
        country = log.text("country")
        label = np.where(country == "ES", 0, log.label)
        calibrator, caught = fit_quietly(name, log.score, label, country)
        found = predictions(calibrator, name, np.linspace(0.0, 1.0, 1001), "ES")
        assert ((found > 0.0) & (found < 1.0)).all()
        assert all("ES" in message for message in caught), "a warning names the field value"

    def test_very_different_weights_are_no_trouble(self, name, log):
        weight = 10.0 ** np.random.default_rng(3).integers(-6, 7, ROWS)
        with warnings.catch_warnings():
            # Most of the weight is on a handful of rows, which may all be of one class in a range of scores.
            warnings.simplefilter("ignore", mcnet.CalibrationWarning)
            calibrator = make(name).fit(log.score, log.label, weight=weight, **fields_of(name, log.text("country")))
        found = predictions(calibrator, name, nasty_scores(calibrator))
        assert ((found > 0.0) & (found < 1.0)).all()


def test_a_method_that_does_not_exist_is_refused_with_the_list():
    with pytest.raises(mcnet.InputError, match="no method 'magic'; the methods are base, offset"):
        mcnet.calibrator("magic")


@pytest.mark.parametrize("name", [one for one, name in zip(METHODS, NAMES, strict=True) if uses_field(name)])
def test_several_fields_of_several_types_work_together(name, log, tmp_path):
    device = np.array([1, 2, 3])[np.arange(ROWS) % 3]
    country = log.text("country")
    calibrator = make(name).fit(log.score, log.label, field={"country": country, "device": device})
    calibrator.save(tmp_path / "model.json")
    loaded = mcnet.load(tmp_path / "model.json")
    expected = calibrator.predict(log.score, field={"device": device.astype(str), "country": country})
    np.testing.assert_array_equal(
        loaded.predict(log.score, field={"country": list(country), "device": device.astype(float)}), expected
    )
    one = np.concatenate(
        [
            loaded.predict([s], field={"country": [c], "device": [d]})
            for s, c, d in zip(log.score[:50], country, device, strict=False)
        ]
    )
    np.testing.assert_array_equal(one, expected[:50])
    half_known = loaded.predict([0.2, 0.2], field={"country": ["NL", "never seen"], "device": [9, 1]})
    pooled = loaded.predict_pooled(np.array([0.2, 0.2]))
    assert half_known.shape == pooled.shape
