import numpy as np
import polars as pl
import pytest

import mcnet
from mcnet.errors import FileFormatError, InputError
from mcnet.model.apply import NewColumn, apply_to_files

pytestmark = pytest.mark.filterwarnings("ignore:.*the range of the fit of the model")


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    scores = rng.uniform(0.01, 0.3, 20_000)
    field = {"country": rng.choice(["7", "NL"], 20_000), "day": rng.choice(["a", "b"], 20_000)}
    return mcnet.PlattField().fit(scores, rng.random(20_000) < scores / 2, field=field).model_


def rows(number, seed=1):
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "id": np.arange(number),
            "s": rng.uniform(0.0, 1.0, number),
            "country": rng.choice(["7", "NL", "elsewhere"], number),
            "day": rng.choice(["a", "b"], number),
        }
    )


def expected(model, frame):
    return model.predict(frame["s"], {"country": frame["country"], "day": frame["day"]})


def test_many_row_groups_and_files_keep_their_order(model, tmp_path):
    frame = rows(300_000)
    frame.head(120_001).write_parquet(tmp_path / "a.parquet", row_group_size=7_001)
    frame.tail(179_999).write_parquet(tmp_path / "b.parquet", row_group_size=150_000)
    told = []
    done = apply_to_files(model, f"{tmp_path}/?.parquet", tmp_path / "out.parquet", score="s", progress=told.append)
    found = pl.read_parquet(tmp_path / "out.parquet")
    assert done.rows == sum(told) == len(frame)
    assert found.drop("calibrated").equals(frame)
    assert np.array_equal(found["calibrated"].to_numpy(), expected(model, frame))


def test_from_csv_to_csv_the_text_of_every_column_stays(model, tmp_path):
    log = tmp_path / "log.csv"
    log.write_text('id,s,country,day,note\n007,0.10,7,a,"x, y"\n008,1e-1,NL,b,\n009,0.3,7.0,a,0x1F\n')
    apply_to_files(model, log, tmp_path / "out.csv", score="s")
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert [line.rsplit(",", 1)[0] for line in lines] == log.read_text().splitlines()
    assert lines[1].rsplit(",", 1)[1] != lines[2].rsplit(",", 1)[1]


def test_numbers_in_csv_mean_the_field_values_they_meant_when_fitted(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("s,code,y\n" + "0.2,7.0,1\n0.3,7.0,0\n0.2,8.5,0\n0.4,8.5,0\n0.4,7.0,1\n0.1,8.5,1\n" * 30)
    sketch = mcnet.scan(log, score="s", label="y", field="code")
    fitted = mcnet.PlattField().fit_sketch(sketch).model_
    assert fitted.contexts.values == (("7", "8.5"),)
    for ending in ("csv", "parquet"):
        apply_to_files(fitted, log, tmp_path / f"out.{ending}", score="s")
    text, typed = pl.read_csv(tmp_path / "out.csv"), pl.read_parquet(tmp_path / "out.parquet")
    assert np.array_equal(text["calibrated"].to_numpy(), fitted.predict(typed["s"], typed["code"]))
    assert np.array_equal(typed["calibrated"].to_numpy(), fitted.predict(typed["s"], typed["code"]))


def test_a_bad_score_is_named_by_its_row(model, tmp_path):
    frame = rows(250_000)
    scores = frame["s"].to_numpy().copy()
    scores[[5, 222_222]] = np.nan, np.inf
    frame.with_columns(s=scores).write_parquet(tmp_path / "log.parquet")
    with pytest.raises(InputError, match=r"s has 1 value missing, NaN or infinite \(first: row 222222"):
        apply_to_files(model, tmp_path / "log.parquet", tmp_path / "out.parquet", score="s")
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_a_row_without_a_score_gets_no_probability_and_is_counted(model, tmp_path, ending):
    frame = rows(3_000).with_columns(s=pl.when(pl.int_range(pl.len()) % 50 != 7).then("s"))
    frame.write_parquet(tmp_path / "log.parquet")
    frame.write_csv(tmp_path / "log.csv")
    frame.write_ndjson(tmp_path / "log.jsonl")
    done = apply_to_files(model, tmp_path / f"log.{ending}", tmp_path / "out.parquet", score="s")
    assert (done.rows, done.missing, done.missing_share) == (3_000, 60, 0.02)
    found = pl.read_parquet(tmp_path / "out.parquet")
    assert found["calibrated"].is_null().equals(frame["s"].is_null())
    known = found.drop_nulls("s")
    np.testing.assert_array_equal(known["calibrated"], expected(model, known))


@pytest.mark.parametrize("spelling", ["", '""', "nan", "NaN"])
def test_every_spelling_of_a_missing_score_of_a_csv_is_missing(tmp_path, spelling):
    fitted = mcnet.Platt().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1]).model_
    (tmp_path / "log.csv").write_text(f"s,id\n0.25,a\n{spelling},b\n")
    for ending in ("csv", "parquet", "jsonl"):
        done = apply_to_files(fitted, tmp_path / "log.csv", tmp_path / f"out.{ending}", score="s")
        assert (done.rows, done.missing) == (2, 1)
    assert pl.read_parquet(tmp_path / "out.parquet")["calibrated"].to_list() == [fitted.predict([0.25])[0], None]


def test_a_log_in_which_every_score_is_missing_gives_no_probability_at_all(tmp_path):
    fitted = mcnet.Platt().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1]).model_
    pl.DataFrame({"s": pl.Series([None, None], dtype=pl.Float64)}).write_parquet(tmp_path / "log.parquet")
    done = apply_to_files(fitted, tmp_path / "log.parquet", tmp_path / "out.parquet", score="s")
    assert (done.rows, done.missing) == (2, 2)
    assert pl.read_parquet(tmp_path / "out.parquet")["calibrated"].to_list() == [None, None]


def test_a_log_without_rows_gives_a_log_without_rows(model, tmp_path):
    rows(0).write_parquet(tmp_path / "log.parquet")
    assert apply_to_files(model, tmp_path / "log.parquet", tmp_path / "out.parquet", score="s").rows == 0
    assert pl.read_parquet(tmp_path / "out.parquet").columns == ["id", "s", "country", "day", "calibrated"]


def test_columns_named_like_ours_do_no_harm(model, tmp_path):
    frame = rows(10).with_columns(row=pl.lit("mine"), score=pl.lit(9), row_=pl.lit(1))
    frame.write_parquet(tmp_path / "log.parquet")
    apply_to_files(model, tmp_path / "log.parquet", tmp_path / "out.parquet", score="s")
    found = pl.read_parquet(tmp_path / "out.parquet")
    assert found.drop("calibrated").equals(frame)
    assert np.array_equal(found["calibrated"].to_numpy(), expected(model, frame))


def test_a_model_without_fields_reads_only_the_score(tmp_path):
    model = mcnet.Identity().fit([0.1, 0.2], [0, 1]).model_
    rows(100).select("s").write_ipc(tmp_path / "log.arrow")
    apply_to_files(model, tmp_path / "log.arrow", tmp_path / "out.arrow", score="s")
    found = pl.read_ipc(tmp_path / "out.arrow")
    assert np.allclose(found["calibrated"], found["s"].clip(1e-7, 1 - 1e-7))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"score": "nowhere"}, "no column 'nowhere'"),
        ({"column": NewColumn("id")}, "'id' already"),
        ({"column": NewColumn("s", replace=True)}, "the model reads"),
        ({"output": "out.json"}, "no known format"),
        ({"output": "log.parquet"}, "one of the files to read"),
        ({"output": "nowhere/out.parquet"}, "does not exist"),
    ],
)
def test_what_cannot_be_done_is_said(model, tmp_path, change, said):
    rows(5).write_parquet(tmp_path / "log.parquet")
    words = {"output": "out.parquet", "score": "s", **change}
    output = tmp_path / words.pop("output")
    with pytest.raises(InputError, match=said):
        apply_to_files(model, tmp_path / "log.parquet", output, **words)


def test_a_missing_field_and_a_damaged_file_are_said(model, tmp_path):
    rows(5).drop("day").write_parquet(tmp_path / "log.parquet")
    with pytest.raises(InputError, match="no column 'day'"):
        apply_to_files(model, tmp_path / "log.parquet", tmp_path / "out.parquet", score="s")
    (tmp_path / "log.parquet").write_bytes(b"nothing of the kind")
    with pytest.raises(FileFormatError, match="cannot be read"):
        apply_to_files(model, tmp_path / "log.parquet", tmp_path / "out.parquet", score="s")
