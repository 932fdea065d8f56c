import json

import numpy as np
import pytest

import mcnet as library
from mcnet.rows.sql_dialects import DIALECTS


def test_merged_parts_equal_the_whole(mcnet, frame, log, columns, tmp_path):
    for number, part in enumerate((frame.head(3000), frame.tail(5000))):
        part.write_parquet(tmp_path / f"log{number}.parquet")
        output = tmp_path / f"part{number}.parquet"
        assert mcnet("sketch", tmp_path / f"log{number}.parquet", *columns, "-o", output).code == 0
    done = mcnet("merge", f"{tmp_path}/part*.parquet", "-o", tmp_path / "all.parquet", "--json")
    assert done.document["rows"] == 8000
    assert mcnet("sketch", log, *columns, "-o", tmp_path / "whole.parquet").code == 0
    assert library.Sketch.load(tmp_path / "all.parquet") == library.Sketch.load(tmp_path / "whole.parquet")


def test_what_is_no_sketch_is_not_merged(mcnet, log, tmp_path):
    assert "not a sketch" in mcnet("merge", log, "-o", tmp_path / "all.parquet").err


def test_the_resolution_can_be_exact_and_nothing_else_in_words(mcnet, log, columns, tmp_path):
    assert mcnet("sketch", log, *columns, "--resolution", "exact", "-o", tmp_path / "a.parquet").code == 0
    assert library.Sketch.load(tmp_path / "a.parquet").resolution == "exact"
    assert mcnet("sketch", log, *columns, "--resolution", "32", "-o", tmp_path / "b.parquet").code == 0
    assert mcnet("sketch", log, *columns, "--resolution", "fine", "-o", tmp_path / "c.parquet").code == 2


@pytest.mark.parametrize("how", [("-o", "sketch.parquet"), ("--sql", "duckdb", "--table", "rows")])
def test_periods_without_a_column_of_time_are_refused(mcnet, log, columns, how):
    logs = [] if "--sql" in how else [log]
    done = mcnet("sketch", *logs, *columns, *how, "--every", "1d")
    assert (done.code, done.err) == (2, "mcnet: --every cuts a column of time to periods; pass --time too\n")


def test_a_log_and_a_sketch_do_not_mix(mcnet, log, columns, tmp_path):
    assert mcnet("sketch", log, *columns, "-o", tmp_path / "s.parquet").code == 0
    assert "sketch" in mcnet("fit", log, tmp_path / "s.parquet", *columns, "-o", tmp_path / "m.json").err


def test_columns_of_a_log_must_be_named(mcnet, log, tmp_path):
    assert "column of scores" in mcnet("fit", log, "-o", tmp_path / "m.json").err
    assert "column of labels" in mcnet("fit", log, "--score", "pctr", "-o", tmp_path / "m.json").err
    assert "'p'" in mcnet("fit", log, "--score", "p", "--label", "click", "-o", tmp_path / "m.json").err


def test_show_tells_a_person_and_a_script(mcnet, model):
    shown = mcnet("show", model, "--contexts", "2").out
    assert "country (4 values)" in shown
    assert "kept within each context: a higher score never gets a lower probability" in " ".join(shown.split())
    assert "8,000 rows" in shown
    assert "2 more contexts" in shown
    assert "⠤" in shown or "⠒" in shown
    found = mcnet("show", model, "--json").document
    assert (found["method"], found["fields"], found["contexts"]) == ("platt-field", {"country": 4}, 4)


def test_show_says_for_what_the_order_holds(mcnet, tmp_path):
    score, label = np.tile(np.linspace(0.1, 0.9, 50), 4), np.arange(200) % 2
    for fitted, said in (
        (library.Platt(), "kept: a higher score never gets a lower probability"),
        (library.Histogram(), "not guaranteed"),
    ):
        path = tmp_path / f"{fitted.method}.json"
        fitted.fit(score, label).save(path)
        assert said in " ".join(mcnet("show", path).out.split())
        assert said in library.load(path)._repr_html_()


def test_show_has_the_largest_contexts_first(mcnet, tmp_path):
    score = np.tile(np.linspace(0.1, 0.9, 50), 12)
    field = np.repeat(["a", "b", None, "d"], [50, 100, 300, 150])
    fitted = library.PlattField().fit(score, np.arange(600) % 2, field={"f": field, "g": np.full(600, "x")})
    fitted.save(tmp_path / "model.json")

    def names(*given):
        lines = mcnet("show", tmp_path / "model.json", *given).out.splitlines()
        first = next(number for number, line in enumerate(lines) if line.startswith("any other"))
        return [line.split("  ")[0] for line in lines[first + 1 : lines.index("", first)]]

    assert names() == ["(missing) / x", "d / x", "b / x", "a / x"]
    assert names("--contexts", "2") == ["(missing) / x", "d / x", "… and 2 more contexts (--contexts N)"]
    assert names("--contexts", "0") == ["… and 4 more contexts (--contexts N)"]


def test_methods_are_listed(mcnet):
    assert [line["method"] for line in mcnet("methods", "--json").document["methods"]] == library.methods()
    shown = mcnet("methods").out
    assert [word in shown for word in ("per-field", "mcnet-bayes, the default of mcnet fit", "published model")] == [
        True
    ] * 3


def test_methods_whose_library_is_missing_are_listed_with_what_to_install(mcnet, monkeypatch):
    from mcnet.errors import NotSupportedError

    def missing(name, **_):
        raise NotSupportedError(f"{name} needs torch, which is not installed: pip install '.[networks]'")

    monkeypatch.setattr("mcnet.calibrators.methods.calibrator", missing)
    assert "mcnet needs torch" in mcnet("methods").out


def test_exports_are_written(mcnet, model, tmp_path):
    for ending in ("h", "sql", "csv"):
        assert mcnet("export", model, "-o", tmp_path / f"calibrate.{ending}").code == 0
    done = mcnet("export", model, "--to", "poetry", "-o", tmp_path / "x")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert json.loads(model.read_text())["method"] == "platt-field"


def test_what_is_no_model_is_said_to_be_what_it_is(mcnet, log, columns, tmp_path):
    assert mcnet("sketch", log, *columns, "-o", tmp_path / "s.parquet").code == 0
    for words in (("show",), ("apply",), ("export",)):
        more = {"apply": (log, "-o", tmp_path / "out.parquet"), "export": ("--to", "c")}.get(words[0], ())
        done = mcnet(*words, tmp_path / "s.parquet", *more)
        assert (done.code, "is a sketch, not a model; fit one on it: mcnet fit" in done.err) == (2, True)
        assert "is a parquet file, not a model" in mcnet(*words, log, *more).err


def test_the_empty_value_has_a_name_of_its_own(mcnet, frame, tmp_path):
    import polars as pl

    log = tmp_path / "log.parquet"
    empty = pl.when(pl.col("day") == "mon").then(pl.lit("")).otherwise(pl.col("day"))
    frame.with_columns(day=empty).write_parquet(log)
    words = ("--score", "pctr", "--label", "click", "--field", "day", "--method", "platt-field")
    assert mcnet("fit", log, *words, "-o", tmp_path / "m.json").code == 0
    shown = [line.split()[0] for line in mcnet("show", tmp_path / "m.json").out.splitlines() if line.strip()]
    assert [name in shown for name in ('""', "tue", "all")] == [True, True, False]


def test_a_sketch_that_is_merged_with_itself_is_said_to_count_twice(mcnet, log, columns, tmp_path):
    sketch, other = tmp_path / "one.parquet", tmp_path / "copy.parquet"
    assert mcnet("sketch", log, *columns, "-o", sketch).code == 0
    other.write_bytes(sketch.read_bytes())
    for given in ((sketch, sketch), (sketch, other)):
        done = mcnet("merge", *given, "-o", tmp_path / "both.parquet", "--force")
        assert (done.code, done.err.count("count more than once")) == (0, 1)
        assert library.Sketch.load(tmp_path / "both.parquet").rows == 16_000


def test_the_help_names_every_dialect(mcnet):
    shown = " ".join(mcnet("sketch", "--help").out.split())
    assert " or ".join(DIALECTS) in shown
    assert "true or false in postgresql or bigquery or snowflake." in shown


def test_show_says_what_each_field_contributes(mcnet, log, columns, model, tmp_path):
    path = tmp_path / "bayes.json"
    assert mcnet("fit", log, *columns, "--field", "day", "-o", path, "-q").code == 0
    shown = mcnet("show", path).out
    for words in ("log-loss without it", "strongest values", "country = ", "odds times", "own rows", "prior"):
        assert words in shown
    known = mcnet("show", path, "--json").document["provenance"]["contributions"]
    assert [line["field"] for line in known] == ["country", "day"]
    assert all(0.0 <= value["own"] <= 1.0 for line in known for value in line["strongest"])
    assert "log-loss without it" not in mcnet("show", model).out  # a file that does not know it says nothing
