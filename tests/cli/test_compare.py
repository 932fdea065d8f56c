from datetime import datetime, timedelta

import polars as pl
import pytest
from tests.report.test_page import data

import mcnet as library


@pytest.mark.networks
def test_every_method_is_compared_and_one_is_chosen(mcnet, log, columns):
    found = mcnet("compare", log, *columns, "--test", log, "--json").document  # one fit a method
    assert {line["method"] for line in found["methods"]} == {*library.methods(), "mcnet-none"}
    losses = [line["metrics"]["log_loss"]["value"] for line in found["methods"]]
    assert losses == sorted(losses)
    chosen = next(line for line in found["methods"] if line["method"] == found["chosen"])
    assert chosen["log_loss_difference"] <= chosen["log_loss_difference_error"]


def test_the_best_is_saved_and_can_be_applied(mcnet, log, columns, tmp_path):
    model, page = tmp_path / "best.json", tmp_path / "page.html"
    words = ("--method", "base", "--method", "platt-field", "--save-best", model, "--report", page, "--time", "day")
    done = mcnet("compare", log, *columns, *words)
    assert done.code == 0, done.err
    assert "platt-field ←" in done.out
    assert library.load(model).method == "platt-field"
    assert "<html" in page.read_text(encoding="utf-8")[:500]
    assert mcnet("apply", model, log, "-o", tmp_path / "out.parquet").code == 0


def test_other_rows_can_judge(mcnet, log, columns, frame, tmp_path):
    test = tmp_path / "test.parquet"
    frame.tail(4000).write_parquet(test)
    found = mcnet("compare", log, *columns, "--test", test, "--method", "base", "--method", "platt", "--json").document
    assert found["judged_on"] == "the test rows"
    assert found["methods"][0]["rows"] == 4000


def test_a_sketch_with_folds_is_compared_without_its_log(mcnet, log, columns, tmp_path):
    sketch = tmp_path / "s.parquet"
    words = ("--method", "base", "--method", "platt-field", "--folds", "4", "--json")
    assert mcnet("sketch", log, *columns, "--folds", "4", "-o", sketch).code == 0
    one, other = (mcnet("compare", *given, *words).document for given in ((log, *columns), (sketch,)))
    for found in (one, other):
        for line in found["methods"]:
            del line["fit_seconds"]
    assert one == other


def test_a_bar_holds_the_chosen_method_to_account(mcnet, log, columns):
    words = ("compare", log, *columns, "--method", "platt", "-q")
    assert mcnet(*words, "--fail-if", "log_loss>9").code == 0
    assert mcnet(*words, "--fail-if", "log_loss>0").code == 1


def test_drift_without_a_report_is_refused(mcnet, log, columns):
    assert "--report" in mcnet("compare", log, *columns, "--time", "day").err


@pytest.mark.networks
def test_the_table_fits_eighty_columns_and_has_f_rce_only_with_a_field(mcnet, log, columns):
    pl.read_parquet(log).head(1000).write_parquet(log)
    words = ("--test", log)  # one fit per method
    done = mcnet("compare", log, *columns, *words)
    assert done.code == 0, done.err
    shown = done.out
    assert max(map(len, shown.splitlines())) <= 80
    assert "F-RCE" in shown
    assert "F-RCE" not in mcnet("compare", log, *columns[:4], "--method", "platt", *words).out


@pytest.fixture
def hours(frame, tmp_path):
    """Two logs of the same columns, the second one later: a moment for every row."""
    begin = datetime(2024, 5, 1)
    timed = frame.with_columns(time=pl.Series([begin + timedelta(minutes=5 * row) for row in range(len(frame))]))
    paths = tmp_path / "fit.parquet", tmp_path / "test.parquet"
    for path, part in zip(paths, (timed.head(6000), timed.tail(2000)), strict=True):
        part.write_parquet(path)
    return paths


def drift(page, name):
    found = data(page)["views"][0]["figures"].get(name)
    return found and found["data"][0]["text"]


def test_drift_is_shown_of_fresh_rows_and_of_fitted_ones_cut_to_periods(mcnet, hours, columns, tmp_path):
    fit, test = hours
    page = tmp_path / "page.html"
    words = ("--method", "platt-field", "--report", page, "--time", "time", "--force")
    done = mcnet("compare", fit, *columns, "--test", test, *words)
    assert "time has more than 120 values: it is cut to periods of 6h (--every)" in done.err
    assert drift(page, "drift")[:2] == ["2024-05-01 00:00", "2024-05-01 06:00"]
    assert drift(page, "fresh-drift")[0] == "2024-05-21 18:00"
    assert [word in page.read_text() for word in ("in-sample", "has not seen, with its 95")] == [True, True]
    assert mcnet("compare", fit, *columns, "--test", test, *words, "--every", "1w").err == f"report → {page}\n"
    assert drift(page, "drift")[0] == "2024-04-29"
    assert len(drift(page, "fresh-drift")) == 2


def test_test_rows_without_a_time_are_said_to_have_none(mcnet, hours, log, columns, tmp_path):
    page = tmp_path / "page.html"
    words = ("--method", "platt-field", "--report", page, "--time", "time")
    done = mcnet("compare", hours[0], *columns, "--test", log, *words)
    assert "the test rows have no column time" in done.err
    assert drift(page, "fresh-drift") is None
    assert drift(page, "drift")


def test_a_sketch_tells_the_columns_of_test_rows_and_keeps_its_fields_beside_the_time(mcnet, hours, columns, tmp_path):
    sketch, page = tmp_path / "s.parquet", tmp_path / "page.html"
    assert mcnet("sketch", hours[0], *columns, "--field", "time", "-o", sketch).code == 0
    words = ("--test", hours[1], "--method", "platt-field", "--report", page, "--time", "time", "--json")
    found = mcnet("compare", sketch, *words)
    assert found.code == 0, found.err
    assert list(found.document["methods"][0]["fields"]) == ["country"]
    assert len(drift(page, "drift")) == 84
    assert drift(page, "fresh-drift")[0] == "2024-05-21 18:00"
    assert "Calibration of pctr" in page.read_text()


def test_what_is_no_time_is_refused(mcnet, hours, columns, tmp_path):
    words = ("compare", hours[0], *columns, "--method", "platt", "--report", tmp_path / "page.html")
    for more, message in (
        (("--every", "1h"), "pass --time"),
        (("--time", "time", "--every", "soon"), "'soon' is not a period"),
        (("--time", "day", "--every", "1h"), "day has 'mon' in row 0, which is not a timestamp"),
        (("--time", "nowhere"), "has no column 'nowhere'; it has pctr"),
    ):
        done = mcnet(*words, *more)
        assert (done.code, message in done.err) == (2, True), done.err


def test_a_finished_sketch_of_test_rows_is_taken_as_it_is(mcnet, log, columns, frame, tmp_path):
    weighted, sketch = tmp_path / "weighted.parquet", tmp_path / "s.parquet"
    frame.with_columns(w=pl.lit(2)).write_parquet(weighted)
    words = ("--weight", "w", "--method", "platt-field", "--json")
    assert mcnet("sketch", weighted, *columns, "--weight", "w", "-o", sketch).code == 0
    one, other = (mcnet("compare", weighted, *columns, "--test", test, *words).document for test in (weighted, sketch))
    assert one["methods"][0]["metrics"] == other["methods"][0]["metrics"]
    assert one["methods"][0]["weight"] == 16_000


def test_what_is_worth_a_word_gets_one(mcnet, log, columns, tmp_path):
    few = ("compare", log, *columns, "--method", "platt")
    assert "is read both to fit and as --test" in mcnet(*few, "--test", log).err
    done = mcnet(*few, "--folds", "1")
    assert (done.code, "--folds" in done.err) == (2, True)
    done = mcnet(*few, "--report", tmp_path / "page.pdf")
    assert (done.code, "ends in .html" in done.err) == (2, True)
    done = mcnet(*few, "--report", tmp_path / "page.html", "--time", "day")
    assert (done.code, "day has 'mon', which is not a timestamp" in done.err) == (0, True)
    words = ("compare", log, "--score", "pctr", "--label", "click", "--method", "platt")
    done = mcnet(*words, "--report", tmp_path / "numbers.html", "--time", "country")  # 0 to 3: they may count something
    assert (done.code, "not a timestamp" in done.err) == (0, False)


def test_all_negative_rows_are_warned_of_once(mcnet, frame, columns, tmp_path):
    log = tmp_path / "log.parquet"
    frame.with_columns(click=pl.lit(0)).write_parquet(log)
    methods = [word for name in ("platt", "isotonic", "histogram", "platt-field") for word in ("--method", name)]
    done = mcnet("compare", log, *columns, *methods)
    assert done.code == 0
    assert done.err.count("every row is negative") == 1


def test_a_field_value_with_one_row_is_compared(mcnet, frame, columns, tmp_path):
    names = pl.Series("country", ["one row only", *frame["country"][1:]])
    frame.with_columns(names).write_parquet(tmp_path / "log.parquet")
    methods = ("platt-field", "per-field", "mcnet-bayes", "isotonic")
    words = [word for method in methods for word in ("--method", method)]
    done = mcnet("compare", tmp_path / "log.parquet", *columns, *words, "--json")
    assert (done.code, done.document["failed"]) == (0, {}), done.err
    assert {line["method"] for line in done.document["methods"]} == set(methods)


def test_when_one_method_fails_the_others_are_kept_and_shown(mcnet, log, columns, monkeypatch):
    def fails(calibrator, sketch):
        raise ValueError("array of sample points is empty")

    monkeypatch.setattr("mcnet.calibrators.per_field.PerField.fit_sketch", fails)
    words = ("--method", "platt", "--method", "per-field")
    done = mcnet("compare", log, *columns, *words)
    assert done.code == 0
    assert "platt ←" in done.out
    assert "per-field" in done.out + done.err
    assert "array of sample points is empty" in done.out + done.err
    assert "Traceback" not in done.err
    found = mcnet("compare", log, *columns, *words, "--json").document
    assert [line["method"] for line in found["methods"]] == ["platt"]
    assert found["failed"] == {"per-field": "ValueError: array of sample points is empty"}
