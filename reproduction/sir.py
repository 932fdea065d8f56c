"""SIR's unusual value in Table 1: the readings of its text, and where they put the rate of a bin."""

import numpy as np

from reproduction.pages import Cell, Page, Table, Value
from reproduction.published import PERFORMANCE
from reproduction.settings import SeenTasks, Settings, quick_note
from reproduction.tasks import Sample
from reproduction.trials import Contender, Trial, column, run_trial, settings_note

TASKS = ("CTR (AliExpress)", "CTR (Huawei Browser)")
BINS = 20
READINGS = (
    Contender("Base", "base"),
    Contender(f"{BINS} bins, knot at the mean score", "sir", parameters={"bins": BINS}),
    Contender(f"{BINS} bins, knot at the middle", "sir", parameters={"bins": BINS, "knots": "midpoint"}),
    Contender("bins of 1000 rows, knot at the mean score", "sir", parameters={"samples_per_bin": 1000}),
    Contender(
        "bins of 1000 rows, knot at the middle", "sir", parameters={"samples_per_bin": 1000, "knots": "midpoint"}
    ),
)
"""The base scores, our default, the knots as printed, and both with the bins of SIR's own paper."""

Results = dict[str, dict[str, list[Trial]]]
Ends = dict[str, list[tuple[float, float]]]
"""Middle and mean score of the last bin, by task and seed."""


def sir(settings: Settings) -> Page:
    """Fit SIR in each of its readings, and compare its test PCOC with what the paper prints."""
    results: Results = {}
    ends: Ends = {}
    printed: dict[str, tuple[float, float]] = {}
    seen = SeenTasks()
    for seed in range(settings.seeds):
        for task in settings.source.tasks(seed, wanted=TASKS, shift=True):
            seen.add(task, seed)
            ends.setdefault(task.name, []).append(_last_bin(task.validation))
            known = PERFORMANCE.get(task.published or "")
            if known is not None:
                printed[task.name] = known["Base"][0], known["SIR"][0]
            for contender in READINGS:
                trial = run_trial(contender, task, seed, settings.progress)
                results.setdefault(task.name, {}).setdefault(contender.name, []).append(trial)
    shift = ", with the paper's shift" if settings.source.simulated else ""
    return Page(
        "sir",
        "SIR's unusual value (Table 1)",
        _claim(),
        _finding(results, ends, printed),
        [_table(results, printed, f"test rows{shift}"), seen.table()],
        notes=(
            "SIR joins the rates of its bins by straight lines. Its paper puts the rate of a bin at the middle of the "
            "bin's range and has bins of 1000 rows, which are narrow; the MCNet paper has 20 bins. Left of the first "
            "knot the line starts at 0, right of the last one it goes on from the origin through the knot.",
            settings_note(READINGS),
            *quick_note(settings),
        ),
    )


def _claim() -> str:
    parts = []
    for task in TASKS:
        figures = {name: pcoc for name, (pcoc, _, _) in PERFORMANCE[task].items() if not name.startswith("MCNet")}
        base, value = figures.pop("Base"), figures.pop("SIR")
        others = f"{min(figures.values()):.3f} to {max(figures.values()):.3f}"
        parts.append(f"{value:.3f} on {task}, where the base scores have {base:.3f} and the other baselines {others}")
    return f"SIR has a test PCOC of {'; '.join(parts)}."


def _last_bin(sample: Sample) -> tuple[float, float]:
    """Return middle and mean score of the last of the bins of equal mass."""
    last = np.sort(sample.score)[-max(len(sample) // BINS, 1) :]
    return float(last[0] + last[-1]) / 2.0, float(last.mean())


def _table(results: Results, printed: dict[str, tuple[float, float]], rows: str) -> Table:
    lines: list[tuple[Cell, ...]] = []
    for task, readings in results.items():
        for name, trials in readings.items():
            figures = (
                Value.of(column(trials, "pcoc")),
                Value.percent(column(trials, "f_rce")),
                Value.of(column(trials, "log_loss"), digits=6),
                Value.of(column(trials, "fitted_pcoc")),
            )
            theirs = f"{printed[task][0 if name == 'Base' else 1]:.4f}" if task in printed else "–"
            lines.append((task, name, *figures, theirs))
    headings = ("Task", "SIR with", "PCOC", "F-RCE", "log-loss", "PCOC fitted", "paper PCOC")
    return Table("readings", f"Readings of SIR, {rows}", headings, lines)


def _finding(results: Results, ends: Ends, printed: dict[str, tuple[float, float]]) -> list[str]:
    """Return, from the table, what the place of a knot does, and which reading comes nearest to the paper's value."""
    sentences, nearest = [], {}
    for task, readings in results.items():
        middle, mean = np.mean(ends[task], axis=0)
        levels = {name: Value.of(column(trials, "pcoc")).mean for name, trials in readings.items() if name != "Base"}
        shown = "; ".join(f"{name} {level:.3f}" for name, level in levels.items())
        text = (
            f"{task}: the last of {BINS} bins has its middle at a score of {middle:.3f} and a mean score of "
            f"{mean:.3f}. Test PCOC: {shown}."
        )
        if task in printed:
            nearest[task] = min(levels, key=lambda name: abs(levels[name] - printed[task][1]))
            text += f" The paper's SIR has {printed[task][1]:.3f}, nearest is {nearest[task]}."
        sentences.append(text)
    if len(nearest) > 1:
        same = set(nearest.values())
        verdict = f"{same.pop()} is" if len(same) == 1 else "No one reading is"
        sentences.append(f"{verdict} nearest to the paper's value on every task.")
    return sentences
