"""What is printed: on terminals of every encoding, and with field values of every kind."""

import io
import json
import os
import subprocess
import sys

import polars as pl
import pytest

from mcnet.cli.run import run

COMMANDS = {
    "methods": ("methods",),
    "show": ("show", "model.json"),
    "demo": ("demo", "--rows", "1000"),
    "evaluate": ("evaluate", "log.parquet", "--model", "model.json"),
    "compare": ("compare", "log.parquet", "--score", "s", "--label", "y", "--field", "f", "--method", "platt-field"),
    "fit": ("fit", "log.parquet", "--score", "s", "--label", "y", "--method", "platt", "-o", "other.json"),
    "apply": ("apply", "model.json", "log.parquet", "-o", "out.parquet"),
    "sketch": ("sketch", "log.parquet", "--score", "s", "--label", "y", "--field", "f", "-o", "s.parquet"),
    "merge": ("merge", "part.parquet", "-o", "merged.parquet"),
    "export": ("export", "model.json", "--to", "c"),
}
NASTY = {
    "\x1b[31mred\x1b]0;title\x07": r"\x1b[31mred\x1b]0;title\x07",
    "two\nlines\r": r"two\nlines\r",
    "right\u202eleft": r"right\u202eleft",
    "\x9b31m": r"\x9b31m",
    "[bold]:smile:[/bold]": "[bold]:smile:[/bold]",
    "": '""',
    " ": '" "',
    "東京": "東京",
    "😀": "😀",
}


@pytest.fixture(scope="module")
def nasty(tmp_path_factory):
    """A folder with a log whose field values are nasty, and a model and a sketch of it."""
    folder = tmp_path_factory.mktemp("nasty")
    values = list(NASTY) * 200
    rows = range(len(values))
    frame = pl.DataFrame({"s": [(1 + i % 50) / 60 for i in rows], "y": [int(i % 7 < 2) for i in rows], "f": values})
    frame.write_parquet(folder / "log.parquet")
    words = ("log.parquet", "--score", "s", "--label", "y", "--field", "f", "-q")
    before = os.getcwd()
    os.chdir(folder)
    try:
        assert run(["fit", *words, "--method", "platt-field", "-o", "model.json"]) == 0
        assert run(["sketch", *words, "-o", "part.parquet"]) == 0
    finally:
        os.chdir(before)
    return folder


def unsafe(text):
    return [letter for letter in text if letter != "\n" and (ord(letter) < 32 or 127 <= ord(letter) < 160)]


@pytest.mark.parametrize("command", ["show", "evaluate", "compare"])
def test_field_values_cannot_steer_the_terminal(mcnet, nasty, monkeypatch, command):
    monkeypatch.chdir(nasty)
    more = ("--contexts", "20") if command == "show" else ()
    done = mcnet(*COMMANDS[command], *more)
    assert done.code == 0, done.err
    assert unsafe(done.out + done.err) == []
    assert "\u202e" not in done.out
    if command != "compare":
        for shown in NASTY.values():
            assert shown in done.out
        lines = [line for line in done.out.splitlines() if line.startswith(tuple(NASTY.values()))]
        assert len(lines) == len(NASTY)
    done = mcnet(*COMMANDS[command], "--json")
    assert unsafe(done.out) == []
    assert "\u202e" not in done.out
    if command == "evaluate":
        assert set(done.document["fields"]["f"]["table"]["value"]) == set(NASTY)


def test_columns_of_wide_characters_are_aligned(mcnet, nasty, monkeypatch):
    from rich.cells import cell_len

    monkeypatch.chdir(nasty)
    for command in ("show", "evaluate"):
        lines = mcnet(*COMMANDS[command], *(("--contexts", "20") if command == "show" else ())).out.splitlines()
        widths = {cell_len(line.rstrip()) for line in lines if line.startswith(tuple(NASTY.values()))}
        assert len(widths) == 1


def test_names_in_messages_cannot_steer_the_terminal(mcnet, nasty):
    done = mcnet("fit", nasty / "log.parquet", "--score", "\x1b[2J", "--label", "y", "-o", nasty / "x.json")
    assert (done.code, unsafe(done.err)) == (2, [])
    done = mcnet("show", nasty / "\x1b[2J.json")
    assert (done.code, unsafe(done.err)) == (2, [])


def printed(monkeypatch, encoding, words):
    """Run a command on a terminal of an encoding; return its code and what it printed, as bytes."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", streams[0])
        patch.setattr("sys.stderr", streams[1])
        code = run(list(words))
        for stream in streams:
            stream.flush()
    return code, *(stream.buffer.getvalue() for stream in streams)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_works_on_a_terminal_of_few_characters(nasty, monkeypatch, command, encoding):
    monkeypatch.chdir(nasty)
    monkeypatch.setattr("mcnet.selection.registered_methods", lambda: ["base", "platt"])
    words = COMMANDS[command] + (("--force",) if command in ("fit", "apply", "sketch", "merge", "export") else ())
    code, out, err = printed(monkeypatch, encoding, words)
    assert (code, b"Traceback" in err) == (0, False), err
    for text in (out, err):
        text.decode(encoding)


def test_the_locale_c_without_utf_8_is_such_a_terminal(nasty):
    setting = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "mcnet", *COMMANDS["show"]]
    done = subprocess.run(command, cwd=nasty, env={**os.environ, **setting}, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"*" in done.stdout  # the dots of the plot
    done.stdout.decode("ascii")


@pytest.mark.parametrize("command", ["show", "evaluate"])
def test_json_is_the_same_on_a_terminal_of_few_characters(mcnet, nasty, monkeypatch, command):
    monkeypatch.chdir(nasty)
    words = (*COMMANDS[command], "--json")
    _, out, _ = printed(monkeypatch, "ascii", words)
    assert json.loads(out.decode("ascii")) == mcnet(*words).document


def test_the_help_is_plain_ascii(mcnet):
    from typer.main import get_command

    from mcnet.cli.app import app

    application = get_command(app)
    for words in ((), *((name,) for name in application.commands)):
        shown = mcnet(*words, "--help").out
        assert shown.isascii(), [letter for letter in shown if not letter.isascii()]
