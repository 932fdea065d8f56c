"""Isotonic fits mixed into smooth curves: only as far as rows held back ask for them."""

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

import mcnet
from mcnet.bayes import isotonic as mixing
from mcnet.datasets.simulator import simulate
from mcnet.errors import CalibrationWarning, InputError


def stairs(rows: int, seed: int = 0, values: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows whose true probability climbs stairs, at other scores for every value."""
    rng = np.random.default_rng(seed)
    score = rng.uniform(0.02, 0.6, rows)
    value = rng.integers(0, values, rows)
    truth = 0.05 + 0.12 * np.floor((score + 0.04 * value) * 8.0) / 1.5
    return score, (rng.random(rows) < truth).astype(float), value, truth


def test_smooth_truths_ask_for_nothing():
    for seed in range(3):
        log = simulate(200_000, seed=seed)
        fitted = mcnet.BayesMCNet().fit(log.score, log.label, field=log.fields["field"])
        assert fitted.isotonic_share_ == 0.0
        assert fitted.model_.isotonic_share == 0.0


def test_stairs_ask_for_it_and_are_served_better():
    score, label, value, _ = stairs(200_000)
    fitted = mcnet.BayesMCNet().fit(score, label, field=value)
    plain = mcnet.BayesMCNet(isotonic_share=0.0).fit(score, label, field=value)
    assert fitted.isotonic_share_ > 0.1
    fresh, _, fresh_value, fresh_truth = stairs(50_000, seed=9)
    errors = [np.mean((c.predict(fresh, field=fresh_value) - fresh_truth) ** 2) for c in (fitted, plain)]
    assert errors[0] < 0.7 * errors[1]
    for code in range(3):
        p = fitted.predict(np.linspace(0.0, 1.0, 5_001), field=np.full(5_001, code))
        assert np.all(np.diff(p) >= 0.0)
        assert np.all((p > 0.0) & (p < 1.0))


def test_the_mixture_is_what_it_says(tmp_path):
    score, label, value, _ = stairs(5_000)
    smooth = mcnet.BayesMCNet(isotonic_share=0.0).fit(score, label, field=value, resolution="exact")
    mixed = mcnet.BayesMCNet(isotonic_share=0.25).fit(score, label, field=value, resolution="exact")
    for code in range(3):
        rows = value == code
        own = IsotonicRegression(out_of_bounds="clip").fit(score[rows], label[rows])
        probe = np.linspace(0.0, 1.0, 999)
        expected = 0.25 * own.predict(probe) + 0.75 * smooth.predict(probe, field=np.full(999, code))
        np.testing.assert_allclose(mixed.predict(probe, field=np.full(999, code)), expected, atol=1e-7)
    # Unseen values have no rows of their own.
    np.testing.assert_allclose(mixed.predict([0.2], field=["new"]), smooth.predict([0.2], field=["new"]), rtol=1e-9)
    mixed.save(tmp_path / "model.json")
    again = mcnet.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.predict(score, field=value), mixed.predict(score, field=value))
    assert again.isotonic_share == 0.25
    low, high = mixed.interval(score[:100], field=value[:100])
    p = mixed.predict(score[:100], field=value[:100])
    assert np.all((low <= p) & (p <= high))


def test_very_many_knots_are_saved_as_they_are(tmp_path):
    score, label, value, _ = stairs(5_000)
    mixed = mcnet.BayesMCNet(isotonic_share=0.25).fit(score, label, field=value)
    mixed.save(tmp_path / "model.json")
    again = mcnet.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.predict(score, field=value), mixed.predict(score, field=value))


@pytest.mark.parametrize("folds", [1, 3])
def test_the_share_is_that_of_the_slow_way(folds, monkeypatch):
    monkeypatch.setattr(mixing, "FEWEST_OF_RARER_CLASS", 10)
    score, label, value, _ = stairs(20_000)
    sketch = mcnet.Sketch.from_rows(score, label, field=value, folds=folds)
    fitted = mcnet.BayesMCNet(isotonic_share=0.0).fit_sketch(sketch)
    folded = sketch if folds > 1 else sketch.with_folds(mixing.FOLDS)
    shares = np.linspace(0.0, mixing.LARGEST_SHARE, 71)
    gains = np.zeros(len(shares))
    for fold in range(folded.folds):
        train, held = folded.fold_parts(fold)
        smooth = fitted.model_.predict_cells(held)
        own = smooth.copy()
        for code in range(3):
            inside, there = train.context == code, held.context == code
            model = IsotonicRegression(out_of_bounds="clip")
            model.fit(train.cells.key[inside], train.rate[inside], sample_weight=train.weight[inside])
            blocks = np.clip(model.predict(held.cells.key[there]), 1e-7, 1.0 - 1e-7)
            own[there] = blocks
        for index, share in enumerate(shares):
            p = share * own + (1.0 - share) * smooth
            losses = held.positives * np.log(p / smooth)
            losses += (held.weight - held.positives) * (np.log1p(-p) - np.log1p(-smooth))
            gains[index] += losses.sum()
    found = mixing.earned_share(sketch, fitted.curves_, fitted.model_.contexts)
    assert found > 0.0
    # Where a cell has no rows outside the fold, lines join the blocks there, and their middle is taken here.
    assert gains[round(100 * found)] > gains.max() - 0.02 * (gains.max() - gains[0])


def test_the_share_is_checked():
    with pytest.raises(InputError, match="isotonic_share is 2; it must be 'auto' or a number from 0 to 1"):
        mcnet.BayesMCNet(isotonic_share=2).fit([0.1, 0.2], [0, 1])


def test_contexts_of_one_cell_and_several_fields():
    score, label, value, _ = stairs(3_000)
    second = np.where(np.arange(3_000) == 7, "once", "often")
    with pytest.warns(CalibrationWarning, match="stays near the common one"):
        fitted = mcnet.BayesMCNet(isotonic_share=0.5).fit(score, label, field={"a": value, "b": second})
    p = fitted.predict(np.linspace(0.0, 1.0, 101), field={"a": np.full(101, value[7]), "b": np.full(101, "once")})
    assert np.all(np.diff(p) >= 0.0)


def test_a_context_without_a_row_outside_a_fold_keeps_its_smooth_curve():
    score, label, value, _ = stairs(20_000)
    names = np.where(np.arange(20_000) == 11, "once", value.astype(str))
    sketch = mcnet.Sketch.from_rows(score, label, field=names, folds=np.arange(20_000) % 5)
    train, held = sketch.fold_parts(1)
    assert "once" in held.contexts.values[0]
    fitted = mcnet.BayesMCNet(isotonic_share=0.5).fit_sketch(train)
    p = fitted.predict(np.linspace(0.0, 1.0, 101), field=["once"] * 101)
    smooth = mcnet.BayesMCNet(isotonic_share=0.0).fit_sketch(train)
    np.testing.assert_allclose(p, smooth.predict(np.linspace(0.0, 1.0, 101), field=["once"] * 101), rtol=1e-9)
