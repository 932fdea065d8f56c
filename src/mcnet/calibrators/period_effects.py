"""Rows by period, as a fit takes them: and how much periods differ."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mcnet._shared.arrays import FloatArray, sums_by
from mcnet.errors import InputError
from mcnet.model.model import CalibrationModel
from mcnet.sketch.sketch import Sketch

# Rows by period, as a fit takes them: a journal or a mapping, in a bounded number of blocks.

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
        result = iter(journal.items())
    elif hasattr(journal, "sketches"):
        result = journal.sketches(since, until)
    else:
        raise InputError(
            f"fit_journal was given {type(journal).__name__}; give a mcnet.Journal, or a mapping of periods to sketches"
        )
    blocks: list[Sketch] = []
    names: list[str] = []
    length = 1
    for period, sketch in result:
        if len(names) % length:
            blocks[-1] = blocks[-1] + sketch.unfolded()
        else:
            if len(blocks) == most:
                blocks = [_sum(blocks[index : index + 2]) for index in range(0, most, 2)]
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


# How much periods differ: the variance of their effects, and how many rows are worth one independent row.


@dataclass(frozen=True)
class PeriodEffects:
    """What a fit learnt from how periods differ."""

    periods: int
    first: str
    last: str
    period_sd: float
    """The standard deviation, in logits, of what a period adds to all its rows."""
    value_sd: float
    """The standard deviation of what it adds to a field value beyond that."""
    overdispersion: float
    """How many rows of a period are worth one independent row."""
    tempering: float = 1.0
    """By what the weights of all rows were divided for the fit."""
    level_error: float = 0.0
    """The standard error of the common level that comes from periods, in logits."""
    level_shift: float = 0.0
    """How far the level was moved towards that of the base scores, in logits."""

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for the history of a model."""
        numbers = ("period_sd", "value_sd", "overdispersion", "tempering", "level_error", "level_shift")
        return {
            "number": self.periods,
            "first": self.first,
            "last": self.last,
            **{name: float(f"{getattr(self, name):.4g}") for name in numbers},
        }


def period_effects(model: CalibrationModel, rows: PeriodBlocks, **learnt: float) -> PeriodEffects:
    """Measure by the method of moments how much the blocks of periods deviate from a model.

    The residual R of a block with information I = Σ w p (1 − p) has the variance I + v · I², where v is the variance of
    the block's effect. The same holds for the residual of a field value within a block once the block's own part,
    I_value · R / I, is taken off.
    """
    residuals, sizes = np.empty(len(rows.blocks)), np.empty(len(rows.blocks))
    value_excess = value_size = 0.0
    for index, block in enumerate(rows.blocks):
        p = _predicted(model, block)
        residual, information = block.positives - block.weight * p, block.weight * p * (1.0 - p)
        residuals[index], sizes[index] = residual.sum(), max(float(information.sum()), 1e-300)
        of_value = sums_by(block.context, information, len(block.contexts))
        left = sums_by(block.context, residual, len(block.contexts)) - of_value * (residuals[index] / sizes[index])
        value_excess += float(np.sum(left**2 - of_value * (1.0 - of_value / sizes[index])))
        # What a value adds is a part of the block's own residual too.
        share = of_value / sizes[index]
        value_size += float(np.sum(of_value**2 * (1.0 - 2.0 * share + np.sum(share**2))))
    several = len(rows.total.contexts) > 1
    variance = _positive(float(np.sum(residuals**2 - sizes)), float(np.sum(sizes**2)))
    return PeriodEffects(
        rows.periods,
        rows.first,
        rows.last,
        period_sd=float(np.sqrt(variance)),
        value_sd=float(np.sqrt(_positive(value_excess, value_size))) if several else 0.0,
        overdispersion=1.0 + variance * float(np.sum(sizes**2) / sizes.sum()),
        **learnt,
    )


def _positive(above: float, below: float) -> float:
    return max(above / below, 0.0) if below > 0.0 else 0.0


def _predicted(model: CalibrationModel, sketch: Sketch) -> FloatArray:
    columns = [column for column in sketch.contexts.columns(sketch.context) if column.name in model.fields]
    return model.predict(sketch.score, columns or None, score_type="probability")
