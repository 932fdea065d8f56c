"""The toy truth and what can be said of it without fitting anything."""

import numpy as np

from reproduction.expressiveness import SCORES, fit_toy, slope_bound, toy_truth, worst


def test_the_toy_truth_is_an_increasing_probability():
    truth = toy_truth(SCORES)
    assert np.all(np.diff(truth) > 0)
    assert 0 < truth[0] < truth[-1] < 1


def test_no_function_of_slope_one_beats_the_bound():
    # Truth minus bound, followed as closely as slope 1 allows.
    bound, best = slope_bound(), np.inf
    truth, step = toy_truth(SCORES).tolist(), float(SCORES[1] - SCORES[0])
    for start in np.linspace(truth[0] - 0.2, truth[0] + 0.2, 81).tolist():
        follow, error = start, abs(start - truth[0])
        for value in truth[1:]:
            follow = max(follow, min(follow + step, value + bound))
            error = max(error, abs(follow - value))
        best = min(best, error)
    assert bound - 1e-9 <= best < bound + 0.01


def test_lines_follow_the_truth_better_than_steps():
    assert worst(fit_toy("NeuCalib (linear)", 8)) < 0.5 * worst(fit_toy("Histogram Binning (step)", 8))
