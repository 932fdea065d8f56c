"""Peers that adapt, on the streams of `time_streams`: what is published, written as a baseline.

- Online Platt scaling (OPS) by the online Newton step, and calibeaten (TOPS): Gupta and Ramdas (2023), with γ = 0.01,
  D = 1 and 10 bins. Rows are revealed one by one, but only after their day.
- BLR and MarBLR: Feng et al. (2022). The revision of the logit is a Bayesian logistic regression; in MarBLR its
  coefficients jump with probability α per day by a normal of variance δ² times the prior's. Each day is a Laplace
  update under "jumped" and "stayed", and both are collapsed into one normal. The best (α, δ²) of a grid is shown.
- scikit-learn's isotonic and sigmoid calibration, fitted every day on the best of several windows.

Where a setting is chosen from several, it is chosen in hindsight, in favour of the peer.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import polars as pl
from scipy.special import expit, logit

Day = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Logits, labels and codes of field values."""

WINDOWS = (3, 7, 14, 28)
JUMPS = tuple((alpha, size) for alpha in (0.05, 0.2, 1.0) for size in (0.001, 0.01, 0.1))
"""MarBLR's probability of a jump per day, and its variance over the prior's."""
PRIOR_VARIANCE = 0.25
LARGEST_PARAMETER = 100.0
BINS = 10


class OnlinePlatt:
    """Online Platt scaling by the online Newton step, calibeaten if `bins` is not 0."""

    def __init__(self, bins: int = 0, gamma: float = 0.01, diameter: float = 1.0) -> None:
        self.theta, self.gamma, self.bins = np.array([1.0, 0.0]), gamma, bins
        self.inverse = np.eye(2) * (gamma * diameter) ** 2
        self.sums = np.zeros((max(bins, 1), 2))

    def predict(self, x: np.ndarray, _: np.ndarray) -> np.ndarray:
        said = expit(self.theta[0] * x + self.theta[1])
        if not self.bins:
            return said
        rows, positives = self.sums[self._bin(said)].T
        middles = (self._bin(said) + 0.5) / self.bins
        return np.where(rows > 0, positives / np.maximum(rows, 1), middles)

    def _bin(self, p: Any) -> Any:
        return np.minimum((p * self.bins).astype(int), self.bins - 1)

    def learn(self, x: np.ndarray, y: np.ndarray, _: np.ndarray) -> None:
        a, b = self.theta.tolist()
        (u, v), (_, w) = self.inverse.tolist()
        for one, label in zip(x.tolist(), y.tolist(), strict=True):
            p = 1.0 / (1.0 + np.exp(-(a * one + b)))
            if self.bins:
                self.sums[min(int(p * self.bins), self.bins - 1)] += (1.0, label)
            g, h = (p - label) * one, p - label
            # Sherman–Morrison: the inverse of A + ggᵀ, then a Newton step.
            s, t = u * g + v * h, v * g + w * h
            scale = 1.0 / (1.0 + g * s + h * t)
            u, v, w = u - scale * s * s, v - scale * s * t, w - scale * t * t
            a, b = a - (u * g + v * h) / self.gamma, b - (v * g + w * h) / self.gamma
            norm = (a * a + b * b) ** 0.5
            if norm > LARGEST_PARAMETER:  # the ball of the paper; on these streams it is never left
                a, b = a * LARGEST_PARAMETER / norm, b * LARGEST_PARAMETER / norm
        self.theta, self.inverse = np.array([a, b]), np.array([[u, v], [v, w]])


class LogisticRevision:
    """BLR (alpha = 0) and MarBLR: a normal belief in slope and level, and in a level per field value if `values`."""

    def __init__(self, values: int = 0, alpha: float = 0.0, size: float = 0.0) -> None:
        self.values, self.alpha = values, alpha
        self.mean = np.zeros(2 + values)
        self.mean[0] = 1.0
        self.covariance = np.eye(2 + values) * PRIOR_VARIANCE
        self.jump = self.covariance * size

    def predict(self, x: np.ndarray, codes: np.ndarray) -> np.ndarray:
        return expit(self._logits(self.mean, x, codes))

    def _logits(self, theta: np.ndarray, x: np.ndarray, codes: np.ndarray) -> np.ndarray:
        return theta[0] * x + theta[1] + (theta[2:][codes] if self.values else 0.0)

    def _pulled(self, x: np.ndarray, codes: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return designᵀ · rows, where a row of the design is (x, 1, one at the place of its field value)."""
        return np.concatenate([[x @ rows, rows.sum()], self._by_value(codes, rows)])

    def _by_value(self, codes: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.bincount(codes, weights=rows, minlength=self.values) if self.values else np.zeros(0)

    def _curvature(self, x: np.ndarray, codes: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Return designᵀ · diag(weight) · design: an arrow, as each row has one field value."""
        found = np.zeros((2 + self.values, 2 + self.values))
        found[0, 0], found[1, 1], found[0, 1] = x @ (weight * x), weight.sum(), x @ weight
        found[1, 0] = found[0, 1]
        of_values = self._by_value(codes, weight)
        found[0, 2:] = found[2:, 0] = self._by_value(codes, weight * x)
        found[1, 2:] = found[2:, 1] = of_values
        found[np.arange(2, 2 + self.values), np.arange(2, 2 + self.values)] = of_values
        return found

    def learn(self, x: np.ndarray, y: np.ndarray, codes: np.ndarray) -> None:
        cases = [(1.0 - self.alpha, self.covariance), (self.alpha, self.covariance + self.jump)]
        found = [(share, *self._laplace(x, y, codes, before)) for share, before in cases if share > 0.0]
        weights = np.log([share for share, *_ in found]) + np.array([evidence for *_, evidence in found])
        weights = np.exp(weights - weights.max())
        weights /= weights.sum()
        self.mean = np.sum([w * mean for w, (_, mean, _, _) in zip(weights, found, strict=True)], axis=0)
        self.covariance = np.sum(
            [
                w * (after + np.outer(mean - self.mean, mean - self.mean))
                for w, (_, mean, after, _) in zip(weights, found, strict=True)
            ],
            axis=0,
        )

    def _laplace(
        self, x: np.ndarray, y: np.ndarray, codes: np.ndarray, covariance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the normal around the mode of the posterior, and the logarithm of the evidence."""
        precision = np.linalg.inv(covariance)
        theta = self.mean.copy()
        for _ in range(25):
            p = expit(self._logits(theta, x, codes))
            curvature = self._curvature(x, codes, p * (1.0 - p)) + precision
            step = np.linalg.solve(curvature, self._pulled(x, codes, y - p) - precision @ (theta - self.mean))
            theta += step
            if np.abs(step).max() < 1e-8:
                break
        z = self._logits(theta, x, codes)
        moved = theta - self.mean
        spread = np.linalg.slogdet(curvature)[1] + np.linalg.slogdet(covariance)[1]
        likelihood = float(y @ z - np.logaddexp(0.0, z).sum())
        return theta, np.linalg.inv(curvature), likelihood - 0.5 * float(moved @ precision @ moved + spread)


class Windowed:
    """scikit-learn's isotonic regression, or Platt's sigmoid, on the last days."""

    def __init__(self, method: str, days: int) -> None:
        self.method, self.days = method, days
        self.past: list[tuple[np.ndarray, np.ndarray]] = []
        self.fitted: Any = None

    def learn(self, x: np.ndarray, y: np.ndarray, _: np.ndarray) -> None:
        self.past = [*self.past, (x, y)][-self.days :]
        self.fitted = None

    def predict(self, x: np.ndarray, _: np.ndarray) -> np.ndarray:
        from sklearn.isotonic import IsotonicRegression
        from sklearn.linear_model import LogisticRegression

        if self.fitted is None:
            rows, labels = (np.concatenate(columns) for columns in zip(*self.past, strict=True))
            if self.method == "isotonic":
                self.fitted = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(rows, labels)
            else:
                self.fitted = LogisticRegression(C=np.inf).fit(rows[:, None], labels)
        if self.method == "isotonic":
            return np.asarray(self.fitted.predict(x))
        return np.asarray(self.fitted.predict_proba(x[:, None])[:, 1])


def prequential(days: list[Day], first: int, peer: Any) -> float:
    """Return the mean log-loss from day `first` on, each day predicted from those before it."""
    lost, rows = 0.0, 0
    for place, (x, y, codes) in enumerate(days):
        if place >= first:
            said = np.clip(peer.predict(x, codes), 1e-7, 1.0 - 1e-7)
            lost -= float(np.log(np.where(y > 0.0, said, 1.0 - said)).sum())
            rows += len(y)
        peer.learn(x, y, codes)
    return lost / rows


def prepared(days: list[tuple[Any, pl.DataFrame]]) -> tuple[list[Day], int]:
    """Return the days as arrays, and the number of field values."""
    values = {value: code for code, value in enumerate(sorted({v for _, part in days for v in part["value"].unique()}))}
    result = []
    for _, part in days:
        part = part.sort("ts", maintain_order=True)
        codes = np.array([values[value] for value in part["value"].to_list()])
        x = logit(np.clip(part["score"].to_numpy(), 1e-7, 1.0 - 1e-7))
        result.append((x, part["label"].to_numpy().astype(float), codes))
    return result, len(values)


def peer_lines(days: list[tuple[Any, pl.DataFrame]], first: int) -> Iterator[tuple[str, float]]:
    """Yield the name and the log-loss of each peer on a stream."""
    arrays, values = prepared(days)
    yield "online Platt scaling", prequential(arrays, first, OnlinePlatt())
    yield "online Platt scaling, calibeaten", prequential(arrays, first, OnlinePlatt(BINS))
    for with_field in (False, True):
        number, name = (values, ", with the field") if with_field else (0, "")
        yield f"BLR{name}", prequential(arrays, first, LogisticRevision(number))
        yield _best(
            "MarBLR" + name,
            {f"α {a:g}, δ² {s:g}": lambda a=a, s=s, n=number: LogisticRevision(n, a, s) for a, s in JUMPS},
            arrays,
            first,
        )
    for method in ("isotonic", "sigmoid"):
        windows = {f"window {days} days": lambda days=days, method=method: Windowed(method, days) for days in WINDOWS}
        yield _best(f"scikit-learn {method}, every day", windows, arrays, first)


def _best(name: str, settings: dict[str, Callable[[], Any]], days: list[Day], first: int) -> tuple[str, float]:
    losses = {setting: prequential(days, first, make()) for setting, make in settings.items()}
    best = min(losses, key=lambda setting: losses[setting])
    return f"{name}, {best} (best of {len(losses)})", losses[best]
