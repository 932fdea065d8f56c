"""A lock that goes with its process."""

import subprocess
import sys

import pytest

from mcnet._shared.files import exclusive_lock
from mcnet.errors import BusyError

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
