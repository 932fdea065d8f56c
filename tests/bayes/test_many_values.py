"""Fields with very many values: loops over cells that have rows, and values that are pooled."""

import numpy as np
import pytest

import mcnet
from mcnet._shared.loops import numba_installed
from mcnet.bayes import fit, rare_values
from mcnet.bayes import structure as incidence
from mcnet.bayes.likelihood import make_table
from mcnet.bayes.sparse_table import make_sparse_table
from mcnet.bayes.structure import Incidence, make_panels, make_shapes, step_basis
from mcnet.model.apply import UnseenValues

needs_numba = pytest.mark.skipif(not numba_installed(), reason="the loops are compiled with numba")


def make_rows(number=6_000, values=400, seed=0):
    rng = np.random.default_rng(seed)
    field = np.minimum((values * rng.random(number) ** 3).astype(int), values - 1)
    logits = rng.normal(-1.5, 1.0, number)
    chance = 1.0 / (1.0 + np.exp(-logits - rng.normal(0.0, 0.6, values)[field]))
    return 1.0 / (1.0 + np.exp(-logits)), (rng.random(number) < chance).astype(int), field


@needs_numba
@pytest.mark.parametrize("roughness", [0.3, 5.0])  # the second goes beyond the steepest slope that is allowed
def test_a_sparse_table_gives_what_a_dense_one_gives(roughness):
    rng = np.random.default_rng(0)
    contexts = 120
    logits, context = rng.normal(-2.0, 1.0, 900), rng.integers(0, contexts, 900)
    context[context == 7] = 8  # a context without rows
    weight = rng.uniform(0.5, 2.0, 900)
    positives = weight * (rng.random(900) < 0.2)
    panels = make_panels(logits, weight, positives, 24)
    shapes = make_shapes(panels, step_basis(panels), 4)
    cells = panels, logits, context, weight, positives, contexts
    dense, sparse = make_table(*cells), make_sparse_table(*cells)
    offset = rng.normal(-2.0, 0.3, contexts)
    log_slopes = np.log(panels.scale) + rng.normal(0.0, roughness, (contexts, panels.count))

    np.testing.assert_allclose(sparse.rows, dense.rows, rtol=1e-12)
    for one, two in zip(sparse.panel_sums(), dense.panel_sums(), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)
    assert sparse.loss(offset, log_slopes) == pytest.approx(dense.loss(offset, log_slopes), rel=1e-12)
    assert sparse.expected(offset, log_slopes) == pytest.approx(dense.expected(offset, log_slopes), rel=1e-12)
    pairs = [(sparse.gradient(offset, log_slopes), dense.gradient(offset, log_slopes))]
    for observed in (False, True):
        given = offset, log_slopes, shapes.lift, shapes.deviation
        pairs.append((sparse.information(*given, observed=observed), dense.information(*given, observed=observed)))
    for fast, slow in pairs:
        for one, two in zip(fast, slow, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9 * np.abs(two).max())


@needs_numba
def test_compiled_sums_over_contexts_equal_sparse_products(monkeypatch):
    rng = np.random.default_rng(1)
    codes = np.column_stack([rng.integers(-1, 5, 200), rng.integers(0, 30, 200)])
    numbers, values = rng.normal(size=(200, 4, 2)), [rng.normal(size=(5, 3)), rng.normal(size=(30, 3))]
    plain = Incidence(codes, [5, 30])
    expected = plain.totals(numbers), plain.gather(values, 3)
    monkeypatch.setattr(incidence, "FEWEST_COMPILED_CONTEXTS", 0)
    loops = Incidence(codes, [5, 30])
    for one, two in zip(loops.totals(numbers), expected[0], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(loops.gather(values, 3), expected[1], rtol=1e-12, atol=1e-12)


@needs_numba
@pytest.mark.parametrize("fields", [1, 2])
def test_a_fit_by_compiled_loops_gives_the_same_probabilities(fields, monkeypatch):
    scores, labels, one = make_rows(3_000, 40)
    field = {"one": one} | ({"two": np.arange(3_000) % 3} if fields == 2 else {})
    expected = mcnet.BayesMCNet().fit(scores, labels, field=field).predict(scores, field)
    monkeypatch.setattr(fit, "MOST_DENSE_CONTEXTS", 0)
    monkeypatch.setattr(incidence, "FEWEST_COMPILED_CONTEXTS", 0)
    found = mcnet.BayesMCNet().fit(scores, labels, field=field).predict(scores, field)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.fixture
def few_values_kept(monkeypatch):
    monkeypatch.setattr(rare_values, "VALUES_KEPT_WHOLE", 20)
    monkeypatch.setattr(rare_values, "MOST_VALUES", 50)


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
    pooled = fitted.codes(field) < 0
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
