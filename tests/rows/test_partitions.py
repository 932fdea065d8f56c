"""Folders of partitions, and conditions on rows: columns, pruning, and which rows and messages come of them."""

import polars as pl
import pytest
from tests.rows.partitioned_rows import EXPECTED, NAMES, ROWS

import mcnet
from mcnet.model.apply import apply_to_files
from mcnet.rows.locations import read_with

ENDINGS = {"parquet": "write_parquet", "arrow": "write_ipc", "csv": "write_csv", "jsonl": "write_ndjson"}


@pytest.fixture
def partitioned(tmp_path):
    folder = tmp_path / "log"
    for (day, hour), part in ROWS.partition_by(["dt", "hour"], as_dict=True).items():
        inside = folder / f"dt={day}" / f"hour={hour}"
        inside.mkdir(parents=True)
        part.drop("dt", "hour").write_parquet(inside / "part.parquet")
    return folder


def test_folders_of_partitions_are_columns_and_are_pruned(partitioned):
    assert mcnet.scan(partitioned, **NAMES) == EXPECTED
    fields = {**NAMES, "field": ["dt", "hour"]}
    assert mcnet.scan(partitioned, **fields) == mcnet.scan(ROWS, **fields)
    assert mcnet.scan(f"{partitioned}/*/*/*.parquet", **fields) == mcnet.scan(ROWS, **fields)
    # Only the footers of files on a disk are looked at before the condition decides; here the columns are damaged.
    damaged = partitioned / "dt=2026-11-15" / "hour=7" / "part.parquet"
    content = bytearray(damaged.read_bytes())
    content[4 : len(content) // 3] = bytes(len(content) // 3 - 4)
    damaged.write_bytes(content)
    with pytest.raises(mcnet.FileFormatError):
        mcnet.scan(partitioned, **fields)
    found = mcnet.scan(partitioned, where="dt = '2026-11-16' OR hour = 0", **fields)
    assert found == mcnet.scan(ROWS.filter((pl.col("dt") == "2026-11-16") | (pl.col("hour") == 0)), **fields)


@pytest.mark.parametrize("ending", ENDINGS)
def test_partitions_of_every_format_are_columns_and_are_pruned(tmp_path, ending):
    rows = ROWS.with_columns(hour=pl.when(pl.col("hour") == 7).then(None).otherwise("hour"))
    for (day, hour), part in rows.partition_by(["dt", "hour"], as_dict=True).items():
        inside = tmp_path / f"dt={day}" / f"hour={'__HIVE_DEFAULT_PARTITION__' if hour is None else '00'}"
        inside.mkdir(parents=True)
        getattr(part.drop("dt", "hour"), ENDINGS[ending])(inside / f"part.{ending}")
    fields = {**NAMES, "field": ["site", "dt", "hour"]}
    assert mcnet.scan(tmp_path, **fields) == mcnet.scan(rows, **fields)
    found = mcnet.scan(tmp_path, where="hour < 5 AND p > 0.1", **fields)
    assert found == mcnet.scan(rows.filter(pl.col("hour") < 5, pl.col("p") > 0.1), **fields)
    for damaged in (tmp_path / "dt=2026-11-15").rglob(f"*.{ending}"):
        damaged.write_bytes(f"\xff nothing of the kind: {damaged}".encode("latin-1"))
    with pytest.raises(mcnet.McnetError):
        mcnet.scan(tmp_path, **fields)
    found = mcnet.scan(tmp_path, where="p > 0.1 AND dt > '2026-11-15'", **fields)
    assert found == mcnet.scan(rows.filter(pl.col("dt") == "2026-11-16"), **fields)


def test_files_at_work_in_a_folder_are_left_alone(tmp_path):
    """Spark and others write what is not finished under names that begin with _ or a dot."""
    inside = tmp_path / "dt=1"
    inside.mkdir()
    ROWS.drop("dt").write_parquet(inside / "part.parquet")
    for name in ("_part.parquet", ".part.parquet"):
        (inside / name).write_bytes(b"not finished")
        (tmp_path / name).write_bytes(b"not finished")
    assert mcnet.scan(tmp_path, **NAMES) == EXPECTED


def test_a_condition_sees_the_types_of_csv_columns_whatever_they_are_used_for(tmp_path):
    rows = ROWS.with_columns(code=pl.Series(["007", "7", "08", "9", "7", "7"]), ok=pl.col("hour") == 7)
    rows.write_csv(tmp_path / "log.csv")
    kept = rows.filter(pl.col("hour") > 0, pl.col("code").cast(int) < 9)
    condition = "hour > 0 AND code < 9 AND ok = true"
    for field in ("hour", "code", "ok"):
        names = {**NAMES, "field": field}
        assert mcnet.scan(tmp_path / "log.csv", where=condition, **names) == mcnet.scan(kept, **names)
    model = mcnet.calibrator("platt").fit_sketch(EXPECTED.pooled()).model_
    with read_with(where=condition):
        assert apply_to_files(model, tmp_path / "log.csv", tmp_path / "out.csv", score="p").rows == len(kept)
    assert pl.read_csv(tmp_path / "out.csv", infer_schema=False)["code"].to_list() == kept["code"].to_list()
    with pytest.raises(
        mcnet.InputError, match=r"the condition 'site < 3' cannot be used: it compares numbers with strings"
    ):
        mcnet.scan(tmp_path / "log.csv", where="site < 3", **NAMES)


def test_moments_are_compared_with_days(tmp_path):
    rows = ROWS.with_columns(at=pl.col("dt").str.to_datetime())
    rows.write_parquet(tmp_path / "log.parquet")
    found = mcnet.scan(tmp_path / "log.parquet", where="at < DATE '2026-11-16'", **NAMES)
    assert found == mcnet.scan(rows[:2], **NAMES)
    with pytest.raises(mcnet.InputError, match="it compares timestamps with strings; write DATE"):
        mcnet.scan(tmp_path / "log.parquet", where="at < '2026-11-16'", **NAMES)


@pytest.mark.parametrize(
    "condition",
    [
        "hour = DATE '2026-11-17'",
        "p > 0.1 AND NOT TIMESTAMP '2026-11-17 07:00' > hour",
        "hour BETWEEN DATE '2026-11-17' AND DATE '2026-11-18' OR hour = 7",
    ],
)
def test_numbers_are_not_compared_with_dates_or_strings(partitioned, tmp_path, condition):
    ROWS.write_csv(tmp_path / "log.csv")
    ROWS.write_parquet(tmp_path / "log.parquet")
    for log in (partitioned, tmp_path / "log.csv", tmp_path / "log.parquet"):
        with pytest.raises(
            mcnet.InputError, match="hour has numbers, and the condition compares it with a date; write a"
        ):
            mcnet.scan(log, where=condition, **NAMES)
        with pytest.raises(mcnet.InputError, match="it compares numbers with strings; write hour = 3 for a column"):
            mcnet.scan(log, where="hour = '07'", **NAMES)


def test_messages_tell_the_condition(tmp_path):
    ROWS.write_csv(tmp_path / "a.csv")
    ROWS.with_columns(p=pl.when(pl.col("hour") == 7).then(pl.col("p") + 5).otherwise("p")).write_csv(tmp_path / "b.csv")
    with pytest.raises(mcnet.InputError, match=r"has no row that meets the condition 'p > 9'; at least one row"):
        mcnet.scan(tmp_path, where="p > 9", **NAMES)
    told = r"p has 3 values outside .* \(first: row 0 of those that meet the condition of .*b\.csv, 5\.2\)"
    with pytest.raises(mcnet.InputError, match=told):
        mcnet.scan(tmp_path, where="hour = 7", **NAMES)


def test_a_condition_keeps_rows_and_is_refused_if_it_is_none(partitioned):
    found = mcnet.scan(partitioned, where="dt = '2026-11-16' AND hour = 7", **NAMES)
    assert found == mcnet.scan(ROWS.filter(pl.col("dt") == "2026-11-16", pl.col("hour") == 7), **NAMES)
    for condition in ("nothing = 3", "dt ="):
        with pytest.raises(mcnet.InputError, match="cannot be used"):
            mcnet.scan(partitioned, where=condition, **NAMES)


def write(path, table):
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(table).write_csv(path)
    return path


def test_a_condition_sees_fractions_that_come_late_in_a_csv_column(tmp_path):
    weight = [1] * 11_000 + [0.25] * 1_000
    log = tmp_path / "log.csv"
    log.write_text("p,y,w\n" + "".join(f"0.5,{row % 2},{w}\n" for row, w in enumerate(weight)), encoding="utf-8")
    found = mcnet.scan(log, score="p", label="y", weight="w", where="w > 0")
    assert (found.rows, found.total_weight) == (12_000, 11_250.0)
    assert mcnet.scan(log, score="p", label="y", weight="w", where="w < 1").rows == 1_000


def test_a_condition_on_flags_refuses_what_is_no_flag(tmp_path):
    log = tmp_path / "log.csv"
    lines = [f"0.5,{row % 2},{'true' if row % 3 else 'false'}\n" for row in range(10_500)] + ["0.5,1,unknown\n"]
    log.write_text("p,y,flag\n" + "".join(lines), encoding="utf-8")
    with pytest.raises(mcnet.McnetError, match="cannot be read"):
        mcnet.scan(log, score="p", label="y", field="flag", where="NOT flag")


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_label_that_folder_and_file_both_have_is_refused(tmp_path, ending):
    path = tmp_path / "label=1" / f"log.{ending}"
    path.parent.mkdir()
    getattr(pl.DataFrame({"p": [0.2, 0.3, 0.4], "label": [0, 1, 0]}), ENDINGS[ending])(path)
    with pytest.raises(mcnet.InputError, match="has a column 'label', and so has its folder label=…"):
        mcnet.scan(path, score="p", label="label")


def test_a_condition_on_more_than_one_row_prunes_nothing(tmp_path):
    for hour, rows in ((1, 10), (2, 1)):
        write(tmp_path / f"hour={hour}" / "log.csv", {"p": [0.5] * rows, "y": [1] * rows})
    assert mcnet.scan(tmp_path, score="p", label="y", where="hour > AVG(hour)").rows == 1


def test_rows_of_partitioned_folders_stay_in_the_order_of_the_files(tmp_path):
    first, second = tmp_path / "A", tmp_path / "B"
    for place, path in enumerate((first / "dt=1", first / "dt=2", second / "dt=1")):
        write(path / "log.csv", {"p": [0.1 + 0.1 * place, 3.0 if place == 2 else 0.5], "y": [0, 1]})
    with pytest.raises(mcnet.InputError, match=r"row 1 of .*B.dt=1.log\.csv"):
        mcnet.scan([first, second], score="p", label="y")


def test_a_partition_is_a_field_where_logs_are_fitted_and_where_they_are_calibrated(tmp_path):
    for place, hour in enumerate(("07", "12")):
        table = {"p": [0.2, 0.3, 0.4] * 20, "y": [0, place, 1] * 20}
        write(tmp_path / "log" / f"hour={hour}" / "log.csv", table)
    model = mcnet.PerField().fit_sketch(mcnet.scan(tmp_path / "log", score="p", label="y", field="hour")).model_
    assert sorted(model.contexts.values[0]) == ["12", "7"]
    assert apply_to_files(model, tmp_path / "log", tmp_path / "out.csv", score="p").rows == 120
    found = pl.read_csv(tmp_path / "out.csv")
    expected = model.predict(found["p"], field=found["hour"])
    assert found["calibrated"].to_list() == pytest.approx(expected.tolist(), rel=1e-12)
    assert len(set(expected.tolist())) > 3


def test_a_field_may_be_in_the_folder_and_in_the_file(tmp_path):
    log = write(tmp_path / "hour=7" / "log.csv", {"p": [0.2, 0.3], "y": [0, 1], "hour": ["07", "07"]})
    assert mcnet.scan(log, score="p", label="y", field="hour").contexts.values == (("7",),)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_folder_that_says_another_value_than_its_file_is_refused(tmp_path, ending):
    path = tmp_path / "hour=7" / f"log.{ending}"
    path.parent.mkdir()
    getattr(pl.DataFrame({"p": [0.2, 0.3, 0.4], "y": [0, 1, 0], "hour": [7, 7, 8]}), ENDINGS[ending])(path)
    message = "has '8' in the column 'hour', and its folder says hour=7; rename the column or the folder"
    with pytest.raises(mcnet.InputError, match=message):
        mcnet.scan(path, score="p", label="y", field="hour")
    with pytest.raises(mcnet.InputError, match=message):
        mcnet.scan(path, score="p", label="y", where="hour = 7")
    model = mcnet.Platt().fit([0.1, 0.2, 0.3], [0, 1, 0]).model_
    with pytest.raises(mcnet.InputError, match=message):
        apply_to_files(model, path, tmp_path / f"out.{ending}", score="p")
    assert mcnet.scan(path, score="p", label="y").rows == 3
    getattr(pl.DataFrame({"p": [0.2, 0.3], "y": [0, 1], "hour": [7, 7]}), ENDINGS[ending])(path)
    assert mcnet.scan(path, score="p", label="y", field="hour").contexts.values == (("7",),)


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_days_in_folders_are_strings(tmp_path, ending):
    for day in (15, 16, 17):
        folder = tmp_path / f"dt=2026-11-{day}"
        folder.mkdir()
        rows = pl.DataFrame({"p": [0.1, 0.2 + day / 1000], "y": [0, 1], "site": ["a", "b"]})
        write = {"parquet": rows.write_parquet, "csv": rows.write_csv, "jsonl": rows.write_ndjson}[ending]
        write(folder / f"part.{ending}")
    options = {"score": "p", "label": "y", "field": "dt"}
    for where, days in {
        "dt = '2026-11-16'": [16],
        "site = 'a' AND dt >= '2026-11-16'": [16, 17],
        "dt BETWEEN '2026-11-15' AND '2026-11-16' AND p > 0.15": [15, 16],
        "site = 'a' OR dt = '2026-11-16'": [15, 16, 17],
    }.items():
        found = mcnet.scan(tmp_path, where=where, **options)
        assert found.contexts.values == (tuple(f"2026-11-{day}" for day in days),), where
    with pytest.raises(
        mcnet.InputError, match=r"it compares timestamps with strings; write .* '2026-11-16' for one of"
    ):
        mcnet.scan(tmp_path, where="dt = DATE '2026-11-16'", **options)
