"""The figure of calibration functions, over the test posterior of each bin."""

import numpy as np

from mcnet._shared.arrays import FloatArray
from reproduction.pages import Cell, Page, Table, Value
from reproduction.plots import draw_curves
from reproduction.settings import SeenTasks, Settings, quick_note
from reproduction.tasks import Sample, Task
from reproduction.trials import (
    BAYES_NONE,
    Contender,
    FittedTask,
    Trained,
    fit_task,
    mcnet_row,
    settings_note,
    trained_note,
)

CLAIM = "With 10 bins MCNet-None follows the posterior of the test rows more closely than SIR, NeuCalib and AdaCalib."

BINS = 10
DRAWN = (
    Contender("SIR", "sir", parameters={"bins": BINS}),
    Contender("NeuCalib", "neucalib", parameters={"bins": BINS}),
    Contender("AdaCalib", "adacalib", parameters={"candidates": (BINS,)}),
    mcnet_row(False, "as printed", BINS),
    mcnet_row(False, "trained on", BINS),
    mcnet_row(False, "with our priors", BINS),
    BAYES_NONE,
)


def curves(settings: Settings) -> Page:
    """Draw the functions that were learned on the validation rows over what the test rows turned out to be."""
    figures, errors, ratios, seen = {}, {}, {}, SeenTasks()
    trained: dict[tuple[str, str], list[Trained | None]] = {}
    shifts = {"no shift": False, "shift": True} if settings.source.simulated else {"test rows": True}
    fits: dict[str, FittedTask] = {}  # the validation rows are the same with and without a shift of the test rows
    for name, shift in shifts.items():
        task = seen.add(settings.source.tasks(0, wanted=("CTR (AliExpress)",), shift=shift)[0], 0, name)
        edges, posterior = bin_posterior(task)
        score = np.linspace(edges[0], edges[-1], 400)
        drawn = {}
        for contender in DRAWN:
            settings.say(f"{task.name}: calibration function of {contender.name}")
            fitted = fits[contender.name] = fits.get(contender.name) or fit_task(contender, task)
            trained[contender.name, task.name] = [fitted.trained]
            drawn[contender.name] = fitted.predict(_unlabelled(score))
            ratio = bin_ratios(task, fitted.predict(task.test), edges, posterior)
            errors[contender.name, name] = float(np.abs(ratio - 1.0).mean())
            ratios[contender.name, name] = float(ratio.mean())
        figures[name.replace(" ", "-")] = draw_curves(score, drawn, bars=(edges, posterior))
    lines: list[tuple[Cell, ...]] = [
        (
            contender.name,
            *(Value.percent([errors[contender.name, name]]) for name in shifts),
            *(Value.of([ratios[contender.name, name]], digits=3) for name in shifts),
        )
        for contender in DRAWN
    ]
    headings = ("Method", *(f"error, {name}" for name in shifts), *(f"predicted / rate, {name}" for name in shifts))
    return Page(
        "curves",
        "Calibration functions (figure)",
        CLAIM,
        _finding(errors, ratios, list(shifts), settings.source.simulated),
        [
            Table("errors", "10 bins of test rows: mean relative error, and mean ratio", headings, lines),
            seen.table(),
        ],
        figures,
        (settings_note(DRAWN), *trained_note(trained), *quick_note(settings)),
    )


def _finding(
    errors: dict[tuple[str, str], float], ratios: dict[tuple[str, str], float], names: list[str], known: bool
) -> str:
    parts = []
    rates = "the true rates of the test bins" if known else "the bins' test rates"
    for name in names:
        order = sorted((error, method) for (method, how), error in errors.items() if how == name)
        found = [ratio for (_, how), ratio in ratios.items() if how == name]
        (best, nearest), *others = order
        then = ", ".join(f"{method} ({error:.1%})" for error, method in others)
        parts.append(
            f"{name}: {nearest} is nearest to {rates} ({best:.1%} off on average), then {then}; the functions lie at "
            f"{min(found):.2f} to {max(found):.2f} of the bars"
        )
    return f"{'. '.join(part[0].upper() + part[1:] for part in parts)}."


def _unlabelled(score: FloatArray) -> Sample:
    return Sample(score, np.zeros(len(score), dtype=np.int8), np.zeros(len(score), dtype=np.int32))


def bin_posterior(task: Task) -> tuple[FloatArray, FloatArray]:
    """Ten equal-mass bins of the test rows and the positive rate in each; the last hundredth is not drawn."""
    edges = np.unique(np.quantile(task.test.score, np.linspace(0.0, 1.0, BINS + 1)))
    place = np.clip(np.searchsorted(edges, task.test.score, side="right") - 1, 0, len(edges) - 2)
    rate = np.bincount(place, task.test.label, len(edges) - 1) / np.bincount(place, minlength=len(edges) - 1)
    edges = edges.copy()
    edges[-1] = max(np.quantile(task.test.score, 0.99), np.nextafter(edges[-2], 1.0))
    return edges, rate


def bin_ratios(task: Task, probability: FloatArray, edges: FloatArray, posterior: FloatArray) -> FloatArray:
    """Return predicted over observed rate of each bin; where the truth is known, it stands for the observed rate."""
    place = np.clip(np.searchsorted(edges, task.test.score, side="right") - 1, 0, len(edges) - 2)
    rows = np.bincount(place, minlength=len(edges) - 1)
    mean = np.bincount(place, probability, len(edges) - 1) / rows
    if task.test.truth is not None:
        posterior = np.bincount(place, task.test.truth, len(edges) - 1) / rows
    kept = posterior > 0
    return np.asarray(mean[kept] / posterior[kept])
