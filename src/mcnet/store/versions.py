"""The versions of a head: immutable models, the pointer to the one that is served, and the history of both."""

import getpass
import hashlib
import json
import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from itertools import groupby
from os import PathLike
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from mcnet._shared.files import disk_path
from mcnet.errors import Advice, FileFormatError, InputError, McnetError
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import as_model, load, model_of_bytes, model_text, other_requests
from mcnet.store.schema import heads, history, versions
from mcnet.store.store import Head, OfHead

# The pointer of a head: which version is served, which ones it followed, and whether updates may move it.


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


# The versions.


@dataclass(frozen=True)
class Version:
    """One immutable version of a model.

    Attributes
    ----------
    number : counts up from 1.
    added, note : when it was added, in UTC, and the note given then.
    digest : SHA-256 of the model file.
    method, fields, rows : what the model was fitted with, and on how many rows.
    fitted_until, rows_digest : the last period that it was fitted on, and a digest of that journal, if it tells.
    """

    number: int
    added: str
    digest: str
    method: str
    fields: tuple[str, ...]
    rows: int | None
    note: str = ""
    fitted_until: str | None = None
    rows_digest: str | None = None

    @property
    def name(self) -> str:
        """Return the name that commands take."""
        return str(self.number)


_NUMBER = re.compile("[1-9][0-9]{0,8}")
_DESCRIPTION = [versions.c[part.name] for part in fields(Version)]


def _described(number: int, digest: str, model: CalibrationModel, note: str) -> Version:
    """Return the description of a model that becomes a version now."""
    known = model.provenance
    periods = known.get("fitted_periods") or {}
    until, rows = periods.get("last") or known.get("last_period"), known.get("journal_digest")
    until, rows = (one if isinstance(one, str) else None for one in (until, rows))
    return Version(number, now(), digest, model.method, model.fields, known.get("rows"), note, until, rows)


class Registry(OfHead):
    """The versions of a head, with a pointer to the current one; any number of processes may use it at once.

    A version never changes after it was added. Every change is one transaction and a line in the history. Who goes back
    to an older version holds it: updates publish nothing until the hold is released.

    Parameters
    ----------
    store : the store, or its address; it is made when the first version is added.
    head : its name; the only or the default one if None.

    >>> import tempfile
    >>> from mcnet.calibrators.parametric import Platt
    >>> registry = Registry(tempfile.mkdtemp() + "/ads.db")
    >>> first = registry.add(Platt().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1]).model_)
    >>> registry.current.name
    '1'
    """

    # -- reading --------------------------------------------------------------------------------------------------

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of all versions, oldest first."""
        return [row.number for row in self._rows(sa.select(versions.c.number).order_by(versions.c.number))]

    @property
    def versions(self) -> list[Version]:
        """Return every version, oldest first."""
        return self.newest(None)

    def newest(self, most: int | None) -> list[Version]:
        """Return the newest versions, oldest first.

        Parameters
        ----------
        most : how many; all if None.
        """
        query = sa.select(*_DESCRIPTION).order_by(versions.c.number.desc()).limit(most)
        return [Version(*one) for one in reversed(self._rows(query))]

    def _version(self, number: int) -> Version:
        found = self._rows(sa.select(*_DESCRIPTION).where(versions.c.number == number))
        if not found:
            raise FileFormatError(f"version {number} of {self.path} was deleted; promote another version")
        return Version(*found[0])

    @property
    def promoted(self) -> list[Version]:
        """Return the versions that were current one after the other, the current one last; at most the last 100.

        Earlier ones that were pruned are left out.
        """
        *earlier, last = self.pointer().versions or (None,)
        if last is None:
            return []
        known = {version.number: version for version in self.versions}
        return [*(known[number] for number in earlier if number in known), self._version(last)]

    @property
    def current(self) -> Version:
        """Return the version that is served."""
        number = self.pointer().current
        if number is None:
            raise InputError(f"no version of {self.path} is current; promote one")
        return self._version(number)

    @property
    def current_number(self) -> int | None:
        """Return the number of the version that is served, even if it was deleted; None before the first one."""
        return self.pointer().current

    @property
    def held(self) -> Hold | None:
        """Return why updates must leave the current version as it is; None if they need not."""
        return self.pointer().held

    @property
    def withdrawn(self) -> tuple[int, ...]:
        """Return the numbers of versions that were rolled back from, and not promoted since."""
        return self.pointer().withdrawn

    def version(self, name: int | str) -> Version:
        """Return a version by its number, or the "latest" or the "current" one.

        Parameters
        ----------
        name : the number, "latest" or "current".
        """
        if name == "current":
            return self.current
        if name == "latest":
            found = self.newest(1)
        else:
            number = int(name) if _NUMBER.fullmatch(str(name)) else 0
            found = [Version(*one) for one in self._rows(sa.select(*_DESCRIPTION).where(versions.c.number == number))]
        if found:
            return found[0]
        self.store.require_head(self.head)
        numbers = [str(number) for number in self.numbers]
        listed = ", ".join(numbers) if len(numbers) <= 10 else f"{len(numbers):,}, {numbers[0]} to {numbers[-1]}"
        raise InputError(f"{self.path} has no version {str(name)!r} of {self.head}; it has {listed or 'none'}")

    def content(self, version: int | str = "current") -> bytes:
        """Return the model file of a version, checked against the digest that it was added with.

        Parameters
        ----------
        version : its number, "latest", "current", or "refused" for the last model that the gate of `update` refused.
        """
        if version == "refused":
            refused = self.store.state(self.head).get("refused")
            if refused is None:
                raise InputError(f"no model was refused in {self.path}")
            return json.dumps(refused).encode()
        chosen = self.version(version)
        rows = self._rows(sa.select(versions.c.model).where(versions.c.number == chosen.number))
        content = rows[0].model if rows else None
        if not isinstance(content, bytes) or hashlib.sha256(content).hexdigest() != chosen.digest:
            raise FileFormatError(
                f"version {chosen.name} of {self.path} was altered after it was added; promote another version"
            )
        return content

    def load(self, version: int | str = "current") -> CalibrationModel:
        """Load the model of a version, checked against the digest that it was added with.

        Parameters
        ----------
        version : its number, "latest" or "current".

        Returns
        -------
        CalibrationModel : the model.
        """
        return model_of_bytes(self.content(version), f"version {version} of {self.path}")

    def history(self, last: int | None = None) -> list[dict[str, Any]]:
        """Return what was done, by whom and why, oldest first.

        Parameters
        ----------
        last : how many lines, the latest; all if None.
        """
        return self._lines(history, last)

    def verify(self) -> list[str]:
        """Load every version, follow the pointer, and find what is wrong.

        Returns
        -------
        list[str] : a sentence per problem; empty if there is none.
        """
        problems, numbers = [], self.numbers
        try:
            number = self.current_number
            if number is not None and number not in numbers:
                problems.append(f"version {number} of {self.path} is current, but was deleted; promote another version")
        except FileFormatError as error:
            problems.append(str(error))
        for number in numbers:
            try:
                self.load(number)
            except McnetError as error:
                problems.append(str(error))
        return problems

    def pointer(self, head: Head | None = None) -> Pointer:
        """Return what the head points to now, or pointed to when it was read.

        Parameters
        ----------
        head : the head as it was read, if it was.
        """
        head = head or self.store.require_head(self.head)
        try:
            return msgspec.json.decode(head.pointer, type=Pointer)
        except (msgspec.MsgspecError, TypeError) as error:
            raise FileFormatError(
                f"the pointer of {self.head} in {self.path} is damaged ({error}); promote a version to write it again"
            ) from None

    # -- changing -------------------------------------------------------------------------------------------------

    def add(self, model: Any, note: str = "") -> Version:
        """Add a model as a new version; the first one becomes current.

        The model is loaded and checked as a whole before it is added. Adding the model of the newest version again
        changes nothing and returns that version.

        Parameters
        ----------
        model : a model, a fitted calibrator, or the path of a model file.
        note : words for the history.

        Returns
        -------
        Version : the new version.
        """
        if isinstance(model, str | PathLike):
            load(model)  # refuses what is damaged
            content, name = disk_path(model, "a model").read_bytes(), str(model)
        else:
            content, name = model_text(as_model(model, "a version")).encode(), "the model"
        checked, digest = model_of_bytes(content, name), hashlib.sha256(content).hexdigest()
        with self.changing(create=True) as (connection, head):
            newest = self.newest(1)
            if newest and newest[0].digest == digest:
                version = newest[0]
            else:
                version = _described(1 + (newest[0].number if newest else 0), digest, checked, note)
                connection.execute(versions.insert().values(head=head.id, model=content, **vars(version)))
                self._record(connection, head, "added", version.number, note=note)
            if self.pointer(head).current is None:
                first = Pointer((version.number,))
                self._move(connection, head, first, "promoted", version.number, note="the first version")
        return version

    def promote(self, version: int | str, note: str = "", *, force: bool = False) -> Version:
        """Make a version, or the "latest", the current one.

        The newest version is free to be replaced by the next update; an older one is held.

        Parameters
        ----------
        version : its number, or "latest".
        note : words for the history.
        force : also if it takes scores of another type or other fields than the current version.

        Returns
        -------
        Version : the current version.
        """
        with self.changing() as (connection, head):
            chosen = self.version(version)
            model = self.load(chosen.number)  # a version that cannot be served is never pointed to
            try:
                pointer = self.pointer(head)
            except FileFormatError:
                pointer = Pointer()  # damaged: it is written anew
            problem = "" if force or pointer.current is None else other_requests(model, self._served(pointer.current))
            if problem:
                raise InputError(
                    f"version {chosen.name} {problem}",
                    advice=Advice(
                        "promote it all the same with {force}, once clients send what it takes",
                        service="once clients send what it takes, promote it with `mcnet versions promote --force`",
                        force=True,
                    ),
                )
            newest = self.version("latest").number
            held = pointer.held
            if chosen.number == newest:
                held = None
            elif chosen.number != pointer.current:
                held = Hold(now(), f"version {chosen.name} was promoted, older than version {newest}", note)
            moved = pointer.promoted(chosen.number, held)
            if moved != pointer:
                event = "released" if chosen.number == pointer.current else "promoted"
                self._move(connection, head, moved, event, chosen.number, note=note)
        return chosen

    def _served(self, number: int) -> CalibrationModel | None:
        with suppress(McnetError):  # what cannot be read any more is in nobody's way
            return self.load(number)
        return None

    def publish(self, version: Version, note: str = "", *, after: Version | None) -> bool:
        """Make a version current, unless somebody has held or moved the pointer meanwhile; tell whether it is.

        Parameters
        ----------
        version : the version to publish.
        note : words for the history.
        after : what was current when it was decided to publish; None if nothing was.

        Returns
        -------
        bool : whether the version is current now.
        """
        with self.changing() as (connection, head):
            pointer = self.pointer(head)
            if pointer.held is not None or pointer.current != (None if after is None else after.number):
                return False
            self.load(version.number)
            moved = pointer.promoted(version.number, None)
            self._move(connection, head, moved, "promoted", version.number, note=note)
        return True

    def rollback(self, note: str = "") -> Version:
        """Make the version that was current before the current one, and hold it there.

        Parameters
        ----------
        note : words for the history.

        Returns
        -------
        Version : the current version.
        """
        with self.changing() as (connection, head):
            pointer = self.pointer(head)
            if len(pointer.versions) < 2:
                raise InputError(f"no version of {self.path} was current before this one; promote one by number")
            chosen = self.version(pointer.versions[-2])
            self.load(chosen.number)
            left, held = pointer.versions[-1], Hold(now(), f"rolled back from version {pointer.versions[-1]}", note)
            withdrawn = (*(number for number in pointer.withdrawn if number != left), left)
            moved = Pointer(pointer.versions[:-1], held, withdrawn)
            self._move(connection, head, moved, "rolled back", chosen.number, note=note, was=pointer.current)
        return chosen

    def hold(self, note: str = "") -> Hold:
        """Keep the current version: updates publish nothing until `release`, or until the latest is promoted.

        Parameters
        ----------
        note : words for the history, and for whoever wonders.

        Returns
        -------
        Hold : since when and why it is held; an earlier hold stays as it is.
        """
        with self.changing() as (connection, head):
            current, pointer = self.current, self.pointer(head)
            if pointer.held is not None:
                return pointer.held
            held = Hold(now(), f"version {current.name} was held", note)
            self._move(connection, head, replace(pointer, held=held), "held", current.number, note=note)
        return held

    def release(self, note: str = "") -> bool:
        """Let updates publish again; tell whether the current version was held.

        A version that was rolled back from does not come back by this: the next one is made of newer rows.

        Parameters
        ----------
        note : words for the history.

        Returns
        -------
        bool : whether there was a hold.
        """
        with self.changing() as (connection, head):
            pointer = self.pointer(head)
            if pointer.held is None:
                return False
            self._move(connection, head, replace(pointer, held=None), "released", pointer.current, note=note)
        return True

    def prune(self, keep: int) -> list[int]:
        """Delete old versions, for good; a head that is updated every hour grows by 8,760 of them a year.

        The current version and the one that a rollback leads to stay, however old they are.

        Parameters
        ----------
        keep : how many of the newest versions stay; at least 1.

        Returns
        -------
        list : the numbers of the versions that were deleted.
        """
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
            raise InputError(f"keep is {keep!r}; it must be the number of versions to keep, at least 1")
        with self.changing() as (connection, head):
            pointer = self.pointer(head)
            kept = pointer.versions[-2:]
            gone = sorted(set(self.numbers[:-keep]) - set(kept))
            if gone:
                still = (number for number in pointer.versions if number not in gone)
                followed = tuple(number for number, _ in groupby(still))  # each one after another one
                withdrawn = tuple(number for number in pointer.withdrawn if number not in gone)
                moved = Pointer(followed, pointer.held, withdrawn)
                self._move(connection, head, moved, "pruned", None, versions=len(gone), until=gone[-1])
                old = (versions.c.head == head.id) & (versions.c.number <= gone[-1]) & versions.c.number.not_in(kept)
                connection.execute(versions.delete().where(old))
        return gone

    def record(self, event: str, version: int | None = None, **details: Any) -> None:
        """Add a line to the history, such as why a version was not published.

        Parameters
        ----------
        event : what happened.
        version : the number of the version that it concerns.
        details : further entries of the line.
        """
        with self.changing() as (connection, head):
            self._record(connection, head, event, version, **details)

    def _move(
        self, connection: Connection, head: Head, pointer: Pointer, event: str, version: int | None, **details: Any
    ) -> None:
        known = (pointer.versions[-MOST_REMEMBERED:], pointer.held, pointer.withdrawn[-MOST_REMEMBERED:])
        moved = {"pointer": msgspec.json.encode(Pointer(*known)).decode(), "moves": heads.c.moves + 1}
        connection.execute(heads.update().where(heads.c.id == head.id).values(**moved))
        self.store.database.tell(connection, self.head)
        self._record(connection, head, event, version, **details)

    def _record(self, connection: Connection, head: Head, event: str, version: int | None, **details: Any) -> None:
        line = {"time": now(), "event": event, "version": version, "who": _who()}
        line |= {name: value for name, value in details.items() if value != ""}
        connection.execute(history.insert().values(head=head.id, line=json.dumps(line, allow_nan=False)))


def _who() -> str:
    """Return the user and the machine, as far as they are known."""
    user = str(os.getuid())
    with suppress(KeyError, OSError, ImportError):
        user = getpass.getuser()
    return f"{user}@{socket.gethostname()}"
