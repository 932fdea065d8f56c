"""Run methods of peers on jobs, each peer in a process of its own, with a limit of CPU time a job."""

import itertools
import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.methods import label
from benchmarks.peers.environments import interpreter, variables

_SCRIPTS = Path(__file__).parent
_numbers = itertools.count()
# Measured in a process of their own, in this order; the rest of a peer shares one.
_SLOW = {
    ("mcnet", "mcnet-bayes"): -1,
    ("probcal", "segmented spline"): 1,
    ("mcgrad", "default"): 2,
    ("mcgrad", "monotone"): 3,
}

LIMIT: float | None = None
"""CPU seconds a job may take, whatever a part asks for."""
PATIENCE = 20.0
"""How many times the limit may pass on the clock: a busy machine is no fault of a method."""
RESUME = False
"""Take what an earlier run has measured, and do the rest."""
TOGETHER = 1
"""How many methods run at once; times are CPU seconds of one thread, so that neighbours hardly show in them."""


@dataclass
class Job:
    """One method on one pair of files, and what came of it."""

    peer: str
    method: str
    fit: Path
    test: Path
    rows: int
    fields: tuple[str, ...] = ()
    repeats: int = 1
    latency: bool = False
    warm: bool = True
    """Whether a first fit and prediction precede what is timed."""
    tags: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The peer and its method."""
        return label(self.peer, self.method)

    @property
    def failed(self) -> str | None:
        """Why there is no figure, if there is none."""
        return self.answer.get("failed")

    @property
    def key(self) -> str:
        """What was measured, whenever it was."""
        return json.dumps([self.peer, self.method, self.rows, list(self.fields), self.tags])

    @property
    def kind(self) -> str:
        """The method and what it is asked for, whatever the rows and the seed: late on some, it is late on more."""
        asked = {name: value for name, value in self.tags.items() if name != "seed"}
        return json.dumps([self.method, list(self.fields), asked])

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        kept = {name: value for name, value in asdict(self).items() if name not in ("fit", "test", "answer")}
        return kept | {name: value for name, value in self.answer.items() if name != "p"}


class _Runner:
    """A peer's process: takes a job, gives an answer."""

    def __init__(self, peer: str) -> None:
        script = _SCRIPTS / f"run_{peer.replace('-', '_')}.py"
        self.process = subprocess.Popen(
            [str(interpreter(peer)), str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=variables(peer),
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.process.stdout:
            if line.startswith('{"id"'):
                self.lines.put(line)
        self.lines.put(None)

    def ask(self, job: Job, folder: str, limit: float) -> dict[str, Any]:
        number = next(_numbers)
        predictions = Path(folder) / f"{number}.npy"
        sent = {
            "id": number,
            "method": job.method,
            "fit": str(job.fit),
            "test": str(job.test),
            "fields": list(job.fields),
            "repeats": job.repeats,
            "latency": job.latency,
            "warm": job.warm,
            "predictions": str(predictions),
        }
        self.process.stdin.write(json.dumps(sent) + "\n")
        self.process.stdin.flush()
        begin, spent = time.monotonic(), self.spent()
        while True:
            try:
                line = self.lines.get(timeout=0.5)
                break
            except queue.Empty:
                if self.spent() - spent > limit:
                    self.stop()
                    return {"failed": f"over {limit:.0f} s", "late": True}
                if time.monotonic() - begin > PATIENCE * limit:
                    self.stop()
                    return {"failed": "not finished: the machine was too busy", "late": True}
        if line is None:
            return {"failed": "its process ended", "late": True}
        answer = json.loads(line)
        if "failed" not in answer:
            answer["p"] = np.load(predictions)
            predictions.unlink()
        return answer

    def spent(self) -> float:
        """Return the CPU seconds of the process so far."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def run(jobs: Sequence[Job], limit: float, judge: Any = None, save: Any = None) -> None:
    """Fill in the answers of all jobs; `judge(job)` sees the predictions, which are not kept.

    The slowest methods come last (first, where several run at once), and `save()` is called after every job: whoever
    stops the run keeps what was measured.
    """
    limit = limit if LIMIT is None else LIMIT
    if limit <= 0:  # nothing is to be measured: only write what is known
        save()
        return
    # One process a peer, so that its imports are paid for once; slow methods have one of their own.
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        key = (job.peer, job.method)
        groups.setdefault(key if key in _SLOW else (job.peer, ""), []).append(job)
    with tempfile.TemporaryDirectory() as folder:
        alone = threading.Lock()

        def after(job: Job, answer: dict[str, Any]) -> None:
            with alone:  # whoever saves must not meet an answer that has not been judged
                job.answer = answer
                if judge is not None and not job.failed:
                    judge(job)
                job.answer.pop("p", None)
                if save is not None:
                    save()

        def one(key: tuple[str, str]) -> None:
            _run_group(key[0], groups[key], limit, after, folder)

        order = sorted(groups, key=lambda key: _SLOW.get(key, 0), reverse=TOGETHER > 1)
        with ThreadPoolExecutor(TOGETHER) as pool:
            list(pool.map(one, order))


def recall(jobs: Sequence[Job], kept: Path) -> list[Job]:
    """Give jobs the figures of an earlier run, where it had any; return those still to be done."""
    if RESUME and kept.exists():
        known = {}
        for entry in json.loads(kept.read_text()):
            given = [entry.pop(name) for name in ("peer", "method", "rows", "fields", "tags")]
            if "fit" in entry or LIMIT == 0:  # a method that failed is given another try
                known[json.dumps(given)] = entry
        for job in jobs:
            job.answer = job.answer or known.get(job.key, {})
    return [job for job in jobs if not job.answer]


def _run_group(peer: str, group: list[Job], limit: float, after: Any, folder: str) -> None:
    runner: _Runner | None = None
    hopeless: dict[str, int] = {}  # the rows at which a kind of job did not finish
    paces: dict[str, float] = {}  # CPU seconds per row of the last job of a kind
    try:
        for job in sorted(group, key=lambda job: job.rows):
            if job.rows >= hopeless.get(job.kind, job.rows + 1):
                job.answer = {"failed": f"not tried: late at {hopeless[job.kind]:,} rows", "late": True}
                continue
            if runner is None:
                runner = _Runner(peer)
            per_row = paces.get(job.kind, 0.0)
            if per_row * job.rows > limit:
                answer = {"failed": f"not tried: {report.seconds(per_row * job.rows)} at the pace of fewer rows"}
            else:
                spent = runner.spent()
                answer = runner.ask(job, folder, limit)
                paces[job.kind] = max(runner.spent() - spent, 0.0) / job.rows
            if answer.get("late"):
                hopeless[job.kind] = job.rows
                runner = None
            after(job, answer)
            said = job.failed or f"fit {job.answer['fit']:.2f} s"
            print(f"  {job.name}, {job.rows:,} rows {job.tags}: {said}", flush=True)
    except (OSError, subprocess.CalledProcessError) as error:
        for job in group:
            job.answer = job.answer or {"failed": f"could not be run ({type(error).__name__})"}
    finally:
        if runner is not None:
            runner.stop()
