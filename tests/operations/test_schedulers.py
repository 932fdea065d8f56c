"""The schedulers of the documentation: their commands are taken from the page and run as they run them."""

import os
import re
import runpy
import shlex
import subprocess
import sys
import types
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.operations.conftest import day_rows

import mcnet

PAGE = (Path(__file__).parents[2] / "docs" / "hourly-loop.md").read_text(encoding="utf-8")
SETTINGS = """score = "pctr"
label = "click"
field = "country"

[update]
time = "ts"
every = "1h"
"""


def block(title):
    return re.search(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)[1]


@pytest.fixture
def home(tmp_path):
    """A folder with five hours of logs, the last of them the hour before now."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "mcnet.toml").write_text(SETTINGS)
    for ago in range(5, 0, -1):
        hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0, tzinfo=None) - timedelta(hours=ago)
        rows = day_rows(ago, rows=1000)
        rows = rows.with_columns(ts=rows["ts"] - rows["ts"][0] + hour)
        rows.write_parquet(tmp_path / "logs" / f"{hour:%Y-%m-%dT%H}.parquet")
    return tmp_path


def run(command, home):
    # "mcnet" of the page is the one under test, and /srv/ads the folder of the test.
    bin_folder = home / "bin"
    bin_folder.mkdir(exist_ok=True)
    script = bin_folder / "mcnet"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m mcnet "$@"\n')
    script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, cwd=home)


def test_the_line_of_cron_adds_what_is_new(home):
    minute, *_, command = block("crontab").strip().split(" ", 5)
    assert minute == "5"
    done = run(["sh", "-c", command.replace("\\%", "%").replace("/srv/ads", str(home))], home)
    assert (done.returncode, done.stderr) == (0, "")
    (told,) = mcnet.Store(home / "ads.db").state().runs()
    assert (told["outcome"], told["added"]["rows"]) == ("published", 5000)


def test_the_unit_of_systemd_publishes(home):
    service = dict(re.findall(r"^(\w+)=(.*)$", block("mcnet-update.service"), re.MULTILINE))
    # systemd starts no shell: nothing expands the star before mcnet does.
    done = run(shlex.split(service["ExecStart"]), home)
    assert str(done.returncode) in {"0", *service["SuccessExitStatus"].split()}, done.stderr
    assert service["WorkingDirectory"] == "/srv/ads"
    assert mcnet.Registry(home / "ads.db").current.name == "1"


def test_the_tasks_of_airflow_publish_and_export(home, monkeypatch, tmp_path):
    # Airflow itself is not installed here: stand-ins read the file, and its commands are run as Airflow runs them.
    tasks = []

    class Operator:
        def __init__(self, **given):
            self.given = given
            tasks.append(self)

        def __rshift__(self, other):
            other.after = self

    class Dag:
        def __init__(self, **given):
            assert given["max_active_runs"] == 1

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    operators = ("airflow.providers.standard.operators.bash", {"BashOperator": Operator})
    for name, content in (operators, ("airflow.sdk", {"DAG": Dag})):
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            made = types.ModuleType(".".join(parts[:depth]))
            made.__dict__.update(content if depth == len(parts) else {"__path__": []})
            monkeypatch.setitem(sys.modules, made.__name__, made)
    dag = tmp_path / "calibration_dag.py"
    dag.write_text(block("calibration_dag.py"))
    runpy.run_path(str(dag))
    update, export = tasks
    assert export.after is update
    for task in (update, export):
        done = run(["bash", "-c", task.given["bash_command"]], home)
        assert done.returncode == 0, done.stderr
    assert "mcnet_calibrate" in (home / "ctr.h").read_text()
    again = run(["bash", "-c", update.given["bash_command"]], home)
    assert again.returncode == update.given["skip_on_exit_code"]
