"""The settings of every study, and what a page says of them: tasks, seeds, size, and what a quick run changed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcnet._shared.files import checksum
from mcnet.version import __version__
from reproduction.pages import Cell, Table
from reproduction.sources import Source
from reproduction.tasks import Task

if TYPE_CHECKING:
    from reproduction.trials import Contender

__all__ = ["FULL_SCALE", "SeenTasks", "Settings", "listed", "quick_note"]

FULL_SCALE = 0.2
"""The scale of simulated rows in the full form, unless one is given."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run; `quick` asks a study for its smallest grid."""

    source: Source
    out: Path
    seeds: int = 3
    quick: bool = False
    scale: float = 0.1
    progress: Callable[[str], Any] | None = None
    note: Callable[[str], Any] | None = None
    own: "tuple[Contender, ...]" = ()
    """Methods of one's own, compared in Table 1."""
    own_code: str = ""
    """The Python that registers them."""
    resume: bool = False
    """Whether a study whose page is there, made of the same rows and settings, is left as it is."""

    def mark(self) -> str:
        """Return a line for the end of a page, by which one that was made of the same is found again.

        It has a digest of everything that decides a page: rows, seeds, form, methods of one's own, version.
        """
        own = [(one.name, repr(one.build().get_params())) for one in self.own]
        made_of = [self.source.identity(), self.scale, self.seeds, self.quick, own, self.own_code, __version__]
        return f"<!-- made of {checksum({'made of': made_of})} -->"

    def tell(self, text: str) -> None:
        """Tell a person something that stays to be read."""
        if self.note is not None:
            self.note(text)

    def say(self, text: str) -> None:
        """Tell whoever watches what is being done."""
        if self.progress is not None:
            self.progress(text)

    def sentence(self) -> str:
        """Return the settings in one line, for the head of a page."""
        size = f" at scale {self.scale:g}" if self.source.simulated else ""
        count = "1 seed" if self.seeds == 1 else f"{self.seeds} seeds; mean (standard deviation)"
        return f"Data: {self.source.title}{size}; {count}."


# What a page says of how it was made: rows and positives of every split, and what a quick run changed.


@dataclass
class SeenTasks:
    """The tasks that a study has used, as they were."""

    lines: dict[str, tuple[Cell, ...]] = field(default_factory=dict)

    def add(self, task: Task, seed: int = 0, how: str = "") -> Task:
        """Note the rows and positives of a task, and return it."""
        name = f"{task.name}, {how}" if how else task.name
        counts = [n for part in (task.validation, task.test) for n in (len(part), int(part.label.sum()))]
        self.lines[f"{name}{seed}"] = (name, str(seed), *(f"{n:,}" for n in counts))
        return task

    def table(self) -> Table:
        """Return the rows and positives of every split used."""
        headings = ("Task", "seed", "validation rows", "positives", "test rows", "positives in test")
        return Table("rows", "Rows and positives used", headings, list(self.lines.values()))


def listed(values: Sequence[float]) -> str:
    """Return numbers as people list them.

    >>> listed((1e-5, 0.001, 1.0))
    '1e-05, 0.001 and 1'
    """
    *first, last = (f"{value:g}" for value in values)
    return f"{', '.join(first)} and {last}" if first else last


def quick_note(settings: Settings, *changes: str) -> tuple[str, ...]:
    """Return a note of what a quick run changed, if this is one."""
    if not settings.quick:
        return ()
    smaller = settings.source.simulated and settings.scale < FULL_SCALE
    usual = ["a smaller scale and fewer seeds (above)" if smaller else "fewer seeds (above)"]
    return (f"Quick form; it changes: {'; '.join([*usual, *changes])}. Everything else is as in the full form.",)
