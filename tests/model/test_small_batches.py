"""One row and a handful: the bits, and the refusals, of many rows."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.curves.plain import evaluate_plainly

import mcnet
from mcnet._shared.arrays import SCORE_FLOOR
from mcnet.curves.curves import Curves
from mcnet.model import small_batches as few_module
from mcnet.model.model import CalibrationModel
from mcnet.model.small_batches import SmallBatches
from mcnet.rows.contexts import Contexts
from mcnet.rows.fields import field_columns

VALUES = ["NL", "1", "true", "0.5", "2024-02-29", "a?b", None]
ASKED = [
    *VALUES,
    *(1, 1.0, True, np.int64(1), np.float64(0.5), np.str_("NL"), np.True_),
    *(float("nan"), Decimal("0.50"), dt.date(2024, 2, 29), b"NL", "a\ud800b"),
    *("unseen", 7, False, -0.0, 1e300),
]

knots = st.one_of(st.floats(1e-9, 1.0), st.sampled_from([0.0, 0.25, 0.5, 0.75, SCORE_FLOOR, 1.0 - SCORE_FLOOR]))
pairs = st.integers(1, 12).flatmap(
    lambda n: st.tuples(
        st.lists(knots, min_size=n, max_size=n),
        st.lists(st.floats(1e-12, 1 - 1e-12), min_size=n, max_size=n),
    )
)


def one_field(drawn=None):
    """Return a model of the values above, with curves drawn or with constants that tell them apart."""
    column = field_columns({"land": VALUES})
    contexts, _ = Contexts.of(column, len(VALUES))
    if drawn is None:
        drawn = [([0.5], [0.1 * (1 + i)]) for i in range(1 + len(contexts))]
    curves = Curves.of([(np.sort(k), np.array(v)) for k, v in drawn])
    return CalibrationModel("drawn", {}, contexts, curves, monotone=False)


def two_fields():
    columns = field_columns({"land": ["NL", "NL", None, "FR"], "device": [1, 2, 1, True]})
    contexts, _ = Contexts.of(columns, 4)
    curves = Curves.of([(np.array([0.1, 0.9]), np.array([0.1, 0.2]) + 0.1 * i) for i in range(1 + len(contexts))])
    return CalibrationModel("drawn", {}, contexts, curves)


@settings(max_examples=80)
@given(st.lists(pairs, min_size=8, max_size=8), st.data())
def test_one_row_has_the_bits_of_the_arrays_on_any_curve(drawn, data):
    model = one_field(drawn)
    every = [knot for own, _ in drawn for knot in own]
    near = st.sampled_from(every).flatmap(
        lambda knot: st.sampled_from([knot, float(np.nextafter(knot, 0.0)), float(np.nextafter(knot, 1.0))])
    )
    scores = data.draw(st.lists(st.one_of(near, st.floats(0.0, 1.0)), min_size=1, max_size=20))
    values = data.draw(st.lists(st.sampled_from(ASKED), min_size=len(scores), max_size=len(scores)))
    which = 1 + model.contexts.lookup(field_columns(values))
    expected = evaluate_plainly(model.curves, np.array(scores), which)
    for score, value, p in zip(scores, values, expected.tolist(), strict=True):
        for _ in range(2):  # a value is looked up once, then remembered
            assert model.predict([score], field=[value]).tolist() == [p]
            assert model.predict_one(score, (value,)) == p
            assert model.predict_one(score, {"land": value}) == p
            assert value is None or model.predict_one(score, value) == p
    assert model.predict(scores[:5], field=values[:5]).tolist() == expected[:5].tolist()


def test_equal_values_of_different_text_are_not_confused_in_any_order():
    for order in ([1, True, 1.0, "1"], [True, 1, "1", 1.0]):
        model = one_field()
        found = {repr(value): model.predict_one(0.5, value) for value in order}
        assert found["1"] == found["1.0"] == found["'1'"] != found["True"]


def test_several_fields_come_as_a_tuple_or_a_mapping():
    model = two_fields()
    lands, devices = ["NL", None, "FR", "FR", "XX"], [2.0, "1", True, 1, 1]
    expected = model.predict([0.3] * 5, field={"device": devices, "land": lands}).tolist()
    assert len(set(expected)) == 4  # FR with 1 is unseen, as is XX
    for land, device, p in zip(lands, devices, expected, strict=True):
        for _ in range(2):
            assert model.predict_one(0.3, (land, device)) == p
            assert model.predict_one(0.3, {"device": device, "land": land}) == p
            assert model.predict([0.3], field={"device": [device], "land": [land]}).tolist() == [p]


def test_a_model_without_fields_takes_a_score_alone():
    plain = mcnet.Platt().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1])
    for score in (0.0, 1e-9, 0.25, 0.999999999, 1.0, 1, True, np.float32(0.25), np.array(0.25)):
        assert plain.predict_one(score) == plain.predict(np.array([score]))[0]
        assert type(plain.predict_one(score)) is float
        assert plain.model_.predict_one(score) == plain.predict_one(score)


HUGE = pytest.param(10**400, id="10**400")
SCORES = [-0.0, 0.0, 1e-300, 1e-9, SCORE_FLOOR, 0.1, 0.25, 0.7, 1.0 - SCORE_FLOOR, 1.0 - 1e-9, 1.0]
KINDS = "efdbhilqBHILQ?"  # NumPy's letters for its numbers


def numbers(score):
    """Return a score as every type of number that can hold it, or what is left of it there."""
    return [score, int(score), bool(score), *(np.array([score]).astype(kind)[0] for kind in KINDS)]


@pytest.mark.parametrize("score", SCORES)
def test_scores_of_any_number_type_have_the_bits_of_a_column(score):
    drawn = [(np.linspace(0.0, 1.0, 9), np.linspace(0.01 * (1 + i), 0.99, 9) ** 2) for i in range(8)]
    model = one_field(drawn)
    few = SmallBatches(model.contexts, model.curves)
    for number in (*numbers(score), Decimal(score), np.longdouble(score)):
        column = np.array([number]).astype(np.float64)
        (expected,) = evaluate_plainly(model.curves, column, 1 + model.contexts.lookup(field_columns(["NL"])))
        for p in (model.predict_one(number, "NL"), *model.predict([number], field=["NL"])):
            assert p == expected
        if type(number) not in (Decimal, np.longdouble):
            assert few.one(number, "NL") == expected
            assert few([number], ["NL"]).tolist() == [expected]
    mixed = numbers(score)[2:10]
    assert few(mixed, ["NL"] * 8).tolist() == [model.predict_one(number, "NL") for number in mixed]


@pytest.mark.parametrize("score", [-1, 2, HUGE, np.int8(-1), np.uint8(2), np.float32(1.0000001)])
def test_numbers_outside_are_left_to_the_arrays(score):
    model = one_field()
    few = SmallBatches(model.contexts, model.curves)
    assert few.one(score, "NL") is None
    assert few([score], ["NL"]) is None


def refusal(call):
    with pytest.raises(mcnet.McnetError) as caught:
        call()
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -0.1, 1.1, 2, None, "high", np.float64("nan"), HUGE])
def test_bad_scores_are_refused_as_in_a_column(score):
    for model, field in ((one_field(), "NL"), (mcnet.Platt().fit([0.1, 0.2, 0.3], [0, 1, 0]), None)):
        given = None if field is None else [field]
        assert refusal(lambda m=model, f=field: m.predict_one(score, f)) == refusal(
            lambda m=model, f=given: m.predict([score], field=f)
        )


def test_missing_surplus_and_impossible_fields_are_refused_as_in_a_column():
    plain, one, two = mcnet.Platt().fit([0.1, 0.2, 0.3], [0, 1, 0]), one_field(), two_fields()
    for model, field, columns in (
        (plain, "NL", ["NL"]),
        (plain, ("NL",), ["NL"]),
        (plain, {"land": "NL"}, {"land": ["NL"]}),
        (one, None, None),
        (one, {"device": "NL"}, {"device": ["NL"]}),
        (one, {}, {}),
        (one, ["NL"], [["NL"]]),
        (two, "NL", ["NL"]),
        (two, {"land": "NL"}, {"land": ["NL"]}),
        (two, {"land": "NL", "source": 1}, {"land": ["NL"], "source": [1]}),
    ):
        assert refusal(lambda m=model, f=field: m.predict_one(0.5, f)) == refusal(
            lambda m=model, f=columns: m.predict([0.5], field=f)
        )
    with pytest.raises(mcnet.InputError, match="field has 1 values; needed: land, device, in this order"):
        two.predict_one(0.5, ("NL",))
    with pytest.raises(mcnet.InputError, match="score is list, not a number; predict takes columns"):
        one.predict_one([0.5], "NL")
    with pytest.raises(mcnet.NotFittedError, match="call fit"):
        mcnet.BayesMCNet().predict_one(0.5)


def test_a_column_of_codes_is_not_taken_for_a_value():
    model = one_field()
    (column,) = field_columns({"land": ["NL"]})
    assert model.predict([0.5], field=[column]).tolist() == model.predict([0.5], field=["NL"]).tolist()


def test_values_are_remembered_within_bounds(monkeypatch):
    monkeypatch.setattr(few_module, "_REMEMBERED_VALUES", 10)
    model = one_field()
    expected = model.predict_one(0.5, "unseen")
    for number in range(100):
        assert model.predict_one(0.5, f"unseen {number}") == expected
        assert model.predict_one(0.5, float("nan")) == model.predict_one(0.5, (None,))
    assert len(model._small_batches._by_value) <= 10 + 2 * len(model.contexts)


def test_threads_that_forget_values_do_not_disturb_others():
    class Forgetful(dict):
        """Forgets everything right after it was asked whether it knows something."""

        def __contains__(self, key):
            known = super().__contains__(key)
            self.clear()
            return known

    model = one_field()
    expected = model.predict_one(0.5, "NL")
    for _ in range(3):
        model._small_batches._by_value = Forgetful({"NL": model._small_batches._by_value["NL"]})
        assert model.predict_one(0.5, ("NL",)) == expected


def test_long_unseen_values_are_not_remembered():
    model = one_field()
    small = model._small_batches
    before = len(small._by_value)
    for i in range(100):
        long = str(i) * 1000
        assert model.predict_one(0.3, long) == model.predict_one(0.3, "unseen")
        assert model.predict_one(0.3, 10**1000 + i) == model.predict_one(0.3, "unseen")
    assert len(small._by_value) <= before + 1
