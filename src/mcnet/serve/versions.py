"""The versions of a service: the current one, swapped as a whole when the registry's pointer moves, and some others."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcnet.errors import McnetError
from mcnet.serve.board import Board
from mcnet.serve.served import Served, load_served
from mcnet.versions.registry import Registry

__all__ = ["ServedVersions"]

_OTHERS = 4
"""Versions other than the current one that are kept loaded for clients that name them."""

_RETRY_SECONDS = 30.0
"""After this long a version that was refused is tried again: the disk may have been at fault."""

_STEP_SECONDS = 0.02

Log = Callable[..., None]


class ServedVersions:
    """Follow the pointer of a registry.

    A new version is loaded and checked beside the current one, in a thread, while the current one answers. A version
    that cannot be served is refused, counted and logged, and the current one stays.

    Parameters
    ----------
    registry : the folder of versions.
    board : where reloads and refusals are counted, and where other workers see what this one serves.
    log : takes an event and its details.
    """

    def __init__(self, registry: Path, board: Board, log: Log) -> None:
        self.registry = Registry(registry)
        self.refused: dict[str, Any] | None = None
        """What was refused last: the time, the reason; None since the pointer led to something that is served."""
        self._board = board
        self._log = log
        self._pointer = self._read_pointer()
        self._tried = 0.0
        self._lock: asyncio.Lock | None = None
        self._others: OrderedDict[str, Served] = OrderedDict()
        self.current = load_served(self.registry)
        board.own["version"] = self.current.version.number
        board.own["looked_at"] = time.monotonic()

    @property
    def held(self) -> bool:
        """Whether updates must leave the current version as it is; False, too, where the pointer cannot be read."""
        try:
            return self.registry.held is not None
        except McnetError:
            return False

    def _read_pointer(self) -> bytes:
        try:
            return (self.registry.path / "current.json").read_bytes()
        except OSError:
            return b""

    async def follow(self, seconds: float) -> None:
        """Look at the pointer again and again."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.look()
            except Exception as error:  # whatever it is, the current version serves on
                self._log("reload failed", level="error", reason=repr(error))

    async def look(self, *, again: bool = False) -> None:
        """Look at the pointer now, and load what it leads to if that is not served yet.

        Parameters
        ----------
        again : try a version that was refused, even if that was a moment ago.
        """
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            begin = time.monotonic()
            pointer = self._read_pointer()
            retry = self.refused is not None and (again or begin - self._tried > _RETRY_SECONDS)
            if pointer != self._pointer or retry:
                self._tried = begin
                await self._load(pointer)
            self._board.own["looked_at"] = begin

    async def _load(self, pointer: bytes) -> None:
        try:
            loaded = await asyncio.to_thread(self._load_current)
        except (McnetError, OSError, MemoryError) as error:
            self._pointer = pointer
            self.refused = {"time": time.time(), "reason": str(error)}
            self._board.own.add("reload_failures")
            self._log("version refused", level="error", reason=str(error), serving=self.current.name)
            return
        self._pointer = pointer
        self.refused = None
        if loaded is not self.current:
            before, self.current = self.current, loaded
            self._board.own["version"] = loaded.version.number
            self._board.own.add("reloads")
            self._log("version loaded", version=loaded.name, before=before.name)
            if loaded.model.fields != before.model.fields:
                self._log("fields changed", level="warning", fields=loaded.model.fields, before=before.model.fields)

    def _load_current(self) -> Served:
        chosen = self.registry.current
        if chosen == self.current.version:
            return self.current
        return load_served(self.registry, chosen.number)

    async def version(self, name: str) -> Served:
        """Return a version by its number; those asked for last are kept loaded."""
        current = self.current
        if name == current.name:
            return current
        if name not in self._others:
            loaded = await asyncio.to_thread(load_served, self.registry, name)
            if loaded.name != name:  # "latest" and "current" mean another version tomorrow
                return loaded
            self._others[name] = loaded
            while len(self._others) > _OTHERS:
                self._others.popitem(last=False)
        self._others.move_to_end(name)
        return self._others[name]

    async def everywhere(self, seconds: float) -> tuple[list[str], int]:
        """Wait until every living worker has looked at the pointer since now.

        Returns
        -------
        tuple : the version that each worker serves, and how many workers have not looked in the time given.
        """
        begin = time.monotonic()
        await self.look(again=True)
        while True:
            living = self._board.living()
            late = sum(numbers["looked_at"] < begin for numbers in living)
            if not late or time.monotonic() - begin >= seconds:
                return [str(int(numbers["version"])) for numbers in living], late
            await asyncio.sleep(_STEP_SECONDS)
