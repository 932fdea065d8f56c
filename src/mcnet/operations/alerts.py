"""Alerts: what a team wants to be told at once, and the webhook that it is posted to until that answers."""

import ipaddress
import json
import os
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from mcnet._shared.files import finite
from mcnet.errors import InputError, McnetError
from mcnet.store.state import LoopState
from mcnet.tracking.monitor import Alarm
from mcnet.version import __version__

# Field values in alerts and metrics: as they are, or not at all.

FieldValues = Literal["show", "hide"]
FIELD_VALUES = get_args(FieldValues)


def check_field_values(field_values: str) -> FieldValues:
    """Return how field values are named, or say what is possible."""
    if field_values not in FIELD_VALUES:
        raise InputError(f"--field-values is {field_values!r}; it must be one of {', '.join(FIELD_VALUES)}")
    return field_values  # type: ignore[return-value]


# What is told.


@dataclass(frozen=True)
class Event:
    """Something that a team wants to be told once, while it stands."""

    kind: Literal["alarm", "refusal", "suspect"]
    key: str
    """Tells events of one kind apart."""
    data: Mapping[str, Any]
    """The facts, as JSON-able values; `text` says all of it in one line."""
    names: tuple[str, ...] = ()
    """The field values that its strings mention."""


def alarm_event(alarm: Alarm, advice: str) -> Event:
    """Return the event of an alarm."""
    facts = {name: value for name, value in vars(alarm).items() if name != "log_evidence"}
    more = {"advice": advice, "text": f"{alarm.what}: {advice}"}
    return Event("alarm", f"{alarm.what} {alarm.raised}", facts | more, (alarm.what,))


def new_events(state: LoopState, events: Sequence[Event], source: str = "update") -> list[Event]:
    """Let these be all events that stand, of what a source finds; return those that did not stand before."""
    by_key = {f"{event.kind} {event.key}": event for event in events}
    facts = {
        key: {"type": event.kind, "data": finite(dict(event.data)), "names": list(event.names)}
        for key, event in by_key.items()
    }
    return [by_key[key] for key in state.let_stand(source, facts)]


# The webhook: JSON over https, no redirects.

ADDRESS_VARIABLE = "MCNET_WEBHOOK"
TRIED_FOR = timedelta(days=3)
"""An event that nobody took for so long is sent no more."""
_ATTEMPT_SECONDS = 8.0


@dataclass(frozen=True)
class Webhook:
    """Where alerts are sent, and how."""

    url: str = field(repr=False)
    field_values: FieldValues = "show"

    @staticmethod
    def of(url: str | None, field_values: str = "show") -> "Webhook | None":
        """Return the webhook of an address, or of the one in the environment; None without any."""
        shown, url = check_field_values(field_values), url or os.environ.get(ADDRESS_VARIABLE)
        if not url:
            return None
        _check_address(url)
        return Webhook(url, shown)

    @property
    def host(self) -> str:
        """Where it is; the rest of the address may be a secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def post(self, body: bytes) -> str:
        """Send one body; return why it was not taken, empty if it was."""
        reasons: list[str] = []
        attempt = threading.Thread(target=lambda: reasons.append(self._post(body)), daemon=True)
        attempt.start()
        attempt.join(_ATTEMPT_SECONDS)  # a receiver that answers byte by byte does not keep us
        return reasons[0] if reasons else f"no answer after {_ATTEMPT_SECONDS:g} s"

    def _post(self, body: bytes) -> str:
        handlers: list[Any] = [_NoRedirects, urllib.request.HTTPSHandler(context=ssl.create_default_context())]
        if _is_this_machine(urlsplit(self.url).hostname or ""):
            handlers.append(urllib.request.ProxyHandler({}))
        headers = {"Content-Type": "application/json", "User-Agent": f"mcnet/{__version__}"}
        request = urllib.request.Request(self.url, body, headers, method="POST")
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=_ATTEMPT_SECONDS):
                return ""
        except urllib.error.HTTPError as error:
            with error:
                moved = ", a redirect, which is not followed" if 300 <= error.code < 400 else ""
                return f"the answer was {error.code}{moved}"
        except urllib.error.URLError as error:
            return str(error.reason)
        except (OSError, HTTPException, ValueError) as error:
            return str(error) or type(error).__name__


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows nothing: what is meant for one receiver is for no other."""

    def redirect_request(self, *_: Any) -> None:
        """Return no further request."""


def _check_address(url: str) -> None:
    """Refuse an address that cannot be used; its path is not repeated, since it may be a secret."""
    advice = "name it as https://host/path"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise InputError(f"the address of the webhook is not one; {advice}") from None
    if parts.username is not None or parts.password is not None:
        raise InputError(f"the address of the webhook has a user or a password; {advice}")
    if not host or parts.scheme not in ("http", "https") or not url.isascii() or not url.isprintable() or " " in url:
        raise InputError(f"the address of the webhook is not one of http; {advice}")
    if parts.scheme == "http" and not _is_this_machine(host):
        raise InputError(f"the webhook at {host} is not encrypted: http is for this machine alone; {advice}")


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def send_alerts(state: LoopState, webhook: Webhook) -> str:
    """Post the events of a head that nobody has taken, oldest first; return why one was not taken.

    After one that was not taken no other is tried: the next run sends them again. An event may be sent twice, if the
    process ends between the answer and its mark in the store; its `id` is the same then.
    """
    oldest = (datetime.now(UTC) - TRIED_FOR).isoformat(timespec="seconds")
    try:
        for number, event in state.unsent(oldest):
            problem = webhook.post(_body(state, number, event, webhook.field_values))
            state.mark_sent(number, problem)
            if problem:
                return problem
    except (McnetError, OSError) as error:
        return str(error)
    return ""


def _body(state: LoopState, number: int, event: Mapping[str, Any], field_values: FieldValues) -> bytes:
    data = {"store": state.store.name, "head": state.head, **event["data"]}
    for name in sorted(event["names"], key=len, reverse=True) if field_values == "hide" else ():
        field, equals, _ = name.partition("=")
        if equals:
            hidden = f"{field}=(hidden)"
            data = {key: one.replace(name, hidden) if isinstance(one, str) else one for key, one in data.items()}
    return json.dumps({"id": number, "type": event["type"], "timestamp": event["time"], "data": data}).encode()
