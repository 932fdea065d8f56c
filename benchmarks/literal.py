"""The paper taken literally, batch 2048, T = 50: a loop over UMNN networks against ours, time per epoch and quality.

Every step costs the same, so an epoch is extrapolated from some of them. Quality cannot be extrapolated: the literal
model is trained for its two epochs on as many rows as a run has time for, with the nodes of the integrals shared by the
rows of a bin (the same training in a fraction of the time), and compared with our fits on those very rows.
"""

import time
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

import mcnet
from benchmarks import report
from benchmarks.data import simulated
from benchmarks.measure import cpu_time, warm_up
from mcnet._shared.math import logit
from mcnet.datasets.simulated_log import SimulatedLog
from mcnet.metrics import kl_to_truth
from mcnet.networks.bank import BankFit
from mcnet.networks.literal import fit_bank_on_rows, paper_config

ROWS, BATCH, BINS, STEPS, EMBEDDING, VALUES = 3_040_000, 2048, 20, 50, 128, 4


class LiteralLoop(nn.Module):
    """One UMNN network and one embedding table per bin, called one after the other."""

    def __init__(self, edges: np.ndarray) -> None:
        """Make the networks of the bins between the edges."""
        from UMNN import MonotonicNN

        super().__init__()
        self.edges = torch.as_tensor(edges, dtype=torch.float32)
        shape = (1 + EMBEDDING, [128, 128])
        self.nets = nn.ModuleList(MonotonicNN(*shape, nb_steps=STEPS, dev="cpu") for _ in range(BINS))
        for net in self.nets:
            net.integrand.net[-1] = nn.Sigmoid()
        self.tables = nn.ModuleList(nn.Embedding(VALUES, EMBEDDING) for _ in range(BINS))

    def forward(self, score: Tensor, value: Tensor) -> Tensor:
        """Return the calibrated probability of each row."""
        which = torch.searchsorted(self.edges, score, right=True)
        result = torch.zeros_like(score)
        for k in range(BINS):
            rows = torch.nonzero(which == k)[:, 0]
            if len(rows):
                result[rows] = self.nets[k](score[rows, None], self.tables[k](value[rows]))[:, 0]
        return result

    def order(self) -> Tensor:
        """Return the order-preserving regulariser."""
        total, values = torch.zeros(()), torch.arange(VALUES)
        for k, edge in enumerate(self.edges):
            at = edge.expand(VALUES, 1)
            end = self.nets[k](at, self.tables[k](values))
            start = self.nets[k + 1](at, self.tables[k + 1](values))
            total = total + (end - start).clamp_min(0.0).sum()
        return total


def literal_step(log: SimulatedLog, steps: int) -> float:
    """Return the CPU seconds of one step of the literal loop."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = LiteralLoop(np.quantile(log.score[::10], np.arange(1, BINS) / BINS))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
    random = np.random.default_rng(0)
    score = torch.as_tensor(log.score, dtype=torch.float32)
    value = torch.as_tensor(log.fields["field"].astype(np.int64))
    target = torch.as_tensor(log.label, dtype=torch.float32)
    for step in range(steps + 2):
        if step == 2:  # the first ones pay for what is made lazily
            begin = time.process_time()
        rows = torch.as_tensor(random.integers(0, len(log), BATCH))
        p = model(score[rows], value[rows]).clamp(1e-6, 1 - 1e-6)
        loss = nn.functional.binary_cross_entropy(p, target[rows]) + model.order()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return (time.process_time() - begin) / steps


def batched_step(log: SimulatedLog, shared: bool, steps: int) -> float:
    """Return the CPU seconds of one step of our program: all bins at once, nodes per row or shared by a bin's rows."""
    torch.set_num_threads(1)
    rows = BATCH * steps
    part = part_of(log, rows)
    begin = time.process_time()
    train_literally(part, epochs=1, steps=None if shared else STEPS)
    return (time.process_time() - begin) / steps


def train_literally(log: SimulatedLog, epochs: int = 2, steps: int | None = None) -> BankFit:
    """Train MCNet-Field as the paper says; without `steps`, nodes are shared by the rows of a bin."""
    config, schedule = paper_config(field=True)
    codes = log.fields["field"].astype(np.int64)[:, None]
    label = log.label.astype(np.float64)
    chosen = replace(schedule, epochs=epochs)
    return fit_bank_on_rows(logit(log.score), label, codes, (VALUES,), None, config, chosen, steps)


def log_loss(p: np.ndarray, y: np.ndarray) -> float:
    return float(-(y * np.log(p) + (1 - y) * np.log1p(-p)).mean())


def line(name: str, took: str, p: np.ndarray, test: SimulatedLog) -> list[str]:
    p = np.clip(p, 1e-7, 1 - 1e-7)
    return [name, took, f"{log_loss(p, test.label):.5f}", f"{kl_to_truth(p, test.probability).value:.2e}"]


def fit_line(name: str, model: mcnet.Calibrator, log: SimulatedLog, test: SimulatedLog) -> list[str]:
    took, _ = cpu_time(lambda: model.fit(log.score, log.label, field=log.fields["field"]))
    p = model.predict(test.score, field=test.fields["field"])
    print(f"  {name}: {took:.2f} s", flush=True)
    return line(name, f"{took:.2f} s", p, test)


def part_of(log: SimulatedLog, rows: int) -> SimulatedLog:
    return log._rows(slice(0, rows))


def main(full: bool = False) -> None:
    warm_up()
    log = simulated(ROWS, VALUES, 0, 500_000)
    before, test = log.calibration(), log.test()
    steps = 300 if full else 6
    times = {
        "a loop over UMNN networks, T = 50 for every row": literal_step(before, steps),
        "ours, all bins in one program, T = 50 for every row": batched_step(before, False, steps),
        "ours, nodes shared by the rows of a bin": batched_step(before, True, 10 * steps),
    }
    slowest = max(times.values())
    trained = [
        [name, f"{step:.4f} s", f"{step * np.ceil(ROWS / BATCH) / 60:.1f} min", f"{slowest / step:.1f}"]
        for name, step in times.items()
    ]
    print("\n".join(map(str, trained)), flush=True)
    rows = ROWS if full else 200_000
    some = part_of(before, rows)
    took, fit = cpu_time(lambda: train_literally(some))
    p = fit.predict(logit(test.score), test.fields["field"].astype(np.int64)[:, None])
    lines = [
        line("score as it is", "", test.score, test),
        line("literal, two epochs from the identity", f"{took:.2f} s", p, test),
        fit_line("MCNet(bins=20), converged on the sketch", mcnet.MCNet(bins=BINS), some, test),
        fit_line("BayesMCNet", mcnet.BayesMCNet(), some, test),
        line("the truth", "", test.probability, test),
    ]
    text = (
        f"## The paper taken literally\n\nMCNet-Field on simulated rows, {VALUES} field values, K = {BINS}, 2 × 128, "
        f"batch {BATCH}. An epoch has {ROWS:,} rows, as in the paper, extrapolated from {steps} steps or more.\n\n"
        + report.table(["training on rows", "step", "epoch", "times as fast"], trained)
        + f"\n\nQuality after a fit on {rows:,} rows; times include the sketch.\n\n"
        + report.table(["", "CPU time", "held-back log-loss", "KL to the truth"], lines)
    )
    report.keep("literal", text, full)
