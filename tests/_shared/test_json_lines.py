"""Lines of JSON that survive whatever kills their writer, and a lock that goes with its process."""

import subprocess
import sys

import pytest

from mcnet._shared.files import exclusive_lock, read_json_lines
from mcnet.errors import BusyError


def test_a_line_that_was_cut_off_is_not_read(tmp_path):
    path = tmp_path / "lines.jsonl"
    assert read_json_lines(path) == []
    path.write_text('{"run": 1}\n{"run": 2, "note": "a writer was kil')
    assert read_json_lines(path) == [{"run": 1}]


def test_a_damaged_line_does_not_hide_the_others(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"run": 1}\n\0\0\0\n[1]\n{"run": 2}\n')
    assert read_json_lines(path) == [{"run": 1}, {"run": 2}]


HOLDER = """
import sys, time
from pathlib import Path
from mcnet._shared.files import exclusive_lock
with exclusive_lock(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(100)
"""


def test_a_lock_goes_with_its_process(tmp_path):
    path = tmp_path / ".lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "locked\n"
    with pytest.raises(BusyError, match="another process is using"), exclusive_lock(path, 0.1):
        pass
    holder.kill()
    holder.communicate()
    with exclusive_lock(path, 10.0):
        pass
