"""What a service serves: the current version of every head, swapped as a whole when its pointer moves."""

import asyncio
import time
from collections import OrderedDict
from contextlib import suppress
from typing import Any

import numpy as np

from mcnet.errors import BusyError, FileFormatError, McnetError, StoreUnavailableError
from mcnet.model.model import CalibrationModel
from mcnet.operations.service import metrics
from mcnet.operations.service.problems import RETRY, Problem
from mcnet.operations.service.settings import log_event
from mcnet.rows.contexts import ANY
from mcnet.rows.fields import FieldColumn
from mcnet.store.store import DEFAULT_HEAD, Head, Store
from mcnet.store.versions import Hold, Registry, Version

# One version as it is served: the model, checked as a whole and ready to answer.

_CHECKED_SCORES = 2_000
_REMEMBERED_ROWS, _REMEMBERED_LENGTH = 10_000, 100


class Served:
    """A version and its model. It never changes: a reload makes another one and swaps the reference."""

    def __init__(self, version: Version, model: CalibrationModel) -> None:
        """Keep what every request needs at hand."""
        self.version, self.model = version, model
        self.name, self.name_bytes = version.name, version.name.encode()
        self.fields = model.fields
        self.loaded = time.time()
        """When it was loaded, in seconds since 1970."""
        self.known = tuple(frozenset(values) for values in model.contexts.values)
        """The values of each field that the model knows."""
        self._unseen: dict[tuple[Any, ...], int] = {}
        """Rows of texts asked for before, and whether the model knows them."""

    def unseen(self, values: tuple[Any, ...]) -> int:
        """Return 1 if one row has a field value that the model does not know, else 0."""
        result = self._unseen.get(values)
        if result is None:
            codes = zip(self.known, self.model.contexts.codes_of(values), strict=True)
            result = 1 if any(code == ANY for known, code in codes if known) else 0
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
            unknown = np.array([value not in known and bool(known) for value in column.values], dtype=np.int32)
            if unknown.any():
                rows = column.mapped(unknown)
                result = rows if result is None else result | rows
        return 0 if result is None else int(result.sum())


def load_served(registry: Registry, version: int | str = "current") -> Served:
    """Load a version, check what it answers, and make it ready, so that its first request is as fast as the next."""
    chosen = registry.version(version)
    model = registry.load(chosen.number)
    row = model.contexts.rows()[0] if model.fields and len(model.contexts) else {}
    values = {name: row.get(name) for name in model.fields}
    model.predict_one(0.1, values or None, score_type="probability")
    columns = {name: [value] * _CHECKED_SCORES for name, value in values.items()}
    answers = model.predict(np.linspace(0.0, 1.0, _CHECKED_SCORES), columns or None, score_type="probability")
    if not (np.isfinite(answers).all() and answers.min() > 0.0 and answers.max() < 1.0):
        raise FileFormatError(f"version {chosen.name} answers outside (0, 1); promote another version")
    if model.monotone and (np.diff(answers) < 0.0).any():
        raise FileFormatError(f"version {chosen.name} breaks the order of scores; promote another version")
    return Served(chosen, model)


# The current version of every head, swapped as a whole when its pointer moves, and some others.

_OTHERS = 4
"""Versions other than the current one that are kept loaded for clients that name them."""

_RETRY_SECONDS = 30.0
"""After this long a version that was refused is tried again: the disk may have been at fault."""

_STEP_SECONDS, _STOP_SECONDS = 0.02, 1.0


class ServedVersions:
    """The versions of one head: the current one, and some others.

    A new version is loaded and checked beside the current one, in a thread, while the current one answers. A version
    that cannot be served is refused, counted and logged, and the current one stays.
    """

    def __init__(self, registry: Registry, about: Head) -> None:
        self.registry = registry
        self.name, self.number = about.name, about.id
        self.settings = about.settings
        self.current: Served | None = None
        """What is served; None while the head has no version that can be served."""
        self.held: Hold | None = None
        self.refused: dict[str, Any] | None = None
        """What was refused last: the time, the reason; None since the pointer led to something that is served."""
        self.numbers = metrics.HeadNumbers(about.name)
        self._pointer: str | None = None
        self._tried = 0.0
        self._others: OrderedDict[str, Served] = OrderedDict()

    @property
    def answering(self) -> Served:
        """Return the current version; refuse a head that has none."""
        if self.current is not None:
            return self.current
        if self.refused is not None:
            detail = f"the current version of {self.name} was refused: {self.refused['reason']}"
            raise Problem(503, detail, headers=RETRY)
        raise Problem(409, f"the head {self.name} has no version yet; run `mcnet update`, or `mcnet versions add`")

    def look(self, about: Head, *, again: bool = False) -> None:
        """Load what the pointer of the head leads to; if asked to, also what was refused a moment ago."""
        self.settings = about.settings
        retry = self.refused is not None and (again or time.monotonic() - self._tried > _RETRY_SECONDS)
        pointer = f"{about.moves} {about.pointer}"
        if pointer == self._pointer and not retry:
            return
        self._tried = time.monotonic()
        try:
            loaded = self._load_current()
        except (McnetError, OSError, MemoryError) as error:
            if isinstance(error, StoreUnavailableError | BusyError):
                raise
            self._pointer = pointer
            self.refused = {"time": time.time(), "reason": str(error)}
            self.numbers.add("reload_failures")
            serving = None if self.current is None else self.current.name
            log_event("version refused", "error", head=self.name, reason=str(error), serving=serving)
            return
        self._pointer = pointer
        self.refused = None
        if loaded is not None and loaded is not self.current:
            before, self.current = self.current, loaded
            self.numbers.version.set(loaded.version.number)
            if before is None:
                return
            self.numbers.add("reloads")
            log_event("version loaded", head=self.name, version=loaded.name, before=before.name)
            if loaded.model.fields != before.model.fields:
                log_event("fields changed", "warning", fields=loaded.model.fields, before=before.model.fields)

    def _load_current(self) -> Served | None:
        self.held = self.registry.held
        number = self.registry.current_number
        if number is None:
            return self.current
        chosen = self.registry.version(number)
        if self.current is not None and chosen == self.current.version:
            return self.current
        return load_served(self.registry, chosen.number)

    async def version(self, name: str) -> Served:
        """Return a version by its number; those asked for last are kept loaded."""
        current = self.current
        if current is not None and name == current.name:
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


class ServedHeads:
    """All heads of a store as one worker serves them; follows their pointers.

    While the store cannot be reached, everything is served as it was. `default` is the head of requests that name none.
    """

    def __init__(self, store: Store, default: str | None) -> None:
        self.store = store
        self.by_name: dict[str, ServedVersions] = {}
        self.unreachable: str | None = None
        """Why the store cannot be reached; None while it can."""
        self.has_read = False
        """Whether the store was ever read; until then there is nothing to serve."""
        self._lock = asyncio.Lock()
        self.default = default
        with suppress(McnetError, OSError):  # a worker waits for its store: `follow` looks again
            self._look_and_tell()

    def head(self, name: str | None = None) -> ServedVersions:
        """Return a head by its name; the one of requests that name none if None."""
        if not self.has_read:
            raise Problem(503, f"this service waits for its store: {self.unreachable}", headers=RETRY)
        wanted = self.default if name is None else name
        found = None if wanted is None else self.by_name.get(wanted)
        if found is not None:
            return found
        listed = ", ".join(sorted(self.by_name))
        if wanted is None:
            raise Problem(404, f"this service has the heads {listed}; name one of them in the path: /heads/NAME/…")
        raise Problem(404, f"there is no head {wanted[:80]!r}; this service has {listed}")

    async def follow(self, seconds: float) -> None:
        """Look at the pointers again and again: when the database tells of a change, and every so many seconds."""
        changes = None if self.store.database.is_sqlite else self.store.changes(seconds)
        while True:
            left = seconds if self.has_read else min(seconds, _STOP_SECONDS)
            while left > 0.0:
                step = min(left, _STOP_SECONDS)  # a thread that waits for longer would keep the worker from ending
                # Every addition of rows changes a file, so a file is only looked at now and then.
                if changes is None:
                    await asyncio.sleep(step)
                elif await asyncio.to_thread(changes.wait, step):
                    break
                left -= step
            try:
                await self.look()
            except Exception as error:  # whatever it is, the current versions serve on
                if not isinstance(error, McnetError | OSError):
                    log_event("reload failed", "error", reason=repr(error))
                await asyncio.sleep(min(seconds, _STOP_SECONDS))

    async def look(self, *, again: bool = False) -> None:
        """Look at the pointers now, and load what they lead to; if asked to, also what was refused a moment ago."""
        async with self._lock:
            await asyncio.to_thread(self._look_and_tell, again=again)

    def count_error(self, error: Exception) -> None:
        """Count that the store cannot be reached, and log it once."""
        metrics.STORE_ERRORS.inc()
        if self.unreachable is None:
            self.unreachable = str(error)
            log_event("store unreachable", "error", reason=str(error), advice="what is served stays in memory")

    def _look_and_tell(self, *, again: bool = False) -> None:
        begin = time.monotonic()
        try:
            self._look(again=again)
        except (McnetError, OSError) as error:
            self.count_error(error)
            raise
        metrics.LOOKED_AT.set(begin)
        self.has_read = True
        if self.unreachable is not None:
            log_event("store reachable again")
            self.unreachable = None

    def _look(self, *, again: bool = False) -> None:
        known = {about.name: about for about in self.store.read_heads()}
        for name, about in known.items():
            head = self.by_name.get(name)
            if head is None or head.number != about.id:
                head = ServedVersions(Registry(self.store, name), about)
            head.look(about, again=again)
            self.by_name[name] = head
        for name in set(self.by_name) - set(known):
            del self.by_name[name]
            log_event("head removed", "warning", head=name)

    async def everywhere(self, head: ServedVersions, seconds: float) -> tuple[list[str], int]:
        """Wait until all workers have looked; return what each serves of a head, and how many have not looked."""
        begin = time.monotonic()
        await self.look(again=True)
        while True:
            late = sum(looked < begin for looked in metrics.Totals().each("mcnet_looked_at"))
            if not late or time.monotonic() - begin >= seconds:
                return metrics.served_by_workers(head.name), late
            await asyncio.sleep(_STEP_SECONDS)


def default_head(store: Store, name: str | None) -> str | None:
    """Return the head of requests that name none: the one given, the only or the default one; None if that is open."""
    if name is not None:
        return store.require_head(name).name
    there = store.heads
    if len(there) == 1:
        return there[0]
    return DEFAULT_HEAD if DEFAULT_HEAD in there else None
