"""The settings of a service: its store, its limits, the tokens for changes, and its log."""

import hashlib
import hmac
import logging
import os
import re
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from mcnet.errors import InputError, in_words
from mcnet.operations.alerts import FieldValues, Webhook
from mcnet.store.settings import HeadSettings
from mcnet.store.store import Store

# The settings of a service: its store, its limits, and the tokens for changes.


LARGE_BODY = 100_000
"""Bodies of more bytes than this are read in a thread, so that short requests need not wait for them."""


@dataclass(frozen=True)
class Limits:
    """What one request may ask for."""

    body_bytes: int = 64_000_000
    rows: int = 2_000_000
    body_seconds: float = 30.0
    """How long a client may take to send its body."""
    header_seconds: float = 5.0
    """How long a client may take to send the head of a request; as long a connection may stay unused."""


@dataclass(frozen=True)
class Token:
    """Who may change something: the SHA-256 of a token, and the heads that it is for, None for all."""

    digest: bytes = field(repr=False)
    heads: frozenset[str] | None = None


@dataclass(frozen=True)
class ServiceSettings:
    """Everything a worker needs to know; it is sent to each of them."""

    store: str
    """The address of the store."""
    head: str | None = None
    """The head of requests that name none; the only or the default one if None."""
    name: str = "calibration"
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    every: str | None = None
    """The length of a period, such as "1h", of heads that do not say it themselves."""
    learn: bool = False
    """Whether the update job is run at the end of every period."""
    learn_after_seconds: float = 60.0
    """How long after the end of a period its rows may arrive."""
    poll_seconds: float = 0.5
    tokens: tuple[Token, ...] = ()
    """The tokens that changes of state need; without one nothing can be changed."""
    limits: Limits = Limits()
    webhook: Webhook | None = None
    """Where alarms, refusals and suspect periods are sent."""
    field_values: FieldValues = "show"
    """How field values are named in metrics."""

    def every_of(self, head: HeadSettings) -> str | None:
        """Return the length of a period of a head, by its settings."""
        return head.every or self.every

    @cached_property
    def _store_name(self) -> str:
        return Store(self.store).name

    def public(self, value: Any) -> Any:
        """Return strings, in whatever lists and documents, without the address of the store and of its server."""
        if isinstance(value, str):
            value = _SERVER.sub("connection failed", value)
            return value.replace(self.store, "the store").replace(self._store_name, "the store")
        if isinstance(value, dict):
            return {name: self.public(entry) for name, entry in value.items()}
        return [self.public(entry) for entry in value] if isinstance(value, list | tuple) else value


_SERVER = re.compile(r'(connection failed: )?connection to server at ".*?"(, port \d+| \(.*?\))* failed')
"""How libpq tells which server it could not reach."""


# The bearer tokens that are needed to change anything.

TOKEN_VARIABLE = "MCNET_TOKEN"
_FEWEST_CHARACTERS = 16


def read_tokens(file: Path | None) -> tuple[Token, ...]:
    """Return the tokens in a file, one per line, or the one in the environment.

    A line is a token, or `TOKEN heads=ctr,cvr` for one that is limited to some heads. A worker needs to compare tokens
    and never to know one, so only digests are kept.
    """
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").split("\n")
            mode = stat.S_IMODE(file.stat().st_mode)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the token file {file} cannot be read ({error})") from None
        where = f"the file {file}"
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            reason = f"{file} has mode {mode:03o}: other users of this machine can read or change the token"
            log_event("token file open to others", "warning", reason=reason, advice=f"chmod 600 {file}")
    else:
        lines, where = [os.environ.get(TOKEN_VARIABLE, "")], f"the variable {TOKEN_VARIABLE}"
        if not lines[0].strip():
            return ()
    tokens = tuple(_token(line.strip(), where) for line in lines if line.strip())
    return tokens or (_token("", where),)


def _token(line: str, where: str) -> Token:
    token, limited, names = line.partition(" heads=")
    heads = frozenset(name.strip() for name in names.split(",")) - {""} if limited else None
    if heads is not None and not heads:
        raise InputError(f"a token in {where} is limited to no head; write: TOKEN heads=ctr,cvr")
    if len(token) < _FEWEST_CHARACTERS or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(
            f"the token in {where} is not at least {_FEWEST_CHARACTERS} printable ASCII characters without spaces; "
            "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return Token(hashlib.sha256(token.encode()).digest(), heads)


def check_token(authorization: str, tokens: Sequence[Token], head: str | None) -> None:
    """Refuse a request that does not have a token for a head."""
    from mcnet.operations.service.problems import Problem

    if not tokens:
        how = f"start it with --token-file or {TOKEN_VARIABLE}"
        raise Problem(403, f"this service was started without a token, so nothing can be changed; {how}")
    scheme, _, given = authorization.partition(" ")
    # Digests of equal length are compared in constant time, whatever was given.
    digest = hashlib.sha256(given.strip().encode()).digest()
    same = [token for token in tokens if hmac.compare_digest(digest, token.digest)]
    if scheme.lower() != "bearer" or not same:
        problem = "the token is wrong" if given else "this needs a token"
        challenge = {"www-authenticate": 'Bearer realm="mcnet"'}
        raise Problem(401, f"{problem}; send the header Authorization: Bearer TOKEN", headers=challenge)
    if not any(one.heads is None or head in one.heads for one in same):
        raise Problem(403, "this token is for other heads; ask for one that is for this head, or for all")


# Structured logs: one JSON object per line on stderr.


def log_event(event: str, level: str = "info", **details: Any) -> None:
    """Write what happened, when, in which process, and its details."""
    timestamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"time": timestamp, "level": level, "event": event, "pid": os.getpid(), **details}
    with suppress(OSError):  # a full disk under the log is no reason to refuse a request
        # One write per line, so that the lines of several workers do not mix.
        sys.stderr.write(msgspec.json.encode(line).decode() + "\n")
        sys.stderr.flush()


def log_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Write a warning as an event, in the place of `warnings.showwarning`."""
    said = in_words(message, "service") if isinstance(message, Warning) else message
    log_event("warning", "warning", kind=category.__name__, reason=said)


class EventHandler(logging.Handler):
    """Writes what libraries log in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        reason = {} if not record.exc_info else {"reason": repr(record.exc_info[1])}
        log_event(record.getMessage(), record.levelname.lower(), logger=record.name.strip("_"), **reason)


LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"()": "mcnet.operations.service.settings.EventHandler"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {"uvicorn.error": {"level": "ERROR"}},
}
"""How the server logs, as `logging.config.dictConfig` takes it; not every request that is no HTTP."""
