import os

import pytest


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_output_is_not_overwritten_unless_told(mcnet, log, model):
    before = model.read_bytes()
    words = ("fit", log, "--score", "pctr", "--label", "click", "--method", "platt", "-o", model)
    done = mcnet(*words)
    assert done.code == 2
    assert "--force" in done.err
    assert model.read_bytes() == before
    assert mcnet(*words, "--force").code == 0
    assert model.read_bytes() != before


@pytest.mark.parametrize("how", ["itself", "symlink", "hard link", "roundabout"])
def test_an_input_is_never_overwritten(mcnet, log, model, how):
    before = log.read_bytes()
    output = log.parent / "other.parquet"
    if how == "symlink":
        output.symlink_to(log)
    elif how == "hard link":
        os.link(log, output)
    else:
        output = log if how == "itself" else log.parent / "." / ".." / log.parent.name / log.name
    done = mcnet("apply", model, log, "-o", output, "--force")
    assert done.code == 2
    assert "one of the files to read" in done.err
    assert log.read_bytes() == before


def test_a_model_is_not_overwritten_by_its_own_export(mcnet, model):
    assert "one of the files to read" in mcnet("export", model, "--to", "c", "-o", model, "--force").err


def test_a_folder_that_is_not_there_is_said_before_the_work(mcnet, log, model, tmp_path):
    assert "nowhere" in mcnet("apply", model, log, "-o", tmp_path / "nowhere" / "x.parquet").err
    assert "folder" in mcnet("apply", model, log, "-o", tmp_path, "--force").err


def test_a_failure_leaves_nothing_behind(mcnet, frame, model, tmp_path):
    import polars as pl

    folder = tmp_path / "work"
    folder.mkdir()
    scores = pl.Series("pctr", [*frame["pctr"][:-1], 1.5])
    frame.with_columns(scores).write_parquet(folder / "bad.parquet")
    done = mcnet("apply", model, folder / "bad.parquet", "-o", folder / "out.parquet")
    assert done.code == 2
    assert "row 7999, 1.5" in done.err
    assert listing(folder) == ["bad.parquet"]


def test_globs_and_folders_stand_for_their_files(mcnet, frame, model, tmp_path):
    import polars as pl

    folder = tmp_path / "logs"
    folder.mkdir()
    frame.head(3000).write_csv(folder / "a.csv")
    frame.tail(5000).write_csv(folder / "b.csv")
    for number, words in enumerate(([folder], [f"{folder}/*.csv"], [folder / "a.csv", folder / "b.csv"])):
        out = tmp_path / f"{number}.parquet"
        assert mcnet("apply", model, *words, "-o", out).code == 0
        assert pl.read_parquet(out)["day"].to_list() == frame["day"].to_list()
