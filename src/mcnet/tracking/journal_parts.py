"""Sketches of very many periods from one log: collected in parts, on disk where memory would not hold them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from mcnet.data.fields import MISSING_LABEL
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.split import sketches_by

__all__ = ["MOST_CELLS_IN_MEMORY", "PeriodParts", "period_parts"]

MOST_CELLS_IN_MEMORY = 2_000_000
"""A sketch of all periods beyond this many cells (about 40 bytes each) is written to disk, and a new one begun."""


@dataclass(frozen=True)
class PeriodParts:
    """The rows of many periods as several sketches that each have a part of them, with the time as a field.

    With one part everything is in memory; with several, one part and the periods of one group are at a time.
    """

    time: str
    cells: dict[str, dict[int, int]]
    """For each period, the number of its cells in each part that has some."""
    parts: Sequence[Callable[[], Sketch]]
    """Each returns a part; those on disk are read every time."""

    def sketches(self) -> Iterator[tuple[str, Sketch]]:
        """Yield each period, in the order in which the log brought them, with its rows, without the time."""
        for periods in self._groups():
            found: dict[str, list[Sketch]] = {period: [] for period in periods}
            for number in sorted({number for period in periods for number in self.cells[period]}):
                for period, sketch in sketches_by(self.parts[number](), self.time, found.keys()).items():
                    found[period].append(sketch)
            for period, sketches in found.items():
                yield period, Sketch.merged(sketches)

    def _groups(self) -> Iterator[list[str]]:
        """Yield groups of periods that together fit into memory."""
        group: list[str] = []
        size = 0
        for period, cells in self.cells.items():
            needed = sum(cells.values())
            if group and len(self.parts) > 1 and size + needed > MOST_CELLS_IN_MEMORY:
                yield group
                group, size = [], 0
            group.append(period)
            size += needed
        if group:
            yield group


@contextmanager
def period_parts(sketches: Iterable[Sketch], time: str) -> Iterator[PeriodParts]:
    """Collect sketches with the time as a field; all but a single one go to a temporary folder.

    Parameters
    ----------
    sketches : parts of the rows of a log.
    time : the field that has the periods.
    """
    with TemporaryDirectory(prefix="mcnet-periods-") as folder:
        cells: dict[str, dict[int, int]] = defaultdict(dict)
        parts: list[Callable[[], Sketch]] = []
        last: Sketch | None = None
        for number, sketch in enumerate(sketches):
            if last is not None:
                parts.append(_saved(last, Path(folder) / f"{number - 1}.parquet"))
            last = sketch
            for period, size in _cells_by_period(sketch, time).items():
                cells[period][number] = size
        if last is not None:
            parts.append(_saved(last, Path(folder) / f"{len(parts)}.parquet") if parts else partial(_itself, last))
            del last, sketch
        yield PeriodParts(time, dict(cells), parts)


def _itself(sketch: Sketch) -> Sketch:
    return sketch


def _saved(sketch: Sketch, path: Path) -> Callable[[], Sketch]:
    sketch.save(path)
    return partial(Sketch.load, path)


def _cells_by_period(sketch: Sketch, time: str) -> dict[str, int]:
    place = sketch.contexts.names.index(time)
    values = sketch.contexts.values[place]
    numbers = np.bincount(sketch.contexts.table[sketch.context, place], minlength=len(values)).tolist()
    return {MISSING_LABEL if value is None else value: n for value, n in zip(values, numbers, strict=True)}
