"""A model knows whether it was fitted on probabilities or on logits; whoever calls it need not."""

import numpy as np
import polars as pl
import pytest

import mcnet
from mcnet.model.apply import apply_to_files
from mcnet.model.model import FEWEST_ROWS_TO_JUDGE

LOGITS = np.random.default_rng(3).normal(-1.5, 1.5, 4000)
PROBABILITIES = 1.0 / (1.0 + np.exp(-LOGITS))
LABELS = np.random.default_rng(4).random(4000) < PROBABILITIES**1.5


@pytest.fixture(scope="module")
def fitted():
    return mcnet.Platt().fit(LOGITS, LABELS, score_type="logit")


@pytest.fixture(scope="module")
def on_probabilities():
    return mcnet.Platt().fit(PROBABILITIES, LABELS)


def test_a_calibrator_fitted_on_logits_predicts_on_logits(fitted, on_probabilities):
    expected = on_probabilities.predict(PROBABILITIES)
    np.testing.assert_allclose(fitted.predict(LOGITS), expected, rtol=1e-9)
    np.testing.assert_allclose(fitted.predict([0.3]), on_probabilities.predict([1 / (1 + np.exp(-0.3))]), rtol=1e-9)
    np.testing.assert_allclose([fitted.predict_one(s) for s in LOGITS[:50]], expected[:50], rtol=1e-9)
    assert [fitted.predict_one(s) for s in LOGITS[:50]] == fitted.predict(LOGITS)[:50].tolist()


def test_a_loaded_model_knows_it_too(fitted, tmp_path):
    fitted.save(tmp_path / "model.json")
    loaded = mcnet.load(tmp_path / "model.json")
    assert loaded.score_type == "logit"
    np.testing.assert_array_equal(loaded.predict(LOGITS), fitted.predict(LOGITS))


def test_the_caller_may_say_otherwise(fitted, on_probabilities):
    found = fitted.predict(PROBABILITIES, score_type="probability")
    np.testing.assert_allclose(found, on_probabilities.predict(PROBABILITIES), rtol=1e-9)
    np.testing.assert_allclose(on_probabilities.predict(LOGITS, score_type="logit"), found, rtol=1e-9)
    assert fitted.predict_one(0.25, score_type="probability") == fitted.predict([0.25], score_type="probability")[0]


def test_probabilities_given_to_a_model_of_logits_are_refused(fitted):
    with pytest.raises(mcnet.InputError, match=r"all in \[0, 1\], but the model was fitted on logits"):
        fitted.predict(PROBABILITIES)
    with pytest.raises(mcnet.InputError, match="score_type='probability'"):
        fitted.predict(PROBABILITIES[:FEWEST_ROWS_TO_JUDGE])


def test_logits_that_happen_to_lie_between_0_and_1_can_be_predicted(fitted):
    inside = np.linspace(0.0, 1.0, 100)
    assert len(fitted.predict(inside, score_type="logit")) == 100
    assert len(fitted.predict(inside[:10])) == 10  # so few may be there by chance
    assert len(fitted.predict(np.append(inside, -0.1))) == 101


def test_logits_given_to_a_model_of_probabilities_are_refused(on_probabilities):
    with pytest.raises(mcnet.InputError, match=r"outside \[0, 1\] \(first: row 1, 3.7\); pass logits with"):
        on_probabilities.predict([0.2, 3.7])
    with pytest.raises(mcnet.InputError, match=r"3\.7"):
        on_probabilities.predict_one(3.7)
    with pytest.raises(mcnet.InputError, match="score_type is 'percent'"):
        on_probabilities.predict([0.2], score_type="percent")


def test_what_a_model_of_logits_shows_and_scores_is_in_order(fitted, on_probabilities):
    sketch = mcnet.Sketch.from_rows(LOGITS, LABELS, score_type="logit")
    mine, other = mcnet.evaluate_sketch(fitted, sketch), mcnet.evaluate_sketch(on_probabilities, sketch)
    assert mine.log_loss == pytest.approx(other.log_loss, rel=1e-6)
    assert fitted.score(LOGITS, LABELS) == pytest.approx(on_probabilities.score(PROBABILITIES, LABELS), rel=1e-6)
    one, two = fitted.plot(), on_probabilities.plot()
    np.testing.assert_allclose(one.data[-1].y, two.data[-1].y, rtol=1e-6)


@pytest.mark.parametrize("score", [0.03, np.float64(0.03), np.array(0.03), 0, True])
def test_a_single_number_gives_a_single_number(on_probabilities, score):
    found = on_probabilities.predict(score)
    assert type(found) is np.float64
    assert found == on_probabilities.predict([float(score)])[0]


def test_a_single_number_with_a_field(fitted):
    field = np.where(np.arange(4000) % 3 == 0, "NL", "FR")
    fitted = mcnet.PerField("platt").fit(PROBABILITIES, LABELS, field=field)
    assert fitted.predict(0.03, "NL") == fitted.predict([0.03], ["NL"])[0]
    assert fitted.predict(0.03, {"field": "FR"}) == fitted.predict([0.03], ["FR"])[0]
    with pytest.raises(mcnet.InputError, match="needs the field"):
        fitted.predict(0.03)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_of_probabilities_are_refused_for_a_model_of_logits(fitted, tmp_path, ending):
    def write(name, values):
        path = tmp_path / f"{name}.{ending}"
        table = pl.DataFrame({"score": values})
        table.write_csv(path) if ending == "csv" else table.write_parquet(path)
        return path

    output = tmp_path / f"out.{ending}"
    with pytest.raises(mcnet.InputError, match="score has 4,000 values, all in"):
        apply_to_files(fitted.model_, write("p", PROBABILITIES), output, score="score")
    assert not output.exists()
    assert apply_to_files(fitted.model_, write("z", LOGITS), output, score="score").rows == 4000
    said = {"score": "score", "score_type": "probability"}
    assert apply_to_files(fitted.model_, write("p", PROBABILITIES), output, **said).rows == 4000
    inside = np.linspace(0.0, 1.0, 100)
    assert apply_to_files(fitted.model_, write("i", inside), output, score="score", score_type="logit").rows == 100
