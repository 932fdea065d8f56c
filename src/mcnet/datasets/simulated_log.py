"""Simulated rows: the fields they are drawn with, and the log with its true probabilities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.typing import CodeArray, FloatArray

if TYPE_CHECKING:
    import polars as pl

__all__ = ["SimulatedField", "SimulatedLog"]

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
        return SimulatedLog(
            score=self.score[rows],
            label=self.label[rows],
            fields={name: codes[rows] for name, codes in self.fields.items()},
            probability=self.probability[rows],
            period=self.period[rows],
            names=self.names,
            signal=self.signal[rows],
            # Another stream for the test rows, so that the two parts do not see the same noise in their features.
            seed=self.seed + (0 if rows.start == 0 else 1),
            world=self.world,
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
