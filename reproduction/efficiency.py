"""The table of efficiency: time per epoch and memory against T, and the time to calibrate one row."""

import time
from typing import Any

import numpy as np
import torch

from mcnet._shared.arrays import clip_scores, logit
from mcnet.networks.bank import BankOnRows, BankOnSharedNodes, LineFunction, paper_config, place_bins
from mcnet.networks.monotone import MonotoneBank
from mcnet.networks.objective import log_loss_in
from mcnet.networks.optimise import FlatAdam, one_thread
from mcnet.networks.training import RowFunction
from reproduction.impressions import PRESETS
from reproduction.literal import train_literal
from reproduction.pages import Cell, Page, Table, Value
from reproduction.published import EFFICIENCY, INFERENCE
from reproduction.settings import SeenTasks, Settings, quick_note
from reproduction.tasks import Sample, Task
from reproduction.trials import ROSTER, Contender, Trained, fit_contender, predict, settings_note, trained_note

CLAIM = "An epoch of MCNet takes several times one of NeuCalib, hardly more for larger T; a row takes 12 µs at T = 50."

BATCH = 2048
MCNET = ("MCNet-None", 50)
PAPER_ROWS = {preset.name: sum(preset.validation.impressions) for preset in PRESETS.values()}
"""The rows of an epoch in the paper: its validation rows."""


def efficiency(settings: Settings) -> Page:
    """Time an epoch on rows of each model, the fit on a sketch, and the evaluation of what was fitted."""
    with one_thread():
        return _timed(settings)


def _timed(settings: Settings) -> Page:
    task = settings.source.tasks(0, wanted=("CTR (AliExpress)",))[0]
    seen = SeenTasks()
    seen.add(task)
    _ = task.sketch  # made once for all methods, and no part of their time
    repeats = 3 if settings.quick else 10
    steps: dict[str, tuple[float, int]] = {}
    training: list[tuple[Cell, ...]] = []
    for name, (function, published) in _functions(task).items():
        settings.say(f"a training step of {name}")
        steps[name] = time_step(task, function, repeats)
        seconds, saved = steps[name]
        printed = [EFFICIENCY[data].get(published) for data in PAPER_ROWS]
        training.append(
            (
                name,
                Value.of([seconds], digits=4),
                *(Value.of([seconds * rows / BATCH / 60.0], digits=2) for rows in PAPER_ROWS.values()),
                Value.of([saved / 2**20], digits=1),
                *("–" if one is None else f"{one[0]:g} min, {one[1]:,.0f} MiB" for one in printed),
            )
        )
    fits: list[tuple[Cell, ...]] = []
    times: dict[str, float] = {}
    trained: dict[tuple[str, str], list[Trained | None]] = {}
    for contender in ROSTER:
        settings.say(f"fit and evaluation, {contender.name}")
        fit_seconds, row_seconds, networks = time_contender(contender, task, 3)
        times[contender.name], trained[contender.name, task.name] = row_seconds, [networks]
        printed_row = INFERENCE.get(contender.published or "")
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
            f"One step of training on rows (batches of {BATCH}; MCNet: 20 bins, 128 × 128, probability space)",
            (
                "Method",
                "s per step",
                *(f"min per epoch, {data} ({rows / 1e6:.1f} M rows)" for data, rows in PAPER_ROWS.items()),
                "MiB kept for backward",
                *(f"paper (GPU), {data}" for data in PAPER_ROWS),
            ),
            training,
        ),
        Table(
            "methods",
            f"Fit on {len(task.validation):,} rows, and evaluation of one row",
            ("Method", "fit s", "ns per row", "paper ns per row"),
            fits,
        ),
    ]
    return Page(
        "efficiency",
        "Time and memory",
        CLAIM,
        _finding(steps, times),
        [*tables, seen.table()],
        notes=(
            "CPU seconds on one thread; those of a step and of a row are the quickest of some. Evaluation: the "
            "compiled curve, but after literal training the network itself, with T = 50 for every row. Trained on "
            "rows: MCNet as printed and trained on, for the number of steps below; all others are fitted on the "
            "sketch of the rows. NeuCalib and AdaCalib train on rows here "
            "for their time alone; elsewhere they are fitted on the sketch.",
            settings_note(ROSTER),
            *trained_note(trained),
            *quick_note(settings, f"{repeats} repetitions of a step"),
        ),
    )


def _finding(steps: dict[str, tuple[float, int]], times: dict[str, float]) -> str:
    slow, quick, shared = steps["MCNet-None, T = 50"], steps["MCNet-None, T = 10"], steps["MCNet-None, shared nodes"]
    lean = [saved / 2**20 for name, (_, saved) in steps.items() if "Algorithm 2" in name]
    plain = [
        saved / 2**20 for name, (_, saved) in steps.items() if name.startswith("MCNet-None, T") and "Algo" not in name
    ]
    baselines = ("NeuCalib", "AdaCalib")
    ours = " and ".join(f"{slow[0] / steps[name][0]:.0f} times one of {name}" for name in baselines)
    theirs = ", ".join(
        f"{' and '.join(f'{times[MCNET][0] / times[name, None][0]:.0f}' for name in baselines)} on {data}"
        for data, times in EFFICIENCY.items()
    )
    gpu = ", ".join(f"{times[MCNET][0] / times['MCNet-None', 10][0]:.2f}" for times in EFFICIENCY.values())
    return (
        f"An epoch of MCNet-None at T = 50 takes {ours} (in the paper {theirs}), and {slow[0] / quick[0]:.1f} times "
        f"one at T = 10 (on the paper's GPU {gpu} times). Integrating the gradient (Algorithm 2) keeps "
        f"{max(lean):.0f} MiB or less for the backward pass at T = 10 to 50, autograd {min(plain):.0f} to "
        f"{max(plain):.0f}. With nodes shared by the rows of a bin a step takes 1/{slow[0] / shared[0]:.0f} of the "
        f"time. The network at T = 50 takes {1e9 * times['MCNet-None, as printed']:,.0f} ns per row, the compiled "
        "curve "
        f"{1e9 * times['MCNet-None, with our priors']:,.0f}, against {1e6 * INFERENCE['MCNet-None']:,.0f} in the paper."
    )


def _functions(task: Task) -> dict[str, tuple[RowFunction, tuple[str, int | None]]]:
    """Return what is trained on rows, and the line of the paper's table that it belongs to."""
    config, _ = paper_config(field=False)
    score, label = task.validation.score, task.validation.label.astype(np.float64)
    bins = place_bins(score, np.ones(len(score)), label, config)
    none = torch.zeros((1, 0), dtype=torch.int64)
    contenders = {contender.name: contender for contender in ROSTER}
    line: Any = fit_contender(contenders["NeuCalib"], task)
    adaptive: Any = fit_contender(contenders["AdaCalib"], task)
    found: dict[str, tuple[RowFunction, tuple[str, int | None]]] = {
        "NeuCalib": (LineFunction(line.network_.knots, line.network_.values), ("NeuCalib", None)),
        "AdaCalib": (adaptive.network_.function, ("AdaCalib", None)),
    }
    for steps in (10, 20, 50):
        for lean in (False, True):
            name = f"MCNet-None, T = {steps}" + (", gradient integrated (Algorithm 2)" if lean else "")
            function = BankOnRows(MonotoneBank(config.shape, (), bins), none, steps, lean)
            found[name] = (function, ("" if lean else "MCNet-None", steps))
    shared = BankOnSharedNodes(MonotoneBank(config.shape, (), bins), none)
    return found | {"MCNet-None, shared nodes": (shared, ("", None))}


def time_step(task: Task, function: RowFunction, repeats: int) -> tuple[float, int]:
    """Return the seconds of the quickest of some steps on a batch of rows, and the bytes kept for the backward pass."""
    sample = task.validation.take(slice(0, BATCH))
    scores = sample.score if function.space == "probability" else logit(clip_scores(sample.score))
    points, count = torch.as_tensor(scores), len(sample)
    fields = 0 if isinstance(function, BankOnRows | BankOnSharedNodes | LineFunction) else 1
    codes = torch.as_tensor(sample.field.astype(np.int64))[:, None][:, :fields]
    weight, positives = torch.ones(count), torch.as_tensor(sample.label, dtype=torch.float32)
    adam = FlatAdam(function.parameters(), (0.9, 0.999), 1e-8)
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    def loss() -> torch.Tensor:
        values = function.at_rows(points, codes)
        return log_loss_in(function.space, values, weight, positives) + function.order_penalty()

    seconds = []
    for turn in range(repeats + 1):
        start = time.process_time()
        adam.zero()
        if turn == 0:
            # The first step warms up, and is the one whose memory is counted.
            with torch.autograd.graph.saved_tensors_hooks(pack, _same):
                found = loss()
        else:
            found = loss()
        found.backward()  # type: ignore[no-untyped-call]
        adam.step(1e-5)
        seconds.append(time.process_time() - start)
    adam.release()
    return min(seconds[1:]), sum(kept.values())


def time_contender(contender: Contender, task: Task, repeats: int) -> tuple[float, float, Trained | None]:
    """Return the seconds of a fit, of the evaluation of one row among many, and what training came to."""
    start = time.process_time()
    if contender.recipe is not None:
        fit = train_literal(task, contender.recipe.as_long_as_printed(task))
        fit_seconds = time.process_time() - start
        function, few = BankOnRows(fit.bank, torch.zeros((1, 0), dtype=torch.int64)), task.test.take(slice(0, BATCH))
        return fit_seconds, _time_network(function, few, repeats), Trained.on_rows(fit, task, contender.recipe)
    fitted = fit_contender(contender, task)
    fit_seconds = time.process_time() - start
    predict(fitted, task.test)  # compiled code is compiled once
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        predict(fitted, task.test)
        seconds.append(time.process_time() - start)
    return fit_seconds, min(seconds) / len(task.test), Trained.of(getattr(fitted, "network_", None))


@torch.no_grad()
def _time_network(function: BankOnRows, sample: Sample, repeats: int) -> float:
    codes = torch.as_tensor(sample.field.astype(np.int64))[:, None][:, : len(function.bank.sizes)]
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        function.at_rows(torch.as_tensor(sample.score), codes)
        seconds.append(time.process_time() - start)
    return min(seconds) / len(sample)


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
