"""The figure of calibration functions, over the test posterior of each bin."""

import numpy as np

from mcnet.paper.pages import Cell, Page, Table, Value
from mcnet.paper.plots import draw_curves
from mcnet.paper.settings import Settings
from mcnet.paper.tasks import Task
from mcnet.paper.trials import BAYES_NONE, QUICK_NETWORKS, Contender, contenders, fit_contender, settings_note

__all__ = ["curves"]

CLAIM = "With 10 bins MCNet-None follows the posterior of the test rows more closely than SIR, NeuCalib and AdaCalib."

BINS = 10
DRAWN = (
    Contender("SIR", "sir", parameters={"bins": BINS}),
    Contender("NeuCalib", "neucalib", parameters={"bins": BINS}),
    Contender("AdaCalib", "adacalib", parameters={"candidates": (BINS,)}),
    Contender("MCNet-None", "mcnet", parameters={"field_aware": False, "bins": BINS}, quick=QUICK_NETWORKS),
    BAYES_NONE,
)


def curves(settings: Settings) -> Page:
    """Draw the functions that were learned on the validation rows over what the test rows turned out to be."""
    figures, tables, gaps = {}, [], {}
    compared = contenders(DRAWN, settings.quick)
    shifts = (False, True) if settings.source.simulated else (True,)
    for shift in shifts:
        task = settings.source.tasks(0, wanted=("CTR (AliExpress)",), shift=shift)[0]
        name = "figure" if len(shifts) == 1 else "shift" if shift else "no-shift"
        edges, posterior = bin_posterior(task)
        score = np.linspace(edges[0], edges[-1], 400)
        drawn = {}
        settings.say(f"{task.name}: calibration functions")
        for contender in compared:
            fitted = fit_contender(contender, task)
            drawn[contender.name] = fitted.predict(score)
            inside = fitted.predict(task.test.score)
            gaps[contender.name, name] = bin_gap(task, inside, edges, posterior)
        figures[name] = draw_curves(score, drawn, bars=(edges, posterior))
    lines: list[tuple[Cell, ...]] = [
        (contender.name, *(Value.percent([gaps[contender.name, name]]) for name in figures)) for contender in compared
    ]
    headings = ("Method", *(f"error by bin, {name}" for name in figures))
    tables.append(
        Table("errors", "Mean relative error of the bins' predicted mean, 10 bins of test rows", headings, lines)
    )
    closest = [min(compared, key=lambda c, n=name: gaps[c.name, n]).name for name in figures]  # type: ignore[misc]
    places = " and ".join(f"{best} ({name})" for best, name in zip(closest, figures, strict=True))
    finding = (
        f"The mean relative distance to the bins' test posterior is smallest for {places}; under a shift all functions "
        "lie below the bars by the same factor, because none of them can know the rows to come."
        if settings.source.simulated
        else f"The mean relative distance to the bins' test posterior is smallest for {places}."
    )
    return Page("curves", "Calibration functions (figure)", CLAIM, finding, tables, figures, (settings_note(compared),))


def bin_posterior(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Ten equal-mass bins of the test rows and the positive rate in each; the last hundredth is not drawn."""
    edges = np.quantile(task.test.score, np.linspace(0.0, 1.0, BINS + 1))
    edges = np.unique(edges)
    place = np.clip(np.searchsorted(edges, task.test.score, side="right") - 1, 0, len(edges) - 2)
    rate = np.bincount(place, task.test.label, len(edges) - 1) / np.bincount(place, minlength=len(edges) - 1)
    edges = edges.copy()
    edges[-1] = max(np.quantile(task.test.score, 0.99), np.nextafter(edges[-2], 1.0))
    return edges, rate


def bin_gap(task: Task, probability: np.ndarray, edges: np.ndarray, posterior: np.ndarray) -> float:
    """Return the mean over bins of |predicted − observed| / observed."""
    place = np.clip(np.searchsorted(edges, task.test.score, side="right") - 1, 0, len(edges) - 2)
    mean = np.bincount(place, probability, len(edges) - 1) / np.bincount(place, minlength=len(edges) - 1)
    if task.test.truth is not None:
        # Simulated rows know what the bars would be without noise.
        posterior = np.bincount(place, task.test.truth, len(edges) - 1) / np.bincount(place, minlength=len(edges) - 1)
    kept = posterior > 0
    return float(np.mean(np.abs(mean[kept] - posterior[kept]) / posterior[kept]))
