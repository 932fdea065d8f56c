"""Every classical method against a slow, independent implementation of the same thing."""

import numpy as np
import pytest
from betacal import BetaCalibration
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

import mcnet
from mcnet._shared.arrays import logit, sigmoid
from mcnet.calibrators.parametric import fit_logistic
from mcnet.calibrators.per_field import fit_shrunken_lines, fit_shrunken_offsets, mixed_curve
from mcnet.curves.curves import Curves
from mcnet.curves.evaluate import Evaluator


def rows(seed, number=2_000, slope=0.7, shift=-0.8, ties=False):
    rng = np.random.default_rng(seed)
    logits = rng.normal(-1.0, 1.5, number)
    labels = (rng.random(number) < sigmoid(slope * logits + shift + 0.2 * np.sin(3 * logits))).astype(float)
    scores = sigmoid(logits)
    return (np.round(scores, 2) if ties else scores), labels, rng.integers(1, 5, number).astype(float)


def loss(probability, labels, weight):
    return -float(weight @ (labels * np.log(probability) + (1 - labels) * np.log1p(-probability)))


def log_loss_of(logits, labels, weight):
    return float(weight @ (np.logaddexp(0.0, logits) - labels * logits))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ties", [False, True])
def test_isotonic_is_scikit_learns(seed, ties):
    scores, labels, weight = rows(seed, ties=ties)
    scores = np.clip(scores, 1e-7, 1 - 1e-7)
    oracle = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(scores, labels, sample_weight=weight)
    ours = mcnet.Isotonic().fit(scores, labels, weight=weight, resolution="exact")
    at = np.unique(np.concatenate([scores, np.linspace(0.0, 1.0, 5_000)]))
    np.testing.assert_allclose(ours.predict(at), oracle.predict(at), rtol=0, atol=1.1e-7)
    # Blocks of rate 0 and 1 are moved inside (0, 1), and the lines that lead to them with them.
    kept = np.clip(oracle.y_thresholds_, 1e-7, 1 - 1e-7)
    np.testing.assert_allclose(ours.predict(at), np.interp(at, oracle.X_thresholds_, kept), rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_platt_is_logistic_regression_on_the_logit(seed):
    scores, labels, weight = rows(seed)
    l = logit(scores)[:, None]
    oracle = LogisticRegression(C=np.inf, tol=1e-12, max_iter=1000).fit(l, labels, sample_weight=weight)
    ours = mcnet.Platt().fit(scores, labels, weight=weight, resolution="exact")
    assert ours.coefficients_["slope"] == pytest.approx(oracle.coef_[0, 0], rel=1e-6)
    assert ours.coefficients_["intercept"] == pytest.approx(oracle.intercept_[0], rel=1e-6)
    np.testing.assert_allclose(ours.predict(scores), oracle.predict_proba(l)[:, 1], rtol=2e-4)


def test_platt_keeps_its_slope_from_falling():
    scores, labels, _ = rows(0, slope=-1.0)
    fitted = mcnet.Platt().fit(scores, labels, resolution="exact")
    assert fitted.coefficients_["slope"] == 0.0
    np.testing.assert_allclose(fitted.predict([0.01, 0.99]), labels.mean(), rtol=1e-6)


def test_platt_targets_are_those_of_platt():
    scores, labels, _ = rows(1, number=60)
    high, low = (labels.sum() + 1) / (labels.sum() + 2), 1 / (60 - labels.sum() + 2)
    targets = np.where(labels == 1, high, low)
    best = minimize(lambda t: log_loss_of(t[0] * logit(scores) + t[1], targets, np.ones(60)), [1.0, 0.0], tol=1e-12)
    fitted = mcnet.Platt(smooth_targets=True).fit(scores, labels, resolution="exact").coefficients_
    np.testing.assert_allclose([fitted["slope"], fitted["intercept"]], best.x, rtol=1e-4)


def test_temperature_is_the_best_single_number():
    scores, labels, weight = rows(2)
    fitted = mcnet.Temperature().fit(scores, labels, weight=weight, resolution="exact")
    l = logit(scores)
    best = minimize(lambda t: log_loss_of(t[0] * l, labels, weight), [1.0], bounds=[(0, None)], tol=1e-14)
    assert fitted.coefficients_["inverse_temperature"] == pytest.approx(best.x[0], rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_beta_is_betacal(seed):
    scores, labels, _ = rows(seed, number=4_000, slope=1.3)
    oracle = BetaCalibration("abm").fit(scores[:, None], labels)
    a, b, _ = oracle.calibrator_.map_
    fitted = mcnet.Beta().fit(scores, labels, resolution="exact")
    assert min(fitted.coefficients_["a"], fitted.coefficients_["b"]) > 0.0
    assert fitted.coefficients_["a"] == pytest.approx(a, rel=1e-3)
    assert fitted.coefficients_["b"] == pytest.approx(b, rel=1e-3)
    np.testing.assert_allclose(fitted.predict(scores), oracle.predict(scores), rtol=5e-3)
    ones = np.ones(len(labels))
    assert loss(fitted.predict(scores), labels, ones) <= loss(oracle.predict(scores), labels, ones) * (1 + 1e-6)


def test_beta_with_a_bound_in_force_is_the_constrained_optimum():
    scores, labels, weight = rows(4)
    labels = np.where(scores > 0.6, 0.2, labels)
    fitted = mcnet.Beta().fit(scores, labels, weight=weight, resolution="exact")
    c = fitted.coefficients_
    assert min(c["a"], c["b"]) == 0.0

    def value(t):
        return log_loss_of(t[0] * np.log(scores) - t[1] * np.log1p(-scores) + t[2], labels, weight)

    best = minimize(value, [1.0, 1.0, 0.0], bounds=[(0, None), (0, None), (None, None)], options={"ftol": 1e-14})
    assert value([c["a"], c["b"], c["c"]]) <= best.fun * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("bend", [-0.6, 0.0, 0.6])
def test_gaussian_reaches_the_constrained_optimum(seed, bend):
    scores, labels, weight = rows(seed, number=600, slope=0.7 + bend)
    l = logit(scores)
    c = mcnet.GaussianScaling().fit(scores, labels, weight=weight, resolution="exact").coefficients_

    def value(t):
        return log_loss_of(t[0] * l * l + t[1] * l + t[2], labels, weight)

    ends = [{"type": "ineq", "fun": lambda t, at=at: 2 * t[0] * at + t[1]} for at in (l.min(), l.max())]
    best = minimize(value, [0.0, 1.0, 0.0], constraints=ends, method="SLSQP", options={"ftol": 1e-13, "maxiter": 500})
    assert value([c["a"], c["b"], c["c"]]) <= best.fun * (1 + 1e-9) + 1e-9
    assert all(2 * c["a"] * at + c["b"] >= -1e-9 for at in (l.min(), l.max()))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shift", [0.3, 1.0, 4.0])
def test_gamma_reaches_the_constrained_optimum(seed, shift):
    scores, labels, weight = rows(seed, number=600, slope=0.2 + 0.4 * seed)
    t = logit(scores) - logit(scores).min() + shift
    c = mcnet.GammaScaling(shift=shift).fit(scores, labels, weight=weight, resolution="exact").coefficients_

    def value(x):
        return log_loss_of(x[0] * np.log(t) + x[1] * t + x[2], labels, weight)

    ends = [{"type": "ineq", "fun": lambda x, at=at: x[0] / at + x[1]} for at in (t.min(), t.max())]
    best = minimize(value, [0.1, 0.5, 0.0], constraints=ends, method="SLSQP", options={"ftol": 1e-13, "maxiter": 500})
    assert value([c["a"], c["b"], c["c"]]) <= best.fun * (1 + 1e-9) + 1e-9
    assert all(c["a"] / at + c["b"] >= -1e-9 for at in (t.min(), t.max()))


@pytest.mark.parametrize("method", ["gaussian", "gamma"])
def test_beyond_the_fitted_range_the_densities_stay_where_they_were(method):
    scores, labels, _ = rows(3)
    fitted = mcnet.calibrator(method).fit(scores, labels, resolution="exact")
    low, high = scores.min(), scores.max()
    assert fitted.predict([0.0])[0] == pytest.approx(fitted.predict([low])[0], rel=1e-4)
    assert fitted.predict([1.0])[0] == pytest.approx(fitted.predict([high])[0], rel=1e-4)


def test_histogram_by_hand():
    # Two bins of three rows, cut midway between 0.3 and 0.5; 1/3 and 2/3 of the rows are positive.
    scores, labels = [0.1, 0.2, 0.3, 0.5, 0.6, 0.9], [0, 1, 0, 1, 0, 1]
    fitted = mcnet.Histogram(bins=2).fit(scores, labels, resolution="exact")
    expected = [1 / 3, 1 / 3, 2 / 3, 2 / 3]
    np.testing.assert_allclose(fitted.predict([0.0, 0.399999, 0.400001, 1.0]), expected, rtol=1e-12)
    # A prior of three rows at the overall rate of 1/2: (1 + 1.5) / 6 and (2 + 1.5) / 6.
    fitted = mcnet.Histogram(bins=2, prior=3.0).fit(scores, labels, resolution="exact")
    np.testing.assert_allclose(fitted.predict([0.1, 0.9]), [2.5 / 6, 3.5 / 6], rtol=1e-12)


def test_histogram_bins_are_closed_on_the_left():
    fitted = mcnet.Histogram(bins=2).fit([0.25, 0.75], [0, 1], resolution="exact")
    np.testing.assert_allclose(fitted.predict([np.nextafter(0.5, 0), 0.5]), [1e-7, 1 - 1e-7])


def test_histogram_keeps_ties_together_and_has_fewer_bins_then():
    scores, labels = [0.2] * 7 + [0.4] * 2 + [0.6], [0] * 6 + [1] * 4
    fitted = mcnet.Histogram(bins=5).fit(scores, labels, resolution="exact")
    np.testing.assert_allclose(fitted.predict([0.2, 0.4, 0.6]), [1 / 7, 1 - 1e-7, 1 - 1e-7])
    assert len(np.unique(fitted.curves_.knots)) == 2


def test_histogram_may_fall_and_says_so():
    fitted = mcnet.Histogram(bins=2).fit([0.1, 0.2, 0.7, 0.8], [1, 1, 0, 1], resolution="exact")
    assert not fitted.monotone
    assert fitted.predict([0.1])[0] > fitted.predict([0.8])[0]


def test_bins_between_neighbouring_floats_are_not_empty():
    first = 0.3
    for _ in range(6):
        scores = [first, np.nextafter(first, 1.0)]
        fitted = mcnet.Histogram(bins=2).fit(scores, [0, 1], resolution="exact")
        np.testing.assert_allclose(fitted.predict(scores), [1e-7, 1 - 1e-7])
        first = np.nextafter(first, 1.0)


def test_sir_by_hand():
    # Bins (0.1, 0.2), (0.3, 0.4), (0.6, 0.8) with rates 1/2, 0, 1; the first two merge to 1/4 over (0.1, 0.4).
    scores, labels = [0.1, 0.2, 0.3, 0.4, 0.6, 0.8], [0, 1, 0, 0, 0.5, 1]
    fitted = mcnet.SIR(bins=3, knots="midpoint").fit(scores, labels, resolution="exact")
    middle = [0.25, 0.7]
    np.testing.assert_allclose(fitted.predict(middle), [0.25, 0.75], rtol=1e-12)
    np.testing.assert_allclose(fitted.predict([0.1]), [0.1], rtol=1e-5)  # the line from (0, 0) to (0.25, 0.25)
    np.testing.assert_allclose(fitted.predict([0.475]), [0.5], rtol=1e-12)
    # Right of the last middle: s · 0.75 / 0.7, up to 1.
    np.testing.assert_allclose(fitted.predict([0.9, 1.0]), [0.9 * 0.75 / 0.7, 1.0], rtol=1e-6)


def test_sir_with_one_bin_is_a_line_from_the_origin():
    fitted = mcnet.SIR(bins=1).fit([0.2, 0.6], [0, 1], resolution="exact")
    np.testing.assert_allclose(fitted.predict([0.4, 0.2, 0.8]), [0.5, 0.25, 1.0], rtol=1e-6)


def sir_oracle(scores, labels, bins, asked):
    """Equal chunks of sorted rows, pooled row by row until rates rise; np.interp through (mean score, rate)."""
    chunks = [list(part) for part in np.array_split(np.argsort(scores, kind="stable"), bins)]
    done = []
    for chunk in chunks:
        done.append(chunk)
        while len(done) > 1 and labels[done[-1]].mean() <= labels[done[-2]].mean():
            done[-2:] = [done[-2] + done[-1]]
    at = np.array([scores[part].mean() for part in done])
    rate = np.array([labels[part].mean() for part in done])
    inside = np.interp(asked, [0.0, *at], [0.0, *rate])
    return np.where(asked > at[-1], np.minimum(asked * rate[-1] / at[-1], 1.0), inside)


def test_sir_is_pooled_bins_joined_at_their_mean_scores():
    rng = np.random.default_rng(4)
    scores = np.sort(rng.beta(0.7, 12.0, 2_000))
    labels = (rng.random(2_000) < np.minimum(1.3 * scores, 1.0)).astype(float)
    asked = np.linspace(0.001, 0.999, 500)
    fitted = mcnet.SIR(bins=20).fit(scores, labels, resolution="exact")
    np.testing.assert_allclose(fitted.predict(asked), sir_oracle(scores, labels, 20, asked), rtol=1e-6, atol=1e-6)
    again = mcnet.SIR(samples_per_bin=100).fit(scores, labels, resolution="exact")
    np.testing.assert_array_equal(again.predict(asked), fitted.predict(asked))


def test_sir_keeps_the_tail_of_a_wide_last_bin():
    # Scores that are right already; the last of 20 bins reaches from about 0.1 to 0.9.
    rng = np.random.default_rng(0)
    scores = sigmoid(rng.normal(-4.5, 1.4, 60_000))
    labels = rng.random(60_000) < scores
    ratio = {}
    for knots in ("mean", "midpoint"):
        fitted = mcnet.SIR(knots=knots).fit(scores, labels)
        ratio[knots] = fitted.predict(scores).sum() / labels.sum()
    assert abs(ratio["mean"] - 1.0) < 0.03
    assert ratio["midpoint"] < 0.9


@pytest.mark.parametrize(
    ("wrong", "said"), [({"knots": "median"}, "knots is 'median'"), ({"samples_per_bin": 0}, "samples_per_bin is 0")]
)
def test_sir_refuses_unknown_settings_in_words(wrong, said):
    with pytest.raises(mcnet.InputError, match=said):
        mcnet.SIR(**wrong).fit([0.1, 0.2], [0, 1])


def test_sir_and_histogram_do_not_care_about_folds():
    scores, labels, _ = rows(5)
    for method in mcnet.methods():
        if mcnet.calibrator(method).field_use != "none":
            continue
        sketch = mcnet.Sketch.from_rows(scores, labels, folds=4)
        one, other = (mcnet.calibrator(method).fit_sketch(s) for s in (sketch, sketch.unfolded()))
        np.testing.assert_allclose(one.predict(scores), other.predict(scores), rtol=1e-9)


def test_identity_gives_scores_back():
    scores = np.linspace(0.0, 1.0, 101)
    found = mcnet.Identity().fit([0.2, 0.7], [0, 1]).predict(scores)
    np.testing.assert_allclose(found, np.clip(scores, 1e-7, 1 - 1e-7), rtol=1e-15)


# -- methods with fields ----------------------------------------------------------------------------------------


def test_shrunken_lines_are_the_posterior_mode_at_their_variances():
    rng = np.random.default_rng(0)
    number, cells = 6, 400
    context = rng.integers(0, number, cells).astype(np.int32)
    x = rng.normal(size=cells)
    weight = rng.integers(1, 30, cells).astype(float)
    truth = (0.9 + 0.3 * rng.normal(size=number))[context] * x + (0.5 * rng.normal(size=number))[context] - 1
    positives = rng.binomial(weight.astype(int), sigmoid(truth)).astype(float)
    lines = fit_shrunken_lines(x, context, number, weight, positives)
    precision = 1.0 / lines.variance

    def value(t):
        shared, own = t[:2], t[2:].reshape(number, 2)
        f = (shared + own)[context, 0] * x + (shared + own)[context, 1]
        return float(weight @ np.logaddexp(0, f) - positives @ f + 0.5 * (own**2 @ precision).sum())

    best = minimize(value, np.zeros(2 + 2 * number), method="BFGS", options={"gtol": 1e-7, "maxiter": 2000})
    ours = np.concatenate([lines.shared, lines.deviation.ravel()])
    assert value(ours) <= best.fun + 1e-3  # the variances moved by < 1e-3 since the last Newton step
    np.testing.assert_allclose(lines.shared + lines.deviation, best.x[:2] + best.x[2:].reshape(number, 2), atol=2e-3)


@pytest.mark.filterwarnings("ignore:.*check that they belong together")
@given(st.integers(0, 2**32 - 1), st.floats(-4.0, 4.0), st.integers(2, 400))
def test_offset_expects_as_many_positives_as_there_are_and_never_falls(seed, shift, number):
    rng = np.random.default_rng(seed)
    logits = rng.normal(-1.0, 1.5, number)
    labels, weight = (rng.random(number) < sigmoid(logits + shift)).astype(float), rng.integers(1, 4, number)
    labels[:2] = 0.0, 1.0
    fitted = mcnet.Offset().fit(sigmoid(logits), labels, weight=weight, resolution="exact")
    best = brentq(lambda b: weight @ (sigmoid(logits + b) - labels), -40.0, 40.0)
    assert fitted.coefficients_["offset"] == pytest.approx(best, abs=1e-6)
    at = np.linspace(0.0, 1.0, 500)
    found = fitted.predict(at)
    assert (np.diff(found) >= 0.0).all()
    low, high = fitted.interval(at)
    assert (low <= found).all()
    assert (found <= high).all()
    # Parts that are added up give the offset of the whole.
    half = number // 2
    parts = [(sigmoid(logits[rows]), labels[rows], weight[rows]) for rows in (slice(half), slice(half, None))]
    sketches = [mcnet.Sketch.from_rows(s, y, weight=w, resolution="exact") for s, y, w in parts]
    merged = mcnet.Offset().fit_sketch(sketches[0] + sketches[1])
    np.testing.assert_allclose(merged.predict(at), found, rtol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_shrunken_offsets_are_the_mode_at_the_variance_of_the_largest_evidence(seed):
    rng = np.random.default_rng(seed)
    number, cells = 12, 400
    context = rng.integers(0, number, cells).astype(np.int32)
    x, weight = rng.normal(-2.0, 1.0, cells), rng.integers(1, 30, cells).astype(float)
    truth = x + (0.6 * rng.normal(size=number))[context] - 0.5
    positives = rng.binomial(weight.astype(int), sigmoid(truth)).astype(float)
    fit = fit_shrunken_offsets(x, context, number, weight, positives)

    def mode_and_evidence(variance):
        def value(t):
            f = x + t[0] + t[1:][context]
            return float(weight @ np.logaddexp(0, f) - positives @ f + 0.5 * (t[1:] @ t[1:]) / variance)

        def slope(t):
            by = weight * sigmoid(x + t[0] + t[1:][context]) - positives
            return np.concatenate([[by.sum()], np.bincount(context, by, number) + t[1:] / variance])

        best = minimize(value, np.zeros(1 + number), jac=slope, method="BFGS", options={"gtol": 1e-9})
        p = sigmoid(x + best.x[0] + best.x[1:][context])
        known = np.bincount(context, weight * p * (1 - p), number)
        curvature = np.diag(np.concatenate([[known.sum()], known + 1.0 / variance]))
        curvature[0, 1:] = curvature[1:, 0] = known
        errors = np.linalg.inv(curvature)
        own = errors[0, 0] + 2 * errors[0, 1:] + np.diag(errors)[1:]
        return best.x, own, -best.fun - 0.5 * number * np.log(variance) - 0.5 * np.linalg.slogdet(curvature)[1]

    best, errors, evidence = mode_and_evidence(fit.variance)
    np.testing.assert_allclose(fit.shared + fit.deviation, best[0] + best[1:], atol=1e-4)
    np.testing.assert_allclose(fit.errors, errors, rtol=1e-3)
    # The fixed point leaves out how the curvature changes with the mode, which moves the maximum a little.
    for factor in (0.6, 1.6):
        assert mode_and_evidence(factor * fit.variance)[2] < evidence


def test_offset_field_of_alike_contexts_is_the_common_offset_and_of_large_ones_their_own():
    rng = np.random.default_rng(4)
    scores, context = rng.uniform(0.02, 0.3, 60_000), rng.integers(0, 3, 60_000)
    at = np.linspace(0.02, 0.3, 9)
    alike = rng.random(60_000) < sigmoid(logit(scores) - 0.7)
    found = mcnet.OffsetField().fit(scores, alike, field=context).predict(at, field=[1] * 9)
    np.testing.assert_allclose(found, mcnet.Offset().fit(scores, alike).predict(at), rtol=0.02)
    apart = rng.random(60_000) < sigmoid(logit(scores) + np.array([-1.0, 0.0, 1.0])[context])
    fitted = mcnet.OffsetField().fit(scores, apart, field=context)
    for value in range(3):
        alone = mcnet.Offset().fit(scores[context == value], apart[context == value])
        np.testing.assert_allclose(fitted.predict(at, field=[value] * 9), alone.predict(at), rtol=0.01)


@pytest.mark.parametrize("name", ["offset", "offset-field"])
def test_intervals_of_offsets_cover_and_are_those_of_the_loaded_model(name, tmp_path):
    covered = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        own = rng.normal(0.0, 0.5 if name == "offset-field" else 0.0, 20)
        scores, context = rng.uniform(0.02, 0.2, 4_000), rng.integers(0, 20, 4_000)
        labels = rng.random(4_000) < sigmoid(logit(scores) - 0.5 + own[context])
        field = {} if name == "offset" else {"field": context}
        fitted = mcnet.calibrator(name).fit(scores, labels, **field)
        at = {} if name == "offset" else {"field": np.arange(20)}
        low, high = fitted.interval(np.full(20, 0.1), **at)
        covered.append(np.mean((low <= (truth := sigmoid(logit(0.1) - 0.5 + own))) & (truth <= high)))
    assert 0.82 < np.mean(covered) < 0.97
    fitted.save(tmp_path / "model.json")
    for ours, theirs in zip(
        fitted.interval(scores, **field), mcnet.load(tmp_path / "model.json").interval(scores, **field), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    if name == "offset-field":  # an unseen value may be anywhere among those that were seen
        unseen = np.diff(fitted.interval([0.1], ["never seen"]), axis=0)
        assert unseen > np.mean(high - low)


def test_platt_field_of_large_contexts_is_platt_in_each():
    rng = np.random.default_rng(1)
    scores, context = rng.uniform(0.05, 0.95, 60_000), rng.integers(0, 3, 60_000)
    slopes, shifts = np.array([0.5, 1.0, 1.5]), np.array([-1.0, 0.0, 1.0])
    labels = rng.random(60_000) < sigmoid(slopes[context] * logit(scores) + shifts[context])
    fitted = mcnet.PlattField().fit(scores, labels, field=context)
    for value in range(3):
        alone = mcnet.Platt().fit(scores[context == value], labels[context == value])
        at = np.linspace(0.05, 0.95, 50)
        np.testing.assert_allclose(fitted.predict(at, field=[value] * 50), alone.predict(at), rtol=0.01)


def test_platt_field_shrinks_a_tiny_context_to_the_common_line():
    rng = np.random.default_rng(2)
    scores = rng.uniform(0.05, 0.95, 20_004)
    context = np.array(["large", "larger"] * 10_000 + ["tiny"] * 4)
    labels = rng.random(20_004) < scores
    labels[-4:] = True
    fitted = mcnet.PlattField().fit(scores, labels, field=context)
    at = np.linspace(0.1, 0.9, 9)
    tiny, pooled = (fitted.predict(at, field=[value] * 9) for value in ("tiny", "never seen"))
    np.testing.assert_allclose(logit(tiny), logit(pooled), atol=0.15)


def test_platt_field_gives_a_falling_context_its_own_level():
    rng = np.random.default_rng(3)
    low = rng.uniform(0.02, 0.2, 30_000)
    high = rng.uniform(0.6, 0.95, 30_000)
    labels = np.concatenate([rng.random(30_000) < low, rng.random(30_000) < 0.9 - 0.8 * (high - 0.6)])
    field = ["rising"] * 30_000 + ["falling"] * 30_000
    fitted = mcnet.PlattField().fit(np.concatenate([low, high]), labels, field=field)
    found = fitted.predict(high, field=["falling"] * 30_000)
    assert found.mean() == pytest.approx(labels[30_000:].mean(), rel=0.02)
    assert (np.diff(fitted.predict(np.sort(high), field=["falling"] * 30_000)) >= 0).all()


def knot_curves():
    steps = (np.array([0.2, 0.2, 0.6, 0.6]), np.array([0.1, 0.3, 0.3, 0.7]))
    line = (np.array([0.1, 0.6, 0.9]), np.array([0.05, 0.5, 0.95]))
    constant = (np.array([0.5]), np.array([0.4]))
    both = (np.array([0.05, 0.2, 0.2, 0.8]), np.array([0.01, 0.2, 0.25, 0.9]))
    return [steps, line, constant, both]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("one", range(4))
@pytest.mark.parametrize("other", range(4))
def test_a_mixed_curve_is_the_pointwise_mixture_jumps_included(one, other, share):
    first, second = knot_curves()[one], knot_curves()[other]
    knots = np.concatenate([first[0], second[0]])
    at = np.unique(
        np.concatenate([np.linspace(0.01, 0.99, 997), knots, np.nextafter(knots, 0), np.nextafter(knots, 1)])
    )

    def value(pair):
        return Evaluator(Curves.of([pair]))(at)

    mixed = mixed_curve(first, second, share)
    np.testing.assert_allclose(value(mixed), share * value(first) + (1 - share) * value(second), rtol=1e-12)
    assert (np.diff(mixed[1]) >= 0).all()


def test_mixtures_of_many_random_curves_never_fall():
    rng = np.random.default_rng(4)
    for _ in range(300):
        pairs = []
        for _ in range(2):
            size = int(rng.integers(1, 30))
            knots = np.sort(rng.choice(np.linspace(0.01, 0.99, 40), size) + rng.choice([0, 1e-16, 1e-3], size))
            pairs.append((knots, np.sort(rng.random(size))))
        assert (np.diff(mixed_curve(*pairs, rng.random())[1]) >= 0).all()


def test_per_field_shrinks_by_the_number_of_events():
    rng = np.random.default_rng(5)
    scores, field = rng.uniform(0.1, 0.9, 3_000), np.array(["a"] * 2_900 + ["b"] * 100)
    labels = rng.random(3_000) < np.where(field == "a", scores, scores**2)
    fitted = mcnet.PerField("platt", shrinkage=50.0).fit(scores, labels, field=field)
    pooled = mcnet.Platt().fit(scores, labels)
    own = mcnet.Platt().fit(scores[field == "b"], labels[field == "b"])
    events = min(labels[field == "b"].sum(), (~labels[field == "b"]).sum())
    share = events / (events + 50.0)
    at = np.linspace(0.1, 0.9, 40)
    expected = share * own.predict(at) + (1 - share) * pooled.predict(at)
    np.testing.assert_allclose(fitted.predict(at, field=["b"] * 40), expected, rtol=1e-9)
    np.testing.assert_allclose(fitted.predict(at, field=["c"] * 40), pooled.predict(at), rtol=1e-9)


def test_per_field_chooses_much_shrinkage_for_alike_contexts_and_little_for_different_ones():
    rng = np.random.default_rng(6)
    scores, field = rng.uniform(0.1, 0.9, 6_000), rng.integers(0, 12, 6_000)
    alike = rng.random(6_000) < scores
    different = rng.random(6_000) < sigmoid(logit(scores) + np.linspace(-2, 2, 12)[field])
    chosen = [mcnet.PerField("platt").fit(scores, labels, field=field).shrinkage_ for labels in (alike, different)]
    assert chosen[0] >= 300.0
    assert chosen[1] <= 30.0


def test_per_field_takes_a_calibrator_or_a_name_and_keeps_it_unfitted(tmp_path):
    inner = mcnet.Histogram(bins=3)
    fitted = mcnet.PerField(inner, shrinkage=np.inf).fit([0.1, 0.5, 0.6, 0.9], [0, 1, 0, 1], field=list("aabb"))
    assert fitted.inner is inner
    assert not hasattr(inner, "model_")
    fitted.save(tmp_path / "model.json")
    parameters = mcnet.load(tmp_path / "model.json").parameters
    assert parameters["inner"] == {"method": "histogram", "bins": 3, "prior": 0.0}
    assert parameters["shrinkage"] == "inf"
    assert not mcnet.load(tmp_path / "model.json").monotone


@pytest.mark.parametrize(
    ("method", "parameters", "message"),
    [
        ("histogram", {"bins": 0}, "bins is 0"),
        ("histogram", {"bins": 2.5}, "bins is 2.5"),
        ("histogram", {"bins": True}, "bins is True"),
        ("histogram", {"prior": -1.0}, "prior is -1"),
        ("histogram", {"prior": np.inf}, "prior is inf"),
        ("sir", {"bins": -3}, "bins is -3"),
        ("gamma", {"shift": 0.0}, "shift is 0"),
        ("gamma", {"shift": np.nan}, "shift is nan"),
        ("per-field", {"shrinkage": -1.0}, "shrinkage is -1"),
        ("per-field", {"shrinkage": "some"}, "shrinkage is 'some'"),
        ("per-field", {"inner": "magic"}, "no method 'magic'"),
        ("per-field", {"inner": "platt-field"}, "uses fields itself"),
    ],
)
def test_parameters_are_checked_in_fit(method, parameters, message):
    calibrator = mcnet.calibrator(method, **parameters)
    given = {"field": ["a", "b"]} if calibrator.field_use != "none" else {}
    with pytest.raises(mcnet.McnetError, match=message):
        calibrator.fit([0.1, 0.9], [0, 1], **given)


def test_scaling_all_weights_changes_no_fit():
    scores, labels, weight = rows(7, number=500)
    design = np.column_stack([logit(scores), np.ones(500)])
    expected = fit_logistic(design, weight, weight * labels)
    for factor in (1e-9, 1e9):
        np.testing.assert_allclose(fit_logistic(design, factor * weight, factor * weight * labels), expected, rtol=1e-6)
