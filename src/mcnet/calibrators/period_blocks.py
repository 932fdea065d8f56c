"""Rows by period, as a fit takes them: a journal or a mapping, in a bounded number of blocks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mcnet.errors import InputError
from mcnet.sketch.sketch import Sketch

__all__ = ["MOST_BLOCKS", "PeriodBlocks", "PeriodSource", "period_blocks"]

MOST_BLOCKS = 120
"""More periods than this, an even number, are merged two by two: a year of hours into blocks of some days."""


class PeriodSource(Protocol):
    """What has a sketch per period: a journal."""

    def sketches(self, since: Any = None, until: Any = None) -> Iterator[tuple[str, Sketch]]:
        """Yield (period, sketch) in order."""


@dataclass(frozen=True)
class PeriodBlocks:
    """The rows of all periods, block by block in the order of time; most often a block is one period."""

    blocks: tuple[Sketch, ...]
    total: Sketch
    periods: int
    first: str
    last: str


def period_blocks(
    journal: PeriodSource | Mapping[str, Sketch], since: Any = None, until: Any = None, most: int = MOST_BLOCKS
) -> PeriodBlocks:
    """Read the periods of a journal, or of a mapping whose keys are in order, into at most `most` blocks.

    >>> days = {str(day): Sketch.from_rows([0.1, 0.4], [0, 1]) for day in range(10)}
    >>> found = period_blocks(days, most=4)
    >>> [block.rows for block in found.blocks], found.periods
    ([8, 8, 4], 10)
    """
    if isinstance(journal, Mapping):
        if since is not None or until is not None:
            raise InputError("since and until choose periods of a journal; of a mapping, give the wanted ones alone")
        found = iter(journal.items())
    elif hasattr(journal, "sketches"):
        found = journal.sketches(since, until)
    else:
        raise InputError(
            f"fit_journal was given {type(journal).__name__}; give a mcnet.Journal, or a mapping of periods to sketches"
        )
    blocks: list[Sketch] = []
    names: list[str] = []
    length = 1
    for period, sketch in found:
        if len(names) % length:
            blocks[-1] = blocks[-1] + sketch.unfolded()
        else:
            if len(blocks) == most:
                blocks = [_sum(blocks[place : place + 2]) for place in range(0, most, 2)]
                length *= 2
            blocks.append(sketch.unfolded())
        names.append(str(period))
    if not blocks:
        raise InputError("there is no period to fit on; add rows to the journal, or widen since and until")
    return PeriodBlocks(tuple(blocks), _sum(blocks), len(names), names[0], names[-1])


def _sum(sketches: Sequence[Sketch]) -> Sketch:
    """Return the sum, two halves at a time: a long sum is not sorted anew for every part."""
    if len(sketches) == 1:
        return sketches[0]
    half = len(sketches) // 2
    return Sketch.merged([_sum(sketches[:half]), _sum(sketches[half:])])
