"""The replay of auctions: against a slow loop, budgets, first price, blocks, and the trap of won rows."""

import json

import numpy as np
import polars as pl
import pytest

import mcnet
from mcnet.auctions import check_won_rows
from mcnet.cli.run import run
from mcnet.datasets.auctions import simulate_auctions
from mcnet.errors import InputError


def auctions(rows=20_000, seed=0, **how):
    return simulate_auctions(rows, seed=seed, **how)


def slow(p, y, price, value, *, first=False, budget=None, periods=None):
    """Return auctions won, spend, positives and surplus, one row after the other."""
    won = spend = positives = surplus = 0.0
    spent, stopped = {}, set()
    for i in range(len(p)):
        bid, day = value[i] * p[i], 0 if periods is None else periods[i]
        if bid <= price[i] or day in stopped:
            continue
        cost = bid if first else price[i]
        if budget is not None and spent.get(day, 0.0) + cost > budget:
            stopped.add(day)
            continue
        spent[day] = spent.get(day, 0.0) + cost
        won, spend, positives = won + 1, spend + cost, positives + y[i]
        surplus += value[i] * y[i] - cost
    return won, spend, positives, surplus


@pytest.mark.parametrize("how", [{}, {"first": True}, {"budget": 1.5}, {"budget": 1.5, "first": True}])
def test_it_is_the_loop_over_rows(how):
    made = auctions(3_000)
    rng = np.random.default_rng(0)
    value, periods = rng.uniform(0.5, 2.0, len(made)), np.arange(len(made)) // 700
    given = {"auction": "first" if how.get("first") else "second", "budget": how.get("budget")}
    found = mcnet.replay(
        {"scores": made.score}, made.label, made.price * 1000, value, price_per=1000, periods=periods, **given
    )
    outcome = found.outcomes["scores"]
    expected = slow(made.score, made.label, made.price, value, periods=periods, **how)
    assert (outcome.won, outcome.spend, outcome.positives, outcome.surplus) == pytest.approx(expected)
    assert outcome.by_block.sum() == pytest.approx(outcome.surplus)


def test_the_interval_of_a_difference_covers_the_true_one():
    """The expected difference of surplus is known: Σ (v·p − price) over the rows won by one alone."""
    inside = 0
    for seed in range(40):
        made = auctions(8_000, seed, hidden=1.0)
        better = np.clip(made.score * 0.5 + made.probability * 0.5, 0, 1)
        found = mcnet.replay({"scores": made.score, "better": better}, made.label, made.price, made.value, seed=seed)
        gain = made.value * made.probability - made.price
        expected = gain[made.value * better > made.price].sum() - gain[made.score > made.price].sum()
        gap = found.differences["better"]
        inside += gap.low <= expected <= gap.high
    assert inside >= 34


def test_the_truth_has_the_largest_expected_surplus_and_regret_is_measured_to_it():
    made = auctions(100_000)
    found = mcnet.replay({"scores": made.score}, made.label, made.price, made.value, truth=made.probability)
    models = found.to_dict()["models"]
    assert models["truth"]["regret"] == 0.0
    assert models["scores"]["regret"] == pytest.approx(models["truth"]["surplus"] - models["scores"]["surplus"])
    assert models["scores"]["regret"] > 0.0
    assert {"won", "spend", "positives", "surplus", "value", "return", "cost_per_positive"} <= set(models["scores"])
    factors, curves = found.surplus_by_multiplier()
    assert factors[np.argmax(curves["truth"])] == pytest.approx(1.0, rel=0.35)
    assert "scores" in str(found)


@pytest.mark.filterwarnings("ignore:.*capped at 20")
@pytest.mark.parametrize("seed", range(1, 4))
def test_whatever_the_draw_a_fit_on_won_rows_loses_money_that_weights_gain(seed):
    made = auctions(150_000, seed)
    won, country = made.won, made.country.astype(str)
    gain = made.value * made.probability - made.price  # of a row that is won, as expected
    expected = []
    for more in ({}, {"propensity": made.propensity[won]}):
        sketch = mcnet.Sketch.from_rows(made.score[won], made.label[won], field=country[won], **more)
        p = mcnet.calibrator("platt-field").fit_sketch(sketch).predict(made.score, field=country)
        expected.append(gain[made.value * p > made.price].sum())
    assert expected[0] < gain[won].sum() < expected[1]


def test_a_fit_on_won_rows_loses_money_that_weights_do_not():
    made = auctions(150_000)
    won = made.won
    field = {"country": made.country.astype(str)}
    inside = {"country": field["country"][won]}
    naive = mcnet.Sketch.from_rows(made.score[won], made.label[won], field=inside)
    weighted = mcnet.Sketch.from_rows(made.score[won], made.label[won], field=inside, propensity=made.propensity[won])
    chances = {"scores": made.score}
    for name, sketch in (("naive", naive), ("weighted", weighted)):
        chances[name] = mcnet.calibrator("platt-field").fit_sketch(sketch).predict(made.score, field=field)
    found = mcnet.replay(chances, made.label, made.price, made.value, field=field)
    assert found.differences["naive"].high < 0.0
    assert found.differences["weighted"].low > 0.0
    with pytest.warns(mcnet.CalibrationWarning, match="win every row"):
        logged = mcnet.replay({"scores": made.score[won]}, made.label[won], made.price[won], made.value)
    assert "barely won are over-predicted" in logged.won_check.warning
    values, surplus = found.surplus_by_value("country")
    assert len(values) == 8
    assert surplus["naive"].sum() == pytest.approx(found.outcomes["naive"].surplus)


def test_won_rows_like_all_others_raise_no_warning():
    alarms = 0
    for seed in range(20):
        made = auctions(30_000, seed, hidden=1.0, spread=0.0)
        found = mcnet.replay({"scores": made.score}, made.label, made.price, made.value)
        alarms += found.won_check.warning is not None
    assert alarms <= 2


def test_a_period_in_which_no_bid_wins_spends_nothing_of_its_budget():
    p, label, days = np.full(40, 0.1), np.arange(40) % 5 == 0, np.arange(40) // 20
    price = np.where(days == 0, 0.05, 5.0)
    found = mcnet.replay({"scores": p}, label, price, 1.0, periods=days, budget=0.52, blocks=4).outcomes["scores"]
    assert found.won == 10
    assert found.spend == pytest.approx(0.5)


def checked(p, label, price):
    """Check rows of one context, each one auction, for which the probability was bid."""
    return check_won_rows(p, label, price, p, contexts=np.zeros(len(p), dtype=np.intp), weight=np.ones(len(p)))


def test_the_check_of_won_rows_speaks_in_both_directions():
    rng = np.random.default_rng(0)
    p, price = np.full(40_000, 0.1), rng.uniform(0.0, 0.1, 40_000)
    for dear, words in ((0.05, ("over", "at a loss")), (0.2, ("under", "too low"))):
        truth = np.where(price > 0.05, dear, 0.1)
        found = checked(p, (rng.random(len(p)) < truth).astype(float), price)
        assert f"barely won are {words[0]}-predicted" in found.warning
        assert words[1] in found.warning


def test_a_log_with_lost_auctions_is_not_called_a_log_of_winners():
    rng = np.random.default_rng(0)
    p, price = np.full(80_000, 0.1), rng.uniform(0.0, 0.2, 80_000)
    label = (rng.random(len(p)) < np.where(price > 0.05, 0.05, 0.1)).astype(float)
    everything = checked(p, label, price)
    winners = checked(*(column[price < p] for column in (p, label, price)))
    assert everything.ratio == winners.ratio
    assert everything.share_won == pytest.approx(0.5, abs=0.01)
    assert winners.share_won == 1.0
    assert "calibrate on winners" in winners.warning
    assert "these bids barely win" in everything.warning
    assert "calibrate on winners" not in everything.warning


def test_fields_and_scores_that_are_off_by_themselves_are_no_trap():
    """Dear countries and high scores are over-predicted, whatever the margin: nothing depends on who wins."""
    alarms = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        country = rng.integers(0, 2, 60_000)
        p = 1 / (1 + np.exp(-rng.normal(-2.5, 0.8, len(country))))
        price = p.mean() * rng.uniform(0.0, np.where(country == 1, 1.5, 0.5))
        truth = p * np.where(country == 1, 0.7, 1.0) * (p / 0.1) ** -0.2
        y = (rng.random(len(p)) < truth).astype(float)
        field = {"country": country.astype(str)}
        alarms += mcnet.replay({"scores": p}, y, price, 1.0, field=field).won_check.warning is not None
    assert alarms <= 2


def test_rows_stand_for_as_many_auctions_as_their_weight():
    made = auctions(6_000)
    times = np.random.default_rng(5).integers(0, 4, len(made))
    each = np.repeat(np.arange(len(made)), times)
    field, blocks = {"country": made.country.astype(str)}, np.arange(len(made)) // 60

    def replayed(rows, **how):
        known = {"country": field["country"][rows]}
        return mcnet.replay(
            {"scores": made.score[rows], "halves": made.score[rows] / 2},
            made.label[rows], made.price[rows], 1.0, field=known, blocks=blocks[rows], **how,
        )  # fmt: skip

    weighted, repeated = replayed(slice(None), weight=times), replayed(each)
    for name, outcome in repeated.outcomes.items():
        assert weighted.outcomes[name][:4] == pytest.approx(outcome[:4])
        assert weighted.outcomes[name].by_block == pytest.approx(outcome.by_block)
    assert weighted.differences["halves"].low == pytest.approx(repeated.differences["halves"].low)
    surplus = [found.surplus_by_value("country")[1]["scores"] for found in (weighted, repeated)]
    assert surplus[0] == pytest.approx(surplus[1])
    assert f"stand for {len(each):,} auctions" in str(weighted)


def test_a_down_sampled_log_has_the_surplus_of_all_its_auctions():
    made = auctions(200_000)
    kept = (made.label > 0) | (np.random.default_rng(5).random(len(made)) < 0.2)
    whole = mcnet.replay({"scores": made.score}, made.label, made.price, made.value)
    columns = ({"scores": made.score[kept]}, made.label[kept], made.price[kept], made.value)
    found = mcnet.replay(*columns, negatives_kept=0.2)
    assert found.outcomes["scores"].surplus == pytest.approx(whole.outcomes["scores"].surplus, rel=0.05)
    assert found.outcomes["scores"].won == pytest.approx(whole.outcomes["scores"].won, rel=0.02)
    assert mcnet.replay(*columns).outcomes["scores"].surplus > 1.5 * whole.outcomes["scores"].surplus
    for how, problem in (
        ({"negatives_kept": 0.0}, "negatives_kept is 0"),
        ({"weight": np.zeros(kept.sum())}, "every weight is 0"),
        ({"weight": -np.ones(kept.sum())}, "below 0"),
    ):
        with pytest.raises(InputError, match=problem):
            mcnet.replay(*columns, **how)


def test_a_value_that_only_positives_have_is_bid_as_the_mean_of_its_field_value():
    made = auctions(20_000)
    worth = np.where(made.country == 0, 2.0, 1.0)
    known, field = np.where(made.label > 0, worth, np.nan), {"country": made.country.astype(str)}
    chances = {"scores": made.score}
    found = mcnet.replay(chances, made.label, made.price, value_per_positive=known, field=field)
    expected = mcnet.replay(chances, made.label, made.price, worth, field=field)
    assert found.outcomes["scores"].surplus == pytest.approx(expected.outcomes["scores"].surplus)
    assert "means of positives" in str(found)


def test_bids_that_win_next_to_nothing_are_questioned():
    made = auctions(4_000)
    price = made.price * 1000
    price[0] = 0.0
    with pytest.warns(mcnet.CalibrationWarning, match=r"1 auction of 4,000 would be won.*price_per=1000"):
        mcnet.replay({"scores": made.score}, made.label, price, made.value)
    with pytest.warns(mcnet.CalibrationWarning, match="check value and price_per"):
        mcnet.replay({"scores": made.score}, made.label, price * 1000, made.value, price_per=1000)
    with pytest.warns(mcnet.CalibrationWarning, match="check value and price_per"):  # 1 was given, too
        mcnet.replay({"scores": made.score}, made.label, price, made.value, price_per=1)


def test_what_cannot_be_replayed_is_refused():
    made = auctions(500)
    good = ({"scores": made.score}, made.label, made.price)
    for given, problem in (
        ((*good, None), "needs a value"),
        ((*good[:2], np.where(np.arange(500) == 3, -1.0, made.price), 1.0), "price has 1 value below 0"),
        ((*good[:2], np.where(np.arange(500) == 3, np.nan, made.price), 1.0), "price has 1 value missing"),
        ((*good[:2], np.zeros(500), 1.0), "every price is 0"),
        ((*good, 1e9), "above every price"),
        ((*good[:2], made.price * 1e6, 1.0), "price_per=1000"),
        (({}, *good[1:], 1.0), "no model"),
        ((*good[:2], np.where(np.arange(500) == 3, np.nan, made.price), 1.0), "leave out rows"),
        ((*good, np.where(made.label > 0, 1.0, np.nan)), "value_per_positive"),
    ):
        with pytest.raises(InputError, match=problem):
            mcnet.replay(*given)
    for how, problem in (
        ({"budget": 0.0}, "budget is 0"),
        (
            {"budget": 1e-9},
            "the budget of 1e-09 per period is below the price of the first auction that a bid would win",
        ),
        ({"auction": "third"}, "'second' or 'first'"),
        ({"price_per": 0}, "price_per"),
        ({"level": 95}, "level is 95"),
        ({"level": 0}, "level is 0"),
        ({"against": "nobody"}, "no model"),
        ({"blocks": 0}, "at least one row"),
        ({"blocks": 1}, "every block is a single row"),
        ({"blocks": np.arange(500)}, "every block is a single row"),
    ):
        with pytest.raises(InputError, match=problem):
            mcnet.replay(*good, 1.0, **how)
    with pytest.raises(InputError, match="'truth' is the name"):
        mcnet.replay({"truth": made.score}, *good[1:], 1.0, truth=made.score)


@pytest.fixture
def log(tmp_path):
    made = auctions(6_000)
    table = made.frame().with_columns(pl.col("country").cast(pl.String), price=pl.col("price") * 1000)
    table = table.with_columns(worth=pl.lit(1.0), day=pl.int_range(pl.len()) // 400)
    path = tmp_path / "log.parquet"
    table.write_parquet(path)
    return path


def called(capsys, *words):
    capsys.readouterr()
    code = run([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_command_replays_scores_models_and_methods(log, tmp_path, capsys):
    columns = ["--score", "score", "--label", "label", "--field", "country"]
    model, page = tmp_path / "model.json", tmp_path / "page.html"
    assert called(capsys, "fit", log, *columns, "--method", "platt-field", "-o", model)[0] == 0
    prices = ["--price", "price", "--price-per", "1000", "--value"]
    code, out, err = called(
        capsys, "value", log, *columns, *prices, "worth", "--model", model, "--method", "platt", "--fit-on", log,
        "--truth", "probability", "--report", page, "--json",
    )  # fmt: skip
    assert code == 0, err
    found = json.loads(out)
    assert list(found["models"]) == ["scores", "model", "platt", "truth"]
    made = auctions(6_000)
    expected = slow(made.score, made.label, made.price, np.ones(len(made)))
    figures = found["models"]["scores"]
    assert [figures[key] for key in ("won", "spend", "positives", "surplus")] == pytest.approx(expected)
    assert "Surplus against a bid multiplier" in page.read_text(encoding="utf-8")
    assert "model was fitted on as many rows with as many positives as this log has" in err
    # The model that a store serves bids like its file.
    assert called(capsys, "versions", "add", tmp_path / "ads.db", model)[0] == 0
    code, out, err = called(capsys, "value", log, "--model", tmp_path / "ads.db", *prices, "1", "--json")
    assert (code, json.loads(out)["models"]["ads"]["won"]) == (0, found["models"]["model"]["won"]), err
    # A model remembers its columns; a number is a value, too.
    code, out, err = called(
        capsys, "value", log, "--model", model, *prices, "1", "--time", "day", "--every", "1", "--budget", "9"
    )
    assert code == 0, err
    assert "budget of 9" in out
    assert "15 blocks" in out
    # So does a model that was fitted on a down-sampled log.
    sampled = tmp_path / "sampled.json"
    assert called(capsys, "fit", log, *columns, "--negatives-kept", "0.5", "-o", sampled)[0] == 0
    code, out, err = called(capsys, "value", log, "--model", sampled, *prices, "1")
    assert (code, "negatives count 2 times" in err, "that stand for" in out) == (0, True, True)
    code, out, err = called(capsys, "value", log, "--model", sampled, *prices, "1", "--negatives-kept", "1")
    assert (code, "6,000 auctions" in out) == (0, True)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--value", "1"], "--price"),
        (["--price", "price"], "--value"),
        (["--price", "nothing", "--value", "1"], "nothing"),
        (["--price", "price", "--value", "1"], "--price-per 1000"),
        (["--price", "price", "--value", "1", "--budget", "0"], "budget is 0"),
        (["--price", "price", "--value", "1", "--level", "95"], "level is 95"),
        (["--price", "price", "--value", "1", "--fit-on", "log.parquet"], "--method"),
        (["--price", "price", "--value", "1", "--every", "1d"], "--time"),
        (["--price", "price", "--value", "1", "--price-per", "0.001"], "check --value and --price-per"),
        (["--price", "price", "--value", "1", "--price-per", "1"], "check --value and --price-per"),
        (["--price", "price", "--value", "1", "--value-per-positive", "worth"], "both given"),
        (["--price", "price", "--value", "1", "--method", "platt"], "--fit-on"),
        (["--price", "price", "--value", "1e9"], "above every price"),
        (["--price", "label", "--value", "1"], "the column 'label' is given as label and as price; give each its own"),
    ],
)
def test_the_command_says_what_is_lacking(log, tmp_path, capsys, words, problem):
    page = tmp_path / "page.html"
    code, out, err = called(capsys, "value", log, "--score", "score", "--label", "label", *words, "--report", page)
    assert code == 2
    assert problem in err
    assert not out
    assert not page.exists()
