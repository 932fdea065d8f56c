"""`mcnet export`: where the file goes, and options as they are typed."""

import duckdb
import pytest

from mcnet.export.targets import targets


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("--to", "onnx"), "model.onnx"),
        (("--to", "c"), "model.h"),
        (("--to", "sql"), "model.sql"),
        (("--to", "table"), "model.parquet"),
        (("--to", "table", "--set", "format=csv"), "model.csv"),
    ],
)
def test_without_a_name_the_file_lies_beside_the_model_and_is_not_overwritten(mcnet, model, words, name):
    done = mcnet("export", model, *words, "--json")
    before = model.with_name(name).read_bytes()
    expected = {"output": str(model.with_name(name)), "to": words[1], "method": "platt-field", "bytes": len(before)}
    assert done.document == expected
    refused = mcnet("export", model, *words)
    assert (refused.code, "--force" in refused.err) == (2, True)
    assert model.with_name(name).read_bytes() == before
    assert mcnet("export", model, *words, "--force").code == 0


def test_the_ending_says_the_target_and_json_prints_it(mcnet, model, tmp_path):
    assert mcnet("export", model, "-o", tmp_path / "ctr.hpp", "--json").document["to"] == "c"


def test_a_large_export_is_said_to_be_large(mcnet, model, tmp_path, monkeypatch):
    done = mcnet("export", model, "-o", tmp_path / "small.h")
    assert "warning" not in done.err
    assert "kB)" in done.err
    monkeypatch.setattr("mcnet.export.pieces.LARGE_BYTES", 100)
    done = mcnet("export", model, "-o", tmp_path / "large.h", "--quiet")
    assert done.err.startswith("warning: the C header will have about ")
    assert done.err.count("\n") == 1  # said once, and with one opinion of which export is the smallest


def test_the_help_names_every_target_and_its_options(mcnet):
    shown = mcnet("export", "--help").out
    for name, target in targets().items():
        assert f"  {name} " in shown
        assert [option for option in target.options if f"{option}=" not in shown] == []


def test_neither_a_target_nor_a_file_is_refused(mcnet, model):
    done = mcnet("export", model)
    assert (done.code, "--to" in done.err, "--output" in done.err) == (2, True, True)


def test_a_dash_is_no_file(mcnet, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = mcnet("export", model, "--to", "c", "-o", "-")
    assert (done.code, "name a file" in done.err) == (2, True)
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("to", "word", "message"),
    [
        ("c", "name=12", "a letter first"),
        ("onnx", "missing_number=abc", "missing_number is 'abc'"),
        ("onnx", "missing_number=1.5", "missing_number is '1.5'"),
        ("sql", "output=", "output is ''"),
        ("sql", "fields=country", "fields is 'country'; it must be a mapping"),
        ("sql", 'fields={"country":5}', "fields is"),
        ("table", "format=xls", "format is 'xls'"),
        ("table", "name=12", "has no option name"),
    ],
)
def test_options_that_cannot_be_are_one_line_for_people(mcnet, model, tmp_path, to, word, message):
    done = mcnet("export", model, "--to", to, "-o", tmp_path / "out.csv", "--set", word)
    assert (done.code, done.err.count("\n"), message in done.err) == (2, 1, True)
    assert not (tmp_path / "out.csv").exists()


def test_texts_are_taken_as_texts(mcnet, model, tmp_path):
    words = [part for word in ("score=5", "tables=5", "output=null", "form=tables") for part in ("--set", word)]
    assert mcnet("export", model, "-o", tmp_path / "out.sql", *words).code == 0
    connection = duckdb.connect()
    connection.execute("CREATE TABLE impressions AS SELECT 0.1 AS \"5\", 'a' AS country")
    found = connection.sql((tmp_path / "out.sql").read_text())
    assert found.columns == ["5", "country", "null"]
    assert mcnet("export", model, "-o", tmp_path / "out.onnx", "--set", "missing=7").code == 0
