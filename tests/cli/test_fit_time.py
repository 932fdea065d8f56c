"""`mcnet fit --time`: rows of one period are not independent."""

import numpy as np
import polars as pl

from mcnet.model.model_file import load


def test_fit_from_the_command_line_learns_from_days(tmp_path, mcnet):
    rng = np.random.default_rng(0)
    rows = 6000
    day = rng.integers(0, 12, rows)
    score = 1.0 / (1.0 + np.exp(-rng.normal(-1.0, 1.0, rows)))
    effect = rng.normal(0.0, 0.7, 12)[day]
    label = rng.random(rows) < 1.0 / (1.0 + np.exp(-np.log(score / (1.0 - score)) - effect))
    moments = pl.Series([f"2026-11-{d + 1:02d}T12:00:00" for d in day]).str.to_datetime()
    frame = pl.DataFrame({"p": score, "click": label.astype(int), "c": ["a", "b"] * (rows // 2), "ts": moments})
    frame.write_parquet(tmp_path / "log.parquet")
    asked = ["--score", "p", "--label", "click", "--field", "c", "--quiet"]
    assert mcnet("fit", tmp_path / "log.parquet", *asked, "--time", "ts", "-o", tmp_path / "model.json").code == 0
    model = load(tmp_path / "model.json")
    assert model.fields == ("c",)
    assert model.provenance["periods"]["number"] == 12
    assert model.provenance["periods"]["overdispersion"] > 5.0
    done = mcnet("fit", tmp_path / "log.parquet", *asked, "--every", "1d", "-o", tmp_path / "x.json")
    assert done.code == 2
    assert "--time" in done.err
