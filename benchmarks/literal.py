"""The default fit against the paper taken literally: a loop over UMNN networks, batch 2048, T = 50.

Every step of the literal loop costs the same, so two epochs are extrapolated from some of them. Its quality cannot be
extrapolated: the paper's preset (`MCNet.paper`, the same model in one batched program) is trained for its two epochs on
as many rows as a run has time for, and compared with default fits on those very rows.
"""

import time

import numpy as np
import torch
from torch import Tensor, nn

import mcnet
from benchmarks import report
from benchmarks.data import simulated
from benchmarks.measure import cpu_time, warm_up
from mcnet.datasets.simulated_log import SimulatedLog
from mcnet.metrics import kl_to_truth

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


def log_loss(p: np.ndarray, y: np.ndarray) -> float:
    return float(-(y * np.log(p) + (1 - y) * np.log1p(-p)).mean())


def line(name: str, took: str, p: np.ndarray, test: SimulatedLog, ratio: str = "") -> list[str]:
    p = np.clip(p, 1e-7, 1 - 1e-7)
    return [name, took, ratio, f"{log_loss(p, test.label):.5f}", f"{kl_to_truth(p, test.probability).value:.2e}"]


def fit_line(
    name: str, model: mcnet.Calibrator, log: SimulatedLog, test: SimulatedLog, two_epochs: float = 0.0
) -> list[str]:
    took, _ = cpu_time(lambda: model.fit(log.score, log.label, field=log.fields["field"]))
    p = model.predict(test.score, field=test.fields["field"])
    print(f"  {name}: {took:.2f} s", flush=True)
    return line(name, f"{took:.2f} s", p, test, f"1/{two_epochs / took:.0f}" if two_epochs else "")


def part_of(log: SimulatedLog, rows: int) -> SimulatedLog:
    return log._rows(slice(0, rows))


def main(full: bool = False) -> None:
    warm_up()
    log = simulated(ROWS, VALUES, 0, 500_000)
    before, test = log.calibration(), log.test()
    steps = 300 if full else 10
    step = literal_step(before, steps)
    epochs = 2 * step * np.ceil(ROWS / BATCH)
    print(f"  a literal step takes {step:.3f} s, two epochs {epochs:.0f} s", flush=True)
    head = ["", "CPU time, sketch included", "of two literal epochs", "held-back log-loss", "KL to the truth"]
    lines = [line("score as it is", "", test.score, test), line("the truth", "", test.probability, test)]
    lines.append([f"literal, two epochs (from {steps} steps of {step:.3f} s)", f"{epochs:.0f} s", "1", "—", "—"])
    own = {"BayesMCNet": mcnet.BayesMCNet(), "MCNet, K = 20": mcnet.MCNet(bins=BINS)}
    lines += [fit_line(name, model, before, test, epochs) for name, model in own.items()]
    text = (
        f"## The paper taken literally\n\n{ROWS:,} rows, 4 field values, K = 20, 2 × 128, batch {BATCH}, T = {STEPS}. "
        f"Goal: at most 1/200 of two literal epochs, at a lower held-back log-loss.\n\n{report.table(head, lines)}"
    )
    report.keep("literal", text, full)
    part = ROWS if full else 60_000
    some = part_of(before, part)
    preset = fit_line(f"MCNet.paper('field'), 2 epochs of {part:,} rows", mcnet.MCNet.paper("field"), some, test)
    same = fit_line(f"BayesMCNet, the same {part:,} rows", mcnet.BayesMCNet(), some, test)
    said = "What the literal settings reach, as far as this run had time to train them:"
    report.keep("literal", f"{text}\n\n{said}\n\n{report.table(head, [preset, same])}", full)
