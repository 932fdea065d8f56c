import numpy as np
import polars as pl
import pytest

from mcnet.errors import InputError
from mcnet.sketch.gathering import gather, is_finished
from mcnet.sketch.scanning import scan


@pytest.fixture
def log(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "log.parquet"
    pl.DataFrame(
        {
            "s": rng.uniform(0.01, 0.5, 3000),
            "y": rng.integers(0, 2, 3000),
            "a": rng.choice(["x", "y"], 3000),
            "b": rng.choice(["u", "v"], 3000),
        }
    ).write_parquet(path)
    return path


def test_a_log_is_scanned(log):
    assert gather(log, score="s", label="y", field=["a"]) == scan(log, score="s", label="y", field="a")


def test_sketches_are_added_up_and_reduced_to_the_fields_asked_for(log, tmp_path):
    sketch = scan(log, score="s", label="y", field=["a", "b"])
    paths = [tmp_path / "one.parquet", tmp_path / "two.parquet"]
    for path in paths:
        sketch.save(path)
    assert is_finished(paths)
    assert not is_finished(log)
    assert gather(paths) == sketch + sketch
    assert gather(paths[0], field=["b"]) == sketch.only("b")
    assert gather(paths[0], folds=4).folds == 4


def test_what_was_settled_when_the_sketch_was_made_cannot_be_asked_again(log, tmp_path):
    path = tmp_path / "one.parquet"
    scan(log, score="s", label="y").save(path)
    for asked in ({"weight": "w"}, {"negatives_kept": 0.1}, {"score_type": "logit"}, {"resolution": 32}):
        with pytest.raises(InputError, match="finished sketch"):
            gather(path, **asked)
    with pytest.raises(InputError, match="no field 'a'"):
        gather(path, field=["a"])
    with pytest.raises(InputError, match="a sketch and"):
        gather([path, log], score="s", label="y")
    with pytest.raises(InputError, match="column of scores"):
        gather(log)
