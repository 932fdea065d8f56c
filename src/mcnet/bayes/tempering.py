"""How much rows of the same period are worth: tempering by forward validation, and the error of the level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mcnet._shared.arrays import FloatArray, IndexArray, IntArray, sigmoid, softplus
from mcnet.bayes.fit import fitted_level
from mcnet.bayes.posterior import BayesFit
from mcnet.rows.contexts import Contexts
from mcnet.sketch.sketch import Sketch

TEMPERING_FACTORS = (1.0, 4.0, 16.0, 64.0, 256.0)
"""What the weights may be divided by."""
PAST_SHARES = (1 / 4, 1 / 3, 1 / 2)
"""Where the past is cut: fitted on what lies before, judged on a span of the same length after it."""
FEWEST_GROUPS = 3
"""The variance of a level is not estimated from fewer groups of periods."""
FEWEST_BLOCKS = 8
"""Fewer blocks of periods say nothing of how they differ."""
STANDARD_ERRORS = 1.0
"""Tempering must gain more than this many standard errors, over periods, of what it gains."""
LASTING_RATIO = 2.0
"""Effects last if groups of periods vary by more than this times what single periods let expect: chance, about 5 %."""
LEAST_WEIGHT = 50.0
"""No fit is made on fewer rows than this after tempering."""


class CellColumns(NamedTuple):
    """The cells of a sketch, or of some blocks of its periods: raw logits, contexts, weights and positives."""

    logits: FloatArray
    context: IndexArray
    weight: FloatArray
    positives: FloatArray

    @staticmethod
    def joined(parts: Sequence[CellColumns]) -> CellColumns:
        """Return the cells of several blocks, one after the other."""
        return CellColumns(*map(np.concatenate, zip(*parts, strict=True)))

    def tempered(self, factor: float) -> CellColumns:
        """Return the cells with every weight divided by a factor."""
        return self._replace(weight=self.weight / factor, positives=self.positives / factor)

    @property
    def labels(self) -> tuple[FloatArray, FloatArray]:
        """Weights and positives."""
        return self.weight, self.positives


@dataclass(frozen=True)
class LevelVariance:
    """The variance of the common level that comes from periods."""

    total: float
    """Of the mean over all periods."""
    lasting: float
    """The part of effects that last for several periods: of a level that wanders."""
    wandering: float = 0.0
    """Of the level of a coming period beside the mean, where effects last; 0 where they do not."""

    @property
    def coming(self) -> float:
        """The variance of the level of the coming time beside the fit's.

        Where no effect lasts, the coming time is a mean over periods as the past is. Where effects last, it may be far
        from the mean for as long as a model is used.
        """
        return self.total + max(self.total, self.wandering)


Fit = Callable[[CellColumns], BayesFit]


def cells_of(sketch: Sketch, contexts: Contexts) -> CellColumns:
    """Return the cells of a sketch with the contexts of a larger one."""
    place = contexts.indices_of(sketch.contexts) if contexts.names else None
    context = np.zeros(len(sketch), dtype=np.int64) if place is None else place[sketch.context].astype(np.int64)
    return CellColumns(sketch.logit, context, sketch.weight, sketch.positives)


@dataclass(frozen=True)
class PeriodEvidence:
    """Blocks of periods in their order, and what they say of curves that are fitted on all of them."""

    blocks: Sequence[CellColumns]
    table: IntArray
    """The field values of each context."""
    fit: Fit

    @cached_property
    def tempering(self) -> float:
        """Return by what to divide all weights: what forecasts the later ones of these periods best.

        For several cuts of the past the curves are fitted, with every tempering, on what lies before the cut, and
        judged by the log-loss on a span of the same length after it, since a fit is used for about as long as it has
        seen. The common level of the judged span is set free: it moves most, whatever the tempering.
        """
        if len(self.blocks) < FEWEST_BLOCKS:
            return 1.0
        losses = np.zeros((len(TEMPERING_FACTORS), len(self.blocks)))
        for cut in sorted({int(len(self.blocks) * share) for share in PAST_SHARES}):
            before, after = CellColumns.joined(self.blocks[:cut]), slice(cut, 2 * cut)
            if not 0.0 < before.positives.sum() < before.weight.sum():
                continue
            for place, factor in enumerate(TEMPERING_FACTORS):
                if place and before.weight.sum() < LEAST_WEIGHT * factor:
                    losses[place, after] = np.inf
                    continue
                losses[place, after] += self._losses(self.fit(before.tempered(factor)), self.blocks[after])
        judged = losses[0] > 0.0
        if judged.sum() < FEWEST_BLOCKS // 2:
            return 1.0
        gains = (losses[0] - losses[1:])[:, judged]
        best = int(np.argmax(gains.sum(axis=1)))
        gained, error = gains[best].sum(), np.std(gains[best], ddof=1) * np.sqrt(judged.sum())
        return TEMPERING_FACTORS[best + 1] if gained > STANDARD_ERRORS * error else 1.0

    def _losses(self, fit: BayesFit, blocks: Sequence[CellColumns]) -> FloatArray:
        """Return the log-loss of each block, summed over its rows, at the level that suits all blocks best."""
        every = CellColumns.joined(blocks)
        logits = fit.calibrate_contexts(self.table, every.context, every.logits)
        logits = logits + fitted_level(logits, every.weight, every.positives)[0]
        losses = every.weight * softplus(logits) - every.positives * logits
        ends = np.cumsum([len(block.weight) for block in blocks])
        return np.add.reduceat(losses, np.concatenate([[0], ends[:-1]]))

    def level_variance(self, fit: BayesFit) -> LevelVariance:
        """Return the variance of the common level that comes from periods, by the method of batch means.

        There are about as many groups as each has periods, so that effects that last count once. Groups of one period
        say what it would be if no effect lasted.
        """
        if len(self.blocks) < FEWEST_BLOCKS:
            return LevelVariance(0.0, 0.0)
        logits = [fit.calibrate_contexts(self.table, block.context, block.logits) for block in self.blocks]

        def variance(groups: int) -> float:
            levels = []
            for group in np.array_split(np.arange(len(self.blocks)), groups):
                part = CellColumns.joined([self.blocks[place] for place in group])
                levels.append(fitted_level(np.concatenate([logits[place] for place in group]), *part.labels))
            return level_error(levels)

        groups = round(np.sqrt(len(self.blocks)))
        total, single = variance(groups), variance(len(self.blocks))
        if total <= LASTING_RATIO * single:
            return LevelVariance(total, 0.0)
        lasting = total - single
        return LevelVariance(total, lasting, max(groups * lasting, len(self.blocks) * single))

    def level_shift(self, fit: BayesFit, variance: float) -> float:
        """Return how far to move the level towards the base scores, which know the time that they were trained on.

        With the level b above the base scores and the variance V of effects that last, −b · V / (b² + V): never more
        than half of the standard error, and next to nothing where the bias of the base scores is clear.
        """
        if variance <= 0.0:
            return 0.0
        every = CellColumns.joined(self.blocks)
        logits = fit.calibrate_contexts(self.table, every.context, every.logits)
        p = sigmoid(logits)
        information = every.weight * p * (1.0 - p)
        bias = float(information @ (logits - every.logits) / information.sum())
        return -bias * variance / (bias**2 + variance)


def level_error(levels: Sequence[tuple[float, float]]) -> float:
    """Return the variance of the mean level that comes from periods, beyond the noise of their rows.

    `levels` are those of groups of consecutive periods, each with its information. Groups are long, so that effects
    that last for several periods are counted once (the method of batch means): with shares s of the information and
    deviations d from the mean, Σ s² d² · n / (n − 1), less 1 / information.
    """
    if len(levels) < FEWEST_GROUPS:
        return 0.0
    level, information = (np.array(column) for column in zip(*levels, strict=True))
    share = information / information.sum()
    spread = float(np.sum(share**2 * (level - share @ level) ** 2)) * len(levels) / (len(levels) - 1.0)
    return max(spread - 1.0 / float(information.sum()), 0.0)
