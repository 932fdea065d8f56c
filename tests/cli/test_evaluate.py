import numpy as np
import polars as pl
import pytest

import mcnet as library
from mcnet.cli.thresholds import parse_thresholds
from mcnet.errors import InputError


def test_scores_are_judged_without_a_model(mcnet, log, columns, frame):
    found = mcnet("evaluate", log, *columns[:4], "--field", "country", "--json").document
    expected = library.evaluate(frame["pctr"].to_numpy(), frame["click"].to_numpy(), field=frame["country"].to_numpy())
    assert found["rows"] == 8000
    assert found["metrics"]["pcoc"]["value"] == pytest.approx(expected.pcoc, rel=1e-4)
    assert found["metrics"]["f_rce"]["value"] == pytest.approx(expected.f_rce, rel=1e-3)
    assert found["metrics"]["auc"]["value"] == pytest.approx(expected.auc, abs=1e-3)
    assert sorted(found["fields"]["country"]["table"]["value"]) == ["0", "1", "2", "3"]


def test_a_model_improves_on_the_scores(mcnet, log, model, columns):
    before = mcnet("evaluate", log, *columns[:4], "--field", "country", "--json").document["metrics"]
    after = mcnet("evaluate", log, "--model", model, "--field", "country", "--json").document["metrics"]
    assert after["log_loss"]["value"] < before["log_loss"]["value"]
    assert after["f_rce"]["value"] < before["f_rce"]["value"]


def test_inside_another_field_than_the_models(mcnet, log, model):
    found = mcnet("evaluate", log, "--model", model, "--field", "day", "--json").document
    assert list(found["fields"]) == ["day"]
    assert found["fields"]["day"]["table"]["value"] == ["mon", "tue"]


@pytest.mark.parametrize("given", [[], ["--score", "score", "--label", "label"]])
def test_a_model_in_the_place_of_a_log_is_called_no_log(mcnet, model, log, given):
    done = mcnet("evaluate", model, log, *given)
    assert done.code == 2
    assert f"{model} is of no known format (JSON, as models are, is no log)" in done.err


def test_a_sketch_is_judged_like_its_log(mcnet, log, model, columns, tmp_path):
    sketch = tmp_path / "s.parquet"
    assert mcnet("sketch", log, *columns, "-o", sketch).code == 0
    one = mcnet("evaluate", log, "--model", model, "--json").document
    assert mcnet("evaluate", sketch, "--model", model, "--json").document == one


def test_people_get_a_table(mcnet, log, model):
    shown = mcnet("evaluate", log, "--model", model, "--field", "country").out
    assert "PCOC" in shown
    assert "8,000 rows" in shown


@pytest.mark.parametrize(
    ("threshold", "code"),
    [
        ("pcoc>2", 0),
        ("pcoc > 0.5", 1),
        ("auc<1e-3", 0),
        ("auc<=.999", 1),
        ("rows<100000", 1),
        ("f_rce>=0", 1),
        ("PCOC>0.5", 1),
        ("F-RCE>=0", 1),
        ("smECE>=0", 1),
        ("log-loss>9", 0),
    ],
)
def test_thresholds_decide_the_exit_code(mcnet, log, model, threshold, code):
    done = mcnet("evaluate", log, "--model", model, "--fail-if", "pcoc<0.01", "--fail-if", threshold, "--quiet")
    assert done.code == code
    assert done.out == ""


def test_a_threshold_that_is_not_met_is_said(mcnet, log, model):
    assert "not met: pcoc is " in mcnet("evaluate", log, "--model", model, "--fail-if", "pcoc>0.5").err


def test_what_is_not_defined_meets_no_threshold(mcnet, frame, tmp_path):
    import polars as pl

    path = tmp_path / "log.parquet"
    frame.with_columns(click=pl.lit(0)).write_parquet(path)
    done = mcnet("evaluate", path, "--score", "pctr", "--label", "click", "--fail-if", "auc<0.5")
    assert done.code == 1
    assert "not defined" in done.err


@pytest.mark.parametrize(
    "word", ["", "f_rce", "f_rce>", "nonsense>1", "f_rce=1", "__import__('os')>1", "pcoc>1 or 1", "1>0"]
)
def test_thresholds_that_cannot_be_understood_are_refused(mcnet, word):
    with pytest.raises(InputError, match="fail-if"):
        parse_thresholds([word])
    done = mcnet("evaluate", "nowhere.parquet", "--fail-if", word)
    assert done.code == 2
    assert "fail-if" in done.err


def test_every_name_in_the_table_is_a_name_for_fail_if(mcnet, log, model):
    table = mcnet("evaluate", log, "--model", model).out.split("\n\n")[0]
    names = [line.split("  ")[0].partition(" (")[0] for line in table.splitlines()[2:] if line[:1].isalpha()]
    assert [name in names for name in ("PCOC", "F-RCE", "smECE", "log-loss", "PCOC STD")] == [True] * 5
    for name in names:
        name = "cal_n" if name.startswith("Cal-") else name
        assert mcnet("evaluate", log, "--model", model, "--fail-if", f"{name}>1e9", "-q").code == 0, name


def test_the_share_of_negatives_kept_is_remembered_and_said(mcnet, frame, tmp_path):
    log, sketch, model = (tmp_path / name for name in ("log.parquet", "s.parquet", "m.json"))
    frame.write_parquet(log)
    words = ("--score", "pctr", "--label", "click", "--negatives-kept", "0.25")
    assert mcnet("sketch", log, *words, "-o", sketch).code == 0
    assert mcnet("fit", sketch, "--method", "platt", "-o", model).code == 0
    done = mcnet("evaluate", log, "--model", model, "--json")
    assert "negatives count 4 times" in done.err
    assert done.document == mcnet("evaluate", log, "--model", model, "--negatives-kept", "0.25", "--json").document
    plain = mcnet("evaluate", log, "--model", model, "--negatives-kept", "1", "--json")
    assert plain.err == ""
    assert plain.document["weight"] == 8000
    assert done.document["metrics"]["pcoc"]["value"] == pytest.approx(1.0, abs=1e-3)


def test_a_report_of_a_model_is_a_page_and_needs_the_model(mcnet, log, model, columns, tmp_path):
    page = tmp_path / "page.html"
    done = mcnet("evaluate", log, "--model", model, "--report", page)
    assert (done.code, f"report → {page}" in done.err) == (0, True)
    text = page.read_text(encoding="utf-8")
    assert "What the model does to the scores" in text
    assert "8,000 rows" in text
    assert mcnet("evaluate", log, "--model", model, "--report", page).code == 2  # it exists
    done = mcnet("evaluate", log, *columns[:4], "--report", tmp_path / "other.html")
    assert (done.code, done.err) == (
        2,
        "mcnet: --report shows what a model does to the scores; pass --model too\n",
    )
    done = mcnet("evaluate", log, "--model", model, "--report", tmp_path / "page.txt")
    assert (done.code, ".html" in done.err) == (2, True)


def test_the_report_of_a_model_shows_periods(mcnet, frame, model, tmp_path):
    timed = tmp_path / "timed.parquet"
    days = [f"2026-11-{1 + row % 3:02}" for row in range(len(frame))]
    frame.with_columns(ts=pl.Series(days)).write_parquet(timed)
    page = tmp_path / "page.html"
    words = ("--model", model, "--time", "ts", "--every", "1d", "--report", page)
    assert mcnet("evaluate", timed, *words).code == 0
    assert 'id="judged-drift"' in page.read_text(encoding="utf-8")
    assert "single periods after" in page.read_text(encoding="utf-8")


def test_money_is_printed_and_listed_and_refused_where_it_cannot_be(tmp_path, mcnet):
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.4, 6_000)
    field = rng.integers(0, 4, len(p))
    label = (rng.random(len(p)) < np.where(field == 0, p / 2, p)).astype(int)
    bid = np.round(rng.uniform(0.5, 2.0, len(p)), 2)
    log = tmp_path / "log.csv"
    table = pl.DataFrame({"p": p, "y": label, "country": field.astype(str), "bid": bid})
    table = table.with_columns(paid=pl.when(pl.col("y") > 0).then("bid"), day=(pl.int_range(pl.len()) % 2))
    table.write_csv(log)
    named = [str(log), "--score", "p", "--label", "y", "--field", "country"]
    listed = tmp_path / "actions.csv"
    done = mcnet("evaluate", *named, "--value", "bid", "--actions-table", str(listed), "--json")
    found = done.document
    assert found["money"]["observed_value"] == pytest.approx((bid * label).sum())
    low, high = (found["metrics"]["overbid"][end] for end in ("low", "high"))
    assert low < (bid * p / 2)[field == 0].sum() < high
    assert found["actions"]["actions"][0]["value"] == "0"
    assert pl.read_csv(listed)["advice"][0].startswith("bids are too high")
    text = mcnet("evaluate", *named, "--value", "2.5", "--actions", "--time", "day", "--every", "1").out
    assert "over-bid" in text
    assert "country = 0" in text
    assert "per 1,000 rows" in text
    assert "positives alone" in mcnet("evaluate", *named, "--value-per-positive", "paid").out
    assert mcnet("evaluate", *named, "--value", "bid", "--fail-if", "overbid>1").code == 1
    saved = tmp_path / "sketch.parquet"
    mcnet("sketch", *named, "--value", "bid", "-o", str(saved))
    again = mcnet("evaluate", saved, "--json").document
    assert again["money"] == found["money"]
    compared = mcnet("compare", *named, "--value", "bid", "--method", "platt", "--method", "base")
    assert "over-bid" in compared.out
    page = tmp_path / "page.html"
    mcnet("compare", *named, "--value", "1", "--method", "platt", "--report", str(page))
    assert "Over-bid money" in page.read_text(encoding="utf-8")
    assert 'id="actions"' in page.read_text(encoding="utf-8")
    for words, problem in (
        (("--value", "paid"), "--value-per-positive"),
        (("--value", "0"), "must be a number above 0"),
        (("--value", "-1"), "must be a number above 0"),
        (("--value", "nothing"), "nothing"),
        (("--value", "bid", "--value-per-positive", "paid"), "give the one that is known"),
    ):
        refused = mcnet("evaluate", *named, *words)
        assert refused.code == 2, refused.out
        assert problem in refused.err


def test_slices_are_printed_and_end_in_advice(tmp_path, mcnet, model):
    rng = np.random.default_rng(2)
    p = rng.uniform(0.02, 0.4, 12_000)
    device = rng.integers(0, 3, len(p))
    truth = np.where(device == 0, 0.5 * p, p)
    table = pl.DataFrame({"pctr": p, "click": (rng.random(len(p)) < truth).astype(int), "device": device})
    table = table.with_columns(country=pl.lit("NL"), id=pl.int_range(pl.len()).cast(pl.String))
    log = tmp_path / "wrong.csv"
    table.write_csv(log)
    named = (log, "--score", "pctr", "--label", "click")
    found = mcnet("slices", *named, "--json").document
    assert (found["slices"][0]["column"], found["slices"][0]["value"]) == ("device", "0")
    assert found["advised_fields"] == ["device"]
    assert found["left_out"]["country"] == "one value"
    shown = mcnet("slices", *named).out
    assert "multicalibration error" in shown
    assert shown.rstrip().endswith("--field device")
    judged = mcnet("slices", log, "--model", model, "--exclude", "device", "--exclude", "id", "--json")
    assert judged.code == 2  # what is left has one value
    assert "no column to cut slices by" in judged.err
    assert mcnet("slices", log, "--model", model, "--json").document["model"] == str(model)


def test_slices_say_what_is_wrong(tmp_path, mcnet, log, columns):
    saved = tmp_path / "sketch.parquet"
    assert mcnet("sketch", log, *columns, "-o", saved).code == 0
    holed = tmp_path / "holed.parquet"
    pl.read_parquet(log).with_columns(pctr=pl.when(pl.int_range(pl.len()) != 5).then("pctr")).write_parquet(holed)
    named = ("--score", "pctr", "--label", "click")
    for words, problem in (
        ((saved, *named), "give the log itself"),
        ((log,), "name the columns with --score and --label"),
        ((log, *named, "--exclude", "nope"), "no column 'nope' to leave out"),
        ((holed, *named), "row 5"),
    ):
        done = mcnet("slices", *words)
        assert (done.code, problem in done.err) == (2, True), done.err
    dropped = mcnet("slices", holed, *named, "--drop-missing", "--json").document
    assert (dropped["dropped_rows"], dropped["rows"]) == (1, len(pl.read_parquet(log)) - 1)
