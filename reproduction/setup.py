"""What a page says of how it was made: rows and positives of every split, and what a quick run changed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from reproduction.pages import Cell, Table
from reproduction.settings import FULL_SCALE, Settings
from reproduction.tasks import Task

__all__ = ["SeenTasks", "listed", "quick_note"]


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
