"""Alerts: what a team wants to be told at once, kept in the store until a webhook has taken it, and sent once."""

import base64
import binascii
import hashlib
import hmac
import ipaddress
import json
import os
import secrets
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from mcnet._shared.files import finite
from mcnet.errors import InputError, McnetError
from mcnet.store.state import LoopState
from mcnet.store.store import Store
from mcnet.store.versions import now
from mcnet.tracking.monitor import Alarm
from mcnet.version import __version__

# Field values in alerts and metrics: as they are, as a hash that only the store can explain, or not at all.

FieldValues = Literal["show", "hash", "hide"]
FIELD_VALUES = get_args(FieldValues)
HASH_KEY = "field value key"
"""The kind of the document with the key of the hashes; none before the first run of a head."""


def check_field_values(field_values: str) -> FieldValues:
    """Return how field values are named, or say what is possible."""
    if field_values not in FIELD_VALUES:
        raise InputError(f"--field-values is {field_values!r}; it must be one of {', '.join(FIELD_VALUES)}")
    return field_values  # type: ignore[return-value]


def make_key(state: LoopState) -> str:
    """Return the key of the hashes of a head; made when it is first needed."""
    if state.get(HASH_KEY) is None:
        state.put(HASH_KEY, secrets.token_hex(16))
    return str(state.get(HASH_KEY))


def name_of(what: str, field_values: FieldValues, key: str) -> str:
    """Return a field value as it may be told.

    Parameters
    ----------
    what : a field value, as "country=NL"; anything else is returned as it is.
    field_values : how to tell it.
    key : of the hashes; whoever does not have it cannot find the value by trying all countries.

    >>> name_of("country=NL", "hide", ""), name_of("country=NL", "hash", "key"), name_of("level", "hash", "key")
    ('country=(hidden)', 'country=#5237c1d5c61d', 'level')
    """
    name, equals, _ = what.partition("=")
    if field_values == "show" or not equals:
        return what
    if field_values == "hide":
        return f"{name}=(hidden)"
    return f"{name}=#{hmac.new(key.encode(), what.encode(), 'sha256').hexdigest()[:12]}"


# What is told.


@dataclass(frozen=True)
class Event:
    """Something that a team wants to be told once."""

    kind: Literal["alarm", "refusal", "suspect"]
    key: str
    """Tells events of one kind apart: one that comes again is not told again."""
    data: Mapping[str, Any]
    """The facts, as JSON-able values; `text` says all of it in one line."""
    names: tuple[str, ...] = ()
    """The field values that its strings mention."""


def alarm_event(alarm: Alarm, advice: str, *, of: str = "") -> Event:
    """Return the event of an alarm.

    Parameters
    ----------
    alarm, advice : the alarm, and what to do about it.
    of : what is watched, if it is not what the head serves.
    """
    facts = {name: value for name, value in vars(alarm).items() if name != "log_evidence"}
    text = f"{alarm.what}: {advice}"
    return Event("alarm", f"{alarm.what} {alarm.raised} {of}", facts | {"text": text}, (alarm.what,))


# The outbox: events that wait in the store until a webhook has taken them.

_ALERT, _COUNTS = "alert", "alert counts"
"""The kinds of documents: the events, and how many were sent, failed and given up."""
MOST_EVENTS = 200
"""So many events of a head are kept, the latest; those that were sent, too, so that none is sent twice."""
_GIVE_UP_SECONDS = 3 * 86_400.0
"""An event that nobody took for so long is given up."""
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 30.0, 3_600.0
"""After each failure the next attempt is twice as far away."""
_CLAIM_SECONDS = 120.0
"""For so long an event belongs to the process that sends it; if that process dies, to the next one."""
_ATTEMPT_SECONDS = 8.0
QUICK_WAITS_SECONDS = (1.0, 2.0, 4.0)
"""A command that ends after sending tries again so soon."""


def add_events(state: LoopState, events: Iterable[Event]) -> None:
    """Put events into the outbox of a head; those that are there already, sent or not, stay as they are.

    Parameters
    ----------
    state : of the head. Inside a transaction the events are there if everything else in it is.
    events : what happened.
    """
    with state.changing(create=True):
        there = state.all(_ALERT)
        for event in events:
            name = hashlib.sha256("\n".join((state.head, event.kind, event.key)).encode()).hexdigest()[:32]
            if name not in there:
                there[name] = {"type": event.kind, "time": now(), "data": finite(dict(event.data))}
                there[name] |= {"names": list(event.names), "failures": 0, "next": 0.0, "sent": None}
                state.put(_ALERT, there[name], name)
        for name in sorted(there, key=lambda one: str(there[one]["time"]))[:-MOST_EVENTS]:
            state.put(_ALERT, None, name)
            _count(state, dropped=int(there[name]["sent"] is None))


def alert_counts(state: LoopState) -> dict[str, Any]:
    """Return how many alerts of a head were sent, failed, given up, and wait, and why the last attempt failed."""
    waiting = sum(event["sent"] is None for event in state.all(_ALERT).values())
    nothing = {"sent": 0, "failures": 0, "dropped": 0, "reason": ""}
    return nothing | (state.get(_COUNTS) or {}) | {"waiting": waiting}


def _count(state: LoopState, reason: str = "", **more: int) -> None:
    counts = state.get(_COUNTS) or {}
    added = {name: counts.get(name, 0) + number for name, number in more.items()}
    if any(more.values()):
        state.put(_COUNTS, counts | added | {"reason": reason})


def _claim(state: LoopState) -> tuple[str, dict[str, Any]] | None:
    """Return an event that is due, the oldest first, after making it ours; None if none is."""
    if all(event["sent"] for event in state.all(_ALERT).values()):
        return None  # the usual case: nothing is written
    with state.changing():
        present = time.time()
        waiting = {name: event for name, event in state.all(_ALERT).items() if event["sent"] is None}
        for name, event in sorted(waiting.items(), key=lambda one: str(one[1]["time"])):
            if present - datetime.fromisoformat(event["time"]).timestamp() > _GIVE_UP_SECONDS:
                state.put(_ALERT, event | {"sent": "never"}, name)
                _count(state, event.get("reason", ""), dropped=1)
            elif event["next"] <= present:
                state.put(_ALERT, event | {"next": present + _CLAIM_SECONDS}, name)
                return name, event
    return None


def _settle(state: LoopState, name: str, event: dict[str, Any], attempts: int, reason: str) -> None:
    """Mark an event as sent, or say when it is tried again."""
    failures = event["failures"] + attempts - (not reason)
    with state.changing():
        wait = min(_FIRST_WAIT_SECONDS * 2.0 ** (failures - 1), _LONGEST_WAIT_SECONDS) if reason else 0.0
        changed = {"failures": failures, "next": time.time() + wait, "sent": None if reason else now()}
        state.put(_ALERT, event | changed | {"reason": reason}, name)
        _count(state, reason, sent=int(not reason), failures=attempts - (not reason))


# The webhook: JSON over https, signed as Standard Webhooks says, no redirects.

ADDRESS_VARIABLE, SECRET_VARIABLE = "MCNET_WEBHOOK", "MCNET_WEBHOOK_SECRET"
OFF = "off"
"""In the place of an address in the environment: nothing is sent, whatever else is configured."""
_FEWEST_CHARACTERS = 16


@dataclass(frozen=True)
class Webhook:
    """Where alerts are sent, and how."""

    url: str = field(repr=False)
    secret: bytes = field(repr=False)
    field_values: FieldValues = "show"

    @staticmethod
    def of(url: str | None, secret_file: str | None = None, field_values: str = "show") -> "Webhook | None":
        """Return the webhook of an address, or of the one in the environment; None without any.

        Parameters
        ----------
        url : https://…, or http:// on this machine.
        secret_file : the file of the secret; the one in the environment if None.
        field_values : "show", "hash" or "hide".

        Raises
        ------
        InputError : the address cannot be used, or there is no secret.
        """
        shown = check_field_values(field_values)
        url = url or os.environ.get(ADDRESS_VARIABLE)
        if not url or os.environ.get(ADDRESS_VARIABLE) == OFF:
            return None
        _check_address(url)
        return Webhook(url, _read_secret(secret_file), shown)

    @property
    def host(self) -> str:
        """Where it is; the rest of the address may be a secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def post(self, identity: str, body: bytes) -> str:
        """Send one body; return why it was not taken, empty if it was.

        Parameters
        ----------
        identity : of the event; the same for every attempt.
        body : JSON.
        """
        reasons: list[str] = []
        attempt = threading.Thread(target=lambda: reasons.append(self._post(identity, body)), daemon=True)
        attempt.start()
        attempt.join(_ATTEMPT_SECONDS)  # a receiver that answers byte by byte does not keep us
        return reasons[0] if reasons else f"no answer after {_ATTEMPT_SECONDS:g} s"

    def _post(self, identity: str, body: bytes) -> str:
        sent = str(int(time.time()))
        digest = hmac.new(self.secret, f"{identity}.{sent}.".encode() + body, "sha256").digest()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"mcnet/{__version__}",
            "Webhook-Id": identity,
            "Webhook-Timestamp": sent,
            "Webhook-Signature": f"v1,{base64.b64encode(digest).decode()}",
        }
        handlers: list[Any] = [_NoRedirects, urllib.request.HTTPSHandler(context=ssl.create_default_context())]
        if _is_this_machine(urlsplit(self.url).hostname or ""):
            handlers.append(urllib.request.ProxyHandler({}))
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
    """Follows nothing: what was signed for one receiver is for no other."""

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


def _read_secret(file: str | None) -> bytes:
    """Return the secret that signs; it is never on the command line, which lists of processes show."""
    where = f"the variable {SECRET_VARIABLE}" if file is None else f"the file {file}"
    try:
        text = os.environ.get(SECRET_VARIABLE, "") if file is None else Path(file).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the secret of the webhook cannot be read from {where} ({error})") from None
    text = text.strip()
    make = "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
    if not text:
        raise InputError(
            f"{where} has no secret to sign alerts with: set {SECRET_VARIABLE}, or name a file with "
            f"--webhook-secret-file; {make}"
        )
    if len(text) < _FEWEST_CHARACTERS:
        raise InputError(f"the secret in {where} has fewer than {_FEWEST_CHARACTERS} characters; {make}")
    if not text.startswith("whsec_"):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        raise InputError(f"the secret in {where} begins with whsec_, but the rest is not Base64") from None


# Sending.


@dataclass(frozen=True)
class Delivery:
    """What became of the events that were due."""

    sent: int = 0
    reason: str = ""
    """Why the last one was not taken; then no other was tried. Empty if all were taken."""


def send_alerts(
    store: Store,
    webhook: Webhook,
    heads: Sequence[str] | None = None,
    waits_seconds: Sequence[float] = (),
    sleep: Callable[[float], Any] = time.sleep,
) -> Delivery:
    """Send the events that are due; whatever fails stays in the outbox, and nothing is raised.

    An event is sent by one process at a time, and marked in the store once it was taken. Only if the process or the
    store dies between the two it is sent again, with the same `webhook-id`.

    Parameters
    ----------
    store : the store.
    webhook : where to.
    heads : of these heads; of all if None.
    waits_seconds : after a failure, wait so long and try again, as often as there are waits.
    sleep : waits.
    """
    sent = 0
    try:
        for head in store.heads if heads is None else heads:
            state = store.state(head)
            while (claimed := _claim(state)) is not None:
                name, event = claimed
                body = _body(state, event, webhook.field_values)
                attempts, reason = 1, webhook.post(name, body)
                for wait in waits_seconds if reason else ():
                    sleep(wait)
                    attempts, reason = attempts + 1, webhook.post(name, body)
                    if not reason:
                        break
                _settle(state, name, event, attempts, reason)
                if reason:  # the others wait for their turn, too
                    return Delivery(sent, reason)
                sent += 1
    except (McnetError, OSError) as error:
        return Delivery(sent, str(error))
    return Delivery(sent)


def _body(state: LoopState, event: Mapping[str, Any], field_values: FieldValues) -> bytes:
    key = make_key(state) if field_values == "hash" else ""
    told = {name: name_of(name, field_values, key) for name in sorted(event["names"], key=len, reverse=True)}

    def masked(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        for name, instead in told.items():
            value = value.replace(name, instead)
        return value

    data = {"store": state.store.name, "head": state.head, **event["data"]}
    data = {name: masked(value) for name, value in data.items()}
    return json.dumps({"type": event["type"], "timestamp": event["time"], "data": data}).encode()


class AlertSender:
    """Sends alerts in a thread, beside whatever else a process does.

    Parameters
    ----------
    address : of the store.
    webhook : where to.
    log : is called with what became of alerts, as `log_event`.
    """

    def __init__(self, address: str, webhook: Webhook, log: Callable[..., None]) -> None:
        self._store, self._webhook, self._log = Store(address), webhook, log
        self._wake = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Look now: something may have happened."""
        self._wake.set()

    def stop(self) -> None:
        """Send what is due once more, and end; an attempt that hangs is left to itself."""
        self._ended = True
        self._wake.set()
        self._thread.join(2.0 * _ATTEMPT_SECONDS)

    def _run(self) -> None:
        while True:
            ended = self._ended
            done = send_alerts(self._store, self._webhook)
            if done.sent:
                self._log("alerts sent", to=self._webhook.host, number=done.sent)
            if done.reason:
                self._log("alerts not sent", "warning", to=self._webhook.host, reason=done.reason)
            if ended:
                self._store.close()
                return
            self._wake.wait(_FIRST_WAIT_SECONDS)
            self._wake.clear()
