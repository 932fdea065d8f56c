"""Replay auctions: what bids made of probabilities would have won, paid and earned, beside each other."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from mcnet._shared.arrays import FloatArray, IndexArray, MaskArray, sums_by
from mcnet._shared.messages import aligned, amount, count, counted, signed_amount, warn
from mcnet.errors import Advice, InputError
from mcnet.metrics.field_values import CodedField, coded_fields, combine, compact
from mcnet.metrics.intervals import tails, two_sided
from mcnet.metrics.money import row_values
from mcnet.plots.style import AFTER, BEFORE, LINES, Spec, axis, figure_of, numbers
from mcnet.rows.columns import (
    check_lengths,
    labels_column,
    restore_negatives,
    scores_column,
    values_column,
    weights_column,
)
from mcnet.rows.fields import field_columns

Auction = Literal["second", "first"]

TRUTH = "truth"
"""The name of the bids made of the true probabilities, where they are known."""
_BLOCKS = 100
"""Rows are cut into so many blocks in their order, unless blocks are given."""
_FEWEST_BLOCKS = 10
_FEWEST_ROWS_OF_A_BLOCK = 10
"""Of a short log, unless blocks are given."""
_RESAMPLED_AT_A_TIME = 1 << 22
"""Resampled blocks in memory at a time."""
_RESAMPLES = 2000
_FEWEST_WON = 0.001
"""Bids that win a smaller share of the auctions are probably in another unit than the prices."""
_MULTIPLIERS: FloatArray = np.round(np.geomspace(0.25, 4.0, 33), 3).astype(np.float64)

# The auction: who wins, what is paid.


@dataclass(frozen=True)
class Auctions:
    """Rows with a market price: the highest bid of the others, which a bid must exceed.

    Attributes
    ----------
    label, price, value : of each row, in units of money.
    weight : how many auctions each row stands for.
    blocks, periods : the number of each row's block, for intervals, and period, for the budget.
    auction : "second" pays the market price, "first" the own bid.
    budget : what may be spent in a period; bids stop when the next win would exceed it.
    """

    label: FloatArray
    price: FloatArray
    value: FloatArray
    weight: FloatArray
    blocks: IndexArray
    periods: IndexArray
    auction: Auction
    budget: float | None

    def won(self, bids: FloatArray) -> tuple[MaskArray, FloatArray]:
        """Return which rows bids win, and what each row costs if it is won, all auctions it stands for together."""
        cost = self.weight * (self.price if self.auction == "second" else bids)
        won = bids > self.price
        if self.budget is not None:
            for period in range(int(self.periods.max()) + 1):
                inside = np.flatnonzero(won & (self.periods == period))
                won[inside[np.cumsum(cost[inside]) > self.budget]] = False
        return won, cost

    def outcome(self, probabilities: FloatArray) -> "Outcome":
        """Return what bids of value × probability come to."""
        won, cost = self.won(self.value * probabilities)
        rows = np.flatnonzero(won)
        number = int(self.blocks.max()) + 1
        positives = self.weight[rows] * self.label[rows]
        earned = self.value[rows] * positives
        per_block = sums_by(self.blocks[rows], earned - cost[rows], number) if len(rows) else np.zeros(number)
        columns = (self.weight[rows], cost[rows], positives, earned)
        auctions, spend, seen, value = (float(column.sum()) for column in columns)
        return Outcome(auctions, spend, seen, value, per_block, won)


class Outcome(NamedTuple):
    """What the bids of one model come to."""

    won: float
    spend: float
    positives: float
    value: float
    by_block: FloatArray
    """The surplus of each block."""
    rows: MaskArray
    """Which rows were won."""

    @property
    def surplus(self) -> float:
        """What is left of the value after it was paid for."""
        return self.value - self.spend

    @property
    def returned(self) -> float | None:
        """The value per unit of money spent; None if nothing was spent."""
        return self.value / self.spend if self.spend > 0.0 else None

    @property
    def cost_per_positive(self) -> float | None:
        """What was spent for each positive; None without positives."""
        return self.spend / self.positives if self.positives > 0.0 else None


@dataclass(frozen=True)
class SurplusDifference:
    """The surplus of a model minus that of another one on the same rows, with the interval of a block bootstrap."""

    value: float
    low: float
    high: float
    relative: float
    """Divided by the surplus of the other one; NaN if that is not above 0."""


@dataclass(frozen=True)
class WonCheck:
    """How the calibration error changes along the margin by which rows were won.

    Attributes
    ----------
    barely, easily : predicted over observed positives (PCOC) of the third of the won rows whose price is nearest to
        the bid, and of the third whose price is farthest below it, among rows of like field values and probabilities.
    ratio : the former over the latter, with its interval (`low`, `high`): 1 if the margin does not matter. Rows are
        compared with those of the same field values and about the same probability alone (Mantel and Haenszel), since
        these may be off by themselves, and their prices differ.
    share_won : of all auctions of the log, those that the bids win; near 1 in a log of winners alone.
    """

    barely: float
    easily: float
    ratio: float
    low: float
    high: float
    share_won: float

    @property
    def warning(self) -> str | None:
        """What is wrong, in words; None if nothing is beyond noise."""
        if not self.low > 1.0 and not self.high < 1.0:
            return None
        over = self.ratio > 1.0
        ends = sorted(abs(end - 1.0) for end in (self.low, self.high))
        off = f"{'over' if over else 'under'}-predicted by {abs(self.ratio - 1.0):.0%} ({ends[0]:.0%} … {ends[1]:.0%})"
        cost = "raised bids win more of them, at a loss" if over else "bids on rows that are nearly lost are too low"
        if self.share_won < _SHARE_OF_A_LOG_OF_WINNERS:
            return (
                f"rows that these bids barely win are {off} against those they easily win with the same field values "
                f"and scores: the market knows what the scores do not, and {cost}; do not calibrate on won rows alone, "
                "or weigh them by the probability of winning (--propensity)"
            )
        return (
            f"rows that you barely won are {off} against those easily won with the same field values and scores: you "
            f"calibrate on winners, which are not like all auctions, and {cost}; weigh rows by the probability of "
            "winning (--propensity)"
        )


_MARGIN_SCORE_BINS = 50
_SHARE_OF_A_LOG_OF_WINNERS = 0.95
"""Where the bids win less than this of a log, it has more than the auctions that they won."""


def check_won_rows(
    probabilities: FloatArray,
    labels: FloatArray,
    price: FloatArray,
    bids: FloatArray,
    *,
    contexts: IndexArray,
    weight: FloatArray,
    level: float = 0.99,
) -> WonCheck | None:
    """Return whether the calibration error of won rows depends on how narrowly they were won; None if too few were."""
    rows = np.flatnonzero((bids > price) & (bids > 0.0) & (weight > 0.0))
    if len(rows) < 3:
        return None
    p, w = probabilities[rows], weight[rows]
    order = np.argsort(p, kind="stable")
    predicted = np.cumsum((w * p)[order])
    score_bin = np.empty(len(rows), dtype=np.intp)
    score_bin[order] = np.minimum(predicted / predicted[-1] * _MARGIN_SCORE_BINS, _MARGIN_SCORE_BINS - 1)
    strata, known = compact(contexts[rows] * _MARGIN_SCORE_BINS + score_bin)
    # Thirds by margin within each stratum.
    order = np.lexsort((price[rows] / bids[rows], strata))
    size = np.bincount(strata, minlength=len(known))
    place = np.arange(len(rows)) - np.repeat(np.cumsum(size) - size, size)
    third = np.empty(len(rows), dtype=np.intp)
    third[order] = 3 * (2 * place + 1) // (2 * size[strata[order]])
    cells, y = strata * 3 + third, labels[rows]
    seen, expected, noise = (sums_by(cells, x, 3 * len(known)).reshape(-1, 3) for x in (w * y, w * p, w * w * y))
    share = np.divide(expected[:, 2], expected[:, 0] + expected[:, 2], out=np.zeros(len(known)), where=size > 1)
    easily, barely = float((seen[:, 0] * share).sum()), float((seen[:, 2] * (1.0 - share)).sum())
    positives = np.bincount(third[y > 0.0], minlength=3)  # rows, whatever each stands for
    if min(positives[0], positives[2]) < 5 or not (easily > 0.0 and barely > 0.0):
        return None
    ratio = easily / barely
    variance = (noise[:, 0] * share**2).sum() / easily**2 + (noise[:, 2] * (1.0 - share) ** 2).sum() / barely**2
    reach = float(np.exp(two_sided(level) * np.sqrt(variance)))
    pcoc = expected.sum(axis=0) / seen.sum(axis=0)
    share_won = float(w.sum()) / float(weight.sum())
    return WonCheck(float(pcoc[2]), float(pcoc[0]), ratio, ratio / reach, ratio * reach, share_won)


# The replay of several models on the same rows.


@dataclass(frozen=True, repr=False)
class Replay:
    """What each model would have won, paid and earned.

    Attributes
    ----------
    outcomes : by the name of the model.
    against : the model that the others are compared with.
    auctions : the rows.
    probabilities : of each model.
    fields : the values of each field, and the number of each row's value.
    level, seed : of the intervals.
    won_check : whether the rows look like winners alone, see `check_won_rows`.
    per_positive : whether the value is known of positives alone, so that the mean of the field value is bid with.
    """

    outcomes: Mapping[str, Outcome]
    against: str
    auctions: Auctions
    probabilities: Mapping[str, FloatArray]
    fields: Mapping[str, CodedField]
    level: float
    seed: int
    won_check: WonCheck | None
    per_positive: bool = False

    @cached_property
    def differences(self) -> dict[str, SurplusDifference]:
        """The surplus of each model minus that of `against`, with an interval from blocks of rows."""
        base = self.outcomes[self.against]
        number = len(base.by_block)
        apart = np.column_stack([outcome.by_block - base.by_block for outcome in self.outcomes.values()])
        lows = highs = np.full(len(self.outcomes), np.nan)
        if number >= _FEWEST_BLOCKS:
            rng, shares = np.random.default_rng(self.seed), np.full(number, 1.0 / number)
            size = max(_RESAMPLED_AT_A_TIME // number, 1)
            parts = [min(size, _RESAMPLES - done) for done in range(0, _RESAMPLES, size)]
            drawn = np.concatenate([rng.multinomial(number, shares, part).astype(np.float64) @ apart for part in parts])
            lows, highs = np.quantile(drawn, tails(self.level), axis=0)
        result = {}
        for name, value, low, high in zip(self.outcomes, apart.sum(axis=0).tolist(), lows, highs, strict=True):
            relative = value / base.surplus if base.surplus > 0.0 else float("nan")
            result[name] = SurplusDifference(value, float(low), float(high), relative)
        return result

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers and strings."""
        truth = self.outcomes.get(TRUTH)
        return {
            "rows": len(self.auctions.label),
            "auctions": float(self.auctions.weight.sum()),
            "value_of": "positives alone: the mean of each field value" if self.per_positive else "every row",
            "auction": self.auctions.auction,
            "budget": self.auctions.budget,
            "blocks": int(self.auctions.blocks.max()) + 1,
            "against": self.against,
            "won_check": None if self.won_check is None else asdict(self.won_check),
            "models": {
                name: {
                    "won": outcome.won,
                    "spend": outcome.spend,
                    "positives": outcome.positives,
                    "value": outcome.value,
                    "surplus": outcome.surplus,
                    "return": outcome.returned,
                    "cost_per_positive": outcome.cost_per_positive,
                    "difference": asdict(self.differences[name]),
                    **({} if truth is None else {"regret": truth.surplus - outcome.surplus}),
                }
                for name, outcome in self.outcomes.items()
            },
        }

    def surplus_by_value(self, field: str) -> tuple[tuple[str, ...], dict[str, FloatArray]]:
        """Return the values of a field, and the surplus of each model in each of them.

        Parameters
        ----------
        field : the name of the field.

        Returns
        -------
        The values, and one array per model.
        """
        if field not in self.fields:
            raise InputError(f"there is no field {field!r}; there are {', '.join(self.fields) or 'none'}")
        codes, values = self.fields[field].codes, self.fields[field].values
        worth = self.auctions.value * self.auctions.label * self.auctions.weight
        result = {}
        for name, outcome in self.outcomes.items():
            _, cost = self.auctions.won(self.auctions.value * self.probabilities[name])
            result[name] = sums_by(codes, np.where(outcome.rows, worth - cost, 0.0), len(values))
        return values, result

    def surplus_by_multiplier(self) -> tuple[FloatArray, dict[str, FloatArray]]:
        """Return factors of all bids, and the surplus of each model at each of them.

        Returns
        -------
        The factors, and one array per model.
        """
        curves = {
            name: np.array([self.auctions.outcome(p * factor).surplus for factor in _MULTIPLIERS])
            for name, p in self.probabilities.items()
        }
        return _MULTIPLIERS, curves

    def figures(self) -> dict[str, Spec]:
        """Return two figures: surplus against a bid multiplier, and the surplus gained per field value."""
        factors, curves = self.surplus_by_multiplier()
        colours = [BEFORE, AFTER, *LINES[2:]]
        lines = [
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "x": numbers(factors),
                "y": numbers(curve, 5),
                "line": {"color": colours[place % len(colours)], "width": 2},
            }
            for place, (name, curve) in enumerate(curves.items())
        ]
        ticks: dict[str, Any] = {"tickvals": [0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4], "type": "log"}
        x_axis = axis("all bids multiplied by", **ticks)
        result = {"multiplier": figure_of(lines, 380, xaxis=x_axis, yaxis=axis("surplus"))}
        for field in list(self.fields)[:1]:
            values, known = self.surplus_by_value(field)
            gained = {name: surplus - known[self.against] for name, surplus in known.items() if name != self.against}
            if not gained:
                continue
            size = np.max([np.abs(column) for column in gained.values()], axis=0)
            shown = np.argsort(-size, kind="stable")[:_MOST_VALUES_SHOWN]
            bars = [
                {
                    "type": "bar",
                    "name": name,
                    "x": [values[i] for i in shown],
                    "y": numbers(column[shown], 5),
                    "marker": {"color": colours[(place + 1) % len(colours)]},
                }
                for place, (name, column) in enumerate(gained.items())
            ]
            title = axis(f"surplus over {self.against}")
            x_axis = axis(field, type="category")
            result["values"] = figure_of(bars, 380, barmode="group", xaxis=x_axis, yaxis=title)
        return result

    def __str__(self) -> str:
        head = ("bids from", "won", "spend", "positives", "surplus", "return", "cost per positive")
        lines: list[tuple[str, ...]] = [(*head, f"surplus − {self.against} ({self.level:.0%})")]
        for name, outcome in self.outcomes.items():
            gap = self.differences[name]
            interval = "" if np.isnan(gap.low) else f" ({signed_amount(gap.low)} … {signed_amount(gap.high)})"
            relative = "" if np.isnan(gap.relative) else f" = {gap.relative:+.1%}"
            figures = (amount(outcome.spend), count(outcome.positives), amount(outcome.surplus))
            words = (amount(outcome.returned), amount(outcome.cost_per_positive))
            difference = "" if name == self.against else f"{signed_amount(gap.value)}{interval}{relative}"
            lines.append((name, count(outcome.won), *figures, *words, difference))
        blocks = int(self.auctions.blocks.max()) + 1
        few = "; too few for an interval" if blocks < _FEWEST_BLOCKS else ""
        spent = "" if self.auctions.budget is None else f", a budget of {amount(self.auctions.budget)} per period"
        rows = counted(len(self.auctions.label), "auction")
        stand = float(self.auctions.weight.sum())
        if stand != len(self.auctions.label):
            rows = f"{counted(len(self.auctions.label), 'row')} that stand for {count(stand)} auctions"
        mean = "; values are means of positives, per field value" if self.per_positive else ""
        blocked = f"intervals from {counted(blocks, 'block')} of rows{few}"
        note = f"{rows}, {self.auctions.auction} price{spent}; {blocked}{mean}"
        warning = "" if self.won_check is None or self.won_check.warning is None else f"\n{self.won_check.warning}"
        return f"{aligned(lines)}\n{note}{warning}"

    def __repr__(self) -> str:
        return f"Replay({', '.join(self.outcomes)}: {counted(len(self.auctions.label), 'auction')})"


_MOST_VALUES_SHOWN = 30


def replay(
    probabilities: Mapping[str, Any],
    labels: Any,
    price: Any,
    value: Any = None,
    *,
    value_per_positive: Any = None,
    price_per: float | None = None,
    field: Any = None,
    weight: Any = None,
    negatives_kept: float = 1.0,
    blocks: Any = None,
    periods: Any = None,
    auction: Auction = "second",
    budget: float | None = None,
    truth: Any = None,
    against: str | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Replay:
    """Replay auctions with bids of value × probability, for several models beside each other.

    A bid above the market price of its row wins it. The replay assumes that the others' bids do not react, and knows
    nothing of auctions that are not in the log.

    Parameters
    ----------
    probabilities : a column per model, by name: {"scores": …, "model": …}.
    labels : the column of labels, 0 or 1.
    price : the column of market prices, the highest bid of the others.
    value : what a positive is worth: a number, or a column.
    value_per_positive : a column of it that only positives have; the mean of each field value is bid with.
    price_per : for how many rows a price is, 1 if not given: 1000 for prices per thousand impressions.
    field : one column, or several as {name: column}, to show where the money is.
    weight : a column of how many auctions each row stands for.
    negatives_kept : the fraction of negatives that survived down-sampling; each stands for its inverse of auctions.
    blocks : a column of block numbers, or the rows of a block; if not given, 100 blocks in the order of the rows, of
        at least ten rows each.
        Intervals come from whole blocks: a few positives decide, and rows of one block depend on each other.
    periods : a column of periods, such as days, in the order of the rows; the budget begins anew in each.
    auction : "second": the price is paid; "first": the own bid.
    budget : what may be spent in a period.
    truth : the true probabilities, where they are known: adds the regret to bidding them.
    against : the model that the others are compared with; the first if not given.
    level : of the intervals.
    seed : of the resampled blocks.

    Returns
    -------
    Replay : `outcomes`, `differences`, `to_dict()`, and a table when printed.

    >>> found = replay({"scores": [0.3, 0.1]}, [1, 0], [1.0, 2.0], value=10.0)
    >>> found.outcomes["scores"].surplus
    9.0
    """
    if not probabilities:
        raise InputError("there is no model to replay; give at least one column of probabilities by name")
    check_rules(auction, budget, price_per, level)
    y = labels_column(labels)
    w = None if weight is None else weights_column(weight)
    check_lengths(label=y, weight=w)
    y, w = restore_negatives(y, w, negatives_kept)
    w = np.ones_like(y) if w is None else w
    if not w.any():
        raise InputError("every weight is 0; at least one row must stand for an auction")
    cost = values_column(price, name="price", advice=_PRICE_ADVICE) / (price_per or 1.0)
    chances = {name: scores_column(column, name=name, clip=False) for name, column in probabilities.items()}
    if truth is not None:
        if TRUTH in chances:
            raise InputError(f"{TRUTH!r} is the name of the true probabilities; call that model something else")
        chances[TRUTH] = scores_column(truth, name=TRUTH, clip=False)
    check_lengths(label=y, price=cost, **chances)
    fields = coded_fields(field_columns(field))
    check_lengths(label=y, **{f"field {name}": coded.codes for name, coded in fields.items()})
    worth = row_values(y, w, fields, value, value_per_positive)
    if worth is None:
        raise InputError("the replay needs a value: what a positive is worth, as a number or a column")
    numbered = _numbers(blocks, "blocks", len(y), max(-(-len(y) // _BLOCKS), _FEWEST_ROWS_OF_A_BLOCK))
    if len(y) > 1 and int(numbered.max()) + 1 == len(y):
        raise InputError(
            "every block is a single row, and a few positives decide; give blocks of rows that belong together"
        )
    days = _numbers(periods, "periods", len(y), len(y))
    auctions = Auctions(y, cost, worth.value, w, numbered, days, auction, budget)
    first = next(iter(chances)) if against is None else against
    if first not in chances:
        raise InputError(f"against is {first!r}, which is no model; there are {', '.join(chances)}")
    outcomes = {name: auctions.outcome(p) for name, p in chances.items()}
    _check_prices(auctions, chances, outcomes, price_per)
    contexts = combine(fields, len(y))[0].codes
    check = check_won_rows(chances[first], y, cost, worth.value * chances[first], contexts=contexts, weight=w)
    return Replay(outcomes, first, auctions, chances, fields, level, seed, check, worth.per_positive)


_PRICE_ADVICE = "a price is what winning the row would have cost, ≥ 0; leave out rows whose price is not known"


def check_rules(auction: str, budget: float | None, price_per: float | None, level: float) -> None:
    """Refuse rules of a replay that are none, before anything is read."""
    if auction not in ("second", "first"):
        raise InputError(f"auction is {auction!r}; it must be 'second' or 'first'")
    if budget is not None and not 0.0 < budget < np.inf:
        raise InputError(f"budget is {budget:g}; what may be spent in a period must be above 0")
    if price_per is not None and not 0.0 < price_per < np.inf:
        raise InputError(f"price_per is {price_per:g}; it must be a number of rows above 0, such as 1000")
    if not 0.0 < level < 1.0:
        raise InputError(f"level is {level:g}; it must be between 0 and 1, such as 0.95")


def _numbers(given: Any, name: str, rows: int, usual: int) -> IndexArray:
    """Return the number of each row's block: given as a column, or as so many rows in their order."""
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        length = usual if given is None else given
        if length < 1:
            raise InputError(f"{name} is {length}; a block has at least one row")
        return np.arange(rows) // length
    (column,) = field_columns({name: given})
    check_lengths(label=np.empty(rows), **{name: column})
    return compact(column.codes)[0]


def _check_prices(
    auctions: Auctions, chances: Mapping[str, FloatArray], outcomes: Mapping[str, Outcome], price_per: float | None
) -> None:
    """Refuse bids that no price of the log can judge: above all of them, or all below; warn where nearly all are."""
    highest, lowest = float(auctions.price.max()), float(auctions.price.min())
    units = check_units = Advice("check value and price_per", shell="check --value and --price-per")
    if price_per is None:
        asked = "are prices per thousand rows? then {}"
        units = Advice(asked.format("pass price_per=1000"), shell=asked.format("--price-per 1000"))
    if not highest > 0.0:
        raise InputError("every price is 0, so that every bid wins; give the column of market prices")
    for name, p in chances.items():
        bids = auctions.value * p
        if float(bids.min()) > highest:
            raise InputError(
                f"every bid of {name} (from {bids.min():.3g}) is above every price (up to {highest:.3g}): the replay "
                "cannot know what other bids would win",
                advice=check_units,
            )
        if auctions.budget is None and outcomes[name].rows.all():
            warn(f"the bids of {name} win every row: the replay cannot know what higher bids would win")
    won = max(int(np.count_nonzero(outcome.rows)) for outcome in outcomes.values())
    most = max(float((auctions.value * p).max()) for p in chances.values())
    if won == 0 and any((auctions.value * p > auctions.price).any() for p in chances.values()):
        raise InputError(
            f"the budget of {auctions.budget:g} per period is below the price of the first auction that a bid would "
            "win, in every period; give a larger one"
        )
    if won == 0:
        raise InputError(f"no bid (up to {most:.3g}) is above its price (from {lowest:.3g})", advice=units)
    if auctions.budget is None and won < _FEWEST_WON * len(auctions.price):
        middle = float(np.median(auctions.price))
        said = f"{counted(won, 'auction')} of {len(auctions.price):,} would be won: bids are up to {most:.3g}, prices"
        warn(f"{said} {middle:.3g} in the middle", units)
