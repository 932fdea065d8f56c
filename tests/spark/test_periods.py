"""Periods in Spark are the periods of `Journal.add_files`; streams count every batch once."""

import subprocess
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from tests.sketches import alike
from tests.spark.sessions import job

import mcnet

COLUMNS = {"score": "score", "label": "label", "field": "country"}


def table_of(moments):
    generator = np.random.default_rng(5)
    rows = len(moments)
    return pl.DataFrame(
        {
            "time": moments,
            "score": generator.beta(1.0, 9.0, rows),
            "label": generator.integers(0, 2, rows),
            "country": generator.choice(["NL", "FR"], rows),
        }
    )


MOMENTS = [datetime(2025, 12, 30, 20, 7, 3) + timedelta(minutes=41 * i) for i in range(150)]
KINDS = {
    "timestamps in UTC": (pl.Series(MOMENTS).dt.replace_time_zone("UTC"), ("45m", "7h", "1d", "2w", "1mo")),
    "timestamps in another zone": (pl.Series(MOMENTS).dt.replace_time_zone("Asia/Kolkata"), ("1d",)),
    "timestamps without a zone": (pl.Series(MOMENTS), ("1h", "1d")),
    "texts": (pl.Series([m.isoformat(" ") for m in MOMENTS]), ("15m", "1d")),
    "texts with zones": (
        pl.Series([m.isoformat() + ("Z", "+05:30", "-0330", "+00:00")[i % 4] for i, m in enumerate(MOMENTS)]),
        ("30m", "1d"),
    ),
    "seconds": (pl.Series([int((m - datetime(1970, 1, 1)).total_seconds()) for m in MOMENTS]), ("6h", "1w")),
    "texts of many forms": (
        pl.Series([m.isoformat(" ") + ("+02", " +0530", " UTC", ",25z")[i % 4] for i, m in enumerate(MOMENTS)]),
        ("1h",),
    ),
    "numbers": (pl.Series(range(-20, 130)), ("40",)),
    "days": (pl.Series([m.date() for m in MOMENTS]), ("1w", "2d")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_periods_are_those_of_a_journal(spark, kind, tmp_path):
    from mcnet.spark import journal

    moments, steps = KINDS[kind]
    table_of(moments).with_columns(bid=pl.col("score").round(2) * 7).write_parquet(tmp_path / "log.parquet")
    df = spark.read.parquet(str(tmp_path / "log.parquet")).repartition(2)
    for every in steps:
        columns = {"time": "time", "every": every, "value": "bid", **COLUMNS}
        expected = mcnet.Journal(tmp_path / every)
        expected.add_files(tmp_path / "log.parquet", **columns)
        found = mcnet.Journal(tmp_path / f"spark {every}")
        found.add_parts(journal(df, **columns), source="spark")
        assert found.periods == expected.periods
        for (_, one), (_, other) in zip(found.sketches(), expected.sketches(), strict=True):
            assert alike(one, other)


def test_rows_without_a_moment_and_steps_without_a_unit_are_refused(spark):
    from mcnet.spark import journal

    df = spark.createDataFrame(
        [(None, 0.5, 1, "NL"), (datetime(2026, 1, 1), 0.5, 1, "NL")],
        "time timestamp, score double, label int, country string",
    )
    with pytest.raises(mcnet.InputError, match="rows without a timestamp"):
        journal(df, time="time", every="1d", **COLUMNS)
    with pytest.raises(mcnet.InputError, match="a period needs a unit"):
        journal(df, time="time", every="10", **COLUMNS)


@pytest.mark.parametrize("moment", [2026111713, "2026111713", "2026-11-17 10:30:00 PM"])
def test_timestamps_that_a_journal_refuses_are_refused(spark, moment):
    from mcnet.spark import journal

    df = spark.createDataFrame(
        [(moment, 0.5, 1, "NL")],
        "time {}, score double, label int, country string".format("long" if isinstance(moment, int) else "string"),
    )
    with pytest.raises(mcnet.InputError, match=rf"time has (plain numbers such as {moment}, not|'{moment}', which is)"):
        journal(df, time="time", every="1d", **COLUMNS)


def test_rows_without_a_score_are_left_out_and_counted_if_asked_for(spark, tmp_path):
    from mcnet.spark import journal, journal_writer

    rows = [(datetime(2026, 1, 1 + i % 2), None if i < 3 else 0.5, i % 2, "NL") for i in range(20)]
    df = spark.createDataFrame(rows, "time timestamp_ntz, score double, label int, country string")
    options = {"time": "time", "every": "1d", **COLUMNS}
    with pytest.raises(mcnet.InputError, match="score has 3 values missing"):
        journal(df, **options)
    parts = journal(df, drop_missing=True, **options)
    assert [part.rows for part in parts.values()] == [8, 9]
    assert sum(part.dropped_rows for part in parts.values()) == 3
    add = journal_writer(tmp_path / "journal", stream="clicks", drop_missing=True, **options)
    with pytest.warns(mcnet.CalibrationWarning, match="batch 0 of the stream adds nothing: a value is missing in each"):
        add(df.where("score IS NULL"), 0)
    add(df, 1)
    assert mcnet.Journal(tmp_path / "journal").sketch().rows == 17


@pytest.mark.timeout(900)
def test_a_stream_that_is_killed_and_started_again_counts_every_row_once(spark, tmp_path):
    """The driver dies after the journal has a batch and before Spark knows it: the batch comes again."""
    from tests.spark.stream_job import run_stream

    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for part in range(3):
        table_of(MOMENTS[50 * part : 50 * part + 50]).write_parquet(inbox / f"{part}.parquet")
    command, root = job("stream_job")
    killed = [*command, str(tmp_path)]
    first = subprocess.run(killed, cwd=root, capture_output=True, text=True, timeout=400, check=False)
    assert first.returncode == 9, first.stderr[-3000:]
    journal = mcnet.Journal(tmp_path / "journal")
    assert journal.sources() == {
        "clicks, batch 0",
        "clicks, batch 1",
    }
    again = []
    run_stream(spark, tmp_path, again.append)
    assert again == [1, 2], "the batch that Spark had not noted must come again"
    expected = mcnet.Journal(tmp_path / "expected")
    expected.add_files(inbox, time="time", every="1d", **COLUMNS)
    assert mcnet.Journal(tmp_path / "journal").periods == expected.periods
    assert alike(mcnet.Journal(tmp_path / "journal").sketch(), expected.sketch())
