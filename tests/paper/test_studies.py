"""Every study runs at a tiny scale and writes its page."""

import pytest

from mcnet.errors import InputError
from mcnet.paper import auxiliary, balance, curves, efficiency, overfitting, performance, sensitivity, study
from mcnet.paper.settings import Settings
from mcnet.paper.sources import open_source
from mcnet.paper.tasks import write_tasks


@pytest.fixture
def settings(tmp_path, monkeypatch):
    # AdaCalib takes seconds wherever it is trained; one study shows that it takes part.
    for module, name in ((performance, "ROSTER"), (efficiency, "ROSTER"), (balance, "MODELS")):
        monkeypatch.setattr(module, name, tuple(c for c in getattr(module, name) if c.name != "AdaCalib"))
    monkeypatch.setattr(auxiliary, "MODELS", ("NeuCalib", "MCNet-None"))
    monkeypatch.setattr(auxiliary, "TASKS", ("CTR (AliExpress)",))
    monkeypatch.setattr(overfitting, "EPOCHS", (2, 10))
    monkeypatch.setattr(curves, "BINS", 5)
    monkeypatch.setattr(sensitivity, "QUICK_GRID", {"bins": (5,), "rate": (1e-4,), "order": (1.0,)})
    monkeypatch.setattr(sensitivity, "QUICK_ROWS", 5000)
    monkeypatch.setattr(efficiency, "BATCH", 256)
    return Settings(open_source("simulated", scale=0.004), tmp_path, seeds=1, quick=True, scale=0.004)


@pytest.mark.parametrize("name", [name for name in study.STUDIES if name not in ("performance", "expressiveness")])
def test_a_study_writes_a_page_with_claim_finding_and_table(settings, name):
    path = study.run_studies([name], settings)[name]
    text = path.read_text()
    assert "**The paper:**" in text
    assert "**Here:**" in text
    assert "| ---" in text
    assert list(settings.out.glob(f"{name}-*.csv"))
    assert "nan" not in text


def test_the_whole_study_on_scores_leaves_out_what_needs_features_and_writes_an_index(tmp_path, settings):
    tasks = settings.source.tasks(0, wanted=("CTR (AliExpress)",))
    scores = write_tasks(tasks, tmp_path / "scores.parquet")
    own = Settings(open_source(scores=scores), tmp_path / "out", seeds=1, quick=True)
    written = study.run_studies(["performance", "auxiliary"], own)
    assert set(written) == {"performance", "index"}
    index = written["index"].read_text()
    assert "(performance.md)" in index
    assert "Not run: scores.parquet has no features" in index


def test_an_unknown_study_is_refused(settings):
    with pytest.raises(InputError, match="there are performance, headline"):
        study.run_studies(["tables"], settings)
