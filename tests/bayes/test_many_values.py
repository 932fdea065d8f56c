"""Fields with very many values: loops over cells that have rows, and values that are pooled."""

import numpy as np
import pytest

import mcnet
from mcnet.bayes import fields
from mcnet.model.apply import UnseenValues


def make_rows(number=6_000, values=400, seed=0):
    rng = np.random.default_rng(seed)
    field = np.minimum((values * rng.random(number) ** 3).astype(int), values - 1)
    logits = rng.normal(-1.5, 1.0, number)
    chance = 1.0 / (1.0 + np.exp(-logits - rng.normal(0.0, 0.6, values)[field]))
    return 1.0 / (1.0 + np.exp(-logits)), (rng.random(number) < chance).astype(int), field


@pytest.fixture
def few_values_kept(monkeypatch):
    monkeypatch.setattr(fields, "VALUES_KEPT_WHOLE", 20)
    monkeypatch.setattr(fields, "MOST_VALUES", 50)


@pytest.mark.usefixtures("few_values_kept")
def test_values_with_few_rows_share_the_common_curve_and_are_counted(tmp_path):
    scores, labels, field = make_rows()
    fitted = mcnet.BayesMCNet().fit(scores, labels, field=field)
    seen, rows = np.unique(field, return_counts=True)
    assert fitted.pooled_values_ == {"field": len(seen) - 50}
    assert fitted.model_.provenance["pooled_values"] == fitted.pooled_values_
    assert len(fitted.model_.contexts) == 50
    fitted.save(tmp_path / "model.json")
    loaded = mcnet.load(tmp_path / "model.json")
    grid = np.linspace(0.02, 0.8, 30)
    rare, unseen = str(seen[np.argmin(rows)]), "never seen"
    for model in (fitted, loaded):
        np.testing.assert_array_equal(model.predict(grid, [rare] * 30), model.predict(grid, [unseen] * 30))
        assert model.predict_one(0.2, rare) == model.predict_one(0.2, unseen)
        low, high = model.interval(grid, [rare] * 30)
        assert np.all(low < high)
    # They were seen all the same.
    counts = UnseenValues(loaded)
    counts.add([str(value) for value in field], np.ones(len(field)))
    assert counts.unseen == 0.0


@pytest.mark.usefixtures("few_values_kept")
def test_the_common_curve_is_calibrated_on_pooled_values():
    scores, labels, field = make_rows(20_000, 2_000)
    fitted = mcnet.BayesMCNet().fit(scores, labels, field=field)
    contexts = fitted.model_.contexts
    pooled = contexts.lookup(contexts.given(field)) < 0
    assert 0.2 < pooled.mean() < 0.9
    assert fitted.predict(scores[pooled], field[pooled]).sum() == pytest.approx(labels[pooled].sum(), rel=0.02)


@pytest.mark.usefixtures("few_values_kept")
def test_pooled_values_of_one_of_two_fields():
    scores, labels, one = make_rows()
    field = {"one": one, "two": np.where(np.arange(len(one)) % 2 == 0, "x", "y")}
    fitted = mcnet.BayesMCNet().fit(scores, labels, field=field)
    assert list(fitted.pooled_values_) == ["one"]
    rare = str(np.unique(one)[np.argmin(np.unique(one, return_counts=True)[1])])
    grid = np.linspace(0.02, 0.8, 30)
    given = [{"one": [value] * 30, "two": ["x"] * 30} for value in (rare, "never seen")]
    np.testing.assert_allclose(fitted.predict(grid, given[0]), fitted.predict(grid, given[1]), rtol=2e-4)


@pytest.mark.usefixtures("few_values_kept")
def test_a_warm_start_keeps_the_values_that_have_a_curve():
    scores, labels, field = make_rows()
    warm = mcnet.BayesMCNet(warm_start=True).fit(scores, labels, field=field)
    kept = warm.model_.contexts.values[0][:50]
    again = make_rows(seed=5)
    warm.fit(*again[:2], field=again[2] + 37)
    assert warm.model_.contexts.values[0][:50] == kept
    assert warm.predict(again[0], again[2] + 37).sum() == pytest.approx(again[1].sum(), rel=0.05)


@pytest.mark.usefixtures("few_values_kept")
def test_isotonic_fits_of_pooled_values_are_not_mixed_into_the_common_curve():
    scores, labels, field = make_rows()
    mixed = mcnet.BayesMCNet(isotonic_share=0.5).fit(scores, labels, field=field)
    smooth = mcnet.BayesMCNet(isotonic_share=0.0).fit(scores, labels, field=field)
    grid = np.linspace(0.02, 0.8, 30)
    np.testing.assert_array_equal(mixed.predict(grid, ["never"] * 30), smooth.predict(grid, ["never"] * 30))


def test_small_fields_keep_all_their_values():
    scores, labels, field = make_rows(500, 300)
    assert mcnet.BayesMCNet().fit(scores, labels, field=field).pooled_values_ == {}
