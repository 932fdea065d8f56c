"""Streams whose positives arrive late: what had arrived of each period at every age."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mcnet.datasets.worlds import World, WorldPeriod

__all__ = ["DelayedWorld"]


@dataclass(frozen=True)
class DelayedWorld:
    """A simulated world whose positives arrive after an exponential delay, counted in periods from the period's end.

    Attributes
    ----------
    world : the world without delays.
    mean_delay : the mean delay, in periods.
    at_once : the share of positives that is there when the period ends.

    >>> from mcnet.datasets.worlds import make_world
    >>> delayed = DelayedWorld(make_world("still"), mean_delay=2.0)
    >>> rows = delayed.world.period(3)
    >>> bool(delayed.arrived(3, 0.0).sum() < delayed.arrived(3, 4.0).sum() <= rows.label.sum())
    True
    """

    world: World
    mean_delay: float = 2.0
    at_once: float = 0.3

    def arrived(self, t: int, age: float) -> NDArray[np.int8]:
        """Return the labels of period t as they are known `age` periods after its end."""
        rows = self.world.period(t)
        generator = np.random.default_rng([self.world.seed, 7, t])
        late = generator.random(len(rows.label)) >= self.at_once
        delay = np.where(late, generator.exponential(self.mean_delay, len(rows.label)), 0.0)
        return (rows.label * (delay <= age)).astype(np.int8)

    def period(self, t: int) -> WorldPeriod:
        """Return the rows of period t with their complete labels."""
        return self.world.period(t)
