"""Tables of every kind give the sketch of their columns; what looks wrong is said."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import mcnet
from mcnet.errors import in_words


def table(rows=2_000):
    rng = np.random.default_rng(0)
    score = rng.random(rows)
    return pl.DataFrame(
        {
            "s": score,
            "y": (rng.random(rows) < score).astype(int),
            "w": rng.integers(1, 5, rows),
            "part": rng.integers(0, 3, rows),
            "c": rng.choice(["NL", "FR", "7"], rows),
            "t": pl.Series(np.datetime64("2024-05-01") + rng.integers(0, 90, rows)).cast(pl.Datetime("us")),
        }
    )


TABLES = {
    "Polars": lambda frame: frame,
    "lazy": lambda frame: frame.lazy(),
    "pandas": lambda frame: frame.to_pandas(),
    "Arrow": lambda frame: frame.to_arrow(),
    "Arrow batch": lambda frame: frame.to_arrow().combine_chunks().to_batches()[0],
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_gives_the_sketch_of_its_columns(kind):
    frame = table()
    words = {"score": "s", "label": "y", "weight": "w", "field": ["c", "t"], "folds": "part"}
    found = mcnet.scan(TABLES[kind](frame), **words)
    fields = {name: frame[name] for name in ("c", "t")}
    expected = mcnet.Sketch.from_rows(frame["s"], frame["y"], weight=frame["w"], field=fields, folds=frame["part"])
    assert found == expected
    assert found.columns == {"score": "s", "label": "y", "weight": "w"}
    cut = mcnet.scan(TABLES[kind](frame), score="s", label="y", field="t", every={"t": "1mo"})
    assert cut.contexts.values == (("2024-05", "2024-06", "2024-07"),)


@pytest.mark.parametrize("kind", TABLES)
def test_a_column_that_is_not_there_is_named(kind):
    with pytest.raises(mcnet.InputError, match="has no column 'x'; it has s, y, w, part, c, t"):
        mcnet.scan(TABLES[kind](table()), score="s", label="x")


@pytest.mark.parametrize("kind", TABLES)
def test_a_bad_value_is_named_with_its_column_and_row(kind):
    frame = table().with_columns(s=pl.when(pl.int_range(pl.len()) == 17).then(1.5).otherwise("s"))
    with pytest.raises(mcnet.InputError, match=r"s has 1 value outside \[0, 1\] \(first: row 17, 1.5\)"):
        mcnet.scan(TABLES[kind](frame), score="s", label="y")


def test_columns_given_to_scan_are_told_where_they_belong():
    frame = table()
    with pytest.raises(mcnet.InputError, match=r"names of columns, not Series; give columns to mcnet\.Sketch"):
        mcnet.scan(frame, score=frame["s"], label=frame["y"])
    with pytest.raises(mcnet.InputError, match="scan was given ndarray"):
        mcnet.scan(np.zeros(3), score="s", label="y")


def test_swapped_scores_and_labels_are_said():
    frame = table()
    for resolution in (512, "exact"):
        with pytest.warns(mcnet.CalibrationWarning, match="every y is 0 or 1 and s has fractions"):
            mcnet.scan(frame, score="y", label="s", resolution=resolution)
    mcnet.Sketch.from_rows([0, 1, 0, 1], [0, 1, 1, 1])  # scores of 0 and 1 alone are no mistake


def test_a_field_with_a_value_of_its_own_in_most_rows_is_said():
    frame = table().with_columns(id=pl.int_range(pl.len()))
    with pytest.warns(mcnet.CalibrationWarning, match="field 'id' has 2,000 values in 2,000 rows; if it is an id"):
        mcnet.scan(frame, score="s", label="y", field="id")


def test_pandas_and_arrow_keep_missing_values():
    for frame in (
        pd.DataFrame({"s": [0.1, 0.2], "y": [0, 1], "c": ["a", None]}),
        pa.table({"s": [0.1, 0.2], "y": [0, 1], "c": ["a", None]}),
    ):
        assert mcnet.scan(frame, score="s", label="y", field="c").contexts.values == (("a", None),)


def test_weights_that_are_shares_are_said():
    # A weight counts as so many rows: methods with a prior would keep to it.
    scores, labels = np.linspace(0.1, 0.9, 200), np.arange(200) % 2
    said = "the weights of 200 rows add up to 1, .* divide them by their mean"
    with pytest.warns(mcnet.CalibrationWarning, match=said):
        mcnet.Sketch.from_rows(scores, labels, weight=np.full(200, 1.0 / 200))
    for weight in (None, np.full(200, 0.02), np.full(200, 1e9)):  # warnings are errors here
        mcnet.Sketch.from_rows(scores, labels, weight=weight)


def test_scores_of_another_scale_than_the_labels_are_said():
    scores = np.linspace(0.0005, 0.0015, 100_000)
    labels = np.arange(100_000) % 1_000 == 0
    mcnet.Sketch.from_rows(scores, labels)  # warnings are errors here
    mcnet.Sketch.from_rows(scores * 20, labels)
    mcnet.Sketch.from_rows(scores * 100, np.zeros(100_000))
    with pytest.warns(mcnet.CalibrationWarning, match=r"mean score is 0.1 and the mean label 0.001; .* no percentages"):
        mcnet.Sketch.from_rows(scores * 100, labels)
    with pytest.warns(mcnet.CalibrationWarning, match="if negatives were down-sampled, pass negatives_kept="):
        mcnet.Sketch.from_rows(scores, np.arange(100_000) % 10 == 0)


def test_probabilities_that_are_read_as_logits_are_said():
    scores, labels = np.linspace(0.0, 1.0, 200), np.arange(200) % 2
    with pytest.warns(mcnet.CalibrationWarning, match="200 values, all in .* leave out score_type='logit'") as caught:
        mcnet.Sketch.from_rows(scores, labels, score_type="logit")
    assert in_words(caught[0].message, "shell").endswith("leave out --logits")
    mcnet.Sketch.from_rows(scores * 1.02, labels, score_type="logit")


def test_timestamps_as_a_field_are_said_and_parts_of_them_that_are_none_are_told_which_there_are():
    frame = table().with_columns(ts=pl.datetime(2026, 1, 1) + pl.duration(minutes=pl.int_range(pl.len())))
    sketch = mcnet.scan(frame, score="s", label="y", field="ts")  # to be cut to periods, perhaps
    with pytest.warns(mcnet.CalibrationWarning, match="'ts' has 2,000 timestamps, .* ts:hour, ts:weekday, ts:hour-"):
        mcnet.PlattField().fit_sketch(sketch)
    mcnet.scan(frame, score="s", label="y", field="ts:hour")
    mcnet.scan(frame, score="s", label="y", field="ts", every={"ts": "1d"})
    with pytest.raises(
        mcnet.InputError, match=r"has no column 'ts:minute'; .*; from the column 'ts' there can be ts:hour"
    ):
        mcnet.scan(frame, score="s", label="y", field="ts:minute")
