import dataclasses
import json

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

import mcnet
from mcnet.calibrators.training_state import TrainingState
from mcnet.datasets.simulator import simulate
from mcnet.errors import InputError
from mcnet.networks.adaptive import AdaptiveConfig, fit_adaptive
from mcnet.networks.bank import BankConfig, BankFit, fit_bank, place_bins, restore_bank
from mcnet.networks.baselines import LinePlotProblem, fit_line_plot
from mcnet.networks.monotone import BankShape, MonotoneBank
from mcnet.networks.objective import BankObjective, Penalties, Priors
from mcnet.networks.optimise import Schedule, Step, descend
from mcnet.networks.training_points import TrainingCells, midpoint_edges, pad_cells, with_unseen

SHAPE = BankShape(hidden=(16, 16), embedding=8)
BRIEF = Schedule(steps=20, cycles=1)
QUICK = BankConfig(bins=8, shape=SHAPE, schedule=Schedule(steps=40, cycles=3))


@pytest.fixture(scope="module")
def fit(cells: TrainingCells) -> BankFit:
    return fit_bank(cells, QUICK)


def test_fit_is_closer_to_the_truth_than_isotonic_per_value(fit: BankFit, log) -> None:
    logit, value, label = log.draw(200_000)
    test, test_value, _ = log.draw(50_000, 9)
    isotonic = np.empty(len(test))
    for v in range(4):
        model = IsotonicRegression(out_of_bounds="clip").fit(logit[value == v], label[value == v])
        isotonic[test_value == v] = model.predict(test[test_value == v])
    p = log.truth(test, test_value)
    ours = log.divergence(p, fit.predict(test, test_value))
    assert fit.descent.converged
    assert ours < log.divergence(p, np.clip(isotonic, 1e-6, 1 - 1e-6)) / 3


def test_predictions_sum_to_the_positives_of_every_value(fit: BankFit, cells: TrainingCells) -> None:
    p = fit.predict(cells.logit, cells.codes[cells.context])
    for v in range(4):
        inside = cells.context == v
        pcoc = (p * cells.weight)[inside].sum() / cells.positives[inside].sum()
        assert pcoc == pytest.approx(1.0, abs=5e-3)


def test_the_level_is_that_of_the_rows_where_the_last_bin_is_wide() -> None:
    # The few points per bin and nodes of training alone leave it at 0.996 of the positives.
    logit = np.linspace(-9.0, 5.0, 3000)
    weight = np.exp(-np.where(logit < -6.0, (-6.0 - logit) / 0.4, (logit + 6.0) / 1.1))
    weight *= 500_000 / weight.sum()
    truth = expit(1.2 * logit + 0.8 + 0.5 * np.sin(3.0 * logit))
    shape = BankShape(hidden=(8,), embedding=1)
    config = BankConfig(bins=20, shape=shape, schedule=Schedule(steps=60, cycles=2))
    fitted = fit_bank(TrainingCells.of(logit, weight, weight * truth), config).predict(logit)
    assert (weight * fitted).sum() / (weight * truth).sum() == pytest.approx(1.0, abs=1e-3)


class Slope:
    """An objective that falls along a line: its handle always promises more than a cycle gains."""

    mass, work = 10_000.0, 1.0

    def __init__(self) -> None:
        self.place = torch.nn.Parameter(torch.zeros(1))

    def evaluate(self) -> Step:
        handle = 1.0 * self.place
        return Step(1e-3 * handle.sum(), (handle,), (torch.zeros(1),))

    def solve(self, enough: float = 1e-2) -> None:
        pass


def test_descent_ends_when_a_cycle_gains_less_than_a_nat_whatever_the_handles_promise() -> None:
    # As where the prior ties the edges of many bins: gradients stay, in directions in which nothing is to be gained.
    slope = Slope()
    descent = descend(slope, [slope.place], Schedule(steps=100, cycles=6))
    assert descent.converged
    assert descent.steps == 150
    assert 0.0 < descent.remaining < 1.0


def test_functions_rise_with_the_score_for_every_value_and_for_unseen_ones(fit: BankFit) -> None:
    edges = fit.bank.edges.numpy()
    for value in (0, 3, 4, 99, -1):
        for left, right in zip([-16.2, *edges], [*(edges - 1e-9), 16.2], strict=True):
            grid = np.linspace(left, right, 200)
            assert (np.diff(fit.values(grid, np.full(200, value))) > 0).all()
    assert 0.0 <= fit.order_loss < 0.05


def test_same_seed_same_bits_and_order_of_cells_does_not_matter(fit: BankFit, cells: TrainingCells) -> None:
    again = fit_bank(cells, QUICK)
    grid, value = np.linspace(-8, 1, 50), np.zeros(50, dtype=int)
    np.testing.assert_allclose(again.predict(grid, value), fit.predict(grid, value), rtol=1e-12)
    shuffle = np.random.default_rng(0).permutation(len(cells.logit))
    mixed = TrainingCells.of(
        cells.logit[shuffle],
        cells.weight[shuffle],
        cells.positives[shuffle],
        cells.context[shuffle],
        cells.codes,
    )
    np.testing.assert_allclose(fit_bank(mixed, QUICK).predict(grid, value), fit.predict(grid, value), rtol=1e-4)


def test_state_survives_json_and_tensors(fit: BankFit) -> None:
    arrays, about = fit.state()
    restored = restore_bank(TrainingState(arrays, json.loads(json.dumps(about))))
    grid, value = np.linspace(-8, 1, 50), np.arange(50) % 5
    np.testing.assert_allclose(restored.predict(grid, value), fit.predict(grid, value), rtol=1e-12)
    assert restored.config == fit.config


def test_warm_start_stays_at_the_optimum_and_learns_a_new_value(fit: BankFit, cells: TrainingCells) -> None:
    again = fit_bank(cells, fit.config, fit)
    assert again.descent.loss <= fit.descent.loss + 1e-6
    codes = np.concatenate([cells.codes, [[4]]])
    more = TrainingCells.of(
        np.append(cells.logit, [-4.0, -3.0]),
        np.append(cells.weight, [50_000, 50_000]),
        np.append(cells.positives, [3000, 7000]),
        np.append(cells.context, [4, 4]),
        codes,
    )
    grown = fit_bank(more, fit.config, fit)
    assert grown.predict(np.array([-4.0, -3.0]), np.array([4, 4])) == pytest.approx([0.06, 0.14], rel=0.05)
    with pytest.raises(InputError, match="architecture"):
        fit_bank(cells, BankConfig(), warm=fit)


def test_unseen_values_get_the_pooled_curve(fit: BankFit, cells: TrainingCells) -> None:
    pooled = fit.predict(cells.logit, np.full(len(cells.logit), 4))
    assert (pooled * cells.weight).sum() == pytest.approx(cells.positives.sum(), rel=0.02)


def test_values_beyond_the_largest_share_networks_and_keep_their_own_level(cells: TrainingCells) -> None:
    shape = BankShape(hidden=(8, 8), embedding=4)
    fit = fit_bank(cells, BankConfig(bins=4, shape=shape, own_shapes=2, schedule=Schedule(steps=20, cycles=1)))
    table = fit.bank.tables[0].detach().numpy()
    for value in (2, 3):  # the two with the fewest rows
        np.testing.assert_array_equal(table[:, value], table[:, 4])
    assert not np.array_equal(table[:, 0], table[:, 4])
    p = fit.predict(cells.logit, cells.codes[cells.context])
    expected, observed = (np.bincount(cells.context, weights=x) for x in (cells.weight * p, cells.positives))
    np.testing.assert_allclose(expected, observed, rtol=0.02)


def test_two_fields_add_up(cells: TrainingCells) -> None:
    codes = np.array([[c % 2, c // 2] for c in range(4)])
    two = TrainingCells.of(cells.logit, cells.weight, cells.positives, cells.context, codes)
    fit = fit_bank(two, QUICK)
    p = fit.predict(cells.logit, codes[cells.context])
    for field in range(2):
        for value in range(2):
            inside = codes[cells.context, field] == value
            assert (p * cells.weight)[inside].sum() == pytest.approx(cells.positives[inside].sum(), rel=0.01)
    assert np.isfinite(fit.predict(cells.logit[:3], np.array([[0, 9], [9, 1], [9, 9]]))).all()


def test_without_fields_the_context_needs_no_codes(cells: TrainingCells) -> None:
    plain = TrainingCells.of(cells.logit, cells.weight, cells.positives)
    fit = fit_bank(plain, QUICK)
    p = fit.predict(cells.logit)
    assert (p * cells.weight).sum() == pytest.approx(cells.positives.sum(), rel=1e-3)
    with pytest.raises(InputError, match="shape"):
        fit.predict(cells.logit, cells.context)


def test_probability_space_trains_on_cells_too(cells: TrainingCells) -> None:
    shape = BankShape(hidden=(16, 16), embedding=8, space="probability")
    none = Priors(*[np.inf] * 6)
    fit = fit_bank(cells, BankConfig(bins=5, shape=shape, schedule=BRIEF, priors=none, penalties=Penalties(order=0.0)))
    p = fit.predict(cells.logit, cells.codes[cells.context])
    assert ((p > 0) & (p < 1)).all()
    assert (p * cells.weight).sum() == pytest.approx(cells.positives.sum(), rel=0.01)


def test_order_penalty_lowers_the_order_loss(cells: TrainingCells) -> None:
    loose = Priors(jump=0.1)
    free = fit_bank(
        cells, BankConfig(bins=5, shape=SHAPE, schedule=BRIEF, priors=loose, penalties=Penalties(order=0.0))
    )
    held = fit_bank(
        cells, BankConfig(bins=5, shape=SHAPE, schedule=BRIEF, priors=loose, penalties=Penalties(order=0.01))
    )
    assert held.order_loss < free.order_loss / 5


@pytest.fixture(scope="module")
def degenerate(log) -> dict[str, TrainingCells]:
    logit, value, label = log.draw(3000)
    extreme = np.array([-16.118, -16.118, 16.118, 0.0])
    no_positives = np.where(value == 2, 0.0, label)
    low_bin = np.where(logit < -4, 0.0, label)
    return {
        "a value without positives": log.summarise(logit, value, no_positives),
        "a bin without positives": log.summarise(logit, value, low_bin),
        "no positives at all": log.summarise(logit, value, 0 * label),
        "positives only": log.summarise(logit, value, 0 * label + 1),
        "constant scores": TrainingCells.of(np.full(3, -2.0), np.ones(3) * 100, np.array([3.0, 5, 4]), np.arange(3)),
        "ten rows": TrainingCells.of(logit[:10], np.ones(10), (np.arange(10) % 3 == 0).astype(float), value[:10]),
        "one row": TrainingCells.of(logit[:1], np.ones(1), np.zeros(1)),
        "one value": TrainingCells.of(logit, np.ones(3000), label, 0 * value),
        "extreme scores": TrainingCells.of(extreme, np.ones(4) * 1000, np.array([0.0, 1, 1000, 400])),
    }


DEGENERATE = [
    "a value without positives",
    "a bin without positives",
    "no positives at all",
    "positives only",
    "constant scores",
    "ten rows",
    "one row",
    "one value",
    "extreme scores",
]


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_cells_give_finite_monotone_answers(name: str, degenerate: dict[str, TrainingCells]) -> None:
    cells = degenerate[name]
    config = BankConfig(bins=8, shape=SHAPE, schedule=Schedule(steps=20, cycles=2), least_positives=1)
    fit = fit_bank(cells, config)
    grid = np.linspace(-16.118, 16.118, 300)
    p = fit.predict(grid, np.zeros((300, len(cells.sizes)), dtype=int))
    assert np.isfinite(p).all()
    assert ((p >= 0) & (p <= 1)).all()
    values = fit.values(grid, np.zeros((300, len(cells.sizes)), dtype=int))
    assert (np.diff(values) > -0.05).all()
    seen = fit.predict(cells.logit, cells.codes[cells.context])
    assert (seen * cells.weight).sum() == pytest.approx(cells.positives.sum(), rel=0.35, abs=3.0)


@pytest.mark.parametrize("name", DEGENERATE)
def test_the_other_functions_survive_degenerate_cells_too(name: str, degenerate: dict[str, TrainingCells]) -> None:
    cells = degenerate[name]
    grid = np.linspace(-16.118, 16.118, 100)
    # A penalty of 1 makes falls negligible even without rows of one class.
    problem = LinePlotProblem(cells.logit, cells.weight, cells.positives, cells.context, len(cells.codes), order=1.0)
    lines = fit_line_plot(problem, 20)
    assert np.isfinite(lines.predict(grid)).all()
    assert lines.falls() < 0.01
    schedule = Schedule(steps=20, cycles=1)
    adaptive = fit_adaptive(cells, AdaptiveConfig(candidates=(2, 4), hidden=8, schedule=schedule))
    codes = np.zeros((100, len(cells.sizes)), dtype=int)
    assert np.isfinite(adaptive.predict(grid, codes)).all()


def test_cells_are_checked() -> None:
    one = np.ones(2)
    with pytest.raises(InputError, match="positives"):
        TrainingCells.of(one, one, 2 * one)
    with pytest.raises(InputError, match="nothing to fit"):
        TrainingCells.of(one, 0 * one, 0 * one)
    with pytest.raises(InputError, match="finite"):
        TrainingCells.of(np.array([np.nan, 0]), one, one)
    with pytest.raises(InputError, match="context"):
        TrainingCells.of(one, one, one, np.array([0, 5]), np.zeros((2, 1), dtype=int))


def test_edges_never_split_ties_and_bins_have_equal_mass() -> None:
    points = np.repeat([1.0, 2.0, 3.0, 4.0], [1, 5, 1, 1])
    edges = midpoint_edges(points, np.ones(8), 4)
    assert set(edges) <= {1.5, 2.5, 3.5}
    assert len(midpoint_edges(np.full(5, 2.0), np.ones(5), 4)) == 0
    fine = midpoint_edges(np.arange(100.0), np.ones(100), 10)
    np.testing.assert_array_equal(fine, np.arange(9.5, 99, 10))


def test_grid_keeps_mass_positives_and_mean_score(cells: TrainingCells) -> None:
    edges = midpoint_edges(cells.logit, cells.weight, 7)
    grid = pad_cells(cells, cells.logit, edges, 16)
    assert grid.points.shape == (7, 4, 16)
    assert grid.weight.sum() == pytest.approx(cells.weight.sum())
    assert grid.positives.sum() == pytest.approx(cells.positives.sum())
    assert (grid.weight * grid.points).sum() == pytest.approx((cells.weight * cells.logit).sum())
    for v in range(4):
        assert grid.weight[:, v].sum() == pytest.approx(cells.weight[cells.context == v].sum())


def test_unseen_contexts_pool_the_others(cells: TrainingCells) -> None:
    codes = np.array([[c % 2, c // 2] for c in range(4)])
    full = with_unseen(TrainingCells.of(cells.logit, cells.weight, cells.positives, cells.context, codes), 0.3)
    np.testing.assert_array_equal(full.codes[4:], [[2, 2], [2, 0], [2, 1], [0, 2], [1, 2]])
    assert full.weight.sum() == pytest.approx(1.3 * cells.weight.sum())
    assert expit(full.logit).max() < 1


def test_candidates_for_the_number_of_bins_are_tried_once_each(monkeypatch):
    log = simulate(4_000, seed=1, rate=0.06)
    sketch = mcnet.Sketch.from_rows(log.score, log.label)
    tried = []

    def counted(cells, config, *rest):
        tried.append(config.bins)
        return fit_bank(cells, config, *rest)

    monkeypatch.setattr("mcnet.networks.bank.fit_bank", counted)
    mcnet.MCNet(hidden=(8,), embedding=4).fit_sketch(sketch)
    # The positives are enough for a few bins more than five: two candidates, and the better one is fitted again.
    assert len(tried) == 3
    assert 5 == tried[0] < tried[1] < 10
    assert tried[2] in tried[:2]


def test_more_rows_get_more_steps(cells: TrainingCells) -> None:
    shape = BankShape(hidden=(4,), embedding=2)
    mass = cells.weight.sum()
    for rows_per_step, steps in ((mass, 100), (mass / 110, 110), (1.0, 120)):
        schedule = Schedule(steps=120, cycles=1, rows_per_step=rows_per_step)
        done = fit_bank(cells, BankConfig(bins=2, shape=shape, unseen=0.0, schedule=schedule)).descent.steps
        assert done == steps


def test_untrained_networks_are_the_same_function_whatever_their_size(cells: TrainingCells) -> None:
    # The number of bins is chosen with the smallest ones.
    logit, value = np.linspace(-6.0, -1.0, 50), np.tile([0, 4], 25)
    schedule = Schedule(cycles=0)
    small, large = (
        fit_bank(cells, BankConfig(bins=4, shape=shape, schedule=schedule)).predict(logit, value)
        for shape in (BankShape(hidden=(1,), embedding=1), SHAPE)
    )
    np.testing.assert_allclose(small, large, rtol=1e-4)


@pytest.mark.parametrize("bins", [5, 20])
def test_the_prior_on_bends_is_of_the_function_not_of_the_bins(cells, bins):
    config = BankConfig(bins=bins, shape=BankShape(hidden=(1,), embedding=1))
    ranges = place_bins(cells.logit, cells.weight, cells.positives, config)
    grid = pad_cells(cells, cells.logit, ranges.edges, config.cells)
    only_bends = dataclasses.replace(Priors(*[np.inf] * 6), bend=0.25)
    bank = MonotoneBank(config.shape, cells.sizes, ranges)
    objective = BankObjective(bank, cells, grid, len(cells.codes), only_bends, Penalties(), 1, 32)
    # A log-slope that rises by half per logit, from bin to bin.
    log_slope = torch.as_tensor(0.5 * ranges.mean)[:, None, None].expand(bins, 4, 4)
    edges = torch.zeros(bins, 4, 2, dtype=torch.float64)
    expected = 4 * 0.5**2 * (ranges.mean[-1] - ranges.mean[0]) / (2 * 0.25**2)
    assert float(objective._surprise(edges, log_slope)) == pytest.approx(expected, rel=1e-4)
