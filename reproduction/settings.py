"""The settings of every study: the tasks, how many seeds, how large, and where to write."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduction.sources import Source

if TYPE_CHECKING:
    from reproduction.trials import Contender

__all__ = ["FULL_SCALE", "Settings"]

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
    resume: bool = False
    """Whether a study whose page is there, with the same data and seeds, is left as it is."""

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
