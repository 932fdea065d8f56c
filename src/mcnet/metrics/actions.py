"""The action list: which field values to act on, by money beyond noise, false discoveries controlled."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammainc, gammaincc

from mcnet._shared.arrays import FloatArray, IntArray
from mcnet._shared.messages import aligned, count, counted, figure, shown_value
from mcnet.metrics.intervals import two_sided
from mcnet.metrics.money import ValueSums

if TYPE_CHECKING:
    import polars as pl

FEWEST_POSITIVES = 5.0
"""Of a field value with fewer expected positives, no number of positives says much."""


@dataclass(frozen=True)
class Action:
    """One field value whose error is beyond noise.

    Attributes
    ----------
    field, value : which.
    weight, positives : its rows.
    off, off_low, off_high : predicted value over observed value, less 1, with its interval.
    money, money_low, money_high : Σwv(p − y): over-bid above 0, under-bid below.
    beyond_noise : the end of that interval which is nearer to 0.
    factor : what to multiply bids by.
    advice : what to do, in words.
    """

    field: str
    value: str
    weight: float
    positives: float
    off: float
    off_low: float
    off_high: float
    money: float
    money_low: float
    money_high: float
    beyond_noise: float
    factor: float
    advice: str


class Actions(Sequence[Action]):
    """The field values to act on, the most money beyond noise first.

    Attributes
    ----------
    tested : how many field values were tested.
    too_few : how many have too few positives to say anything.
    q : the share of the list that may be there by chance.
    """

    def __init__(self, found: Iterable[Action], tested: int, too_few: int, q: float) -> None:
        """Take the actions in any order."""
        self._found = sorted(found, key=lambda action: -abs(action.beyond_noise))
        self.tested, self.too_few, self.q = tested, too_few, q

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, index: Any) -> Any:
        return self._found[index]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the actions as plain numbers and strings; None for what is infinite."""
        return [
            {name: None if isinstance(x, float) and not np.isfinite(x) else x for name, x in asdict(action).items()}
            for action in self
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain lists, numbers and strings."""
        return {"q": self.q, "tested": self.tested, "too_few_positives": self.too_few, "actions": self.to_dicts()}

    def table(self) -> "pl.DataFrame":
        """Return one line per action."""
        import polars as pl

        words = {"field", "value", "advice"}
        schema = {name: pl.String if name in words else pl.Float64 for name in Action.__dataclass_fields__}
        return pl.DataFrame(self.to_dicts(), schema=schema)

    def lines(self, most: int = 10) -> list[tuple[str, ...]]:
        """Return a line of words for each of the first actions, headings first."""
        lines: list[tuple[str, ...]] = [("field value", "positives", "off", "interval", "money", "beyond noise", "do")]
        for action in self[:most]:
            interval = f"{_percent(action.off_low)} … {_percent(action.off_high)}"
            name = f"{action.field} = {shown_value(action.value)}"
            figures = (count(action.positives), _percent(action.off), interval, _signed(action.money))
            lines.append((name, *figures, _signed(action.beyond_noise), action.advice))
        return lines

    def __str__(self) -> str:
        checked = f"{counted(self.tested, 'field value')} tested, false discoveries at most {self.q:.0%}"
        few = f"; {counted(self.too_few, 'value')} with too few positives to say anything" if self.too_few else ""
        if not self:
            return f"nothing to do: no field value is off beyond noise ({checked}{few})"
        rest = f"\n… and {counted(len(self) - 10, 'field value')} with less money" if len(self) > 10 else ""
        return f"{aligned(self.lines())}{rest}\n{checked}{few}"


def _percent(share: float) -> str:
    return f"{share:+.0%}" if np.isfinite(share) else "∞"


def _signed(money: float) -> str:
    return ("+" if money > 0 else "") + figure(money)


def find_actions(
    fields: Mapping[str, tuple[tuple[str, ...], ValueSums]], *, q: float = 0.05, level: float = 0.95
) -> Actions:
    """Return the field values whose error is beyond noise, by Benjamini and Hochberg's procedure over all fields.

    A field value is tested by the effective number of its positives, as that of a Poisson distribution, two-sided.

    Parameters
    ----------
    fields : the values of each field, and their sums.
    q : the expected share of false discoveries.
    level : of the intervals.
    """
    found, chances, too_few = [], [], 0
    z = two_sided(level)
    for field, (values, sums) in fields.items():
        expected, seen = sums.expected, sums.seen
        each = np.divide(sums.variance, sums.predicted, out=np.zeros_like(expected), where=sums.predicted > 0)
        low, high = (np.maximum(np.sqrt(seen + z * z / 4) - z / 2, 0) ** 2, (np.sqrt(seen + z * z / 4) + z / 2) ** 2)
        above = np.where(seen > 0, gammainc(np.maximum(seen, 1e-9), expected), 1.0)
        chance = np.minimum(2.0 * np.minimum(above, gammaincc(seen + 1.0, expected)), 1.0)
        enough = expected >= FEWEST_POSITIVES
        too_few += int((~enough).sum())
        for i in np.flatnonzero(enough):
            off, off_low, off_high = (_ratio(expected[i], n) - 1.0 for n in (seen[i], high[i], low[i]))
            gained, money_low, money_high = (float(each[i] * (expected[i] - n)) for n in (seen[i], high[i], low[i]))
            beyond = money_low if money_low > 0 else min(money_high, 0.0)
            factor = float(seen[i] / expected[i])
            advice = f"bids are too {'high' if gained > 0 else 'low'}: multiply by {figure(factor)}"
            rows = float(sums.weight[i]), float(sums.positives[i])
            figures = (off, off_low, off_high, gained, money_low, money_high, beyond, factor)
            found.append(Action(field, values[i], *rows, *figures, advice))
            chances.append(float(chance[i]))
    return Actions((found[i] for i in discoveries(np.array(chances), q)), len(found), too_few, q)


def discoveries(chances: FloatArray, q: float) -> IntArray:
    """Return the tests that Benjamini and Hochberg's procedure rejects, the smallest chance first.

    Parameters
    ----------
    chances : of seeing what was seen, or more, by chance (p-values).
    q : the expected share of false discoveries.

    >>> discoveries(np.array([0.5, 0.001, 0.03]), 0.05).tolist()
    [1, 2]
    """
    order = np.argsort(chances, kind="stable")
    allowed = q * np.arange(1, len(order) + 1) / max(len(order), 1)
    passed = np.flatnonzero(chances[order] <= allowed)
    return order[: passed[-1] + 1] if len(passed) else order[:0]


def _ratio(expected: float, seen: float) -> float:
    return float(expected / seen) if seen > 0 else float("inf")
