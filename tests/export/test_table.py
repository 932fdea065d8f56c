"""Tables: every knot a row, and the curves can be built again from them."""

import csv
import json

import duckdb
import numpy as np
import polars as pl
import pytest

import mcnet
from mcnet.curves.curves import Curves
from mcnet.export.pieces import Exported
from mcnet.export.table import export_table, knot_table
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import model_document
from mcnet.rows.contexts import Contexts


@pytest.mark.parametrize("name", ["model.parquet", "model.csv"])
def test_the_curves_can_be_built_again(tmp_path, large_model, name):
    export_table(large_model, tmp_path / name)
    if name.endswith("parquet"):
        table = pl.read_parquet(tmp_path / name)
    else:
        table = pl.read_csv(tmp_path / name, skip_lines=1, schema=knot_table(Exported.of(large_model)).schema)
    assert table.equals(knot_table(Exported.of(large_model)))
    for (curve,), part in table.group_by("curve"):
        np.testing.assert_array_equal(part["score"], large_model.curves.grid(curve))
        np.testing.assert_array_equal(part["probability"], large_model.curves.values(curve))
        np.testing.assert_array_equal(part["knot"], np.arange(len(part)))


def test_missing_any_and_empty_are_told_apart(tmp_path, two_field_model):
    table = knot_table(Exported.of(two_field_model))
    contexts = table.filter(pl.col("knot") == 0)
    assert contexts.row(0)[:4] == (None, "any", None, "any")
    rows = two_field_model.contexts.rows()
    for row, context in zip(contexts.rows(named=True)[1:], rows, strict=True):
        for field in ("country", "source"):
            assert (row[f"{field}_is"] == "any") == (field not in context)
            assert (row[f"{field}_is"] == "missing") == (context.get(field, "") is None)
            assert row[field] == context.get(field)


def test_fields_named_like_the_numbers_get_names_of_their_own():
    contexts = Contexts(("score", "curve"), (("a",), ("b",)), np.zeros((1, 2), dtype=np.int32))
    model = CalibrationModel("mcnet", {}, contexts, Curves.constant(0.5, 2))
    assert knot_table(Exported.of(model)).columns == [
        "score_2",
        "score_2_is",
        "curve_2",
        "curve_2_is",
        "curve",
        "knot",
        "score",
        "probability",
    ]


def test_tables_say_where_they_come_from(tmp_path, large_model):
    checksum = model_document(large_model)["checksum"]
    export_table(large_model, tmp_path / "model.parquet")
    assert pl.read_parquet_metadata(tmp_path / "model.parquet")["checksum"] == checksum
    export_table(large_model, tmp_path / "model.csv")
    with (tmp_path / "model.csv").open(encoding="utf-8", newline="") as file:
        origin = file.readline()
        assert next(csv.reader(file)) == knot_table(Exported.of(large_model)).columns
    assert origin.startswith("# ")
    assert json.loads(origin[2:])["checksum"] == checksum


@pytest.mark.parametrize("name", ["country", 'a "quote"', "a\\\\", 'both\\\\"', "it's, #1"])
def test_the_origin_of_a_csv_table_is_json_that_readers_skip(tmp_path, name):
    contexts = Contexts((name,), (("a", 'b"c'),), np.array([[0], [1]], dtype=np.int32))
    model = CalibrationModel("mcnet", {}, contexts, Curves.constant(0.5, 3))
    path = tmp_path / "model.csv"
    export_table(model, path)
    with path.open(encoding="utf-8") as file:
        assert json.loads(file.readline().removeprefix("# "))["fields"] == [name]
    expected = [row[1:] for row in knot_table(Exported.of(model)).rows()]
    assert [row[1:] for row in pl.read_csv(path, skip_lines=1).rows()] == expected
    assert [row[1:] for row in pl.read_csv(path, comment_prefix="#").rows()] == expected
    read = duckdb.sql(f"select * from read_csv('{path}', comment='#', quote='\"', header=true)").fetchall()
    assert [row[1:] for row in read] == expected


def test_the_format_is_the_ending_or_is_asked_for(tmp_path, two_field_model):
    with pytest.raises(mcnet.InputError, match="pass format="):
        export_table(two_field_model, tmp_path / "model.txt")
    export_table(two_field_model, tmp_path / "model.txt", format="csv")
    assert (tmp_path / "model.txt").read_text(encoding="utf-8").startswith("# ")
