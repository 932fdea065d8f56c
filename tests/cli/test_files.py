import importlib
import os

import polars as pl
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


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize("command", ["fit", "compare", "sketch", "evaluate", "apply", "backtest"])
def test_a_log_that_changes_while_it_is_read_is_named_and_nothing_is_written(
    mcnet, model, frame, columns, tmp_path, monkeypatch, command, ending
):
    folder = tmp_path / "work"
    folder.mkdir()
    log = folder / f"grows.{ending}"
    hours = pl.datetime_range(pl.datetime(2026, 11, 16), pl.datetime(2026, 11, 16, 7), "1h", eager=True)
    rows = frame.with_columns(ts=hours.gather(pl.Series(range(len(frame))) % 8))
    write = {"csv": rows.write_csv, "parquet": rows.write_parquet, "jsonl": rows.write_ndjson}[ending]
    write(log)
    opened = importlib.import_module("mcnet.model.apply" if command == "apply" else "mcnet.sketch.scan")
    open_log = opened.open_log

    def growing(*given, **options):
        found = open_log(*given, **options)
        if command != "apply" and not options:
            return found  # only its columns are asked for
        if ending == "parquet":  # written anew, as a file that is renamed into its place
            write(folder.parent / "other")
            (folder.parent / "other").rename(log)
        else:
            with log.open("a") as file:
                file.write('{"pctr": 0.1' if ending == "jsonl" else "0.1,")
        return found

    monkeypatch.setattr(opened, "open_log", growing)
    output = folder / {"sketch": "out.parquet", "apply": "out.parquet"}.get(command, "out.json")
    words = {
        "fit": ("fit", log, *columns, "--method", "platt", "-o", output),
        "compare": ("compare", log, *columns, "--method", "platt", "--report", folder / "page.html"),
        "sketch": ("sketch", log, *columns, "-o", output),
        "evaluate": ("evaluate", log, *columns, "--model", model),
        "apply": ("apply", model, log, "-o", output),
        "backtest": ("backtest", log, *columns, "--time", "ts", "--every", "1h", "--report", folder / "page.html"),
    }[command]
    done = mcnet(*words)
    assert done.code == 2, done.err
    assert f"mcnet: {log} changed while it was read (" in done.err
    assert [path.name for path in folder.iterdir()] == [log.name]
