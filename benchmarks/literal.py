"""A default fit on cells against the paper taken literally: a loop over UMNN networks, batch 2048, T = 50.

The literal loop is timed for some hundred steps and two epochs are extrapolated from that (every step costs
the same), so its log-loss is that of a network trained for those steps only; `--steps` makes it train for
longer. Run with `python benchmarks/literal.py`.
"""

import argparse
import time

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from torch import Tensor, nn
from UMNN import MonotonicNN

from mcnet.networks.bank import fit_bank
from mcnet.networks.cells import Cells, equal_mass_edges

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ROWS, BATCH, BINS, STEPS, EMBEDDING = 3_040_000, 2048, 20, 50, 128


def true_probability(logit: Floats, value: Ints) -> Floats:
    """A nonlinear distortion for each of four field values."""
    shift = np.array([-0.6, -0.25, -1.0, 0.0])[value]
    slope = np.array([0.8, 1.15, 0.95, 0.7])[value]
    wave = np.array([0.25, 0.2, -0.22, 0.15])[value]
    pace = np.array([1.6, 1.1, 1.9, 2.2])[value]
    centred = logit + 3.5
    return np.asarray(expit(shift + slope * centred - 3.5 + wave * np.sin(pace * centred)))


def draw(rows: int, seed: int) -> tuple[Floats, Ints, Floats]:
    random = np.random.default_rng(seed)
    value = random.choice(4, size=rows, p=[0.55, 0.25, 0.15, 0.05])
    logit = random.normal(-3.6, 1.1, rows)
    label = (random.random(rows) < true_probability(logit, value)).astype(np.float64)
    return logit, value, label


def summarise(logit: Floats, value: Ints, label: Floats) -> Cells:
    cell = np.floor(logit * 64).astype(np.int64)
    key = (cell - cell.min()) * 4 + value
    weight = np.bincount(key).astype(np.float64)
    positives, total = np.bincount(key, weights=label), np.bincount(key, weights=logit)
    some = np.flatnonzero(weight)
    return Cells.of(total[some] / weight[some], weight[some], positives[some], some % 4)


def log_loss(p: Floats, y: Floats) -> float:
    p = np.clip(p, 1e-7, 1 - 1e-7)
    return float(-(y * np.log(p) + (1 - y) * np.log1p(-p)).mean())


def divergence(p: Floats, q: Floats) -> float:
    q = np.clip(q, 1e-7, 1 - 1e-7)
    return float(np.mean(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))))


class LiteralLoop(nn.Module):
    """One UMNN network and one embedding table a bin, called one after the other."""

    def __init__(self, edges: Floats) -> None:
        super().__init__()
        self.edges = torch.as_tensor(edges, dtype=torch.float32)
        self.nets = nn.ModuleList(
            MonotonicNN(1 + EMBEDDING, [128, 128], nb_steps=STEPS, dev="cpu") for _ in range(BINS)
        )
        for net in self.nets:
            net.integrand.net[-1] = nn.Sigmoid()
        self.tables = nn.ModuleList(nn.Embedding(4, EMBEDDING) for _ in range(BINS))

    def forward(self, score: Tensor, value: Tensor) -> Tensor:
        which = torch.searchsorted(self.edges, score, right=True)
        result = torch.zeros_like(score)
        for k in range(BINS):
            rows = torch.nonzero(which == k)[:, 0]
            if len(rows):
                result[rows] = self.nets[k](score[rows, None], self.tables[k](value[rows]))[:, 0]
        return result

    def order(self) -> Tensor:
        total, values = torch.zeros(()), torch.arange(4)
        for k, edge in enumerate(self.edges):
            at = edge.expand(4, 1)
            end = self.nets[k](at, self.tables[k](values))
            start = self.nets[k + 1](at, self.tables[k + 1](values))
            total = total + (end - start).clamp_min(0.0).sum()
        return total


def literal(logit: Floats, value: Ints, label: Floats, steps: int) -> tuple[LiteralLoop, float]:
    torch.manual_seed(0)
    score = expit(logit)
    model = LiteralLoop(equal_mass_edges(score[::10], np.ones(len(score[::10])), BINS))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
    random = np.random.default_rng(0)
    tensors = [torch.as_tensor(score, dtype=torch.float32), torch.as_tensor(value)]
    target = torch.as_tensor(label, dtype=torch.float32)
    start = time.perf_counter()
    for _ in range(steps):
        rows = torch.as_tensor(random.integers(0, len(logit), BATCH))
        p = model(tensors[0][rows], tensors[1][rows]).clamp(1e-6, 1 - 1e-6)
        loss = nn.functional.binary_cross_entropy(p, target[rows]) + model.order()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model, (time.perf_counter() - start) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100, help="literal steps to time")
    steps = parser.parse_args().steps
    train, test = draw(ROWS, 0), draw(100_000, 1)
    truth = true_probability(test[0], test[1])

    start = time.perf_counter()
    cells = summarise(*train)
    sketched = time.perf_counter() - start
    start = time.perf_counter()
    fit = fit_bank(cells)
    fitted = time.perf_counter() - start
    ours = fit.predict(test[0], test[1])
    p = fit.predict(cells.logit, cells.codes[cells.context])
    pcoc = [(p * cells.weight)[cells.context == c].sum() / cells.positives[cells.context == c].sum() for c in range(4)]

    pooled = IsotonicRegression(out_of_bounds="clip").fit(train[0], train[2]).predict(test[0])
    single = np.empty(len(test[0]))
    for c in range(4):
        rows, inside = train[1] == c, test[1] == c
        model = IsotonicRegression(out_of_bounds="clip").fit(train[0][rows], train[2][rows])
        single[inside] = model.predict(test[0][inside])

    loop, step = literal(*train, steps)
    score, value = torch.as_tensor(expit(test[0]), dtype=torch.float32), torch.as_tensor(test[1])
    with torch.no_grad():
        parts = [loop(*part) for part in zip(score.split(4096), value.split(4096), strict=True)]
    theirs = torch.cat(parts).double().numpy()
    epochs = 2 * step * np.ceil(ROWS / BATCH)

    print("| | seconds | held-back log-loss | KL to the truth |")
    print("|---|---|---|---|")
    known = {"base score": expit(test[0]), "isotonic": pooled, "isotonic per value": single}
    for name, q in known.items():
        print(f"| {name} | | {log_loss(q, test[2]):.5f} | {divergence(truth, q):.2e} |")
    print(
        f"| literal, two epochs, from {steps} steps of {step:.3f} s | {epochs:.0f} "
        f"| {log_loss(theirs, test[2]):.5f} after {steps} steps | {divergence(truth, theirs):.2e} |"
    )
    print(
        f"| default bank, {len(cells.logit)} cells, {fit.descent.steps} steps "
        f"| {sketched:.2f} + {fitted:.2f} | {log_loss(ours, test[2]):.5f} | {divergence(truth, ours):.2e} |"
    )
    print(f"time ratio {epochs / (sketched + fitted):.0f}; converged: {fit.descent.converged}")
    print("PCOC on the fit data, per value: " + ", ".join(f"{x:.5f}" for x in pcoc))


if __name__ == "__main__":
    main()
