"""`apply` gives each row the curve that `fit` made for it and `evaluate` sees, however the field value is spelled."""

import gzip

import numpy as np
import polars as pl
import pytest

import mcnet
from mcnet.metrics.evaluation import predict_cells
from mcnet.model.apply import NewColumn, apply_to_files
from mcnet.rows.logs import open_log
from mcnet.sketch.scan import scan

PAIRS = {
    "leading zeros": ["007", "7"],
    "octal": ["012", "12", "10"],
    "exponent": ["1e5", "100000"],
    "exponent with a sign": ["1e+5", "1e-5", "100000"],
    "small fraction": ["0.00001", "1e-05"],
    "minus zero": ["-0.0", "-1"],
    "version": ["1.1", "1.10", "1.100"],
    "whole float": ["7.0", "8.0"],
    "float": ["0.5", "0.25"],
    "long number": ["12345678901234567890123", "12345678901234567890124"],
    "beyond 2^53": ["9007199254740993", "9007199254740992"],
    "hexadecimal": ["0x1F", "31"],
    "boolean": ["True", "False"],
    "lower-case boolean": ["true", "false"],
    "day": ["2024-05-01", "2024-05-02"],
    "moment": ["2024-05-01T00:00:00", "2024-05-01 00:00:00"],
    "space": [" 7", "7", "7 "],
    "missing-like": ["NA", "null", "None", "nan"],
    "infinite": ["inf", "Infinity"],
    "plus": ["+7", "7"],
    "underscore": ["1_000", "1000"],
    "comma": ["1,000", "1000"],
    "quote": ['a"b', "a'b"],
    "line break": ["a\nb", "a b"],
    "unicode": ["Åland", "A\u030aland", "北京"],
    "empty": ["", "x", None],
    "tab": ["a\tb", "ab"],
}
KINDS = [".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".arrow"]


def log_of(values, rows=300):
    """Return a log where each value has a rate of its own."""
    rng = np.random.default_rng(0)
    code = rng.integers(0, len(values), rows)
    rate = 0.1 + 0.8 * code / max(len(values) - 1, 1)
    return pl.DataFrame(
        {
            "id": [f"{row:04d}" for row in range(rows)],
            "s": rng.uniform(0.05, 0.9, rows),
            "y": (rng.random(rows) < rate).astype(int),
            "zone": pl.Series([values[c] for c in code], dtype=pl.String),
            "note": pl.Series([(None, "007", "1e5", "True", "", 'q"')[row % 6] for row in range(rows)]),
        }
    )


def write(frame, path):
    if path.name.endswith(".parquet"):
        frame.write_parquet(path)
    elif path.name.endswith(".arrow"):
        frame.write_ipc(path)
    else:
        content = frame.write_csv(separator="\t" if ".tsv" in path.name else ",").encode()
        path.write_bytes(gzip.compress(content) if path.name.endswith(".gz") else content)


def read(path):
    return open_log(path, typed=False).collect()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spelling", PAIRS)
def test_apply_equals_predict_and_evaluate_for_every_spelling_and_file_kind(tmp_path, spelling, kind):
    frame, log = log_of(PAIRS[spelling]), tmp_path / f"log{kind}"
    write(frame, log)
    sketch = scan(log, score="s", label="y", field="zone", resolution="exact")
    model = mcnet.PerField(mcnet.Platt()).fit_sketch(sketch).model_
    # No two spellings of a test share a value, so each has a context of its own.
    assert len(sketch.contexts) == len(PAIRS[spelling])
    output = tmp_path / f"out{kind}"
    assert apply_to_files(model, log, output, score="s").rows == len(frame)
    found = read(output)
    assert found.drop("calibrated").equals(read(log)), "the other columns changed"
    calibrated = found["calibrated"].cast(pl.Float64).to_numpy()
    seen = open_log(log, texts=["zone"]).collect()
    np.testing.assert_array_equal(calibrated, model.predict(frame["s"], {"zone": seen["zone"]}))
    # What evaluate sees: the cells of an exact sketch are the rows.
    cells = dict(zip(zip(sketch.score, sketch.context, strict=True), predict_cells(model, sketch), strict=True))
    rows = zip(frame["s"], sketch.contexts.lookup(mcnet_fields(seen)), calibrated, strict=True)
    assert all(cells[score, context] == p for score, context, p in rows)
    # Each value has its own curve: the mean in each is its rate (a curve of another value would miss it by far).
    by_value = pl.DataFrame({"zone": frame["zone"], "p": calibrated, "y": frame["y"]}).group_by("zone").mean()
    np.testing.assert_allclose(by_value["p"], by_value["y"], atol=0.02)


def mcnet_fields(frame):
    from mcnet.rows.fields import field_columns

    return field_columns({"zone": frame["zone"]})


@pytest.mark.parametrize("kind", [".parquet", ".arrow"])
def test_a_csv_written_in_another_format_keeps_the_field_values_of_the_fit(tmp_path, kind):
    write(log_of(["007", "7", "1e5", "1.10"]), tmp_path / "log.csv")
    model = mcnet.PerField(mcnet.Platt()).fit_sketch(scan(tmp_path / "log.csv", score="s", label="y", field="zone"))
    apply_to_files(model.model_, tmp_path / "log.csv", tmp_path / f"out{kind}", score="s")
    found = read(tmp_path / f"out{kind}")
    assert found.schema["s"] == pl.Float64
    assert found["id"].to_list()[:2] == ["0000", "0001"]
    np.testing.assert_array_equal(found["calibrated"], model.predict(found["s"], {"zone": found["zone"]}))


@pytest.mark.parametrize("kind", [".parquet", ".arrow", ".jsonl"])
def test_from_csv_to_a_typed_format_the_other_columns_get_the_type_of_their_values(tmp_path, kind):
    rows = 12_000  # types are proposed by the first 10,000 rows, and every row has to agree
    late = [*["7"] * (rows - 1), "x"]
    columns = {
        "click": ([0, 1] * (rows // 2), pl.Int64),
        "id": (list(range(rows)), pl.Int64),
        "large": ([2**62 + row for row in range(rows)], pl.Int64),
        "price": ([0.1234567890123456 + row for row in range(rows)], pl.Float64),
        "gaps": ([None if row % 3 else row for row in range(rows)], pl.Int64),
        "shown": ([row % 2 == 0 for row in range(rows)], pl.Boolean),
        "later a fraction": ([*[1] * (rows - 1), 1.5], pl.Float64),
        "later a word": (late, pl.String),
        "zip": ([f"{row:06d}" for row in range(rows)], pl.String),
        "huge": ([str(10**25 + row) for row in range(rows)], pl.String),
        "day": (["2026-11-17"] * rows, pl.String),
        "phone": (["+31201234567"] * rows, pl.String),
        "nothing": ([None] * rows, pl.String),
    }
    frame = pl.DataFrame(
        {name: pl.Series(values, dtype=dtype) for name, (values, dtype) in columns.items() if "later" not in name}
    ).with_columns(
        pl.Series("later a fraction", [str(value) for value in columns["later a fraction"][0]]),
        pl.Series("later a word", late),
        s=pl.Series([0.1, 0.2] * (rows // 2)),
        zone=pl.lit("7.0"),
    )
    write(frame, tmp_path / "log.csv")
    model = mcnet.Platt().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1]).model_
    apply_to_files(model, tmp_path / "log.csv", tmp_path / f"out{kind}", score="s")
    found = open_log(tmp_path / f"out{kind}").collect()
    assert found.columns == [*frame.columns, "calibrated"]
    for name, (values, dtype) in columns.items():
        if kind != ".jsonl" or name != "nothing":
            assert found.schema[name] == dtype, name
        assert found[name].to_list() == pl.Series(values, dtype=dtype, strict=False).to_list(), name
    apply_to_files(model, tmp_path / "log.csv", tmp_path / "out.csv", score="s")
    again = read(tmp_path / "out.csv").drop("calibrated")
    assert again.equals(read(tmp_path / "log.csv")), "from CSV to CSV the text stays"


@pytest.mark.parametrize("name", ["row", "row number", "^s$", "*", "", "^.*$", "Åland", "field 0", "a,b", 'q"x'])
@pytest.mark.parametrize("kind", [".csv", ".parquet", ".arrow"])
def test_any_name_may_be_the_new_column_the_field_the_score_or_another_column(tmp_path, name, kind):
    frame = log_of(["a", "b"])
    for role in ("s", "y", "zone", "note", "calibrated"):
        log, output = tmp_path / f"log{kind}", tmp_path / f"{role}{kind}"
        names = {known: name if known == role else known for known in ("s", "y", "zone", "note", "calibrated")}
        write(frame.rename({known: names[known] for known in ("s", "y", "zone", "note")}), log)
        sketch = scan(log, score=names["s"], label=names["y"], field=names["zone"])
        assert sketch.contexts.names == (names["zone"],)
        model = mcnet.PerField(mcnet.Platt()).fit_sketch(sketch).model_
        assert apply_to_files(model, log, output, score=names["s"], column=NewColumn(names["calibrated"])).rows == len(
            frame
        )
        found = read(output)
        assert found.columns == [*(names.get(known, known) for known in frame.columns), names["calibrated"]]
        before = read(log).to_dict(as_series=False)
        assert {known: found[known].to_list() for known in before} == before
        expected = model.predict(frame["s"], {names["zone"]: frame["zone"]})
        np.testing.assert_array_equal(found[names["calibrated"]].cast(pl.Float64), expected)


def test_columns_that_have_the_internal_name_stay(tmp_path):
    frame = log_of(["a", "b"]).with_columns(pl.lit(1).alias("row number"), pl.lit(2).alias("row number_"))
    write(frame, tmp_path / "log.parquet")
    model = mcnet.Platt().fit(frame["s"], frame["y"]).model_
    for column in ("row number__", "row number"):
        apply_to_files(
            model, tmp_path / "log.parquet", tmp_path / "out.parquet", score="s", column=NewColumn(column, replace=True)
        )
        found = read(tmp_path / "out.parquet")
        np.testing.assert_array_equal(found[column], model.predict(frame["s"]))
        assert found.drop(column).equals(frame.drop(column, strict=False))


def test_two_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "log.csv").write_text("s,y,x,x\n0.1,1,a,b\n")
    with pytest.raises(mcnet.InputError, match="two columns named 'x'"):
        scan(tmp_path / "log.csv", score="s", label="y")
    model = mcnet.Platt().fit([0.1, 0.2, 0.3], [0, 1, 0]).model_
    with pytest.raises(mcnet.InputError, match="two columns named 'x'"):
        apply_to_files(model, tmp_path / "log.csv", tmp_path / "out.csv", score="s")


def test_files_may_have_different_types_of_one_column(tmp_path):
    frame = log_of(["7", "8"])
    parts = [
        frame[:100].with_columns(pl.col("s").cast(pl.Float32), pl.col("zone").cast(pl.Int64)),
        frame[100:200].with_columns(pl.col("zone").cast(pl.Float64)),
        frame[200:].with_columns(pl.col("zone").cast(pl.Int16)).select(reversed(frame.columns)),
    ]
    for kind in (".parquet", ".arrow"):
        folder = tmp_path / kind[1:]
        folder.mkdir()
        for number, part in enumerate(parts):
            write(part, folder / f"{number}{kind}")
        scores = np.concatenate([part["s"].cast(pl.Float64).to_numpy() for part in parts])
        sketch = scan(folder, score="s", label="y", field="zone")
        assert sketch == mcnet.Sketch.from_rows(scores, frame["y"], field={"zone": frame["zone"]})
        model = mcnet.PerField(mcnet.Platt()).fit_sketch(sketch).model_
        assert apply_to_files(model, folder, tmp_path / f"out{kind}", score="s").rows == len(frame)
        found = read(tmp_path / f"out{kind}")
        np.testing.assert_array_equal(found["calibrated"], model.predict(scores, {"zone": frame["zone"]}))
        np.testing.assert_array_equal(found["s"], scores)


@pytest.mark.parametrize("kind", [pl.Int128, pl.UInt64, pl.Decimal(20, 0), pl.Float32, pl.String])
def test_numbers_may_be_of_any_type(tmp_path, kind):
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"s": rng.integers(0, 2, 100), "y": rng.integers(0, 2, 100), "w": rng.integers(1, 9, 100)})
    expected = mcnet.Sketch.from_rows(frame["s"], frame["y"], weight=frame["w"], field={"g": frame["w"]})
    frame = frame.with_columns(g=pl.col("w")).cast(kind)
    assert scan(frame, score="s", label="y", weight="w", field="g") == expected
    frame.write_parquet(tmp_path / "log.parquet")
    assert scan(tmp_path / "log.parquet", score="s", label="y", weight="w", field="g") == expected


def test_a_bad_row_of_many_files_is_named_with_its_file(tmp_path):
    frame = log_of(["a", "b"])
    for number in range(3):
        part = frame[100 * number : 100 * (number + 1)]
        if number == 1:
            part = part.with_columns(s=pl.when(pl.col("id") == "0117").then(1.5).otherwise("s"))
        for kind in (".parquet", ".csv"):
            write(part, tmp_path / f"{number}{kind}")
    model = mcnet.Platt().fit(frame["s"], frame["y"]).model_
    for kind in (".parquet", ".csv"):
        files, message = f"{tmp_path}/*{kind}", rf"first: row 17 of .*1\{kind}, 1.5"
        with pytest.raises(mcnet.InputError, match=message):
            scan(files, score="s", label="y")
        with pytest.raises(mcnet.InputError, match=message):
            apply_to_files(model, files, tmp_path / f"out{kind}.gz" if kind == ".csv" else tmp_path / "o.pq", score="s")


def test_names_with_the_characters_of_globs_are_files(tmp_path):
    frame = log_of(["a", "b"])
    write(frame, tmp_path / "log[1].parquet")
    write(frame[:10], tmp_path / "log1.parquet")
    assert scan(tmp_path / "log[1].parquet", score="s", label="y").rows == len(frame)


def test_a_csv_has_no_types_so_every_spelling_of_zero_is_zero(tmp_path):
    (tmp_path / "log.csv").write_text(
        "s,y,zone\n" + "".join(f"0.{n},{n % 2},{zone}\n" for n in range(1, 9) for zone in ("0", "0.0", "-0", "-0.0"))
    )
    pl.DataFrame({"s": [0.1, 0.2], "y": [0, 1], "zone": [0.0, -0.0]}).write_parquet(tmp_path / "log.parquet")
    for kind in ("csv", "parquet"):
        sketch = scan(tmp_path / f"log.{kind}", score="s", label="y", field="zone")
        assert sketch.contexts.values == (("0",),)
    texts = pl.DataFrame({"s": [0.1, 0.2], "y": [0, 1], "zone": ["0.0", "-0.0"]})
    assert scan(texts, score="s", label="y", field="zone").contexts.values == (("-0.0", "0.0"),)


def test_the_fields_of_a_model_may_have_other_names_in_the_files(tmp_path):
    rng = np.random.default_rng(5)
    score = rng.uniform(0.05, 0.5, 600)
    country, device = rng.choice(["NL", "FR"], 600), rng.choice(["007", "tv"], 600)
    label = rng.random(600) < score
    model = mcnet.PlattField().fit(score, label, field={"country": country, "device": device}).model_
    frame = pl.DataFrame({"s": score, "geo": country, "kind": device, "country": device, "device": country})
    frame.write_csv(tmp_path / "log.csv")
    expected = model.predict(score, {"country": country, "device": device})

    def applied(*names):
        apply_to_files(model, tmp_path / "log.csv", tmp_path / "out.parquet", score="s", field=names)
        return pl.read_parquet(tmp_path / "out.parquet")["calibrated"].to_numpy()

    np.testing.assert_array_equal(applied("geo", "kind"), expected)
    swapped = model.predict(score, {"country": device, "device": country})
    np.testing.assert_array_equal(applied("device", "country"), swapped)  # both names are known: order is no matter
    with pytest.raises(mcnet.InputError, match="name a column for each, in this order"):
        applied("geo")
    with pytest.raises(mcnet.InputError, match="the model has a field 'device' itself"):
        applied("device", "kind")
    with pytest.raises(mcnet.InputError, match="has no column 'nothing'"):
        applied("geo", "nothing")
    with pytest.raises(mcnet.InputError, match="the new column cannot be 'geo'"):
        apply_to_files(
            model, tmp_path / "log.csv", tmp_path / "o.csv", score="s", field=["geo", "kind"], column=NewColumn("geo")
        )
