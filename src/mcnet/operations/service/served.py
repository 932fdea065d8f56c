"""The versions of a service: the current one, swapped as a whole when the registry's pointer moves, and some others."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mcnet.errors import FileFormatError, McnetError
from mcnet.model.model import CalibrationModel
from mcnet.operations.service.board import Board
from mcnet.rows.contexts import ANY
from mcnet.rows.fields import FieldColumn
from mcnet.store.versions import Registry, Version

# One version as it is served: the model, checked as a whole and ready to answer.

_CHECKED_SCORES = 257
_WARM_UP_ROWS = 2_000
_REMEMBERED_ROWS, _REMEMBERED_LENGTH = 10_000, 100


@dataclass(frozen=True, eq=False)
class Served:
    """A version and its model. It never changes: a reload makes another one and swaps the reference."""

    version: Version
    model: CalibrationModel
    loaded: float
    """When it was loaded, in seconds since 1970."""
    known: tuple[frozenset[str | None], ...]
    """The values of each field that the model knows."""

    name: str = field(init=False)
    """The name of the version."""
    name_bytes: bytes = field(init=False)
    fields: tuple[str, ...] = field(init=False)
    _unseen: dict[tuple[Any, ...], int] = field(init=False, default_factory=dict)
    """Rows of texts asked for before, and whether the model knows them."""

    def __post_init__(self) -> None:
        """Keep what every request needs at hand."""
        object.__setattr__(self, "name", self.version.name)
        object.__setattr__(self, "name_bytes", self.version.name.encode())
        object.__setattr__(self, "fields", self.model.fields)

    def unseen(self, values: tuple[Any, ...]) -> int:
        """Return 1 if one row has a field value that the model does not know, else 0."""
        result = self._unseen.get(values)
        if result is None:
            result = 1 if ANY in self.model.contexts.codes_of(values) else 0
            if all(type(value) is str and len(value) <= _REMEMBERED_LENGTH for value in values):
                if len(self._unseen) >= _REMEMBERED_ROWS:
                    self._unseen.clear()
                self._unseen[values] = result
        return result

    def unseen_rows(self, columns: list[FieldColumn]) -> int:
        """Return how many rows have a field value that the model does not know."""
        if not columns or not self.model.fields:
            return 0
        result = None
        for known, column in zip(self.known, self.model.contexts.aligned(columns), strict=True):
            unknown = np.array([value not in known for value in column.values], dtype=np.int32)
            if unknown.any():
                rows = column.mapped(unknown)
                result = rows if result is None else result | rows
        return 0 if result is None else int(result.sum())


def load_served(registry: Registry, version: int | str = "current") -> Served:
    """Load a version, check what it answers, and make it ready, so that its first request is as fast as the next."""
    chosen = registry.version(version)
    model = registry.load(chosen.number)
    rising = np.linspace(0.0, 1.0, _CHECKED_SCORES)
    nowhere = np.full(len(rising), -1, dtype=np.int32) if model.fields else None
    answers = model.predict(rising, codes=nowhere, score_type="probability")
    if not (np.isfinite(answers).all() and answers.min() > 0.0 and answers.max() < 1.0):
        raise FileFormatError(f"version {chosen.name} answers outside (0, 1); promote another version")
    if model.monotone and (np.diff(answers) < 0.0).any():
        raise FileFormatError(f"version {chosen.name} breaks the order of scores; promote another version")
    served = Served(chosen, model, time.time(), tuple(frozenset(values) for values in model.contexts.values))
    _warm_up(served)
    return served


def _warm_up(served: Served) -> None:
    """Answer one row and many, with and without known values."""
    model = served.model
    row = model.contexts.rows()[0] if model.fields and len(model.contexts) else {}
    values = {name: row.get(name) for name in model.fields}
    model.predict_one(0.1, values or None, score_type="probability")
    columns = {name: [value] * _WARM_UP_ROWS for name, value in values.items()}
    model.predict(np.linspace(0.0, 1.0, _WARM_UP_ROWS), columns or None, score_type="probability")


# The versions of a service: the current one, swapped as a whole when the registry's pointer moves, and some others.

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
    registry : the versions.
    board : where reloads and refusals are counted, and where other workers see what this one serves.
    log : takes an event and its details.
    """

    def __init__(self, registry: Registry, board: Board, log: Log) -> None:
        self.registry = registry
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

    def _read_pointer(self) -> int:
        """Return how often the pointer has moved."""
        return self.registry.store.moves().get(self.registry.head, 0)

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
            pointer = await asyncio.to_thread(self._read_pointer)
            retry = self.refused is not None and (again or begin - self._tried > _RETRY_SECONDS)
            if pointer != self._pointer or retry:
                self._tried = begin
                await self._load(pointer)
            self._board.own["looked_at"] = begin

    async def _load(self, pointer: int) -> None:
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
