"""Slices: which values of any column of a log are still off, beyond noise, and which columns would help as fields."""

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import entr, ndtr

from mcnet._shared.arrays import FloatArray, ScoreType, logit, sigmoid
from mcnet._shared.files import finite
from mcnet._shared.messages import aligned, count, counted, figure, shown_value
from mcnet.errors import InputError
from mcnet.metrics.actions import FEWEST_POSITIVES, Actions, discoveries, find_actions
from mcnet.metrics.intervals import Estimate, normal_interval
from mcnet.metrics.money import ValueSums, error_draws
from mcnet.metrics.slice_sums import FOLDS, Cells, LogRows, SliceSums, bin_edges
from mcnet.model.model import CalibrationModel
from mcnet.rows.candidates import candidate_fields, sample_rows
from mcnet.rows.locations import read_options
from mcnet.rows.logs import unchanged_files
from mcnet.rows.spec import RowSpec, field_names

_MOST_VALUES = 1_000
"""Of a column with more values, the most frequent ones are slices of their own."""
_MOST_SLICES = 10_000
"""All columns together have at most so many slices."""
_DRAWS = 400
_NUMBERS_DRAWN = 10_000_000
_LARGEST_OFFSET = 4.0
_NEWTON_STEPS = 8
_LEAST_GAIN = 5e-5
"""A column that saves less than this share of the entropy of the mean rate is not worth being a field."""
_SHOWN_LINES = 12


class Slice(NamedTuple):
    """One value of a column that is off beyond noise.

    Attributes
    ----------
    column, value : which; of a timestamp or a number, what is cut from it: ts:hour, age:number.
    rows, positives : its rows (by weight) and positives.
    pcoc, pcoc_low, pcoc_high : predicted over observed positives, and the interval.
    freed, freed_low, freed_high : the same freed of noise: shrunk by how far the values of the column really differ.
    excess : how many positives too many are predicted (negative: too few).
    beyond_noise : the end of the interval of `excess` that is nearer to 0.
    is_field : whether the column is a field of the model.
    """

    column: str
    value: str
    rows: float
    positives: float
    pcoc: float
    pcoc_low: float
    pcoc_high: float
    freed: float
    freed_low: float
    freed_high: float
    excess: float
    beyond_noise: float
    is_field: bool


@dataclass(frozen=True)
class MulticalibrationError:
    """The largest calibration error over a family of slices, each in units of its own noise.

    Attributes
    ----------
    value : in probability: `sigmas` times the standard error of all rows, √Σwp(1 − p) / Σw.
    sigmas : the largest, over the slices, of the range of Σw(p − y) added up in the order of p, over √Σwp(1 − p).
    floor, floor_sigmas : what true probabilities have on average, by noise alone, with as many slices.
    chance : the share of draws of that noise which are as large.
    column, value_of_column : the slice; None for all rows.
    """

    value: float
    sigmas: float
    floor: float
    floor_sigmas: float
    chance: float
    column: str | None
    value_of_column: str | None

    def __str__(self) -> str:
        where = "all rows" if self.column is None else f"{self.column} = {shown_value(str(self.value_of_column))}"
        return (
            f"multicalibration error {figure(self.value)} ({self.sigmas:.1f} standard errors, at {where}); "
            f"noise alone gives {figure(self.floor)} ({self.floor_sigmas:.1f})"
        )


@dataclass(frozen=True)
class ColumnGain:
    """What a column would bring as a field: how much log-loss per row its offsets save on rows held back.

    One half of the rows learns a shrunk offset and slope (in logits) per value, on top of one curve for all rows; the
    other half is judged.

    Attributes
    ----------
    column : which.
    values : how many values it has, as slices.
    gain : the log-loss that is saved per row, with its interval.
    helps : whether it is above 0 beyond chance, all columns considered, and worth the trouble.
    is_field : whether it is a field of the model already.
    """

    column: str
    values: int
    gain: Estimate
    helps: bool
    is_field: bool


@dataclass(frozen=True)
class Slices:
    """The slices that are off beyond noise, the multicalibration error, and what columns would bring as fields.

    Attributes
    ----------
    worst : the slices that are off, most positives beyond noise first.
    tested, too_few : how many slices were tested, and how many expect too few positives to say anything.
    q : the share of `worst` that may be there by chance.
    error : the multicalibration error.
    gains : of each column, the largest first.
    rows : the weight of all rows.
    left_out : columns that are no slices, and why.
    cut : columns with so many values that only the most frequent ones are slices of their own, and how many these are.
    fields : the fields of the model.
    """

    worst: tuple[Slice, ...]
    tested: int
    too_few: int
    q: float
    error: MulticalibrationError
    gains: tuple[ColumnGain, ...]
    rows: float
    left_out: Mapping[str, str]
    cut: Mapping[str, int]
    fields: tuple[str, ...] = ()

    @property
    def advised(self) -> list[str]:
        """Return the columns that would help as fields and are none yet, the largest gain first."""
        return [line.column for line in self.gains if line.helps and not line.is_field]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain lists, numbers and strings; None for what is infinite."""
        return {
            "rows": self.rows,
            "tested": self.tested,
            "too_few_positives": self.too_few,
            "q": self.q,
            "slices": [finite(line._asdict()) for line in self.worst],
            "multicalibration_error": asdict(self.error),
            "columns": [
                {
                    "column": line.column,
                    "values": line.values,
                    "gain": line.gain.value,
                    "gain_low": line.gain.low,
                    "gain_high": line.gain.high,
                    "helps": line.helps,
                    "is_field": line.is_field,
                }
                for line in self.gains
            ],
            "left_out": dict(self.left_out),
            "cut": dict(self.cut),
            "advised_fields": self.advised,
        }

    def __str__(self) -> str:
        checked = f"{counted(self.tested, 'slice')} tested, false discoveries at most {self.q:.0%}"
        if self.too_few:
            checked += f"; {counted(self.too_few, 'slice')} with too few positives to say anything"
        more = len(self.worst) - _SHOWN_LINES
        rest = f"\n… and {counted(more, 'slice')} with fewer positives" if more > 0 else ""
        parts = [f"{aligned(self._lines())}{rest}\n{checked}" if self.worst else f"no slice is off: {checked}"]
        parts.append(str(self.error))
        if self.gains:
            parts.append(aligned(self._gain_lines()))
        parts += [f"{name}: its {kept:,} most frequent values, the others as one" for name, kept in self.cut.items()]
        if self.left_out:
            others = ", ".join(f"{name} ({why})" for name, why in self.left_out.items())
            parts.append(f"left out: {others}")
        return "\n\n".join([*parts, self._advice()])

    def _lines(self) -> list[tuple[str, ...]]:
        lines: list[tuple[str, ...]] = [
            ("slice", "rows", "positives", "PCOC", "interval", "freed of noise", "positives too many")
        ]
        for line in self.worst[:_SHOWN_LINES]:
            name = f"{line.column} = {shown_value(line.value)}" + (" (field)" if line.is_field else "")
            freed = f"{line.freed:.3f} ({line.freed_low:.3f} … {line.freed_high:.3f})"
            ends = f"{line.pcoc_low:.3f} … {line.pcoc_high:.3f}"
            excess = ("+" if line.excess > 0 else "") + count(round(line.excess))
            lines.append((name, count(line.rows), count(line.positives), f"{line.pcoc:.3f}", ends, freed, excess))
        return lines

    def _gain_lines(self) -> list[tuple[str, ...]]:
        lines: list[tuple[str, ...]] = [("column", "values", "log-loss it would save", "interval", "")]
        for line in self.gains[:_SHOWN_LINES]:
            said = "a field already" if line.is_field else "helps" if line.helps else ""
            ends = f"{line.gain.low:+.5f} … {line.gain.high:+.5f}"
            lines.append((line.column, f"{line.values:,}", f"{line.gain.value:+.5f}", ends, said))
        return lines

    def _advice(self) -> str:
        known = [line.column for line in self.gains if line.helps and line.is_field]
        again = f"; {', '.join(known)} changed since the fit: fit the model again" if known else ""
        if not self.advised:
            return f"no further column would help as a field{again}"
        # The next ones may tell the same as the first.
        few = self.advised[:_SHOWN_LINES]
        options = " ".join(f"--field {shlex.quote(name)}" for name in (*self.fields, few[0]))
        listed = f"the first of {', '.join(few)} that is known at serving" if len(few) > 1 else "one field more"
        return f"fit with {listed}, and test again before you take another: {options}{again}"


def slices(
    rows: Any,
    *,
    score: str,
    label: str,
    model: CalibrationModel | None = None,
    weight: str | None = None,
    exclude: str | Sequence[str] = (),
    score_type: ScoreType | None = None,
    negatives_kept: float = 1.0,
) -> Slices:
    """Return the values of any column of a log that are off beyond noise, and the columns that would help as fields.

    Every column is looked at, whether it is a field of the model or not: strings and whole numbers of few values as
    they are, other numbers in bins of about equal rows, of timestamps the hour, the weekday and the hour of the week.
    Memory is bounded for any number of rows. Files are read twice.

    Parameters
    ----------
    rows : files (as in `scan`), or a table of Polars, pandas or Arrow.
    score, label, weight : names of columns.
    model : whose probabilities are judged; without one, the scores themselves.
    exclude : columns that are not looked at.
    score_type : "probability" or "logit"; by default what the model was fitted on.
    negatives_kept : the fraction of negatives that survived down-sampling.

    Returns
    -------
    Slices : print it, or take `worst`, `error`, `gains` and `advised`.

    >>> import mcnet
    >>> rows = mcnet.simulate(50_000, seed=1).frame().drop("probability", "period")
    >>> mcnet.slices(rows, score="score", label="label").tested
    4
    """
    kind: ScoreType = score_type or ("probability" if model is None else model.score_type)
    spec = RowSpec(score, label, weight=weight, score_type=kind, negatives_kept=negatives_kept)
    return find_slices(rows, spec, model, exclude, type_given=score_type is not None)


def find_slices(
    rows: Any,
    spec: RowSpec,
    model: CalibrationModel | None = None,
    exclude: str | Sequence[str] = (),
    *,
    type_given: bool = True,
    progress: Callable[[int], Any] | None = None,
) -> Slices:
    """Do what `slices` does, for rows that are read as a spec says."""
    spec.check()
    table = LogRows(rows, spec, model)
    exclude = field_names(exclude)
    for name in exclude:
        if name not in table.names:
            raise InputError(f"there is no column {name!r} to leave out; there are {', '.join(table.names)}")
    with unchanged_files(table.paths):
        sample = sample_rows(table.frames(progress))
        if not len(sample):
            raise InputError(f"{table.source} has no rows; at least one row is needed")
        table.learn_types(sample)
        sample = table.typed(sample)
        found, left_out = candidate_fields(sample, {*spec.numbers, *exclude})
        if not found:
            raise InputError(f"{table.source} has no column to cut slices by, besides score, label and those left out")
        most = max(2, min(_MOST_VALUES, _MOST_SLICES // len(found)))
        edges = bin_edges(table.probabilities(sample, type_given=type_given))
        columns = [SliceSums(candidate, sample, most, len(edges) + 1) for candidate in found]
        first_row = 0
        for frame in table.frames(progress):
            judged = table.judged(frame, first_row, table.describe_row)
            read_options().dropped_rows += len(frame) - len(judged.frame)
            base = FOLDS * np.searchsorted(edges, judged.p, side="right") + judged.fold
            products = (judged.w, judged.w * judged.y, judged.w * judged.p, judged.w * judged.p**2)
            for column in columns:
                column.add(judged.frame, base, products)
            first_row += len(frame)
    if not columns[0].cells.weight.size:
        raise InputError(f"every row of {table.source} has weight 0; at least one row with a weight above 0 is needed")
    return _result(columns, left_out, () if model is None else model.fields)


def _result(columns: Sequence[SliceSums], left_out: Mapping[str, str], fields: Collection[str]) -> Slices:
    sums = {column.candidate.name: (column.names, column.cells.of_values()) for column in columns}
    actions = find_actions(sums)
    return Slices(
        _worst(actions, sums, fields),
        actions.tested,
        actions.too_few,
        actions.q,
        _multicalibration_error(columns),
        _gains(columns, fields, actions.q),
        float(columns[0].cells.weight.sum()),
        left_out,
        {column.candidate.name: len(column.index) for column in columns if column.is_cut},
        tuple(fields),
    )


def _worst(
    actions: Actions, sums: Mapping[str, tuple[tuple[str, ...], ValueSums]], fields: Collection[str]
) -> tuple[Slice, ...]:
    """Return the slices that are off, with their errors freed of noise by the prior of their column."""
    freed: dict[tuple[str, str], tuple[float, float, float]] = {}
    rng = np.random.default_rng(0)
    for column in dict.fromkeys(action.field for action in actions):
        values, of = sums[column]
        used = np.flatnonzero((of.predicted > 0.0) & (of.variance > 0.0))
        error, noise = 1.0 - of.observed[used] / of.predicted[used], of.variance[used] / of.predicted[used] ** 2
        draws = error_draws(error, noise, _DRAWS, rng)
        known = np.vstack([draws.mean(axis=0), *np.quantile(draws, (0.025, 0.975), axis=0)])
        pcocs = zip(*(1.0 / np.maximum(1.0 - known, 1e-9)).tolist(), strict=True)
        freed |= {(column, values[value]): pcoc for value, pcoc in zip(used, pcocs, strict=True)}
    return tuple(
        Slice(
            action.field,
            action.value,
            action.weight,
            action.positives,
            1.0 + action.off,
            1.0 + action.off_low,
            1.0 + action.off_high,
            *freed[action.field, action.value],
            action.money,
            action.beyond_noise,
            action.field in fields,
        )
        for action in actions
    )


# The multicalibration error of arXiv 2506.11251: the largest range of cumulated differences, in units of its noise.


def _multicalibration_error(columns: Sequence[SliceSums]) -> MulticalibrationError:
    """Return the error over all rows and all slices that expect enough positives.

    In a slice, Σw(p − y) is added up in the order of p, bin by bin; its range (Kuiper's statistic) is divided by
    √Σwp(1 − p), its standard deviation if the probabilities are true. The largest quotient, times that deviation of all
    rows and over their weight, is the error. Noise is drawn as effective numbers of positives of a Poisson
    distribution, each slice apart: slices that share rows make its maximum smaller, not larger.
    """
    whole = columns[0].cells
    names: list[tuple[str | None, str | None]] = [(None, None)]
    parts = [tuple(c.sum(axis=(0, 2))[None] for c in (whole.positives, whole.predicted, whole.variance))]
    for column in columns:
        cells = column.cells
        enough = np.flatnonzero(cells.of_values().expected >= FEWEST_POSITIVES)
        names += [(column.candidate.name, column.names[value]) for value in enough]
        parts.append(tuple(c.sum(axis=2)[enough] for c in (cells.positives, cells.predicted, cells.variance)))
    positives, predicted, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
    scale = np.sqrt(np.maximum(variance.sum(axis=1), 1e-300))
    sigmas = _ranges(predicted - positives) / scale
    worst = int(np.argmax(sigmas))
    rng = np.random.default_rng(0)
    each = np.divide(variance, predicted, out=np.zeros_like(variance), where=predicted > 0.0)
    expected = np.divide(predicted, each, out=np.zeros_like(variance), where=each > 0.0)
    number = int(np.clip(_NUMBERS_DRAWN // expected.size, 20, 200))
    drawn = np.array([float((_ranges(each * (rng.poisson(expected) - expected)) / scale).max()) for _ in range(number)])
    unit = float(scale[0] / whole.weight.sum())
    floor = float(drawn.mean())
    chance = float((drawn >= sigmas[worst]).mean())
    return MulticalibrationError(
        float(sigmas[worst]) * unit, float(sigmas[worst]), floor * unit, floor, chance, *names[worst]
    )


def _ranges(differences: FloatArray) -> FloatArray:
    """Return the range of the sums of the first so many columns, none included, of each row."""
    added = np.cumsum(differences, axis=1)
    return np.asarray(np.maximum(added.max(axis=1), 0.0) - np.minimum(added.min(axis=1), 0.0))


# What a column would bring as a field: offsets per value, learnt on one half of the rows and judged on the other.


def _gains(columns: Sequence[SliceSums], fields: Collection[str], q: float) -> tuple[ColumnGain, ...]:
    common, whole = _common_offsets(columns[0].cells), columns[0].cells
    rate = float(np.clip(whole.positives.sum() / whole.weight.sum(), 1e-12, 1.0 - 1e-12))
    least = _LEAST_GAIN * float(entr(rate) + entr(1.0 - rate))
    lines = []
    for column in columns:
        gain, error = _held_back_gain(column.cells, common)
        lines.append((column, gain, error, *normal_interval(gain, error, 0.95)))
    helps = set(discoveries(np.array([ndtr(-gain / max(error, 1e-300)) for _, gain, error, *_ in lines]), q).tolist())
    found = [
        ColumnGain(
            column.candidate.name,
            len(column.names),
            Estimate(gain, low, high),
            index in helps and gain > least,
            column.candidate.name in fields,
        )
        for index, (column, gain, _, low, high) in enumerate(lines)
    ]
    return tuple(sorted(found, key=lambda line: -line.gain.value))


def _common_offsets(cells: Cells) -> FloatArray:
    """Return for each bin and fold the offset of all rows, learnt on the other fold: a curve without fields.

    The offsets of the bins are shrunk; the level and the slope of all rows are not: what these left of the error of all
    rows, every column would gain by.
    """
    result = np.zeros(cells.weight.shape[1:])
    for fold in range(FOLDS):
        bins = Cells(*(column[:, :, 1 - fold].sum(axis=0)[:, None] for column in cells))
        whole = Cells(*(column.T for column in bins))
        mean = logit(_mean(bins))
        moved = (mean + _shrunk(bins, mean, np.ones_like(mean))[:, None]).T
        for _ in range(2):
            for basis in (np.ones_like(moved), moved - _middle(whole, moved)):
                moved = moved + _most_likely(whole, moved, basis)[0][:, None] * basis
        result[:, fold] = moved[0] - mean[:, 0]
    return result


def _middle(cells: Cells, logits: FloatArray) -> FloatArray:
    """Return the mean logit of each line, weighted by the noise of its cells."""
    p = sigmoid(logits)
    noise = cells.weight * p * (1.0 - p)
    return np.asarray((noise * logits).sum(axis=1) / np.maximum(noise.sum(axis=1), 1e-300))[:, None]


def _held_back_gain(cells: Cells, common: FloatArray) -> tuple[float, float]:
    """Return the log-loss per row that offsets and slopes of the values save on rows held back, and its error."""
    total, variance = 0.0, 0.0
    for fold in range(FOLDS):
        learnt, judged = (Cells(*(column[:, :, part] for column in cells)) for part in (1 - fold, fold))
        before, after = (logit(_mean(part)) + common[:, fold] for part in (learnt, judged))
        middle = _middle(learnt, before)
        offset = _shrunk(learnt, before, np.ones_like(before))[:, None]
        slope = _shrunk(learnt, before + offset, before - middle)[:, None]
        moved = offset + slope * (after - middle)
        q = sigmoid(after)
        total += float((judged.positives * moved - judged.weight * np.log1p(q * np.expm1(moved))).sum())
        variance += float((judged.weight * q * (1.0 - q) * moved**2).sum())
    weight = float(cells.weight.sum())
    return total / weight, float(np.sqrt(variance)) / weight


def _mean(cells: Cells) -> FloatArray:
    """Return the mean probability of each cell; anything inside (0, 1) where it has no rows."""
    mean = np.divide(cells.predicted, cells.weight, out=np.full(cells.weight.shape, 0.5), where=cells.weight > 0.0)
    return np.asarray(np.clip(mean, 1e-12, 1.0 - 1e-12))


def _shrunk(cells: Cells, logits: FloatArray, basis: FloatArray) -> FloatArray:
    """Return for each line of cells what to add of `basis` to the logits, shrunk by how far the lines really differ."""
    known = np.flatnonzero(cells.weight.sum(axis=1) > 0.0)
    result, noise = _most_likely(cells, logits, basis)
    draws = error_draws(result[known], noise[known], _DRAWS, np.random.default_rng(0))
    shrunk = np.zeros(len(logits))
    shrunk[known] = draws.mean(axis=0)
    return shrunk


def _most_likely(cells: Cells, logits: FloatArray, basis: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return for each line of cells how much of `basis` fits it best, alone, and the variance of its noise."""
    result, noise = np.zeros(len(logits)), np.ones(len(logits))
    for _ in range(_NEWTON_STEPS):
        p = sigmoid(logits + result[:, None] * basis)
        # Half a positive and half a negative keep a line without either away from infinity.
        noise = 1.0 / ((cells.weight * p * (1.0 - p) * basis**2).sum(axis=1) + 0.25)
        step = noise * (basis * (cells.positives - cells.weight * p)).sum(axis=1)
        result = np.clip(result + np.clip(step, -1.0, 1.0), -_LARGEST_OFFSET, _LARGEST_OFFSET)
    return result, noise
