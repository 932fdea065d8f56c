"""Run a command: every error becomes one line for people and an exit code for scripts."""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from mcnet._shared.atomic_files import is_disk_full
from mcnet._shared.terminal_text import safe_text
from mcnet.cli.encoding import replace_what_cannot_be_shown
from mcnet.cli.signals import Terminated, orderly_termination

__all__ = ["BUSY", "DISK_FULL", "INTERRUPTED", "THRESHOLD_NOT_MET", "UNEXPECTED", "UNUSABLE", "run"]

THRESHOLD_NOT_MET = 1
UNUSABLE = 2
UNEXPECTED = 70  # EX_SOFTWARE of sysexits.h
DISK_FULL = 74  # EX_IOERR: nobody has made a mistake, but there is no space to write to
BUSY = 75  # EX_TEMPFAIL: trying again later will do
INTERRUPTED = 130

_ANYWHERE = {
    "--debug": 0,
    "--no-config": 0,
    "--config": 1,
    "--drop-missing": 0,
    "--where": 1,
    "--separator": 1,
    "--storage-option": 1,
}
"""Options of `mcnet` itself that may follow the command, too, and how many words they take."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Returns
    -------
    0 if all went well, 1 if a threshold was not met, 2 for wrong use or input, 70 for an unexpected error, 74 if the
    disk is full, 75 if another process is using the same files, 130 after an interrupt, 143 after SIGTERM and 129
    after SIGHUP. A command may have further codes, which its help names.
    """
    words = _options_first(list(sys.argv[1:] if arguments is None else arguments) or ["--help"])
    output = sys.stdout
    replace_what_cannot_be_shown()
    try:
        with orderly_termination(), warnings.catch_warnings():
            from typer.main import get_command

            from mcnet.cli.app import app
            from mcnet.errors import CalibrationWarning

            warnings.simplefilter("always", CalibrationWarning)
            warnings.showwarning = _warnings_once()
            result = get_command(app).main(args=words, prog_name="mcnet", standalone_mode=False)
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except Terminated as signal:
        return signal.exit_code
    except BrokenPipeError:
        return _reader_left(output)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # Typer ends with 1 then, which means something else here
            return _reader_left(output)
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # a panic of Polars
            raise
        return _failed(error, debug="--debug" in words)


def _options_first(words: list[str]) -> list[str]:
    """Move the options of `mcnet` itself in front of the command."""
    first, rest = [], []
    end = words.index("--") if "--" in words else len(words)
    place = 0
    while place < end:
        takes = _ANYWHERE.get(words[place].partition("=")[0])
        if takes is None:
            rest.append(words[place])
            place += 1
        else:
            number = 1 + (0 if "=" in words[place] else takes)
            first += words[place : min(place + number, end)]
            place += number
    return [*first, *rest, *words[end:]]


def _reader_left(output: Any) -> int:
    """Leave quietly, since the reader (head, less) has seen enough; closing stdout must not print a traceback."""
    sys.stdout = output
    os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())
    return 0


def _failed(error: BaseException, *, debug: bool) -> int:
    """Print one line about an error, with the traceback if it was asked for; return the exit code."""
    reason = _reason(error)
    if debug:
        import traceback

        print(safe_text("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    if reason is not None:
        _say(f"mcnet: {reason}")
        if is_disk_full(error):
            return DISK_FULL
        return BUSY if type(error).__name__ == "BusyError" else UNUSABLE
    found = ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))
    hint = "" if debug else "; run it again with --debug to see where, and please report it"
    _say(f"mcnet: unexpected error: {found[:_LONGEST_LINE]}{hint}")
    return UNEXPECTED


_LONGEST_LINE = 500


def _reason(error: BaseException) -> str | None:
    """Return one line about an error that a person can do something about, None for a fault of ours."""
    from mcnet.errors import McnetError

    if isinstance(error, McnetError):
        text = str(error)
    elif isinstance(error, OSError):
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    elif isinstance(error, MemoryError):
        text = "there is not enough memory for this"
    elif hasattr(error, "format_message"):  # what Typer raises for words it does not understand
        text = error.format_message()
    else:
        return None
    return _in_words_of_the_shell(text)


def _in_words_of_the_shell(text: str) -> str:
    """Return a message on one line, with its advice as the command line has it."""
    for python, shell in _IN_WORDS_OF_THE_SHELL.items():
        text = text.replace(python, shell)
    return " ".join(text.split())


_IN_WORDS_OF_THE_SHELL = {
    "with score_type='logit'": "with --logits",
    "score_type='probability' if": "--probabilities if",
    "score_type='logit' if": "--logits if",
    "pass field=": "pass --field",
    "pass replace=True": "pass --replace",
    "with mcnet.scan(..., drop_missing=True)": "with --drop-missing",
    "(source='orders')": "(--source orders)",
    "pass separator=": "pass --separator ",
    "pass allow='weight'": "pass --allow weight",
    "pass allow='period'": "pass --allow period",
    "make one with mcnet.scan": "make one with mcnet sketch",
    "name its column of scores": "name its column of scores with --score",
    "name its column of labels": "name its column of labels with --label",
    "pass to=: ": "pass --to: ",
}
"""What other packages advise to callers of functions, as the command line has it."""


def _warnings_once() -> Callable[..., None]:
    """Return a function that prints each warning once, on one line of stderr."""
    seen: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = _in_words_of_the_shell(str(message))
        if text not in seen:
            seen.add(text)
            _say(f"warning: {text}")

    return show


def _say(text: str) -> None:
    print(safe_text(text), file=sys.stderr)
