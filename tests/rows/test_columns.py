"""Columns of any kind become plain numbers, and what is wrong is named with its row."""

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import mcnet
from mcnet._shared.arrays import SCORE_FLOOR, logit, sigmoid
from mcnet.rows.columns import as_array, correct_scores, labels_column, restore_negatives, scores_column, weights_column

NUMBERS = [0.25, 0.5, 1.0]
HOLDERS = {
    "list": NUMBERS,
    "tuple": tuple(NUMBERS),
    "array": np.array(NUMBERS),
    "a column of a matrix": np.array([NUMBERS, NUMBERS]).T[:, 1],
    "a matrix of one column": np.array(NUMBERS)[:, None],
    "backwards": np.array(NUMBERS[::-1])[::-1],
    "float32": np.array(NUMBERS, dtype=np.float32),
    "float16": np.array(NUMBERS, dtype=np.float16),
    "big-endian": np.array(NUMBERS, dtype=">f8"),
    "objects": np.array(NUMBERS, dtype=object),
    "decimals": [Decimal("0.25"), Decimal("0.5"), Decimal(1)],
    "pandas": pd.Series(NUMBERS, index=[7, 7, 1]),
    "pandas nullable": pd.Series(NUMBERS, dtype="Float64"),
    "pandas frame": pd.DataFrame({"s": NUMBERS}),
    "pandas on Arrow": pd.Series(NUMBERS, dtype="double[pyarrow]"),
    "Polars": pl.Series("s", NUMBERS),
    "Polars float32": pl.Series("s", NUMBERS, dtype=pl.Float32),
    "Polars decimal": pl.Series("s", NUMBERS).cast(pl.Decimal(10, 3)),
    "Polars frame": pl.DataFrame({"s": NUMBERS}),
    "Arrow": pa.array(NUMBERS),
    "Arrow chunks": pa.chunked_array([NUMBERS[:1], NUMBERS[1:]]),
    "Arrow float32": pa.array(NUMBERS, pa.float32()),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_numbers_in_any_holder_are_the_same_column(holder):
    for read in (labels_column, weights_column):
        found = read(HOLDERS[holder])
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, NUMBERS)
    np.testing.assert_array_equal(scores_column(HOLDERS[holder]), [0.25, 0.5, 1 - SCORE_FLOOR])


@pytest.mark.parametrize(
    "labels",
    [
        [True, False, True],
        [1, 0, 1],
        np.array([1, 0, 1], dtype=np.uint8),
        np.array([1, 0, 1], dtype=np.int64),
        np.array([True, False, True]),
        pd.Series([True, False, True], dtype="boolean"),
        pd.Series([1, 0, 1], dtype="Int8"),
        pl.Series([True, False, True]),
        pl.Series([1, 0, 1], dtype=pl.UInt8),
        pa.array([True, False, True]),
        pa.array([1, 0, 1], pa.uint8()),
        ["true", "False", "1"],
        pl.Series(["TRUE", "false", "true"]),
        np.array(["true", "false", "true"]),
        pa.array(["true", "false", "true"]),
        pa.chunked_array([[True], [False, True]]),
    ],
)
def test_labels_of_any_type(labels):
    np.testing.assert_array_equal(labels_column(labels), [1.0, 0.0, 1.0])


MISSING = {
    "None": [0.5, None, 0.5],
    "NaN": [0.5, float("nan"), 0.5],
    "pd.NA": pd.Series([0.5, pd.NA, 0.5], dtype="Float64"),
    "pd.NA in objects": pd.Series([0.5, pd.NA, 0.5], dtype=object),
    "nullable integers": pd.Series([1, pd.NA, 1], dtype="Int64"),
    "nullable booleans": pd.Series([True, pd.NA, True], dtype="boolean"),
    "Polars": pl.Series([0.5, None, 0.5]),
    "Polars integers": pl.Series([1, None, 1]),
    "Polars booleans": pl.Series([True, None, True]),
    "Arrow": pa.array([0.5, None, 0.5]),
    "Arrow integers": pa.array([1, None, 1]),
    "Arrow booleans": pa.array([True, None, True]),
    "Arrow chunks": pa.chunked_array([[0.5], [None, 0.5]]),
}


@pytest.mark.parametrize("holder", MISSING)
def test_a_missing_number_is_refused_with_its_row(holder):
    for read, name in ((scores_column, "score"), (labels_column, "label"), (weights_column, "weight")):
        message = rf"{name} has 1 value missing, NaN or infinite \(first: row 1, nan\)"
        with pytest.raises(mcnet.InputError, match=message):
            read(MISSING[holder])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5, np.nan], [0, 1]), r"score has 1 value missing, NaN or infinite \(first: row 1, nan\); drop or fill"),
        (([0.5, np.inf], [0, 1]), r"score has 1 value missing, NaN or infinite \(first: row 1, inf\)"),
        (([0.5, 1.2, -3], [0, 1, 0]), r"score has 2 values outside \[0, 1\] \(first: row 1, 1.2\); pass logits"),
        (([0.5, 1.0000001], [0, 1]), r"score has 1 value outside \[0, 1\] \(first: row 1, 1.0000001\)"),
        (([0.5, 10**400], [0, 1]), "score is a number beyond the largest float in row 1; check the column"),
        (([0.5, 0.5], [0, -(10**400)]), "label is a number beyond the largest float in row 1"),
        (([0.5, 0.5], [0, np.nan]), r"label has 1 value missing, NaN or infinite \(first: row 1, nan\); drop"),
        (([0.5, 0.5], [0, 2]), r"label has 1 value outside \[0, 1\] \(first: row 1, 2\); labels are 0/1"),
        (([0.5, 0.5], [-1, 1]), r"label has 1 value outside \[0, 1\] \(first: row 0, -1\)"),
        (([0.5, 0.5], [0, 1], [1, -2]), r"weight has 1 value below 0 \(first: row 1, -2\); weights are counts"),
        (([0.5, 0.5], [0, 1], [1, np.inf]), r"weight has 1 value missing, NaN or infinite \(first: row 1, inf\)"),
        (([0.5, 0.5], [0, 1], [0, 0]), "every row of the table has weight 0"),
        (([0.5, 0.5], [0]), "differ in length: score has 2, label has 1 rows; they must describe the same rows"),
        (([0.5, 0.5], [0, 1], [1]), "weight has 1"),
        (([], []), "score is empty; at least one row is needed"),
        ((0.5, [0]), "score is float 0.5, not a column; pass an array or a list"),
        (("0.5", [0]), "score is str '0.5', not a column"),
        (([[0.1, 0.2], [0.1, 0.2]], [0, 1]), r"score has shape \(2, 2\); pass a one-dimensional column"),
        ((["low", 0.5], [0, 1]), "score is not a number in row 0: 'low'; convert the column first"),
        (([{}, 0.5], [0, 1]), "score is not a number in row 0"),
        (([0.5, "0_1"], [0, 1]), "score is not a number in row 1: '0_1'; convert the column first"),
        ((np.array(["0.5", "0_1"]), [0, 1]), "score is not a number in row 1: '0_1'"),
        ((pl.Series(["0.5", "0_1"]), [0, 1]), "score is not a number in row 1: '0_1'"),
        ((["0.5", "\uff11"], [0, 1]), "score is not a number in row 1"),
        (([0.5, 0.5], ["true", "maybe"]), "label is not a number in row 1: 'maybe'"),
        (([0.5, 0.5], [0, "0_1"]), "label is not a number in row 1: '0_1'"),
        (([0.5 + 1j, 0.5], [0, 1]), "score is a column of complex128"),
        (
            ([0.5, 0.5], [0, 1], np.array(["2020-01-01", "2020-01-02"], dtype="M8[D]")),
            "weight is a column of datetime64",
        ),
    ],
)
def test_what_cannot_be_used_is_said_with_where_and_what_to_do(arguments, message):
    score, label, *weight = arguments
    weight = weight[0] if weight else None
    with pytest.raises(mcnet.InputError, match=message):
        mcnet.Sketch.from_rows(score, label, weight=weight)
    with pytest.raises(mcnet.InputError, match=message):
        mcnet.Isotonic().fit(score, label, weight=weight)


@pytest.mark.parametrize(
    ("column", "bad", "message"),
    [
        ("score", np.nan, "row 299999, nan"),
        ("score", 2.0, "row 299999, 2"),
        ("score", "x", "score is not a number in row 299999: 'x'"),
        ("label", 3.0, "row 299999, 3"),
        ("label", pd.NA, "row 299999, nan"),
        ("weight", -1.0, "row 299999, -1"),
    ],
)
def test_rows_beyond_the_first_chunk_have_their_own_numbers(column, bad, message):
    columns = {name: np.full(300_000, 0.5) for name in ("score", "label", "weight")}
    if not isinstance(bad, float):
        columns[column] = columns[column].astype(object)
    columns[column][-1] = bad
    with pytest.raises(mcnet.InputError, match=message):
        mcnet.Sketch.from_rows(columns["score"], columns["label"], weight=columns["weight"])


def test_predict_refuses_what_fit_refuses():
    fitted = mcnet.Platt().fit([0.1, 0.2, 0.3], [0, 1, 0])
    for bad, message in [
        ([np.nan], "row 0, nan"),
        ([0.1, 1.5], "row 1, 1.5"),
        ([None], "row 0, nan"),
    ]:
        with pytest.raises(mcnet.InputError, match=message):
            fitted.predict(bad)
    with pytest.raises(mcnet.InputError, match="score_type is 'odds'"):
        fitted.predict([0.1], score_type="odds")


def test_an_empty_batch_is_served_as_one():
    assert mcnet.Platt().fit([0.1, 0.2, 0.3], [0, 1, 0]).predict([]).shape == (0,)


def test_logits_may_be_infinite_but_not_missing():
    np.testing.assert_allclose(
        scores_column([-np.inf, -50.0, 0.0, np.inf], score_type="logit"),
        [SCORE_FLOOR, SCORE_FLOOR, 0.5, 1 - SCORE_FLOOR],
    )
    with pytest.raises(mcnet.InputError, match="row 0, nan"):
        scores_column([np.nan], score_type="logit")


def test_sigmoid_and_logit_undo_each_other_without_overflow():
    at = np.linspace(-16, 16, 1001)
    np.testing.assert_allclose(logit(sigmoid(at)), at, atol=1e-8)
    np.testing.assert_array_equal(sigmoid(np.array([-1e6, 1e6])), [0.0, 1.0])


def test_dropped_negatives_come_back_as_weight():
    labels, weights = restore_negatives(np.array([1.0, 0.0, 0.5]), np.array([1.0, 2.0, 4.0]), 0.1)
    np.testing.assert_allclose(weights, [1.0, 20.0, 22.0])
    np.testing.assert_allclose(weights * labels, [1.0, 0.0, 2.0])
    same = np.array([1.0, 0.0])
    assert restore_negatives(same, None, 1.0)[0] is same
    np.testing.assert_allclose(restore_negatives(np.array([0.5]), np.array([0.0]), 0.5)[0], [0.0])
    for bad in (0.0, -0.1, 1.5, np.nan):
        with pytest.raises(mcnet.InputError, match="negatives_kept is"):
            mcnet.Sketch.from_rows([0.1], [0], negatives_kept=bad)


def test_scores_of_a_model_trained_on_fewer_negatives_are_corrected():
    truth = np.array([0.01, 0.2, 0.9])
    seen = truth / (truth + (1 - truth) * 0.1)
    np.testing.assert_allclose(correct_scores(seen, 0.1), truth)


def test_as_array_does_not_copy_an_array():
    array = np.array([0.1])
    assert as_array(array, "score") is array


@pytest.mark.parametrize("rows", [3, 100_000])
def test_masked_values_are_missing(rows):
    mask = np.zeros(rows, dtype=bool)
    mask[1] = True
    scores, labels = np.linspace(0.1, 0.9, rows), np.arange(rows) % 2
    fitted = mcnet.PlattField().fit(scores, labels, field=np.where(labels, "a", "b"))
    with pytest.raises(mcnet.InputError, match=r"score has 1 value missing, NaN or infinite \(first: row 1"):
        fitted.predict(np.ma.array(scores, mask=mask), np.full(rows, "a"))
    for name, column in (("label", labels), ("weight", np.ones(rows, dtype=np.int8))):
        given = {"label": labels, "weight": None} | {name: np.ma.array(column, mask=mask)}
        with pytest.raises(mcnet.InputError, match=rf"{name} has 1 value missing, NaN or infinite \(first: row 1"):
            mcnet.Platt().fit(scores, given["label"], weight=given["weight"])
    values = np.full(rows, "a")
    np.testing.assert_array_equal(
        fitted.predict(scores, np.ma.array(values, mask=mask)),
        fitted.predict(scores, np.where(mask, None, values)),
    )
    np.testing.assert_array_equal(scores_column(np.ma.array(scores)), scores)


def test_pandas_columns_in_another_order_are_said():
    frame = pd.DataFrame({"score": np.linspace(0.1, 0.9, 200), "label": np.arange(200) % 2, "field": ["a", "b"] * 100})
    turned = frame.iloc[::-1]
    fitted = mcnet.PlattField().fit(frame["score"], frame["label"], field=frame["field"])
    for call in (
        lambda: mcnet.Platt().fit(frame["score"], turned["label"]),
        lambda: mcnet.PlattField().fit(frame["score"], frame["label"], field={"f": turned["field"]}),
        lambda: mcnet.evaluate(frame["score"], frame["label"], weight=turned["score"]),
        lambda: fitted.predict(frame["score"], turned[["field"]]),
    ):
        with pytest.warns(mcnet.CalibrationWarning, match="have the same pandas index in another order"):
            call()
    # The order is the same, or the indexes have nothing to do with each other: warnings are errors here.
    for score, label in (
        (turned["score"], turned["label"]),
        (frame["score"], turned["label"].to_numpy()),
        (frame["score"], turned["label"].set_axis(range(1000, 1200))),
        (frame["score"].set_axis([0] * 200), frame["label"]),
    ):
        mcnet.Platt().fit(score, label)
