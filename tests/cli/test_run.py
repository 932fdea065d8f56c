import signal
import subprocess
import sys

import polars as pl
import pytest

import mcnet as library
from mcnet.rows.locations import FORMAT_NAMES


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "nonsense"),
        (["fit"], "LOG"),
        (["fit", "log.parquet"], "--output"),
        (["fit", "log.parquet", "--nonsense"], "--nonsense"),
        (["fit", "log.parquet", "-o", "m.json", "--negatives-kept", "much"], "negatives-kept"),
        (["fit", "nowhere.parquet", "--score", "s", "--label", "l", "-o", "m.json"], "nowhere.parquet"),
        (["apply", "nowhere.json", "nowhere.parquet", "-o", "x.parquet"], "nowhere.json"),
        (["show", "nowhere.json"], "nowhere.json"),
        (["merge", "nowhere*.parquet", "-o", "all.parquet"], "nowhere*.parquet"),
        (["demo", "--rows", "3"], "1000"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_code_2(mcnet, monkeypatch, tmp_path, words, said):
    monkeypatch.chdir(tmp_path)
    done = mcnet(*words)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("mcnet: ")
    assert done.err.count("\n") == 1
    assert said in done.err


def test_files_that_are_not_what_they_say_give_one_line(mcnet, tmp_path):
    broken = tmp_path / "log.parquet"
    broken.write_bytes(b"PAR1 not really")
    listed = tmp_path / "log.json"
    listed.write_text("[]")
    for words in (
        ("fit", broken, "--score", "s", "--label", "l", "-o", tmp_path / "m.json"),
        ("evaluate", listed, "--score", "s", "--label", "l"),
        ("show", listed),
        ("show", broken),
    ):
        done = mcnet(*words)
        assert (done.code, done.err.count("\n")) == (2, 1), done.err


@pytest.mark.parametrize("fault", [ZeroDivisionError, IndexError("list index out of range"), RecursionError("a\nb")])
def test_a_fault_of_ours_is_one_line_and_code_70_with_a_traceback_for_those_who_ask(mcnet, monkeypatch, fault):
    def broken(**_: object) -> None:
        raise fault

    monkeypatch.setattr("mcnet.calibrators.methods.methods", broken)
    done = mcnet("methods")
    name = fault.__name__ if isinstance(fault, type) else type(fault).__name__
    assert (done.code, done.out, done.err.count("\n")) == (70, "", 1)
    assert [word in done.err for word in ("unexpected error", name, "--debug")] == [True] * 3
    for words in (("methods", "--debug"), ("--debug", "methods")):
        done = mcnet(*words)
        assert done.code == 70
        assert done.err.startswith("Traceback")
        assert done.err.splitlines()[-1].startswith(f"mcnet: unexpected error: {name}")


def test_a_panic_of_polars_is_an_unexpected_error(mcnet, monkeypatch):
    class PanicException(BaseException):
        pass

    def broken(**_: object) -> None:
        raise PanicException("called `Option::unwrap()` on a `None` value")

    monkeypatch.setattr("mcnet.calibrators.methods.methods", broken)
    assert mcnet("methods").code == 70


def test_debug_shows_where_wrong_input_was_found_too(mcnet, tmp_path):
    done = mcnet("show", tmp_path / "nowhere.json", "--debug")
    assert done.code == 2
    assert [done.err.startswith("Traceback"), "mcnet: there is no file" in done.err] == [True, True]


def test_warnings_are_one_line_on_stderr(mcnet, frame, tmp_path):
    import polars as pl

    path = tmp_path / "log.parquet"
    frame.with_columns(click=pl.lit(0)).write_parquet(path)
    done = mcnet("fit", path, "--score", "pctr", "--label", "click", "--method", "platt", "-o", tmp_path / "m.json")
    assert done.code == 0
    assert done.err.startswith("warning: platt: every row is negative")


def test_no_words_at_all_print_the_help(mcnet):
    done = mcnet()
    assert done.code == 0
    assert "mcnet demo" in done.out
    assert done.out == mcnet("--help").out


def all_commands():
    from typer.main import get_command

    from mcnet.cli.app import app

    for name, command in get_command(app).commands.items():
        if command.hidden:
            continue
        yield (name,)
        yield from ((name, inner) for inner in getattr(command, "commands", {}))


def test_help_has_plain_metavars_and_whole_summaries(mcnet):
    for words in ((), *all_commands()):
        shown = mcnet(*words, "--help").out
        assert not [sign for sign in ("<list", "<str>", "…") if sign in shown]
        assert not [sign for sign in ("{", "[[", "]...") if sign in shown.partition("\n\n")[0].replace("[ARGS]...", "")]
        assert "storage-\n" not in shown
    assert "Usage: mcnet fit [OPTIONS] LOG...\n" in mcnet("fit", "--help").out
    assert "Usage: mcnet sketch [OPTIONS] [LOG...]\n" in mcnet("sketch", "--help").out
    assert "Usage: mcnet show [OPTIONS] MODEL\n" in mcnet("show", "--help").out
    for command in ("fit", "apply", "backtest"):
        assert f"LOG {FORMAT_NAMES} files" in " ".join(mcnet(command, "--help").out.split())
    verify = " ".join(mcnet("journal", "--help").out.split())
    assert "verify Read every sketch of a journal and report problems; exit with 1 if there are any." in verify


def test_the_help_groups_the_commands_by_what_they_are_for(mcnet):
    shown = mcnet("--help").out
    sections = {}
    for line in shown[shown.index("\nLearn:") :].splitlines():
        if line.endswith(":") and not line.startswith(" "):
            sections[line[:-1]] = []
        elif line.strip():
            sections[[*sections][-1]].append(line.split()[0])
    assert list(sections) == ["Learn", "Use", "Over time", "Serve", "Study"]
    assert sections["Use"] == ["apply", "evaluate", "slices", "value", "show", "diff", "export"]
    assert sorted(name for names in sections.values() for name in names) == sorted(
        words[0] for words in all_commands() if len(words) == 1
    )


def test_options_for_reading_logs_are_named_and_taken_only_where_logs_are_read(mcnet, tmp_path):
    for command in ("methods", "show", "serve", "versions", "merge"):
        assert "--where" not in mcnet(command, "--help").out
    for command in (("fit",), ("evaluate",), ("journal", "add")):
        assert "--where" in mcnet(*command, "--help").out
    options = (("--where", "day = 3"), ("--drop-missing",), ("--separator", ";"), ("--storage-option", "region=x"))
    options += (("--bins", "4"),)
    parts = ("list", "verify", "compact", "remove")
    for command in (("methods",), ("show", "m.json"), *(("journal", part, "history") for part in parts)):
        name = " ".join(command[:2]) if command[0] == "journal" else command[0]
        for option in options:
            done = mcnet(*command, *option)
            assert done.code == 2
            assert done.err == f"mcnet: {option[0]} is for reading logs, and {name} reads none: leave it out\n"


def test_options_for_reading_logs_are_refused_where_the_rows_were_read_before(mcnet, log, model, columns, tmp_path):
    history, sketch = tmp_path / "ads.db", tmp_path / "sketch.parquet"
    assert mcnet("sketch", log, *columns, "-o", sketch).code == 0
    assert mcnet("journal", "add", history, sketch, "--period", "2026-11-16").code == 0
    options = (("--where", "pctr < 0.1"), ("--drop-missing",), ("--separator", ";"), ("--storage-option", "region=x"))
    options += (("--bins", "4"),)
    for source, kind in ((history, "a store"), (sketch, "a saved sketch")):
        for words in (("fit", source, "-o", tmp_path / "n.json"), ("evaluate", source), ("compare", source)):
            for option in options:
                done = mcnet(*words, *option)
                said = f"{option[0]} is for reading logs, and {source} is {kind}, whose rows were read before"
                assert (done.code, done.err) == (2, f"mcnet: {said}: leave it out\n")
    for words in (("update", history), ("diff", model, model)):
        assert mcnet(*words, "--where", "pctr < 0.1").err.startswith("mcnet: --where is for reading logs, and no ")
    assert mcnet("compare", log, *columns, "--test", sketch, "--where", "pctr < 0.1").code == 2
    assert mcnet("diff", model, model, "--log", log, "--where", "pctr < 0.1").code == 0


def test_version(mcnet):
    assert mcnet("--version").out == f"mcnet {library.__version__}\n"


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from mcnet.cli.run import run; code = run(['--help']);"
        "heavy = {'numpy', 'polars', 'sklearn', 'torch', 'numba', 'scipy', 'plotly', 'rich'} & set(sys.modules);"
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_package_runs_as_a_program(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mcnet", "show", "nowhere.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "mcnet: there is no file nowhere.json\n")


def test_a_reader_that_stops_early_is_no_error(tmp_path):
    # The second one prints far more than a pipe holds, so that it fails in the middle of printing.
    many = "from mcnet.cli.run import Printer; Printer.result = lambda *_: print('x' * 10**7)"
    run = "from mcnet.cli.run import run; raise SystemExit(run(['methods']))"
    for words in ("-m mcnet methods --json", f'-c "{many}; {run}"'):
        command = f"{sys.executable} {words} | head -c 5; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (None, 2)])
def test_a_signal_that_a_library_turned_into_an_error_has_its_exit_code(mcnet, monkeypatch, number, code):
    def interrupted(path):
        try:
            if number is not None:
                signal.raise_signal(number)
        except BaseException:
            raise pl.exceptions.ComputeError("a function of the plan failed") from None
        raise library.FileFormatError(f"{path} cannot be read")

    monkeypatch.setattr("mcnet.cli.models.load_model", interrupted)
    heard = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {each: signal.signal(each, handler) for each, handler in heard.items()}  # a job in the background is deaf
    try:
        assert mcnet("show", "model.json").code == code
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
