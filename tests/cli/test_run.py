import subprocess
import sys

import pytest

import mcnet as library


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

    monkeypatch.setattr("mcnet.calibrators.registry.methods", broken)
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

    monkeypatch.setattr("mcnet.calibrators.registry.methods", broken)
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


@pytest.mark.parametrize("module", ["mcnet", "mcnet.cli"])
def test_the_modules_run_as_programs(module, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", module, "show", "nowhere.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "mcnet: there is no file nowhere.json\n")


def test_a_reader_that_stops_early_is_no_error(tmp_path):
    # The second one prints far more than a pipe holds, so that it fails in the middle of printing.
    many = "from mcnet.cli.printing import Printer; Printer.result = lambda *_: print('x' * 10**7)"
    run = "from mcnet.cli.run import run; raise SystemExit(run(['methods']))"
    for words in ("-m mcnet methods --json", f'-c "{many}; {run}"'):
        command = f"{sys.executable} {words} | head -c 5; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0
    assert "Traceback" not in done.stderr
