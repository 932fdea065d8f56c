"""Following a journal never forgets in silence."""

import numpy as np
import pytest

import mcnet
from mcnet.errors import InputError


def rows(seed):
    rng = np.random.default_rng(seed)
    score = rng.uniform(0.05, 0.5, 300)
    return mcnet.Sketch.from_rows(score, rng.random(300) < score)


@pytest.fixture
def journal(tmp_path):
    journal = mcnet.Journal(tmp_path / "journal")
    for day in (1, 2, 3):
        journal.add(rows(day), day, source="log")
    return journal


def test_a_journal_that_is_not_there_leaves_the_tracker_as_it_was(journal, tmp_path):
    tracker = mcnet.Tracker.from_journal(journal)
    before = tracker.predict([0.1, 0.3])
    with pytest.raises(InputError, match=r"there is no store in .*typo"):
        tracker.follow(mcnet.Journal(tmp_path / "typo"))
    np.testing.assert_array_equal(tracker.predict([0.1, 0.3]), before)


def test_a_journal_without_the_learnt_periods_is_refused(journal, tmp_path):
    tracker = mcnet.Tracker.from_journal(journal)
    other = mcnet.Journal(tmp_path / "other")
    for day in (3, 4):
        other.add(rows(day), day)
    with pytest.raises(InputError, match=r"learnt 3 periods until 3, but the journal .*other has 1 until then"):
        tracker.follow(other)
    assert repr(tracker) == "Tracker(3 periods until 3, no field)"
    assert repr(mcnet.Tracker.from_journal(other)) == "Tracker(2 periods until 4, no field)"


def test_periods_without_names_cannot_be_followed(journal):
    tracker = mcnet.Tracker().update_sketch(rows(1))
    with pytest.raises(InputError, match="learnt 1 periods without names"):
        tracker.follow(journal)
