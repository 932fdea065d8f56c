"""Table 2: an auxiliary network on the features, beside each calibrator."""

import time
import warnings
from functools import partial
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mcnet.errors import CalibrationWarning, InputError
from mcnet.networks.with_features import WithFeatures
from reproduction.kept_trainings import KeptTrainings
from reproduction.pages import Cell, Page, Table, Value, slug
from reproduction.published import AUXILIARY, PERFORMANCE
from reproduction.settings import SeenTasks, Settings, quick_note
from reproduction.significance import errors, remains
from reproduction.sources import ALL_TASKS, Trained
from reproduction.tasks import Sample, Task
from reproduction.trials import MCNETS, ROSTER, Contender, Trial, column, judge, run_trial, settings_note, trained_note
from reproduction.with_features import STOPPING, BesideRecipe, fit_beside

CLAIM = "The auxiliary network raises the AUC of NeuCalib, AdaCalib and MCNet in most cases; calibration may suffer."

TASKS = ALL_TASKS
MODELS = ("NeuCalib", "AdaCalib", *(row.name for row in MCNETS), "BayesMCNet, no field", "BayesMCNet")

RISE = 0.0001
"""A rise of the AUC that counts as one: the last digit that the tables show."""
SIMULATED = (
    "The scores are those of a base predictor, trained on features of the training rows; the auxiliary network sees "
    "all features of the validation rows, which the base predictor has never met. There is no shift here; the paper's "
    "figures are of shifted rows, and tell what the network changes rather than a level to compare with."
)
KNOWN = {
    "all": "The base predictor knew all features too, so the auxiliary network can only add what a quarter more rows "
    "still teach; `python -m reproduction features` has a base predictor that knew half of them.",
    "half": "The base predictor knew half of the features, as when features are newer than the model: the auxiliary "
    "network has something to add.",
}

Results = dict[str, dict[str, list[Trial]]]


def auxiliary(settings: Settings) -> Page:
    """Calibrate the scores of a trained base predictor with and without a network on the features."""
    return _page(settings, "auxiliary", "The auxiliary network (Table 2)", "all", TASKS)


def features(settings: Settings) -> Page:
    """Do the same on one task where the base predictor knew half of the features."""
    if not settings.source.simulated:
        raise InputError(
            f"{settings.source.title} has one base predictor; one that knew half of the features needs --data simulated"
        )
    return _page(settings, "features", "An auxiliary network on features that are new", "half", TASKS[:1])


def _page(settings: Settings, name: str, title: str, trained: Trained, wanted: tuple[str, ...]) -> Page:
    results: Results = {}
    seen, kept = SeenTasks(), KeptTrainings(settings.out / f"{name}-trainings")
    for seed in range(settings.seeds):
        for task in settings.source.tasks(seed, wanted=wanted, shift=False, trained=trained):
            seen.add(task, seed)
            for method, trial in _trials(task, seed, settings, kept).items():
                results.setdefault(task.name, {}).setdefault(method, []).append(trial)
    kept.tell(settings, name, 2 * len(MODELS) * len(results) * settings.seeds)
    literal = "; ".join(f"{aux_name(row)} = {_beside(row)}" for row in MCNETS if row.recipe is not None)
    return Page(
        name,
        title,
        CLAIM,
        _finding(results, trained),
        [*(_table(task, methods) for task, methods in results.items()), seen.table()],
        notes=(
            *((f"{SIMULATED} {KNOWN[trained]}",) if settings.source.simulated else ()),
            settings_note([contender for contender in ROSTER if contender.name in MODELS]),
            *trained_note(
                {
                    (method, task): [trial.trained for trial in trials]
                    for task, methods in results.items()
                    for method, trials in methods.items()
                }
            ),
            f"{literal}. All others: the calibrator at its optimum, then `WithFeatures`: {STOPPING}.",
            *quick_note(settings),
        ),
    )


def aux_name(contender: Contender) -> str:
    """Return the name of a contender with an auxiliary network.

    >>> aux_name(MCNETS[0])
    'MCNet-None-Aux, as printed'
    """
    model, comma, training = contender.name.partition(", ")
    return f"{model}-Aux{comma}{training}"


def _beside(contender: Contender) -> str:
    """Return in words how a contender is trained beside a network on features."""
    if contender.recipe is None:
        return STOPPING
    return BesideRecipe(contender.sees_field, cast(Any, contender.training)).sentence()


def _trials(task: Task, seed: int, settings: Settings, kept: KeptTrainings) -> dict[str, Trial]:
    """Return the trials of a task, without and with a network on features, each kept as it finishes."""
    plain = {contender.name: contender for contender in ROSTER}
    found = {"Base": run_trial(plain["Base"], task, seed, settings.progress)}
    for model in MODELS:
        row, name = plain[model], aux_name(plain[model])
        settings.say(f"{task.name}, seed {seed}: {name}")
        found[model] = kept.trial(task, row.settings(), seed, partial(run_trial, row, task, seed))
        beside = f"{row.settings()}; {name}: {_beside(row)}"
        found[name] = kept.trial(task, beside, seed, partial(trial_with_features, row, task, seed))
    return found


def trial_with_features(contender: Contender, task: Task, seed: int = 0) -> Trial:
    """Fit a contender with an auxiliary network on the validation rows and judge it on the test rows."""
    start = time.perf_counter()
    if contender.recipe is not None:
        training: Any = contender.training
        fitted = fit_beside(task, BesideRecipe(contender.sees_field, training, seed=seed))
        seconds = time.perf_counter() - start
        return judge(task, fitted.predict(task.test), fitted.predict(task.validation), seconds)
    made = WithFeatures(contender.build(seed), seed=seed)
    with warnings.catch_warnings():
        # The base predictor was trained on another split; that it cannot be known from the scores is no news.
        warnings.simplefilter("ignore", CalibrationWarning)
        made.fit(
            task.validation.score,
            task.validation.label,
            field=_field(contender, task.validation),
            features=_features(task.validation),
        )
    seconds = time.perf_counter() - start

    def predict(sample: Sample) -> NDArray[np.float64]:
        return made.predict(sample.score, _field(contender, sample), features=_features(sample))

    return judge(task, predict(task.test), predict(task.validation), seconds)


def _field(contender: Contender, sample: Sample) -> NDArray[np.int32] | None:
    return sample.field if contender.sees_field else None


def _features(sample: Sample) -> pl.DataFrame:
    """Return the features as a table: numbers as they are, category codes as text."""
    if sample.features is None:
        raise InputError("the rows have no features; the auxiliary network needs them")
    numbers = pl.DataFrame(sample.features.numbers, [f"n{i}" for i in range(sample.features.numbers.shape[1])])
    codes = pl.DataFrame(sample.features.categories, [f"c{i}" for i in range(sample.features.categories.shape[1])])
    return pl.concat([numbers, codes.cast(pl.String)], how="horizontal")


def _table(task: str, methods: dict[str, list[Trial]]) -> Table:
    headings = ("Method", "PCOC", "F-RCE", "AUC", "log-loss", "PCOC fitted", "paper PCOC", "paper F-RCE", "paper AUC")
    lines: list[tuple[Cell, ...]] = []
    for name, trials in methods.items():
        model = name.partition(",")[0]
        printed = (
            None if "BayesMCNet" in name else AUXILIARY.get(task, {}).get(model, PERFORMANCE.get(task, {}).get(model))
        )
        theirs: tuple[Cell, ...] = ("–", "–", "–")
        if printed is not None:
            theirs = (f"{printed[0]:.4f}", f"{printed[1]:.2%}", f"{printed[2]:.4f}")
        lines.append(
            (
                name,
                Value.of(column(trials, "pcoc")),
                Value.percent(column(trials, "f_rce")),
                Value.of(column(trials, "auc")),
                Value.of(column(trials, "log_loss"), digits=6),
                Value.of(column(trials, "fitted_pcoc")),
                *theirs,
            )
        )
    return Table(slug(task), task, headings, lines)


def _finding(results: Results, trained: Trained) -> list[str]:
    parts, raised, cases, worse, nothing = [], 0, 0, 0, 0
    for task, methods in results.items():
        gains = {}
        for contender in (row for row in ROSTER if row.name in MODELS):
            before, after = methods[contender.name], methods[aux_name(contender)]
            gains[contender.name] = float(np.mean(column(after, "auc")) - np.mean(column(before, "auc")))
            worse += int(np.mean(errors(after, "pcoc")) > np.mean(errors(before, "pcoc")))
            start = methods["Base"] if contender.training == "trained on" else before
            same = np.allclose(column(after, "log_loss"), column(start, "log_loss"), rtol=1e-6)
            nothing += int(same and contender.training != "as printed")
        raised, cases = raised + sum(gain >= RISE for gain in gains.values()), cases + len(gains)
        low, high = (f(gains, key=lambda name: gains[name]) for f in (min, max))
        parts.append(f"{task}: {gains[low]:+.4f} ({low}) to {gains[high]:+.4f} ({high})")
    sentences = [
        f"Where the base predictor knew {trained} of the features, the AUC rises by {RISE} or more in {raised} of "
        f"{cases} cases ({'; '.join(parts)}), and the PCOC moves away from 1 in {worse}. In "
        f"{nothing} nothing is learnt, as no epoch is better on rows held back."
    ]
    known = [row for row in ROSTER if row.name in MODELS and row.name in ("NeuCalib", "AdaCalib")]
    baselines = ["Base", *map(aux_name, known)]
    for task, methods in results.items():
        sentences.append(remains(methods, "log_loss", baselines, f"{task}: log-loss", suffix="-Aux", digits=6))
    return sentences
