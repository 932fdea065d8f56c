"""The search for fields: what is worth a field is chosen, noise is not, and outcomes are named."""

import numpy as np
import polars as pl
import pytest

import mcnet
from mcnet.errors import InputError
from mcnet.field_search import RowSample, _Rows, learnt_variance


def log(size: int = 20_000, seed: int = 3) -> pl.DataFrame:
    """Rows whose rate depends on country, age and hour; noise, a key and outcomes beside them."""
    random = np.random.default_rng(seed)
    country = random.integers(0, 6, size)
    age = random.gamma(3.0, 10.0, size)
    seconds = random.integers(0, 28 * 86_400, size)
    z = random.normal(-2.0, 1.0, size)
    effect = np.linspace(-0.8, 0.8, 6)[country] + 0.04 * (age - 30.0) + 0.06 * (seconds // 3600 % 24 - 12.0)
    y = random.random(size) < 1.0 / (1.0 + np.exp(-(z + effect)))
    return pl.DataFrame(
        {
            "p": 1.0 / (1.0 + np.exp(-z)),
            "y": y.astype(int),
            "country": pl.Series([f"c{code}" for code in country]),
            "age": age,
            "ts": np.datetime64("2026-11-02T00:00", "us") + seconds.astype("timedelta64[s]"),
            "noise": random.integers(0, 30, size),
            "noisy": random.random(size),
            "one": pl.repeat("x", size, eager=True),
            "id": pl.Series([f"{i:08x}" for i in range(size)]),
        }
    )


@pytest.fixture(scope="module")
def rows():
    return log()


@pytest.mark.parametrize("time", [None, "ts"])
def test_columns_that_gain_are_chosen_and_noise_is_not(rows, time):
    found = mcnet.find_fields(rows, score="p", label="y", time=time)
    assert set(found.fields) == {"country", "age:number", "ts:hour"}
    assert found.fields[0] == "age:number"
    assert found.log_loss < found.base_log_loss - 0.05
    by_name = {one.name: one for one in found.candidates}
    assert {"noise", "noisy:number", "ts:weekday", "ts:hour-of-week"} <= set(by_name)
    assert all(by_name[name].low > 0.0 for name in found.fields)
    assert by_name["country"].values == 6
    assert set(found.left_out) == {"one", "id"}
    assert "p" not in by_name
    assert "only you know" in str(found).lower()
    assert [line for line in str(found).splitlines() if line.startswith("age:number")]


def test_noise_earns_nothing_by_what_the_score_is_off():
    random = np.random.default_rng(5)
    for size in (500, 1_000, 3_000):
        z = random.normal(-1.0, 1.0, size)
        y = random.random(size) < 1.0 / (1.0 + np.exp(-(0.6 * z - 1.0)))
        noise = pl.Series([f"n{code}" for code in random.integers(0, 3, size)])
        frame = pl.DataFrame({"p": 1.0 / (1.0 + np.exp(-z)), "y": y.astype(int), "noise": noise})
        assert mcnet.find_fields(frame, score="p", label="y").fields == ()


def test_one_score_for_all_rows_leaves_the_level_to_the_labels_and_nothing_to_noise():
    random = np.random.default_rng(6)
    y = random.random(20_000) < 0.01
    z = _Rows(np.full(len(y), 0.3), y * 1.0, np.ones(len(y)), []).z
    np.testing.assert_allclose(z, np.log(y.mean() / (1.0 - y.mean())), atol=1e-3)
    noise = pl.Series([f"n{code}" for code in random.integers(0, 30, len(y))])
    frame = pl.DataFrame({"p": np.full(len(y), 0.3), "y": y.astype(int), "noise": noise})
    assert mcnet.find_fields(frame, score="p", label="y").fields == ()


def test_columns_that_look_like_outcomes_are_named_and_not_chosen(rows):
    clicked = pl.col("y") == 1
    leaky = rows.with_columns(
        pl.when(clicked).then(pl.lit("shop")).alias("basket"),
        (pl.col("y") + 0.1 * pl.col("noisy")).round(1).cast(pl.String).alias("result"),
    )
    found = mcnet.find_fields(leaky, score="p", label="y")
    warned = {one.name: one.warning for one in found.candidates if one.warning}
    assert warned == {
        "basket": "looks like an outcome: it is filled for positives alone",
        "result": "looks like an outcome: it predicts the label almost perfectly",
    }
    assert not {"basket", "result"} & set(found.fields)
    without = mcnet.find_fields(leaky, score="p", label="y", exclude=["basket", "result", "age"])
    assert set(without.fields) == {"country", "ts:hour"}


def test_what_is_found_is_fitted(rows, tmp_path):
    rows.write_parquet(tmp_path / "log.parquet")
    sketch = mcnet.scan(tmp_path / "log.parquet", score="p", label="y", fields="auto")
    assert set(sketch.contexts.names) == {"country", "age:number", "ts:hour"}
    with pytest.raises(InputError, match="fields and field were both given"):
        mcnet.scan(rows, score="p", label="y", fields="auto", field="country")


def test_a_sample_keeps_positives_first_and_its_weights_make_up_for_the_rest():
    random = np.random.default_rng(0)
    table = pl.DataFrame({"y": (random.random(50_000) < 0.02).astype(int), "x": random.random(50_000)})
    sample = RowSample(4_000)
    for part in table.iter_slices(7_000):
        sample.add(part, "y")
    kept, stands = sample.table()
    assert sample.rows == 50_000
    assert len(kept) <= 4_000
    assert kept["y"].sum() == table["y"].sum()
    assert stands.sum() == pytest.approx(50_000, rel=0.05)
    assert stands[kept["y"].to_numpy() == 1].max() == 1.0


def test_a_variance_is_learnt_and_is_zero_for_noise():
    random = np.random.default_rng(1)
    curvature = np.full(200, 50.0)
    noise = random.normal(0.0, np.sqrt(curvature))
    assert learnt_variance(noise, curvature) < 0.005
    effects = random.normal(0.0, 0.5, 200)
    assert learnt_variance(noise + curvature * effects, curvature) == pytest.approx(0.25, rel=0.5)


def test_many_columns_of_very_many_values_are_left_out(rows):
    size = 3_000
    random = np.random.default_rng(2)
    ids = {f"id{k}": pl.Series(random.permutation(size)).cast(pl.String) for k in range(20)}
    found = mcnet.find_fields(rows[:size].with_columns(**ids).drop("id"), score="p", label="y")
    assert set(ids) <= set(found.left_out)


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ({"y": pl.lit(0)}, {}, "all rows are of one class"),
        ({}, {"exclude": ["nothing"]}, "'nothing' is to be excluded and is no column"),
        ({}, {"time": "nothing"}, "has no column 'nothing'"),
        ({"ts": pl.lit(None, dtype=pl.Datetime("us"))}, {"time": "ts"}, "rows without a timestamp"),
    ],
)
def test_rows_that_cannot_be_searched_are_refused(rows, change, options, said):
    with pytest.raises(InputError, match=said):
        mcnet.find_fields(rows[:500].with_columns(**change), score="p", label="y", **options)


def test_an_update_chooses_once_and_keeps_its_choice(rows, tmp_path):
    rows = rows.sort("ts").select("p", "y", "country", "noise", "ts")
    rows[:12_000].write_parquet(tmp_path / "a.parquet")
    rows[12_000:14_000].with_columns(pl.lit("c1").alias("country")).write_parquet(tmp_path / "b.parquet")
    columns = {"score": "p", "label": "y", "time": "ts", "every": "1w"}
    first = mcnet.update(tmp_path / "ads.db", tmp_path / "a.parquet", **columns, fields="auto")
    assert set(first.fields) == {"country", "ts:hour"}
    again = mcnet.update(tmp_path / "ads.db", tmp_path / "b.parquet", **columns, fields="auto")
    later = mcnet.update(tmp_path / "ads.db", tmp_path / "b.parquet")
    assert first.fields == again.fields == later.fields
    with pytest.raises(InputError, match="were both given"):
        mcnet.update(tmp_path / "ads.db", tmp_path / "b.parquet", **columns, fields="auto", field="country")
    mcnet.Journal(tmp_path / "named.db").add_files(tmp_path / "a.parquet", **columns, field="country")
    with pytest.raises(InputError, match="are chosen for a new head"):
        mcnet.update(tmp_path / "named.db", tmp_path / "b.parquet", **columns, fields="auto")


def test_the_command_prints_a_table_and_json(rows, tmp_path, capsys):
    import json

    from mcnet.cli.run import run

    rows[:4_000].write_csv(tmp_path / "log.csv")
    columns = [str(tmp_path / "log.csv"), "--score", "p", "--label", "y", "--exclude", "id"]
    assert run(["fields", *columns]) == 0
    assert "chosen 1" in capsys.readouterr().out
    assert run(["fields", *columns, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert "age:number" in document["fields"]
    assert document["rows"] == document["sampled"] == 4_000
    model = str(tmp_path / "model.json")
    assert run(["fit", *columns[:-2], "--fields", "auto", "-o", model]) == 0
    assert "fields chosen: " in capsys.readouterr().err
    assert "age:number" in mcnet.load(model).fields
    for words, said in (
        (["fit", *columns[:-2], "--fields", "country", "-o", model, "--force"], "name a field with --field country"),
        (
            ["fit", *columns[:-2], "--fields", "auto", "--field", "age", "-o", model, "--force"],
            "give --fields auto or --field",
        ),
    ):
        assert run(words) == 2
        assert said in capsys.readouterr().err


def test_excluded_columns_are_no_candidates_of_a_scan(rows):
    sketch = mcnet.scan(rows[:8_000], score="p", label="y", fields="auto", exclude=["age"])
    assert set(sketch.contexts.names) == {"country", "ts:hour"}
    with pytest.raises(InputError, match='pass fields="auto"'):
        mcnet.scan(rows, score="p", label="y", field="country", exclude=["age"])


def test_columns_that_the_scan_reads_as_numbers_are_no_candidates(rows):
    """What a positive is worth, and weights, are columns that a fit reads; fields they are not."""
    priced = rows[:8_000].rename({"age": "worth"})
    sketch = mcnet.scan(priced, score="p", label="y", value="worth", fields="auto")
    assert set(sketch.contexts.names) == {"country", "ts:hour"}


def test_weights_are_rows_of_the_log_and_no_evidence_of_their_own():
    """Noise is not chosen because each negative stands for many, and weights may be in any unit."""
    random = np.random.default_rng(8)
    size = 6_000
    z = random.normal(0.0, 1.0, size)
    y = random.random(size) < 1.0 / (1.0 + np.exp(-z))
    noise = pl.Series([f"n{code}" for code in random.integers(0, 300, size)])
    frame = pl.DataFrame({"p": 1.0 / (1.0 + np.exp(-z)), "y": y.astype(int), "noise": noise})
    frame = frame.with_columns(w=np.where(random.random(size) < 0.05, 40.0, 1.0), fifty=50.0)
    for options in ({"weight": "w"}, {"negatives_kept": 0.05}):
        assert mcnet.find_fields(frame.drop("fifty"), score="p", label="y", exclude=(), **options).fields == ()
    plain = mcnet.find_fields(frame.drop("w", "fifty"), score="p", label="y")
    scaled = mcnet.find_fields(frame.drop("w"), score="p", label="y", weight="fifty")
    assert scaled.log_loss == pytest.approx(plain.log_loss, rel=1e-12)
    assert scaled.candidates[0].low == pytest.approx(plain.candidates[0].low, rel=1e-9)


def test_a_weighted_gain_is_that_of_the_rows_behind_it(rows):
    """Two rows in one, and the same rows twice, gain the same; the interval knows that they are one row."""
    few = rows[:4_000].select("p", "y", "country")
    heavy = few.with_columns(w=pl.when(pl.col("country") == "c0").then(0.0).otherwise(1.0))
    without = mcnet.find_fields(few.filter(pl.col("country") != "c0"), score="p", label="y")
    weighted = mcnet.find_fields(heavy, score="p", label="y", weight="w")
    assert weighted.base_log_loss == pytest.approx(without.base_log_loss, rel=0.01)
    assert weighted.candidates[0].added == pytest.approx(without.candidates[0].added, rel=0.2)


def test_rows_without_a_label_are_left_out_if_asked(rows):
    some = rows[:5_000].with_columns(pl.when(pl.int_range(5_000) > 20).then(pl.col("y")).alias("y"))
    assert mcnet.scan(some, score="p", label="y", drop_missing=True, fields="auto").contexts.names


def test_negatives_without_a_value_stay_in_the_search_where_positives_alone_have_one(rows):
    some = rows[:5_000].with_columns(v=pl.when(pl.col("y") == 1).then(2.0))
    names = {"score": "p", "label": "y", "drop_missing": True, "fields": "auto", "exclude": ["v"]}
    without = mcnet.scan(some, **names).contexts.names
    assert mcnet.scan(some, **names, value_per_positive="v").contexts.names == without


def test_infinite_numbers_are_left_out_with_the_missing_ones_as_in_a_sketch(rows):
    some = rows[:5_000].with_columns(p=pl.when(pl.int_range(5_000) % 9 == 0).then(float("inf")).otherwise(pl.col("p")))
    whole = some.filter(pl.col("p").is_finite())
    names = {"score": "p", "label": "y", "fields": "auto"}
    assert mcnet.scan(some, **names, drop_missing=True).contexts.names == mcnet.scan(whole, **names).contexts.names


def test_a_bare_string_excludes_one_column_and_names_are_quoted_for_the_shell():
    rng = np.random.default_rng(3)
    kind = rng.choice(["a", "b"], 20_000)
    score = np.full(20_000, 0.3)
    label = rng.random(20_000) < np.where(kind == "a", 0.1, 0.5)
    frame = pl.DataFrame({"p": score, "y": label, "the kind": kind, "bid": kind})
    found = mcnet.find_fields(frame, score="p", label="y", exclude="bid")
    assert found.fields == ("the kind",)
    assert "--field 'the kind'" in str(found)
    with pytest.raises(mcnet.InputError, match="'bids' is to be excluded and is no column"):
        mcnet.find_fields(frame, score="p", label="y", exclude="bids")
