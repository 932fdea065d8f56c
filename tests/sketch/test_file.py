"""Sketch files: what is loaded is what was saved, and any other content is refused in one sentence."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import mcnet
from mcnet.sketch import sketch_file
from mcnet.sketch.scan import is_sketch_file


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "s.parquet"
    mcnet.Sketch.from_rows([0.1, 0.2, 0.9], [0, 1, 1], field={"country": ["NL", None, ""]}, folds=2).save(path)
    return path


def sealed(path, **changes):
    """Write a file again with other columns or another description, and the checksum that belongs to it."""
    about = json.loads(pl.read_parquet_metadata(path)["mcnet.sketch"])
    frame = pl.read_parquet(path)
    if "about" in changes:
        about = changes.pop("about")(about)
    if "drop" in changes:
        frame = frame.drop(changes.pop("drop"))
    frame, text = frame.with_columns(**changes), json.dumps(about)
    digest = sketch_file._digest(text.encode(), frame)
    frame.write_parquet(path, metadata={"mcnet.sketch": text, "mcnet.digest": digest})


def test_missing_and_empty_values_are_kept_apart(path):
    assert mcnet.Sketch.load(path).contexts.values == (("", "NL", None),)


def test_every_single_bit_flip_is_refused_unless_the_file_says_the_same(path):
    original, saved, refused = path.read_bytes(), mcnet.Sketch.load(path), 0
    places = np.random.default_rng(0).permutation(8 * len(original))[:2_000]
    # Half of them in the description at the end, where a reader of Parquet looks first.
    places[::2] = 8 * len(original) - 1 - np.random.default_rng(1).permutation(8 * 1_500)[:1_000]
    for place in places.tolist():
        altered = bytearray(original)
        altered[place // 8] ^= 1 << place % 8
        path.write_bytes(altered)
        try:
            found = mcnet.Sketch.load(path)
        except mcnet.FileFormatError as error:
            refused += "s.parquet" in str(error)
        else:
            assert found == saved
            assert (found.rows, found.columns, found.sources) == (saved.rows, saved.columns, saved.sources)
    assert refused > 1_000


def test_files_that_are_cut_short_are_refused(path):
    original = path.read_bytes()
    for size in (0, 1, 4, 8, 100, len(original) // 2, len(original) - 1):
        path.write_bytes(original[:size])
        with pytest.raises(mcnet.FileFormatError):
            mcnet.Sketch.load(path)


def test_columns_that_were_altered_are_refused(path):
    about = {name: text for name, text in pl.read_parquet_metadata(path).items() if name.startswith("mcnet")}
    pl.read_parquet(path).with_columns(weight=2 * pl.col("weight")).write_parquet(path, metadata=about)
    with pytest.raises(mcnet.FileFormatError, match="do not match its checksum"):
        mcnet.Sketch.load(path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"weight": pl.lit(0.0)}, "no weight"),
        ({"weight": pl.lit(float("nan"))}, "missing, or beyond the largest number"),
        ({"positives": pl.lit(-1.0)}, "positives"),
        ({"positives": pl.lit(2.0)}, "positives"),
        ({"position": pl.lit(-5.0)}, "position"),
        ({"position": pl.lit(2.0**21)}, "position"),
        ({"fold": pl.lit(2)}, "fold"),
        ({"cell": pl.lit(99_999)}, "cell"),
        ({"weight": pl.lit("heavy")}, "cannot be used"),
        ({"drop": "positives"}, "lacks the column 'positives'"),
        ({"about": lambda about: about | {"version": 6}}, "version 6, and this mcnet reads 1: make it again"),
        ({"about": lambda about: about | {"version": 3, "checksum": "0"}}, "version 3, and this mcnet reads 1"),
        ({"about": lambda about: {"version": 1}}, "cannot be used"),
        ({"about": lambda about: about | {"resolution": "fine"}}, "resolution"),
        ({"about": lambda about: about | {"score_type": "odds"}}, "odds"),
        ({"about": lambda about: about | {"fields": None}}, "cannot be used"),
    ],
)
def test_contents_that_make_no_sense_are_refused_with_a_right_checksum(path, columns, message):
    sealed(path)
    mcnet.Sketch.load(path)
    sealed(path, **columns)
    with pytest.raises(mcnet.FileFormatError, match=message):
        mcnet.Sketch.load(path)


def test_a_sketch_that_is_saved_and_loaded_is_the_same(path, tmp_path):
    one = mcnet.Sketch.load(path)
    one.save(tmp_path / "again.parquet")
    other = mcnet.Sketch.load(tmp_path / "again.parquet")
    assert other == one
    assert (other.sources, other.columns, other.score_type) == (one.sources, one.columns, one.score_type)


def test_other_files_are_refused(tmp_path, path):
    with pytest.raises(mcnet.InputError, match="there is no file"):
        mcnet.Sketch.load(tmp_path / "none.parquet")
    pl.DataFrame({"mcnet.sketch": ["mcnet.sketch"]}).write_parquet(tmp_path / "other.parquet")
    assert not is_sketch_file(tmp_path / "other.parquet")
    with pytest.raises(mcnet.FileFormatError, match="not a sketch"):
        mcnet.Sketch.load(tmp_path / "other.parquet")
    (tmp_path / "text.parquet").write_text("not Parquet at all")
    with pytest.raises(mcnet.FileFormatError, match="cannot be read as Parquet"):
        mcnet.Sketch.load(tmp_path / "text.parquet")


def test_a_failed_save_leaves_the_old_file_and_no_litter(path, monkeypatch):
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise OSError("a broken disk")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="a broken disk"):
        mcnet.Sketch.from_rows([0.5], [1]).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["s.parquet"]


def test_a_folder_that_is_not_there_or_a_folder_as_target_is_refused(tmp_path):
    one = mcnet.Sketch.from_rows([0.5], [1])
    with pytest.raises(mcnet.InputError, match="does not exist"):
        one.save(tmp_path / "none" / "s.parquet")
    with pytest.raises(mcnet.InputError, match="is a folder"):
        one.save(tmp_path)


class TestSources:
    """A sketch knows what it was made from."""

    @pytest.fixture
    def logs(self, tmp_path):
        rng = np.random.default_rng(0)
        for name in "abc":
            frame = pl.DataFrame({"s": rng.random(100), "y": rng.integers(0, 2, 100)})
            frame.write_parquet(tmp_path / f"{name}.parquet")
        return tmp_path

    def scan(self, logs, *names):
        return mcnet.scan([logs / f"{name}.parquet" for name in names], score="s", label="y")

    def test_a_file_that_is_in_both_sketches_is_noticed(self, logs):
        one, other = self.scan(logs, "a", "b"), self.scan(logs, "b", "c")
        assert len(one.sources) == 2
        with pytest.warns(mcnet.CalibrationWarning, match="1 of the 3 sources of these sketches are in more than one"):
            total = one + other
        assert len(total.sources) == 3

    def test_rows_of_one_file_that_meet_different_conditions_add_up_without_a_word(self, logs):
        low, high = (
            mcnet.scan(logs / "a.parquet", score="s", label="y", where=where) for where in ("s < 0.5", "s >= 0.5")
        )
        assert low + high == self.scan(logs, "a")

    def test_different_files_add_up_without_a_word(self, logs):
        total = mcnet.Sketch.merged([self.scan(logs, name) for name in "abc"])
        assert total == self.scan(logs, "a", "b", "c")
        assert total.sources == self.scan(logs, "a", "b", "c").sources

    def test_sources_go_into_the_file_and_through_views_and_decay(self, logs, tmp_path):
        one = self.scan(logs, "a")
        one.save(tmp_path / "s.parquet")
        for other in (mcnet.Sketch.load(tmp_path / "s.parquet"), 0.5 * one, one.pooled()):
            assert other.sources == one.sources
            with pytest.warns(mcnet.CalibrationWarning, match="count more than once"):
                one + other

    def test_the_same_rows_in_memory_are_noticed(self):
        rows = (np.linspace(0.1, 0.9, 100), np.arange(100) % 2)
        with pytest.warns(mcnet.CalibrationWarning, match="count more than once"):
            mcnet.Sketch.from_rows(*rows) + mcnet.Sketch.from_rows(*rows)

    def test_the_folds_of_one_sketch_add_up_without_a_word(self, logs):
        sketch = mcnet.scan(logs / "a.parquet", score="s", label="y", folds=2)
        rest, part = sketch.fold_parts(0)
        assert rest + part == sketch

    def test_copies_among_the_files_of_a_scan_are_noticed(self, logs):
        (logs / "copy.parquet").write_bytes((logs / "a.parquet").read_bytes())
        with pytest.warns(mcnet.CalibrationWarning, match="1 of the 2 files are copies"):
            self.scan(logs, "a", "copy")
