"""Simulate an impression log whose true probabilities are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit

from mcnet._shared.arrays import CodeArray, FloatArray

if TYPE_CHECKING:
    import polars as pl

# Simulated rows: the fields they are drawn with, and the log with its true probabilities.

# Rows of the four field values of AliExpress (training and validation period together).
ALIEXPRESS_ROWS = (11_140_437, 292_719, 593_723, 131_015)


@dataclass(frozen=True)
class SimulatedField:
    """A categorical column: how often each value occurs, and how the base predictor errs on it.

    Each value `c` moves the truth by an offset (`rate_spread` is its standard deviation in logits, or `rates`
    says the mean rate of every value) and distorts the score by its own shift, slope and ripple. A slope is
    `exp(normal · slope_spread)`; `ripple` bounds the relative wobble of the slope. `test_rates`, beside `rates`,
    are the mean rates of the values in the test period.

    >>> SimulatedField.zipf(3).shares
    (0.5454..., 0.2727..., 0.1818...)
    """

    shares: tuple[float, ...]
    rates: tuple[float, ...] | None = None
    test_rates: tuple[float, ...] | None = None
    rate_spread: float = 0.3
    shift_spread: float = 0.25
    slope_spread: float = 0.15
    ripple: float = 0.4
    names: tuple[str, ...] | None = None

    @classmethod
    def aliexpress(cls, **options: object) -> SimulatedField:
        """Return four values of very different size: 91.6 %, 2.4 %, 4.9 % and 1.1 % of the rows."""
        total = sum(ALIEXPRESS_ROWS)
        return cls(shares=tuple(rows / total for rows in ALIEXPRESS_ROWS), **options)  # type: ignore[arg-type]

    @classmethod
    def zipf(cls, values: int, exponent: float = 1.0, **options: object) -> SimulatedField:
        """Return many values, the r-th most frequent with a share proportional to `r ** -exponent`."""
        weights = np.arange(1, values + 1, dtype=np.float64) ** -exponent
        return cls(shares=tuple((weights / weights.sum()).tolist()), **options)  # type: ignore[arg-type]

    def value_names(self) -> tuple[str, ...]:
        """Return the text of every value: `names` when given, else "0", "1", …"""
        return self.names if self.names is not None else tuple(str(code) for code in range(len(self.shares)))


@dataclass(frozen=True)
class SimulatedLog:
    """Simulated rows as NumPy columns; calibration rows come first, then the test rows.

    `probability` is the truth: labels were drawn from it. Within a context (one combination of field values)
    and a period it is a strictly increasing function of `score`, so perfect calibration is attainable.
    """

    score: FloatArray
    label: NDArray[np.int8]
    fields: dict[str, CodeArray]
    probability: FloatArray
    period: NDArray[np.int8]
    names: dict[str, tuple[str, ...]]
    signal: FloatArray = field(repr=False)
    seed: int = 0
    world: int = 0

    def __len__(self) -> int:
        return len(self.score)

    def text(self, name: str) -> NDArray[np.str_]:
        """Return the values of one field as text, one per row."""
        return np.asarray(self.names[name])[self.fields[name]]

    def calibration(self) -> SimulatedLog:
        """Return the rows of the calibration period (views, no copy)."""
        return self._rows(slice(0, len(self) - int(self.period.sum())))

    def test(self) -> SimulatedLog:
        """Return the rows of the test period (views, no copy)."""
        return self._rows(slice(len(self) - int(self.period.sum()), len(self)))

    def _rows(self, rows: slice) -> SimulatedLog:
        columns = ("score", "label", "probability", "period", "signal")
        return replace(
            self,
            **{name: getattr(self, name)[rows] for name in columns},
            fields={name: codes[rows] for name, codes in self.fields.items()},
            # Another stream for the test rows, so that the two parts do not see the same noise in their features.
            seed=self.seed + (0 if rows.start == 0 else 1),
        )

    def features(self, numeric: int = 8, categorical: int = 4) -> tuple[NDArray[np.float32], CodeArray]:
        """Make features from which a base predictor can learn part of the truth.

        Numeric features are noisy, rescaled and bent readings of the truth's logit; categorical ones are noisy
        readings cut into 10, 20, 40 … quantile groups whose codes are shuffled, so that order carries nothing.
        Returns float32 `[rows, numeric]` and int32 `[rows, categorical]`; the fields are further features.
        """
        # What a reading means belongs to the world, the noise of a reading to the rows.
        world = np.random.default_rng([self.world, 7])
        noise = np.random.default_rng([self.seed, 11])
        gain, bend = world.uniform(-1.0, 1.0, numeric), world.uniform(0.2, 1.0, numeric)
        centred = (self.signal - np.median(self.signal)).astype(np.float32) if len(self) else np.zeros(0, np.float32)
        numbers = np.empty((len(self), numeric), dtype=np.float32)
        for column in range(numeric):
            reading = centred + 2.0 * noise.standard_normal(len(self), dtype=np.float32)
            numbers[:, column] = gain[column] * np.sinh(bend[column] * reading / 3.0)
        groups = np.empty((len(self), categorical), dtype=np.int32)
        for column in range(categorical):
            size = 10 * 2**column
            cuts = 2.2 * np.linspace(-2.0, 2.0, size - 1, dtype=np.float32)
            reading = centred + 2.0 * noise.standard_normal(len(self), dtype=np.float32)
            groups[:, column] = world.permutation(size)[np.searchsorted(cuts, reading)]
        return numbers, groups

    def frame(self) -> pl.DataFrame:
        """Return the rows as a Polars table: score, label, one text column per field, probability, period."""
        import polars as pl

        columns: dict[str, object] = {"score": self.score, "label": self.label}
        for name, codes in self.fields.items():
            columns[name] = pl.Series(list(self.names[name]), dtype=pl.String).gather(codes)
        columns["probability"] = self.probability
        columns["period"] = pl.Series(["calibration", "test"], dtype=pl.String).gather(self.period)
        return pl.DataFrame(columns)


# Simulate an impression log whose true probabilities are known.

Shape = Literal["ripple", "kink"]


def simulate(
    rows: int,
    *,
    test_rows: int = 0,
    fields: Mapping[str, SimulatedField] | None = None,
    rate: float = 0.02,
    spread: float = 1.0,
    shift: float = 0.15,
    slope: float = 0.8,
    frequency: float = 2.0,
    shape: Shape = "ripple",
    interaction: float = 0.0,
    drift: float = 0.0,
    drift_spread: float = 0.0,
    codes: Mapping[str, CodeArray] | None = None,
    seed: int = 0,
    world: int | None = None,
) -> SimulatedLog:
    """Draw a log of impressions with known truth from a miscalibrated base predictor.

    The truth of a row in context c is `p = sigmoid(z)`, `z ~ Normal(m + m_c, spread²)`; with `x = z − m` the
    base predictor reports

        logit(score) = m + shift + shift_c + slope · slope_c · (x + Σ_fields ripple_c · w(frequency · x + phase_c))

    where the wave w is `sin / frequency` for shape "ripple" and a triangle of the same period for "kink", so that
    it strictly increases in z within a context. Several fields add their shifts, log-slopes and waves. In the test
    period the truth moves by `drift` plus a normal of standard deviation `drift_spread` for every value (and to the
    values' `test_rates`, if given), while the score does not know.

    Parameters
    ----------
    rows, test_rows : the rows of the calibration period and of the test period.
    fields : the fields by name; without it there is one, "field", with four values sized as in AliExpress.
    rate : the mean of p in the calibration period (fields with their own `rates` move it).
    spread : the standard deviation of the true logits.
    shift, slope, frequency, shape : the error of the base predictor, as in the formula.
    interaction : the standard deviation of an extra shift of every combination of values.
    drift, drift_spread : how the truth moves in the test period: for all rows, and by a normal draw per value.
    codes : the value of every row, instead of drawing it by the shares.
    seed : of the rows.
    world : the seed of what is fixed about the values; by default `seed`.

    Returns
    -------
    SimulatedLog
        Scores, labels, fields and true probabilities; `calibration()` and `test()` are its two periods.

    >>> log = simulate(1000, seed=1)
    >>> len(log), sorted(log.fields), bool(np.all((log.score > 0) & (log.score < 1)))
    (1000, ['field'], True)
    """
    specs = {"field": SimulatedField.aliexpress()} if fields is None else dict(fields)
    world = seed if world is None else world
    fixed = np.random.default_rng([world, 3])
    values = {name: _draw_values(spec, fixed, rate, spread, len(specs)) for name, spec in specs.items()}
    pair_key = int(fixed.integers(1, 2**31))
    test_moves = {
        name: drift_spread * fixed.standard_normal(len(spec.shares)) + _move_of_rates(spec, spread)
        for name, spec in specs.items()
    }

    draw = np.random.default_rng([seed, 5])
    total = rows + test_rows
    if codes is None:
        codes = {name: _draw_codes(spec.shares, total, draw) for name, spec in specs.items()}
    codes = {name: codes[name] for name in specs}

    def per_row(attribute: str) -> FloatArray | float:
        return sum((getattr(values[name], attribute)[codes[name]] for name in specs), 0.0)

    offset = per_row("offset")
    own_rates = any(spec.rates is not None for spec in specs.values())
    centre = _mean_logit(rate, spread) if own_rates else _solve_centre(rate, offset, spread)
    centred = offset + spread * draw.standard_normal(total)
    signal = centre + centred
    wave = sum((_wave(centred, frequency, values[name], codes[name], shape) for name in specs), 0.0)
    score = centre + shift + per_row("shift") + slope * np.exp(per_row("log_slope")) * (centred + wave)
    if interaction:
        score += interaction * _pair_noise(list(codes.values()), pair_key)

    moved = signal
    if test_rows and (drift or any(move.any() for move in test_moves.values())):
        moved = signal.copy()
        moved[rows:] += drift + sum((test_moves[name][codes[name][rows:]] for name in specs), 0.0)
    probability: FloatArray = expit(moved)
    period = np.zeros(total, dtype=np.int8)
    period[rows:] = 1
    return SimulatedLog(
        score=expit(score),
        label=(draw.random(total) < probability).astype(np.int8),
        fields=codes,
        probability=probability,
        period=period,
        names={name: spec.value_names() for name, spec in specs.items()},
        signal=signal,
        seed=2 * seed,
        world=world,
    )


@dataclass(frozen=True)
class _Values:
    """What is fixed about the values of one field, one entry per value."""

    offset: FloatArray
    shift: FloatArray
    log_slope: FloatArray
    ripple: FloatArray
    phase: FloatArray


def _draw_values(spec: SimulatedField, fixed: np.random.Generator, rate: float, spread: float, fields: int) -> _Values:
    count = len(spec.shares)
    offset = spec.rate_spread * fixed.standard_normal(count)
    if spec.rates is not None:
        offset = np.array([_mean_logit(own, spread) for own in spec.rates]) - _mean_logit(rate, spread)
    return _Values(
        offset=offset,
        shift=spec.shift_spread * fixed.standard_normal(count),
        log_slope=spec.slope_spread * fixed.standard_normal(count),
        # The waves of all fields add up; sharing the allowance keeps the slope positive.
        ripple=spec.ripple * fixed.uniform(0.5, 1.0, count) / fields,
        phase=fixed.uniform(0.0, 2.0 * np.pi, count),
    )


def _move_of_rates(spec: SimulatedField, spread: float) -> FloatArray:
    """Return how far the truth of each value moves, in logits, from its `rates` to its `test_rates`."""
    if spec.rates is None or spec.test_rates is None:
        return np.zeros(len(spec.shares))
    return np.array(
        [
            _mean_logit(after, spread) - _mean_logit(before, spread)
            for before, after in zip(spec.rates, spec.test_rates, strict=True)
        ]
    )


def _draw_codes(shares: Sequence[float], rows: int, draw: np.random.Generator) -> CodeArray:
    edges = np.cumsum(np.asarray(shares, dtype=np.float64) / np.sum(shares))[:-1]
    return np.searchsorted(edges, draw.random(rows), side="right").astype(np.int32)


def _wave(centred: FloatArray, frequency: float, values: _Values, codes: CodeArray, shape: Shape) -> FloatArray:
    angle = frequency * centred + values.phase[codes]
    if shape == "ripple":
        return values.ripple[codes] * np.sin(angle) / frequency
    triangle: FloatArray = np.arcsin(np.clip(np.sin(angle), -1.0, 1.0))
    return values.ripple[codes] * triangle / frequency


def _pair_noise(codes: Sequence[CodeArray], key: int) -> FloatArray:
    """Return a standard normal for every combination of codes, the same wherever the combination occurs."""
    combined = np.zeros(len(codes[0]), dtype=np.int64)
    for column in codes:
        combined = combined * 1_000_003 + column
    distinct, inverse = np.unique(combined, return_inverse=True)
    noise = np.array([np.random.default_rng([key, int(context)]).standard_normal() for context in distinct])
    return noise[inverse]


def _mean_rate(centre: ArrayLike, spread: float) -> FloatArray:
    """Return E[sigmoid(centre + spread·Z)] by Gauss–Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    levels = expit(np.asarray(centre, dtype=np.float64)[..., None] + spread * nodes)
    return np.asarray(levels @ weights / weights.sum())


def _mean_logit(rate: float, spread: float) -> float:
    """Return the centre at which `_mean_rate` is `rate`."""
    return float(brentq(lambda centre: float(_mean_rate(centre, spread)) - rate, logit(rate) - spread**2 - 1.0, 30.0))


def _solve_centre(rate: float, offset: FloatArray | float, spread: float) -> float:
    """Return the centre at which rows with these offsets have mean rate `rate`; a sample of rows is enough."""
    sample = np.atleast_1d(np.asarray(offset, dtype=np.float64))[:4096]
    if sample.size == 0:
        return _mean_logit(rate, spread)

    def gap(centre: float) -> float:
        return float(np.mean(_mean_rate(centre + sample, spread))) - rate

    return float(brentq(gap, logit(rate) - spread**2 - 10.0, 30.0))
