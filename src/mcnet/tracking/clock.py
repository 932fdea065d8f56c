"""The clock of a tracker: how many periods have passed since the last one, in bounded memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcnet._shared.terminal_text import counted
from mcnet.data.periods import shown_periods
from mcnet.errors import InputError
from mcnet.tracking.period import is_moment, period_position, period_text, sorted_periods

__all__ = ["Clock"]

MOST_STEPS = 16
"""Different lengths of steps from one period to the next that are counted; the rarest is forgotten."""


@dataclass
class Clock:
    """The last period, and the most frequent step from one period to the next, which is the length of a period."""

    last: str | None = None
    """The last period by name; None if periods have no names."""
    ticks: int = 0
    """How many periods there were."""
    waiting: float = 0.0
    """Periods that have passed without rows."""
    steps: dict[float, int] = field(default_factory=dict)

    def check(self, period: Any) -> str | None:
        """Return the canonical name of the coming period; refuse one that does not come after the last."""
        if period is None:
            if self.last is not None:
                raise InputError(f"no period was given, but the last one was {self.last}; name all periods or none")
            return None
        if self.ticks and self.last is None:
            raise InputError(f"the period {period} was given, but earlier ones had none; name all periods or none")
        text = period_text(period)
        if self.last is None:
            return text
        if text == self.last:
            raise InputError(
                f"the period {text} was learnt already; add late rows to a journal, and replay it with "
                "Tracker.follow(journal)"
            )
        if sorted_periods([self.last, text])[-1] != text:
            raise InputError(
                f"the period {text} comes before {self.last}, which was learnt already; add it to a journal, and "
                "replay that with Tracker.follow(journal)"
            )
        return text

    def advance(self, text: str | None) -> float:
        """Move to a period that `check` returned; return how many periods have passed since the last one with rows."""
        elapsed = 1.0
        if text is not None and self.last is not None:
            now, before = period_position(text), period_position(self.last)
            if now is not None and before is not None:
                step = now - before
                self.steps[step] = self.steps.get(step, 0) + 1
                if len(self.steps) > MOST_STEPS:
                    # The one just made may be the first of many.
                    rarest = min((s for s in self.steps if s != step), key=lambda s: (self.steps[s], -s))
                    del self.steps[rarest]
                elapsed = step / self._length()
        self.last = text
        self.ticks += 1
        elapsed += self.waiting
        self.waiting = 0.0
        return elapsed

    def _length(self) -> float:
        """Return the most frequent step, the shortest of equally frequent ones."""
        return min(self.steps, key=lambda step: (-self.steps[step], step))

    @property
    def period_seconds(self) -> float | None:
        """The length of a period in seconds; None if periods are no moments, or too few to tell."""
        return self._length() if self.steps and self.last is not None and is_moment(self.last) else None

    def described(self) -> str:
        """Return how many periods there were and which was the last, in words."""
        periods = counted(self.ticks, "period")
        if self.last is None:
            return periods
        (last,) = shown_periods([self.last], seconds=self.period_seconds)
        return f"{periods}: {last}" if self.ticks == 1 else f"{periods} until {last}"

    def state(self) -> dict[str, Any]:
        """Return the state as JSON-able values."""
        return {
            "last": self.last,
            "ticks": self.ticks,
            "waiting": self.waiting,
            "steps": [[step, number] for step, number in self.steps.items()],
        }

    @staticmethod
    def restored(state: Mapping[str, Any]) -> "Clock":
        """Return the clock that `state` described."""
        steps = {float(step): int(number) for step, number in state["steps"]}
        return Clock(state["last"], int(state["ticks"]), float(state["waiting"]), steps)
