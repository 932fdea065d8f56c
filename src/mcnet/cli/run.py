"""Run a command: what it prints, errors as one line for people and an exit code for scripts, signals."""

import codecs
import gc
import json
import os
import re
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from mcnet._shared.files import finite, is_disk_full, remove_unfinished_files
from mcnet._shared.messages import aligned, safe_text
from mcnet.errors import BusyError, CalibrationWarning, McnetError, StoreUnavailableError, in_words
from mcnet.rows.locations import read_options

if TYPE_CHECKING:
    from mcnet.model.apply import UnseenValues

# Signals that end a command: the temporary files are removed, and the exit code is 128 plus the signal's number.

_GRACE_SECONDS = 5.0
"""How long the main thread has to end by itself before the process is ended."""


class Terminated(BaseException):
    """The process was asked to end by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


@contextmanager
def orderly_termination() -> Iterator[None]:
    """Raise Terminated in the main thread on SIGTERM and SIGHUP, unless they are ignored (as under nohup).

    Python runs its handlers between two instructions, and one call into a library may last minutes. So a thread hears
    of the signal, too: if the main thread has not ended after a few seconds, it cleans up and ends the process. This
    does not apply to a command that has set its own handler, such as a service, which finishes its requests first.
    """
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _received.clear()
    heard: dict[int, Any] = {
        number: before for number in numbers if (before := signal.getsignal(number)) is signal.SIG_DFL
    }
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        heard[signal.SIGINT] = signal.default_int_handler
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    earlier = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader, frozenset(heard) - {signal.SIGINT}), daemon=True).start()
    try:
        for number in heard:
            signal.signal(number, _raise)
        yield
    finally:
        for number, before in heard.items():
            signal.signal(number, before)
        signal.set_wakeup_fd(earlier)
        os.close(writer)  # the watching thread reads the end and stops
        while _errors_before:
            os.dup2(_errors_before[0], 2)
            os.close(_errors_before.pop())


_received: list[int] = []
"""The signals that this command was sent: a library may make another error of what the handler raises."""


_errors_before: list[int] = []
"""Standard error as it was before a signal came, if it was silenced."""


def _raise(number: int, _: FrameType | None) -> None:
    _received.append(number)
    # Raised inside a call of Polars it becomes a panic, which writes a page of its own to standard error. A terminal
    # keeps its errors: what makes the cursor visible again goes there.
    if not _errors_before and not os.isatty(2):
        _errors_before.append(os.dup(2))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated(number)


def _watch(reader: int, numbers: frozenset[int]) -> None:
    try:
        while heard := os.read(reader, 1):
            if heard[0] in numbers and signal.getsignal(heard[0]) is _raise:
                _end_later(reader, heard[0])
                return
    finally:
        os.close(reader)


def _end_later(reader: int, number: int) -> None:
    import select

    # The other end is closed when the command has ended in good order.
    while select.select([reader], [], [], _GRACE_SECONDS)[0]:
        if not os.read(reader, 1):
            return
    remove_unfinished_files()
    os._exit(128 + number)


def plain_interrupts() -> None:
    """Let Python alone hear Ctrl-C: Polars hears it too, and aborts its threads with a page of backtraces."""
    if threading.current_thread() is threading.main_thread():
        import polars  # noqa: F401  (it listens from when it is imported)

        signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))


# Output to terminals that cannot show every character: similar characters are printed instead.

_HANDLER = "mcnet.similar_characters"

_REPLACEMENTS = {
    "→": "->",
    "←": "<",
    "…": "...",
    "–": "-",
    "—": "-",
    "─": "-",
    "━": "-",
    "−": "-",
    "×": "x",
    "±": "+-",
    "≤": "<=",
    "≥": ">=",
    "½": "1/2",
    "“": '"',
    "”": '"',
    "‘": "'",
    "’": "'",
    "ε": "epsilon",
    "β": "beta",
    "σ": "sigma",
    "⁻": "-",
    "\N{NO-BREAK SPACE}": " ",
    "\N{BRAILLE PATTERN BLANK}": " ",
    **dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True)),
}


def _fall_back(error: UnicodeError) -> tuple[str, int]:
    """Return what stands for the characters that a stream cannot encode: something similar, or an escape."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    similar = ""
    for character in error.object[error.start : error.end]:
        dots = "\u2801" <= character <= "\u28ff"  # of a plot
        similar += _REPLACEMENTS.get(character, "*" if dots else character.encode("ascii", "backslashreplace").decode())
    return similar, error.end


codecs.register_error(_HANDLER, _fall_back)


# What a command prints: results on stdout, as a table or as JSON; notes and progress on stderr.


@dataclass(frozen=True)
class Printer:
    """Prints what was asked for and no more."""

    json: bool = False
    quiet: bool = False
    config: str | None = None
    """The configuration file that gave the command some of its options."""

    def result(self, document: dict[str, Any], *shown: str) -> None:
        """Print the result of a command: the document for scripts, the rest for people."""
        reading = read_options()
        if reading.drop_missing:
            document = {**document, "dropped_rows": reading.dropped_rows}
            self.note(f"{reading.dropped_rows:,} rows were left out: a score, label or weight is missing")
        if self.json:
            sys.stdout.write(_as_json({**document, "config": self.config} if self.config else document) + "\n")
        elif shown and not self.quiet:
            print(*map(safe_text, shown), sep="\n")

    def note(self, text: str) -> None:
        """Tell a person what was done, on stderr."""
        if not self.quiet:
            print(safe_text(text), file=sys.stderr)

    def warn(self, text: str) -> None:
        """Warn on stderr, even if quiet was asked for."""
        print(f"warning: {safe_text(text)}", file=sys.stderr)

    @property
    def lively(self) -> bool:
        """Whether somebody watches: stderr is a terminal and quiet was not asked for."""
        return not self.quiet and sys.stderr.isatty()

    @contextmanager
    def progress(self, title: str, total: int | None = None, unit: str = "rows") -> Iterator[Callable[[int], None]]:
        """Show a bar with a rate; call the function given with the amount of work done since its last call."""
        if not self.lively:
            yield lambda _: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[done]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=total, done="")

            def advance(more: int) -> None:
                bar.advance(task, more)
                state = bar.tasks[0]
                rate = f", {_short(state.completed / state.elapsed)} {unit}/s" if state.elapsed else ""
                bar.update(task, done=f"{_short(state.completed)} {unit}{rate}")

            yield advance

    @contextmanager
    def steps(self, title: str) -> Iterator[Callable[[str], None]]:
        """Show the current step; call the function given with the name of each step."""
        if not self.lively:
            yield lambda _: None
            return
        from rich.console import Console

        with Console(stderr=True).status(title) as status:
            yield lambda name: status.update(f"{title}: {name}")


def table(headings: Sequence[str], lines: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Return a table for the terminal: the first `left` columns to the left, figures to the right."""
    # A file or a pipe has no width.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return aligned([headings, *lines], left=left, width=width)


def file_size(number: int) -> str:
    """Return a size of a file as people read it.

    >>> file_size(578_000_000)
    '578 MB'
    """
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} bytes"


# Characters that are legal in JSON as they are, and may still steer a terminal.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def _as_json(document: dict[str, Any]) -> str:
    unicode = (sys.stdout.encoding or "utf-8").lower().replace("-", "") == "utf8"
    text = json.dumps(finite(document), ensure_ascii=not unicode, allow_nan=False)
    return _UNSAFE_IN_JSON.sub(lambda unsafe: f"\\u{ord(unsafe[0]):04x}", text)


def _short(number: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f} {letter}"
    return f"{number:.0f}"


# Messages about rows whose field values a model has not seen in its fit.

_WARN_FROM = 0.01
"""The share of rows with unseen values from which there is a warning."""


def unseen_note(printer: Printer, unseen: "UnseenValues") -> None:
    """Say which share of the rows had unseen field values; warn if it is large."""
    if not unseen.unseen:
        return
    by_field = ", ".join(f"{name} {part / unseen.total:.3%}" for name, part in unseen.by_field.items() if part)
    text = f"{unseen.share:.3%} of the rows have a field value that the model has not seen ({by_field})"
    if unseen.share >= _WARN_FROM:
        printer.warn(f"{text}; they get the curve of any other value: was a value renamed?")
    else:
        printer.note(text)


# Run a command: every error becomes one line for people and an exit code for scripts.

THRESHOLD_NOT_MET = 1
UNUSABLE = 2
UNEXPECTED = 70  # EX_SOFTWARE of sysexits.h
DISK_FULL = 74  # EX_IOERR: nobody has made a mistake, but there is no space to write to
BUSY = 75  # EX_TEMPFAIL: trying again later will do
INTERRUPTED = 130


def main() -> int:
    """Run `mcnet` with the arguments of the process, which ends afterwards; return its exit code."""
    code = run()
    gc.freeze()  # the end of a process looks for cycles among all objects, which takes a fifth of a short command
    return code


def run(arguments: Sequence[str] | None = None, *, application: Any = None, name: str = "mcnet") -> int:
    """Run one command, by default that of the process, and return its exit code; `mcnet --help` lists the codes."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    output = sys.stdout
    for stream in (sys.stdout, sys.stderr):  # whatever their encoding
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_HANDLER)
    try:
        with orderly_termination(), warnings.catch_warnings():
            from typer.main import get_command

            if application is None:
                from mcnet.cli.app import app as application
            warnings.simplefilter("always", CalibrationWarning)
            warnings.showwarning = _warnings_once()
            command = get_command(application)
            result = command.main(args=_options_first(words, command), prog_name=name, standalone_mode=False)
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
        return 128 + _received[0] if _received else _failed(error, debug="--debug" in words)


def _options_first(words: list[str], application: Any) -> list[str]:
    """Move the options of the application itself, which may follow the command, in front of it; but for --version."""
    own = (option for option in application.params if option.expose_value and not option.is_eager)
    words_after = {name: 0 if option.is_flag else 1 for option in own for name in option.opts}
    first, rest = [], []
    end = words.index("--") if "--" in words else len(words)
    index = 0
    while index < end:
        takes = words_after.get(words[index].partition("=")[0])
        if takes is None:
            rest.append(words[index])
            index += 1
        else:
            number = 1 + (0 if "=" in words[index] else takes)
            first += words[index : min(index + number, end)]
            index += number
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
        return BUSY if isinstance(error, BusyError | StoreUnavailableError) else UNUSABLE
    problem = ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))
    hint = "" if debug else "; run it again with --debug to see where, and please report it"
    _say(f"mcnet: unexpected error: {problem[:_LONGEST_LINE]}{hint}")
    return UNEXPECTED


_LONGEST_LINE = 500


def _reason(error: BaseException) -> str | None:
    """Return one line about an error that a person can do something about, None for a fault of ours."""
    if isinstance(error, McnetError):
        reason = in_words(error, "shell")
    elif isinstance(error, OSError):
        reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        if not error.filename and is_disk_full(error):
            reason = "no space left on a disk: make room where files are written, temporary ones too"
    elif isinstance(error, MemoryError):
        reason = "there is not enough memory for this"
    elif hasattr(error, "format_message"):  # what Typer raises for words it does not understand
        reason = error.format_message()
    else:
        return None
    return " ".join(reason.split())


def _warnings_once() -> Callable[..., None]:
    """Return a function that prints each warning once, on one line of stderr."""
    seen: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        line = " ".join((message if isinstance(message, str) else in_words(message, "shell")).split())
        if line not in seen:
            seen.add(line)
            _say(f"warning: {line}")

    return show


def _say(text: str) -> None:
    print(safe_text(text), file=sys.stderr)
