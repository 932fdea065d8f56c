"""Several fields: pairs, bounded in number and chosen by their residuals; what each field contributes."""

import numpy as np
import polars as pl
import pytest

import mcnet
from mcnet import BayesMCNet, Sketch
from mcnet._shared.arrays import logit, sigmoid
from mcnet.bayes import fields as field_pairs
from mcnet.bayes.fields import combine, telling
from mcnet.errors import InputError
from mcnet.export import export_model
from mcnet.export.sql import sql_text
from mcnet.model.apply import UnseenValues, apply_to_files
from mcnet.model.drawing import model_facts


def test_of_many_fields_the_pairs_that_interact_are_chosen():
    draw = np.random.default_rng(0)
    codes = draw.integers(0, 2, (20_000, 8))
    scores = draw.uniform(0.05, 0.5, len(codes))
    fields = {f"f{number}": codes[:, number] for number in range(8)}
    for moved in (0.0, 0.15):
        rate = scores * (1.0 + np.where(codes[:, 2] == codes[:, 5], moved, -moved))
        sketch = mcnet.Sketch.from_rows(scores, draw.random(len(codes)) < rate, field=fields)
        for judged in (True, False):
            pairs = telling(sketch, judged=judged).pairs
            assert moved == 0.0 or (2, 5) in pairs
            assert len(pairs) < field_pairs.MOST_PAIRS


def test_a_fit_of_many_fields_has_a_bounded_number_of_pairs():
    draw = np.random.default_rng(1)
    fields = {f"f{number}": draw.integers(0, 2, 6_000) for number in range(7)}
    scores = draw.uniform(0.05, 0.5, 6_000)
    moved = np.where(fields["f0"] == fields["f1"], 0.2, -0.04)
    fitted = mcnet.BayesMCNet(isotonic_share=0.0).fit(scores, draw.random(6_000) < scores + moved, field=fields)
    pairs = [(pair.first, pair.second) for pair in fitted.posterior_.combinations]
    assert (0, 1) in pairs
    assert len(pairs) <= field_pairs.MOST_PAIRS


def test_combinations_that_cannot_be_told_are_left_out_where_there_are_very_many(monkeypatch):
    codes = np.array([[0, 0], [0, 1], [1, 0]])
    information = np.array([50.0, 0.1, 30.0])  # too little of the second combination
    assert len(combine(codes, [2, 2], 0, 1, information).keys) == 3
    monkeypatch.setattr(field_pairs, "COMBINATIONS_KEPT_WHOLE", 1)
    assert combine(codes, [2, 2], 0, 1, information).keys.tolist() == [0, 2]


def _two_fields_and_noise(rows=12_000, seed=1):
    rng = np.random.default_rng(seed)
    score = sigmoid(rng.normal(-1.5, 1.0, rows))
    strong, weak = rng.integers(0, 6, rows), rng.integers(0, 4, rows)
    noise = rng.integers(0, 40, rows)
    moved = np.array([0.8, -0.7, 0.3, 0.0, -0.2, 0.1])[strong] + np.array([0.3, -0.3, 0.0, 0.1])[weak]
    label = rng.random(rows) < sigmoid(logit(score) + moved)
    fields = {"strong": strong.astype(str), "weak": weak.astype(str), "noise": noise.astype(str)}
    return Sketch.from_rows(score, label, field=fields)


def test_what_a_field_contributes_is_what_a_fit_without_it_loses_on_other_rows():
    sketch, others = _two_fields_and_noise(), _two_fields_and_noise(60_000, seed=99)
    known = {line["field"]: line for line in BayesMCNet().fit_sketch(sketch).model_.provenance["contributions"]}

    def loss(fields):
        rows = others.only(*fields)
        p = BayesMCNet().fit_sketch(sketch.only(*fields)).model_.predict_cells(rows)
        return -float((rows.positives * np.log(p) + (rows.weight - rows.positives) * np.log1p(-p)).sum()) / rows.rows

    whole = loss(("strong", "weak", "noise"))
    for name in known:
        lost = loss([other for other in known if other != name]) - whole
        assert known[name]["log_loss_saved"] == pytest.approx(lost, rel=0.2, abs=1e-3)
    assert known["strong"]["log_loss_saved"] > 2e-3 + known["weak"]["log_loss_saved"]
    assert known["weak"]["log_loss_saved"] > 1e-3
    assert known["noise"]["log_loss_saved"] < 2e-4
    odds = {value["value"]: value["odds"] for value in known["strong"]["strongest"]}
    assert odds["0"] / odds["1"] == pytest.approx(np.exp(1.5), rel=0.2)


def test_rare_values_owe_more_of_their_level_to_the_prior():
    rng = np.random.default_rng(0)
    field = np.repeat(["common", "usual", "rare"], [20_000, 2000, 60])
    score = sigmoid(rng.normal(-1.0, 1.0, len(field)))
    moved = np.select([field == "usual", field == "rare"], [0.5, -0.4], 0.1)
    sketch = Sketch.from_rows(score, rng.random(len(field)) < sigmoid(logit(score) + moved), field={"f": field})
    (line,) = BayesMCNet().fit_sketch(sketch).model_.provenance["contributions"]
    own = {value["value"]: value["own"] for value in line["strongest"]}
    assert own["common"] > own["usual"] > own["rare"] > 0.0
    assert 0.9 < line["own"] <= 1.0
    assert {value["value"]: value["rows"] for value in line["strongest"]}["rare"] == 60


def test_a_model_without_fields_contributes_nothing():
    sketch = _two_fields_and_noise(2000).pooled()
    assert "contributions" not in BayesMCNet().fit_sketch(sketch).model_.provenance


def noisy_rows(seed, rows=40_000):
    """Rows whose rate depends on the field `real`, beside a column of pure noise."""
    draw = np.random.default_rng(seed)
    scores = draw.uniform(0.05, 0.4, rows)
    fields = {"real": draw.integers(0, 6, rows), "noise": draw.integers(0, 30, rows)}
    labels = draw.random(rows) < scores * np.linspace(0.7, 1.3, 6)[fields["real"]]
    return scores, labels, fields


def test_a_column_of_noise_is_left_out_and_changes_nothing(tmp_path):
    scores, labels, fields = noisy_rows(2)
    fitted = mcnet.BayesMCNet().fit(scores, labels, field=fields)
    assert fitted.left_out_fields_ == ("noise",)
    assert fitted.model_.provenance["left_out_fields"] == ["noise"]
    alone = mcnet.BayesMCNet().fit(scores, labels, field={"real": fields["real"]})
    expected = alone.predict(scores[:500], field={"real": fields["real"][:500]})
    given = {name: values[:500] for name, values in fields.items()}
    np.testing.assert_allclose(fitted.predict(scores[:500], field=given), expected, rtol=1e-9)
    widths = [
        np.diff(one.model_.interval(scores[:500], field=each)[:2], axis=0)
        for one, each in ((fitted, given), (alone, {"real": given["real"]}))
    ]
    np.testing.assert_allclose(*widths, rtol=0.02)
    fitted.warm_start = True
    again = fitted.fit(scores, labels, field=fields)
    assert again.left_out_fields_ == ("noise",)
    np.testing.assert_allclose(again.predict(scores[:500], field=given), expected, atol=1e-4)
    # The column is still given, and a value of it that was never seen is as good as any.
    fitted.save(tmp_path / "model.json")
    served = mcnet.load(tmp_path / "model.json")
    unseen = {"real": given["real"], "noise": np.full(500, 99)}
    np.testing.assert_allclose(served.predict(scores[:500], field=unseen), expected, atol=1e-4)
    np.testing.assert_allclose(fitted.predict(scores[:500], field=given, exact=True), expected, atol=1e-4)


def test_real_fields_and_pairs_without_effects_of_their_own_fields_stay():
    scores, _, fields = noisy_rows(3)
    draw = np.random.default_rng(4)
    fields |= {"one": draw.integers(0, 2, len(scores)), "two": draw.integers(0, 2, len(scores))}
    rate = scores * np.where(fields["one"] == fields["two"], 1.2, 0.8)
    sketch = mcnet.Sketch.from_rows(scores, draw.random(len(scores)) < rate, field=fields)
    found = telling(sketch)
    names = [sketch.contexts.names[field] for field in found.fields]
    assert {"one", "two"} <= set(names)
    assert "noise" not in names
    pair = (sketch.contexts.names.index("one"), sketch.contexts.names.index("two"))
    assert tuple(sorted(pair)) in found.pairs


def test_few_rows_do_not_judge_fields():
    scores, labels, fields = noisy_rows(5, rows=3_000)
    sketch = mcnet.Sketch.from_rows(scores, labels, field=fields)
    assert telling(sketch) == (tuple(range(len(fields))), [(0, 1)])


def test_the_order_of_fields_does_not_matter():
    draw = np.random.default_rng(6)
    scores = draw.uniform(0.05, 0.5, 6_000)
    fields = {name: draw.integers(0, size, 6_000) for name, size in (("a", 4), ("b", 7), ("c", 3))}
    labels = draw.random(6_000) < scores * np.where(fields["a"] == fields["b"], 0.7, 1.1)
    expected = mcnet.BayesMCNet().fit(scores, labels, field=fields).predict(scores, field=fields)
    turned = {name: fields[name] for name in ("c", "a", "b")}
    again = mcnet.BayesMCNet().fit(scores, labels, field=turned).predict(scores, field=turned)
    np.testing.assert_allclose(again, expected, rtol=0.0, atol=1e-8)


def test_a_field_that_was_left_out_may_be_given_or_not(tmp_path):
    """What the fit found useless need not be there when rows are served; a misspelt field is refused as before."""
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install duckdb")
    random = np.random.default_rng(0)
    size = 30_000
    score = random.beta(1.0, 6.0, size)
    columns = {name: random.integers(0, number, size).astype(str) for name, number in (("a", 20), ("n", 30), ("b", 7))}
    moved = random.normal(0.0, 0.5, 20)[columns["a"].astype(int)] + random.normal(0.0, 0.5, 7)[columns["b"].astype(int)]
    labels = random.random(size) < 1.0 / (1.0 + (1.0 - score) / score * np.exp(-moved))
    for names in (("a", "n"), ("a", "n", "b")):
        given = {name: columns[name] for name in names}
        model = mcnet.BayesMCNet().fit(score, labels, field=given).model_
        needed = {name: columns[name] for name in names if name != "n"}
        assert model.needed_fields == tuple(needed)
        assert model.fields == names
        assert dict(model_facts(model))["left out"].startswith("n: no more than chance")
        assert " × n" not in repr(model)
        few = slice(0, 500)
        both = {name: column[few] for name, column in given.items()}
        whole = model.predict(score[few], both)
        parts = {name: column[few] for name, column in needed.items()}
        assert np.array_equal(whole, model.predict(score[few], parts))
        assert np.array_equal(model.interval(score[few], parts)[0], model.interval(score[few], both)[0])
        row = {name: str(column[0]) for name, column in needed.items()}
        one = model.predict_one(float(score[0]), row)
        assert one == whole[0] == model.predict_one(float(score[0]), {**row, "n": "any"})
        assert one == model.predict_one(float(score[0]), tuple(row.values()))
        with pytest.raises(InputError, match="needed: a"):
            model.predict(score[few], {**parts, "m": columns["n"][few]})
        with pytest.raises(InputError, match="needed: a"):
            model.predict(score[few], {"n": columns["n"][few]})
        pl.DataFrame({"score": score[few], **both}).write_parquet(tmp_path / "rows.parquet")
        for order in (names, names[::-1]):  # by name, whatever their order
            apply_to_files(model, tmp_path / "rows.parquet", tmp_path / "out.parquet", score="score", field=order)
            assert np.array_equal(pl.read_parquet(tmp_path / "out.parquet")["calibrated"], whole)
        rows = pl.DataFrame({"score": score[few], **parts})
        rows.write_parquet(tmp_path / "rows.parquet")
        apply_to_files(model, tmp_path / "rows.parquet", tmp_path / "out.parquet", score="score")
        assert pl.read_parquet(tmp_path / "out.parquet")["calibrated"].to_list() == whole.tolist()
        unseen = UnseenValues(model)
        unseen.add(parts, np.ones(500))
        assert unseen.share == 0.0
        header = tmp_path / "model.h"
        export_model(model, header)
        assert "const char *field_n" not in header.read_text()
        assert "field_a" in header.read_text()
        with duckdb.connect() as connection:
            connection.execute(f"CREATE TABLE impressions AS FROM '{tmp_path}/rows.parquet'")
            *before, select = sql_text(model).strip().removesuffix(";").split(";\n")
            for statement in before:
                connection.execute(statement)
            found = connection.execute(f"SELECT calibrated FROM ({select}) ORDER BY score").fetchall()
        assert np.allclose([row[0] for row in found], whole[np.argsort(score[few])], rtol=1e-12)
