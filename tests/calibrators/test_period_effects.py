"""Fits on periods: rows of one period are not independent."""

import numpy as np
import pytest

from mcnet.bayes.estimator import BayesMCNet
from mcnet.bayes.fit import fitted_level
from mcnet.bayes.tempering import level_error
from mcnet.calibrators.methods import calibrator, methods
from mcnet.calibrators.parametric import Platt
from mcnet.calibrators.period_effects import period_blocks
from mcnet.datasets.worlds import make_world
from mcnet.errors import InputError
from mcnet.model.model_file import load
from mcnet.sketch.sketch import Sketch
from mcnet.store.journal import Journal


def days(world, number=30):
    found = {}
    for t in range(number):
        rows = world.period(t)
        found[f"{t:03d}"] = Sketch.from_rows(rows.score, rows.label, field=rows.field.tolist(), resolution=32)
    return found


def total(periods):
    return Sketch.merged(list(periods.values()))


def wandering(seed, number=40, rows=400):
    """A level and field values that wander by a logit within weeks, about base scores that are right on average."""
    rng = np.random.default_rng(seed)
    level, offset, found, field = 0.0, np.zeros(6), {}, np.arange(6)
    for t in range(number):
        level = 0.95 * level + rng.normal(0.0, 0.25)
        offset = 0.9 * offset + rng.normal(0.0, 0.25, 6)
        x, code = rng.normal(-1.0, 1.0, rows), rng.choice(field, rows)
        label = rng.random(rows) < 1.0 / (1.0 + np.exp(-x - level - offset[code]))
        found[f"{t:03d}"] = Sketch.from_rows(
            1.0 / (1.0 + np.exp(-x)), label, field=[f"v{c}" for c in code], resolution=32
        )
    return found


def log_loss(predictor, sketch):
    p = predictor.predict(sketch.score, sketch.contexts.columns(sketch.context) if predictor.model_.fields else None)
    return (
        -float(sketch.positives @ np.log(p) + (sketch.weight - sketch.positives) @ np.log1p(-p)) / sketch.total_weight
    )


def test_without_period_effects_the_fit_is_that_of_the_sum():
    periods = days(make_world("still", seed=1))
    fitted, plain = (BayesMCNet(isotonic_share=0.0) for _ in range(2))
    fitted.fit_journal(periods)
    plain.fit_sketch(total(periods))
    assert fitted.periods_.tempering == 1.0
    assert fitted.periods_.overdispersion < 3.0
    scores, field = np.linspace(0.02, 0.9, 20), ["v1"] * 20
    assert np.allclose(fitted.predict(scores, field), plain.predict(scores, field), rtol=0.01)


def test_effects_of_periods_widen_the_intervals():
    periods = days(make_world("day-effects", seed=2))
    fitted = BayesMCNet().fit_journal(periods)
    plain = BayesMCNet().fit_sketch(total(periods))
    scores, field = np.array([0.05, 0.2, 0.5]), ["v0"] * 3
    (low, high), (low_0, high_0) = fitted.interval(scores, field), plain.interval(scores, field)
    assert (high - low > 1.5 * (high_0 - low_0)).all()
    assert fitted.periods_.period_sd == pytest.approx(0.5, abs=0.2)
    assert fitted.periods_.value_sd == pytest.approx(0.2, abs=0.12)
    assert fitted.periods_.overdispersion > 10.0


def test_rows_of_a_wandering_world_are_tempered_and_forecast_better_than_platt_scaling():
    losses = []
    for seed in range(3):
        periods = wandering(seed, 80)
        past = dict(list(periods.items())[:40])
        coming = Sketch.merged(list(periods.values())[40:])
        fitted = BayesMCNet().fit_journal(past)
        assert fitted.periods_.tempering > 1.0
        plain, platt = BayesMCNet().fit_sketch(total(past)), Platt().fit_sketch(total(past).pooled())
        losses.append([log_loss(each, coming) for each in (fitted, plain, platt)])
    fitted_loss, plain_loss, platt_loss = np.mean(losses, axis=0)
    assert fitted_loss < plain_loss
    assert fitted_loss < platt_loss + 0.002


def test_the_level_moves_towards_the_base_scores_by_at_most_half_its_error():
    for seed in range(3):
        found = BayesMCNet().fit_journal(wandering(seed)).periods_
        assert abs(found.level_shift) <= 0.5 * found.level_error + 1e-12


def test_a_journal_and_a_mapping_give_the_same_fit_and_the_history_is_saved(tmp_path):
    periods = days(make_world("day-effects", seed=3), 12)
    journal = Journal(tmp_path / "journal")
    for period, sketch in periods.items():
        journal.add(sketch, int(period), source="shop")
    fitted = BayesMCNet().fit_journal(journal)
    assert np.allclose(fitted.predict([0.2], ["v0"]), BayesMCNet().fit_journal(periods).predict([0.2], ["v0"]))
    fitted.save(tmp_path / "model.json")
    model = load(tmp_path / "model.json")
    assert model.provenance["periods"]["number"] == 12
    assert model.provenance["periods"]["overdispersion"] == pytest.approx(fitted.periods_.overdispersion, rel=1e-3)
    assert np.allclose(model.interval([0.2], ["v0"]), fitted.interval([0.2], ["v0"]))
    part = BayesMCNet().fit_journal(journal, since=3, until=10)
    assert part.periods_.periods == 8
    assert (part.periods_.first, part.periods_.last) == ("3", "10")


@pytest.mark.parametrize("method", [name for name in methods() if calibrator(name).extra is None])
def test_every_method_fits_on_periods(method):
    chosen = calibrator(method)
    periods = days(make_world("still", seed=4), 3)
    if chosen.field_use == "none":
        periods = {period: sketch.pooled() for period, sketch in periods.items()}
    chosen.fit_journal(periods)
    again = calibrator(method).fit_sketch(total(periods))
    field = ["v0"] * 3 if chosen.model_.fields else None
    scores = [0.1, 0.3, 0.6]
    assert np.allclose(chosen.predict(scores, field), again.predict(scores, field), rtol=1e-6)
    assert chosen.model_.provenance["periods"]["number"] == 3


def test_one_class_and_few_periods_are_fits_like_any_other():
    rows = Sketch.from_rows([0.1, 0.2, 0.3], [0, 0, 0])
    with pytest.warns(UserWarning, match="every row is negative"):
        fitted = BayesMCNet().fit_journal({"1": rows, "2": rows})
    assert fitted.periods_.tempering == 1.0
    with pytest.raises(InputError, match="no period"):
        BayesMCNet().fit_journal({})
    with pytest.raises(InputError, match=r"mcnet\.Journal"):
        BayesMCNet().fit_journal(rows)


def test_many_periods_are_merged_into_blocks_in_their_order():
    periods = {str(t): Sketch.from_rows([0.1 + 0.002 * t], [t % 2]) for t in range(301)}
    found = period_blocks(periods, most=20)
    assert len(found.blocks) == 19
    assert found.periods == 301
    starts = [float(block.score.min()) for block in found.blocks]
    assert starts == sorted(starts)
    assert found.total == total(periods)


def test_the_error_of_the_level_is_that_of_its_groups():
    rng = np.random.default_rng(0)
    information = np.full(2000, 1e6)
    found = level_error([(level, size) for level, size in zip(rng.normal(0.0, 0.5, 2000), information, strict=True)])
    assert found == pytest.approx(0.25 / 2000, rel=0.1)
    level, size = fitted_level(np.array([-3.0]), np.array([10.0]), np.array([0.0]))
    assert np.isfinite(level)
    assert size > 0.0
