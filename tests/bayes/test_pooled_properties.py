"""What holds for every fit holds where rare values are pooled: order, range, merging, repetition, pieces."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mcnet
from mcnet._shared import arrays as shared_math
from mcnet.bayes import fields as pooling
from mcnet.bayes import likelihood
from mcnet.bayes import model as panels
from mcnet.bayes.likelihood import make_cells
from mcnet.bayes.model import make_panels

KEPT = 6
GRID = np.concatenate([[0.0], np.linspace(1e-4, 0.999, 120), [1.0]])


@pytest.fixture(autouse=True)
def few_values_kept(monkeypatch):
    monkeypatch.setattr(pooling, "VALUES_KEPT_WHOLE", 4)
    monkeypatch.setattr(pooling, "MOST_VALUES", KEPT)


def rows_of(seed, number, values, fields=1):
    rng = np.random.default_rng(seed)
    logits = rng.normal(-1.0, 1.0, number)
    columns = [np.minimum((values * rng.random(number) ** 3).astype(int), values - 1) for _ in range(fields)]
    chance = 1.0 / (1.0 + np.exp(-logits - sum(rng.normal(0.0, 0.7, values)[column] for column in columns)))
    labels = (rng.random(number) < chance).astype(int)
    labels[:2] = 0, 1  # both classes
    field = {f"f{place}": column for place, column in enumerate(columns)}
    return 1.0 / (1.0 + np.exp(-logits)), labels, field


fits = settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
drawn = given(seed=st.integers(0, 10_000), number=st.integers(60, 500), values=st.integers(10, 60))


@pytest.mark.filterwarnings("ignore::mcnet.errors.CalibrationWarning")
@pytest.mark.parametrize("fields", [1, 2])
@fits
@drawn
def test_curves_of_kept_and_pooled_values_rise_inside_0_and_1(fields, seed, number, values):
    scores, labels, field = rows_of(seed, number, values, fields)
    fitted = mcnet.BayesMCNet().fit(scores, labels, field=field)
    assert all(len(known) - fitted.pooled_values_.get(name, 0) <= max(KEPT, 4) for name, known in
               zip(fitted.model_.contexts.names, fitted.model_.contexts.values, strict=True))  # fmt: skip
    for value in range(0, values, 5):
        p = fitted.predict(GRID, {name: [value] * len(GRID) for name in field})
        assert np.all((p > 0.0) & (p < 1.0))
        assert np.all(np.diff(p) >= 0.0)


@pytest.mark.filterwarnings("ignore::mcnet.errors.CalibrationWarning")
def test_a_field_of_rare_values_alone_is_served_by_the_common_curve():
    scores, labels, field = rows_of(174, 60, 59)
    fitted = mcnet.BayesMCNet().fit(scores, labels, field=field)
    assert fitted.pooled_values_ == {"f0": len(np.unique(field["f0"]))}
    seen = fitted.predict(GRID, {"f0": [int(field["f0"][0])] * len(GRID)})
    assert np.array_equal(seen, fitted.predict(GRID, {"f0": ["unseen"] * len(GRID)}))


@pytest.mark.filterwarnings("ignore::mcnet.errors.CalibrationWarning")
@fits
@drawn
def test_merged_sketches_and_weights_give_the_fit_of_all_rows(seed, number, values):
    scores, labels, field = rows_of(seed, number, values)
    half = number // 2
    parts = [
        mcnet.Sketch.from_rows(scores[rows], labels[rows], field={name: column[rows] for name, column in field.items()})
        for rows in (slice(half), slice(half, None))
    ]
    whole = mcnet.BayesMCNet().fit(scores, labels, field=field)
    merged = mcnet.BayesMCNet().fit_sketch(parts[0] + parts[1])
    assert merged.pooled_values_ == whole.pooled_values_
    np.testing.assert_array_equal(merged.predict(scores, field), whole.predict(scores, field))
    weight = np.random.default_rng(seed).integers(1, 4, number)
    repeated = mcnet.BayesMCNet().fit(
        np.repeat(scores, weight), np.repeat(labels, weight), field={n: np.repeat(c, weight) for n, c in field.items()}
    )
    weighted = mcnet.BayesMCNet().fit(scores, labels, field=field, weight=weight)
    assert weighted.pooled_values_ == repeated.pooled_values_
    np.testing.assert_allclose(weighted.predict(scores, field), repeated.predict(scores, field), rtol=1e-9)


def test_sums_by_pieces_are_those_of_all_cells_at_once(monkeypatch):
    rng = np.random.default_rng(0)
    logits, context = rng.normal(-2.0, 1.0, 900), rng.integers(0, 40, 900).astype(np.int32)
    weight = rng.integers(1, 4, 900).astype(float)
    positives = weight * (rng.random(900) < 0.3)
    grid = make_panels(logits, weight, positives, 10)
    whole = make_cells(grid, logits, context, weight, positives, 40)
    sums = shared_math.sums_by(context, weight, 40)
    monkeypatch.setattr(likelihood, "ROWS_AT_A_TIME", 100)
    monkeypatch.setattr(shared_math, "ROWS_AT_A_TIME", 100)
    pieces = make_cells(grid, logits, context, weight, positives, 40)
    for column in ("context", "panel", "weight", "positives", "place"):
        np.testing.assert_allclose(getattr(pieces, column), getattr(whole, column), rtol=1e-12)
    np.testing.assert_array_equal(shared_math.sums_by(context, weight, 40), sums)
    np.testing.assert_array_equal(shared_math.by_pieces(np.exp, logits), np.exp(logits))
    monkeypatch.setattr(panels, "ROWS_AT_A_TIME", 100)
    counted = make_panels(logits, weight, positives, 10)
    np.testing.assert_allclose(counted.edges, grid.edges, atol=0.02)
    assert counted.centre == pytest.approx(grid.centre)


def test_many_fields_take_few_steps():
    rng = np.random.default_rng(2)
    number = 4_000
    field = {f"f{place}": rng.integers(0, 2, number) for place in range(14)}
    logits = rng.normal(-1.0, 1.0, number)
    moved = sum(0.3 * (column - 0.5) for column in field.values())
    labels = (rng.random(number) < 1.0 / (1.0 + np.exp(-logits - moved))).astype(int)
    fitted = mcnet.BayesMCNet().fit(1.0 / (1.0 + np.exp(-logits)), labels, field=field)
    assert len(fitted.posterior_.panels.edges) > 10
    assert fitted.posterior_.iterations < 40
