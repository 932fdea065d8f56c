"""Lines of JSON that survive whatever kills their writer, and a lock that goes with its process."""

import subprocess
import sys

import pytest

from mcnet._shared.files import append_json_line, exclusive_lock, last_json_lines, read_json_lines
from mcnet.errors import BusyError


def test_a_line_that_was_cut_off_is_not_read_and_is_taken_away(tmp_path):
    path = tmp_path / "lines.jsonl"
    assert read_json_lines(path) == last_json_lines(path, 3) == []
    append_json_line(path, {"run": 1})
    with path.open("a") as file:
        file.write('{"run": 2, "note": "a writer was kil')
    assert read_json_lines(path) == [{"run": 1}]
    append_json_line(path, {"run": 3})
    assert read_json_lines(path) == [{"run": 1}, {"run": 3}]


def test_a_file_of_nothing_but_part_of_a_line_begins_anew(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"run": ' + "1" * 1_000_000)
    append_json_line(path, {"run": 1})
    assert path.read_text() == '{"run": 1}\n'


def test_the_last_lines_of_a_long_file(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(f'{{"run": {number}, "note": "{"x" * 500}"}}\n' for number in range(3000)))
    assert [line["run"] for line in last_json_lines(path, 2)] == [2998, 2999]
    assert [line["run"] for line in last_json_lines(path, 2000)] == list(range(1000, 3000))
    assert len(last_json_lines(path, 9999)) == 3000


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
