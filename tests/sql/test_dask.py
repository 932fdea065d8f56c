"""The program of the page that sketches with Dask is run on a scheduler and workers of its own."""

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import polars as pl
import pytest
from tests.test_documentation import blocks

import mcnet

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
(JOB,) = [block.body for block in blocks(PAGE.read_text("utf-8")) if 'title="dask_job.py"' in block.words]


@pytest.fixture
def scheduler(tmp_path):
    """Run a scheduler and two workers on loopback; give the address of the scheduler."""
    pytest.importorskip("distributed", reason="Dask is not installed: pip install distributed")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*sys.path, str(tmp_path)]),
        "DASK_TEMPORARY_DIRECTORY": str(tmp_path),
    }
    with ExitStack() as started:

        def start(program, *arguments):
            process = started.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", f"distributed.cli.{program}", *arguments, "--no-dashboard"],
                    stderr=subprocess.PIPE,
                    text=True,
                    env=environment,
                )
            )
            started.callback(process.kill)
            return process

        address = None
        for line in start("dask_scheduler", "--host", "tcp://127.0.0.1:0").stderr:
            address = re.search(r"Scheduler at:\s+(tcp://\S+)", line)
            if address:
                break
        for _ in range(2):
            start("dask_worker", address[1], "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1")
        yield address[1], environment


def test_the_sum_of_parts_made_by_workers_is_the_sketch_of_all_rows(scheduler, tmp_path):
    address, environment = scheduler
    rows = mcnet.simulate(5_000, rate=0.05, seed=7).frame().select(country="field", pctr="score", click="label")
    paths = [str(tmp_path / f"{part}.parquet") for part in range(4)]
    for part, path in enumerate(paths):
        rows.filter(pl.int_range(pl.len()) % 4 == part).write_parquet(path)
    (tmp_path / "dask_job.py").write_text(JOB, encoding="utf-8")
    command = [sys.executable, "dask_job.py", address, "sketch.parquet", *paths]
    subprocess.run(command, check=True, timeout=120, cwd=tmp_path, env=environment)
    expected = mcnet.scan(rows, score="pctr", label="click", field="country")
    assert mcnet.Sketch.load(tmp_path / "sketch.parquet") == expected
