"""Money: over-bid and under-bid against slow oracles and known truths, from rows and from sketches; the action list."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from scipy import stats

import mcnet
from mcnet import Sketch
from mcnet.errors import InputError
from mcnet.metrics import money
from mcnet.metrics.evaluation import evaluate_cells
from mcnet.metrics.field_values import CodedField
from mcnet.metrics.judged_rows import MetricSettings


def world(seed=0, rows=40_000, values=20, wrong=None):
    """Return probabilities, labels, a field and values; `wrong` has factors that are too much."""
    rng = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-rng.normal(-2.5, 0.8, rows)))
    field = rng.integers(0, values, rows)
    value = np.round(rng.lognormal(0.0, 0.6, rows), 2)
    truth = p / np.array([(wrong or {}).get(f, 1.0) for f in range(values)])[field]
    return p, (rng.random(rows) < truth).astype(float), field.astype(str), value, truth


def naive(p, y, field, value):
    """Return the over-bid and the under-bid money as it looks, noise included, over field values × ten bins."""
    over = under = 0.0
    for name in np.unique(field):
        rows = np.flatnonzero(field == name)
        rows = rows[np.argsort(p[rows])]
        for part in np.array_split(rows, 10):
            error = float((value * (p - y))[part].sum())
            over, under = over + max(error, 0.0), under - min(error, 0.0)
    return over, under


def oracle(error, noise, share, mean, variance):
    """Return E[max(ρ, 0)] of one group by integrating over ρ on a grid."""
    grid = np.linspace(-3, 3, 200_001)
    slab = share * stats.norm.pdf(grid, mean, np.sqrt(variance)) * stats.norm.pdf(error, grid, np.sqrt(noise))
    spike = (1 - share) * stats.norm.pdf(error, 0.0, np.sqrt(noise))
    step = grid[1] - grid[0]
    return (slab * np.maximum(grid, 0)).sum() * step / (slab.sum() * step + spike)


def test_the_posterior_of_a_group_is_the_integral_over_its_error(monkeypatch):
    prior = money._Prior(*(np.array([x]) for x in (0.4, 0.05, 0.2**2, 0.0)), 0.0)
    monkeypatch.setattr(money, "_priors", lambda *_: [prior])
    error, noise = np.array([0.2, -0.3, 0.0]), np.array([0.008, 0.024, 0.09])
    draws = money.error_draws(error, noise, 40_000, np.random.default_rng(0))
    for i in range(3):
        expected = oracle(error[i], noise[i], 0.4, 0.05, 0.2**2)
        assert np.maximum(draws[:, i], 0).mean() == pytest.approx(expected, abs=0.003)


def test_a_calibrated_score_has_next_to_no_over_bid_and_no_action():
    shares, empty = [], 0
    for seed in range(12):
        p, y, field, value, _ = world(seed)
        sketch = Sketch.from_rows(p, y, field=field, value=value, resolution="exact")
        ev = evaluate_cells(sketch.score, sketch)
        shares.append((ev.overbid + ev.underbid) / sum(naive(p, y, field, value)))
        empty += not ev.actions()
    assert np.mean(shares) < 0.05
    assert empty >= 10


def test_wrong_field_values_are_found_with_their_money():
    p, y, field, value, truth = world(3, rows=200_000, wrong={0: 1.4, 1: 1.4, 2: 0.75})
    true = value * (p - truth)
    ev = mcnet.evaluate(p, y, field, value=value)
    assert ev.overbid == pytest.approx(true[true > 0].sum(), rel=0.25)
    assert ev.underbid == pytest.approx(-true[true < 0].sum(), rel=0.35)
    for name in ("overbid", "underbid"):
        low, high = ev.interval(name)
        assert low <= getattr(ev, name) <= high
    actions = ev.actions()
    assert {action.value for action in actions[:3]} == {"0", "1", "2"}
    by_value = {action.value: action for action in actions}
    for name, factor in (("0", 1.4), ("2", 0.75)):
        assert by_value[name].off_low < factor - 1 < by_value[name].off_high
        assert by_value[name].factor == pytest.approx(1 / factor, rel=0.2)
    assert "too high" in by_value["0"].advice
    assert "too low" in by_value["2"].advice
    assert by_value["0"].money == pytest.approx((value * (p - y))[field == "0"].sum())
    assert actions.table().columns[:3] == ["field", "value", "weight"]
    assert ev.to_dict()["money"]["observed_value"] == pytest.approx((value * y).sum())


def test_rare_values_are_counted_and_not_listed():
    p, y, field, value, _ = world(1)
    field = np.where(np.arange(len(p)) % 500 == 0, np.array([f"rare {i}" for i in range(len(p))]), field)
    actions = mcnet.evaluate(p, y, field, value=value).actions()
    assert actions.too_few == 80
    assert "80 values with too few positives" in str(actions)


def test_the_money_of_a_sketch_is_that_of_the_rows():
    p, y, field, value, _ = world(5, wrong={0: 1.5})
    rows = mcnet.evaluate(p, y, field, value=value).money
    cells = Sketch.from_rows(p, y, field=field, value=value)
    sketched = evaluate_cells(cells.score, cells).money
    assert sketched.to_dict()["predicted_value"] == pytest.approx(rows.to_dict()["predicted_value"], rel=2e-4)
    assert sketched.to_dict()["observed_value"] == pytest.approx(rows.to_dict()["observed_value"], rel=1e-9)
    assert sketched.over.value == pytest.approx(rows.over.value, rel=0.1)


@pytest.mark.parametrize("resolution", [512, 10, "exact"])
def test_shards_add_up_to_the_sketch_of_one_scan_and_survive_a_file(tmp_path, resolution):
    p, y, field, value, _ = world(6, rows=5_000)
    weight = np.random.default_rng(0).integers(1, 4, len(p))
    whole = Sketch.from_rows(p, y, field=field, weight=weight, value=value, resolution=resolution)
    cuts = [0, 100, 3_000, len(p)]
    parts = [
        Sketch.from_rows(p[a:b], y[a:b], field=field[a:b], weight=weight[a:b], value=value[a:b], resolution=resolution)
        for a, b in pairwise(cuts)
    ]
    assert Sketch.merged(parts) == whole
    assert whole.values[:, 0].sum() == pytest.approx(1e6 * (weight * value).sum(), rel=1e-12)
    assert whole.values[:, 1].sum() == pytest.approx(1e6 * (weight * value * y).sum(), rel=1e-12)
    assert whole.values[:, 2].sum() == pytest.approx(1e6 * (weight * value**2).sum(), rel=1e-9)
    whole.save(tmp_path / "sketch.parquet")
    assert Sketch.load(tmp_path / "sketch.parquet") == whole
    assert whole.pooled().values.sum() == whole.values.sum()
    folded = whole.with_folds(3)
    assert folded.values.sum(axis=0) == pytest.approx(whole.values.sum(axis=0))
    assert folded.unfolded().values == pytest.approx(whole.values)
    assert (2 * whole).values == pytest.approx(2 * whole.values)


def test_a_sketch_without_values_takes_them_from_the_sum():
    p, y, field, value, _ = world(7, rows=500)
    with_values = Sketch.from_rows(p, y, field=field, value=value)
    with pytest.warns(mcnet.CalibrationWarning, match="has no values"):
        total = with_values + Sketch.from_rows(p[:50], y[:50], field=field[:50])
    assert total.value_kind is None
    assert total.cells.sums.shape[1] == 3


def test_values_that_lose_digits_are_told():
    p, y, field, value, _ = world(7, rows=500)
    for make in (
        lambda: Sketch.from_rows(p, y, field=field, value=value / 5000),
        lambda: Sketch.from_rows(p, y, field=field, value_per_positive=value / 5000),
        lambda: Sketch.from_rows(p, y).with_value(0.0002),
    ):
        with pytest.warns(mcnet.CalibrationWarning, match="give values in a smaller unit"):
            make()


def test_numba_and_numpy_add_the_same_values():
    from mcnet.sketch.accumulate import Worth, accumulate, accumulate_numpy
    from mcnet.sketch.grid import LogitGrid

    p, y, _, value, _ = world(8, rows=3_000)
    slots, grid = np.zeros(len(p), np.int32), LogitGrid(64)
    weights, inverse = np.arange(len(p)) % 3 + 1.0, np.linspace(1.0, 9.0, len(p))
    for given in (None, weights):
        found = []
        for add in (accumulate, accumulate_numpy):
            cells = np.zeros((1, len(grid), 6))
            assert add(cells, grid, p, y, given, slots, Worth(value, None if given is None else inverse))
            found.append(cells)
        assert np.array_equal(*found)


def test_a_value_of_positives_alone_is_the_mean_of_its_field_value():
    p, y, field, value, _ = world(9, rows=20_000)
    known = np.where(y > 0, value, np.nan)
    ev = mcnet.evaluate(p, y, field, value_per_positive=known)
    means = np.array([value[(field == f) & (y > 0)].mean() for f in field])
    expected = mcnet.evaluate(p, y, field, value=means)
    assert ev.money.to_dict()["predicted_value"] == pytest.approx(expected.money.to_dict()["predicted_value"])
    assert "positives alone" in str(ev)
    sketch = Sketch.from_rows(p, y, field=field, value_per_positive=known)
    assert sketch.value_kind == "positive"
    sketched = evaluate_cells(sketch.score, sketch).money.to_dict()
    assert sketched["predicted_value"] == pytest.approx(ev.money.to_dict()["predicted_value"], rel=1e-4)


def test_values_that_cannot_be_used_are_refused():
    p, y, _, value, _ = world(10, rows=200)
    known = np.where(y > 0, value, np.nan)
    with pytest.raises(InputError, match="value_per_positive"):
        Sketch.from_rows(p, y, value=known)
    with pytest.raises(InputError, match=r"below 0.*row 3"):
        Sketch.from_rows(p, y, value=np.where(np.arange(200) == 3, -1.0, value))
    with pytest.raises(InputError, match="value_per_positive has 1 value missing"):
        Sketch.from_rows(p, np.ones(200), value_per_positive=np.where(np.arange(200) == 3, np.nan, value))
    with pytest.raises(InputError, match="above 0"):
        mcnet.evaluate(p, y, value=0)
    with pytest.raises(InputError, match="both given"):
        mcnet.evaluate(p, y, value=1, value_per_positive=known)
    with pytest.raises(InputError, match="value=1"):
        mcnet.evaluate(p, y).actions()


def test_duckdb_sums_values_to_the_bits_of_one_scan():
    from tests.sketches import alike

    duckdb = pytest.importorskip("duckdb")
    p, y, field, value, _ = world(11, rows=5_000)
    table = pl.DataFrame({"p": p, "y": y, "f": field, "v": value, "w": np.arange(len(p)) % 3 + 1})
    table = table.with_columns(paid=pl.when(pl.col("y") > 0).then("v"))
    connection = duckdb.connect()
    connection.register("log", table.to_arrow())
    for columns in ({"value": "v"}, {"value": "v", "weight": "w"}, {"value_per_positive": "paid"}):
        names = {"score": "p", "label": "y", "field": "f", **columns}
        assert alike(mcnet.scan(connection, table="log", **names), mcnet.scan(table, **names))
    with pytest.raises(InputError, match=r"paid has .* missing.*value_per_positive"):
        mcnet.scan(connection, table="log", score="p", label="y", value="paid")


def test_rows_weighted_by_propensity_count_as_their_effective_number():
    rng = np.random.default_rng(0)
    p, y, field, value, _ = world(12, rows=4_000)
    propensity = rng.uniform(0.1, 1.0, len(p))
    sketch = Sketch.from_rows(p, y, field=field, value=value, propensity=propensity)
    inverse = np.floor(1024 / propensity + 0.5) / 1024  # whole parts of a row, so that sums add up exactly
    assert sketch.total_weight == pytest.approx(inverse.sum() ** 2 / (inverse**2).sum(), rel=1e-9)
    assert sketch.total_positives / sketch.total_weight == pytest.approx((inverse * y).sum() / inverse.sum(), rel=1e-9)
    assert sketch.values[:, 0].sum() == pytest.approx(1e6 * (inverse * value).sum(), rel=1e-6)
    assert sketch.values[:, 2].sum() == pytest.approx(1e6 * (inverse**2 * value**2).sum(), rel=1e-6)
    assert sketch.context_sums.sum(axis=0) == pytest.approx([sketch.total_weight, sketch.total_positives])
    with pytest.warns(mcnet.CalibrationWarning, match=r"0.25% of the rows.*capped at 20"):
        Sketch.from_rows(p, y, propensity=np.where(np.arange(len(p)) < 10, 0.01, 0.5))
    with pytest.raises(InputError, match="is 0 in 1"):
        Sketch.from_rows(p, y, propensity=np.where(np.arange(len(p)) < 1, 0.0, 0.5))


def test_sketches_with_propensity_add_up_to_that_of_one_scan(tmp_path):
    rng = np.random.default_rng(1)
    p, y, field, value, _ = world(13, rows=6_000)
    # The shards are unlike each other, so that each has another effective number of rows.
    propensity = np.where(np.arange(len(p)) < 2_000, rng.uniform(0.06, 0.2, len(p)), rng.uniform(0.5, 1.0, len(p)))
    weight = rng.integers(1, 4, len(p))

    def made(rows, **more):
        columns = {"field": field[rows], "weight": weight[rows], "propensity": propensity[rows], **more}
        return Sketch.from_rows(p[rows], y[rows], **columns)

    for more in ({}, {"value": value}):
        whole = made(slice(None), **more)
        cuts = [slice(0, 2_000), slice(2_000, 5_000), slice(5_000, None)]
        parts = [made(rows, **{name: column[rows] for name, column in more.items()}) for rows in cuts]
        assert Sketch.merged(parts) == whole
        assert Sketch.merged(parts[::-1]).total_weight == whole.total_weight
        whole.save(tmp_path / "sketch.parquet")
        assert Sketch.load(tmp_path / "sketch.parquet") == whole
        folded = whole.with_folds(4)
        assert folded.total_weight == pytest.approx(whole.total_weight)
        outside, inside = folded.fold_parts(0)
        assert outside.total_weight + inside.total_weight == pytest.approx(whole.total_weight)
        assert (outside + inside).scale == pytest.approx(whole.scale)
        assert (0.5 * whole).total_weight == pytest.approx(0.5 * whole.total_weight)
    with pytest.raises(InputError, match="weighted by propensity and one without do not add up"):
        _ = whole + Sketch.from_rows(p, y, field=field, value=value)


def test_the_money_of_rows_with_propensity_is_that_of_the_rows_they_stand_for():
    rng = np.random.default_rng(2)
    p, y, field, value, _ = world(14, rows=30_000)
    propensity = rng.choice([0.25, 0.5, 1.0], len(p))
    each = np.repeat(np.arange(len(p)), (1 / propensity).astype(int))
    whole = Sketch.from_rows(p[each], y[each], field=field[each], value=value[each])
    known = np.where(y > 0, value, np.nan)
    for more in ({"value": value}, {"value_per_positive": known}):
        sketch = Sketch.from_rows(p, y, field=field, propensity=propensity, **more)
        money = evaluate_cells(sketch.score, sketch).money
        expected = evaluate_cells(whole.score, whole).money.to_dict()
        assert money.to_dict()["observed_value"] == pytest.approx(expected["observed_value"])
        assert money.to_dict()["predicted_value"] == pytest.approx(expected["predicted_value"], rel=0.02)
        assert money.weight == pytest.approx(len(each))
        squares = (value**2 * p * (1 - p) / propensity**2).sum()
        assert money.table.sums.variance.sum() == pytest.approx(squares, rel=0.35 if "value" not in more else 0.01)


def test_each_rare_field_value_has_its_own_money():
    rng = np.random.default_rng(3)
    number, rows = 300, 100
    field = np.repeat(np.arange(number), rows)
    p = np.full(len(field), 0.1)  # ten positives each are expected: too few for bins of their own
    truth = np.where(field < 100, 0.02, 0.1)
    y = (rng.random(len(p)) < truth).astype(float)
    fields = {"field": CodedField(field, tuple(map(str, range(number))))}

    def money_of(labels):
        rows = money.RowValues(np.ones(len(p))).rows(p, labels, np.ones(len(p)))
        return money.money_of_rows(rows, fields, MetricSettings())

    values, table = money_of(y).fields["field"]
    wrong = np.array([int(value) < 100 for value in values])
    assert table.over[wrong, 0].mean() > 5 * table.over[~wrong, 0].mean()
    assert table.over[:, 0].sum() == pytest.approx((p - truth).sum(), rel=0.15)
    inside = (table.over[wrong, 1] <= 8.0) & (table.over[wrong, 2] >= 8.0)
    assert inside.mean() > 0.85
    shares = []
    for seed in range(10):
        right = np.random.default_rng(seed).random(len(p)) < 0.1
        found = money_of(right.astype(float))
        shares.append((found.over.value + found.under.value) / np.abs(np.bincount(field, right) - 10).sum())
    assert np.mean(shares) < 0.05
