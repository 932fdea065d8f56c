import json

import numpy as np
import polars as pl
import pytest

import mcnet as library


def test_fit_from_files_equals_fit_in_python(mcnet, log, columns, frame, tmp_path):
    path = tmp_path / "model.json"
    assert mcnet("fit", log, *columns, "--method", "platt-field", "-o", path).code == 0
    fitted = library.PlattField().fit(frame["pctr"], frame["click"], field={"country": frame["country"]})
    loaded = library.load(path)
    expected = fitted.predict(frame["pctr"], frame["country"])
    # The same rows in other arrays: linear algebra may round them otherwise.
    np.testing.assert_allclose(loaded.predict(frame["pctr"], frame["country"]), expected, rtol=1e-9)


def test_a_sketch_is_accepted_where_a_log_is(mcnet, log, columns, tmp_path):
    sketch, one, other = tmp_path / "s.parquet", tmp_path / "one.json", tmp_path / "other.json"
    assert mcnet("sketch", log, *columns, "-o", sketch).code == 0
    done = mcnet("fit", sketch, "--method", "beta", "-o", one)
    assert (done.code, done.err.count("beta does not use the field country")) == (0, 1)
    assert library.load(one).fields == ()
    assert mcnet("fit", sketch, "--method", "platt-field", "-o", other).code == 0
    assert library.load(other).fields == ("country",)


def test_parameters_reach_the_method(mcnet, log, columns, tmp_path):
    path = tmp_path / "m.json"
    words = ("--method", "per-field", "--set", "inner=platt", "--set", "shrinkage=10")
    assert mcnet("fit", log, *columns, *words, "-o", path).code == 0
    assert json.loads(path.read_text())["parameters"] == {"inner": "platt", "shrinkage": 10}
    for wrong in ("nonsense=1", "shrinkage", "shrinkage=-1"):
        done = mcnet("fit", log, *columns, "--method", "per-field", "--set", wrong, "-o", path, "--force")
        assert (done.code, done.err.count("\n")) == (2, 1)


def test_fit_tells_scripts_what_it_did(mcnet, log, columns, tmp_path):
    found = mcnet("fit", log, *columns, "--method", "platt-field", "-o", tmp_path / "m.json", "--json").document
    assert found["rows"] == 8000
    assert found["columns"] == {"score": "pctr", "label": "click", "score_type": "probability", "negatives_kept": 1.0}


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv", "csv.gz", "arrow"])
def test_apply_keeps_rows_columns_and_order(mcnet, log, model, frame, ending):
    path = log.parent / f"out.{ending}"
    assert mcnet("apply", model, log, "-o", path).code == 0
    separator = "\t" if ending == "tsv" else ","
    found = {"parquet": pl.read_parquet, "arrow": pl.read_ipc}.get(
        ending, lambda p: pl.read_csv(p, separator=separator)
    )(path)
    expected = library.load(model).predict(frame["pctr"], frame["country"])
    assert found.columns == [*frame.columns, "calibrated"]
    assert np.allclose(found["pctr"], frame["pctr"], rtol=1e-12)
    assert found["day"].to_list() == frame["day"].to_list()
    assert np.allclose(found["calibrated"], expected, rtol=1e-12)


def test_apply_needs_to_be_told_the_score_of_a_model_that_does_not_know(mcnet, log, frame, tmp_path):
    path, out = tmp_path / "m.json", tmp_path / "out.parquet"
    library.Platt().fit(frame["pctr"], frame["click"]).save(path)
    assert "--score" in mcnet("apply", path, log, "-o", out).err
    assert mcnet("apply", path, log, "--score", "pctr", "-o", out).code == 0


def test_apply_refuses_a_column_that_is_there(mcnet, log, model, tmp_path):
    once, twice = tmp_path / "once.parquet", tmp_path / "twice.parquet"
    assert mcnet("apply", model, log, "-o", once, "--column", "p").code == 0
    refused = mcnet("apply", model, once, "-o", twice, "--column", "p")
    assert (refused.code, "pass --replace" in refused.err) == (2, True)
    assert not twice.exists()
    assert mcnet("apply", model, once, "-o", twice, "--column", "p", "--replace").code == 0
    assert pl.read_parquet(once).equals(pl.read_parquet(twice))
    assert mcnet("apply", model, log, "-o", twice, "--column", "pctr", "--replace", "--force").code == 2


def test_apply_refuses_a_sketch(mcnet, log, model, columns, tmp_path):
    sketch = tmp_path / "s.parquet"
    assert mcnet("sketch", log, *columns, "-o", sketch).code == 0
    assert "sketch" in mcnet("apply", model, sketch, "-o", tmp_path / "x.parquet").err


def test_logits_are_remembered(mcnet, frame, tmp_path):
    log, model, out = (tmp_path / name for name in ("log.parquet", "m.json", "out.parquet"))
    frame.with_columns(pctr=(pl.col("pctr") / (1 - pl.col("pctr"))).log()).write_parquet(log)
    fit = ("fit", log, "--score", "pctr", "--label", "click", "--method", "platt")
    assert mcnet(*fit, "-o", model).code == 2  # logits are no probabilities
    assert mcnet(*fit, "--logits", "-o", model).code == 0
    assert mcnet("apply", model, log, "-o", out).code == 0
    expected = library.Platt().fit(frame["pctr"], frame["click"]).predict(frame["pctr"])
    assert np.allclose(pl.read_parquet(out)["calibrated"], expected, rtol=1e-6)
    assert mcnet("evaluate", log, "--model", model, "--json").document["metrics"]["pcoc"]["value"] == pytest.approx(
        1.0, abs=1e-3
    )


def test_the_kind_of_scores_can_be_overridden(mcnet, frame, tmp_path):
    log, logits, model, out = (tmp_path / name for name in ("log.parquet", "logits.parquet", "m.json", "out.parquet"))
    frame.write_parquet(log)
    frame.with_columns(pctr=(pl.col("pctr") / (1 - pl.col("pctr"))).log()).write_parquet(logits)
    words = ("--score", "pctr", "--label", "click", "--method", "platt")
    expected = library.Platt().fit(frame["pctr"], frame["click"]).predict(frame["pctr"])
    for fitted, kind, applied, other in (
        (logits, "--logits", log, "--probabilities"),
        (log, "--probabilities", logits, "--logits"),
    ):
        assert mcnet("fit", fitted, *words, kind, "-o", model, "--force").code == 0
        assert mcnet("apply", model, applied, other, "-o", out, "--force").code == 0
        assert np.allclose(pl.read_parquet(out)["calibrated"], expected, rtol=1e-5)
        found = mcnet("evaluate", applied, "--model", model, other, "--json").document
        assert found["metrics"]["pcoc"]["value"] == pytest.approx(1.0, abs=1e-3)


def test_quiet_is_quiet(mcnet, log, model):
    done = mcnet("apply", model, log, "-o", log.parent / "out.parquet", "--quiet")
    assert (done.out, done.err) == ("", "")


def test_a_model_fitted_on_merged_sketches_remembers_their_columns(mcnet, log, columns, tmp_path):
    parts, both, model = (
        [tmp_path / "a.parquet", tmp_path / "b.parquet"],
        tmp_path / "both.parquet",
        tmp_path / "m.json",
    )
    for part in parts:
        assert mcnet("sketch", log, *columns, "-o", part).code == 0
    assert mcnet("merge", *parts, "-o", both).code == 0
    assert mcnet("fit", both, "--method", "platt-field", "-o", model).code == 0
    assert mcnet("apply", model, log, "-o", tmp_path / "out.parquet").code == 0
    assert mcnet("evaluate", log, "--model", model, "--json").document["rows"] == 8000
    assert "columns     score pctr, label click\n" in mcnet("show", model).out


@pytest.fixture
def bayes(mcnet, log, columns, tmp_path):
    path = tmp_path / "bayes.json"
    assert mcnet("fit", log, *columns, "-o", path, "-q").code == 0
    return path


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_apply_adds_the_bounds_of_an_interval(mcnet, log, bayes, frame, tmp_path, ending):
    out = tmp_path / f"out.{ending}"
    done = mcnet("apply", bayes, log, "--interval", "0.8", "-o", out)
    assert done.code == 0, done.err
    found = pl.read_parquet(out) if ending == "parquet" else pl.read_csv(out)
    names = ["calibrated", "calibrated_low", "calibrated_high"]
    assert found.columns == [*frame.columns, *names]
    model = library.load(bayes)
    given = frame["pctr"], frame["country"]
    expected = (model.predict(*given), *model.interval(*given, level=0.8))
    for name, values in zip(names, expected, strict=True):
        assert np.allclose(found[name], values, rtol=1e-9)
    assert (found["calibrated_low"] <= found["calibrated"]).all()
    assert (found["calibrated"] <= found["calibrated_high"]).all()
    again = mcnet("apply", bayes, out, "--interval", "0.8", "--column", "p", "-o", tmp_path / "again.parquet")
    assert again.code == 0
    taken = mcnet("apply", bayes, out, "--interval", "0.8", "-o", tmp_path / "x.parquet")
    assert (taken.code, "pass --replace" in taken.err) == (2, True)


def test_intervals_that_there_are_not_are_refused(mcnet, log, model, bayes, tmp_path):
    out = tmp_path / "out.parquet"
    assert "no intervals" in mcnet("apply", model, log, "--interval", "0.9", "-o", out).err
    assert mcnet("apply", bayes, log, "--interval", "1.5", "-o", out).code == 2
    assert not out.exists()


def test_a_field_that_tells_rows_apart_is_said_early(mcnet, frame, tmp_path):
    log = tmp_path / "log.parquet"
    frame.with_columns(user=pl.int_range(pl.len())).write_parquet(log)
    words = ("--score", "pctr", "--label", "click", "--field", "user")
    done = mcnet("sketch", log, *words, "-o", tmp_path / "s.parquet")
    assert done.err.count("has 8,000 values in 8,000 rows") == 1
    assert "values in" not in mcnet("sketch", log, *words[:4], "--field", "country", "-o", tmp_path / "t.parquet").err


def test_swapped_columns_are_warned_of(mcnet, log, tmp_path):
    done = mcnet("sketch", log, "--score", "click", "--label", "pctr", "-o", tmp_path / "s.parquet")
    assert "warning: every click is 0 or 1 and pctr has fractions" in done.err


def test_every_command_that_reads_rows_of_a_log_has_the_option_field():
    from typer.main import get_command

    from mcnet.cli.app import app

    known = get_command(app).commands
    reading = [*(known[name] for name in ("compare", "fit", "apply", "evaluate", "backtest", "sketch", "update"))]
    for command in (*reading, known["journal"].commands["add"]):
        assert "--field" in {word for option in command.params for word in option.opts}, command.name


def test_apply_takes_the_field_under_another_name(mcnet, model, frame, tmp_path):
    frame.rename({"country": "geo"}).write_parquet(tmp_path / "geo.parquet")
    done = mcnet("apply", model, tmp_path / "geo.parquet", "-o", tmp_path / "out.parquet")
    assert (done.code, "country" in done.err) == (2, True)
    done = mcnet("apply", model, tmp_path / "geo.parquet", "--field", "geo", "-o", tmp_path / "out.parquet")
    assert done.code == 0, done.err
    expected = library.load(model).predict(frame["pctr"], frame["country"])
    np.testing.assert_array_equal(pl.read_parquet(tmp_path / "out.parquet")["calibrated"], expected)


def test_missing_scores_are_counted_and_can_fail_a_job(mcnet, model, frame, tmp_path):
    log, output = tmp_path / "gaps.parquet", tmp_path / "out.parquet"
    frame.with_columns(pctr=pl.when(pl.int_range(pl.len()) >= 61).then("pctr")).write_parquet(log)
    done = mcnet("apply", model, log, "-o", output)
    assert done.code == 0
    assert "61 of 8,000 rows have no score and got no probability" in done.err
    assert pl.read_parquet(output)["calibrated"].null_count() == 61
    told = mcnet("apply", model, log, "-o", output, "--force", "--json", "--fail-if", "missing>0.001")
    assert told.code == 1
    assert told.document["missing"] == 61
    assert told.document["broken"] == ["missing is 0.007625, which is > 0.001"]
    refused = mcnet("apply", model, log, "-o", output, "--force", "--drop-missing")
    assert refused.code == 2
    assert "leave out --drop-missing" in refused.err


def test_fit_says_how_to_leave_out_missing_scores(mcnet, frame, columns, tmp_path):
    log = tmp_path / "gaps.parquet"
    frame.with_columns(pctr=pl.when(pl.int_range(pl.len()) >= 61).then("pctr")).write_parquet(log)
    refused = mcnet("fit", log, *columns, "-o", tmp_path / "m.json")
    assert refused.code == 2
    assert "pctr has 61 values missing" in refused.err
    assert "drop or fill these rows, or leave them out with --drop-missing" in refused.err
    assert mcnet("fit", log, *columns, "-o", tmp_path / "m.json", "--drop-missing").code == 0


def test_numbers_and_hours_are_fields_and_bins_are_chosen_once(mcnet, tmp_path):
    import numpy as np

    random = np.random.default_rng(2)
    score, age = random.uniform(0.05, 0.4, 3_000), random.gamma(3.0, 10.0, 3_000)
    rows = {"pctr": score, "click": (random.random(3_000) < score * age / 30.0).astype(int), "age": age}
    moments = np.datetime64("2026-11-16T00:00", "us") + random.integers(0, 5 * 86_400, 3_000).astype("timedelta64[s]")
    table = pl.DataFrame(rows | {"ts": moments})
    table[:2_000].write_parquet(tmp_path / "a.parquet")
    table[2_000:].write_parquet(tmp_path / "b.parquet")
    a, b, model = tmp_path / "a.parquet", tmp_path / "b.parquet", tmp_path / "model.json"
    columns = ("--score", "pctr", "--label", "click", "--field", "age:number", "--field", "ts:hour")
    assert mcnet("fit", a, *columns, "--bins", 4, "-o", model).code == 0
    shown = mcnet("show", model).out
    assert "age:number (4 values) × ts:hour (24 values)" in shown
    assert mcnet("evaluate", b, "--model", model).code == 0
    assert mcnet("compare", a, "--test", b, *columns, "--method", "platt-field").code == 0
    assert mcnet("apply", model, b, "-o", tmp_path / "out.parquet").code == 0
    sketches = [tmp_path / "a.sketch.parquet", tmp_path / "b.sketch.parquet"]
    for log, sketch in zip((a, b), sketches, strict=True):
        assert mcnet("sketch", log, *columns, "--bins", model, "-o", sketch).code == 0
    assert mcnet("merge", *sketches, "-o", tmp_path / "both.parquet").code == 0
    assert mcnet("sketch", b, *columns, "--force", "-o", sketches[1]).code == 0
    other = mcnet("merge", *sketches, "-o", tmp_path / "both.parquet", "--force")
    assert other.code == 2
    assert "pass --bins FILE, a sketch or model that has the bins" in other.err
    for given, said in (("1", "bins is 1"), (a, "not a model"), ("none.json", "there is no file none.json")):
        assert said in mcnet("fit", a, *columns, "--bins", given, "-o", tmp_path / "n.json").err


def test_columns_are_excluded_from_the_search_for_fields(mcnet, tmp_path):
    random = np.random.default_rng(1)
    size = 4_000
    country, later = random.integers(0, 4, size), random.integers(0, 5, size)
    z = random.normal(-1.0, 1.0, size)
    labels = random.random(size) < 1.0 / (1.0 + np.exp(-z - 0.7 * country - 0.6 * later + 2.0))
    columns = {"p": 1.0 / (1.0 + np.exp(-z)), "y": labels.astype(int), "country": country, "later": later}
    pl.DataFrame(columns).write_parquet(tmp_path / "log.parquet")
    given = (str(tmp_path / "log.parquet"), "--score", "p", "--label", "y")
    model = str(tmp_path / "model.json")
    assert mcnet("fit", *given, "--fields", "auto", "--exclude", "later", "-o", model).code == 0
    assert library.load(model).fields == ("country",)
    refused = mcnet("fit", *given, "--field", "country", "--exclude", "later", "-o", model, "--force")
    assert refused.code == 2
    assert "pass --fields auto" in refused.err
    some = mcnet("fields", *given, "--where", "country = 1")
    assert some.code == 0, some.err
    assert "country (one value)" in some.out


def test_scores_of_another_unit_than_in_the_fit_are_said(mcnet, log, model, frame, tmp_path):
    other = tmp_path / "small.parquet"
    frame.with_columns(pl.col("pctr") / 1000).write_parquet(other)
    for command in (("apply", model, other, "-o", tmp_path / "o.parquet"), ("evaluate", other, "--model", model)):
        done = mcnet(*command)
        assert done.code == 0
        assert done.err.count(", and was 0.127 in the fit") == 1
        assert "check that it is the same score in the same unit" in done.err
    frame.with_columns(pctr=pl.lit(0.99)).write_parquet(other)
    done = mcnet("apply", model, other, "-o", tmp_path / "o.parquet", "--force")
    assert "100 % of the rows have a pctr outside" in done.err
    assert "same unit" not in mcnet("apply", model, log, "-o", tmp_path / "o.parquet", "--force").err
