"""Dozens of fields: what can be fitted, saved and loaded can be predicted, row by row and in batches."""

import numpy as np
import pytest

import mcnet
from mcnet.rows.contexts import ANY, Contexts, distinct_combinations, distinct_contexts
from mcnet.rows.fields import field_columns


@pytest.mark.parametrize("fields", [39, 40, 62, 90])
def test_many_binary_fields(fields, tmp_path):
    rng = np.random.default_rng(fields)
    rows = 120
    field = {f"field {i}": rng.integers(0, 2, rows) for i in range(fields)}
    score = rng.random(rows)
    fitted = mcnet.PlattField().fit(score, rng.random(rows) < score, field=field)
    fitted.save(tmp_path / "model.json")
    model = mcnet.load(tmp_path / "model.json")
    found = model.predict(score, field)
    one = [model.predict_one(s, {name: int(v[i]) for name, v in field.items()}) for i, s in enumerate(score)]
    assert found.tolist() == one
    assert (model.contexts.lookup(model.contexts.given(field)) >= 0).all()
    unseen = {name: np.where(np.arange(rows) == 3, 7, v) for name, v in field.items()}
    assert model.predict(score, unseen)[3] == model.predict_one(score[3], dict.fromkeys(field, 7))


@pytest.mark.parametrize("fields", [1, 2, 5, 45])
def test_rows_are_found_as_a_dictionary_finds_them(fields):
    rng = np.random.default_rng(0)
    radix = rng.integers(2, 5, fields).tolist()
    rows = np.column_stack([rng.integers(0, r, 500) for r in radix])
    table, which = distinct_combinations(list(rows.T), radix)
    np.testing.assert_array_equal(table[which], rows)
    assert sorted(map(tuple, table.tolist())) == list(map(tuple, table.tolist()))
    names, values = tuple(f"f{i}" for i in range(fields)), tuple(tuple(map(str, range(r))) for r in radix)
    contexts = Contexts(names, values, table.astype(np.int32))
    places = {tuple(row): place for place, row in enumerate(table.tolist())}
    asked = np.column_stack([rng.integers(0, r, 500) for r in radix])
    asked = np.concatenate([rows, asked])
    expected = [places.get(tuple(row), -1) for row in asked.tolist()]
    assert contexts.find_codes(asked).tolist() == expected
    assert contexts.lookup(field_columns(dict(zip(names, asked.T.astype(str), strict=True)))).tolist() == expected


def test_a_table_of_no_context_finds_nothing():
    names = tuple(f"f{i}" for i in range(50))
    contexts = Contexts(names, (("0", "1"),) * 50, np.zeros((0, 50), dtype=np.int32))
    columns = field_columns({name: [0, 1] for name in names})
    assert contexts.lookup(columns).tolist() == [ANY, ANY]


@pytest.mark.parametrize("sizes", [(), (3,), (3, 2), (2_000, 2_000), (2**31,) * 4])
@pytest.mark.parametrize("rows", [0, 1, 500])
def test_distinct_contexts_are_in_order_whatever_the_sizes(sizes, rows):
    codes = np.random.default_rng(0).integers(ANY, np.array(sizes, dtype=np.int64), (rows, len(sizes)))
    contexts, which = distinct_contexts(codes)
    np.testing.assert_array_equal(contexts[which], codes)
    expected = np.unique(codes, axis=0) if codes.size else codes[:1]
    np.testing.assert_array_equal(contexts, expected)
    assert contexts.dtype == codes.dtype
