"""What a service is started with: the folders, the limits, and who may change something."""

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Limits", "Settings"]


@dataclass(frozen=True)
class Limits:
    """What one request may ask for."""

    body_bytes: int = 64_000_000
    rows: int = 2_000_000
    body_seconds: float = 30.0
    """How long a client may take to send its body."""
    header_seconds: float = 10.0
    requests_at_once: int = 1_024
    """Requests that a worker handles at the same time; further ones wait in the queue of the system."""


@dataclass(frozen=True)
class Settings:
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
