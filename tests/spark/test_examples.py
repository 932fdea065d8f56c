"""The jobs that the page about scale shows are run, one after the other, on a small log."""

import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.sketches import alike
from tests.test_documentation import blocks

import mcnet

PAGE = Path(__file__).parents[2] / "docs" / "at-scale.md"
JOBS = {block.words.split('"')[1]: block.body for block in blocks(PAGE.read_text("utf-8")) if "title=" in block.words}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    generator = np.random.default_rng(8)
    scores = generator.beta(1.0, 9.0, 2_000)
    path = tmp_path_factory.mktemp("examples")
    (path / "impressions").mkdir()
    pl.DataFrame(
        {
            "time": [datetime(2026, 11, 16, 9) + timedelta(seconds=5 * i) for i in range(2_000)],
            "score": scores,
            "label": (generator.random(2_000) < 0.6 * scores).astype(np.int32),
            "country": generator.choice(["NL", "FR"], 2_000),
        }
    ).write_parquet(path / "impressions" / "0.parquet")
    return path


@pytest.mark.parametrize("name", JOBS)
def test_the_job_runs(spark, folder, name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, str(folder)])
    exec(compile(JOBS[name], str(PAGE), "exec"), {"__name__": "__main__"})
    said = capsys.readouterr().out
    if name == "spark_job.py":
        assert "PCOC" in said
        assert mcnet.load(folder / "model.json").fields == ("country",)
    elif name == "pipeline_job.py":
        assert said.startswith("log-loss 0.")
    else:
        rows = mcnet.scan(folder / "impressions", score="score", label="label", field="country")
        assert alike(mcnet.Journal(folder / "journal").sketch(), rows)
