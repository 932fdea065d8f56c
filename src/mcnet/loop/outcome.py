"""What one run of the update job did."""

import dataclasses
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from mcnet.loop.gate import Verdict
from mcnet.loop.new_rows import NewRows
from mcnet.tracking.monitor import Alarm

__all__ = ["Outcome", "Update"]

Outcome = Literal["published", "nothing new", "waiting", "refused", "held", "failed"]


@dataclass(frozen=True)
class Update:
    """What one run of the job did."""

    outcome: Outcome
    """ "published"; "nothing new": no rows since the last run; "waiting": too few periods to judge a model by;
    "refused": the gate kept the current version; "held": somebody went back to the current version, or holds it;
    "failed": only in the history, of a run that ended with an error."""
    reason: str
    """Why, in one line."""
    version: str | None
    """The current version after the run."""
    replaced: str | None = None
    """The version that was current before, if another one is now."""
    forced: bool = False
    """Whether it was published although the gate spoke against it."""
    added: NewRows = dataclasses.field(default_factory=NewRows)
    """The rows that this run added to the journal."""
    learnt: tuple[str, ...] = ()
    """The periods that the tracker learnt."""
    until: str | None = None
    """The last period that it has learnt."""
    verdict: Verdict | None = None
    """What the gate found, if it was asked."""
    alarms: tuple[Alarm, ...] = ()
    """Alarms of the monitor that no earlier run has reported."""
    held: str | None = None
    """Since when and why the current version is held, if it is."""
    status: Path | None = None
    """The status page; `status.json` is beside it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the run as JSON-able values."""
        return {
            "outcome": self.outcome,
            "reason": self.reason,
            "version": self.version,
            "replaced": self.replaced,
            "forced": self.forced,
            "added": asdict(self.added),
            "learnt": list(self.learnt),
            "until": self.until,
            "gate": None if self.verdict is None else self.verdict.to_dict(),
            "alarms": [{**asdict(alarm), "advice": alarm.advice()} for alarm in self.alarms],
            "held": self.held,
            "status": None if self.status is None else str(self.status),
        }
