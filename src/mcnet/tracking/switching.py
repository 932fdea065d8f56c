"""Switching: belief in each candidate forecast, learnt by tempered likelihood with a fixed share."""

import numpy as np

from mcnet._shared.typing import FloatArray

__all__ = ["candidate_names", "first_belief", "insert_memory", "learnt_belief"]

SWITCH_CHANCE = 0.005
"""The chance per period that another candidate becomes the right one."""
PRIOR_EVERYTHING, PRIOR_STACK, PRIOR_CAREFUL, PRIOR_OTHERS = 0.65, 0.10, 0.15, 0.10
"""The prior belief in everything, in the stack, in the careful stack, and in all other candidates together."""
BEFORE_MEMORIES = 4
"""Everything, both stacks and the base scores come before the candidates that are one memory each."""


def candidate_names(half_lives: list[float], levels: int) -> list[str]:
    """Return the names of the candidates, in their order; `half_lives` are those of the memories that forget."""
    return [
        "everything",
        "stack",
        "careful stack",
        "base scores",
        *(f"memory {half_life:g}" for half_life in half_lives),
        *(f"level {half_life:g}" for half_life in half_lives[:levels]),
    ]


def first_belief(memories: int, levels: int) -> FloatArray:
    """Return the prior belief, given the numbers of memories and of levels that follow one."""
    others = 1 + memories + levels
    return np.array([PRIOR_EVERYTHING, PRIOR_STACK, PRIOR_CAREFUL, *[PRIOR_OTHERS / others] * others])


def learnt_belief(
    belief: FloatArray, losses: FloatArray, prior: FloatArray, *, overdispersion: float, elapsed: float
) -> FloatArray:
    """Return the belief after a period: Bayes' rule with the evidence tempered, then a share back to the prior.

    Parameters
    ----------
    belief : before the period.
    losses : the log-loss of each candidate, summed over the rows of the period.
    prior : what the share of belief that is given up each period goes back to.
    overdispersion : rows per independent row, by which the losses are divided.
    elapsed : periods since the last one.
    """
    posterior = np.log(belief) - losses / overdispersion
    posterior = np.exp(posterior - posterior.max())
    stays = (1.0 - SWITCH_CHANCE) ** elapsed
    return np.asarray(stays * posterior / posterior.sum() + (1.0 - stays) * prior)


def insert_memory(belief: FloatArray, memory: int) -> FloatArray:
    """Return the belief with one more memory, believed in hardly at all; the share brings it to its prior."""
    longer = np.insert(belief, BEFORE_MEMORIES + memory, 1e-6)
    return np.asarray(longer / longer.sum())
