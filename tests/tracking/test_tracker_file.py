"""A saved tracker goes on as if nothing had happened, and a journal teaches what its periods would have taught."""

import json

import numpy as np
import pytest

import mcnet
from mcnet._shared.files import checksum
from mcnet.datasets.worlds import make_world

SCORES = np.linspace(0.01, 0.9, 41)
FIELD = ["v1"] * len(SCORES)


@pytest.fixture
def world():
    return make_world("slow", seed=4, periods=12, rows=300, values=4)


def learn(tracker, world, periods):
    for t in periods:
        rows = world.period(t)
        tracker.update(rows.score, rows.label, field=rows.field, period=t)
    return tracker


@pytest.mark.filterwarnings("ignore:the intervals of a tracker of platt-field")
@pytest.mark.parametrize("parameters", [{}, {"delay": 2}, {"method": "platt-field", "memories": [1, 8]}])
def test_saving_in_between_changes_nothing(world, tmp_path, parameters):
    straight = learn(mcnet.Tracker(**parameters), world, range(12))
    tracker = mcnet.Tracker(**parameters)
    for t in range(12):
        learn(tracker, world, [t])
        if t in (0, 1, 5, 8):
            tracker.save(tmp_path / "state")
            tracker = mcnet.Tracker.load(tmp_path / "state")
    np.testing.assert_allclose(tracker.predict(SCORES, FIELD), straight.predict(SCORES, FIELD), rtol=1e-9)
    for one, other in zip(tracker.interval(SCORES, FIELD), straight.interval(SCORES, FIELD), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert tracker.explain().table.drop("value", "before").equals(straight.explain().table.drop("value", "before"))
    assert repr(tracker) == repr(straight)


def test_a_tracker_without_a_period_can_be_saved(tmp_path):
    mcnet.Tracker(delay=1).save(tmp_path / "state")
    loaded = mcnet.Tracker.load(tmp_path / "state")
    assert loaded.delay == 1
    assert loaded.predict([0.3]).tolist() == [0.3]


def test_saving_again_removes_what_is_no_longer_needed(world, tmp_path):
    tracker = learn(mcnet.Tracker(), world, range(2))
    tracker.save(tmp_path / "state")
    before = {path.name for path in (tmp_path / "state").iterdir()}
    learn(tracker, world, [2]).save(tmp_path / "state")
    after = {path.name for path in (tmp_path / "state").iterdir()}
    assert len(after) == len(before) == 6
    assert not (after & before) - {"tracker.json"}


def test_an_interrupted_save_leaves_the_tracker_before(world, tmp_path, monkeypatch):
    tracker = learn(mcnet.Tracker(), world, range(2))
    tracker.save(tmp_path / "state")
    before = tracker.predict(SCORES, FIELD)
    learn(tracker, world, [2])
    monkeypatch.setattr("mcnet.tracking.tracker_file.checksum", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tracker.save(tmp_path / "state")
    monkeypatch.undo()
    np.testing.assert_array_equal(mcnet.Tracker.load(tmp_path / "state").predict(SCORES, FIELD), before)


@pytest.mark.parametrize("version", [3, 99, None, "4"])
def test_a_state_of_another_version_is_refused_with_what_to_do(world, tmp_path, version):
    learn(mcnet.Tracker(), world, range(2)).save(tmp_path / "state")
    path = tmp_path / "state" / "tracker.json"
    document = {**json.loads(path.read_text()), "version": version}
    del document["checksum"]
    path.write_text(json.dumps({**document, "checksum": checksum(document)}))
    with pytest.raises(mcnet.FileFormatError, match=rf"is of version {version}, .* reads 4; .*Tracker.from_journal"):
        mcnet.Tracker.load(tmp_path / "state")


def test_altered_files_are_refused(world, tmp_path):
    folder = tmp_path / "state"
    tracker = learn(mcnet.Tracker(), world, range(2))
    tracker.save(folder)
    document = folder / "tracker.json"
    text = document.read_text()
    content = json.loads(text)
    content["position"] = 17.0
    document.write_text(json.dumps(content))
    with pytest.raises(mcnet.FileFormatError, match="checksum"):
        mcnet.Tracker.load(folder)
    document.write_text(text[:-20])
    with pytest.raises(mcnet.FileFormatError, match="not complete JSON"):
        mcnet.Tracker.load(folder)
    document.write_text(text)
    sketches = sorted(folder.glob("memory-*.parquet"))
    content = sketches[0].read_bytes()
    sketches[0].write_bytes(sketches[1].read_bytes())
    with pytest.raises(mcnet.FileFormatError, match="other rows"):
        mcnet.Tracker.load(folder)
    sketches[0].write_bytes(content[:-40])
    with pytest.raises(mcnet.FileFormatError):
        mcnet.Tracker.load(folder)
    sketches[0].unlink()
    with pytest.raises(mcnet.FileFormatError, match="there is no file"):
        mcnet.Tracker.load(folder)


def test_folders_that_are_something_else_are_refused(tmp_path):
    with pytest.raises(mcnet.InputError, match="there is no tracker"):
        mcnet.Tracker.load(tmp_path)
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(mcnet.InputError, match="other files"):
        mcnet.Tracker().save(tmp_path)
    with pytest.raises(mcnet.InputError, match="is a file"):
        mcnet.Tracker().save(tmp_path / "letter.txt")


# -- journals ---------------------------------------------------------------------------------------------------------


def add(journal, world, t, source="log", part=slice(None)):
    rows = world.period(t)
    journal.add(mcnet.Sketch.from_rows(rows.score[part], rows.label[part], field=rows.field[part]), t, source=source)


def test_replaying_a_journal_is_updating(world, tmp_path):
    journal = mcnet.Journal(tmp_path / "journal")
    for t in (3, 0, 2, 1):
        add(journal, world, t)
    replayed = mcnet.Tracker.from_journal(journal)
    updated = mcnet.Tracker()
    for period, sketch in journal.sketches():
        updated.update_sketch(sketch, period)
    np.testing.assert_allclose(replayed.predict(SCORES, FIELD), updated.predict(SCORES, FIELD), rtol=1e-12)
    assert repr(replayed) == "Tracker(4 periods until 3, 4 contexts of field)"


def test_following_a_journal_reads_only_what_is_new(world, tmp_path, monkeypatch):
    journal = mcnet.Journal(tmp_path / "journal")
    for t in range(3):
        add(journal, world, t)
    tracker = mcnet.Tracker.from_journal(journal)
    tracker.save(tmp_path / "state")
    tracker = mcnet.Tracker.load(tmp_path / "state")
    add(journal, world, 3)
    add(journal, world, 4)
    read, sketches = [], mcnet.Journal.sketches

    def watched(self, since=None, until=None):
        for period, sketch in sketches(self, since, until):
            read.append(period)
            yield period, sketch

    monkeypatch.setattr(mcnet.Journal, "sketches", watched)
    tracker.follow(journal)
    assert read == ["3", "4"]
    tracker.follow(journal)
    assert read == ["3", "4"]
    expected = mcnet.Tracker.from_journal(journal).predict(SCORES, FIELD)
    np.testing.assert_allclose(tracker.predict(SCORES, FIELD), expected, rtol=1e-9)


def test_late_rows_and_periods_out_of_order_are_replayed(world, tmp_path):
    journal = mcnet.Journal(tmp_path / "journal")
    for t in (0, 1, 3):
        add(journal, world, t, part=slice(0, 200))
    tracker = mcnet.Tracker.from_journal(journal)
    add(journal, world, 2)
    tracker.follow(journal)
    add(journal, world, 1, source="late", part=slice(200, None))
    tracker.follow(journal)
    expected = mcnet.Tracker.from_journal(journal)
    np.testing.assert_allclose(tracker.predict(SCORES, FIELD), expected.predict(SCORES, FIELD), rtol=1e-12)
    assert repr(tracker) == "Tracker(4 periods until 3, 4 contexts of field)"
