"""`mcnet evaluate` per period, and what `--fail-if` can speak of."""

import polars as pl
import pytest

import mcnet as library
from mcnet.cli.thresholds import Threshold, parse_thresholds
from mcnet.errors import InputError


@pytest.fixture
def timed(frame, tmp_path):
    """Return a log of four days; on the last one, nobody in country 0 clicks."""
    seconds = 1_700_006_400 + pl.Series(range(8000)) * 86_400 * 4 // 8000
    silent = (pl.col("ts").dt.day() == 18) & (pl.col("country").cast(pl.String) == "0")
    log = frame.with_columns(ts=pl.from_epoch(seconds)).with_columns(
        click=pl.when(silent).then(0).otherwise(pl.col("click"))
    )
    log.write_parquet(tmp_path / "timed.parquet")
    return tmp_path / "timed.parquet"


@pytest.fixture
def words(timed, columns):
    return ("evaluate", timed, *columns, "--time", "ts", "--every", "1d")


def test_each_period_has_figures_with_intervals(mcnet, words, timed):
    found = mcnet(*words, "--json").document
    lines = found["periods"]
    assert sorted({line["period"] for line in lines}) == [f"2023-11-{day}" for day in range(15, 19)]
    assert {line["metric"] for line in lines} == {"pcoc", "f_rce", "auc", "log_loss"}
    second = pl.read_parquet(timed).filter(pl.col("ts").dt.day() == 16)
    alone = library.evaluate(second["pctr"], second["click"], field=second["country"])
    line = next(line for line in lines if (line["period"], line["metric"]) == ("2023-11-16", "pcoc"))
    assert line["value"] == pytest.approx(alone.pcoc, rel=1e-4)
    assert (line["low"], line["high"]) == pytest.approx(alone.interval("pcoc"), rel=1e-3)
    assert (line["rows"], line["positives"]) == (len(second), second["click"].sum())
    whole = mcnet(*words[:-4], "--json").document
    assert found["metrics"] == whole["metrics"]


def test_people_and_files_get_the_table(mcnet, words, tmp_path):
    for name in ("t.parquet", "t.csv"):
        done = mcnet(*words, "--table", tmp_path / name)
        assert done.code == 0, done.err
        assert "2023-11-18" in done.out
    tidy = pl.read_parquet(tmp_path / "t.parquet")
    assert tidy.columns == ["period", "rows", "weight", "positives", "metric", "value", "low", "high", "floor"]
    assert tidy.height == pl.read_csv(tmp_path / "t.csv").height == 16


def test_a_journal_is_judged_by_its_periods_and_longer_ones(mcnet, words, timed, columns, tmp_path):
    days = mcnet(*words, "--json").document["periods"]
    folder = tmp_path / "history"
    assert mcnet("journal", "add", folder, timed, *columns, "--time", "ts", "--every", "6h").code == 0
    hours = mcnet("evaluate", folder, "--json").document["periods"]
    assert len({line["period"] for line in hours}) == 16
    again = mcnet("evaluate", folder, "--every", "1d", "--json").document["periods"]
    assert [line["value"] for line in again] == pytest.approx([line["value"] for line in days])
    later = mcnet("evaluate", folder, "--since", "2023-11-18", "--json").document
    assert later["rows"] == 2000
    assert {line["period"][:10] for line in later["periods"]} == {"2023-11-18"}


def test_a_report_of_a_journal_shows_the_periods_that_were_judged(mcnet, timed, columns, model, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr("mcnet.report.page.write_evaluation", lambda *_, periods, **__: shown.append(periods))
    journal = tmp_path / "history"
    assert mcnet("journal", "add", journal, timed, *columns, "--time", "ts", "--every", "6h").code == 0
    judged = ("evaluate", journal, "--model", model, "--report", tmp_path / "page.html")
    assert mcnet(*judged).code == mcnet(*judged, "--since", "2023-11-17", "--every", "1d").code == 0
    assert len(shown[0]) == 16
    assert [(period, part.rows) for period, part in shown[1].items()] == [("2023-11-17", 2000), ("2023-11-18", 2000)]


def test_a_journal_may_have_values_in_some_of_its_periods(mcnet, frame, columns, tmp_path):
    store = tmp_path / "ads.db"
    for day, valued in ((15, ()), (16, ("--value", "bid"))):
        log = tmp_path / f"{day}.parquet"
        frame.with_columns(bid=pl.col("pctr") + 1.0).write_parquet(log)
        assert mcnet("journal", "add", store, log, *columns, "--period", f"2023-11-{day}", *valued).code == 0
    done = mcnet("evaluate", store)
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines() if line.startswith("2023-11-")]
    assert [line[-1] == "–" for line in lines] == [True, False]
    assert next(line for line in done.out.splitlines() if line.startswith("period")).endswith("under-bid")


@pytest.mark.parametrize(
    ("threshold", "code"),
    [
        ("pcoc.low>5", 0),
        ("pcoc.low>0.1", 1),
        ("f_rce.high<1e-9", 0),
        ("f_rce.floor>0", 1),
        ("PCOC.high < 9", 1),
        ("field.pcoc>1", 1),
        ("field.pcoc>1 where positives>1e6", 0),
        ("country.pcoc.low>0.1 where positives>10 and weight>100", 1),
        ("country.f_rce>0", 1),
        ("country.f_rce.low>9", 0),
        ("period.pcoc>0.1 where positives > 10", 1),
        ("period.pcoc.low>9", 0),
        ("pcoc>0.1 where rows>1e9", 0),
    ],
)
def test_thresholds_speak_of_bounds_values_and_periods(mcnet, words, threshold, code):
    done = mcnet(*words, "--fail-if", threshold, "-q")
    assert done.code == code, done.err


def test_the_worst_values_are_named(mcnet, words):
    done = mcnet(*words, "--fail-if", "country.pcoc>0.01")
    assert "not met: country.pcoc is " in done.err
    assert " for country " in done.err
    assert "and 1 more, which is > 0.01" in done.err


def test_a_value_without_positives_is_judged_by_its_lower_bound(mcnet, words):
    last = (*words[:2], *words[2:-4])
    done = mcnet(*last, "--fail-if", "field.pcoc>1e6", "-q")
    assert done.code == 0
    found = parse_thresholds(["country.pcoc.low >= 1.02 where positives<=0"])[0]
    assert isinstance(found, Threshold)
    assert (found.scope, found.metric, found.bound, found.limit) == ("country", "pcoc", "low", 1.02)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("pcoc.middle>1", "there is no metric 'middle'"),
        ("rows.low>1", "rows has no interval"),
        ("field.auc>1", "of field there is pcoc, f_rce"),
        ("period.f_rce>1", "of period there is pcoc, not f_rce"),
        ("field.pcoc.floor>1", "PCOC has no noise floor"),
        ("pcoc>1 where", "not a threshold"),
        ("pcoc>1 where auc>1", "no condition on rows, weight, positives"),
        ("pcoc>1 where positives", "no condition on rows, weight, positives"),
        ("pcoc>1 where positives>1 or rows>1", "no condition on rows, weight, positives"),
        ("pcoc>1 and auc>1", "not a threshold"),
        ("pcoc..low>1", "there is no metric"),
    ],
)
def test_anything_else_is_refused_with_a_reason(word, message):
    with pytest.raises(InputError, match="--fail-if") as caught:
        parse_thresholds([word])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--fail-if", "period.pcoc>1"), "tests periods, but there are none"),
        (("--fail-if", "day.pcoc>1"), "speaks of the field 'day'; the fields that are judged are country"),
        (("--time", "ts"), "--every, the length of a period, is needed too"),
        (("--every", "1d"), "--time, the column of time, is needed too"),
        (("--table", "t.csv"), "pass --time and --every too"),
        (("--since", "2023-11-16"), "--since is for journals"),
        (("--time", "ts", "--every", "1d", "--table", "t.txt"), "will be a table"),
        (
            ("--time", "ts", "--every", "1d", "--table", "t.csv", "--actions-table", "./t.csv"),
            "--table and --actions-table both name t.csv",
        ),
    ],
)
def test_wrong_use_is_one_line(mcnet, timed, columns, given, message):
    done = mcnet("evaluate", timed, *columns, *given)
    assert (done.code, done.err.count("\n"), message in done.err) == (2, 1, True), done.err
