"""The backtest: against refits from rows, with delays and gaps."""

import json

import numpy as np
import polars as pl
import pytest

import mcnet
from mcnet.tracking.backtest_result import block_bootstrap

COLUMNS = {"score": "pctr", "label": "click", "time": "ts", "every": "1d"}


def make_log(days: int = 8, rows: int = 400, seed: int = 0, skipped: tuple[int, ...] = ()) -> pl.DataFrame:
    """Return days whose level drifts; scores lie on few values, so that cells are exactly rows."""
    rng = np.random.default_rng(seed)
    parts = []
    for day in range(days):
        if day in skipped:
            continue
        pctr = rng.choice(np.linspace(0.05, 0.6, 12), rows)
        country = rng.choice(["NL", "FR", "DE"], rows)
        truth = 1.0 / (1.0 + np.exp(-(np.log(pctr / (1.0 - pctr)) + 0.15 * day - 0.5 * (country == "FR"))))
        click = rng.random(rows) < truth
        moment = np.datetime64("2026-11-01T00:00:00") + rng.integers(86_400 * day, 86_400 * (day + 1), rows).astype(
            "timedelta64[s]"
        )
        columns = {"pctr": pctr, "click": click.astype(int), "country": country, "ts": moment.astype("datetime64[us]")}
        parts.append(pl.DataFrame(columns))
    return pl.concat(parts)


class Platt:
    """A stand-in for the tracker: Platt scaling on everything so far."""

    def __init__(self):
        self.total, self.seen = None, []

    def update_sketch(self, sketch, period=None):
        self.seen.append(period)
        self.total = sketch.pooled() if self.total is None else self.total + sketch.pooled()

    def predict(self, scores, field=None):
        return mcnet.Platt().fit_sketch(self.total).predict(scores)


def days_of(log: pl.DataFrame) -> list[pl.DataFrame]:
    return log.with_columns(day=pl.col("ts").dt.date()).sort("ts").partition_by("day", maintain_order=True)


def loss(p, y):
    return float(np.mean(-np.where(y == 1, np.log(p), np.log1p(-p))))


def run(log, **words):
    words = {"tracker": Platt, "methods": ["platt"], "memories": [2], **words}
    return mcnet.backtest(log, field="country", **COLUMNS, **words)


@pytest.mark.filterwarnings("ignore::mcnet.CalibrationWarning")
@pytest.mark.parametrize("delay", [0, 2])
@pytest.mark.parametrize("memory", [1.5, "everything", "once"])
def test_each_period_is_predicted_as_by_a_refit_from_the_rows_known_then(memory, delay):
    log = make_log(skipped=(4,))
    found = run(log, memories=[memory], delay=delay, methods=["platt-field"], since="2026-11-03")
    parts = days_of(log)
    places = [0, 1, 2, 3, 5, 6, 7]
    expected = {}
    for now, today in zip(places, parts, strict=True):
        known = [(place, part) for place, part in zip(places, parts, strict=True) if now - place >= 1 + delay]
        if now < 2:
            continue
        if not known:
            expected[str(today["day"][0])] = loss(today["pctr"].to_numpy(), today["click"].to_numpy())
            continue
        last = known[-1][0]
        if memory == "once":
            known = known[:2]
        weights = [0.5 ** ((last - place) / memory) if memory == 1.5 else 1.0 for place, _ in known]
        rows = pl.concat([part for _, part in known])
        weight = np.concatenate([np.full(len(part), w) for w, (_, part) in zip(weights, known, strict=True)])
        fitted = mcnet.PlattField().fit(rows["pctr"], rows["click"], field={"country": rows["country"]}, weight=weight)
        p = fitted.predict(today["pctr"], {"country": today["country"]})
        expected[str(today["day"][0])] = loss(p, today["click"].to_numpy())
    name = found.forecasters[2]
    table = found.by_period.filter(pl.col("forecaster") == name)
    assert table["period"].to_list() == list(expected)
    np.testing.assert_allclose(table["log_loss"], list(expected.values()), rtol=1e-5)


def test_figures_of_a_period_are_those_of_evaluate():
    log = make_log(days=3)
    found = run(log)
    for today in days_of(log)[1:]:
        line = found.by_period.filter(
            (pl.col("period") == str(today["day"][0])) & (pl.col("forecaster") == "base scores")
        ).to_dicts()[0]
        evaluated = mcnet.evaluate(today["pctr"], today["click"], field={"country": today["country"]})
        assert line["rows"] == len(today)
        assert line["positives"] == today["click"].sum()
        for name in ("log_loss", "pcoc", "f_rce"):
            assert line[name] == pytest.approx(getattr(evaluated, name), rel=1e-6), name  # scores of cells are rounded
        pcoc = evaluated.estimates["pcoc"]
        assert (line["pcoc_low"], line["pcoc_high"]) == pytest.approx((pcoc.low, pcoc.high))


@pytest.mark.parametrize(
    ("delay", "first"), [(0, "2026-11-02"), (2, "2026-11-04"), ("36h", "2026-11-04"), ("2d", "2026-11-04")]
)
def test_a_period_is_learnt_from_only_after_its_delay(delay, first):
    trackers = []

    def tracker():
        trackers.append(Platt())
        return trackers[-1]

    found = run(make_log(days=6), delay=delay, tracker=tracker, methods=[])
    assert found.periods[0] == first
    days = 1 + (delay if isinstance(delay, int) else 2)
    assert trackers[0].seen == [f"2026-11-{day:02}" for day in range(1, 7 - days)]


def test_since_judges_later_periods_and_learns_from_earlier_ones():
    whole, late = run(make_log()), run(make_log(), since="2026-11-05")
    assert late.periods == ["2026-11-05", "2026-11-06", "2026-11-07", "2026-11-08"]
    kept = whole.by_period.filter(pl.col("period") >= "2026-11-05")
    assert kept.equals(late.by_period)


def test_regret_and_summary_follow_from_the_periods():
    found = run(make_log(), memories=[1, "everything"])
    loss, weight = found.matrix("log_loss"), found.matrix("weight")
    means = (loss * weight).sum(axis=1) / weight.sum(axis=1)
    summary = {row["forecaster"]: row for row in found.summary.to_dicts()}
    assert [row["log_loss"] for row in found.summary.to_dicts()] == sorted(means)
    for name, mean in zip(found.forecasters, means, strict=True):
        row = summary[name]
        assert row["log_loss"] == pytest.approx(mean)
        assert row["log_loss_low"] <= row["log_loss"] <= row["log_loss_high"]
        assert row["difference"] == pytest.approx(mean - means[1])
        assert row["difference_low"] <= row["difference"] <= row["difference_high"]
    assert found.best == min((n for n in found.forecasters if n != "tracker"), key=lambda n: summary[n]["log_loss"])
    last = found.regret.filter(pl.col("period") == found.periods[-1])
    regrets = dict(zip(last["forecaster"], last["regret"], strict=True))
    assert regrets[found.best] == 0.0
    assert regrets["tracker"] == pytest.approx(found.tracker_regret)
    assert found.summary["pcoc"].is_between(0.3, 1.5).all()


def test_levels_of_field_values_add_up_to_the_period():
    found = run(make_log())
    totals = found.values.group_by("period", maintain_order=True).agg(pl.col(pl.Float64).sum())
    tracker = found.by_period.filter(pl.col("forecaster") == "tracker")
    np.testing.assert_allclose(totals["positives"], tracker["positives"])
    np.testing.assert_allclose(totals["tracker_expected"], tracker["expected"])


def test_files_tables_and_journals_give_the_same(tmp_path):
    log = make_log(days=4, rows=100)
    log.write_csv(tmp_path / "log.csv")
    journal = mcnet.Journal(tmp_path / "journal")
    journal.add_files(tmp_path / "log.csv", field="country", resolution=64, **COLUMNS)
    of_table, of_file = run(log), run(tmp_path / "log.csv")
    of_journal = mcnet.backtest(journal.path, tracker=Platt, methods=["platt"], memories=[2])
    assert of_table.by_period.equals(of_file.by_period)
    assert of_table.by_period.equals(of_journal.by_period)
    assert of_journal.fields == ("country",)
    pooled = mcnet.backtest(log.drop("country"), **COLUMNS, tracker=Platt, methods=["platt"], memories=[2])
    assert pooled.by_period["f_rce"].null_count() == len(pooled.by_period)
    assert "F-RCE" not in str(pooled)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"memories": ["week"]}, "'week' is not a memory"),
        ({"memories": [0]}, "is not a memory"),
        ({"methods": ["plat"]}, "did you mean platt"),
        ({"delay": -1}, "delay is -1"),
        ({"delay": "soon"}, "delay is 'soon'"),
        ({"delay": 30}, "no period could be judged"),
        ({"since": "2027-01-01"}, "there is no period from 2027-01-01 on"),
        ({"memories": ["window:7"]}, "is not a memory"),
    ],
)
def test_wrong_words_are_refused(words, said):
    with pytest.raises(mcnet.InputError, match=said):
        run(make_log(days=3, rows=50), **words)


def test_a_journal_takes_no_columns_and_a_log_needs_them(tmp_path):
    journal = mcnet.Journal(tmp_path / "journal")
    journal.add(mcnet.Sketch.from_rows([0.2], [1]), 1)
    with pytest.raises(mcnet.InputError, match="score was given, but a journal"):
        mcnet.backtest(journal, score="pctr")
    with pytest.raises(mcnet.InputError, match="time was not given"):
        mcnet.backtest(make_log(days=2), score="pctr", label="click")
    with pytest.raises(mcnet.InputError, match="1 period"):
        mcnet.backtest(journal)


def test_a_fit_that_fails_is_counted_and_the_base_scores_stand_in(monkeypatch):
    def refuse(self, sketch):
        raise mcnet.InputError("no")

    monkeypatch.setattr(mcnet.Isotonic, "fit_sketch", refuse)
    found = run(make_log(days=4), methods=["isotonic"])
    base, failed = (
        found.by_period.filter(pl.col("forecaster") == name)["log_loss"]
        for name in ("base scores", found.forecasters[2])
    )
    assert base.equals(failed)
    assert found.summary.filter(pl.col("method") == "isotonic")["failures"].to_list() == [3]


def test_the_tracker_tells_its_weights_for_each_period():
    found = mcnet.backtest(make_log(days=5), field="country", **COLUMNS, methods=[])
    weights = found.beliefs.filter(pl.col("part") == "weight")
    assert weights["period"].unique(maintain_order=True).to_list() == found.periods
    assert found.forecasters == ["base scores", "tracker"]
    json.dumps(found.to_dict(), allow_nan=False)


def test_intervals_of_the_block_bootstrap_cover_a_mean_of_dependent_periods():
    rng = np.random.default_rng(0)
    covered = 0
    for seed in range(100):
        noise = rng.normal(size=202)
        series = noise[2:] + noise[1:-1] + noise[:-2]  # neighbours depend on each other
        low, high = block_bootstrap(series[None], np.ones(200), seed=seed)
        covered += bool(low[0] <= 0.0 <= high[0])
    assert covered >= 82  # independent draws of periods would cover in some 72


@pytest.mark.filterwarnings("ignore::mcnet.CalibrationWarning")
def test_a_backtest_learns_the_periods_of_a_journal_that_were_released(tmp_path):
    rng, journal = np.random.default_rng(3), mcnet.Journal(tmp_path / "ads.db")
    for day in range(9):
        score = rng.uniform(0.05, 0.3, 800)
        click = (rng.random(800) < score).astype(int)
        journal.add(mcnet.Sketch.from_rows(score, 1 - click if day == 7 else click), day, source="log")
    losses = []
    for release in (False, True):
        if release:
            journal.release(7)
        table = mcnet.backtest(journal, methods=[]).by_period
        losses.append(table.filter((pl.col("forecaster") == "tracker") & (pl.col("period") == "8"))["log_loss"].item())
    assert losses[0] < losses[1] - 0.01


def test_without_a_look_the_tracker_learns_a_broken_period():
    rng = np.random.default_rng(3)
    score, day = rng.uniform(0.05, 0.3, 7_200), np.repeat(np.arange(9), 800)
    click = (rng.random(7_200) < score).astype(int)
    log = pl.DataFrame({"pctr": score, "click": np.where(day == 7, 1 - click, click), "day": day})
    losses = {}
    for look in (True, False):
        found = mcnet.backtest(
            log,
            score="pctr",
            label="click",
            time="day",
            every="1",
            methods=[],
            look=look,
        )
        last = found.by_period.filter((pl.col("forecaster") == "tracker") & (pl.col("period") == "8"))
        losses[look] = last["log_loss"].item()
    assert losses[True] < losses[False] - 0.01
