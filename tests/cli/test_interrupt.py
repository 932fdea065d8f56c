import signal
import subprocess
import sys
import time

import polars as pl


def _hear_interrupts():
    # Whatever runs in the background of a shell is started deaf to them.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt_leaves_nothing_half_written(log, model, frame):
    folder = log.parent / "work"
    folder.mkdir()
    big = folder / "big.parquet"
    pl.concat([frame.lazy()] * 2_000).sink_parquet(big)
    command = [sys.executable, "-m", "mcnet", "apply", str(model), str(big), "-o", str(folder / "out.parquet")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=_hear_interrupts)
    deadline = time.monotonic() + 60
    # The part file appears when the work begins.
    while not list(folder.glob(".out*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert [path.name for path in folder.iterdir()] == ["big.parquet"]
    assert "Traceback" not in said
    assert "panicked" not in said
