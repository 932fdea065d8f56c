"""What an integral costs, in time and memory: plain autograd, the lean backward pass, and shared nodes.

Like the paper's efficiency table: forward and backward through 2048 rows of a 2 × 128 bank of 20 bins, as the
number of steps T grows. Run with `python -m benchmarks.quadrature`.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from mcnet.networks.monotone import BankShape, MonotoneBank, Ranges

ROWS, BINS, REPEATS = 2048, 20, 3


def make_bank() -> MonotoneBank:
    edges = np.linspace(-6, -1, BINS + 1)
    ranges = Ranges(edges[1:-1], edges[:-1], edges[1:], (edges[:-1] + edges[1:]) / 2, np.full(BINS, 0.08))
    return MonotoneBank(BankShape(), (4,), ranges)


class SavedBytes:
    """Counts what autograd keeps for the backward pass."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}

    def pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self.seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    @property
    def mebibytes(self) -> float:
        return sum(self.seen.values()) / 2**20


def measure(step: Callable[[], Tensor]) -> tuple[float, float]:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        step().sum().backward()  # type: ignore[no-untyped-call]
        times.append(time.perf_counter() - start)
    saved = SavedBytes()
    with torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor):
        step()
    return min(times), saved.mebibytes


def main() -> None:
    random = np.random.default_rng(0)
    bank = make_bank()
    points = torch.as_tensor(random.uniform(-6, -1, ROWS))
    codes = torch.as_tensor(random.integers(0, 4, (ROWS, 1)))
    bins = bank.bin_of(points)
    contexts = torch.arange(4)[:, None]

    def shared(nodes: int) -> Callable[[], Tensor]:
        rule = torch.as_tensor(bank.rule(nodes)(points.numpy(), bins.numpy()), dtype=torch.float32)
        at = bank.nodes(nodes)[:, None, :]

        def step() -> Tensor:
            context = bank.embed(contexts)
            bias = bank.offset_and_scale(contexts, context)
            derivative = bank.derivative(at, context)
            which = (bins, codes[:, 0])
            return bias[which][:, 0] + bias[which][:, 1].exp() * (rule * derivative[which]).sum(-1)

        return step

    print(f"{ROWS} rows, {BINS} bins, 2 × 128, 4 contexts; a step, best of {REPEATS}; MiB kept for backward")
    print("| T | plain s | lean s | shared s | plain MiB | lean MiB | shared MiB | plain/shared time |")
    print("|---|---|---|---|---|---|---|---|")
    for steps in (10, 20, 50):
        plain = measure(lambda steps=steps: bank(points, bins, codes, steps, False))
        lean = measure(lambda steps=steps: bank(points, bins, codes, steps, True))
        common = measure(shared(max(steps // 2, 1)))
        print(
            f"| {steps} | {plain[0]:.3f} | {lean[0]:.3f} | {common[0]:.3f} | {plain[1]:.0f} | {lean[1]:.1f} "
            f"| {common[1]:.0f} | {plain[0] / common[0]:.0f} × |",
            flush=True,
        )


if __name__ == "__main__":
    main()
