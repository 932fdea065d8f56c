"""The tracker: what it promises whatever the stream, and that it follows simulated worlds."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, logit, xlogy

import mcnet
from mcnet.datasets.worlds import WORLDS, make_world
from mcnet.tracking import memories
from mcnet.tracking.forecast import Forecast
from mcnet.tracking.memories import coarse, fit_expert

SCORES = np.linspace(0.001, 0.999, 97)


def kl(truth, said):
    return 1e4 * float(np.mean(xlogy(truth, truth / said) + xlogy(1 - truth, (1 - truth) / (1 - said))))


def follow(world, periods, tracker=None, **names):
    tracker = tracker or mcnet.Tracker()
    for t in range(periods):
        rows = world.period(t)
        tracker.update(rows.score, rows.label, field={"field": rows.field}, period=t, **names)
    return tracker


@pytest.fixture(scope="module")
def slow():
    return follow(make_world("slow", periods=12, rows=400), 12)


# -- what it promises -------------------------------------------------------------------------------------------------


def test_before_any_label_scores_are_returned_as_they_are():
    tracker = mcnet.Tracker()
    assert tracker.predict(SCORES, field=["NL"] * len(SCORES)).tolist() == SCORES.tolist()
    with pytest.raises(mcnet.NotFittedError, match="no labels yet"):
        tracker.model_  # noqa: B018
    with pytest.raises(mcnet.NotFittedError):
        tracker.explain()
    assert repr(tracker) == "Tracker(no period yet)"


def test_predictions_rise_with_the_score_and_stay_inside_the_unit_interval(slow):
    for value in ("v0", "v7", "never seen"):
        p = slow.predict(SCORES, ["never seen" if value is None else value] * len(SCORES))
        assert (np.diff(p) >= 0).all()
        assert 0.0 < p.min() <= p.max() < 1.0
    assert slow.model_.monotone
    assert slow.model_.curves.largest_drop() == 0.0


def test_the_model_gives_what_the_forecast_says(slow):
    learner = slow._learner
    forecast: Forecast = learner.forecasts[-1]
    scores = np.clip(SCORES, 0.01, 0.9)
    for place, label in enumerate(learner.contexts.labels()):
        which = np.full(len(scores), place)
        exact = forecast.features(learner.contexts, which, logit(scores)) @ forecast.served
        served = slow.model_.predict(scores, [label] * len(scores))
        np.testing.assert_allclose(served, 1 / (1 + np.exp(-exact)), rtol=5e-4)


def test_the_model_is_an_ordinary_one(slow, tmp_path):
    slow.model_.save(tmp_path / "model.json")
    loaded = mcnet.load(tmp_path / "model.json")
    field = ["v1"] * len(SCORES)
    np.testing.assert_array_equal(loaded.predict(SCORES, field), slow.predict(SCORES, field))
    assert loaded.provenance["last_period"] == "11"
    assert slow.plot() is not None


def test_the_order_of_rows_within_a_period_does_not_matter():
    world, rng = make_world("slow", periods=4, rows=300), np.random.default_rng(0)
    one, other = mcnet.Tracker(), mcnet.Tracker()
    for t in range(4):
        rows, order = world.period(t), rng.permutation(300)
        one.update(rows.score, rows.label, field=rows.field, period=t)
        other.update(rows.score[order], rows.label[order], field=rows.field[order], period=t)
    field = ["v0"] * len(SCORES)
    np.testing.assert_allclose(one.predict(SCORES, field), other.predict(SCORES, field), rtol=1e-9)


def test_a_sketch_of_any_resolution_teaches_the_same():
    world = make_world("slow", periods=6, rows=500)
    rows, fine, exact = mcnet.Tracker(), mcnet.Tracker(), mcnet.Tracker()
    for t in range(6):
        part = world.period(t)
        rows.update(part.score, part.label, field=part.field, period=t)
        fine.update_sketch(mcnet.Sketch.from_rows(part.score, part.label, field=part.field), t)
        made = mcnet.Sketch.from_rows(part.score, part.label, field=part.field, resolution="exact", folds=3)
        exact.update_sketch(made, t)
    field = ["v1"] * len(SCORES)
    for other in (fine, exact):
        np.testing.assert_allclose(other.predict(SCORES, field), rows.predict(SCORES, field), rtol=1e-3)


def test_weights_count_as_rows():
    world = make_world("still", periods=3, rows=300)
    twice, weighted = mcnet.Tracker(), mcnet.Tracker()
    for t in range(3):
        part = world.period(t)
        twice.update(np.tile(part.score, 2), np.tile(part.label, 2), period=t)
        weighted.update(part.score, part.label, weight=np.full(300, 2.0), period=t)
    np.testing.assert_allclose(twice.predict(SCORES), weighted.predict(SCORES), rtol=1e-9)


# -- periods ----------------------------------------------------------------------------------------------------------


def test_duplicate_and_earlier_periods_are_refused_and_change_nothing(slow):
    before = slow.predict(SCORES, ["v0"] * len(SCORES))
    with pytest.raises(mcnet.InputError, match="was learnt already"):
        slow.update([0.2], [1], field=["v0"], period=11)
    with pytest.raises(mcnet.InputError, match=r"comes before 11.*Tracker.follow"):
        slow.update([0.2], [1], field=["v0"], period=3)
    with pytest.raises(mcnet.InputError, match="different kinds"):
        slow.update([0.2], [1], field=["v0"], period="2026-11-16")
    with pytest.raises(mcnet.InputError, match="name all periods or none"):
        slow.update([0.2], [1], field=["v0"])
    np.testing.assert_array_equal(slow.predict(SCORES, ["v0"] * len(SCORES)), before)


def test_rows_that_do_not_fit_are_refused_and_change_nothing():
    tracker = mcnet.Tracker().update([0.1, 0.4], [0, 1], field={"country": ["NL", "FR"]}, period=1)
    with pytest.raises(mcnet.InputError, match="fields"):
        tracker.update([0.1], [0], period=2)
    with pytest.raises(mcnet.InputError, match="score type"):
        tracker.update([-2.0, 1.5], [0, 1], field={"country": ["NL", "FR"]}, period=2, score_type="logit")
    assert repr(tracker) == "Tracker(1 period: 1, 2 contexts of country)"
    tracker.update([0.1], [0], field={"country": ["NL"]}, period=2)


def test_a_period_that_cannot_be_learnt_changes_nothing(monkeypatch):
    world, tracker = make_world("slow", periods=4, rows=200, values=2), mcnet.Tracker()
    straight = follow(world, 4)
    follow(world, 3, tracker)
    before = tracker.predict(SCORES, ["v0"] * len(SCORES))

    def fails(*_):
        raise MemoryError

    rows = world.period(3)
    monkeypatch.setattr("mcnet.tracking.learner.Forecast", fails)
    with pytest.raises(MemoryError):
        tracker.update(rows.score, rows.label, field={"field": rows.field}, period=3)
    monkeypatch.undo()
    np.testing.assert_array_equal(tracker.predict(SCORES, ["v0"] * len(SCORES)), before)
    tracker.update(rows.score, rows.label, field={"field": rows.field}, period=3)
    expected = straight.predict(SCORES, ["v0"] * len(SCORES))
    np.testing.assert_allclose(tracker.predict(SCORES, ["v0"] * len(SCORES)), expected, rtol=1e-12)


def test_periods_without_names_follow_each_other():
    tracker = mcnet.Tracker().update([0.1, 0.4], [0, 1]).update([0.1, 0.4], [1, 1])
    assert repr(tracker) == "Tracker(2 periods, no field)"
    with pytest.raises(mcnet.InputError, match="name all periods or none"):
        tracker.update([0.1], [1], period=3)


def test_a_gap_is_the_same_as_periods_without_rows_and_lets_nothing_fade():
    world = make_world("still", periods=6, rows=200)
    gap, empty = mcnet.Tracker(), mcnet.Tracker()
    for t, day in enumerate((1, 2, 3, 8, 9)):
        part = world.period(t)
        for tracker in (gap, empty):
            tracker.update(part.score, part.label, period=f"2026-11-{day:02}")
        for between in range(day + 1, 8) if day == 3 else ():
            empty.update([], [], period=f"2026-11-{between:02}")
    expected = 200 * (1 + 0.25 + 0.25**2 + 0.25**3 + 0.25**4)
    assert gap._learner.memories[0].sketch.total_weight == pytest.approx(expected, rel=1e-4)  # tiny cells are dropped
    np.testing.assert_allclose(gap.predict(SCORES), empty.predict(SCORES), rtol=1e-12)


@pytest.fixture(scope="module")
def trusts_short_memories():
    """A tracker of a world that moves in every period, so that it trusts memories of a few periods."""
    rng = np.random.default_rng(7)
    levels = np.cumsum(rng.normal(0.0, 0.5, 14))
    return moving_rows(rng, mcnet.Tracker(), levels), rng, levels[-1]


def moving_rows(rng, tracker, levels, rows=1500, first=0):
    for t, level in enumerate(levels, first):
        raw, value = rng.normal(-2.5, 1.0, rows), rng.integers(0, 6, rows)
        label = rng.random(rows) < expit(raw + level + 0.2 * value)
        tracker.update(expit(raw), label, field=[f"v{code}" for code in value], period=t)
    return tracker


@pytest.mark.parametrize("gap", [23, 100])
def test_few_rows_after_a_gap_move_no_value_far(trusts_short_memories, tmp_path, gap):
    tracker, rng, level = trusts_short_memories
    scores = expit(np.linspace(-4.5, -0.5, 21))
    weight = tracker.explain().part("weight")
    assert weight["memory 0.5"] + weight["memory 2"] > 0.2
    tracker.save(tmp_path / "state")
    fields = {f"v{code}": [f"v{code}"] * len(scores) for code in range(6)}
    before = {value: tracker.predict(scores, field) for value, field in fields.items()}
    narrow = np.diff(tracker.interval(scores, fields["v0"]), axis=0)
    for rows, limit in ((3, 1.05), (200, 1.25)):
        after = mcnet.Tracker.load(tmp_path / "state")
        for t in range(14, 14 + gap):
            after.update([], [], period=t)
        assert (np.diff(after.interval(scores, fields["v0"]), axis=0) > narrow).all()
        moving_rows(rng, after, [level], rows, first=14 + gap)
        for value, field in fields.items():
            ratio = np.exp(np.abs(logit(after.predict(scores, field)) - logit(before[value])))
            assert ratio.max() < limit


def test_a_memory_without_rows_is_the_next_longer_one(trusts_short_memories):
    learner = trusts_short_memories[0]._learner.copied()
    learner.memories[0] = replace(learner.memories[0], sketch=1e-12 * learner.memories[0].sketch)
    names = [candidate.name for candidate in learner.candidates]
    weights = dict(zip(names, learner._forecast(learner.position).candidates, strict=True))
    np.testing.assert_allclose(weights["memory 0.5"], weights["memory 2"], atol=1e-6)


def test_a_night_with_next_to_no_rows_lets_little_fade(trusts_short_memories):
    learner = trusts_short_memories[0]._learner.copied()
    before = learner.memories[0].sketch.total_weight
    learner.learn(mcnet.Sketch.from_rows([0.1, 0.2], [0, 0], field=["v0", "v1"]), "14")
    assert learner.memories[0].sketch.total_weight > 0.8 * before


def test_a_quiet_night_ages_what_was_known_before_it_as_a_whole_period(trusts_short_memories):
    learner, rng = trusts_short_memories[0]._learner.copied(), np.random.default_rng(0)
    before = learner.memories[0].sketch.total_weight
    night = mcnet.Sketch.from_rows(rng.uniform(0.02, 0.3, 150), np.arange(150) % 10 == 0, field=["v0"] * 150)
    learner.learn(night, "14", look=False)
    assert learner.memories[0].sketch.total_weight == pytest.approx(0.25 * before + 150, rel=1e-6)


def test_a_period_without_rows_changes_nothing_but_the_time(slow):
    tracker = follow(make_world("slow", periods=3, rows=200), 3)
    before = tracker.predict(SCORES, ["v0"] * len(SCORES))
    tracker.update([], [], field=[], period=3)
    np.testing.assert_array_equal(tracker.predict(SCORES, ["v0"] * len(SCORES)), before)
    with pytest.raises(mcnet.InputError, match="was learnt already"):
        tracker.update([0.5], [1], field=["v0"], period=3)


@pytest.mark.parametrize("label", [0, 1])
def test_periods_of_one_class_leave_sensible_curves(label):
    rng = np.random.default_rng(0)
    tracker = mcnet.Tracker()
    for t in range(4):
        score = rng.uniform(0.05, 0.4, 60)
        tracker.update(score, np.full(60, label), field=["a", "b"] * 30, period=t)
        p = tracker.predict(SCORES, ["a"] * len(SCORES))
        assert (np.diff(p) >= 0).all()
        low, high = tracker.interval(SCORES, ["a"] * len(SCORES))
        assert (low <= p).all()
        assert (p <= high).all()
    base, now = 0.2, tracker.predict([0.2], ["a"])[0]
    assert now < base if label == 0 else now > base
    for t in range(4, 10):
        score = rng.uniform(0.05, 0.4, 400)
        tracker.update(score, rng.random(400) < score, field=["a", "b"] * 200, period=t)
    assert tracker.predict([0.2], ["a"])[0] == pytest.approx(0.2, abs=0.1)


def test_one_row_and_a_million_rows():
    rng = np.random.default_rng(1)
    tracker = mcnet.Tracker()
    for t, rows in enumerate((1, 100_000, 3, 0, 20_000, 1, 1, 1)):
        score = rng.uniform(0.02, 0.3, rows)
        tracker.update(score, rng.random(rows) < 0.5 * score, period=t)
    p = tracker.predict([0.05, 0.1, 0.2])
    np.testing.assert_allclose(p, [0.025, 0.05, 0.1], rtol=0.1)


def test_one_score_alone():
    tracker = mcnet.Tracker()
    for t in range(5):
        tracker.update(np.full(200, 0.5), np.arange(200) < 40, period=t)
    assert tracker.predict([0.5])[0] == pytest.approx(0.2, abs=0.05)


# -- fields -----------------------------------------------------------------------------------------------------------


def test_new_field_values_arrive():
    world, tracker = make_world("still", periods=20, rows=600), mcnet.Tracker()
    for t in range(20):
        rows = world.period(t)
        seen = (rows.field != "v0") | (t >= 10)
        if t == 10:
            unseen = tracker.predict(rows.score, rows.field)
            assert np.isfinite(unseen).all()
            assert len(tracker.model_.contexts) == 7
        tracker.update(rows.score[seen], rows.label[seen], field=rows.field[seen], period=t)
    assert len(tracker.model_.contexts) == 8
    rows = world.period(19, draw=3)
    new = rows.field == "v0"
    assert kl(rows.probability[new], tracker.predict(rows.score, rows.field)[new]) < 15.0


def test_several_fields():
    rng = np.random.default_rng(2)
    tracker = mcnet.Tracker()
    for t in range(6):
        score = rng.uniform(0.02, 0.3, 3000)
        country, source = rng.choice(["NL", "FR"], 3000), rng.choice(["a", "b", "c"], 3000)
        truth = score * np.where(country == "NL", 0.6, 1.2) * np.where(source == "a", 0.8, 1.1)
        tracker.update(score, rng.random(3000) < truth, field={"country": country, "source": source}, period=t)
    field = {"country": ["NL", "FR"], "source": ["a", "b"]}
    np.testing.assert_allclose(tracker.predict([0.2, 0.2], field), [0.2 * 0.6 * 0.8, 0.2 * 1.2 * 1.1], rtol=0.12)
    low, high = tracker.interval([0.2, 0.2], field)
    assert (low < tracker.predict([0.2, 0.2], field)).all()
    assert (high > low).all()
    tracker.predict([0.2], {"country": ["ES"], "source": ["a"]})


@pytest.mark.parametrize("values", [8, 45])
def test_rows_get_the_probabilities_of_the_whole_model_with_the_curves_of_their_contexts_alone(values):
    draw = np.random.default_rng(3)
    fields = {name: draw.integers(0, values, 6_000) for name in ("a", "b")}
    score = draw.beta(1.0, 4.0, 6_000)
    tracker = mcnet.Tracker(memories=[8.0])
    tracker.update(score, draw.random(6_000) < expit(logit(score) + 0.1 * (fields["a"] % 3)), field=fields)
    rows = {name: [0, 1, 2, -5, None, 3] for name in fields}
    alone = tracker.predict(score[:6], rows)
    assert "_compiled" not in vars(tracker)
    whole = tracker.model_.predict(score[:6], rows)
    np.testing.assert_allclose(alone, whole, rtol=1e-9)
    np.testing.assert_array_equal(tracker.predict(score[:6], rows), whole)
    tracker.update(score, draw.random(6_000) < score, field=fields)
    for _ in range(len(tracker._learner.served_contexts)):
        tracker.predict(score[:6], rows)
    assert "_compiled" in vars(tracker)


def test_a_fit_of_several_fields_from_the_last_one_is_near_one_afresh():
    rng = np.random.default_rng(4)
    parts = []
    for _ in range(9):
        score, country, source = rng.uniform(0.02, 0.3, 900), rng.choice(["NL", "FR"], 900), rng.integers(0, 400, 900)
        truth = score * np.where(country == "NL", 0.6, 1.2)
        field = {"country": country, "source": source.astype(str)}
        parts.append(coarse(mcnet.Sketch.from_rows(score, rng.random(900) < truth, field=field)))
    before, after = sum(parts[1:8], parts[0]), sum(parts[1:], parts[0])
    start = fit_expert("mcnet-bayes", before, None)
    warm, afresh = (fit_expert("mcnet-bayes", after, earlier) for earlier in (start, None))
    assert not start.fit.combinations  # too few rows for pairs of fields
    assert warm.fit.iterations <= 4
    said = [expert.logits(after.contexts, after.context, after.logit) for expert in (start, warm, afresh)]
    moved, left = (np.sqrt(np.mean((one - said[2]) ** 2)) for one in said[:2])
    assert left < 0.02
    assert left < 0.5 * moved


def test_fits_that_go_on_from_the_last_one_forecast_as_if_they_had_gone_to_the_end(monkeypatch):
    world, said = make_world("slow", seed=3, periods=16, rows=400), []
    rows = world.period(15)
    for gain in (memories.GAIN, 0.0):
        monkeypatch.setattr(memories, "GAIN", gain)
        tracker = follow(world, 15)
        said.append(logit(tracker.predict(rows.score, rows.field)))
    low, high = (logit(end) for end in tracker.interval(rows.score, rows.field))
    assert np.abs(said[0] - said[1]).max() < 0.02 * np.min(high - low)


def one_value_drops(rng, tracker, periods, drops_at, by=-1.0, rows=2500):
    """Ten cities of three regions; the rows of Utrecht, and so of the region that has no other city, drop."""
    for t in range(periods):
        raw, city = rng.normal(-2.0, 1.0, rows), rng.integers(0, 10, rows)
        truth = expit(0.8 * raw + np.where((city == 0) & (t >= drops_at), by, 0.0))
        field = {
            "city": np.array(["Utrecht", *(f"c{code}" for code in range(1, 10))])[city],
            "region": np.array(["UT", *["other"] * 4, *["south"] * 5])[city],
        }
        tracker.update(expit(raw), rng.random(rows) < truth, field=field, period=t)
    return tracker


@pytest.fixture(scope="module")
def dropped():
    return one_value_drops(np.random.default_rng(11), mcnet.Tracker(), periods=18, drops_at=14)


def test_a_value_that_drops_is_followed_by_itself_and_only_it(dropped):
    raw = np.linspace(-3.5, -0.5, 21)
    for city, region, by in (("Utrecht", "UT", -1.0), ("c1", "other", 0.0), ("c7", "south", 0.0)):
        field = {"city": [city] * 21, "region": [region] * 21}
        error = np.log(dropped.predict(expit(raw), field).sum() / expit(0.8 * raw + by).sum())
        assert abs(error) < (0.3 if by else 0.1)


def test_of_values_that_always_occur_together_the_coarser_field_takes_the_change(dropped):
    moving = dropped.explain().values.filter(pl.col("since").is_not_null())
    assert moving.select("field", "value", "since", "same_as").rows() == [("region", "UT", "14", "city=Utrecht")]
    (row,) = moving.to_dicts()
    assert row["low"] < row["offset"] < row["high"]
    assert row["offset"] < -0.4
    assert row["memory"] < dropped.explain().values.filter(pl.col("value") == "south")["memory"][0]
    assert "region=UT since 14 by -" in str(dropped.explain())
    assert "cannot be told apart" in str(dropped.explain())


def test_the_intervals_of_a_value_that_moves_by_itself_are_wider(dropped):
    widths = [
        np.ptp(logit(dropped.interval([0.1], {"city": [city], "region": [region]})))
        for city, region in (("Utrecht", "UT"), ("c1", "other"))
    ]
    assert widths[0] > widths[1]


@pytest.mark.parametrize("delay", [0, 3])
def test_what_everything_learns_of_a_change_is_not_counted_twice(delay):
    raw, share = np.linspace(-4.0, 0.0, 21), np.array([0.25, *[0.075] * 10])
    tracker, values = mcnet.Tracker(delay=delay), [f"v{code}" for code in range(11)]
    score, field = np.tile(expit(raw), 22), np.tile(np.repeat(values, 21), 2)
    for t in range(28):
        truth = expit(raw + np.array([-0.8 if t >= 10 else 0.0, *[0.0] * 10])[:, None])
        weight = 3000.0 * share[:, None] / 21.0 * np.stack([truth, 1.0 - truth])  # no noise
        tracker.update(score, np.repeat([1.0, 0.0], 231), field=field, weight=weight.ravel(), period=t)
    said = tracker.predict(expit(raw), ["v0"] * 21).sum()
    assert np.log(said / expit(raw - 0.8).sum()) == pytest.approx(0.0, abs=0.03)


def test_a_common_jump_is_no_change_of_a_value():
    tracker = moving_rows(np.random.default_rng(3), mcnet.Tracker(), [0.0] * 8 + [-0.8] * 3)
    assert tracker.explain().values["since"].null_count() == 6


def test_few_positives_of_a_small_value_are_no_change():
    rng, tracker = np.random.default_rng(5), mcnet.Tracker()
    for t in range(20):
        raw, value = rng.normal(-3.2, 1.0, 1200), rng.integers(0, 40, 1200)
        tracker.update(expit(raw), rng.random(1200) < expit(raw), field=[f"v{code}" for code in value], period=t)
    assert tracker.explain().values["since"].null_count() == 40


@pytest.mark.parametrize("method", ["platt-field", "platt", "isotonic"])
def test_other_methods_follow_as_well(method):
    world = make_world("jump", periods=16, rows=800, jump_at=8)
    tracker = mcnet.Tracker(method=method, memories=[1, 4])
    for t in range(16):
        rows = world.period(t)
        tracker.update(rows.score, rows.label, field=rows.field, period=t)
    field = None if method != "platt-field" else ["v0"] * len(SCORES)
    p = tracker.predict(SCORES, field)
    assert (np.diff(p) >= 0).all()
    with pytest.warns(mcnet.CalibrationWarning, match="not the uncertainty of its curves"):
        low, high = tracker.interval(SCORES, field)
    assert (low <= p).all()
    assert (p <= high).all()


def test_parameters_that_cannot_be_used_are_refused():
    with pytest.raises(mcnet.InputError, match="order of scores"):
        mcnet.Tracker(method="histogram")
    with pytest.raises(mcnet.InputError, match="half-lives"):
        mcnet.Tracker(memories=[0.0, 2.0])
    with pytest.raises(mcnet.InputError, match="delay"):
        mcnet.Tracker(delay=-1)


# -- worlds -----------------------------------------------------------------------------------------------------------


def test_in_a_still_world_it_is_as_good_as_a_static_fit():
    gained = []
    for seed in range(3):
        world, tracker = make_world("still", seed, periods=30, rows=600), mcnet.Tracker()
        for t in range(30):
            rows = world.period(t)
            if t >= 20 and t % 3 == 0:
                fresh = world.with_rows(3000).period(t, draw=7)
                static = mcnet.BayesMCNet(isotonic_share=0.0).fit_sketch(tracker._learner.everything.sketch)
                said = [kl(fresh.probability, one.predict(fresh.score, fresh.field)) for one in (tracker, static)]
                gained.append(said)
            tracker.update(rows.score, rows.label, field=rows.field, period=t)
    ours, static = np.mean(gained, axis=0)
    assert ours < 1.1 * static


@pytest.mark.parametrize("change", [-1.0, 1.0])
def test_three_periods_after_a_change_the_level_is_that_of_these_periods(change):
    raw, tracker = np.linspace(-5.5, -0.5, 101), mcnet.Tracker()
    share = np.exp(-0.5 * (raw + 3.0) ** 2)
    share *= 4_000.0 / share.sum()
    for period in range(15):
        truth = expit(raw + change * (period >= 12))
        weight = np.concatenate([share * truth, share * (1.0 - truth)])  # as many positives as expected: no noise
        tracker.update(expit(np.tile(raw, 2)), np.repeat([1, 0], 101), weight=weight, period=period)
    assert abs(np.log(share @ tracker.predict(expit(raw)) / (share @ truth))) < 0.05


def test_after_a_jump_it_is_soon_as_good_as_an_oracle():
    found = []
    for seed in range(2):
        world, tracker, oracle = make_world("jump", seed, periods=26, rows=1000, jump_at=20), mcnet.Tracker(), []
        for t in range(26):
            rows = world.period(t)
            if t == 25:
                fresh = world.with_rows(4000).period(t, draw=7)
                alone = mcnet.BayesMCNet().fit_sketch(mcnet.Sketch.merged(oracle))
                found.append([kl(fresh.probability, one.predict(fresh.score, fresh.field)) for one in (tracker, alone)])
            tracker.update(rows.score, rows.label, field=rows.field, period=t)
            if t >= 20:
                oracle.append(mcnet.Sketch.from_rows(rows.score, rows.label, field=rows.field))
    ours, alone = np.mean(found, axis=0)
    assert ours < 1.1 * alone


def test_a_delay_is_judged_at_its_horizon():
    world = make_world("fast", periods=40, rows=400)
    beliefs = []
    for delay in (0, 3):
        tracker = mcnet.Tracker(delay=delay)
        for t in range(40):
            rows = world.period(t)
            tracker.update(rows.score, rows.label, field=rows.field, period=t)
            waiting = [forecast.position for forecast in tracker._learner.forecasts]
            assert len(waiting) <= delay + 2
            if delay and t > delay:
                assert waiting[0] == t - delay  # the last that can be known when t + 1 is predicted
        memory = tracker.explain().part("memory")
        beliefs.append(memory["slope and shape"])
    assert beliefs[1] > beliefs[0]  # what changes fast is of less use later


@pytest.mark.parametrize("name", WORLDS)
def test_every_world_can_be_followed(name):
    world = make_world(name, seed=3, periods=6, rows=200, values=4)
    tracker = follow(world, 6)
    p = tracker.predict(SCORES, field={"field": ["v0"] * len(SCORES)})
    assert (np.diff(p) >= 0).all()


@pytest.mark.parametrize("name", ["day-effects", "slow"])
def test_intervals_cover_the_coming_period_of_a_drifting_world(name):
    world = make_world(name, seed=5, periods=60, rows=800, values=4)
    tracker, inside = mcnet.Tracker(), []
    for t in range(60):
        rows = world.period(t)
        if t >= 20 and t % 2 == 0:
            low, high = tracker.interval(rows.score, {"field": rows.field}, level=0.9)
            assert (low <= high).all()
            inside.append(np.mean((low <= rows.probability) & (rows.probability <= high)))
        tracker.update(rows.score, rows.label, field={"field": rows.field}, period=t)
    assert 0.8 < np.mean(inside) <= 0.99


# -- bounded state, explanation ---------------------------------------------------------------------------------------


def test_the_state_does_not_grow_with_time(tmp_path):
    world, tracker, sizes = make_world("day-effects", periods=160, rows=60, values=3), mcnet.Tracker(), {}
    for t in range(160):
        rows = world.period(t)
        # Every tenth period has a field value that never comes back.
        field = np.where(np.arange(60) == 0, f"only {t % 10}", rows.field) if t % 10 == 0 else rows.field
        tracker.update(rows.score, rows.label, field=field, period=t)
        if t in (79, 159):
            tracker.save(tmp_path / "state")
            cells = [len(memory.sketch) for memory in tracker._learner.memories[:3]]
            sizes[t] = sum(cells), sum(path.stat().st_size for path in (tmp_path / "state").iterdir())
    assert sizes[159][0] < 1.3 * sizes[79][0]
    assert sizes[159][1] < 1.7 * sizes[79][1]  # one memory more, and cells of everything
    assert len(tracker._learner.memories) == 6
    assert len(tracker._learner.everything.sketch.sources) == 0


def test_an_explanation_says_what_is_believed(slow):
    explanation = slow.explain()
    assert explanation.table.columns == ["part", "name", "value", "before"]
    belief = explanation.part("belief")
    assert sum(belief.values()) == pytest.approx(1.0)
    assert set(belief) == {*explanation.part("weight"), "stack", "level since a change"}
    assert set(belief) >= {"everything", "base scores", "memory 0.5"}
    assert set(explanation.part("change")) == {f"v{code}" for code in range(8)}
    assert explanation.part("period effects")["rows per independent row"] >= 1.0
    figure = explanation.plot()
    assert list(figure.data[0].x) == list(explanation.part("weight"))
    assert "mean age" in str(explanation)
    assert "mean age" in explanation._repr_html_()
    assert "count as one" in explanation._repr_html_()
    assert "></td>" not in explanation._repr_html_()


def test_a_period_may_have_its_fields_in_another_order(tmp_path):
    rng = np.random.default_rng(4)
    country, device = rng.choice(["NL", "FR"], 4_000), rng.choice(["tv", "phone", "NL"], 4_000)
    score = rng.uniform(0.05, 0.5, 4_000)
    label = rng.random(4_000) < score * np.where(country == "NL", 0.5, 1.0)
    sketch = mcnet.Sketch.from_rows(score, label, field={"country": country, "device": device})
    turned = sketch.only("device", "country")
    alike, mixed = mcnet.Tracker(), mcnet.Tracker()
    for tracker, second in ((alike, sketch), (mixed, turned)):
        tracker.update_sketch(sketch, period=1)
        tracker.update_sketch(second, period=2)
    rows = {"country": country, "device": device}
    np.testing.assert_allclose(mixed.predict(score, rows), alike.predict(score, rows), rtol=1e-9)
    journal = mcnet.Journal(tmp_path / "journal")
    journal.add(sketch, period=1, source="a")
    journal.add(turned, period=2, source="b")
    assert [found for _, found in journal.sketches()] == [sketch, sketch]
    assert journal.add(turned, period=1, source="a").known == ("1",)  # the same rows
    warm = mcnet.BayesMCNet(warm_start=True).fit_sketch(sketch)
    np.testing.assert_allclose(
        warm.fit_sketch(turned).model_.predict(score, rows),
        mcnet.BayesMCNet().fit_sketch(sketch).model_.predict(score, rows),
        rtol=1e-2,
    )
