"""Tests that are left out are never mistaken for tests that passed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parent / "conftest.py"


def pytest_in(folder, *words, **settings):
    """Run the tests of a folder with the conftest of this suite, and no plugin that it does not need."""
    (folder / "conftest.py").write_text(CONFTEST.read_text())
    # What tells this run what to record, repeat or leave out is not meant for the run inside it.
    known = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "MCNET_"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider", *words, str(folder)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**known, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "7", **settings},
        check=False,
    )


@pytest.mark.parametrize(("workers", "strict", "code"), [("0", "0", 0), ("2", "1", 1)])
def test_the_last_lines_name_what_was_left_out(tmp_path, strict, code, workers):
    (tmp_path / "test_it.py").write_text(
        "import pytest\ndef test_a():\n    pytest.skip('Chromium is not installed: apt-get install chromium')\n"
        "def test_b():\n    pass\n"
    )
    done = pytest_in(tmp_path, "-q", "-n", workers, MCNET_SKIP_NOTHING=strict)
    assert done.returncode == code, done.stdout
    assert "1 test: Chromium is not installed: apt-get install chromium" in done.stdout
    assert "left out" in done.stdout


def test_a_run_that_leaves_nothing_out_says_nothing(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_b():\n    pass\n")
    done = pytest_in(tmp_path, "-q", MCNET_SKIP_NOTHING="1")
    assert done.returncode == 0, done.stdout
    assert "left out" not in done.stdout


SAME = """
import os
import pytest

def test_passes():
    assert os.environ["OMP_NUM_THREADS"] == "7"

@pytest.mark.parametrize("x", ["\\n"])
def test_passes_by_parameter(x):
    pass

def test_fails():
    assert "AGAIN" in os.environ

@pytest.fixture
def ends_badly():
    yield
    assert "AGAIN" in os.environ

def test_fixture_fails(ends_badly):
    pass

def test_skips():
    if "AGAIN" not in os.environ:
        pytest.skip("not yet")
    assert os.environ["OMP_NUM_THREADS"] == "1", "one of several processes has one thread"
"""


def test_a_run_inside_another_records_nothing_for_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MCNET_RECORD_PASSED", str(tmp_path / "passed"))
    (tmp_path / "test_it.py").write_text("def test_b():\n    pass\n")
    assert pytest_in(tmp_path, "-q").returncode == 0
    assert not (tmp_path / "passed").exists()


def test_what_passed_before_is_not_run_again_unless_it_depends_on_what_is_installed(tmp_path):
    (tmp_path / "test_same.py").write_text(SAME)
    (tmp_path / "test_other.py").write_text(
        "import sys\ndef test_depends():\n    assert 'pyspark' not in sys.modules\n"
    )
    passed = str(tmp_path / "passed")
    first = pytest_in(tmp_path, "-v", MCNET_RECORD_PASSED=passed, MCNET_SKIP_NOTHING="0")
    assert first.returncode == 1
    again = pytest_in(tmp_path, "-v", "-n", "2", MCNET_PASSED_BEFORE=passed, AGAIN="1", MCNET_SKIP_NOTHING="1")
    assert again.returncode == 0, again.stdout
    run = set(re.findall(r"PASSED \S+::test_(\w+)", again.stdout))
    assert run == {"fails", "fixture_fails", "skips", "depends"}
