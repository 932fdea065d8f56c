"""Intervals as a user asks for them: with fields, with values never seen, at any level, of a resumed calibrator."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit, ndtri
from tests.bayes.test_bayes import deviation_of_logits

import mcnet
from mcnet.bayes.misfit import LENGTHS, SIZES
from mcnet.datasets.simulator import SimulatedField, simulate
from mcnet.errors import CalibrationWarning, FileFormatError, InputError, NotSupportedError
from mcnet.model.model_file import checksum

SCORES = expit(np.linspace(-7.0, 1.0, 60))


def fit(log, **options):
    return mcnet.BayesMCNet(**options).fit(log.score, log.label, field={name: log.text(name) for name in log.fields})


@pytest.fixture(scope="module")
def one_field():
    """Four values, of 92 % to 1 % of the rows."""
    return fit(simulate(30_000, rate=0.05, seed=1))


@pytest.fixture(scope="module")
def two_fields():
    """Two fields; the combination of the last values was held back."""
    fields = {"country": SimulatedField.zipf(6), "source": SimulatedField.zipf(4)}
    log = simulate(30_000, fields=fields, rate=0.1, seed=2)
    seen = (log.fields["country"] < 5) | (log.fields["source"] < 3)
    field = {name: log.text(name)[seen] for name in log.fields}
    return mcnet.BayesMCNet().fit(log.score[seen], log.label[seen], field=field)


def widths(fitted, scores=SCORES, **values):
    low, high = fitted.interval(scores, {name: [value] * len(scores) for name, value in values.items()})
    return logit(high) - logit(low)


@settings(max_examples=25)
@given(
    value=st.sampled_from(["0", "1", "3", "never seen", None]),
    levels=st.lists(st.floats(0.01, 0.999), min_size=2, max_size=4),
)
def test_intervals_hold_the_curve_rise_and_widen_with_the_level(one_field, value, levels):
    field = [value] * len(SCORES)
    curve = one_field.predict(SCORES, field)
    inner = curve, curve
    for level in sorted(levels):
        low, high = one_field.interval(SCORES, field, level=level)
        assert np.all((low > 0.0) & (low <= inner[0]) & (inner[1] <= high) & (high < 1.0))
        assert np.all(np.diff(low) >= 0.0)
        assert np.all(np.diff(high) >= 0.0)
        inner = low, high


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_an_interval_is_no_wider_than_its_standard_deviations(one_field, level):
    codes, logits = np.zeros((len(SCORES), 1), dtype=int), logit(SCORES)
    reach = ndtri(0.5 + level / 2.0) * deviation_of_logits(one_field.posterior_, codes[:1], logits)
    curve = one_field.posterior_.calibrate(codes, logits)
    low, high = one_field.interval(SCORES, ["0"] * len(SCORES), level=level)
    # The strengths of the priors are estimates: that widens an interval by up to two fifths here.
    assert np.all(low >= 0.97 * expit(curve - 1.4 * reach))
    assert np.all(high <= 1.03 * expit(curve + 1.4 * reach))
    middle = len(SCORES) // 2
    assert logit(high[middle]) - logit(low[middle]) > 1.2 * reach[middle]


def test_fewer_rows_are_told_by_a_wider_interval_and_an_unseen_value_by_the_widest(one_field):
    large, small, unseen = (widths(one_field, field=value).mean() for value in ("0", "3", "never seen"))
    assert large < small < unseen
    np.testing.assert_allclose(widths(one_field, field="never seen"), widths(one_field, field="nor this"), rtol=1e-9)


def test_every_further_unseen_value_widens_the_interval(two_fields):
    seen = widths(two_fields, country="0", source="0").mean()
    one = [widths(two_fields, country="x", source="0").mean(), widths(two_fields, country="0", source="x").mean()]
    both = widths(two_fields, country="x", source="x").mean()
    assert seen < min(one)
    assert max(one) < both


def test_a_combination_never_seen_has_an_interval_around_its_curve(two_fields):
    field = {"country": ["5"] * len(SCORES), "source": ["3"] * len(SCORES)}
    low, high = two_fields.interval(SCORES, field)
    curve = two_fields.predict(SCORES, field)
    assert np.all((low <= curve * (1 + 1e-3)) & (curve <= high * (1 + 1e-3)))
    assert widths(two_fields, country="5", source="3").mean() > widths(two_fields, country="0", source="0").mean()


def test_a_row_alone_has_the_interval_it_has_among_others(two_fields):
    draw = np.random.default_rng(0)
    scores = draw.uniform(0.001, 0.5, 40)
    field = {"country": draw.choice(["0", "5", "x"], 40), "source": draw.choice(["0", "3", "y"], 40)}
    together = np.array(two_fields.interval(scores, field))
    for row in range(40):
        alone = two_fields.interval(scores[row : row + 1], {name: part[row : row + 1] for name, part in field.items()})
        np.testing.assert_allclose(np.concatenate(alone), together[:, row], rtol=1e-9)
    logits = two_fields.interval(logit(scores), field, score_type="logit")
    np.testing.assert_allclose(np.array(logits), together, rtol=1e-9)


def test_most_truths_of_field_values_are_inside():
    covered = []
    for seed in range(10):
        log = simulate(10_000, test_rows=2_000, rate=0.05, seed=seed)
        test = log.test()
        low, high = fit(log.calibration()).interval(test.score, test.text("field"), level=0.9)
        covered.append(np.mean((low <= test.probability) & (test.probability <= high)))
    assert 0.8 < np.mean(covered) < 0.97


def with_step(rows, seed, jump=1.5, slope=0.0):
    """Four values whose true curves jump at one score: scores, labels, field, truth."""
    draw = np.random.default_rng(seed)
    value, x = draw.choice(4, rows, p=np.array([12, 6, 4, 3]) / 25.0), draw.normal(-3.0, 1.2, rows)
    level, at = draw.normal(-3.0, 0.3, 4), draw.uniform(-4.0, -2.0)
    truth = expit(level[value] + slope * (x + 3.0) + jump * ((x > at) - 0.5))
    return expit(x), draw.random(rows) < truth, value, truth


def without_misfit(fitted):
    """Return the model whose intervals know the posterior alone."""
    return replace(fitted.model_, uncertainty=replace(fitted.model_.uncertainty, misfit=None))


@pytest.mark.parametrize("rows", [5_000, 25_000])
def test_intervals_widen_where_residuals_say_that_a_step_is_missed(rows):
    covered = []
    for seed in range(8):
        scores, labels, field, truth = with_step(rows, seed)
        fitted = mcnet.BayesMCNet().fit(scores, labels, field=field)
        ends = [model.interval(scores, field) for model in (fitted.model_, without_misfit(fitted))]
        covered.append([np.mean((low <= truth) & (truth <= high)) for low, high in ends])
    now, before = np.mean(covered, axis=0)
    assert before < 0.75
    assert 0.82 < now < 0.98


def test_intervals_of_a_smooth_truth_hardly_widen():
    ratios = []
    for seed in range(8):
        log = simulate(10_000, rate=0.05, seed=seed)
        fitted = fit(log)
        wide, narrow = (
            np.subtract(*(logit(end) for end in model.interval(log.score, log.text("field"))[::-1])).mean()
            for model in (fitted.model_, without_misfit(fitted))
        )
        assert wide >= narrow
        ratios.append(wide / narrow)
    assert np.mean(ratios) < 1.05


def test_intervals_of_two_fields_with_many_rows_hardly_widen():
    fields = {"a": SimulatedField.zipf(6), "b": SimulatedField.zipf(4)}
    log = simulate(200_000, fields=fields, seed=3)
    fitted, field = fit(log), {name: log.text(name)[:2_000] for name in log.fields}
    wide, narrow = (
        np.subtract(*(logit(end) for end in model.interval(log.score[:2_000], field)[::-1])).mean()
        for model in (fitted.model_, without_misfit(fitted))
    )
    assert wide < 1.05 * narrow


@settings(max_examples=15)
@given(seed=st.integers(0, 1_000), jump=st.floats(0.0, 4.0), parts=st.integers(2, 5))
def test_intervals_of_steps_hold_the_curve_and_do_not_depend_on_the_order_of_rows(seed, jump, parts):
    scores, labels, field, _ = with_step(2_000, seed, jump)
    order = np.random.default_rng(seed).permutation(2_000)
    split = np.array_split(order, parts)
    pieces = [mcnet.Sketch.from_rows(scores[part], labels[part], field=field[part]) for part in split]
    first = mcnet.BayesMCNet().fit(scores, labels, field=field)
    merged = mcnet.BayesMCNet().fit_sketch(mcnet.Sketch.merged(pieces))
    for value in (0, 3, 99):
        low, high = first.interval(SCORES, [value] * len(SCORES))
        served = first.predict(SCORES, [value] * len(SCORES))
        assert np.all((low > 0.0) & (low <= served) & (served <= high) & (high < 1.0))
        assert np.all(np.diff(low) >= 0.0)
        assert np.all(np.diff(high) >= 0.0)
        np.testing.assert_allclose(np.array(merged.interval(SCORES, [value] * len(SCORES))), [low, high], rtol=2e-3)


def test_a_misfit_is_that_of_a_second_process_beside_the_smooth_curve():
    """The evidence and the mean square, against the joint normal distribution of the curve and its misfit."""
    scores, labels, _, _ = with_step(3_000, 1)
    fitted = mcnet.BayesMCNet().fit(scores, labels)
    misfit = fitted.model_.uncertainty.misfit.__self__
    panels, size = misfit.common, len(misfit.common.logits)
    root = np.random.default_rng(0).normal(size=(size, size)) / 20.0
    prior, information = np.linalg.inv(root @ root.T + 1e-3 * np.eye(size)), np.diag(panels.information)
    smooth = np.linalg.inv(prior + information)
    evidence, squares = misfit._hypotheses(panels, smooth)
    apart = np.abs(np.subtract.outer(panels.logits, panels.logits)) / fitted.posterior_.panels.scale
    for index, (length, deviation) in enumerate(product(LENGTHS, SIZES)):
        process = deviation**2 * np.exp(-apart / length)
        # Rows measure the sum of both; at the mode of the smooth one alone, only the misfit has a gradient.
        joint = np.block([[prior + information, information], [information, np.linalg.inv(process) + information]])
        covariance, gradient = np.linalg.inv(joint), np.concatenate([np.zeros(size), panels.residual])
        total = np.hstack([np.eye(size), np.eye(size)])
        expected = (total @ covariance @ gradient) ** 2 + np.diag(total @ covariance @ total.T - smooth)
        np.testing.assert_allclose(squares[index], expected, rtol=1e-4, atol=1e-6)
        log_evidence = gradient @ covariance @ gradient - np.linalg.slogdet(joint)[1] - np.linalg.slogdet(process)[1]
        log_evidence += np.linalg.slogdet(prior + information)[1]
        np.testing.assert_allclose(evidence[index], 0.5 * log_evidence, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore:mcnet-bayes. no")  # nine of each row make a chance gap look like a real one
def test_a_weight_counts_as_so_many_rows():
    log = simulate(3_000, rate=0.3, seed=0)
    field = log.text("field")
    quarter, once, weighted = (
        mcnet.BayesMCNet().fit(log.score, log.label, field=field, weight=[w] * len(log)) for w in (0.25, 1.0, 9.0)
    )
    repeated = mcnet.BayesMCNet().fit(np.tile(log.score, 9), np.tile(log.label, 9), field=np.tile(field, 9))
    usual = np.quantile(log.score, np.linspace(0.4, 0.9, 6))
    assert widths(once, usual, field="0").mean() < 0.75 * widths(quarter, usual, field="0").mean()
    np.testing.assert_allclose(widths(weighted, usual, field="0"), widths(repeated, usual, field="0"), rtol=1e-3)


@pytest.mark.networks
@pytest.mark.parametrize("which", ["one_field", "two_fields"])
def test_a_resumed_calibrator_and_a_loaded_model_have_the_same_intervals(which, tmp_path, request):
    fitted = request.getfixturevalue(which)
    fitted.save(tmp_path / "model.json", training_state=True)
    resumed = mcnet.BayesMCNet.resume(tmp_path / "model.json")
    for value in ("0", "3", "never seen"):
        field = {name: [value] * len(SCORES) for name in fitted.model_.fields}
        exact = (c.predict(SCORES, field, exact=True) for c in (fitted, resumed))
        np.testing.assert_allclose(*exact, rtol=1e-12)
        for level in (0.5, 0.95):
            before, after = (np.array(c.interval(SCORES, field, level=level)) for c in (fitted, resumed))
            np.testing.assert_allclose(before, after, rtol=1e-9)
    loaded = mcnet.load(tmp_path / "model.json")
    for level in (0.5, 0.95):
        np.testing.assert_allclose(
            np.array(loaded.interval(SCORES, field, level=level)),
            np.array(fitted.interval(SCORES, field, level=level)),
            rtol=1e-9,
        )


def test_the_uncertainty_of_hundreds_of_values_takes_little_space():
    fitted = fit(simulate(20_000, fields={"field": SimulatedField.zipf(226)}, rate=0.1, seed=2))
    written = json.dumps(fitted.model_.uncertainty.to_dict())
    assert len(written) < 100_000


def test_a_file_whose_uncertainty_is_not_one_is_refused(one_field, tmp_path):
    one_field.save(tmp_path / "model.json")
    document = json.loads((tmp_path / "model.json").read_text())
    for change in ({"places": [0.0, 0.0]}, {"known": []}, {"unseen": [[-1.0]]}, {"steps": [0]}):
        altered = document | {"uncertainty": document["uncertainty"] | change}
        altered["checksum"] = checksum(altered)
        (tmp_path / "altered.json").write_text(json.dumps(altered))
        with pytest.raises(FileFormatError, match="uncertainty"):
            mcnet.load(tmp_path / "altered.json")


def test_a_model_of_another_method_points_to_mcnet():
    with pytest.raises(NotSupportedError, match="platt model has curves and no intervals; fit BayesMCNet"):
        mcnet.Platt().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1]).model_.interval([0.1])


def test_a_constant_has_no_interval_fields_or_not(tmp_path):
    with pytest.warns(CalibrationWarning, match="every row is positive"):
        fitted = mcnet.BayesMCNet().fit([0.1, 0.2, 0.3], [1, 1, 1], field=["a", "b", "a"])
    with pytest.raises(NotSupportedError, match="every row is positive"):
        fitted.interval([0.1], ["a"])
    with pytest.raises(InputError, match="needs the field"):
        fitted.interval([0.1])
    fitted.save(tmp_path / "model.json")
    with pytest.raises(NotSupportedError, match="no intervals"):
        mcnet.load(tmp_path / "model.json").interval([0.1], ["a"])


def test_one_score_with_a_field_still_has_intervals():
    labels, field = np.arange(400) % 4 == 0, np.where(np.arange(400) % 8 < 4, "a", "b")
    fitted = mcnet.BayesMCNet().fit(np.full(400, 0.3), labels, field=field)
    low, high = fitted.interval([0.3, 0.3, 0.3], ["a", "b", "c"])
    assert np.all((low < 0.25) & (high > 0.25))
    assert high[2] - low[2] > high[0] - low[0]


@pytest.mark.parametrize("level", [None, "0.9", "much", 0.0, 1.0, -0.5, 90, True, float("nan")])
def test_a_level_that_is_none_is_refused(one_field, level):
    with pytest.raises(InputError, match=r"it must be a number between 0 and 1, such as 0\.9"):
        one_field.interval([0.1], ["0"], level=level)


def test_fields_and_rows_must_match(one_field, two_fields):
    with pytest.raises(InputError, match="needs the field"):
        one_field.interval([0.1])
    with pytest.raises(InputError):
        one_field.interval([0.1, 0.2], ["0"])
    with pytest.raises(InputError):
        two_fields.interval([0.1], {"country": ["0"]})
