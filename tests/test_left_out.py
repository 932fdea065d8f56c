"""Tests that are left out are never mistaken for tests that passed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parent / "conftest.py"


@pytest.mark.parametrize(("workers", "strict", "code"), [("0", "0", 0), ("2", "1", 1)])
def test_the_last_lines_name_what_was_left_out(tmp_path, strict, code, workers):
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "test_it.py").write_text(
        "import pytest\ndef test_a():\n    pytest.skip('Chromium is not installed: apt-get install chromium')\n"
        "def test_b():\n    pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "MCNET_SKIP_NOTHING": strict},
        check=False,
    )
    assert done.returncode == code, done.stdout
    assert "1 test: Chromium is not installed: apt-get install chromium" in done.stdout
    assert "left out" in done.stdout


def test_a_run_that_leaves_nothing_out_says_nothing(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "test_it.py").write_text("def test_b():\n    pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "MCNET_SKIP_NOTHING": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "left out" not in done.stdout
