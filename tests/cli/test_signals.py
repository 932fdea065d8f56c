"""Commands that are ended from outside, as real processes with real signals."""

import os
import resource
import signal
import subprocess
import sys
import time

import polars as pl
import pytest

from mcnet.cli.run import DISK_FULL

CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}


def _hear_signals():
    # Whatever runs in the background of a shell, or under nohup, is started deaf to them.
    for name in CODES:
        signal.signal(getattr(signal, name), signal.SIG_DFL)


def _ignore_hangups():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


@pytest.fixture(scope="module")
def large_log(frame, tmp_path_factory):
    """A log that takes a while."""
    path = tmp_path_factory.mktemp("large") / "big.parquet"
    pl.concat([frame.lazy()] * 1_000).sink_parquet(path)
    return path


@pytest.fixture
def work(log, model, large_log):
    """A folder with a log that takes a while, and the command that calibrates it."""
    folder = log.parent / "work"
    folder.mkdir()
    big = folder / "big.parquet"
    big.hardlink_to(large_log)
    return folder, [sys.executable, "-m", "mcnet", "apply", str(model), str(big), "-o", str(folder / "out.parquet")]


def started(folder, command, before=_hear_signals):
    """Start the command, and return it when its work has begun: the temporary file is there."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=before)
    deadline = time.monotonic() + 60
    while not list(folder.glob(".out*.part")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    return process


@pytest.mark.parametrize("name", CODES)
def test_a_signal_leaves_nothing_half_written(work, name):
    folder, command = work
    process = started(folder, command)
    process.send_signal(getattr(signal, name))
    _, said = process.communicate(timeout=60)
    assert process.returncode == CODES[name]
    assert [path.name for path in folder.iterdir()] == ["big.parquet"]
    assert "Traceback" not in said
    assert "panicked" not in said


def test_a_command_under_nohup_goes_on(work):
    folder, command = work
    process = started(folder, command, before=_ignore_hangups)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert sorted(path.name for path in folder.iterdir()) == ["big.parquet", "out.parquet"]


def test_what_a_killed_run_leaves_is_removed_by_the_next(work, mcnet, log, model):
    folder, command = work
    process = started(folder, command)
    process.kill()
    process.communicate(timeout=60)
    assert len(list(folder.glob(".out*.part"))) == 1
    assert mcnet("apply", model, log, "-o", folder / "other.parquet").code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["big.parquet", "other.parquet"]


BUSY = """
import hashlib, sys
from mcnet.cli import run as signals
from mcnet._shared.files import whole_file
signals._GRACE_SECONDS = 0.2
with signals.orderly_termination(), whole_file(sys.argv[1]):
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # one call of minutes: no handler runs before it has ended
"""


def test_a_main_thread_that_does_not_hear_the_signal_is_ended(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY, tmp_path / "file"], stdout=subprocess.PIPE, preexec_fn=_hear_signals
    )
    process.stdout.readline()
    time.sleep(1)  # until it is inside the call
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert list(tmp_path.iterdir()) == []


OWN_HANDLER = """
import os, signal, time
from mcnet.cli import run as signals

signals._GRACE_SECONDS = 0.2
heard = []
with signals.orderly_termination():
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda given, _: heard.append(given))
        os.kill(os.getpid(), number)
    time.sleep(1)  # as a service that finishes its requests
assert heard == [signal.SIGTERM, signal.SIGHUP]
"""


def test_a_command_with_a_handler_of_its_own_takes_the_time_it_needs():
    subprocess.run([sys.executable, "-c", OWN_HANDLER], check=True, timeout=120, preexec_fn=_hear_signals)


def _small_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def test_a_full_disk_is_reported_as_such(work):
    # A limit on the size of files fails like a full disk: in the middle of writing.
    folder, command = work
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, preexec_fn=_small_files, check=False)
    assert done.returncode == DISK_FULL
    assert done.stderr == f"mcnet: {folder / 'out.parquet'}: no space left on the disk, nothing was written\n"
    assert [path.name for path in folder.iterdir()] == ["big.parquet"]


def test_a_device_is_never_replaced(mcnet, log, model, columns, tmp_path):
    device = tmp_path / "null.json"
    device.symlink_to(os.devnull)
    before = os.stat(os.devnull)
    for words in (
        ("fit", log, *columns, "--method", "platt-field", "-o", os.devnull, "--force"),
        ("fit", log, *columns, "--method", "platt-field", "-o", device, "--force"),
        ("export", model, "--to", "c", "-o", os.devnull, "--force"),
        ("sketch", log, *columns, "-o", "/dev/null/x.parquet", "--force"),
    ):
        done = mcnet(*words)
        assert (done.code, done.err.count("\n")) == (2, 1)
    after = os.stat(os.devnull)
    assert (after.st_mode, after.st_rdev, after.st_ino) == (before.st_mode, before.st_rdev, before.st_ino)


def test_a_link_and_its_mode_are_kept(mcnet, log, model, columns):
    link = model.with_name("link.json")
    link.symlink_to(model)
    model.chmod(0o640)
    before = model.read_bytes()
    assert mcnet("fit", log, *columns[:4], "--method", "platt", "-o", link, "--force").code == 0
    assert link.is_symlink()
    assert model.read_bytes() != before
    assert model.stat().st_mode & 0o777 == 0o640


NOISY = """
import os, signal, sys
from mcnet.cli import run as signals

try:
    with signals.orderly_termination():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.write(2, b"panicked")  # as a library does that turns the handler's error into one of its own
except signals.Terminated as ended:
    print("afterwards", file=sys.stderr)
    sys.exit(ended.exit_code)
"""


def test_what_a_library_writes_because_of_a_signal_is_not_shown():
    done = subprocess.run(
        [sys.executable, "-c", NOISY], capture_output=True, text=True, preexec_fn=_hear_signals, check=False
    )
    assert done.returncode == 143
    assert done.stderr == "afterwards\n"
