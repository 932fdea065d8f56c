"""Slices that are off are listed, noise is not; the multicalibration error and the advice follow."""

import shlex

import numpy as np
import polars as pl
import pytest

import mcnet
from mcnet.metrics import slice_sums, slices
from mcnet.rows.candidates import candidate_fields, sample_rows
from mcnet.rows.locations import read_with


def rows(number=20_000, seed=0, off=None):
    """Return rows whose scores are true, but for `off`: factors by value of the column `device`."""
    rng = np.random.default_rng(seed)
    p = 1.0 / (1.0 + np.exp(-rng.normal(-2.0, 1.0, number)))
    device = rng.choice(["phone", "tablet", "desk", "tv"], number, p=[0.5, 0.3, 0.15, 0.05])
    truth = p * np.array([(off or {}).get(name, 1.0) for name in device])
    seconds = 1_700_000_000 + 60 * rng.permutation(number)
    return pl.DataFrame(
        {
            "score": p,
            "label": (rng.random(number) < truth).astype(np.int8),
            "device": device,
            "noise": rng.integers(0, 30, number).astype(str),
            "age": rng.normal(40.0, 12.0, number),
            "ts": pl.from_epoch(pl.Series(seconds)),
        }
    )


def test_a_value_that_is_off_is_listed_first_and_its_column_advised():
    found = mcnet.slices(rows(40_000, off={"tablet": 0.7}), score="score", label="label")
    worst = found.worst[0]
    assert (worst.column, worst.value) == ("device", "tablet")
    assert worst.pcoc_low < 1 / 0.7 < worst.pcoc_high
    assert worst.freed_low < 1 / 0.7 < worst.freed_high
    assert worst.excess == pytest.approx(worst.pcoc * worst.positives - worst.positives)
    assert found.advised == ["device"]
    assert found.error.column == "device"
    assert found.error.sigmas > 2 * found.error.floor_sigmas
    assert found.error.chance == 0.0
    text = str(found)
    assert "device = tablet" in text
    assert "--field device" in text
    assert "noise alone gives" in text


def test_names_of_advised_columns_are_quoted_for_the_shell():
    log = rows(off={"tablet": 0.5}).select("score", "label", pl.col("device").alias("it's a device"))
    advice = str(mcnet.slices(log, score="score", label="label")).rsplit(": ", 1)[1]
    assert shlex.split(advice) == ["--field", "it's a device"]


def test_true_probabilities_have_no_slices_and_an_error_of_noise():
    found = [mcnet.slices(rows(8000, seed), score="score", label="label", exclude=["ts"]) for seed in range(4)]
    assert sum(bool(each.worst) for each in found) <= 1
    assert sum(bool(each.advised) for each in found) <= 1
    sigmas = np.array([each.error.sigmas for each in found])
    floors = np.array([each.error.floor_sigmas for each in found])
    assert abs(sigmas.mean() - floors.mean()) < 0.4
    assert np.median([each.error.chance for each in found]) > 0.1
    assert "no slice is off" in str(found[0])
    assert "no further column would help" in str(found[0])


def test_the_multicalibration_error_is_that_of_its_formula():
    rng = np.random.default_rng(5)
    p = rng.choice(np.linspace(0.05, 0.6, 12), 5000)
    group = rng.choice(["a", "b", "c"], 5000)
    y = rng.random(5000) < np.where(group == "b", 0.8 * p, p)
    found = mcnet.slices(pl.DataFrame({"s": p, "y": y, "g": group}), score="s", label="y").error
    order = np.argsort(p, kind="stable")

    def sigmas(chosen):
        inside = order[chosen[order]]
        ends = np.append(np.diff(p[inside]) > 0, True)  # rows of one probability have no order
        added = np.append(0.0, np.cumsum((p - y)[inside])[ends])
        return np.ptp(added) / np.sqrt((p * (1 - p))[inside].sum())

    of_groups = {name: sigmas(group == name) for name in "abc"} | {None: sigmas(np.ones(5000, bool))}
    assert found.sigmas == pytest.approx(max(of_groups.values()))
    assert of_groups[found.value_of_column] == pytest.approx(found.sigmas)
    assert found.value == pytest.approx(found.sigmas * np.sqrt((p * (1 - p)).sum()) / 5000)


def test_files_in_batches_tables_and_csv_give_the_same(tmp_path, monkeypatch):
    table = rows(4000, off={"tablet": 0.6, "tv": 1.3})
    whole = mcnet.slices(table, score="score", label="label").to_dict()
    table.write_parquet(tmp_path / "log.parquet", row_group_size=1000)
    table.write_csv(tmp_path / "log.csv")
    monkeypatch.setattr("mcnet.rows.logs.BATCH_ROWS", 700)
    for name in ("log.parquet", "log.csv"):
        found = mcnet.slices(tmp_path / name, score="score", label="label").to_dict()
        assert [line["value"] for line in found["slices"]] == [line["value"] for line in whole["slices"]]
        assert found["multicalibration_error"]["sigmas"] == pytest.approx(whole["multicalibration_error"]["sigmas"])
        assert [line["gain"] for line in found["columns"]] == pytest.approx(
            [line["gain"] for line in whole["columns"]], abs=1e-9
        )
        assert found["left_out"] == whole["left_out"] == {}


def test_a_model_is_judged_and_its_fields_are_told_apart():
    table = rows(off={"tablet": 0.6}).drop("ts")
    sketch = mcnet.scan(table, score="score", label="label", field="device")
    model = mcnet.OffsetField().fit_sketch(sketch).model_
    found = mcnet.slices(table, score="score", label="label", model=model)
    assert not found.worst
    assert found.advised == []
    assert {line.column for line in found.gains if line.is_field} == {"device"}
    changed = rows(seed=9, off={"tablet": 1.3}).drop("ts")
    again = mcnet.slices(changed, score="score", label="label", model=model)
    assert again.worst[0].is_field
    assert again.advised == []
    assert "device changed since the fit: fit the model again" in str(again)


def test_the_advice_names_the_fields_of_the_model_and_the_first_column_alone():
    table = rows(off={"tablet": 0.6}).drop("ts").with_columns(again=pl.col("device"), part=pl.col("noise").str.head(1))
    sketch = mcnet.scan(table, score="score", label="label", field="part")
    model = mcnet.OffsetField().fit_sketch(sketch).model_
    found = mcnet.slices(table, score="score", label="label", model=model, exclude="noise")
    assert sorted(found.advised) == ["again", "device"]
    first, other = found.advised
    text = f"the first of {first}, {other} that is known at serving, and test again before you take another: "
    assert str(found).endswith(f"{text}--field part --field {first}")


def test_a_model_of_derived_fields_is_judged_from_any_file(tmp_path):
    table = rows(4000, off={"tv": 0.6})
    table.write_csv(tmp_path / "log.csv")
    sketch = mcnet.scan(table, score="score", label="label", field=["ts:weekday", "age:number"])
    model = mcnet.OffsetField().fit_sketch(sketch).model_
    found = [mcnet.slices(log, score="score", label="label", model=model) for log in (table, tmp_path / "log.csv")]
    assert found[0].error.sigmas == pytest.approx(found[1].error.sigmas)
    assert {line.column for line in found[1].gains if line.is_field} == {"ts:weekday", "age:number"}


def test_weights_and_dropped_negatives_count():
    table = rows(8000, off={"tablet": 0.6}).drop("ts")
    doubled = mcnet.slices(table.with_columns(w=pl.lit(2.0)), score="score", label="label", weight="w")
    once = mcnet.slices(table, score="score", label="label")
    assert doubled.rows == 2 * once.rows
    assert doubled.worst[0].pcoc == pytest.approx(once.worst[0].pcoc)
    assert doubled.error.sigmas == pytest.approx(once.error.sigmas * 2**0.5)
    kept = table.filter((pl.col("label") == 1) | (pl.int_range(pl.len()) % 4 == 0))
    restored = mcnet.slices(kept, score="score", label="label", negatives_kept=0.25)
    assert restored.worst[0].pcoc == pytest.approx(once.worst[0].pcoc, rel=0.08)


def test_infinite_scores_are_left_out_with_missing_ones_if_asked():
    table = rows(4000).with_columns(score=pl.when(pl.int_range(4000) > 9).then("score").otherwise(float("inf")))
    with read_with(drop_missing=True) as options:
        found = mcnet.slices(table, score="score", label="label")
    assert (found.rows, options.dropped_rows) == (3990, 10)


def test_many_values_in_many_columns_stay_bounded(monkeypatch):
    monkeypatch.setattr(slices, "_MOST_SLICES", 40)
    rng = np.random.default_rng(0)
    columns = {f"c{i}": rng.zipf(1.3, 5000).clip(0, 400).astype(str) for i in range(4)}
    table = rows(5000).select("score", "label").with_columns(**{k: pl.Series(v) for k, v in columns.items()})
    found = mcnet.slices(table, score="score", label="label")
    assert found.tested + found.too_few <= 44
    assert found.cut == dict.fromkeys(columns, 10)
    assert "c0: its 10 most frequent values, the others as one" in str(found)
    assert found.rows == 5000.0


def test_each_column_is_cut_by_what_it_holds():
    number = 4000
    rng = np.random.default_rng(1)
    sample = pl.DataFrame(
        {
            "id": [f"u{i}" for i in range(number)],
            "amount": rng.lognormal(0.0, 1.0, number),
            "big": rng.integers(0, 10**6, number),
            "few": rng.integers(0, 20, number),
            "when": ["2026-11-16T07:00:00", "2026-11-18T21:30:00"] * (number // 2),
            "epoch": 1_790_000_000 + 3600 * rng.integers(0, 400, number),
            "digits": rng.choice([20261117, 20261118, 20261119], number),
            "day": pl.Series([19000, 19001] * (number // 2)).cast(pl.Date),
            "flag": [True, False] * (number // 2),
            "one": ["x"] * number,
            "none": pl.Series([None] * number, dtype=pl.String),
            "list": [[1, 2]] * number,
        }
    )
    found, left_out = candidate_fields(sample, {"flag"})
    assert [candidate.name for candidate in found] == [
        "amount:number",
        "big:number",
        "few",
        "when:hour",
        "when:weekday",
        "when:hour-of-week",
        "epoch:hour",
        "epoch:weekday",
        "epoch:hour-of-week",
        "digits",
        "day:weekday",
    ]
    assert set(left_out) == {"id", "one", "none", "list"}
    assert "key" in left_out["id"]
    amount = found[0].values(sample["amount"])
    sizes = np.bincount(amount.codes)
    assert len(sizes) == 16
    assert sizes.max() <= 1.5 * sizes.min()  # an edge is moved a little for the sake of fewer digits
    hours = found[3].values(pl.Series("when", ["2026-11-16T07:00:00", None, "nonsense"]))
    assert [hours.values[code] for code in hours.codes] == ["07:00", None, None]


def test_the_sample_is_bounded_and_the_same_for_any_batches():
    table = pl.DataFrame({"x": np.arange(50_000)})
    one = sample_rows([table], 1000)
    other = sample_rows((table[i : i + 777] for i in range(0, 50_000, 777)), 1000)
    assert 1000 <= len(one) < 2000
    assert one.equals(other)
    assert sample_rows([table[:100]], 1000).equals(table[:100])


def test_wrong_input_is_said(tmp_path):
    table = rows(3000)
    with pytest.raises(mcnet.InputError, match="no column 'nope' to leave out"):
        mcnet.slices(table, score="score", label="label", exclude=["nope"])
    with pytest.raises(mcnet.InputError, match="no column 'p'"):
        mcnet.slices(table, score="p", label="label")
    with pytest.raises(mcnet.InputError, match="no column to cut slices by"):
        mcnet.slices(table.select("score", "label"), score="score", label="label")
    with pytest.raises(mcnet.InputError, match="has no rows"):
        mcnet.slices(table[:0], score="score", label="label")
    with pytest.raises(mcnet.InputError, match="weight 0"):
        mcnet.slices(table.with_columns(w=pl.lit(0.0)), score="score", label="label", weight="w")
    wrong = table.with_columns(score=pl.when(pl.int_range(pl.len()) == 2017).then(1.5).otherwise("score"))
    wrong.write_parquet(tmp_path / "log.parquet")
    with pytest.raises(mcnet.InputError, match=r"row 2017"):
        mcnet.slices(tmp_path / "log.parquet", score="score", label="label")
    with pytest.raises(mcnet.InputError, match="give files or a table"):
        mcnet.slices(7, score="score", label="label")


def test_bins_of_the_probability_have_equal_noise():
    p = np.random.default_rng(0).beta(1, 9, 100_000)
    inside = np.bincount(np.searchsorted(slice_sums.bin_edges(p), p, side="right"), p * (1 - p))
    assert len(inside) == 64
    assert inside.max() < 1.2 * inside.min()
