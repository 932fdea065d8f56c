"""Other monotone networks in MCNet: accuracy, order, time and size by kind of network."""

import time
import warnings
from collections.abc import Iterator

import numpy as np

import mcnet
from mcnet.errors import CalibrationWarning
from mcnet.networks.kinds import NETWORKS
from mcnet.networks.optimise import one_thread
from reproduction.pages import Cell, Page, Table, Value
from reproduction.settings import SeenTasks, Settings, quick_note
from reproduction.tasks import Task
from reproduction.trials import Trial, column, judge, predict

CLAIM = "The method is generally applicable to any implementation of a monotone network (the paper uses UMNN)."

HIDDEN = (64, 64)

Results = dict[tuple[str, str], list[Trial]]


def networks(settings: Settings) -> Page:
    """Fit MCNet-Field with each kind of network on the same sketches, and measure what it is and what it costs."""
    results: Results = {}
    sizes: dict[str, int] = {}
    seen = SeenTasks()
    with one_thread():
        for seed in range(settings.seeds):
            for task in _tasks(settings, seed):
                seen.add(task, seed)
                _ = task.sketch
                for kind in NETWORKS:
                    settings.say(f"{task.name}, seed {seed}: {kind}")
                    trial, sizes[kind] = fit_kind(kind, task, seed)
                    results.setdefault((task.name, kind), []).append(trial)
    return Page(
        "networks",
        "Other monotone networks",
        CLAIM,
        _finding(results),
        [_table(results, sizes), seen.table()],
        notes=(
            f"MCNet-Field with our priors, 20 bins at most, hidden layers of {' × '.join(map(str, HIDDEN))}, embedding "
            "16; min-max: as many lines as the first layer is wide. Log-loss and PCOC are those of the test rows; "
            "*moved* is the largest probability by which the order guarantee had to move a curve; *falls* counts "
            "neighbours of the test rows out of order after it. Seconds are CPU time of a fit on one thread, without "
            "the sketch; *parameters* those of the networks of one bin, *curve* the kilobytes of the compiled model, "
            "which is what is served whatever the network was.",
            *quick_note(settings),
        ),
    )


def _tasks(settings: Settings, seed: int) -> Iterator[Task]:
    yield from settings.source.tasks(seed, wanted=("CTR (AliExpress)",), shift=False)


def fit_kind(kind: str, task: Task, seed: int = 0) -> tuple[Trial, int]:
    """Return the trial of MCNet-Field with a kind of network, and the parameters that it has in one bin."""
    made = mcnet.MCNet(network=kind, bins=20, hidden=HIDDEN, embedding=16, seed=seed)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        fitted = made.fit_sketch(task.sketch)
    seconds = time.process_time() - start
    trial = judge(task, predict(fitted, task.test), predict(fitted, task.validation), seconds)
    curves = fitted.model_.curves
    kilobytes = sum(np.asarray(array).nbytes for pair in curves.pairs() for array in pair) / 1024.0
    more = {"moved": fitted.order_violations_, "curve": kilobytes}
    parameters = int(fitted.network_.bank.work)
    return Trial({**trial.figures, **more}, trial.fields, seconds, parts=trial.parts), parameters


def _table(results: Results, sizes: dict[str, int]) -> Table:
    headings = (
        "Task", "network", "log-loss", "distance ×10⁻⁵", "PCOC", "moved", "falls", "fit s", "parameters", "curve KB",
    )  # fmt: skip
    lines: list[tuple[Cell, ...]] = [
        (
            task,
            kind,
            Value.of(column(trials, "log_loss"), digits=6),
            Value.of(column(trials, "distance"), digits=2, factor=1e5),
            Value.of(column(trials, "pcoc")),
            Value.of(column(trials, "moved"), digits=6),
            Value.of(column(trials, "violations"), digits=0),
            Value.of([trial.seconds for trial in trials], digits=2),
            Value.of([float(sizes[kind])], digits=0),
            Value.of(column(trials, "curve"), digits=0),
        )
        for (task, kind), trials in results.items()
    ]
    return Table("kinds", "MCNet-Field by kind of network", headings, lines)


def _finding(results: Results) -> list[str]:
    """Return, per task, the kinds from the lowest log-loss to the highest, with their seconds."""
    sentences = []
    for task in dict.fromkeys(task for task, _ in results):
        kinds = {kind: trials for (name, kind), trials in results.items() if name == task}
        loss = {kind: Value.of(column(trials, "log_loss")).mean for kind, trials in kinds.items()}
        order = sorted(kinds, key=lambda kind: loss[kind])
        parts = (f"{kind} {loss[kind]:.6f} ({Value.of([t.seconds for t in kinds[kind]]).mean:.1f} s)" for kind in order)
        sentences.append(f"{task}: log-loss {', '.join(parts)}.")
    return sentences
