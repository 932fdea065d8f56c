"""Weights of any size where rows are judged and followed over time: right, or refused in one sentence."""

import warnings

import numpy as np
import pytest

import mcnet

RNG = np.random.default_rng(2)
SCORE = RNG.uniform(0.05, 0.5, 400)
LABEL = (RNG.random(400) < SCORE).astype(int)
FIELD = np.where(np.arange(400) < 20, "no positives", "others")
LABEL[:20] = 0


def sketch(weight):
    return mcnet.Sketch.from_rows(SCORE, LABEL, field={"f": FIELD}, weight=np.full(400, weight))


def updated(weight, folder):
    tracker = mcnet.Tracker(method="platt-field")
    for period in range(2):
        tracker.update_sketch(sketch(weight), period)
    return tracker.predict(SCORE, FIELD)


def stored(weight, folder):
    journal = mcnet.Journal(folder)
    journal.add(sketch(weight), 1, allow="weight")
    return journal.sketch().total_positives / weight


USES = {
    "evaluate": lambda weight, folder: mcnet.evaluate(SCORE, LABEL, field=FIELD, weight=np.full(400, weight)).pcoc,
    "evaluate_sketch": lambda weight, folder: (
        mcnet.evaluate_sketch(mcnet.Platt().fit(SCORE, LABEL), sketch(weight)).pcoc
    ),
    "tracker": updated,
    "journal": stored,
    "monitor": lambda weight, folder: mcnet.Monitor().update(sketch(weight), 1) == [],
}


@pytest.mark.filterwarnings("ignore:the weights of 400 rows add up to:mcnet.CalibrationWarning")
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("weight", [1e306, 1e200, 1e-200, 5e-324])
def test_weights_that_squares_cannot_be_taken_of_are_refused(use, weight, tmp_path):
    with pytest.raises(mcnet.InputError, match=r"the weights add up to .*one number"):
        USES[use](weight, tmp_path / "journal")
    assert use != "journal" or mcnet.Journal(tmp_path / "journal").periods == []


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("weight", [1e-90, 1e-10, 1e9, 1e18, 1e90])
def test_other_weights_are_used(use, weight, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mcnet.CalibrationWarning)
        expected = USES[use](1.0, tmp_path / "one")
        found = USES[use](weight, tmp_path / "other")
    assert np.all(np.isfinite(found))
    if use in ("evaluate", "evaluate_sketch", "journal"):
        assert found == pytest.approx(expected, rel=1e-9)
    if use == "tracker":  # how much the rows are believed depends on their weight; the order and the range do not
        assert np.all((found > 0.0) & (found < 1.0))
        others = FIELD == "others"
        assert np.all(np.diff(found[others][np.argsort(SCORE[others])]) >= 0.0)


def test_intervals_of_huge_weights_contain_the_value():
    huge = mcnet.evaluate(SCORE, LABEL, field=FIELD, weight=np.full(400, 1e60))
    low, high = huge.interval("pcoc")
    assert low <= huge.pcoc <= high
    assert np.isfinite(huge.interval("f_rce")).all()
