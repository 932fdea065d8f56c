"""Money: what miscalibration costs, per field value and in all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, log
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from mcnet._shared.arrays import FloatArray, IndexArray, IntArray, MaskArray, sums_by
from mcnet._shared.messages import aligned, amount, shown_value
from mcnet.errors import InputError
from mcnet.metrics.field_values import CodedField, combine, compact, seen_values
from mcnet.metrics.intervals import Estimate, tails
from mcnet.metrics.judged_rows import MetricSettings
from mcnet.rows.columns import as_floats, check_lengths, check_value, values_column
from mcnet.sketch.grid import VALUE_UNITS
from mcnet.sketch.sketch import Sketch

SCORE_BINS = 10
"""Each field value is cut into at most so many bins of equal predicted value, by the probability."""
_POSITIVES_PER_GROUP = 20.0
"""A bin has at least so many expected positives; with fewer, the noise of its money is far from normal."""
_MOST_DRAWN = 2_000_000
_MOST_RARE_GROUPS = 200_000
"""Rare field values times bins: each has at least 100 draws in memory."""
_EM_STEPS = 200


@dataclass(frozen=True)
class ValueRows:
    """Rows, or sums of rows of about one probability, with the money that their positives are worth.

    Attributes
    ----------
    p : the probability.
    value : Σwv, what they would be worth if all were positive.
    observed : Σwvy, what their positives are worth.
    variance : Σwv²p(1 − p), the variance of `observed` if the probabilities are true.
    weight, positives : Σw and Σwy.
    per_positive : whether the value is known of positives alone, so that the mean of the field value stands for it.
    """

    p: FloatArray
    value: FloatArray
    observed: FloatArray
    variance: FloatArray
    weight: FloatArray
    positives: FloatArray
    per_positive: bool = False

    def sums(self, codes: IndexArray, size: int) -> "ValueSums":
        """Add up by group."""
        columns = (self.p * self.value, self.observed, self.variance, self.weight, self.positives)
        return ValueSums(*(sums_by(codes, column, size) for column in columns))


class ValueSums(NamedTuple):
    """For each group: predicted value Σwvp, observed value Σwvy, its variance, weight and positives."""

    predicted: FloatArray
    observed: FloatArray
    variance: FloatArray
    weight: FloatArray
    positives: FloatArray

    @property
    def expected(self) -> FloatArray:
        """Return the effective number of expected positives: (Σwvp)² / V, which is Σp/(1 − p) for equal rows."""
        return np.divide(self.predicted**2, self.variance, out=np.zeros_like(self.predicted), where=self.variance > 0)

    @property
    def seen(self) -> FloatArray:
        """Return the effective number of positives that were seen, beside `expected`."""
        lost = np.divide(
            (self.predicted - self.observed) * self.predicted,
            self.variance,
            out=np.zeros_like(self.predicted),
            where=self.variance > 0,
        )
        return np.maximum(self.expected - lost, 0.0)


# The error of each group beyond noise: normal priors with a point at 0, whose parameters are fitted over all groups.


class _Prior(NamedTuple):
    """A relative error is 0, or of one of some normal distributions, each with its share (together at most 1)."""

    share: FloatArray
    mean: FloatArray
    variance: FloatArray
    error: FloatArray
    """The standard error of each mean."""
    logarithm: float
    """The log-likelihood, less the penalty of the parameters (BIC)."""


def _log_parts(
    error: FloatArray, noise: FloatArray, share: FloatArray, mean: FloatArray, variance: FloatArray
) -> FloatArray:
    """Return the log-likelihood of each error under each part of a prior, the point at 0 first."""
    share = np.append(max(1.0 - float(share.sum()), 1e-12), share)[:, None]
    mean, variance = np.append(0.0, mean)[:, None], np.append(0.0, variance)[:, None] + noise
    return np.asarray(np.log(share) - 0.5 * (np.log(2 * np.pi * variance) + (error - mean) ** 2 / variance))


def _fitted_prior(error: FloatArray, noise: FloatArray, means: Sequence[float], penalty: float) -> _Prior:
    """Fit a point at 0 and one normal distribution per mean to start from, by expectation and maximisation."""
    number = len(means)
    start = max(float(np.mean(error**2 - noise)), 0.1 * float(np.median(noise)))
    share, mean, variance = np.full(number, 0.5 / number), np.array(means), np.full(number, start)
    for _ in range(_EM_STEPS):
        parts = _log_parts(error, noise, share, mean, variance)
        real = np.exp(parts - np.logaddexp.reduce(parts, axis=0))[1:]
        total = noise + variance[:, None]
        centre = (variance[:, None] * error + noise * mean[:, None]) / total
        size = np.maximum(real.sum(axis=1), 1e-9)
        before = np.concatenate([share, mean, variance])
        share, mean = size / len(error), (real * centre).sum(axis=1) / size
        spread = noise * variance[:, None] / total + (centre - mean[:, None]) ** 2
        variance = np.maximum((real * spread).sum(axis=1) / size, 1e-12)
        after = np.concatenate([share, mean, variance])
        if (np.abs(before - after) <= 1e-9 + 1e-4 * np.abs(after)).all():
            break
    parts = _log_parts(error, noise, share, mean, variance)
    real = np.exp(parts - np.logaddexp.reduce(parts, axis=0))[1:]
    doubt = 1.0 / np.sqrt(np.maximum((real / (noise + variance[:, None])).sum(axis=1), 1e-300))
    likelihood = float(np.logaddexp.reduce(parts, axis=0).sum())
    return _Prior(share, mean, variance, doubt, likelihood - 3 * number * penalty)


def _priors(error: FloatArray, noise: FloatArray) -> list[_Prior]:
    """Return four priors of relative errors with noise variances: none, one common error, and one or two normals."""
    penalty, nothing = 0.5 * log(max(len(error), 2)), np.empty(0)
    precision = float((1.0 / noise).sum())
    common = float((error / noise).sum()) / precision
    together = np.ones(1), np.array([common]), np.zeros(1)
    if_none = float(_log_parts(error, noise, nothing, nothing, nothing)[0].sum())
    if_together = float(_log_parts(error, noise, *together)[1].sum()) - penalty
    scale = float(np.sqrt(np.mean(error**2)))
    return [
        _Prior(nothing, nothing, nothing, nothing, if_none),
        _Prior(*together, np.array([precision**-0.5]), if_together),
        _fitted_prior(error, noise, (common,), penalty),
        _fitted_prior(error, noise, (scale, -scale), penalty),
    ]


def error_draws(error: FloatArray, noise: FloatArray, number: int, rng: np.random.Generator) -> FloatArray:
    """Return draws from the posterior of the true relative error of each group, of shape (number, groups).

    error = ρ + normal noise, where ρ is 0 with some probability and else normal. Four priors are averaged by BIC:
    ρ = 0; one ρ for all; 0 or one normal; 0 or one of two normals.
    """
    priors = _priors(error, noise)
    best = max(prior.logarithm for prior in priors)
    weights = np.array([exp(prior.logarithm - best) for prior in priors])
    which = rng.choice(len(priors), number, p=weights / weights.sum())
    draws = np.zeros((number, len(error)))
    for index, prior in enumerate(priors):
        mine = np.flatnonzero(which == index)
        if not len(mine) or not len(prior.share):
            continue
        parts = _log_parts(error, noise, prior.share, prior.mean, prior.variance)
        chances = np.exp(parts - np.logaddexp.reduce(parts, axis=0))
        part_of = (rng.random((len(mine), 1, len(error))) > np.cumsum(chances, axis=0)[None, :-1]).sum(axis=1)
        fitted = zip(prior.mean, prior.variance, prior.error, strict=True)
        for part, (mean, spread, doubt) in enumerate(fitted, start=1):
            total = noise + spread
            centre, own = (spread * error + noise * mean) / total, np.sqrt(noise * spread / total)
            # The mean of the prior is not known exactly, which matters where the data say less than it.
            moved = centre + doubt * noise / total * rng.standard_normal((len(mine), 1))
            drawn = moved + own * rng.standard_normal((len(mine), len(error)))
            draws[mine] = np.where(part_of == part, drawn, draws[mine])
    return draws


_RARE_PRIORS = [(share, shape) for share in (1.0, 0.5, 0.2, 0.05) for shape in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)]
"""Shares of rare field values that are wrong, and shapes of the gamma distributions of their factors."""


def rare_draws(seen: FloatArray, expected: FloatArray, number: int, rng: np.random.Generator) -> FloatArray:
    """Return draws from the posterior of the true relative error of rare field values, of shape (number, values).

    Few positives have no normal noise: seen ~ Poisson(λ·expected), and the error is 1 − λ. Priors are averaged by
    their likelihood (and BIC): λ = 1; one λ for all; λ = 1 or, with some probability, of a gamma distribution.
    """
    penalty, right = 0.5 * log(max(len(seen), 2)), -expected
    positives, rows = float(seen.sum()) + 0.5, float(expected.sum()) + 0.5
    together = positives / rows
    wrong = [_gamma_poisson(seen, expected, shape, _mean_of_wrong(together, share)) for share, shape in _RARE_PRIORS]
    # Log-likelihoods without the terms that all have in common.
    logs = [float(right.sum()), float((seen * log(together) - together * expected).sum()) - penalty]
    for (share, _), own in zip(_RARE_PRIORS, wrong, strict=True):
        mixed = own if share == 1.0 else np.logaddexp(log(share) + own, log(1.0 - share) + right)
        logs.append(float(mixed.sum()) - 2.0 * penalty - log(len(_RARE_PRIORS)))
    weights = np.exp(np.array(logs) - max(logs))
    which = rng.choice(len(logs), number, p=weights / weights.sum())
    draws = np.zeros((number, len(seen)))
    common = rng.gamma(positives, 1.0 / rows, (number, 1))
    draws[which == 1] = 1.0 - common[which == 1]
    for place in np.unique(which[which > 1]):
        mine, (share, shape), own = np.flatnonzero(which == place), _RARE_PRIORS[place - 2], wrong[place - 2]
        chance = share / (share + (1.0 - share) * np.exp(np.clip(right - own, -700.0, 700.0)))
        scale = 1.0 / (shape / _mean_of_wrong(common[mine], share) + expected)
        factors = rng.standard_gamma(shape + seen, (len(mine), len(seen))) * scale
        draws[mine] = np.where(rng.random(factors.shape) < chance, 1.0 - factors, 0.0)
    return draws


def _mean_of_wrong(together: Any, share: float) -> Any:
    """Return the mean factor of the field values that are wrong, a share of all, whose mean factor is given."""
    return np.maximum((together - (1.0 - share)) / share, 0.05)


def _gamma_poisson(seen: FloatArray, expected: FloatArray, shape: float, mean: float) -> FloatArray:
    """Return the log-likelihood of counts whose factor has a gamma distribution, less the terms all priors share."""
    rate = shape / mean
    return np.asarray(
        gammaln(shape + seen) - gammaln(shape) + shape * log(rate) - (shape + seen) * np.log(rate + expected)
    )


# Over-bid and under-bid money.


@dataclass(frozen=True)
class MoneyTable:
    """Money per field value, and in all: predicted, observed, over-bid, under-bid, with intervals.

    Attributes
    ----------
    sums : the sums of each field value.
    over, under : the over-bid and under-bid money of each field value, of shape (values, 3): value, low, high.
    total_over, total_under : the same of all rows.
    """

    sums: ValueSums
    over: FloatArray
    under: FloatArray
    total_over: Estimate
    total_under: Estimate

    def figures(self, index: int | None = None) -> dict[str, Any]:
        """Return the money of a field value, or of all rows, as plain numbers."""
        if index is None:
            predicted, observed = (float(column.sum()) for column in self.sums[:2])
            over, under = ((total.value, total.low, total.high) for total in (self.total_over, self.total_under))
        else:
            predicted, observed = (float(column[index]) for column in self.sums[:2])
            over, under = (known[index].tolist() for known in (self.over, self.under))
        return {
            "predicted_value": predicted,
            "observed_value": observed,
            "overbid": dict(zip(("value", "low", "high"), over, strict=True)),
            "underbid": dict(zip(("value", "low", "high"), under, strict=True)),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the columns as lists."""
        columns = {"predicted_value": self.sums.predicted, "observed_value": self.sums.observed}
        for name, known in (("overbid", self.over), ("underbid", self.under)):
            columns |= {name: known[:, 0], f"{name}_low": known[:, 1], f"{name}_high": known[:, 2]}
        return {name: column.tolist() for name, column in columns.items()}


def money_table(
    rows: ValueRows, codes: IndexArray, size: int, settings: MetricSettings, folds: IndexArray | None = None
) -> MoneyTable:
    """Return the money of each field value; `codes` has the number of each row's value, below `size`.

    Groups are a field value and one of ten bins of its rows, by probability, of equal predicted value: fewer than
    ten where a bin would expect less than 20 positives. Field values with fewer than that have the bins of all of
    these values together, and one bin if they are very many. Over-bid is Σ E[max(δ, 0)] over the groups, given what
    was seen of them, and under-bid Σ E[max(−δ, 0)]. Of rows in folds, each predicted by a fit on the others, groups
    are within a fold.
    """
    parts = 1 if folds is None else int(folds.max()) + 1
    units = codes if folds is None else codes * parts + folds
    known = rows.sums(units, size * parts)
    rare = known.expected < _POSITIVES_PER_GROUP
    # Rare ones get one number after all others: they are cut into bins together.
    numbers = np.where(rare, size * parts, np.arange(size * parts))
    merged = rows.sums(numbers[units], size * parts + 1)
    bins = np.clip(np.floor(merged.expected / _POSITIVES_PER_GROUP), 1, SCORE_BINS).astype(np.int64)
    if int(rare.sum()) * SCORE_BINS > _MOST_RARE_GROUPS:
        bins[-1] = 1
    bin_of = _score_bins(rows, numbers[units], bins, merged.predicted) % SCORE_BINS
    groups, old = compact(units * SCORE_BINS + bin_of)
    of_group = rows.sums(groups, len(old))
    used = of_group.predicted > 0.0
    old, of_group = old[used], ValueSums(*(column[used] for column in of_group))
    sums = rows.sums(codes, size)
    if not len(old):
        none = np.zeros((size, 3))
        return MoneyTable(sums, none, none, Estimate(0.0, 0.0, 0.0), Estimate(0.0, 0.0, 0.0))
    owner, bin_of = old // SCORE_BINS, old % SCORE_BINS
    number = int(np.clip(_MOST_DRAWN // max(len(owner), size * parts), 100, 1000))
    draws = _money_draws(of_group, owner, rare[owner], bin_of, number, settings.seed)
    ends = tails(settings.level)
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    tables: list[FloatArray] = []
    totals: list[Estimate] = []
    for sign in (1.0, -1.0):
        money = np.maximum(sign * draws, 0.0)
        of_unit = np.zeros((number, size * parts))
        of_unit[:, owner[starts]] = np.add.reduceat(money, starts, axis=1)
        of_value = of_unit.reshape(number, size, parts).sum(axis=2)
        tables.append(np.column_stack([of_value.mean(axis=0), *np.quantile(of_value, ends, axis=0)]))
        total = money.sum(axis=1)
        low, high = np.quantile(total, ends)
        totals.append(Estimate(float(total.mean()), float(low), float(high)))
    return MoneyTable(sums, tables[0], tables[1], totals[0], totals[1])


def _money_draws(
    sums: ValueSums, owner: IndexArray, rare: MaskArray, bin_of: IndexArray, number: int, seed: int
) -> FloatArray:
    """Return draws of the true money error of each group: that of its field value, and what its bin differs by.

    Both have their own prior, see `error_draws`: a field value is known better than each of its bins. The positives of
    a rare field value are counted, see `rare_draws`, and what bins differ by is that of all rare ones together.
    """
    rng = np.random.default_rng(seed)
    codes, old = compact(owner)
    whole = _added(sums, codes, len(old))
    is_rare = np.zeros(len(old), dtype=bool)
    is_rare[codes] = rare
    error, noise = _relative(whole)
    draws = np.zeros((number, len(old)))
    if not is_rare.all():
        draws[:, ~is_rare] = error_draws(error[~is_rare], noise[~is_rare], number, rng)
    if is_rare.any():
        draws[:, is_rare] = rare_draws(whole.seen[is_rare], whole.expected[is_rare], number, rng)
        error[is_rare] = draws[:, is_rare].mean(axis=0)
    draws = draws[:, codes]
    # The bins of all rare field values are those of one more, after all others.
    bins, of_bin = compact(np.where(rare, len(old), codes) * SCORE_BINS + bin_of)
    in_bins = _added(sums, bins, len(of_bin))
    explained = sums_by(bins, error[codes] * sums.predicted, len(of_bin)) / in_bins.predicted
    error, noise = _relative(in_bins)
    owners, _ = compact(of_bin // SCORE_BINS)
    several = np.flatnonzero(np.bincount(owners)[owners] > 1)
    if len(several) > 1:
        differs = np.zeros((number, len(of_bin)))
        differs[:, several] = error_draws((error - explained)[several], noise[several], number, rng)
        draws += differs[:, bins]
    draws *= sums.predicted
    return draws


def _added(sums: ValueSums, codes: IndexArray, size: int) -> ValueSums:
    return ValueSums(*(sums_by(codes, column, size) for column in sums))


def _relative(sums: ValueSums) -> tuple[FloatArray, FloatArray]:
    """Return the error that is seen in each group over its predicted value, and the variance of its noise."""
    return 1.0 - sums.observed / sums.predicted, np.maximum(sums.variance / sums.predicted**2, 1e-18)


def _score_bins(rows: ValueRows, codes: IndexArray, bins: IntArray, predicted: FloatArray) -> IndexArray:
    """Return the group of each row: ten times its code, plus its bin by probability, of equal predicted value."""
    order = np.lexsort((rows.p, codes))
    ordered = codes[order]
    each = (rows.p * rows.value)[order]
    before = np.cumsum(each) - 0.5 * each
    firsts = np.flatnonzero(np.diff(ordered, prepend=-1))
    begun = np.zeros(len(bins))
    begun[ordered[firsts]] = before[firsts] - 0.5 * each[firsts]
    place = (before - begun[ordered]) / np.maximum(predicted[ordered], 1e-300)
    groups = np.empty(len(codes), dtype=np.intp)
    last = bins[ordered] - 1
    groups[order] = ordered * SCORE_BINS + np.clip(np.floor(place * bins[ordered]).astype(np.int64), 0, last)
    return groups


@dataclass(frozen=True)
class Money:
    """What the errors of probabilities are worth: `table` over all contexts, and one for each field.

    `over` is paid for positives that do not come, Σ E[max(δ, 0)] over groups of rows; `under` is the value of
    positives that came without being bid for.
    """

    rows: ValueRows
    table: MoneyTable
    fields: Mapping[str, tuple[tuple[str, ...], MoneyTable]]

    @property
    def over(self) -> Estimate:
        """The over-bid money."""
        return self.table.total_over

    @property
    def under(self) -> Estimate:
        """The under-bid money."""
        return self.table.total_under

    @cached_property
    def weight(self) -> float:
        """The weight of all rows."""
        return float(self.rows.weight.sum())

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain lists, numbers and strings."""
        return {
            "value_of": "positives alone: the mean of each field value" if self.rows.per_positive else "every row",
            **self.table.figures(),
            "per_1000_rows": {"overbid": self._per_1000(self.over), "underbid": self._per_1000(self.under)},
            "fields": {
                name: {"value": list(values), **table.to_dict()} for name, (values, table) in self.fields.items()
            },
        }

    def _per_1000(self, estimate: Estimate) -> float:
        return 1000.0 * estimate.value / self.weight

    def lines(self) -> list[str]:
        """Return the totals in a sentence each."""
        sums = self.table.sums
        result = [
            f"value predicted {amount(float(sums.predicted.sum()))}, observed {amount(float(sums.observed.sum()))}"
            + (" (known of positives alone: the mean of each field value is used)" if self.rows.per_positive else "")
        ]
        for name, estimate in (("over-bid", self.over), ("under-bid", self.under)):
            interval = f"{amount(estimate.low)} … {amount(estimate.high)}"
            result.append(
                f"{name} {amount(estimate.value)} ({interval}), {amount(self._per_1000(estimate))} per 1,000 rows"
            )
        return result

    def costliest(self, name: str, most: int = 12) -> list[dict[str, Any]]:
        """Return the field values that cost most: predicted and observed value, over-bid and under-bid money."""
        values, table = self.fields[name]
        shown = np.argsort(-(table.over[:, 0] + table.under[:, 0]), kind="stable")[:most]
        return [{"name": values[i], **table.figures(i)} for i in shown.tolist()]

    def field_lines(self, name: str, most: int = 12) -> list[tuple[str, ...]]:
        """Return a line of words for each of the field values that cost most, headings first."""
        return money_lines(name, [{**one, "name": shown_value(one["name"])} for one in self.costliest(name, most)])

    def describe(self) -> str:
        """Return the totals, and a table for each field, the costliest values first."""
        return "\n\n".join(["\n".join(self.lines()), *(aligned(self.field_lines(name)) for name in self.fields)])


def money_lines(heading: str, figures: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return a line of words for each field value or period, by its `name`, headings first."""
    lines: list[tuple[str, ...]] = [(heading, "predicted value", "observed", "over-bid", "", "under-bid", "")]
    for one in figures:
        words = [one["name"], amount(one["predicted_value"]), amount(one["observed_value"])]
        for known in (one["overbid"], one["underbid"]):
            words += [amount(known["value"]), f"{amount(known['low'])} … {amount(known['high'])}"]
        lines.append(tuple(words))
    return lines


# Money: what a positive of each row, or of each cell of a sketch, is worth.


@dataclass(frozen=True)
class RowValues:
    """The value of each row, or of each cell; `per_positive` if it is the mean of positives."""

    value: FloatArray
    per_positive: bool = False

    def rows(self, p: FloatArray, y: FloatArray, w: FloatArray) -> ValueRows:
        """Return what the money of rows is computed from."""
        worth = w * self.value
        return ValueRows(p, worth, worth * y, worth * self.value * p * (1.0 - p), w, w * y, self.per_positive)


def row_values(
    y: FloatArray, w: FloatArray, fields: Mapping[str, CodedField], value: Any, per_positive: Any
) -> RowValues | None:
    """Return the value of each row, given as a number, as a column, or as a column that only positives have."""
    if value is not None and per_positive is not None:
        raise InputError("value and value_per_positive were both given; give the one that is known")
    if per_positive is not None:
        column = as_floats(per_positive, "value_per_positive")
        check_lengths(label=y, value_per_positive=column)
        amount = np.where(y > 0.0, column, 0.0)
        contexts, _ = combine(fields, len(y))
        size = len(contexts.values)
        sums = (sums_by(contexts.codes, w * y * column, size) for column in (values_column(amount), np.ones_like(y)))
        return RowValues(mean_values(*sums)[contexts.codes], per_positive=True)
    if value is None:
        return None
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        return RowValues(np.full(len(y), check_value(float(value))))
    column = as_floats(value, "value")
    check_lengths(probability=y, value=column)
    return RowValues(values_column(column, y))


def mean_values(values: FloatArray, positives: FloatArray) -> FloatArray:
    """Return the mean value of the positives of each context; that of all where a context has none."""
    total = float(positives.sum())
    mean = float(values.sum()) / total if total > 0.0 else 0.0
    result: FloatArray = np.divide(values, positives, out=np.full(len(values), mean), where=positives > 0.0)
    return result


def money_of_rows(
    rows: ValueRows, fields: Mapping[str, CodedField], settings: MetricSettings, folds: IndexArray | None = None
) -> Money:
    """Return the money of rows; of rows in folds (see `evaluate_columns`) within folds."""
    seen = {name: seen_values(coded) for name, coded in fields.items()}
    contexts, _ = combine(seen, len(rows.p))
    whole = money_table(rows, contexts.codes, len(contexts.values), settings, folds)
    tables = {
        name: whole if len(seen) == 1 else money_table(rows, coded.codes, len(coded.values), settings, folds)
        for name, coded in seen.items()
    }
    return Money(rows, whole, {name: (coded.values, tables[name]) for name, coded in seen.items()})


def money_of_cells(
    p: FloatArray,
    sketch: Sketch,
    fields: Mapping[str, CodedField],
    settings: MetricSettings,
    folds: IndexArray | None = None,
) -> Money | None:
    """Return the money of the rows behind a sketch by its sums of values; None if it has none."""
    if sketch.value_kind is None:
        return None
    rows, cells = rows_of_cells(p, sketch)
    fields = {name: coded.of(cells) for name, coded in fields.items()}
    return money_of_rows(rows, fields, settings, None if folds is None else folds[cells])


def rows_of_cells(p: FloatArray, sketch: Sketch) -> tuple[ValueRows, IntArray | slice]:
    """Return what money is computed from, and which cell each of it belongs to."""
    if sketch.value_kind == "positive":
        number = len(sketch.contexts)
        sums = (sums_by(sketch.context, column, number) for column in (sketch.values[:, 1], sketch.cells.sums[:, 1]))
        values = RowValues(mean_values(*sums)[sketch.context] / VALUE_UNITS, per_positive=True)
        rows = values.rows(p, sketch.rate, sketch.cells.sums[:, 0])
        return replace(rows, variance=rows.variance / sketch.scale), slice(None)
    weight, positives = sketch.cells.sums.T[:2]
    worth, observed, squares = (sketch.values / VALUE_UNITS).T
    return ValueRows(p, worth, observed, squares * p * (1.0 - p), weight, positives), slice(None)
