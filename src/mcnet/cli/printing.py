"""What a command prints: results on stdout, as a table or as JSON; notes and progress on stderr."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcnet._shared.json_lines import finite
from mcnet._shared.terminal_text import one_line, safe_text
from mcnet.data.read_options import read_options

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["Printer", "file_size", "table"]


@dataclass(frozen=True)
class Printer:
    """Prints what was asked for and no more."""

    json: bool = False
    quiet: bool = False
    config: str | None = None
    """The configuration file that gave the command some of its options."""

    def result(self, document: dict[str, Any], *shown: Any) -> None:
        """Print the result of a command: the document for scripts, the rest for people."""
        reading = read_options()
        if reading.drop_missing:
            document = {**document, "dropped_rows": reading.dropped_rows}
            self.note(f"{reading.dropped_rows:,} rows were left out: a score, label or weight is missing")
        if self.json:
            sys.stdout.write(_as_json({**document, "config": self.config} if self.config else document) + "\n")
        elif not self.quiet:
            console = _console()
            for item in shown:
                console.print(safe_text(item) if isinstance(item, str) else item)

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


def table(headings: Sequence[str], lines: Sequence[Sequence[str]], *, left: int = 1) -> "Table":
    """Return a table for the terminal: the first `left` columns to the left, figures to the right."""
    from rich import box
    from rich.table import Table

    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, heading in enumerate(headings):
        result.add_column(heading, justify="left" if place < left else "right", overflow="fold")
    for line in lines:
        result.add_row(*(one_line(cell) for cell in line))
    return result


def file_size(number: int) -> str:
    """Return a size of a file as people read it.

    >>> file_size(578_000_000)
    '578 MB'
    """
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} bytes"


def _console() -> "Console":
    from rich.console import Console

    # A file or a pipe has no width; a table cut to 80 columns would lose figures.
    # Field values are shown as they are: no markup ("[b]"), no emoji codes (":smile:").
    terminal = sys.stdout.isatty()
    return Console(width=None if terminal else 200, soft_wrap=not terminal, markup=False, emoji=False, highlight=False)


# Characters that are legal in JSON as they are, and may still steer a terminal.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def _as_json(document: dict[str, Any]) -> str:
    unicode = (sys.stdout.encoding or "utf-8").lower().replace("-", "") == "utf8"
    text = json.dumps(finite(document), ensure_ascii=not unicode, allow_nan=False)
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _short(number: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f} {letter}"
    return f"{number:.0f}"
