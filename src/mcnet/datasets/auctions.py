"""Simulate auctions whose true probabilities are known, and the log that a bidder has of them: those it won."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, ndtr

from mcnet._shared.arrays import FloatArray, IntArray, MaskArray

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class SimulatedAuctions:
    """Auctions as NumPy columns, in the order of time.

    Attributes
    ----------
    score : what the bidder believes; its bid is value × score.
    label, probability : whether a click came, and how probable it was.
    country : a field; the score errs by its own factor in each.
    premium : whether the place is a premium one, which the bidder does not see: dearer, and clicked less than the
        score says. The other places are clicked more.
    price, bid : the highest bid of the others, who know what a row of this score and country is worth on average and
        bid more for premium places; and the own one.
    value : what a click is worth.
    propensity : the probability of winning, given the score and the place.
    """

    score: FloatArray
    label: IntArray
    probability: FloatArray
    country: IntArray
    premium: MaskArray
    price: FloatArray
    bid: FloatArray
    value: float
    propensity: FloatArray

    def __len__(self) -> int:
        return len(self.score)

    @property
    def won(self) -> MaskArray:
        """Which auctions the bid has won: the rows that a bidder's own log has."""
        return self.bid > self.price

    def frame(self) -> pl.DataFrame:
        """Return the auctions as a table."""
        import polars as pl

        names = ("score", "label", "probability", "country", "price", "bid", "propensity")
        return pl.DataFrame({name: getattr(self, name) for name in names}).with_columns(won=self.won)


def simulate_auctions(
    rows: int, *, countries: int = 8, rate: float = 0.02, hidden: float = 1.6, spread: float = 0.25, seed: int = 0
) -> SimulatedAuctions:
    """Simulate auctions.

    Parameters
    ----------
    rows : how many.
    countries : how many values the field has.
    rate : about the mean probability of a click.
    hidden : how much more often other places than the score says are clicked; premium ones less, so that the score is
        right on average. 1 for none: then the rows that are won are like the others.
    spread : of the logarithm of the factor by which the score is wrong in each country.
    seed : of the random numbers.

    Returns
    -------
    SimulatedAuctions : every auction; `won` tells which of them the bidder's log has.

    >>> auctions = simulate_auctions(1000)
    >>> len(auctions), auctions.frame().columns[:3]
    (1000, ['score', 'label', 'probability'])
    """
    rng = np.random.default_rng(seed)
    country = rng.integers(0, countries, rows)
    factor = np.exp(spread * rng.standard_normal(countries))
    score = expit(np.log(rate / (1.0 - rate)) + 0.7 * rng.standard_normal(rows))
    premium = rng.random(rows) < 0.5
    probability = np.clip(score / factor[country] * np.where(premium, 2.0 - hidden, hidden), 0.0, 1.0)
    label = (rng.random(rows) < probability).astype(np.int64)
    value, width = 1.0, 0.4
    # The others bid what a row of this score and country is worth on average, more for premium places: a row whose
    # price is just that is as often one as the other, so that bids which are right on average are the best ones.
    middle = np.log(value * score / factor[country]) + np.where(premium, 0.5, -0.5)
    price = np.exp(middle + width * rng.standard_normal(rows))
    propensity = ndtr((np.log(value * score) - middle) / width)
    return SimulatedAuctions(score, label, probability, country, premium, price, value * score, value, propensity)
