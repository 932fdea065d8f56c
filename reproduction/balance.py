"""Table 3: the field-balance regulariser on the models of the paper, and on BayesMCNet."""

import numpy as np

from reproduction.pages import Cell, Page, Table, Value
from reproduction.published import BALANCE
from reproduction.settings import SeenTasks, Settings, quick_note
from reproduction.significance import difference, remains
from reproduction.trials import BAYES, BAYES_NONE, MCNETS, ROSTER, Trial, column, run_trial, settings_note, trained_note

CLAIM = "The field-balance regulariser lowers the standard deviation of the fields' PCOCs for all four models."

ALPHA = 1.0
MODELS = (*MCNETS, *(row for row in ROSTER if row.name in ("NeuCalib", "AdaCalib")), BAYES_NONE, BAYES)

Results = dict[tuple[str, bool], list[Trial]]


def balance(settings: Settings) -> Page:
    """Fit every model with and without the regulariser, and compare the PCOCs of the field values."""
    results: Results = {}
    seen = SeenTasks()
    for seed in range(settings.seeds):
        task = seen.add(settings.source.tasks(seed, wanted=("CTR (AliExpress)",), shift=True)[0], seed)
        for contender in MODELS:
            for on in (False, True):
                trial = run_trial(contender, task, seed, settings.progress, alpha=ALPHA if on else 0.0)
                results.setdefault((contender.name, on), []).append(trial)
    values = len(next(iter(results.values()))[0].fields)
    return Page(
        "balance",
        "The field-balance regulariser (Table 3)",
        CLAIM,
        _finding(results),
        [_table(results, values), *([_printed()] if settings.source.simulated else []), seen.table()],
        notes=(
            f"The paper does not give its coefficient α; here α = {ALPHA:g}. Models without the field are one curve "
            "for all rows; the field weighs in the balance term alone. STD is the sample standard deviation over the "
            "field values, as in the paper's table. Its regulariser divides by all rows, so a field value weighs by "
            "its share. p is of a paired t-test over seeds; one seed has none.",
            settings_note(MODELS),
            *trained_note(
                {
                    (name, "with the term" if on else "without"): [trial.trained for trial in trials]
                    for (name, on), trials in results.items()
                }
            ),
            *quick_note(settings),
        ),
    )


def _table(results: Results, values: int) -> Table:
    fields = (f"field {i}" for i in range(values))
    headings = ("Model", "balance", "F-RCE", "AUC", "log-loss", "PCOC all", *fields, "STD")
    lines: list[tuple[Cell, ...]] = []
    for (name, on), trials in results.items():
        line = (
            name,
            "yes" if on else "no",
            Value.percent(column(trials, "f_rce")),
            Value.of(column(trials, "auc")),
            Value.of(column(trials, "log_loss"), digits=6),
            Value.of(column(trials, "pcoc"), digits=3),
            *(Value.of([float(t.fields[i]) for t in trials], digits=3) for i in range(values)),
            Value.percent(column(trials, "pcoc_std")),
        )
        lines.append(line)
    return Table("fields", "PCOC by field value, with and without the regulariser", headings, lines)


def _printed() -> Table:
    """Return the paper's table."""
    lines: list[tuple[Cell, ...]] = []
    for (name, on), (f_rce, auc, *pcocs, std) in BALANCE.items():
        shares = Value.percent([f_rce]), Value.percent([std])
        levels = (Value.of([pcoc], digits=3) for pcoc in pcocs)
        lines.append((name, "yes" if on else "no", shares[0], Value.of([auc]), *levels, shares[1]))
    headings = ("Model", "balance", "F-RCE", "AUC", "PCOC all", *(f"field {i}" for i in range(4)), "STD")
    return Table("paper", "The same in the paper (its own rows)", headings, lines)


def _finding(results: Results) -> list[str]:
    """Return, from the table, for how many models STD, level and log-loss change, and how."""
    names = list(dict.fromkeys(name for name, _ in results))

    def change(name: str, figure: str) -> tuple[float, float]:
        return difference(*(column(results[name, on], figure) for on in (True, False)))

    def told(name: str) -> str:
        moved, p = change(name, "pcoc_std")
        return f"{name} {100 * moved:+.2f}" + ("" if np.isnan(p) else f" (p = {p:.2g})")

    lower = [name for name in names if change(name, "pcoc_std")[0] < 0]
    shown = ", ".join(map(told, names))
    verdict = "as the paper says" if len(lower) == len(names) else "the paper says that it falls for all of its models"
    falls, worse = (
        sum(change(name, figure)[0] * sign > 0 for name in names) for figure, sign in (("pcoc", -1), ("log_loss", 1))
    )
    with_term = {name: results[name, True] for name in names}
    baselines = [name for name in names if name in ("NeuCalib", "AdaCalib")]
    return [
        f"The STD falls for {len(lower)} of {len(names)} models ({shown} percentage points); {verdict}. The overall "
        f"PCOC falls for {falls} of them, and the log-loss gets worse for {worse}.",
        remains(with_term, "pcoc_std", baselines, "With the term, STD in percentage points", factor=100.0),
    ]
