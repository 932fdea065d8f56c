"""Run a command so that whatever goes wrong is one line for a person and an exit code for a script."""

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

__all__ = ["BAR_NOT_MET", "INTERRUPTED", "UNUSABLE", "run"]

BAR_NOT_MET = 1
UNUSABLE = 2
INTERRUPTED = 130


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 (a bar not met), 2 (usage or input), 130 (interrupted)."""
    try:
        from typer.main import get_command

        from mcnet.cli.app import app
        from mcnet.errors import CalibrationWarning

        with warnings.catch_warnings():
            warnings.simplefilter("always", CalibrationWarning)
            warnings.showwarning = _warn
            words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
            result = get_command(app).main(args=words, prog_name="mcnet", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has seen enough; a second failure while Python closes stdout would print a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        reason = _reason(error)
        if reason is None:
            raise
        print(f"mcnet: {reason}", file=sys.stderr)
        return UNUSABLE


def _reason(error: Exception) -> str | None:
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
    for python, shell in _IN_WORDS_OF_THE_SHELL.items():
        text = text.replace(python, shell)
    return " ".join(text.split())


_IN_WORDS_OF_THE_SHELL = {
    "with score_type='logit'": "with --logits",
    "pass field=": "pass --field",
    "make one with mcnet.scan": "make one with mcnet sketch",
    "name its column of scores": "name its column of scores with --score",
    "name its column of labels": "name its column of labels with --label",
    "say so: ": "pass --to: ",
}
"""What the rooms advise to callers of functions, as the command line has it."""


def _warn(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    print(f"mcnet: warning: {' '.join(str(message).split())}", file=sys.stderr)
