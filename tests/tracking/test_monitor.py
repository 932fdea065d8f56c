"""The monitor: few false alarms whatever is looked at, and real miscalibration found and described."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from mcnet.calibrators.parametric import Platt
from mcnet.errors import FileFormatError, InputError
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.evidence import NULLS_KEPT, Evidence, log_likelihoods, period_likelihoods, shift_interval
from mcnet.tracking.monitor import SHARES, Monitor, ServedPcoc, upper_half


def counts(rng, positives=1000, effect=0.0, ratio=1.0, cells=6):
    """Return (probability, weight, positives) of a day whose rate is `ratio` times what was predicted."""
    p = np.linspace(0.005, 0.05, cells)
    w = np.round(np.full(cells, positives / p.sum()))
    odds = p / (1.0 - p) * np.exp(effect * rng.standard_normal()) * ratio
    return p, w, rng.binomial(w.astype(int), odds / (1.0 + odds)).astype(float)


def sums_of(p, w, y):
    return [y.sum(), (p * w).sum(), (w * p * (1.0 - p)).sum()]


def likelihood(p, w, y):
    return period_likelihoods(np.array([sums_of(p, w, y)]))[0]


def days(seed, number, **world):
    rng = np.random.default_rng(seed)
    return [likelihood(*counts(rng, **world)) for _ in range(number)]


@pytest.mark.parametrize("effect", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("positives", [3, 50, 2000])
def test_the_marginal_likelihood_is_the_integral_over_effects(effect, positives):
    p, w, y = counts(np.random.default_rng(1), positives=positives)

    def density(u):
        return np.exp(y.sum() * u - w @ np.log1p(p * np.expm1(u))) * norm.pdf(u, 0.02, effect)

    width = 12 * effect
    exact = np.log(quad(density, 0.02 - width, 0.02 + width, points=[0.0, 0.02], limit=500)[0])
    found = log_likelihoods(np.array([sums_of(p, w, y)]), np.array([0.02]), np.array([effect]))
    assert found[0, 0, 0] == pytest.approx(exact, abs=0.03)


@pytest.mark.parametrize("rates", [(0.005, 0.05), (0.02, 0.73)])
@pytest.mark.parametrize("shift", [-0.1, 0.02, 0.1])
def test_without_an_effect_it_is_the_likelihood_ratio(shift, rates):
    p = np.linspace(*rates, 12)
    w = np.full(12, 500.0)
    odds = p / (1 - p) * np.exp(shift)
    q = odds / (1 + odds)
    y = np.random.default_rng(2).binomial(500, q).astype(float)
    exact = y @ np.log(q / p) + (w - y) @ np.log((1 - q) / (1 - p))
    found = log_likelihoods(np.array([sums_of(p, w, y)]), np.array([shift]), np.zeros(1))[0, 0]
    assert found[0] == pytest.approx(exact, abs=0.03)


def test_groups_together_are_as_groups_alone():
    rng = np.random.default_rng(11)
    sums = np.array([sums_of(*counts(rng)) for _ in range(3)])
    for found, alone in zip(period_likelihoods(sums), sums, strict=True):
        np.testing.assert_allclose(found, period_likelihoods(alone[None])[0], atol=1e-9)


def test_many_hypotheses_together_are_as_each_alone():
    worlds = [days(seed, 6, ratio=0.9) for seed in range(3)]
    together = Evidence.of_many(3)
    for place, day in enumerate(zip(*worlds, strict=True)):
        together.learn(np.array(day)) if place < 2 else together.update(np.array(day))
    for world, value, began in zip(worlds, together.log_value, together.began, strict=True):
        alone = Evidence()
        for place, day in enumerate(world):
            alone.learn(day) if place < 2 else alone.update(day)
        assert value == pytest.approx(float(alone.log_value))
        assert (began == alone.began).all()


def test_the_interval_of_an_alarm_contains_the_truth():
    rng, inside = np.random.default_rng(12), []
    for _ in range(40):
        monitor = Monitor(alpha=0.5, period_effects=0)
        score = rng.uniform(0.01, 0.3, 4000)
        monitor.update(Sketch.from_rows(score, rng.random(4000) < 0.8 * score), 1)
        found = monitor.table().row(0, named=True)
        inside.append(found["pcoc_low"] <= 1.25 <= found["pcoc_high"])
    assert np.mean(inside) >= 0.8


@pytest.mark.parametrize("effect", [0.0, 0.15])
def test_calibrated_days_raise_no_alarm(effect):
    worst = []
    for seed in range(20):
        evidence = Evidence()
        values = []
        for day in days(seed, 60, effect=effect):
            evidence.update(day)
            values.append(evidence.log_value)
        worst.append(max(values))
    # At most one in ten of calibrated worlds may ever reach log 10; 20 worlds.
    assert np.mean(np.array(worst) > np.log(10.0)) <= 0.15


def test_an_expected_e_value_is_at_most_one():
    values = []
    for seed in range(300):
        evidence = Evidence(0.0)
        for day in days(seed, 3):
            evidence.update(day)
        values.append(np.exp(evidence.log_value))
    assert np.mean(values) <= 1.0 + 4.0 * np.std(values) / np.sqrt(len(values))


@pytest.mark.parametrize(("ratio", "most"), [(1 / 1.1, 4), (1 / 1.05, 14)])
def test_over_prediction_is_found_in_time(ratio, most):
    needed = []
    for seed in range(15):
        evidence = Evidence()
        for day in days(seed, 60):
            evidence.learn(day)
        for day in days(1000 + seed, 40, ratio=ratio):
            evidence.update(day)
            if evidence.log_value >= np.log(100 / SHARES["level"]):
                break
        needed.append(evidence.periods)
    assert np.median(needed) <= most


def sketch_of(rng, rows=8000, ratio=None, effect=0.0):
    score, field = rng.uniform(0.01, 0.3, rows), rng.choice(["NL", "FR", "DE"], rows)
    truth = score * np.exp(effect * rng.standard_normal())
    if ratio is not None:
        truth = np.where(field == "FR", ratio * truth, truth)
    return Sketch.from_rows(score, rng.random(rows) < truth, field={"country": field})


def test_one_field_value_is_found_and_described():
    rng = np.random.default_rng(3)
    monitor = Monitor(alpha=0.01)
    for day in range(30):
        monitor.learn(sketch_of(rng), day)
    for day in range(30, 60):
        assert not monitor.update(sketch_of(rng), day)
    for day in range(60, 90):
        monitor.update(sketch_of(rng, ratio=0.6), day)
    found = next(alarm for alarm in monitor.alarms if alarm.what == "country=FR")
    assert 57 <= int(found.since) <= 62
    assert found.pcoc == pytest.approx(1 / 0.6, rel=0.1)
    assert "over-predicted since" in found.advice()
    assert not [alarm for alarm in monitor.alarms if alarm.what in ("country=NL", "country=DE")]
    assert set(monitor.table()["what"]) == {"level", "slope", "country=NL", "country=FR", "country=DE"}


def test_a_wrong_slope_is_found():
    rng = np.random.default_rng(4)
    monitor = Monitor()
    for day in range(25):
        score = rng.uniform(0.01, 0.5, 8000)
        logits = np.log(score / (1 - score))
        truth = 1 / (1 + np.exp(-(0.6 * logits - 0.5)))
        monitor.update(Sketch.from_rows(score, rng.random(8000) < truth), day)
    found = next(alarm for alarm in monitor.alarms if alarm.what == "slope")
    assert found.advice().startswith("high scores are over-predicted beside low ones since")


def test_scores_that_are_all_alike_have_no_slope():
    monitor = Monitor()
    monitor.update(Sketch.from_rows(np.full(50, 0.2), np.arange(50) % 5 == 0), 1)
    assert monitor.table()["what"].to_list() == ["level"]


@pytest.mark.parametrize("shift", [-1.5, 0.0, 0.7])
def test_a_shift_of_all_logits_is_no_slope(shift):
    logits = np.linspace(-4.0, 1.0, 40)
    score, weight = expit(logits), np.full(40, 150.0)
    expected, told = expit(logits + shift) * weight, []
    for positives in (expected, expit(0.8 * (logits + 1.0) + shift) * weight):
        found = upper_half(score, weight, positives)
        told.append((found[0] - found[1]) / np.sqrt(found[2]))
    assert told[0] == pytest.approx(0.0, abs=1e-6)
    assert abs(told[1]) > 2.0


def test_period_effects_raise_no_alarm_of_the_slope():
    rng, worlds = np.random.default_rng(6), 20
    logits, weight, worst = np.linspace(-4.0, 1.0, 40), np.full(40, 150.0), []
    for effect in (0.5, 1.0):
        evidence, highest = Evidence.of_many(worlds), np.full(worlds, -np.inf)
        for _ in range(40):
            truth = expit(logits + effect * rng.standard_normal((worlds, 1)))
            labels = rng.binomial(150, truth).astype(float)
            sums = np.array([upper_half(expit(logits), weight, one) for one in labels])
            evidence.update(period_likelihoods(sums[:, :3]))
            highest = np.maximum(highest, evidence.log_value)
        worst.append(np.mean(highest > np.log(10.0)))
    assert max(worst) <= 0.15, "at most one in ten may ever reach log 10"


def test_a_model_is_judged_by_its_probabilities():
    rng = np.random.default_rng(5)
    score = rng.uniform(0.01, 0.3, 50_000)
    label = rng.random(50_000) < 0.5 * score
    model = Platt().fit(score, label)
    raw, served = Monitor(), Monitor()
    for day in range(8):
        part = slice(day * 6000, (day + 1) * 6000)
        sketch = Sketch.from_rows(score[part], label[part])
        raw.update(sketch, day)
        served.update(sketch, day, model)
    assert raw.alarms
    assert not served.alarms


def test_a_monitor_survives_saving(tmp_path):
    rng = np.random.default_rng(6)
    monitor = Monitor(alpha=0.05, period_effects=0.1)
    for day in range(5):
        monitor.update(sketch_of(rng, ratio=0.5), day)
    monitor.save(tmp_path / "monitor.json")
    loaded = Monitor.load(tmp_path / "monitor.json")
    more = sketch_of(rng, ratio=0.5)
    monitor.update(more, 5)
    loaded.update(more, 5)
    assert loaded.alarms == monitor.alarms
    assert loaded.table().equals(monitor.table())
    text = (tmp_path / "monitor.json").read_text()
    (tmp_path / "monitor.json").write_text(text.replace('"alpha": 0.05', '"alpha": 0.06'))
    with pytest.raises(FileFormatError, match="was altered: its checksum does not fit"):
        Monitor.load(tmp_path / "monitor.json")
    (tmp_path / "monitor.json").write_text('{"format": "mcnet monitor"}')
    with pytest.raises(FileFormatError, match="cannot be read as a monitor"):
        Monitor.load(tmp_path / "monitor.json")


def test_the_state_does_not_grow_with_periods(tmp_path):
    rng = np.random.default_rng(7)
    monitor = Monitor()
    sizes = []
    for day in range(40):
        monitor.update(sketch_of(rng, rows=500), day)
        monitor.save(tmp_path / "monitor.json")
        sizes.append((tmp_path / "monitor.json").stat().st_size)
    assert sizes[-1] < 1.3 * sizes[5]


def test_periods_must_follow_each_other():
    rng = np.random.default_rng(8)
    monitor = Monitor()
    monitor.update(sketch_of(rng), 5)
    for period in (5, 4):
        with pytest.raises(InputError, match="does not come after 5"):
            monitor.update(sketch_of(rng), period)


@pytest.mark.parametrize("given", [{"alpha": 0}, {"alpha": 1.5}, {"period_effects": -1}, {"period_effects": "no"}])
def test_what_cannot_be_used_is_refused(given):
    with pytest.raises(InputError, match=next(iter(given))):
        Monitor(**given)


def test_the_largest_values_get_most_of_alpha_whatever_their_field():
    rng = np.random.default_rng(8)
    field = {
        "airport": rng.choice([f"A{place}" for place in range(50)], 4000),
        "device": rng.choice(["mobile", "desk"], 4000, p=[0.9, 0.1]),
    }
    monitor = Monitor()
    monitor.update(Sketch.from_rows(rng.uniform(0.1, 0.3, 4000), rng.random(4000) < 0.2, field=field), 1)
    shares = {what: watched.share for what, watched in monitor._watched.items() if "=" in what}
    assert list(shares)[:2] == ["device=mobile", "device=desk"]
    assert shares["device=mobile"] == max(shares.values())


@pytest.mark.parametrize(("reference", "most"), [(0, 5), (10, 3)])
def test_the_end_of_all_positives_is_found_at_once_and_named_rightly(reference, most):
    rng = np.random.default_rng(9)
    monitor = Monitor()
    for day in range(-reference, 8):
        score = rng.uniform(0.05, 0.3, 3000)
        label = np.zeros(3000) if day >= 0 else rng.random(3000) < score
        sketch = Sketch.from_rows(score, label)
        if day < 0:
            monitor.learn(sketch, day)
        elif monitor.update(sketch, day):
            break
    assert day < most
    (alarm,) = monitor.alarms
    assert (alarm.what, alarm.pcoc) == ("level", np.inf)
    assert "over-predicted" in alarm.advice()


# -- wild periods -----------------------------------------------------------------------------------------------------

WILD_RATES = np.linspace(0.005, 0.05, 6)


def wild_hours(rng, worlds, effect, positives=300, shift=0.0, broken=None):
    """Return what the evidence asks of one hour in each world; `broken` ones have lost all positives."""
    rows = np.round(np.full(len(WILD_RATES), positives / WILD_RATES.sum()))
    odds = WILD_RATES / (1.0 - WILD_RATES) * np.exp(effect[:, None] + shift)
    found = rng.binomial(rows.astype(int), odds / (1.0 + odds)).astype(float)
    if broken is not None:
        found[broken] = 0.0
    expected, information = rows @ WILD_RATES, rows @ (WILD_RATES * (1.0 - WILD_RATES))
    sums = np.column_stack([found.sum(axis=1), np.full(worlds, expected), np.full(worlds, information)])
    return period_likelihoods(sums)


def test_heavy_tailed_effects_and_a_broken_hour_raise_no_false_alarms():
    rng, worlds = np.random.default_rng(5), 100
    evidence, broken = Evidence.of_many(worlds), rng.integers(5, 35, worlds)
    highest = np.full(worlds, -np.inf)
    for hour in range(40):
        evidence.update(wild_hours(rng, worlds, 0.1 * rng.standard_t(3, worlds), broken=broken == hour))
        highest = np.maximum(highest, evidence.log_value)
    assert np.mean(highest >= np.log(1.0 / 0.01)) <= 0.02


def test_a_drift_is_found_within_two_hours_also_after_a_broken_one():
    rng, worlds = np.random.default_rng(6), 50
    evidence = Evidence.of_many(worlds)
    for _ in range(30):
        evidence.learn(wild_hours(rng, worlds, 0.02 * rng.normal(size=worlds)))
    evidence.update(wild_hours(rng, worlds, np.zeros(worlds), broken=np.ones(worlds, dtype=bool)))
    for _ in range(2):
        evidence.update(wild_hours(rng, worlds, 0.02 * rng.normal(size=worlds), shift=-np.log(1.66)))
    share_of_largest_value = 0.23 / 2
    assert np.mean(evidence.log_value >= np.log(1.0 / 0.01 / share_of_largest_value)) >= 0.95


# -- the confidence sequence since a version is served ----------------------------------------------------------------


@pytest.mark.parametrize(("positives", "effect", "shift"), [(60, 0.1, 0.0), (400, 0.0, -0.2), (8, 0.3, 0.4)])
def test_the_sequence_includes_the_true_shift_in_all_periods_at_once(positives, effect, shift):
    rng, missed, widths = np.random.default_rng(13), 0, []
    for _ in range(20):
        evidence = Evidence()
        for _ in range(12):
            evidence.learn(likelihood(*counts(rng, positives, effect)))
        seen, inside = [], True
        for _ in range(4):
            seen.append(sums_of(*counts(rng, positives, effect, np.exp(shift))))
            _, low, high = shift_interval(np.array(seen), evidence.null[:, NULLS_KEPT])
            inside &= low <= shift <= high
        missed += not inside
        widths.append(high - low)
    assert missed <= 2, "1 in 20 streams may be missed; in 20 streams more than 2 are in 8 % of cases at most"
    assert np.median(widths) < 12.0 * np.sqrt(1.0 / positives + effect**2) / np.sqrt(4.0)


def test_a_broken_period_before_the_version_does_not_widen_the_sequence():
    widths = {}
    for broken in (False, True):
        rng, evidence = np.random.default_rng(14), Evidence()
        for number in range(25):
            p, w, y = counts(rng, 300, 0.05)
            evidence.learn(likelihood(p, w, 0.0 * y if broken and number == 10 else y))
        _, low, high = shift_interval(np.array([sums_of(*counts(rng, 300, 0.05))]), evidence.null[:, NULLS_KEPT])
        widths[broken] = high - low
    assert widths[True] < 1.3 * widths[False]


def test_what_is_served_is_described_and_begins_anew_with_each_version(tmp_path):
    rng, monitor = np.random.default_rng(15), Monitor()
    for day in range(10):
        monitor.learn(sketch_of(rng), day)
    for day in range(10, 13):
        monitor.update(sketch_of(rng, ratio=0.6), day, version="1")
    (found,) = monitor.served(["country=FR"])
    assert (found.since, found.low < 1 / 0.6 < found.high, found.low > 1.0) == ("10", True, True)
    assert str(found).startswith("country=FR over-predicted by ")
    assert str(found).endswith("), since 10")
    monitor.save(tmp_path / "monitor.json")
    assert Monitor.load(tmp_path / "monitor.json").served() == monitor.served()
    monitor.update(sketch_of(rng), 13, version="2")
    assert {one.since for one in monitor.served()} == {"13"}
    assert {one.what for one in monitor.served()} == {"level", "country=NL", "country=FR", "country=DE"}


@pytest.mark.parametrize("without_positives", [1, 2, 5])
def test_the_interval_includes_its_estimate_also_after_hours_without_positives(without_positives):
    rng, monitor = np.random.default_rng(17), Monitor()
    for hour in range(12):
        monitor.learn(sketch_of(rng), hour)
    for hour in range(12, 20):
        rows = sketch_of(rng, ratio=0.0) if hour < 12 + without_positives else sketch_of(rng)
        monitor.update(rows, hour, version="1")
        assert all(one.low <= one.pcoc <= one.high for one in monitor.served())


def test_over_and_under_prediction_in_words():
    assert str(ServedPcoc("country=NL", "2026-11-16T13:00", 1.12, 1.08, 1.16)) == (
        "country=NL over-predicted by 12 % (8 … 16), since 2026-11-16T13:00"
    )
    assert "all rows under-predicted by 10 % (6 … 14)" in str(ServedPcoc("level", "7", 0.9, 0.86, 0.94))
    assert str(ServedPcoc("level", "7", 1.01, 0.9, 1.1)) == "all rows: PCOC 1.01 (0.9 … 1.1), since 7"
    assert "inf" in str(ServedPcoc("level", "7", np.inf, 3.0, np.inf))


def test_advice_fits_what_keeps_the_loop_from_publishing():
    rng, monitor = np.random.default_rng(16), Monitor(period_effects=0)
    monitor.update(sketch_of(rng, ratio=0.5), 1)
    alarm = monitor.alarms[0]
    assert "publish" in alarm.advice()
    assert "publish" not in alarm.advice(tracked=True)
    assert alarm.advice(tracked=True, kept="it is held").endswith("but publishes nothing: it is held")
