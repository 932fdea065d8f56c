"""Seasons: how the level of a period differs with its place in the day and in the week."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mcnet._shared.typing import FloatArray

__all__ = ["NUMBER_OF_SEASONS", "Seasons", "season_lengths"]

NUMBER_OF_SEASONS = 2
"""The day and the week; where periods are numbers or labels, two usual lengths."""
USUAL_LENGTHS = (7, 24)
"""In periods, where it is not known how long a period is: days of a week, hours of a day."""
LONGEST_SEASON = 2_016
"""In periods: a week of five minutes each."""
SECONDS_OF_SEASONS = (86_400.0, 604_800.0)
CYCLES_REMEMBERED = 8.0
"""After this many cycles a level counts half."""
EXPECTED_VARIANCE = 1.0 / 16.0
"""Of the level at one place of a season, in squared logits; so few periods are believed little."""


def season_lengths(seconds: float | None) -> tuple[int, ...]:
    """Return how many periods a day and a week have, 0 where that is not a whole number of two or more.

    Parameters
    ----------
    seconds : the length of a period; None if it is not known.

    >>> season_lengths(3600.0), season_lengths(86_400.0), season_lengths(None)
    ((24, 168), (0, 7), (7, 24))
    """
    if seconds is None:
        return USUAL_LENGTHS
    found = []
    for whole in SECONDS_OF_SEASONS:
        number = round(whole / seconds)
        found.append(number if 2 <= number <= LONGEST_SEASON and abs(number * seconds - whole) < 1e-6 * whole else 0)
    return tuple(found)


@dataclass
class Seasons:
    """The mean level of each place in a season, beside the mean of all: offsets in logits that few periods shrink.

    `sums[s]` `[places, 2]` are the sums of information × level and of the information, forgotten slowly.
    """

    lengths: tuple[int, ...]
    sums: list[FloatArray]

    @staticmethod
    def none() -> "Seasons":
        """Return seasons of which nothing is known."""
        return Seasons((0,) * NUMBER_OF_SEASONS, [np.zeros((0, 2))] * NUMBER_OF_SEASONS)

    def of_lengths(self, lengths: tuple[int, ...]) -> "Seasons":
        """Return the seasons of these lengths: those that were of the same length before keep what they know."""
        if lengths == self.lengths:
            return self
        pairs = zip(lengths, self.lengths, self.sums, strict=True)
        return Seasons(lengths, [sums if new == old else np.zeros((new, 2)) for new, old, sums in pairs])

    def learnt(self, position: float, elapsed: float, level: float, information: float) -> "Seasons":
        """Return what is known after one more period.

        Parameters
        ----------
        position : the place of the period in time, in periods.
        elapsed : periods since the last one.
        level : how far its level was from that of all periods, in logits.
        information : of the level: one over its variance.
        """
        found = []
        for length, before in zip(self.lengths, self.sums, strict=True):
            sums = before
            if length:
                sums = before * 2.0 ** (-elapsed / (CYCLES_REMEMBERED * length))
                sums[round(position) % length] += (information * level, information)
            found.append(sums)
        return Seasons(self.lengths, found)

    def offsets(self, position: float) -> FloatArray:
        """Return by how much the level at a place in time is expected to differ from the usual one, per season."""
        found = np.zeros(len(self.lengths))
        for season, (length, sums) in enumerate(zip(self.lengths, self.sums, strict=True)):
            if length:
                here, information = sums[round(position) % length]
                if information > 0.0:
                    usual = float(sums[:, 0].sum() / sums[:, 1].sum())
                    shrunk = information / (information + 1.0 / EXPECTED_VARIANCE)
                    found[season] = (here / information - usual) * shrunk
        return found

    def state(self) -> dict[str, Any]:
        """Return the state as JSON-able values."""
        return {"lengths": list(self.lengths), "sums": [sums.tolist() for sums in self.sums]}

    @staticmethod
    def restored(state: dict[str, Any]) -> "Seasons":
        """Return the seasons that `state` described."""
        sums = [np.array(rows, dtype=np.float64).reshape(-1, 2) for rows in state["sums"]]
        return Seasons(tuple(int(length) for length in state["lengths"]), sums)
