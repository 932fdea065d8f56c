"""`mcnet backtest`: tables, JSON, files, and what is refused."""

import polars as pl
import pytest

from mcnet.cli.run import UNUSABLE

QUICK = ("--method", "platt", "--memory", "2", "--memory", "everything")
TIMED = ("--time", "ts", "--every", "1d")


@pytest.fixture
def days(frame, tmp_path):
    """A log of six days."""
    path = tmp_path / "days.parquet"
    seconds = pl.Series(range(len(frame))) * 60 + 1_700_006_400
    frame.with_columns(ts=pl.from_epoch(seconds)).write_parquet(path)
    return path


def test_the_table_has_every_forecaster_and_the_page_and_file_are_written(mcnet, days, columns, tmp_path):
    page, table = tmp_path / "page.html", tmp_path / "table.parquet"
    done = mcnet("backtest", days, *columns, *TIMED, *QUICK, "--report", page, "-o", table)
    assert done.code == 0, done.err
    for name in ("tracker ←", "base scores", "platt, half-life 2", "platt, everything"):
        assert name in done.out
    assert "block bootstrap over periods" in done.out
    written = pl.read_parquet(table)
    assert written["period"].n_unique() == 5
    assert len(written) == 5 * 4
    assert "Backtest of pctr" in page.read_text(encoding="utf-8")


SUMMARY = {
    "forecaster": str,
    "method": str,
    "memory": str | None,
    **dict.fromkeys(("log_loss", "log_loss_low", "log_loss_high"), float),
    **dict.fromkeys(("difference", "difference_low", "difference_high"), float),
    **dict.fromkeys(("pcoc", "pcoc_low", "pcoc_high", "f_rce"), float),
    "failures": int,
}
BY_PERIOD = {
    **dict.fromkeys(("period", "forecaster", "method"), str),
    "memory": str | None,
    "rows": int,
    **dict.fromkeys(("weight", "positives", "log_loss", "pcoc", "pcoc_low", "pcoc_high", "f_rce"), float),
}
DOCUMENT = {
    **dict.fromkeys(("first_period", "last_period", "best_in_hindsight"), str),
    **dict.fromkeys(("periods", "rows", "delay"), int),
    "fields": list,
    "level": float,
    "tracker_regret": float,
    "summary": list,
    "by_period": list,
}


def test_json_has_the_documented_keys_and_types(mcnet, days, columns):
    done = mcnet("backtest", days, *columns, *TIMED, *QUICK, "--delay", "2d", "--json", "-q")
    assert done.code == 0, done.err
    found = done.document
    rows = [(found, DOCUMENT), *((row, SUMMARY) for row in found["summary"])]
    for row, types in [*rows, *((row, BY_PERIOD) for row in found["by_period"])]:
        assert list(row) == list(types) or row is found
        for name, kind in types.items():
            assert isinstance(row[name], kind), name
    assert (found["delay"], found["periods"], found["fields"]) == (2, 3, ["country"])


def test_a_journal_needs_no_columns(mcnet, days, columns, tmp_path):
    import mcnet as library

    journal = library.Journal(tmp_path / "journal")
    words = {"score": "pctr", "label": "click", "field": "country", "time": "ts", "every": "1d", "resolution": 64}
    journal.add_files(days, **words)
    (tmp_path / "mcnet.toml").write_text('score = "other"\n')
    of_journal = mcnet("backtest", journal.path, *QUICK, "--json", "-q", "--config", tmp_path / "mcnet.toml")
    of_log = mcnet("backtest", days, *columns, *TIMED, *QUICK, "--json", "-q")
    assert of_journal.code == 0, of_journal.err
    found = of_journal.document
    assert found.pop("config").endswith("mcnet.toml")
    assert found == of_log.document


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--time", "ts"), "--every is missing"),
        ((*TIMED, "--memory", "week"), "'week' is not a memory"),
        ((*TIMED, "--tracker-only", "--memory", "2"), "--tracker-only compares no methods"),
        ((*TIMED, "--delay", "30d"), "no period could be judged"),
        ((*TIMED, "-o", "table.csv"), "a Parquet file"),
        ((*TIMED, "--report", "page.pdf"), "an HTML page"),
    ],
)
def test_wrong_use_is_told(mcnet, days, columns, monkeypatch, words, said):
    monkeypatch.chdir(days.parent)
    more = () if "--memory" in words else ("--method", "platt", "--memory", "2")
    done = mcnet("backtest", days, *columns, *words, *more)
    assert done.code == UNUSABLE
    assert said in done.err
