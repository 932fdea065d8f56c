"""The settings of a service: its folders, its limits, and the token for changes."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Limits", "ServiceSettings"]


@dataclass(frozen=True)
class Limits:
    """What one request may ask for."""

    body_bytes: int = 64_000_000
    rows: int = 2_000_000
    body_seconds: float = 30.0
    """How long a client may take to send its body."""
    short_body_seconds: float = 5.0
    """How long it may take for a body of a few bytes."""
    body_bytes_per_second: float = 20_000.0
    """How much longer a larger body may take, up to `body_seconds`."""
    header_seconds: float = 5.0
    """How long a client may take to send the head of a request; as long a connection may stay unused."""
    header_bytes: int = 65_536
    bytes_at_once: int = 512_000_000
    """Of all large bodies that a worker has in memory at the same time; further ones are to be sent again."""
    connections: int = 8_192
    """Connections of a worker at the same time; further ones wait in the queue of the system."""

    def seconds_for(self, body_bytes: int) -> float:
        """Return how long a client may take to send a body of this size.

        >>> Limits().seconds_for(100), Limits().seconds_for(100_000), Limits().seconds_for(10_000_000)
        (5.005, 10.0, 30.0)
        """
        return min(self.body_seconds, self.short_body_seconds + body_bytes / self.body_bytes_per_second)


@dataclass(frozen=True)
class ServiceSettings:
    """Everything a worker needs to know; it is sent to each of them."""

    registry: Path
    journal: Path | None = None
    name: str = "calibration"
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    every: str | None = None
    """The length of a period, such as "1h": rows of feedback without a period belong to the present one."""
    learn: bool = False
    """Whether the update job is run at the end of every period."""
    learn_after_seconds: float = 60.0
    """How long after the end of a period its rows may arrive."""
    poll_seconds: float = 0.5
    token_digest: bytes | None = field(default=None, repr=False)
    """SHA-256 of the token that changes of state need; without one nothing can be changed."""
    limits: Limits = Limits()
    board: Path = Path()
    """The folder in which the workers count what they do."""

    def public(self, value: Any) -> Any:
        """Return texts, in whatever lists and documents, without the paths of this machine's folders."""
        if isinstance(value, str):
            folders = {str(self.registry): "the registry", str(self.journal or ""): "the journal"}
            for folder in sorted(filter(None, folders), key=len, reverse=True):  # one may lie inside the other
                value = value.replace(folder, folders[folder])
            return value
        if isinstance(value, dict):
            return {name: self.public(entry) for name, entry in value.items()}
        return [self.public(entry) for entry in value] if isinstance(value, list | tuple) else value
