"""A real cluster of processes, in which a worker dies in the middle of a job."""

import subprocess

import numpy as np
import polars as pl
import pytest
from tests.sketches import alike
from tests.spark.sessions import job

import mcnet


@pytest.mark.timeout(900)
def test_a_worker_that_dies_changes_no_bit(tmp_path):
    from tests.spark.cluster import cluster

    generator = np.random.default_rng(4)
    rows = 12_000
    scores = generator.beta(1.0, 9.0, rows)
    log = pl.DataFrame(
        {
            "score": scores,
            "label": (generator.random(rows) < 0.5 * scores).astype(np.int64),
            "country": generator.choice(["NL", "FR", "DE"], rows),
        }
    )
    (tmp_path / "log").mkdir()
    for part in range(3):
        log[part * 4_000 : (part + 1) * 4_000].write_parquet(tmp_path / "log" / f"{part}.parquet")
    expected = mcnet.scan(tmp_path / "log", score="score", label="label", field="country")
    model = mcnet.PlattField().fit_sketch(expected).model_
    model.save(tmp_path / "model.json")
    with cluster(tmp_path) as (master, workers), (tmp_path / "driver.log").open("w") as log_of_driver:
        command, root = job("cluster_job")
        driver = subprocess.Popen(
            [*command, master, str(tmp_path)],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=log_of_driver,
            text=True,
        )
        try:
            said = driver.stdout.readline()
            assert said == "midway\n", (tmp_path / "driver.log").read_text()[-3000:]
            workers[0].kill()
            (tmp_path / "killed").touch()
            assert driver.stdout.readline() == "executors 1\n"
            assert driver.wait(timeout=600) == 0, (tmp_path / "driver.log").read_text()[-3000:]
        finally:
            driver.kill()
            driver.wait()
            driver.stdout.close()
    assert alike(mcnet.Sketch.load(tmp_path / "sketch.parquet"), expected)
    applied = pl.read_parquet(tmp_path / "applied" / "*.parquet")
    assert len(applied) == rows
    assert np.array_equal(applied["calibrated"], model.predict(applied["score"], {"country": applied["country"]}))
