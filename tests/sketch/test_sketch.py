"""The sketch: sums that do not depend on how the rows came."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mcnet
from mcnet._shared.arrays import SCORE_FLOOR, sigmoid
from mcnet.rows.fields import field_column
from mcnet.sketch import accumulate as accumulator
from mcnet.sketch.accumulate import accumulate, accumulate_numpy
from mcnet.sketch.grid import POSITION_UNITS, Cells, ExactGrid, LogitGrid, make_grid
from mcnet.sketch.views import bin_of, equal_mass_cuts, equal_mass_edges
from mcnet.tracking.memories import coarse

QUICK = settings(max_examples=40)

scores = st.one_of(
    st.floats(0.0, 1.0),
    st.sampled_from(
        [0.0, 1.0, 0.5, SCORE_FLOOR, 1 - SCORE_FLOOR, 0.25, 0.75, np.nextafter(0.5, 0), np.nextafter(0.5, 1)]
    ),
    st.integers(-1031, 1031).map(lambda k: float(sigmoid(np.array([k / 64]))[0])),
)
fields = st.one_of(st.none(), st.sampled_from(["NL", "FR", "", "é", "7"]), st.integers(0, 9))
row = st.tuples(scores, st.booleans(), st.integers(0, 9), fields, st.sampled_from(["x", "y"]))
logs = st.lists(row, min_size=1, max_size=40).filter(lambda rows: any(r[2] > 0 for r in rows))
resolutions = st.sampled_from([1, 64, "exact"])


def sketch(rows, **options):
    score, label, weight, one, two = (list(column) for column in zip(*rows, strict=True))
    return mcnet.Sketch.from_rows(score, label, weight=weight, field={"one": one, "two": two}, **options)


def live(rows):
    return any(r[2] > 0 for r in rows)


@QUICK
@given(logs, st.data(), resolutions)
def test_merged_shards_are_the_whole_to_the_last_bit(rows, data, resolution):
    cut = data.draw(st.integers(0, len(rows)))
    parts = [part for part in (rows[:cut], rows[cut:]) if live(part)]
    whole = sketch(rows, resolution=resolution)
    assert sum(sketch(part, resolution=resolution) for part in parts) == whole
    assert mcnet.Sketch.merged([sketch(part, resolution=resolution) for part in reversed(parts)]) == whole


@QUICK
@given(logs, st.data(), resolutions)
def test_the_order_of_rows_changes_nothing(rows, data, resolution):
    assert sketch(data.draw(st.permutations(rows)), resolution=resolution) == sketch(rows, resolution=resolution)


@QUICK
@given(logs, row, resolutions)
def test_a_row_of_weight_0_changes_nothing(rows, extra, resolution):
    nothing = (*extra[:2], 0, *extra[3:])
    with_it, without = sketch([nothing, *rows, nothing], resolution=resolution), sketch(rows, resolution=resolution)
    assert with_it == without
    assert with_it.rows == without.rows


@QUICK
@given(logs, resolutions)
def test_a_weight_is_a_repetition(rows, resolution):
    repeated = [(*r[:2], 1, *r[3:]) for r in rows for _ in range(r[2])]
    assert sketch(repeated, resolution=resolution) == sketch(rows, resolution=resolution)


@QUICK
@given(logs, st.sampled_from([0.5, 2, 0.25, np.float64(4.0), np.int64(2)]))
def test_scaling_multiplies_every_sum(rows, factor):
    one = sketch(rows)
    for scaled in (one * factor, factor * one):
        assert isinstance(scaled, mcnet.Sketch)
        np.testing.assert_array_equal(scaled.cells.sums, one.cells.sums * float(factor))
        np.testing.assert_array_equal(scaled.score, one.score)
    assert one + one == 2 * one


@QUICK
@given(logs, st.integers(2, 7))
def test_the_folds_add_up_to_the_whole(rows, folds):
    folded = sketch(rows, folds=folds)
    assert folded.unfolded() == sketch(rows)
    inside, outside = zip(*[folded.fold_parts(fold)[::-1] for fold in range(folds)], strict=True)
    for part, rest in zip(inside, outside, strict=True):
        assert part.total_weight + rest.total_weight == folded.total_weight
    assert sum(part.total_weight for part in inside) == folded.total_weight
    assert sum(part.total_positives for part in inside) == folded.total_positives


@QUICK
@given(logs, st.integers(2, 7), st.integers(0, 99), st.sampled_from([1, 0.37]))
def test_splitting_a_sketch_into_folds_conserves_its_counts(rows, folds, seed, factor):
    whole = sketch(rows) * factor
    folded = whole.with_folds(folds, seed=seed)
    assert folded.folds == folds
    again = folded.unfolded()
    np.testing.assert_array_equal(again.cells.key, whole.cells.key)
    np.testing.assert_allclose(again.weight, whole.weight, rtol=1e-12)
    np.testing.assert_allclose(again.positives, whole.positives, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(again.score, whole.score, rtol=1e-12)
    assert (folded.positives >= 0).all()
    assert (folded.positives <= folded.weight * (1 + 1e-12)).all()
    assert folded == whole.with_folds(folds, seed=seed)


@pytest.mark.parametrize("little", [1e-3, 1e-9, 1.0 + 2.0**-52])
def test_the_folds_of_rows_of_little_weight_have_the_scores_of_their_cells(little):
    rng = np.random.default_rng(0)
    score = rng.uniform(0.05, 0.6, 300)
    whole = mcnet.Sketch.from_rows(score, rng.random(300) < score, weight=rng.choice([1.0, little], 300), resolution=16)
    folded = whole.with_folds(5)
    cell = np.searchsorted(whole.cells.key, folded.cells.key)
    np.testing.assert_allclose(folded.score, whole.score[cell], rtol=1e-6)


@QUICK
@given(logs, st.integers(1, 4), resolutions)
def test_parquet_brings_it_back_to_the_last_bit(tmp_path_factory, rows, folds, resolution):
    path = tmp_path_factory.mktemp("sketch") / "s.parquet"
    one = sketch(rows, folds=folds, resolution=resolution)
    one.save(path)
    back = mcnet.Sketch.load(path)
    assert back == one
    assert (back.rows, back.folds, back.resolution) == (one.rows, one.folds, one.resolution)


@QUICK
@given(st.lists(scores, min_size=1, max_size=60), st.sampled_from([1, 7, 64, 512]))
def test_a_cell_encloses_its_scores(values, resolution):
    grid = LogitGrid(resolution)
    clipped = np.clip(values, SCORE_FLOOR, 1 - SCORE_FLOOR)
    keys, positions = grid.locate(clipped)
    assert (grid.lower(keys) <= clipped).all()
    assert (clipped <= grid.upper(keys)).all()
    assert ((positions >= 0) & (positions < POSITION_UNITS) & (positions == np.floor(positions))).all()
    width = grid.upper(keys) - grid.lower(keys)
    assert (np.abs(grid.scores(keys, positions) - clipped) <= width / POSITION_UNITS).all()
    assert grid.knows(keys)
    exact = ExactGrid()
    np.testing.assert_array_equal(exact.scores(*exact.locate(clipped)), clipped)


@pytest.mark.parametrize("resolution", [1, 64, 300])
def test_numba_adds_up_what_numpy_does_to_the_last_bit(resolution):
    rng = np.random.default_rng(0)
    grid = LogitGrid(resolution)
    score = np.concatenate(
        [sigmoid(rng.normal(0, 5, 60_000)), grid.edges, np.nextafter(grid.edges, 0.3), np.nextafter(grid.edges, 0.7)]
    )
    score[:4] = 0.0, 1.0, SCORE_FLOOR / 2, 1.0 - SCORE_FLOOR / 2
    label, weight = rng.random(len(score)), rng.random(len(score))
    slots = rng.integers(0, 3, len(score)).astype(np.int32)
    for weights in (weight, None, np.ones(len(score))):
        tables = [np.zeros((3, len(grid), 3)) for _ in range(2)]
        for table, add in zip(tables, (accumulate, accumulate_numpy), strict=True):
            assert add(table, grid, score, label, weights, slots)
        np.testing.assert_array_equal(*tables)


def test_sketches_beyond_the_dense_limit_are_the_same(monkeypatch):
    rng = np.random.default_rng(1)
    score, label = rng.random(5_000), rng.integers(0, 2, 5_000)
    field = {"a": rng.integers(0, 40, 5_000), "b": rng.integers(0, 3, 5_000)}
    dense = mcnet.Sketch.from_rows(score, label, field=field, folds=3)
    # Small limits, met in the middle of the rows: first dense, then sparse, added up several times.
    monkeypatch.setattr("mcnet.sketch.build.ROWS_AT_A_TIME", 137)
    monkeypatch.setattr(accumulator, "_MOST_DENSE_SUMS", 3 * 2064 * 3 * 100)
    monkeypatch.setattr(accumulator, "_SPARSE_CELLS_BEFORE_SORTING", 300)
    assert mcnet.Sketch.from_rows(score, label, field=field, folds=3) == dense


@pytest.mark.parametrize("folds", [1, 2])
@pytest.mark.parametrize("valued", [False, True])
def test_a_dense_block_that_has_become_too_small_moves_to_sorted_cells(monkeypatch, folds, valued):
    rng = np.random.default_rng(5)
    batches = []
    for values in (["b", "a"], [f"v{i}" for i in range(40)], ["c", "a"]):
        columns = (rng.random(2_000), rng.integers(0, 2, 2_000).astype(np.float64), None)
        fields = [field_column("x", rng.choice(values, 2_000))]
        fold = rng.integers(0, folds, 2_000).astype(np.int16) if folds > 1 else None
        batches.append((*columns, fields, fold, rng.random(2_000) if valued else None))

    def added_up(limit, per_row):
        monkeypatch.setattr(accumulator, "_MOST_DENSE_SUMS", limit)
        monkeypatch.setattr(accumulator, "_DENSE_CELLS_PER_ROW", per_row)
        one = accumulator.Accumulator(make_grid(64), folds)
        blocks = [one.add(*batch) and one._dense is not None for batch in batches]
        return blocks, one.finish()

    (kept, moved, sorted_cells) = (added_up(10**9, 10**9), added_up(6 * 2064 * 4, 10**9), added_up(10**9, 0))
    assert [blocks for blocks, _ in (kept, moved, sorted_cells)] == [[True] * 3, [True, False, False], [False] * 3]
    for _, (contexts, cells) in (moved, sorted_cells):
        assert contexts == kept[1][0]
        for name in ("context", "key", "fold", "sums"):
            np.testing.assert_array_equal(getattr(cells, name), getattr(kept[1][1], name))


def test_few_rows_are_sorted_into_the_cells_that_a_dense_block_has(monkeypatch):
    rng = np.random.default_rng(3)
    score, label, weight = rng.random(3_000), rng.integers(0, 2, 3_000), rng.integers(0, 4, 3_000)
    field = rng.integers(0, 50, 3_000)
    monkeypatch.setattr("mcnet.sketch.build.ROWS_AT_A_TIME", 700)
    found = []
    for crowded in (0, 300, 10**9):  # always sorted; sorted first, a block later; a block from the first row
        monkeypatch.setattr(accumulator, "_DENSE_CELLS_PER_ROW", crowded)
        found.append(mcnet.Sketch.from_rows(score, label, field=field, weight=weight, folds=2))
    assert found[0] == found[1] == found[2]


@QUICK
@given(st.integers(0, 2**32), st.sampled_from([3, 2_000, 2**61]))
def test_cells_are_ordered_as_a_sort_by_columns_does(seed, keys):
    rng = np.random.default_rng(seed)
    number = int(rng.integers(1, 60))
    cells = Cells(
        rng.integers(0, 3, number).astype(np.int32),
        rng.integers(-keys, keys, number),
        rng.integers(0, 2, number).astype(np.int16),
        np.ones((number, 3)),
    )
    np.testing.assert_array_equal(cells._order(), np.lexsort((cells.fold, cells.key, cells.context)))


@pytest.mark.filterwarnings("ignore:.*if it is an id")
def test_many_contexts_take_the_sparse_path_in_bounded_memory():
    rng = np.random.default_rng(2)
    number = 20_000
    score, field = rng.random(number), rng.integers(0, 2**40, number)
    one = mcnet.Sketch.from_rows(score, np.zeros(number), field=field)
    assert len(one.contexts) == len(np.unique(field))
    assert one.total_weight == number


def test_from_rows_and_chunks_agree(monkeypatch):
    rng = np.random.default_rng(3)
    score, label, field = rng.random(1_000), rng.integers(0, 2, 1_000), rng.choice(["a", "b", "c"], 1_000)
    whole = mcnet.Sketch.from_rows(score, label, field=field, folds=5)
    monkeypatch.setattr("mcnet.sketch.build.ROWS_AT_A_TIME", 7)
    assert mcnet.Sketch.from_rows(score, label, field=field, folds=5) == whole


def test_a_column_of_folds_is_taken_as_it_is():
    score, label = [0.1, 0.2, 0.3], [0, 1, 0]
    one = mcnet.Sketch.from_rows(score, label, folds=[2, 0, 2])
    assert one.folds == 3
    assert one.fold_parts(2)[1].total_weight == 2
    for bad in ([0, 1, 0.5], [0, -1, 1], [0, 100, 1], [0, None, 1]):
        with pytest.raises(mcnet.InputError, match=r"in row [12]; fold numbers are whole"):
            mcnet.Sketch.from_rows(score, label, folds=bad)


def test_numbers_of_numpy_are_numbers():
    one = mcnet.Sketch.from_rows([0.1, 0.2], [0, 1], folds=np.int64(2), resolution=np.int32(64))
    assert one == mcnet.Sketch.from_rows([0.1, 0.2], [0, 1], folds=2, resolution=64)
    assert type(one.resolution) is int


@pytest.mark.parametrize("folds", [0, -1, 101, True])
def test_a_number_of_folds_out_of_range_is_refused(folds):
    with pytest.raises(mcnet.InputError, match="folds is"):
        mcnet.Sketch.from_rows([0.1], [0], folds=folds)


@pytest.mark.parametrize("resolution", [0, -1, 5000, 2.5, True, "fine", None])
def test_a_resolution_out_of_range_is_refused(resolution):
    with pytest.raises(mcnet.InputError, match="resolution is"):
        make_grid(resolution)


def test_sketches_that_are_not_alike_do_not_add_up():
    one = mcnet.Sketch.from_rows([0.1], [0])
    for other, what in [
        (mcnet.Sketch.from_rows([0.1], [0], resolution=32), "resolution"),
        (mcnet.Sketch.from_rows([0.1], [0], folds=2), "folds"),
        (mcnet.Sketch.from_rows([0.1], [0], field=["a"]), "fields"),
    ]:
        with pytest.raises(mcnet.InputError, match=f"different {what}"):
            one + other
    with pytest.raises(TypeError):
        one + 1
    with pytest.raises(TypeError):
        one * "2"
    for factor in (0, -1, np.inf, np.nan):
        with pytest.raises(mcnet.InputError, match="scaled by"):
            one * factor
    with pytest.raises(mcnet.InputError, match="no sketch to merge"):
        mcnet.Sketch.merged([])


def test_decay_without_end_leaves_no_cell_to_divide_by_zero():
    total = mcnet.Sketch.from_rows([0.1], [1])
    new = mcnet.Sketch.from_rows([0.5, 0.6], [0, 1])
    for _ in range(150):
        total = 0.005 * total + new
    assert np.isfinite(total.score).all()
    assert len(total) == 2
    mcnet.Platt().fit_sketch(total)


def test_views_keep_the_rows_they_should():
    one = mcnet.Sketch.from_rows(
        [0.1, 0.1, 0.3], [0, 1, 1], field={"country": ["NL", "FR", "NL"], "device": [1, 1, 2]}, resolution="exact"
    )
    assert one.pooled() == mcnet.Sketch.from_rows([0.1, 0.1, 0.3], [0, 1, 1], resolution="exact")
    assert one.only("device") == mcnet.Sketch.from_rows(
        [0.1, 0.1, 0.3], [0, 1, 1], field={"device": [1, 1, 2]}, resolution="exact"
    )
    assert one.only("device", "country").contexts.names == ("device", "country")
    assert one.of_context(0) == mcnet.Sketch.from_rows([0.1], [1], resolution="exact")  # FR, 1
    assert [one.of_context(c).total_weight for c in range(3)] == [1, 1, 1]
    with pytest.raises(mcnet.InputError, match="no field 'source'; it has country, device"):
        one.only("source")
    with pytest.raises(mcnet.InputError, match="fold 0 was asked"):
        one.fold_parts(0)
    with pytest.raises(mcnet.InputError, match="unfolded"):
        one.with_folds(2).with_folds(2)
    assert one != "a sketch"


def test_equal_mass_bins_hold_nearly_equal_mass_and_none_is_empty():
    rng = np.random.default_rng(4)
    for resolution in (64, "exact"):
        one = mcnet.Sketch.from_rows(rng.random(10_000) ** 3, np.zeros(10_000), resolution=resolution)
        edges = equal_mass_edges(one, 20)
        mass = np.bincount(bin_of(one.score, edges), weights=one.weight)
        assert len(mass) == 20
        assert mass.min() > 300
        assert mass.max() < 700


def test_ties_never_straddle_an_edge():
    one = mcnet.Sketch.from_rows([0.1] * 5 + [0.2] * 90 + [0.3] * 5, np.zeros(100), resolution="exact")
    np.testing.assert_allclose(equal_mass_edges(one, 10), [0.25])


@pytest.mark.parametrize("resolution", [64, "exact"])
@pytest.mark.parametrize("rows", [1_000, 300_000])
def test_bad_rows_are_named_wherever_they_are(rows, resolution):
    scores, labels = np.full(rows, 0.25), np.zeros(rows)
    for column, name in ((scores, "score"), (labels, "label")):
        for bad in (np.nan, -0.5, 1.5):
            kept, column[rows - 2] = column[rows - 2], bad
            with pytest.raises(mcnet.InputError, match=rf"{name} has 1 value .* \(first: row {rows - 2}, {bad:g}\)"):
                mcnet.Sketch.from_rows(scores, labels, resolution=resolution)
            column[rows - 2] = kept


def test_bins_of_equal_mass_are_the_same_however_many_pieces_the_values_are_summed_in(monkeypatch):
    places, weight = np.random.default_rng(0).permutation(5_000), np.ones(5_000)
    whole = equal_mass_cuts(places, weight, 20)
    # Pieces of unlike largest place: their sums have unlike lengths unless the number of places is told.
    monkeypatch.setattr("mcnet._shared.arrays.ROWS_AT_A_TIME", 1_000)
    np.testing.assert_array_equal(equal_mass_cuts(places, weight, 20), whole)


def test_sums_of_contexts_are_those_of_their_cells_also_in_parts_that_lack_some():
    rng = np.random.default_rng(3)
    whole = mcnet.Sketch.from_rows(rng.random(500), rng.random(500) < 0.3, field=rng.integers(0, 40, 500), folds=5)
    for sketch in (whole, whole.fold_parts(0)[1], whole.unfolded(), 0.5 * whole):
        expected = np.zeros((len(sketch.contexts), 2))
        np.add.at(expected, sketch.context, sketch.cells.sums[:, :2])
        assert (sketch.context_sums == expected).all()


def test_sketches_of_the_same_fields_in_another_order_add_up():
    rng = np.random.default_rng(4)
    rows = 3_000
    score, label = rng.random(rows), rng.integers(0, 2, rows)
    fields = {"country": rng.choice(["NL", "FR", "BE"], rows), "device": rng.choice(["tv", "phone"], rows)}

    def sketch(part, names):
        return mcnet.Sketch.from_rows(score[part], label[part], field={name: fields[name][part] for name in names})

    one, two = slice(0, 1_000), slice(1_000, rows)
    expected = sketch(slice(0, rows), ("country", "device"))
    other = sketch(two, ("device", "country"))
    assert sketch(one, ("country", "device")) + other == expected
    assert mcnet.Sketch.merged([sketch(one, ("country", "device")), other]) == expected
    assert other + sketch(one, ("country", "device")) == expected.only("device", "country")
    with pytest.raises(mcnet.InputError, match="different fields do not add up"):
        expected + expected.only("country")


def test_weights_of_propensity_are_scaled_once_by_whatever_is_made_of_a_sketch():
    random = np.random.default_rng(0)
    score, label = random.beta(1.0, 5.0, 2_000), random.random(2_000) < 0.2
    sketch = mcnet.Sketch.from_rows(score, label, propensity=np.full(2_000, 0.1))
    assert sketch.total_weight == pytest.approx(2_000.0, rel=1e-3)
    coarser = coarse(sketch)
    assert coarser.resolution != sketch.resolution
    assert coarser.total_weight == pytest.approx(sketch.total_weight)
    assert coarser.total_positives == pytest.approx(sketch.total_positives)
    nothing = sketch.part(sketch.cells.take(np.zeros(len(sketch), dtype=bool)))
    assert (nothing.total_weight, nothing.total_positives) == (0.0, 0.0)


def test_a_value_for_all_rows_takes_the_place_of_those_that_were_read():
    random = np.random.default_rng(1)
    score, label = random.beta(1.0, 5.0, 3_000), random.random(3_000) < 0.2
    plain = mcnet.Sketch.from_rows(score, label)
    valued = mcnet.Sketch.from_rows(score, label, value=random.uniform(1.0, 9.0, 3_000))
    for sketch in (valued, valued.without_values()):
        assert np.array_equal(sketch.with_value(2.0).cells.sums, plain.with_value(2.0).cells.sums)
