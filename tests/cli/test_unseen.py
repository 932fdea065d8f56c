"""Rows with field values that the model has not seen are counted and said."""

import polars as pl
import pytest


@pytest.fixture
def renamed(frame, tmp_path):
    """A log in which one country has another name in a tenth of the rows, and one row in a thousand of it is new."""
    path = tmp_path / "renamed.parquet"
    row = pl.int_range(pl.len())
    frame.with_columns(
        country=pl.when(row % 10 == 0).then(pl.lit("somewhere")).otherwise(pl.col("country"))
    ).write_parquet(path)
    return path


@pytest.fixture
def barely(frame, tmp_path):
    path = tmp_path / "barely.csv"
    row = pl.int_range(pl.len())
    frame.with_columns(
        country=pl.when(row % 1000 == 0).then(pl.lit("somewhere")).otherwise(pl.col("country"))
    ).write_csv(path)
    return path


@pytest.mark.parametrize("command", ["apply", "evaluate"])
def test_the_share_of_unseen_values_is_told_and_can_fail(mcnet, log, model, renamed, barely, tmp_path, command):
    def run(path, *more):
        if command == "apply":
            return mcnet("apply", model, path, "-o", tmp_path / "out.parquet", "--force", *more)
        return mcnet("evaluate", path, "--model", model, *more)

    done = run(renamed, "--json")
    assert done.document["unseen"] == {"share": pytest.approx(0.1), "by_field": {"country": pytest.approx(0.1)}}
    assert "warning: 10.000% of the rows have a field value that the model has not seen (country 10.000%)" in done.err
    assert run(renamed, "--fail-if", "unseen>0.05").code == 1
    assert run(renamed, "--fail-if", "unseen>0.2").code == 0
    done = run(barely, "--json")
    assert done.document["unseen"]["share"] == pytest.approx(0.001)
    assert ("0.100% of the rows" in done.err, "warning" in done.err) == (True, False)
    done = run(log, "--json")
    assert done.document["unseen"]["share"] == 0.0
    assert "not seen" not in done.err


def test_unseen_needs_a_model(mcnet, log, columns):
    assert "unseen" in mcnet("evaluate", log, *columns, "--fail-if", "unseen>0.1").err


def test_apply_knows_no_other_threshold(mcnet, log, model, tmp_path):
    done = mcnet("apply", model, log, "-o", tmp_path / "out.parquet", "--fail-if", "pcoc>1")
    assert (done.code, "there are unseen" in done.err) == (2, True)
