"""Random smooth monotone truths: the error of the fit goes to the noise level as rows grow."""

import numpy as np
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

import mcnet
from benchmarks import report
from mcnet.metrics import kl_to_truth

WAVES = 4


def random_truth(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a strictly increasing logit curve: the integral of the exponential of a few random waves."""
    generator = np.random.default_rng([seed, 17])
    at = np.linspace(-12.0, 6.0, 4001)
    pace, phase = generator.uniform(0.3, 2.0, WAVES), generator.uniform(0.0, 2 * np.pi, WAVES)
    slope = np.exp((generator.normal(0.0, 0.35, WAVES)[:, None] * np.sin(pace[:, None] * at + phase[:, None])).sum(0))
    rise = np.concatenate([[0.0], np.cumsum((slope[1:] + slope[:-1]) / 2 * np.diff(at))])
    middle = np.interp(-3.0, at, rise)
    return at, rise - middle - 3.0 + generator.normal(0.0, 0.5)


def draw(truth: tuple[np.ndarray, np.ndarray], rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng([seed, rows])
    logits = generator.normal(-3.2, 1.2, rows)
    p = expit(np.interp(logits, *truth))
    return expit(logits), p, generator.random(rows) < p


def main(full: bool = False) -> None:
    sizes = (10_000, 100_000, 1_000_000, *((10_000_000,) if full else ()))
    seeds = 10 if full else 5
    ours, peer, noise = (np.empty((len(sizes), seeds)) for _ in range(3))
    for seed in range(seeds):
        truth = random_truth(seed)
        test, known, _ = draw(truth, 200_000, 1000 + seed)
        for row, rows in enumerate(sizes):
            scores, p, labels = draw(truth, rows, seed)
            fitted = mcnet.BayesMCNet().fit(scores, labels)
            ours[row, seed] = kl_to_truth(fitted.predict(test), known).value
            other = IsotonicRegression(out_of_bounds="clip").fit(scores, labels).predict(test)
            peer[row, seed] = kl_to_truth(np.clip(other, 1e-7, 1 - 1e-7), known).value
            loss = -np.log(np.where(labels, p, 1 - p))
            noise[row, seed] = loss.std() / np.sqrt(rows)
    lines = []
    for row, rows in enumerate(sizes):
        error = ours[row].std(ddof=1) / np.sqrt(seeds)
        lines.append(
            [
                f"{rows:,}",
                f"{ours[row].mean():.2e} ± {error:.1e}",
                f"{2 * rows * ours[row].mean():.1f}",
                f"{noise[row].mean():.2e}",
                f"{ours[row].mean() / noise[row].mean():.3f}",
                f"{peer[row].mean():.2e} ({peer[row].mean() / ours[row].mean():.1f}×)",
            ]
        )
    slope = np.polyfit(np.log(sizes), np.log(ours.mean(1)), 1)[0]
    head = [
        "rows",
        "KL to the truth",
        "2 · rows · KL",
        "noise of a mean log-loss",
        "KL ÷ noise",
        "isotonic (÷ ours)",
    ]
    text = (
        f"## Random smooth monotone truths\n\nMean over {seeds} truths, each the integral of the exponential of "
        f"{WAVES} random waves. 2 · rows · KL is the number of free parameters that would cost as much; the noise is "
        "the standard error of the log-loss of the truth itself on as many rows: an error far below it cannot be "
        f"noticed on them.\n\n{report.table(head, lines)}\n\nThe error falls like rows^{slope:.2f}."
    )
    report.keep("theorem", text, full)
