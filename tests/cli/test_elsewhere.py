"""Pipes, conditions, missing values and queries on the command line."""

import subprocess
import sys

import polars as pl
import pytest
from tests.sketches import alike

import mcnet as library


def _piped(words, content):
    done = subprocess.run(
        [sys.executable, "-m", "mcnet", *map(str, words)], input=content, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_rows_are_piped_through(tmp_path, log, frame, mcnet, columns):
    model = tmp_path / "model.json"
    assert mcnet("fit", log, *columns, "--method", "platt", "-o", model).code == 0
    calibrated = _piped(["apply", model, "-", "-o", "-"], frame.head(50).write_csv().encode())
    assert calibrated.splitlines()[0].endswith(b",calibrated")
    assert len(calibrated.splitlines()) == 51
    sketch = _piped(["sketch", "-", *columns, "-o", "-"], log.read_bytes())
    (tmp_path / "piped.parquet").write_bytes(sketch)
    expected = library.scan(log, score="pctr", label="click", field="country")
    assert library.Sketch.load(tmp_path / "piped.parquet") == expected


def test_stdout_takes_one_thing(tmp_path, log, mcnet, columns):
    assert "both the sketch" in mcnet("sketch", log, *columns, "-o", "-", "--json").err
    assert "cannot be written from here" in mcnet("sketch", log, *columns, "-o", "s3://bucket/sketch.parquet").err


def test_a_query_is_printed_and_its_result_is_read(tmp_path, log, mcnet, columns):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: pip install duckdb")
    done = mcnet("sketch", "--sql", "duckdb", "--table", "rows", *columns, "--where", "day = 'mon'")
    assert done.code == 0
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW rows AS SELECT * FROM '{log}'")
        connection.sql(done.out).write_parquet(str(tmp_path / "result.parquet"))
    assert mcnet("sketch", tmp_path / "result.parquet", "-o", tmp_path / "queried.parquet").code == 0
    assert mcnet("sketch", log, *columns, "--where", "day = 'mon'", "-o", tmp_path / "scanned.parquet").code == 0
    queried, scanned = (library.Sketch.load(tmp_path / f"{name}.parquet") for name in ("queried", "scanned"))
    assert alike(queried, scanned)
    assert 0 < queried.rows < pl.read_parquet(log).height


def test_a_query_for_boolean_labels_is_printed(mcnet, columns):
    words = ("sketch", "--sql", "postgresql", "--table", "rows", *columns)
    assert 'CASE WHEN "click" IS NULL THEN NULL WHEN "click" THEN' in mcnet(*words, "--label-type", "boolean").out
    assert 'WHEN "click" THEN' not in mcnet(*words).out
    assert "it must be 'number' or 'boolean'" in mcnet(*words, "--label-type", "text").err


def test_every_command_that_reads_logs_reads_an_object_store(s3, tmp_path, log, frame, mcnet, columns):
    settings, client = s3
    client.put_object(Bucket="logs", Key="cli/log.parquet", Body=log.read_bytes())
    address, model = "s3://logs/cli/log.parquet", tmp_path / "model.json"
    options = [word for name, value in settings.items() for word in ("--storage-option", f"{name}={value}")]
    assert mcnet("fit", address, *columns, "--method", "platt", "-o", model, *options).code == 0
    assert mcnet("sketch", address, *columns, "-o", tmp_path / "sketch.parquet", *options).code == 0
    expected = library.scan(log, score="pctr", label="click", field="country")
    assert library.Sketch.load(tmp_path / "sketch.parquet") == expected
    assert mcnet("evaluate", address, "--model", model, "--label", "click", *options).code == 0
    assert mcnet("compare", address, *columns, "--method", "platt", *options).code == 0
    assert mcnet("apply", model, address, "-o", "s3://logs/cli/calibrated.parquet", *options).code == 0
    written = pl.read_parquet("s3://logs/cli/calibrated.parquet", storage_options=settings)
    assert written["calibrated"].to_list() == library.load(model).predict(frame["pctr"]).tolist()
    periods = ("--time", "day", "--every", "1")
    frame.with_columns(day=pl.int_range(pl.len()) // (frame.height // 3 + 1)).write_parquet(tmp_path / "days.parquet")
    client.put_object(Bucket="logs", Key="cli/days.parquet", Body=(tmp_path / "days.parquet").read_bytes())
    days, journal = "s3://logs/cli/days.parquet", tmp_path / "journal"
    for _ in range(2):  # rows that come again count once
        assert mcnet("journal", "add", journal, days, *columns, *periods, *options).code == 0
    assert library.Journal(journal).sketch() == expected
    assert "cannot be read" in mcnet("sketch", "s3://logs/none.parquet", *columns, "-o", "x.parquet", *options).err


def test_wrong_use_of_a_query_is_refused(log, mcnet, columns):
    for words, told in (
        (("sketch", "--sql", "duckdb", *columns), "go together"),
        (("sketch", "--table", "t", *columns), "go together"),
        (("sketch", log, "--sql", "duckdb", "--table", "t", *columns), "reads no logs"),
        (("sketch", "--sql", "oracle", "--table", "t", *columns), "it must be one of duckdb"),
        (("sketch", "--sql", "duckdb", "--table", "t"), "name the columns of t"),
        (("sketch", *columns, "-o", "x.parquet"), "name the logs to read"),
        (("sketch", log, *columns), "name the file to write with -o"),
        (("sketch", log, *columns, "-o", "x.parquet", "--storage-option", "region"), "NAME=VALUE"),
    ):
        done = mcnet(*words)
        assert done.code == 2
        assert told in done.err


def test_dropped_rows_are_told(tmp_path, frame, mcnet, columns):
    path = tmp_path / "gaps.csv"
    gaps = frame.head(1000).with_columns(
        pctr=pl.when(pl.int_range(pl.len()) % 10 == 0).then(None).otherwise(pl.col("pctr"))
    )
    gaps.write_csv(path, separator=";")
    refused = mcnet("sketch", path, *columns, "--separator", ";", "-o", tmp_path / "x.parquet")
    assert refused.code == 2
    assert "100 values missing" in refused.err
    done = mcnet("sketch", path, *columns, "--separator", ";", "--drop-missing", "--json", "-o", tmp_path / "x.parquet")
    assert done.code == 0
    assert (done.document["rows"], done.document["dropped_rows"]) == (900, 100)
    assert "100 rows were left out" in done.err
    fitted = mcnet("fit", path, *columns, "--separator", ";", "--drop-missing", "-o", tmp_path / "m.json", "--json")
    assert fitted.document["dropped_rows"] == 100
