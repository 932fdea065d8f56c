"""Files: the same sketch as from arrays, whatever the format and the batches."""

import gzip
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mcnet
from mcnet.model.apply import apply_to_files
from mcnet.rows import logs as files
from mcnet.sketch.views import sketches_by

WRITERS = {
    ".parquet": pl.DataFrame.write_parquet,
    ".csv": pl.DataFrame.write_csv,
    ".arrow": pl.DataFrame.write_ipc,
    ".tsv": lambda frame, path: frame.write_csv(path, separator="\t"),
}
NAMES = {"score": "pctr", "label": "click", "field": ["country", "device"], "weight": "n"}


def frame(rows, seed=0):
    rng = np.random.default_rng(seed)
    country = rng.choice(np.array(["NL", "FR", "Åland", None], dtype=object), rows)
    return pl.DataFrame(
        {
            "pctr": rng.random(rows),
            "click": rng.integers(0, 2, rows),
            "country": pl.Series(country.tolist(), dtype=pl.String),
            "device": rng.integers(0, 4, rows),
            "n": rng.integers(0, 5, rows),
            "unused": ["x"] * rows,
        }
    )


def from_arrays(table, **options):
    return mcnet.Sketch.from_rows(
        table["pctr"], table["click"], field=table.select("country", "device"), weight=table["n"], **options
    )


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("resolution", [64, "exact"])
def test_a_file_gives_the_sketch_of_its_arrays(tmp_path, suffix, resolution):
    table = frame(2_000)
    path = tmp_path / f"log{suffix}"
    WRITERS[suffix](table, path)
    expected = from_arrays(table, folds=3, resolution=resolution)
    assert mcnet.scan(path, folds=3, resolution=resolution, **NAMES) == expected


def test_globs_folders_and_lists_are_read_in_order_of_name(tmp_path, monkeypatch):
    table = frame(900)
    for part in range(3):
        table[300 * part : 300 * (part + 1)].write_parquet(tmp_path / f"{part}.parquet")
    (tmp_path / "notes.txt").write_text("not a log")
    expected = from_arrays(table, folds=4)
    for paths in (tmp_path, str(tmp_path / "*.parquet"), sorted(tmp_path.glob("*.parquet"))):
        assert mcnet.scan(paths, folds=4, **NAMES) == expected
    monkeypatch.setattr(files, "BATCH_ROWS", 70)
    heard = []
    assert mcnet.scan(tmp_path, folds=4, progress=heard.append, **NAMES) == expected
    assert sum(heard) == 900


@settings(max_examples=15)
@given(st.integers(1, 60), st.integers(0, 99))
def test_sketches_of_files_add_up_to_the_sketch_of_all(tmp_path_factory, cut, seed):
    table = frame(61, seed).with_columns(n=pl.col("n") + 1)
    folder = tmp_path_factory.mktemp("logs")
    table[:cut].write_parquet(folder / "a.parquet")
    table[cut:].write_parquet(folder / "b.parquet")
    parts = [mcnet.scan(folder / name, **NAMES) for name in ("a.parquet", "b.parquet")]
    assert parts[0] + parts[1] == mcnet.scan(folder, **NAMES)


def test_a_column_of_folds_in_a_file(tmp_path):
    table = frame(100).with_columns(part=pl.Series(np.arange(100) % 3), n=pl.lit(1))
    table.write_parquet(tmp_path / "log.parquet")
    found = mcnet.scan(tmp_path / "log.parquet", folds="part", **NAMES)
    assert found == from_arrays(table, folds=table["part"])
    assert found.folds == 3


def test_logits_and_dropped_negatives_in_a_file(tmp_path):
    table = frame(500).with_columns(pctr=(pl.col("pctr") - 0.5) * 8, n=pl.lit(1))
    table.write_parquet(tmp_path / "log.parquet")
    found = mcnet.scan(tmp_path / "log.parquet", score_type="logit", negatives_kept=0.25, **NAMES)
    assert found == from_arrays(table, score_type="logit", negatives_kept=0.25)
    assert found.total_weight == 4 * (table["click"] == 0).sum() + (table["click"] == 1).sum()


def test_numbers_of_any_type_in_a_file_are_numbers(tmp_path):
    rng = np.random.default_rng(0)
    table = pl.DataFrame(
        {"s": rng.integers(0, 100, 200) / 100, "y": rng.integers(0, 2, 200), "c": rng.integers(0, 3, 200)}
    )
    expected = mcnet.Sketch.from_rows(table["s"], table["y"], field={"c": table["c"]}, resolution=16)
    for casts in (
        {"y": pl.Boolean},
        {"y": pl.UInt8, "c": pl.UInt64},
        {"y": pl.Float32, "c": pl.Float64},
        {"s": pl.Decimal(10, 2), "c": pl.Decimal(10, 2)},
        {"c": pl.String},
    ):
        path = tmp_path / "log.parquet"
        table.with_columns(**{name: pl.col(name).cast(kind) for name, kind in casts.items()}).write_parquet(path)
        assert mcnet.scan(path, score="s", label="y", field="c", resolution=16) == expected, casts


@pytest.mark.filterwarnings("ignore:.*check that they belong together")
def test_a_csv_column_that_starts_with_whole_numbers_may_hold_others_later(tmp_path):
    lines = ["s,y,c", *["0,1,7"] * 11_000, "0.5,0.25,seven"]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    found = mcnet.scan(tmp_path / "log.csv", score="s", label="y", field="c")
    assert found.rows == 11_001
    assert found.contexts.values == (("7", "seven"),)


def test_csv_fields_are_the_texts_of_other_formats(tmp_path):
    (tmp_path / "log.csv").write_text("s,y,c,d\n0.5,1,7,true\n0.5,0,7.0,false\n0.5,0,,true\n0.5,0,1.5,true\n")
    found = mcnet.scan(tmp_path / "log.csv", score="s", label="y", field=["c", "d"])
    assert found.contexts.values == (("1.5", "7", None), ("false", "true"))
    (tmp_path / "log.csv").write_text("s,y,c,d\n0.5,1,007,True\n0.5,0,-7.0,False\n0.5,0,1.10,yes\n0.5,0,-0.0,yes\n")
    found = mcnet.scan(tmp_path / "log.csv", score="s", label="y", field=["c", "d"])
    assert found.contexts.values == (("-7", "0", "007", "1.10"), ("false", "true", "yes"))


class TestErrors:
    """The same messages as for arrays, with the name of the column and the row of the file."""

    @pytest.fixture
    def write(self, tmp_path):
        def write(rows=5, **columns):
            table = pl.DataFrame({"s": [0.5] * rows, "y": [0.0] * rows, "w": [1.0] * rows, "c": ["a"] * rows})
            path = tmp_path / "log.parquet"
            table.with_columns(
                **{name: pl.Series(values, strict=False) for name, values in columns.items()}
            ).write_parquet(path)
            return path

        return write

    def scan(self, path, **options):
        return mcnet.scan(path, **({"score": "s", "label": "y", "weight": "w", "field": "c"} | options))

    @pytest.mark.parametrize(
        ("column", "value", "message"),
        [
            ("s", float("nan"), r"s has 1 value missing, NaN or infinite \(first: row 3, nan\); drop or fill"),
            ("s", None, r"s has 1 value missing, NaN or infinite \(first: row 3, nan\)"),
            ("s", float("inf"), r"s has 1 value missing, NaN or infinite \(first: row 3, inf\)"),
            ("s", 1.2, r"s has 1 value outside \[0, 1\] \(first: row 3, 1.2\); pass logits with score_type='logit'"),
            ("y", float("nan"), r"y has 1 value missing, NaN or infinite \(first: row 3, nan\); drop these rows"),
            ("y", -1.0, r"y has 1 value outside \[0, 1\] \(first: row 3, -1\); labels are 0/1"),
            ("y", 2.0, r"y has 1 value outside \[0, 1\] \(first: row 3, 2\)"),
            ("w", -1.0, r"w has 1 value below 0 \(first: row 3, -1\); weights are counts"),
            ("w", float("nan"), r"w has 1 value missing, NaN or infinite \(first: row 3, nan\)"),
            ("w", float("inf"), r"w has 1 value missing, NaN or infinite \(first: row 3, inf\)"),
        ],
    )
    def test_a_bad_value_is_named_with_its_column_and_row(self, write, monkeypatch, column, value, message):
        path = write(**{column: [0.5, 0.5, 0.5, value, 0.5]})
        with pytest.raises(mcnet.InputError, match=message):
            self.scan(path)
        monkeypatch.setattr(files, "BATCH_ROWS", 2)
        with pytest.raises(mcnet.InputError, match=message):
            self.scan(path)

    def test_a_text_that_is_no_number_is_named_with_its_row(self, write, monkeypatch):
        path = write(s=["0.1", "0.2", "0.3", "a lot", "0.5"])
        monkeypatch.setattr(files, "BATCH_ROWS", 2)
        with pytest.raises(mcnet.InputError, match="s is not a number in row 3: 'a lot'; convert the column first"):
            self.scan(path)

    def test_a_missing_column_is_named_with_those_there_are(self, write):
        with pytest.raises(mcnet.InputError, match="has no column 'pctr'; it has s, y, w, c"):
            self.scan(write(), score="pctr")
        with pytest.raises(mcnet.InputError, match="has no column 'country'"):
            self.scan(write(), field=["c", "country"])

    def test_a_column_used_twice_is_refused(self, write):
        with pytest.raises(mcnet.InputError, match="'s' is used twice"):
            self.scan(write(), label="s")

    def test_no_rows_and_no_weight_are_refused(self, write):
        with pytest.raises(mcnet.InputError, match="has no rows"):
            self.scan(write(rows=0))
        with pytest.raises(mcnet.InputError, match="weight 0"):
            self.scan(write(w=[0.0] * 5))

    def test_missing_files_are_refused(self, tmp_path):
        with pytest.raises(mcnet.InputError, match=r"there is no file .*none\.parquet"):
            self.scan(tmp_path / "none.parquet")
        with pytest.raises(mcnet.InputError, match="no file matches"):
            self.scan(str(tmp_path / "*.parquet"))
        with pytest.raises(mcnet.InputError, match="no file was given"):
            self.scan([])
        with pytest.raises(mcnet.InputError, match="has no Parquet"):
            self.scan(tmp_path)

    def test_unknown_and_mixed_formats_are_refused(self, tmp_path, write):
        (tmp_path / "log.xls").write_text("s,y")
        with pytest.raises(mcnet.InputError, match="no known format"):
            self.scan(tmp_path / "log.xls")
        (tmp_path / "log.csv").write_text("s,y,w,c\n0.5,1,1,a\n")
        with pytest.raises(mcnet.InputError, match="different formats"):
            self.scan([write(), tmp_path / "log.csv"])

    @pytest.mark.parametrize("name", ["log.parquet", "log.arrow"])
    @pytest.mark.parametrize("content", [b"", b"this is no table"])
    def test_a_file_that_is_not_what_it_says_is_refused(self, tmp_path, name, content):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(mcnet.FileFormatError, match="cannot be read"):
            self.scan(tmp_path / name)

    def test_an_empty_csv_is_refused(self, tmp_path):
        (tmp_path / "log.csv").write_text("")
        with pytest.raises(mcnet.McnetError, match=r"log\.csv"):
            self.scan(tmp_path / "log.csv")
        (tmp_path / "log.csv").write_text("s,y,w,c\n")
        with pytest.raises(mcnet.InputError, match="has no rows"):
            self.scan(tmp_path / "log.csv")

    def test_files_of_different_columns_are_refused(self, tmp_path):
        pl.DataFrame({"s": [0.5], "y": [1]}).write_parquet(tmp_path / "a.parquet")
        pl.DataFrame({"s": [0.5], "z": [1]}).write_parquet(tmp_path / "b.parquet")
        with pytest.raises(mcnet.InputError, match=r"b.parquet has no column 'y', and .*a.parquet has it"):
            mcnet.scan(tmp_path, score="s", label="y")

    @pytest.mark.parametrize("labels", [[0] * 5, [1] * 5])
    def test_one_class_and_one_score_warn_when_fitted(self, write, labels):
        sketch = mcnet.scan(write(y=labels), score="s", label="y")
        with pytest.warns(mcnet.CalibrationWarning, match="every row is"):
            mcnet.Isotonic().fit_sketch(sketch)
        sketch = mcnet.scan(write(y=[0, 1, 0, 1, 0]), score="s", label="y")
        with pytest.warns(mcnet.CalibrationWarning, match="all rows have one score"):
            mcnet.Isotonic().fit_sketch(sketch)


def test_rows_that_were_left_out_are_counted_once_over_the_parts_of_a_sketch():
    rows = pl.DataFrame({"p": [None, None, None, *[0.5] * 9], "y": [0, 1] * 6, "day": [1, 2, 3] * 4})
    whole = mcnet.scan(rows, score="p", label="y", field="day", drop_missing=True)
    parts = sketches_by(whole, "day")
    assert whole.dropped_rows == sum(part.dropped_rows for part in parts.values()) == 3
    assert {part.dropped_rows for part in parts.values()} == {1}


def test_the_first_row_whose_timestamp_is_not_understood_is_named(tmp_path):
    for name, last in (("a", "2026-11-17 10:30:00"), ("b", "2026-11-17 10:30:00 PM")):
        table = frame(3).with_columns(ts=pl.Series(["2026-11-17T10:30:00+02", "2026-11-17 23:00", last]))
        table.write_csv(tmp_path / f"{name}.csv")
    names = {"score": "pctr", "label": "click", "field": ["ts"], "every": {"ts": "1h"}}
    sketch = mcnet.scan(tmp_path / "a.csv", **names)
    assert sketch.contexts.values[0] == ("2026-11-17 08:00", "2026-11-17 10:00", "2026-11-17 23:00")
    with pytest.raises(mcnet.InputError, match=r"ts has '2026-11-17 10:30:00 PM' in row 2 of .*b.csv, which is not"):
        mcnet.scan(tmp_path, **names)
    with pytest.raises(mcnet.InputError, match=r"ts has '2026-11-17 10:30:00 PM' in row 2, which is not"):
        mcnet.scan(table, **names)


def in_files(folder, kind, columns):
    for number, (values, dtype) in enumerate(columns):
        table = pl.DataFrame({"s": [0.2, 0.6], "y": [0, 1], "x": pl.Series(values, dtype=dtype)})
        WRITERS[kind](table, folder / f"{number}{kind}")
    return folder


DAY = datetime(2026, 11, 16)
SAME_VALUES = {
    "units of timestamps": ([([DAY, DAY], pl.Datetime("ms")), ([DAY, DAY], pl.Datetime("us"))], ["2026-11-16"]),
    "time zones": (
        [([DAY, DAY], pl.Datetime("us", "UTC")), ([DAY.replace(tzinfo=UTC)] * 2, pl.Datetime("ms", "Asia/Kolkata"))],
        ["2026-11-16T00:00:00+00:00"],
    ),
    "decimals of other scales": (
        [
            ([Decimal("1.50")] * 2, pl.Decimal(10, 2)),
            ([Decimal("1.5")] * 2, pl.Decimal(10, 1)),
            ([1.5, 1.5], pl.Float64),
        ],
        ["1.5"],
    ),
    "large numbers": ([([1e22, 7.0], pl.Float64), ([10**22, 7], pl.Int128)], [str(10**22), "7"]),
    "bytes and texts": ([([b"NL", b"NL"], pl.Binary), (["NL", "NL"], pl.Categorical)], ["NL"]),
    "durations": (
        [([timedelta(1)] * 2, pl.Duration("ms")), ([timedelta(1)] * 2, pl.Duration("us"))],
        ["1 day, 0:00:00"],
    ),
    "no values": ([([None, None], pl.Null), (["NL", "FR"], pl.String)], ["FR", "NL", None]),
}


@pytest.mark.parametrize("case", SAME_VALUES)
def test_a_value_has_one_text_whatever_type_a_file_has_for_it(tmp_path, case):
    columns, expected = SAME_VALUES[case]
    if "Int128" in str(columns) or case == "no values":
        kind = ".arrow" if case == "no values" else ".parquet"
    else:
        kind = ".parquet"
    folder = in_files(tmp_path, kind, columns)
    sketch = mcnet.scan(folder, score="s", label="y", field="x")
    assert list(sketch.contexts.values[0]) == expected
    alone = [mcnet.scan(path, score="s", label="y", field="x") for path in sorted(folder.iterdir())]
    assert sketch == mcnet.Sketch.merged([part * 1.0 for part in alone])


OTHER_VALUES = {
    "decimals and texts": [([Decimal("1.50")] * 2, pl.Decimal(10, 2)), (["1.5", "1.50"], pl.String)],
    "whole numbers and texts": [([7, 8], pl.Int64), (["007", "8"], pl.String)],
    "timestamps and texts": [([DAY, DAY], pl.Datetime("us")), (["2026-11-16 07:00", ""], pl.String)],
    "flags and texts": [([True, False], pl.Boolean), (["True", "x"], pl.String)],
    "flags and numbers": [([True, False], pl.Boolean), ([1, 0], pl.Int64)],
    "zones and none": [([DAY, DAY], pl.Datetime("us")), ([DAY, DAY], pl.Datetime("us", "UTC"))],
    "days and timestamps": [([DAY.date()] * 2, pl.Date), ([DAY, DAY], pl.Datetime("us"))],
    "days and numbers": [([date(2026, 11, 16)] * 2, pl.Date), ([20261116, 1], pl.Int64)],
}


@pytest.mark.parametrize("case", OTHER_VALUES)
def test_a_field_of_two_types_is_refused_with_both_files(tmp_path, case):
    folder = in_files(tmp_path, ".parquet", OTHER_VALUES[case])
    with pytest.raises(mcnet.InputError, match=r"x is .* in .*0.parquet and .* in .*1.parquet") as caught:
        mcnet.scan(folder, score="s", label="y", field="x")
    assert "\n" not in str(caught.value)
    for other in (folder, [folder / "1.parquet", folder / "0.parquet"]):
        with pytest.raises(mcnet.InputError, match="cast the column to one type in all files"):
            mcnet.scan(other, score="s", label="y", field="x")


def test_periods_are_cut_from_timestamps_of_any_type_and_their_strings(tmp_path):
    columns = [
        ([DAY, DAY], pl.Datetime("ms")),
        ([DAY, DAY], pl.Datetime("us", "UTC")),
        (["2026-11-16 00:30", "2026-11-16T02:10+02"], pl.String),
        ([date(2026, 11, 16)] * 2, pl.Date),
    ]
    sketch = mcnet.scan(in_files(tmp_path, ".parquet", columns), score="s", label="y", field="x", every={"x": "1h"})
    assert sketch.contexts.values == (("2026-11-16 00:00",),)


def test_columns_that_only_some_files_have_are_left_out_unless_they_are_kept(tmp_path):
    table = frame(100)
    table[:50].write_parquet(tmp_path / "a.parquet")
    table[50:].with_columns(extra=pl.lit(1), unused=pl.lit(7)).write_parquet(tmp_path / "b.parquet")
    assert mcnet.scan(tmp_path, **NAMES) == from_arrays(table)
    with pytest.raises(mcnet.InputError, match=r"a.parquet has no column 'extra', and .*b.parquet has it"):
        mcnet.scan(tmp_path, score="pctr", label="click", field="extra")
    model = mcnet.Platt().fit(table["pctr"], table["click"]).model_
    with pytest.raises(mcnet.InputError, match=r"a.parquet has no column 'extra'"):
        apply_to_files(model, tmp_path, tmp_path / "out.parquet", score="pctr")
    table[50:].with_columns(unused=pl.lit([7])).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(mcnet.InputError, match=r"unused is String in .*a.parquet and List.* in .*b.parquet; cast"):
        apply_to_files(model, tmp_path, tmp_path / "out.parquet", score="pctr")


@pytest.mark.parametrize("part", ["end", "rows"])
def test_of_many_files_the_one_that_cannot_be_read_is_named(tmp_path, part):
    for number in range(12):
        frame(2_000, seed=number).write_parquet(tmp_path / f"{number:02}.parquet")
    damaged = tmp_path / "07.parquet"
    content = bytearray(damaged.read_bytes())
    middle = slice(20, 4_000) if part == "rows" else slice(-200, None)
    content[middle] = b"\xff" * len(content[middle])
    damaged.write_bytes(content)
    with pytest.raises(mcnet.FileFormatError, match=r"^\S*07.parquet cannot be read"):
        mcnet.scan(tmp_path, **NAMES)


SHORT = {
    "plain": "s,y,c\n0.1,1,NL\n0.2,0\n0.3,1,\n",
    "quoted": 's,y,c\n0.1,1,"N,L"\n"0,2",0\n0.3,1,FR\n'.replace('"0,2"', '"0.2"'),
    "over two lines": 's,y,c\n0.1,1,"N\nL"\n0.2,0\n0.3,1,FR\n',
}


@pytest.mark.parametrize("case", SHORT)
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_a_short_row_of_a_csv_file_is_refused(tmp_path, case, ending):
    opened = gzip.open if ending.endswith("gz") else open
    with opened(tmp_path / f"log{ending}", "wt", encoding="utf-8") as out:
        out.write(SHORT[case])
    with pytest.raises(mcnet.InputError, match=r"row 1 of .*log.csv.* has 2 values, and the header 3 columns"):
        mcnet.scan(tmp_path / f"log{ending}", score="s", label="y", field="c")
    model = mcnet.PlattField().fit([0.1, 0.2, 0.3], [0, 1, 0], field={"c": ["NL", "FR", "NL"]}).model_
    with pytest.raises(mcnet.InputError, match="has 2 values, and the header 3 columns"):
        apply_to_files(model, tmp_path / f"log{ending}", tmp_path / "out.csv", score="s")


def test_a_long_row_of_a_csv_file_is_refused(tmp_path):
    header, rows = "s,y,c\n", ["0.1,1,NL\n", "0.2,0,FR\n", '0.3,1,"N,L"\n'] * 5_000
    model = mcnet.PlattField().fit([0.1, 0.2, 0.3], [0, 1, 0], field={"c": ["NL", "FR", "NL"]}).model_
    (tmp_path / "0.csv").write_text(header + "".join(rows), encoding="utf-8")
    for bad in (1, 14_000):  # among the rows that types are guessed from, and after them
        (tmp_path / "1.csv").write_text(header + "".join([*rows[:bad], "0.5,1,NL,\n", *rows[bad:]]), encoding="utf-8")
        for read in (tmp_path / "1.csv", [tmp_path / "0.csv", tmp_path / "1.csv"]):
            message = (
                rf"row {bad} of .*1.csv has 4 values, and the header 3 columns; a value with ',' in it needs quotes"
            )
            with pytest.raises(mcnet.InputError, match=message):
                mcnet.scan(read, score="s", label="y", field="c")
            with pytest.raises(mcnet.InputError, match=message):
                apply_to_files(model, read, tmp_path / "out.csv", score="s")


def test_an_empty_line_of_a_csv_file_is_called_one(tmp_path):
    path, other = tmp_path / "log.csv", tmp_path / "other.csv"
    other.write_text("s;y\n0.1;1\n", encoding="utf-8")
    for text, row in {"s;y\n0.1;1\n0.2;0\n\n": 2, "s;y\r\n0.1;1\r\n\r\n0.2;0\r\n": 1}.items():
        path.write_text(text, encoding="utf-8", newline="")
        with pytest.raises(
            mcnet.InputError, match=rf"has 1 value missing.* \(first: row {row} \(an empty line\), nan\)"
        ):
            mcnet.scan(path, score="s", label="y", separator=";")
        with pytest.raises(mcnet.InputError, match=rf"first: row {row} of .*log.csv \(an empty line\), nan"):
            mcnet.scan([other, path], score="s", label="y", separator=";")
        assert mcnet.scan(path, score="s", label="y", separator=";", drop_missing=True).rows == 2


def test_a_column_of_a_type_that_polars_has_not_is_an_error_for_people(tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: pip install duckdb")
    path = tmp_path / "log.parquet"
    duckdb.sql(f"COPY (SELECT 0.5 AS s, 1 AS y, INTERVAL 1 DAY AS x) TO '{path}' (FORMAT parquet)")
    with pytest.raises(
        mcnet.FileFormatError, match=r"log.parquet cannot be read: it has a column of the type INTERVAL;"
    ):
        mcnet.scan(path, score="s", label="y", field="x")


def test_fields_that_are_missing_in_whole_rows_are_missing(tmp_path):
    for name, text in {
        "a": "s,y,c\n0.1,1,NL\n0.2,0,\n0.3,1,\n",
        "b": 's,y,c\n0.1,1,"N,L"\n0.2,0,""\n0.3,1,\n',
        "c": 's,y,c\n0.1,1,"N\nL"\n0.2,0,\n0.3,1,FR\n',
    }.items():
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
        assert None in mcnet.scan(tmp_path / f"{name}.csv", score="s", label="y", field="c").contexts.values[0]


def test_csv_files_of_other_columns_are_refused_with_both_headers(tmp_path):
    (tmp_path / "a.csv").write_text("s,y,c\n0.1,1,NL\n", encoding="utf-8")
    for header in ("c,y,s", "s,y,c,z", "s,y"):
        (tmp_path / "b.csv").write_text(f"{header}\n", encoding="utf-8")
        with pytest.raises(mcnet.InputError, match=rf"b.csv has the columns {header}, and .*a.csv has s,y,c; give"):
            mcnet.scan(tmp_path, score="s", label="y", field="c")
