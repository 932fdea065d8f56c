"""The description of one immutable version of a model."""

from dataclasses import dataclass
from datetime import UTC, datetime

from mcnet.model.model import CalibrationModel

__all__ = ["DamagedVersion", "Version", "described", "now"]


@dataclass(frozen=True)
class Version:
    """One immutable version of a model.

    Attributes
    ----------
    number : counts up from 1.
    method, fields, rows : what the model was fitted with, and on how many rows.
    note : the note given when it was added.
    """

    number: int
    added: str
    """When, in UTC."""
    digest: str
    """SHA-256 of the model file."""
    method: str
    fields: tuple[str, ...]
    rows: int | None
    note: str = ""
    fitted_until: str | None = None
    """The last period that the model was fitted on, if it tells."""
    rows_digest: str | None = None
    """A digest of the journal that the model was fitted on, if it tells."""

    @property
    def name(self) -> str:
        """Return the name that commands take."""
        return str(self.number)


@dataclass(frozen=True)
class DamagedVersion:
    """A version that cannot be read any more."""

    number: int
    reason: str
    """What is wrong with it, and where."""

    @property
    def name(self) -> str:
        """Return the name that commands take."""
        return str(self.number)


def described(number: int, digest: str, model: CalibrationModel, note: str) -> Version:
    """Return the description of a model that becomes a version now."""
    history = model.provenance
    periods = history.get("fitted_periods") or {}
    until, rows = periods.get("last") or history.get("last_period"), history.get("journal_digest")
    return Version(
        number,
        now(),
        digest,
        model.method,
        model.fields,
        history.get("rows"),
        note,
        until if isinstance(until, str) else None,
        rows if isinstance(rows, str) else None,
    )


def now() -> str:
    """Return the moment in UTC, as registries write it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
