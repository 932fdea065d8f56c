from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from mcnet.errors import InputError
from mcnet.rows.logs import expand_paths
from mcnet.rows.periods import period_to_show
from mcnet.rows.spec import RowSpec, field_names
from mcnet.sketch.scan import are_sketches, columns_of, scan, sketch_files


def sketch_of(files, *, field=None, **options):
    return sketch_files(expand_paths(files), RowSpec(fields=field_names(field), **options))


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
    assert sketch_of(log, score="s", label="y", field=["a"]) == scan(log, score="s", label="y", field="a")


def test_sketches_are_added_up_and_reduced_to_the_fields_asked_for(log, tmp_path):
    paths, halves = [tmp_path / "one.parquet", tmp_path / "two.parquet"], []
    for rows, path in zip((pl.read_parquet(log)[:1000], pl.read_parquet(log)[1000:]), paths, strict=True):
        halves.append(scan(rows, score="s", label="y", field=["a", "b"]))
        halves[-1].save(path)
    sketch = halves[0]
    assert are_sketches(paths)
    assert not are_sketches([log])
    assert sketch_of(paths) == halves[0] + halves[1] == scan(log, score="s", label="y", field=["a", "b"])
    assert sketch_of(paths[0], field=["b"]) == sketch.only("b")
    assert sketch_of(paths[0], folds=4).folds == 4


def test_what_was_settled_when_the_sketch_was_made_cannot_be_asked_again(log, tmp_path):
    path = tmp_path / "one.parquet"
    scan(log, score="s", label="y").save(path)
    for asked in ({"weight": "w"}, {"negatives_kept": 0.1}, {"score_type": "logit"}, {"resolution": 32}):
        with pytest.raises(InputError, match="saved sketch"):
            sketch_of(path, **asked)
    with pytest.raises(InputError, match="no field 'a'"):
        sketch_of(path, field=["a"])
    with pytest.raises(InputError, match="a sketch and"):
        sketch_of([path, log], score="s", label="y")
    with pytest.raises(InputError, match="column of scores"):
        sketch_of(log)


@pytest.mark.filterwarnings("ignore:.*which were read as logits")
def test_a_sketch_remembers_how_its_rows_were_read(log, tmp_path):
    def known(sketch):
        return sketch.columns, sketch.score_type, sketch.negatives_kept

    read = ({"score": "s", "label": "y"}, "probability", 0.5)
    sketch = scan(log, score="s", label="y", field=["a", "b"], folds=2, negatives_kept=0.5)
    assert known(sketch) == read
    for other in (sketch.pooled(), sketch.unfolded(), 2 * sketch, sketch.fold_parts(0)[0]):
        assert known(other) == read
    sketch.save(tmp_path / "s.parquet")
    assert known(sketch_of(tmp_path / "s.parquet")) == read
    # What two sketches do not agree on is not known of their sum.
    rows = pl.read_parquet(log).rename({"y": "z"})
    other = scan(rows, score="s", label="z", field=["a", "b"], folds=2)
    assert known(sketch + other) == ({"score": "s"}, "probability", None)
    logits = scan(rows, score="s", label="z", field=["a", "b"], folds=2, score_type="logit")
    assert logits.score_type == "logit"
    with pytest.raises(InputError, match="different score type do not add up: probability and logit"):
        sketch + logits


def test_periods_cut_while_scanning_are_those_cut_from_the_finished_sketch(log, tmp_path):
    begin = datetime(2024, 2, 28)
    times = [None if row == 7 else begin + timedelta(minutes=7 * row) for row in range(3000)]
    for ending in ("parquet", "csv"):
        path = tmp_path / f"timed.{ending}"
        getattr(pl.read_parquet(log).with_columns(t=pl.Series(times)), f"write_{ending}")(path)
        cut = sketch_of(path, score="s", label="y", field=["t", "a"], every={"t": "1d"})
        whole = sketch_of(path, score="s", label="y", field=["t", "a"])
        assert cut == whole.in_periods("t", "1d")
        assert cut.contexts.values[0][:3] == ("2024-02-28", "2024-02-29", "2024-03-01")
        assert cut.contexts.values[0][-1] is None
        assert cut.only("a") == whole.only("a")
        whole.save(tmp_path / "s.parquet")
        assert sketch_of(tmp_path / "s.parquet", every={"t": "1d"}) == cut
        for source in (path, tmp_path / "s.parquet"):
            assert [period_to_show(columns_of(expand_paths(str(source)), name)) for name in "ta"] == ["6h", None]
            columns = {"score": "s", "label": "y"} if source == path else {}
            automatic = sketch_of(source, **columns, field=["t", "a"], every={"t": "6h"})
            assert automatic == whole.in_periods("t", "6h")
    with pytest.raises(InputError, match="not a field of this scan"):
        scan(log, score="s", label="y", every={"t": "1d"})
