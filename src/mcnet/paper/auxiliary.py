"""Table 2: an auxiliary network on the features, beside each calibrator."""

import time
import warnings

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mcnet.errors import CalibrationWarning, InputError
from mcnet.neural.with_features import WithFeatures
from mcnet.paper.pages import Cell, Page, Table, Value
from mcnet.paper.published import AUXILIARY
from mcnet.paper.settings import Settings
from mcnet.paper.sources import Trained
from mcnet.paper.tasks import Sample, Task
from mcnet.paper.trials import ROSTER, Contender, Trial, column, contenders, judge, run_trial, settings_note

__all__ = ["auxiliary"]

CLAIM = "The auxiliary network raises the AUC of NeuCalib, AdaCalib and MCNet in most cases; calibration may suffer."

TASKS = ("CTR (AliExpress)", "CVR (AliExpress)")
MODELS = ("NeuCalib", "AdaCalib", "MCNet-None", "MCNet-Field", "BayesMCNet, no field", "BayesMCNet")

Results = dict[tuple[str, Trained], dict[str, list[Trial]]]


def auxiliary(settings: Settings) -> Page:
    """Calibrate the scores of a trained base predictor with and without a network on the features."""
    results: Results = {}
    knowing: tuple[Trained, ...] = ("all", "half") if settings.source.simulated else ("all",)
    for seed in range(settings.seeds):
        for trained in knowing:
            for task in settings.source.tasks(seed, wanted=TASKS, shift=False, trained=trained):
                for name, trial in _trials(task, seed, settings).items():
                    results.setdefault((task.name, trained), {}).setdefault(name, []).append(trial)
    tables = [_table(name, trained, methods) for (name, trained), methods in results.items()]
    return Page(
        "auxiliary",
        "The auxiliary network (Table 2)",
        CLAIM,
        _finding(results),
        tables,
        notes=(
            "The scores are those of a base predictor, trained on features of the training rows; the auxiliary network "
            "sees all features of the validation rows, which the base predictor has never met. Where the base "
            "predictor knew all features too, the auxiliary network can only add what a quarter more rows still teach; "
            "where it knew half of them, as when features are newer than the model, it has something to add.",
            settings_note([c for c in contenders(ROSTER, settings.quick) if c.name in MODELS]),
        ),
    )


def _trials(task: Task, seed: int, settings: Settings) -> dict[str, Trial]:
    plain = {contender.name: contender for contender in contenders(ROSTER, settings.quick)}
    found = {"Base": run_trial(plain["Base"], task, seed, settings.progress)}
    for model in MODELS:
        found[model] = run_trial(plain[model], task, seed, settings.progress)
        settings.say(f"{task.name}, seed {seed}: {model}-Aux")
        found[f"{model}-Aux"] = trial_with_features(plain[model], task, seed)
    return found


def trial_with_features(contender: Contender, task: Task, seed: int = 0) -> Trial:
    """Fit a contender with an auxiliary network on the validation rows and judge it on the test rows."""
    made = WithFeatures(contender.build(seed), seed=seed)
    start = time.perf_counter()
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


def _table(task: str, trained: Trained, methods: dict[str, list[Trial]]) -> Table:
    headings = ("Method", "PCOC", "F-RCE", "AUC", "log-loss", "PCOC fitted", "paper PCOC", "paper F-RCE", "paper AUC")
    lines: list[tuple[Cell, ...]] = []
    for name, trials in methods.items():
        printed = AUXILIARY.get(task, {}).get(name)
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
    slug = task.lower().replace(" (", "-").replace(")", "").replace(" ", "-")
    caption = f"{task}; the base predictor knew {trained} of the features" if trained == "half" else task
    return Table(slug if trained == "all" else f"{slug}-half", caption, headings, lines)


def _finding(results: Results) -> str:
    sentences = []
    for trained in dict.fromkeys(key[1] for key in results):
        parts, raised, cases = [], 0, 0
        for (task, known), methods in results.items():
            if known != trained:
                continue
            gains = []
            for model in MODELS:
                gain = np.mean(column(methods[f"{model}-Aux"], "auc")) - np.mean(column(methods[model], "auc"))
                raised, cases = raised + int(gain > 0), cases + 1
                gains.append(f"{model} {gain:+.4f}")
            parts.append(f"{task}: {', '.join(gains)}")
        who = "knew all the features" if trained == "all" else "knew half of them"
        sentences.append(
            f"Where the base predictor {who}, the AUC rises in {raised} of {cases} cases ({'; '.join(parts)})."
        )
    return " ".join(sentences)
