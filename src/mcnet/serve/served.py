"""One version as it is served: the model, checked as a whole and ready to answer."""

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mcnet.data.contexts import ANY
from mcnet.data.fields import FieldColumn
from mcnet.errors import FileFormatError
from mcnet.model.model import CalibrationModel
from mcnet.versions.registry import Registry
from mcnet.versions.version import Version

__all__ = ["Served", "load_served"]

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
        found = self._unseen.get(values)
        if found is None:
            found = 1 if ANY in self.model.contexts.codes_of(values) else 0
            if all(type(value) is str and len(value) <= _REMEMBERED_LENGTH for value in values):
                if len(self._unseen) >= _REMEMBERED_ROWS:
                    self._unseen.clear()
                self._unseen[values] = found
        return found

    def unseen_rows(self, columns: list[FieldColumn]) -> int:
        """Return how many rows have a field value that the model does not know."""
        if not columns or not self.model.fields:
            return 0
        found = None
        for known, column in zip(self.known, self.model.contexts.aligned(columns), strict=True):
            unknown = np.array([value not in known for value in column.values], dtype=np.int32)
            if unknown.any():
                rows = column.mapped(unknown)
                found = rows if found is None else found | rows
        return 0 if found is None else int(found.sum())


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
