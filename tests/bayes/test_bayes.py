"""BayesMCNet: monotone curves, honest pooling, warm starts, bands."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit, ndtri

from mcnet.bayes.fit import family_of, fit_bayes
from mcnet.bayes.posterior import BayesFit, uncertainty_of
from mcnet.bayes.prior import EmpiricalBayes
from mcnet.calibrators.parametric import Platt
from mcnet.curves.rising_sum import RisingSum
from mcnet.datasets.simulator import SimulatedField, simulate
from mcnet.errors import InputError, NotFittedError
from mcnet.metrics.scores import kl_to_truth


def cells_of(log, names=None, resolution=64.0):
    """Weighted cells of a log: logits, contexts, weight, positives, codes, sizes."""
    names = names or list(log.fields)
    codes = np.column_stack([log.fields[name] for name in names]).astype(np.int64)
    logits = logit(np.clip(log.score, 1e-7, 1 - 1e-7))
    contexts, context = np.unique(codes, axis=0, return_inverse=True)
    cell = np.floor(logits * resolution).astype(np.int64)
    _, key = np.unique(context.reshape(-1) * 10_000_000 + cell - cell.min(), return_inverse=True)
    weight = np.bincount(key).astype(float)
    mean = np.bincount(key, weights=logits) / weight
    first = np.zeros(len(weight), dtype=np.int64)
    first[key] = context.reshape(-1)
    positives = np.bincount(key, weights=log.label)
    return mean, first, weight, positives, contexts, [len(log.names[name]) for name in names]


def fit_log(log, names=None, **options):
    return fit_bayes(*cells_of(log, names), **options)


def band(model, codes, logits, level=0.9):
    logits = np.asarray(logits, dtype=float)
    codes = np.broadcast_to(np.asarray(codes), (len(logits), model.fields))
    low, high = uncertainty_of(model, family_of(model)).band(logits, codes, level)
    return expit(np.diagonal(low)), expit(np.diagonal(high))


def deviation_of_logits(model, codes, logits):
    """The posterior standard deviation of one context, for strengths of the priors that are known."""
    (context,) = model.expand(codes)
    directions = model.directions(context, np.asarray(logits))
    variance = np.einsum("rk,kl,rl->r", directions, model.context_covariance(context), directions)
    return np.sqrt(variance)


def chosen_rows(log, which):
    return replace(
        log,
        score=log.score[which],
        label=log.label[which],
        fields={name: codes[which] for name, codes in log.fields.items()},
        probability=log.probability[which],
        period=log.period[which],
        signal=log.signal[which],
    )


def two_fields(rows, seed=0, **options):
    fields = {"country": SimulatedField.zipf(6), "source": SimulatedField.zipf(4)}
    return simulate(rows, fields=fields, seed=seed, **options)


def test_curves_rise_over_the_whole_range_in_every_context():
    model = fit_log(two_fields(5_000), pairs=[(0, 1)])
    logits = np.concatenate(
        [np.linspace(-17, 17, 4_001), model.panels.centre + model.panels.scale * model.panels.edges]
    )
    logits.sort()
    for country in (-1, 0, 5):
        for source in (-1, 0, 3, 99):
            p = model.curve([[country, source]], logits)
            assert np.all(np.diff(p) >= 0)
            assert np.all((p >= 0) & (p <= 1))


def test_the_family_of_curves_is_the_model_itself():
    model = fit_log(simulate(5_000, seed=1))
    family = family_of(model)
    scores = np.concatenate([np.geomspace(1e-5, 0.5, 300), 1.0 - np.geomspace(1e-3, 0.5, 300)])
    for code in range(-1, 4):
        served = RisingSum(family).predict(scores, np.array([[code]]), np.zeros(len(scores), dtype=np.int32))
        np.testing.assert_allclose(served, model.curve([[code]], logit(scores)), rtol=1e-4)


@pytest.mark.parametrize(("rows", "bar"), [(5_000, 6e-4), (100_000, 1e-4), (1_000_000, 2.5e-5)])
def test_the_truth_is_approached_as_rows_grow(rows, bar):
    kl = []
    for seed in range(3):
        log = simulate(rows, test_rows=50_000, seed=seed)
        test = log.test()
        kl.append(
            kl_to_truth(
                fit_log(log.calibration()).curve(test.fields["field"][:, None], logit(test.score)), test.probability
            ).value
        )
    assert np.mean(kl) < bar


def test_a_line_is_beaten_where_rows_are_so_few_that_it_is_hard_to_beat():
    kl = []
    for seed in range(12):
        log = simulate(5_000, test_rows=20_000, seed=seed)
        few, test = log.calibration(), log.test()
        curve = fit_log(few).curve(test.fields["field"][:, None], logit(test.score))
        line = Platt().fit(few.score, few.label).predict(test.score)
        kl.append([kl_to_truth(p, test.probability).value for p in (curve, line)])
    ours, theirs = np.mean(kl, axis=0)
    assert ours < 0.95 * theirs


def test_a_tiny_value_sits_on_the_pooled_curve_and_a_large_one_is_free():
    log = simulate(200_000, fields={"field": SimulatedField(shares=(0.5, 0.49, 0.01), shift_spread=0.5)}, seed=3)
    few = np.flatnonzero(log.fields["field"] == 2)[30:]
    kept = np.setdiff1d(np.arange(len(log)), few)
    log = chosen_rows(log, kept)
    model = fit_log(log)
    offsets = np.abs(model.state.values[0][:, 0])
    spread = np.sqrt(model.strengths.values[0][0])
    assert offsets[2] < 0.5 * spread
    logits, no_field = np.quantile(logit(log.score), [0.3, 0.5, 0.7, 0.9]), np.zeros((1, 0), dtype=int)
    for value in (0, 1):
        x, contexts, w, y, _, _ = cells_of(chosen_rows(log, np.flatnonzero(log.fields["field"] == value)))
        alone = fit_bayes(x, contexts, w, y, no_field, []).calibrate(no_field, logits)
        own, error = model.calibrate([[value]], logits), deviation_of_logits(model, [[value]], logits)
        assert np.all(np.abs(own - alone) < error)
        assert np.all(np.abs(own - model.calibrate([[-1]], logits)) > 2.0 * error)


def test_unseen_values_fall_back_to_the_curve_of_the_remaining_fields():
    model = fit_log(two_fields(20_000))
    logits = np.linspace(-6, 0, 50)
    shared = expit(model.calibrate([[-1, -1]], logits))
    np.testing.assert_allclose(model.curve([[999, -1]], logits), shared, rtol=1e-12)
    alone = model.coefficients([[2, -1]]) - model.coefficients([[-1, -1]])
    np.testing.assert_allclose(alone[0], model.shapes.deviation @ model.state.values[0][2])
    logits = np.linspace(-5, -2, 30)
    low, high = band(model, [[-1, -1]], logits)
    seen_low, seen_high = band(model, [[0, 0]], logits)
    assert np.all(logit(high) - logit(low) > logit(seen_high) - logit(seen_low))


def test_two_fields_are_better_than_either_alone_and_combinations_must_be_earned():
    fields = {"country": SimulatedField.zipf(6), "source": SimulatedField.zipf(5)}

    def kl(names, pairs, interaction):
        log = simulate(200_000, test_rows=50_000, fields=fields, interaction=interaction, seed=4)
        test = log.test()
        codes = np.column_stack([test.fields[name] for name in names])
        model = fit_log(log.calibration(), names, pairs=pairs)
        return kl_to_truth(model.curve(codes, logit(test.score)), test.probability).value

    both = kl(["country", "source"], [], 0.0)
    assert both < 0.5 * min(kl(["country"], [], 0.0), kl(["source"], [], 0.0))
    assert kl(["country", "source"], [(0, 1)], 0.0) < 1.15 * both
    assert kl(["country", "source"], [(0, 1)], 0.4) < 0.5 * kl(["country", "source"], [], 0.4)


def test_without_any_field_there_is_one_curve():
    log = simulate(20_000, fields={"field": SimulatedField(shares=(1.0,))}, seed=0)
    x, contexts, w, y, _, _ = cells_of(log)
    model = fit_bayes(x, contexts, w, y, np.zeros((1, 0), dtype=int), [])
    p = model.curve(np.zeros((1, 0), dtype=int), logit(log.score))
    assert kl_to_truth(p, log.probability).value < 3e-4
    low, high = band(model, np.zeros((1, 0), dtype=int), logit(log.score[:10]))
    assert np.all((low < p[:10]) & (p[:10] < high))


def test_weights_are_repetitions_and_empty_cells_change_nothing():
    x, contexts, w, y, codes, sizes = cells_of(simulate(2_000, rate=0.1, seed=0), resolution=8)
    probe = np.linspace(-6, 2, 100)
    once = fit_bayes(x, contexts, 3 * w, 3 * y, codes, sizes).curve([[0]], probe)
    many = fit_bayes(*(np.tile(c, 3) for c in (x, contexts, w, y)), codes, sizes).curve([[0]], probe)
    np.testing.assert_allclose(once, many, rtol=1e-6)
    empty = fit_bayes(
        np.append(x, 40.0), np.append(contexts, 0), np.append(3 * w, 0.0), np.append(3 * y, 0.0), codes, sizes
    )
    np.testing.assert_allclose(empty.curve([[0]], probe), once, rtol=1e-12)


def test_a_warm_start_ends_where_a_cold_one_does_and_sooner():
    log = simulate(100_000, seed=2)
    cold = fit_log(log)
    warm = fit_log(log, start=cold)
    assert warm.iterations < cold.iterations
    probe = np.linspace(-8, 0, 50)
    np.testing.assert_allclose(warm.curve([[1]], probe), cold.curve([[1]], probe), rtol=5e-3)


def test_a_warm_start_accepts_new_values():
    x, contexts, w, y, codes, sizes = cells_of(simulate(20_000, seed=2))
    cold = fit_bayes(x, contexts, w, y, codes, sizes)
    warm = fit_bayes(x, contexts, w, y, np.vstack([codes, [[4]]]), [5], start=cold)
    probe = np.linspace(-8, 0, 5)
    np.testing.assert_allclose(warm.curve([[4]], probe), warm.curve([[-1]], probe))


def test_a_warm_start_carries_combinations_over_to_new_codes():
    x, contexts, w, y, codes, sizes = cells_of(two_fields(20_000, interaction=0.4, rate=0.2))
    cold = fit_bayes(x, contexts, w, y, codes, sizes, pairs=[(0, 1)])
    grown = [sizes[0], sizes[1] + 3]
    one_step = fit_bayes(x, contexts, w, y, codes, grown, pairs=[(0, 1)], start=cold, iterations=1)
    np.testing.assert_allclose(one_step.state.values[2], cold.state.values[2], atol=0.02)
    with pytest.raises(InputError, match="same combinations"):
        fit_bayes(x, contexts, w, y, codes, sizes, start=cold)


def test_nothing_to_fit_is_an_error():
    with pytest.raises(InputError, match="no cell"):
        fit_bayes([0.0], [0], [0.0], [0.0], [[0]], [1])


def test_a_band_needs_the_covariance():
    model = fit_log(simulate(1_000, seed=0), covariance=False)
    with pytest.raises(NotFittedError, match="covariance"):
        band(model, [[0]], [0.0])


def test_plain_arrays_bring_the_model_back():
    model = fit_log(two_fields(5_000), pairs=[(0, 1)])
    back = BayesFit.from_arrays(model.arrays())
    codes, logits = [[1, 2]], np.linspace(-8, 3, 40)
    np.testing.assert_allclose(model.curve(codes, logits), back.curve(codes, logits), rtol=1e-12)


def test_balance_narrows_the_spread_of_bias_over_values():
    log = simulate(20_000, fields={"field": SimulatedField.zipf(8)}, seed=1, rate=0.05)

    def spread(alpha, normalize):
        model = fit_log(log, alpha_balance=alpha, normalize=normalize)
        p = model.curve(log.fields["field"][:, None], logit(log.score))
        own = np.bincount(log.fields["field"]) if normalize == "field" else len(log)
        return np.std(np.bincount(log.fields["field"], weights=p - log.label) / own)

    for normalize in ("global", "field"):
        assert spread(1.0, normalize) < 0.5 * spread(0.0, normalize)


# --- hard data -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "labels"),
    [
        (np.linspace(0.01, 0.9, 10), np.array([0, 0, 0, 1, 0, 0, 1, 0, 1, 1])),
        (np.linspace(0.01, 0.9, 50), np.zeros(50)),
        (np.linspace(0.01, 0.9, 50), np.ones(50)),
        (np.full(500, 0.3), np.arange(500) % 10 == 0),
        (np.array([0.5]), np.array([1])),
        (np.repeat([0.1, 0.5, 0.9], 100), np.arange(300) % 7 == 0),
        (np.concatenate([np.full(1000, 1e-7), [0.5, 1 - 1e-7]]), np.concatenate([np.zeros(1001), [1]])),
        (np.geomspace(1e-7, 1e-5, 10_000), np.arange(10_000) == 9_999),
    ],
)
def test_hard_data_give_finite_rising_sensible_curves(scores, labels):
    contexts = np.arange(len(scores)) % 2
    model = fit_bayes(logit(scores), contexts, np.ones(len(scores)), labels, [[0], [1]], [2])
    probe = np.linspace(-17, 17, 500)
    for code in (0, 1, -1):
        p = model.curve([[code]], probe)
        low, high = band(model, [[code]], probe)
        assert np.all(np.isfinite(p) & np.isfinite(low) & np.isfinite(high))
        assert np.all((p >= 0) & (p <= 1))
        assert np.all(np.diff(p) >= 0)
    mean = model.curve(contexts[:, None], logit(scores)).mean()
    assert abs(mean - labels.mean()) < 0.02 + 2.0 / np.sqrt(len(scores))


def test_label_noise_at_the_extremes_does_not_bend_the_middle():
    log = simulate(100_000, seed=0, rate=0.1)
    x, contexts, w, y, codes, sizes = cells_of(log)
    probe = np.quantile(logit(log.score), [0.1, 0.5, 0.9])
    before = fit_bayes(x, contexts, w, y, codes, sizes).curve([[0]], probe)
    noisy = fit_bayes(
        np.append(x, [16.0, -16.0]),
        np.append(contexts, [0, 0]),
        np.append(w, [20.0, 20.0]),
        np.append(y, [0.0, 20.0]),
        codes,
        sizes,
    ).curve([[0]], probe)
    np.testing.assert_allclose(noisy, before, rtol=0.05)


def test_all_rows_together_expect_the_positives_they_have():
    log = simulate(200_000, seed=2)
    cells = cells_of(log)
    for lift, bar in ((True, 1e-3), (False, 1e-2)):
        model = fit_bayes(*cells, lift=lift)
        p = model.curve(log.fields["field"][:, None], logit(log.score))
        assert abs(p.sum() / log.label.sum() - 1.0) < bar


@pytest.mark.parametrize("values", [4, 200])
@pytest.mark.parametrize("truth", ["one value reversed", "all reversed", "flat", "a step"])
def test_curves_that_want_to_be_flat_converge_and_priors_are_learnt(truth, values):
    rng = np.random.default_rng(1)
    x = rng.normal(-3.0, 1.0, 50_000)
    value = rng.integers(0, values, len(x))
    reversed_ = -3.0 - 0.4 * (x + 3.0)
    level = {
        "one value reversed": np.where(value == 0, reversed_, x),
        "all reversed": reversed_,
        "flat": np.full(len(x), -3.0),
        "a step": np.where(x > -2.5, -1.5, -4.0),
    }[truth]
    y = (rng.random(len(x)) < expit(level)).astype(float)
    model = fit_bayes(x, value, np.ones(len(x)), y, np.arange(values)[:, None], [values])
    assert model.iterations < 80
    assert model.decrement < 1e-4
    assert not np.allclose(model.strengths.values[0], EmpiricalBayes().first(1, 0).values[0])


# --- uncertainty -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [5_000, 100_000])
def test_ninety_per_cent_bands_cover_the_truth_about_ninety_per_cent(rows):
    covered = []
    for seed in range(20):
        log = simulate(rows, test_rows=2_000, seed=seed, rate=0.05)
        test = log.test()
        low, high = band(fit_log(log.calibration()), test.fields["field"][:, None], logit(test.score))
        covered.append(np.mean((low <= test.probability) & (test.probability <= high)))
    assert 0.82 < np.mean(covered) < 0.97


def test_bands_rise_contain_the_curve_and_are_little_wider_than_the_strengths_as_known_give():
    log = simulate(3_000, seed=4, rate=0.02)
    model = fit_log(log)
    probe = np.linspace(-14.0, 4.0, 2_001)
    for code in (-1, 0, 3):
        low, high = band(model, [[code]], probe)
        curve, reach = model.calibrate([[code]], probe), ndtri(0.95) * deviation_of_logits(model, [[code]], probe)
        assert np.all(np.diff(low) >= 0.0)
        assert np.all(np.diff(high) >= 0.0)
        assert np.all((low <= expit(curve) + 1e-12) & (expit(curve) <= high + 1e-12))
        # The strengths of the priors are estimates: that widens a band by up to three quarters here.
        assert np.all(low >= expit(curve - 1.75 * reach) * 0.99)
        assert np.all(high <= expit(curve + 1.75 * reach) * 1.01)


def test_a_band_does_not_depend_on_the_rows_asked_for_together():
    log = simulate(5_000, seed=4)
    model = fit_log(log)
    codes, logits = log.fields["field"][:50, None], logit(log.score[:50])
    together = band(model, codes, logits)
    for row in range(50):
        alone = band(model, codes[row : row + 1], logits[row : row + 1])
        assert (alone[0][0], alone[1][0]) == (together[0][row], together[1][row])


# --- what is left out ------------------------------------------------------------------------------------------------


def in_standard_deviations(one, other, values):
    """The largest difference of two models' curves, in the other's posterior standard deviations."""
    probe = np.linspace(-6.0, -1.0, 40)
    return max(
        float(
            np.max(
                np.abs(one.calibrate([[v]], probe) - other.calibrate([[v]], probe))
                / deviation_of_logits(other, [[v]], probe)
            )
        )
        for v in range(-1, values)
    )


def test_more_bends_than_usual_change_nothing_that_rows_can_tell():
    log = simulate(10_000, fields={"field": SimulatedField.zipf(120)}, seed=3)
    cells = cells_of(log)
    every = fit_bayes(*cells, bends=40)
    assert in_standard_deviations(fit_bayes(*cells, strengths=every.strengths), every, 120) < 0.05


# --- size ------------------------------------------------------------------------------------------------------------


def test_few_iterations_reach_the_maximum():
    model = fit_bayes(*cells_of(simulate(100_000, seed=0)))
    assert model.iterations < 40
    assert model.decrement < 1e-5


def test_thousands_of_values_are_fitted():
    log = simulate(200_000, fields={"field": SimulatedField.zipf(5_000)}, rate=0.2, seed=0)
    cells = cells_of(log, resolution=8)
    model = fit_bayes(*cells)
    p = model.curve(log.fields["field"][:, None], logit(log.score))
    assert kl_to_truth(p, log.probability).value < 0.5 * kl_to_truth(log.score, log.probability).value
