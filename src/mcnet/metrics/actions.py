"""The action list: which field values to act on, by money beyond noise; money over time, which it is made of."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammainc, gammaincc

from mcnet._shared.arrays import FloatArray, IntArray
from mcnet._shared.files import finite
from mcnet._shared.messages import aligned, count, counted, shown_value, signed_amount
from mcnet.metrics.field_values import CodedField, coded_fields
from mcnet.metrics.intervals import two_sided
from mcnet.metrics.judged_rows import MetricSettings
from mcnet.metrics.money import Money, ValueRows, ValueSums, money_lines, money_of_rows, rows_of_cells
from mcnet.rows.periods import shown_periods
from mcnet.sketch.sketch import Sketch

if TYPE_CHECKING:
    import polars as pl

    from mcnet.metrics.evaluation import Predictor

MONEY_PERIODS = 30
"""Money over time is that of the last so many periods."""
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
        return [finite(asdict(action)) for action in self]

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
            figures = (count(action.positives), _percent(action.off), interval, signed_amount(action.money))
            lines.append((name, *figures, signed_amount(action.beyond_noise), action.advice))
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


def find_actions(
    fields: Mapping[str, tuple[tuple[str, ...], ValueSums]], *, q: float = 0.05, level: float = 0.95
) -> Actions:
    """Return the field values whose error is beyond noise, by Benjamini and Hochberg's procedure over all fields.

    A field value is tested by the effective number of its positives, as that of a Poisson distribution, two-sided.
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
            advice = f"bids are too {'high' if gained > 0 else 'low'}: multiply by {factor:.3g}"
            rows = float(sums.weight[i]), float(sums.positives[i])
            figures = (off, off_low, off_high, gained, money_low, money_high, beyond, factor)
            found.append(Action(field, values[i], *rows, *figures, advice))
            chances.append(float(chance[i]))
    return Actions((found[i] for i in discoveries(np.array(chances), q)), len(found), too_few, q)


def discoveries(chances: FloatArray, q: float) -> IntArray:
    """Return the tests that Benjamini and Hochberg's procedure rejects, the smallest chance first.

    >>> discoveries(np.array([0.5, 0.001, 0.03]), 0.05).tolist()
    [1, 2]
    """
    order = np.argsort(chances, kind="stable")
    allowed = q * np.arange(1, len(order) + 1) / max(len(order), 1)
    passed = np.flatnonzero(chances[order] <= allowed)
    return order[: passed[-1] + 1] if len(passed) else order[:0]


def _ratio(expected: float, seen: float) -> float:
    return float(expected / seen) if seen > 0 else float("inf")


# Money over time: of each period, and of all of them together.


class MoneyOverTime:
    """The money of periods, added one after the other, and of all of them together.

    Attributes
    ----------
    periods : the figures of each period.
    without : how many periods had no values, and are left out.
    """

    def __init__(self) -> None:
        """Start without a period."""
        self.periods: list[dict[str, Any]] = []
        self.without = 0
        self._parts: list[tuple[ValueRows, dict[str, CodedField]]] = []

    def add_valued(
        self,
        period: str,
        sketch: Sketch,
        model: "Predictor | None",
        value: float | None,
        known: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a period; one without values is only counted."""
        from mcnet.metrics.evaluation import predict_cells

        sketch = (sketch if sketch.value_kind or value is None else sketch.with_value(value)).unfolded()
        if sketch.value_kind is None:
            self.without += 1
            return
        rows, cells = rows_of_cells(sketch.score if model is None else predict_cells(model, sketch), sketch)
        fields = coded_fields(sketch.contexts.columns(sketch.context[cells]))
        self._parts.append((rows, fields))
        if known is None or known["rows"] != sketch.rows:
            figures = money_of_rows(rows, fields, MetricSettings()).table.figures()
            known = {"period": period, "rows": sketch.rows, **figures}
        self.periods.append(dict(known))

    @cached_property
    def total(self) -> Money | None:
        """Return the money of all periods together; None if there is none."""
        if not self._parts:
            return None
        parts = [rows for rows, _ in self._parts]
        names = ("p", "value", "observed", "variance", "weight", "positives")
        joined: dict[str, Any] = {name: np.concatenate([getattr(rows, name) for rows in parts]) for name in names}
        fields = {}
        for name in self._parts[0][1]:
            index: dict[str, int] = {}
            codes = [
                np.array([index.setdefault(value, len(index)) for value in values], dtype=np.intp)[own]
                for own, values in (part[name] for _, part in self._parts)
            ]
            fields[name] = CodedField(np.concatenate(codes), tuple(index))
        return money_of_rows(ValueRows(**joined, per_positive=parts[0].per_positive), fields, MetricSettings())

    def actions(self) -> Actions:
        """Return the field values to act on, over all periods."""
        money = self.total
        fields = {} if money is None else {name: (values, table.sums) for name, (values, table) in money.fields.items()}
        return find_actions(fields)

    def lines(self, most: int = 12) -> list[tuple[str, ...]]:
        """Return a line of words for each of the last periods, headings first."""
        names = shown_periods([one["period"] for one in self.periods])
        named = [{**one, "name": name} for one, name in zip(self.periods, names, strict=True)]
        return money_lines("period", named[-most:])
