"""The pointer of a head: which version is served, which ones it followed, and whether updates may move it."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any


def now() -> str:
    """Return the moment in UTC, as registries write it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


MOST_REMEMBERED = 100
"""Versions that were current before, or were rolled back from; older ones are forgotten."""


@dataclass(frozen=True)
class Hold:
    """Why updates must leave the current version as it is: somebody went back to it, or asked for it."""

    since: str
    """When, in UTC."""
    reason: str
    """What was done, such as "rolled back from version 8"."""
    note: str = ""

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"held since {self.since[:16].replace('T', ' ')} UTC: {self.reason}{note}"


@dataclass(frozen=True)
class Pointer:
    """Which version is served, which ones it followed, and whether updates may move it; a change makes another one."""

    versions: tuple[int, ...] = ()
    """The versions that were current one after the other, the current one last."""
    held: Hold | None = None
    withdrawn: tuple[int, ...] = ()
    """Versions that were rolled back from, and not promoted since."""

    @property
    def current(self) -> int | None:
        """The number of the current version; None before the first one."""
        return self.versions[-1] if self.versions else None

    def promoted(self, number: int, held: Hold | None) -> "Pointer":
        """Return the pointer after a promotion."""
        versions = self.versions if self.current == number else (*self.versions, number)
        return Pointer(versions, held, tuple(other for other in self.withdrawn if other != number))

    def rolled_back(self, note: str) -> "Pointer":
        """Return the pointer after a rollback, which holds the version that it leads to."""
        left = self.versions[-1]
        hold = Hold(now(), f"rolled back from version {left}", note)
        return Pointer(self.versions[:-1], hold, (*(other for other in self.withdrawn if other != left), left))

    def without(self, gone: Collection[int]) -> "Pointer":
        """Return the pointer after versions other than the current one were deleted."""
        kept = [number for number in self.versions if number not in gone]
        versions = tuple(number for number, _ in groupby(kept))  # each one after another one
        return Pointer(versions, self.held, tuple(number for number in self.withdrawn if number not in gone))

    @staticmethod
    def of(document: dict[str, Any]) -> "Pointer":
        """Return the pointer that `document` described."""
        held = document.get("held")
        return Pointer(
            tuple(int(number) for number in document["versions"]),
            None if held is None else Hold(**held),
            tuple(int(number) for number in document.get("withdrawn", ())),
        )

    def document(self) -> dict[str, Any]:
        """Return the pointer as JSON has it."""
        return {
            "versions": self.versions[-MOST_REMEMBERED:],
            "since": now(),
            "held": None if self.held is None else asdict(self.held),
            "withdrawn": self.withdrawn[-MOST_REMEMBERED:],
        }
