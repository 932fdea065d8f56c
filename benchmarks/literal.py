"""The paper taken literally, batch 2048, T = 50: a loop over UMNN networks against ours, time per epoch and quality.

Every step costs the same, so an epoch is extrapolated from some of them. Quality cannot be extrapolated: the loop and
our program are trained for the paper's two epochs on as many rows as a run has time for (ours with the nodes of the
integrals shared by the rows of a bin, the same training in a fraction of the time), and compared with other fits to
those very rows. The loop starts as torch's layers do; ours there too, and at the identity.
"""

import time
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

import mcnet
from benchmarks import report
from benchmarks.data import simulated
from benchmarks.measure import cpu_time, warm_up
from mcnet._shared.arrays import logit
from mcnet.datasets.simulator import SimulatedLog
from mcnet.metrics import kl_to_truth
from mcnet.networks.bank import BankFit, fit_bank_on_rows, paper_config

ROWS, BATCH, BINS, STEPS, EMBEDDING, VALUES = 3_040_000, 2048, 20, 50, 128, 4
JUDGED = 100_000
"""The rows that judge; the loop takes half a minute for them."""
Start = Literal["identity", "torch"]


class SigmoidLessOne(nn.Module):
    """The last step of an integrand that is a sigmoid, as the paper has it: UMNN adds 1 to what the layers give."""

    def forward(self, values: Tensor) -> Tensor:
        """Return σ(values) − 1."""
        return torch.sigmoid(values) - 1.0


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
            net.integrand.net[-1] = SigmoidLessOne()
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


def train_loop(log: SimulatedLog, epochs: int = 2) -> tuple[LiteralLoop, float, float]:
    """Train the loop over UMNN networks; return it, its CPU seconds, and those of its median step."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = LiteralLoop(np.quantile(log.score, np.arange(1, BINS) / BINS))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
    score, value = _tensors(log)
    target = torch.as_tensor(log.label, dtype=torch.float32)
    seconds = []
    for _ in range(epochs):
        for rows in torch.randperm(len(log)).split(BATCH):
            begin = time.process_time()
            p = model(score[rows], value[rows]).clamp(1e-6, 1 - 1e-6)
            loss = nn.functional.binary_cross_entropy(p, target[rows]) + model.order()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            seconds.append(time.process_time() - begin)
    return model, sum(seconds), float(np.median(seconds))


@torch.no_grad()
def predict_loop(model: LiteralLoop, log: SimulatedLog) -> np.ndarray:
    """Return the probabilities of the loop, those outside (0, 1) clipped."""
    parts = zip(*(column.split(BATCH) for column in _tensors(log)), strict=True)
    return torch.cat([model(*part) for part in parts]).double().numpy()


def _tensors(log: SimulatedLog) -> tuple[Tensor, Tensor]:
    values = log.fields["field"].astype(np.int64)
    return torch.as_tensor(log.score, dtype=torch.float32), torch.as_tensor(values)


def batched_step(log: SimulatedLog, shared: bool, steps: int) -> float:
    """Return the CPU seconds of one step of our program: all bins at once, nodes per row or shared by a bin's rows."""
    torch.set_num_threads(1)
    rows = BATCH * steps
    part = part_of(log, rows)
    begin = time.process_time()
    train_literally(part, "identity", epochs=1, steps=None if shared else STEPS)
    return (time.process_time() - begin) / steps


def train_literally(log: SimulatedLog, start: Start, epochs: int = 2, steps: int | None = None) -> BankFit:
    """Train MCNet-Field as the paper says; without `steps`, nodes are shared by the rows of a bin."""
    config, schedule = paper_config(field=True)
    config = replace(config, shape=replace(config.shape, start=start))
    codes = log.fields["field"].astype(np.int64)[:, None]
    label = log.label.astype(np.float64)
    chosen = replace(schedule, epochs=epochs)
    return fit_bank_on_rows(logit(log.score), label, codes, (VALUES,), None, config, chosen, steps)


def log_loss(p: np.ndarray, y: np.ndarray) -> float:
    return float(-(y * np.log(p) + (1 - y) * np.log1p(-p)).mean())


def line(name: str, took: str, p: np.ndarray, test: SimulatedLog) -> list[str]:
    p = np.clip(p, 1e-7, 1 - 1e-7)
    level = p.sum() / test.probability.sum()
    distance = kl_to_truth(p, test.probability).value
    return [name, took, f"{level:.3f}", f"{log_loss(p, test.label):.5f}", f"{distance:.2e}"]


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
    steps, rows = (300, ROWS) if full else (6, 200_000)
    some, known = part_of(before, rows), part_of(test, JUDGED)
    loop, loop_seconds, loop_step = train_loop(some)
    times = {
        "a loop over UMNN networks, T = 50 for every row": loop_step,
        "ours, all bins in one program, T = 50 for every row": batched_step(before, False, steps),
        "ours, nodes shared by the rows of a bin": batched_step(before, True, 10 * steps),
    }
    slowest = max(times.values())
    trained = [
        [name, f"{step:.4f} s", f"{step * np.ceil(ROWS / BATCH) / 60:.1f} min", f"{slowest / step:.1f}"]
        for name, step in times.items()
    ]
    print("\n".join(map(str, trained)), flush=True)
    lines = [
        line("Base", "", known.score, known),
        line(
            "MCNet-Field, literal: the loop, from torch's own start",
            f"{loop_seconds:.1f} s",
            predict_loop(loop, known),
            known,
        ),
    ]
    names: dict[Start, str] = {"torch": "torch's own start", "identity": "the identity"}
    for start, name in names.items():
        took, fit = cpu_time(lambda start=start: train_literally(some, start))
        p = fit.predict(logit(known.score), known.fields["field"].astype(np.int64)[:, None])
        lines.append(line(f"MCNet-Field, literal: ours, from {name}", f"{took:.1f} s", p, known))
    lines += [
        fit_line("MCNet-Field, with our priors: `MCNet(bins=20)`", mcnet.MCNet(bins=BINS), some, known),
        fit_line("BayesMCNet", mcnet.BayesMCNet(), some, known),
        line("the truth", "", known.probability, known),
    ]
    text = (
        f"## The paper taken literally\n\nMCNet-Field on simulated rows, {VALUES} field values, K = {BINS}, 2 × 128, "
        f"batch {BATCH}. An epoch has {ROWS:,} rows, as in the paper, extrapolated from {steps} steps or more.\n\n"
        + report.table(["training on rows", "step", "epoch", "times as fast"], trained)
        + f"\n\nQuality on {JUDGED:,} rows after a fit on {rows:,}: literal trainings take two epochs, the other times "
        "include the sketch. The loop clamps probabilities to (0, 1), where its gradient ends; ours goes on along the "
        "tangent of the logarithm.\n\n"
        + report.table(["", "CPU time", "predicted / truth", "held-back log-loss", "KL to the truth"], lines)
    )
    report.keep("literal", text, full)
