"""Logs that are added to a journal: by period, each file as a whole, and what is left out or refused."""

from datetime import datetime

import numpy as np
import polars as pl
import pytest
from tests.store.conftest import rows

from mcnet.errors import CalibrationWarning, InputError
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.views import sketches_by
from mcnet.store.files import Spool


def test_files_of_many_periods_in_one_pass(journal, tmp_path):
    rng = np.random.default_rng(0)
    score = rng.random(3000)
    frame = pl.DataFrame(
        {
            "score": score,
            "click": (rng.random(3000) < score).astype(int),
            "country": rng.choice(["NL", "FR"], 3000),
            "ts": pl.Series(rng.integers(0, 5 * 24, 3000) * 3600 + 1_700_000_000).cast(pl.Int64),
        }
    ).with_columns(pl.from_epoch("ts"))
    frame[:2000].write_parquet(tmp_path / "a.parquet")
    frame[2000:].write_parquet(tmp_path / "b.parquet")
    asked = {"score": "score", "label": "click", "field": "country", "time": "ts", "every": "1d"}
    added = journal.add_files([tmp_path / "a.parquet", tmp_path / "b.parquet"], **asked)
    assert added.rows == 3000
    for period, sketch in journal.sketches():
        part = frame.filter(pl.col("ts").dt.strftime("%Y-%m-%d") == period)
        assert sketch == Sketch.from_rows(part["score"], part["click"], field={"country": part["country"]})
    assert journal.add_files(tmp_path / "*.parquet", **asked).rows == 0


@pytest.mark.parametrize("ordered", [True, False])
def test_periods_that_do_not_fit_into_memory_wait_on_disk_and_come_out_the_same(opened, tmp_path, monkeypatch, ordered):
    rng = np.random.default_rng(1)
    hours = rng.integers(0, 40, 4000)
    frame = pl.DataFrame(
        {
            "score": rng.random(4000),
            "click": rng.integers(0, 2, 4000),
            "country": rng.choice(["NL", "FR", "DE"], 4000),
            "ts": pl.Series((np.sort(hours) if ordered else hours) * 3600 + 1_700_000_000).cast(pl.Int64),
        }
    ).with_columns(pl.from_epoch("ts"))
    frame.write_parquet(tmp_path / "log.parquet")
    asked = {"score": "score", "label": "click", "field": "country", "time": "ts", "every": "1h"}
    whole, spilled = opened("whole"), opened("spilled")
    whole.store.add_head("whole")
    whole.store.add_head("spilled")
    whole.add_files(tmp_path / "log.parquet", **asked)
    parts, files = [], []
    monkeypatch.setattr("mcnet.rows.logs.BATCH_ROWS", 500)
    monkeypatch.setattr("mcnet.sketch.accumulate._DENSE_CELLS_PER_ROW", 0)
    monkeypatch.setattr("mcnet.store.files._MOST_CELLS_IN_MEMORY", 600)
    monkeypatch.setattr("mcnet.store.files._BYTES_IN_MEMORY", 600)
    put = Spool.put
    monkeypatch.setattr(Spool, "put", lambda self, content: files.append(self) or put(self, content))
    monkeypatch.setattr("mcnet.store.files.sketches_by", lambda *given: parts.append(given) or sketches_by(*given))
    added = spilled.add_files(tmp_path / "log.parquet", **asked)
    assert added.rows == 4000
    assert len(parts) >= 4
    assert len(files) > (1 if ordered else 3) * len(whole.periods), "beside what is written, rows wait"
    assert dict(spilled.sketches()) == dict(whole.sketches())
    assert {entry.digest for entry in spilled.entries()} == {entry.digest for entry in whole.entries()}
    assert spilled.add_files(tmp_path / "log.parquet", **asked).rows == 0
    assert all(file.closed for file in files)


def test_periods_of_one_file_add_up_without_a_warning(journal, tmp_path):
    days = ["2026-11-01"] * 150 + ["2026-11-02"] * 150
    rows = {"p": np.linspace(0.1, 0.9, 300), "click": [0, 1] * 150, "ts": days}
    pl.DataFrame(rows).write_parquet(tmp_path / "log.parquet")
    journal.add_files(tmp_path / "log.parquet", score="p", label="click", time="ts", every="1d")
    assert journal.sketch().rows == 300


def test_a_file_under_another_name_is_told(journal, tmp_path):
    log = tmp_path / "log.parquet"
    pl.DataFrame({"s": [0.1, 0.2, 0.3], "y": [0, 1, 0], "t": ["2026-11-01", "2026-11-02", "2026-11-02"]}).write_parquet(
        log
    )
    columns = {"score": "s", "label": "y", "time": "t", "every": "1d"}
    journal.add_files(log, **columns)
    with pytest.warns(
        CalibrationWarning, match=r"copy gave the same rows for 2026-11-01 as .*log.parquet did .*1 more"
    ):
        journal.add_files(log, source="copy", **columns)
    assert journal.remove("copy") == 3


@pytest.mark.parametrize("written", ["texts", "a column"])
def test_moments_with_a_zone_are_cut_in_utc(opened, journal, tmp_path, written):
    amsterdam = pl.datetime_range(
        datetime(2026, 10, 25, 0), datetime(2026, 10, 25, 3), "1h", time_zone="Europe/Amsterdam", eager=True
    )
    assert len(amsterdam) == 5  # the clock shows two o'clock twice
    moments = amsterdam if written == "a column" else amsterdam.dt.strftime("%Y-%m-%dT%H:%M:%S%:z")
    log = tmp_path / "log.parquet"
    pl.DataFrame({"s": [0.1, 0.2, 0.3, 0.4, 0.5], "y": [0, 1, 0, 1, 0], "t": moments}).write_parquet(log)
    journal.add_files(log, score="s", label="y", time="t", every="1h")
    added = opened("added")
    added.store.add_head("added")
    for moment, sketch in zip(amsterdam, [rows(1)] * 5, strict=True):
        added.add(sketch, moment)
    assert journal.periods == added.periods == ["2026-10-24T22:00", "2026-10-24T23:00", "2026-10-25", *LATER]


LATER = ["2026-10-25T01:00", "2026-10-25T02:00"]


def test_months_of_files_are_moments(journal, tmp_path):
    log = tmp_path / "log.parquet"
    pl.DataFrame({"s": [0.1, 0.2], "y": [0, 1], "t": ["2026-01-07", "2026-03-09"]}).write_parquet(log)
    journal.add_files(log, score="s", label="y", time="t", every="1mo")
    assert journal.periods == ["2026-01-01", "2026-03-01"]


def timed_log(path, times, weight=1.0, score=0.1):
    frame = pl.DataFrame({"ts": times, "score": [score] * len(times), "label": [0] * len(times)})
    frame.with_columns(w=pl.Series([1.0] * (len(times) - 1) + [weight])).write_parquet(path)
    return path


def test_a_stray_row_of_a_log_is_refused_and_a_long_past_without_a_gap_is_not(journal, tmp_path):
    columns = {"score": "score", "label": "label", "weight": "w", "time": "ts", "every": "1h"}
    hours = pl.datetime_range(datetime(2026, 10, 20), datetime(2026, 11, 16), "1h", eager=True).to_list()
    stray = timed_log(tmp_path / "stray.parquet", [datetime(1971, 1, 1), *hours[-30:]], score=0.2)
    for _ in range(2):
        with pytest.raises(InputError, match=r"the period 1971-01-01 lies .* periods before 2026-11-14T19:00"):
            journal.add_files(stray, **columns)
        journal.add_files(timed_log(tmp_path / "new.parquet", hours[-10:]), **columns)
    past = timed_log(tmp_path / "past.parquet", hours[:-10])
    assert journal.add_files(past, **columns).rows == len(hours) - 10
    heavy = timed_log(tmp_path / "heavy.parquet", [hours[-1]] * 5_000, weight=1e9)
    with pytest.raises(InputError, match=r"heavy.parquet has a row of weight 1e\+09"):
        journal.add_files(heavy, **columns)
    assert journal.add_files([stray, heavy], **columns, allow=("weight", "period")).rows == 5_031


def test_a_heavy_row_of_a_log_of_one_period_is_refused_as_one_of_many_periods(journal, tmp_path):
    heavy = timed_log(tmp_path / "heavy.parquet", [datetime(2026, 11, 15)] * 5_000, weight=1e9)
    columns = {"score": "score", "label": "label", "weight": "w", "period": "2026-11-15"}
    with pytest.raises(InputError, match=r"heavy.parquet has a row of weight 1e\+09"):
        journal.add_files(heavy, **columns)
    assert journal.add_files(heavy, **columns, allow="weight").rows == 5_000


def test_a_file_that_cannot_be_used_is_left_out_and_one_without_rows_is_noted(journal, tmp_path):
    frame = pl.DataFrame({"p": [0.1, 0.2], "y": [0, 1], "ts": ["2026-11-16"] * 2})
    files = {"a": frame, "b": frame.head(0), "c": frame.with_columns(p=pl.lit(None, pl.Float64)), "d": frame.reverse()}
    for name, rows_of in files.items():
        rows_of.with_columns(pl.col("ts").str.to_date()).write_parquet(tmp_path / f"{name}.parquet")
    (tmp_path / "e.parquet").write_bytes(b"no log at all")
    columns = {"score": "p", "label": "y", "time": "ts", "every": "1d"}
    with pytest.warns(CalibrationWarning) as said:
        added = journal.add_files(f"{tmp_path}/*.parquet", **columns)
    assert added.rows == 4
    assert [reason.split(" ")[0] for reason in added.left_out] == [f"{tmp_path}/c.parquet:", f"{tmp_path}/e.parquet"]
    assert any(str(one.message) == f"{tmp_path}/b.parquet has no rows" for one in said)
    with pytest.raises(InputError, match="p has 2 values missing"):
        journal.add_files(tmp_path / "c.parquet", **columns)
    with pytest.warns(CalibrationWarning, match="has no rows"):
        assert journal.add_files(tmp_path / "b.parquet", **columns).rows == 0
