"""Kill -9 at random moments of `mcnet update` and `mcnet journal add`, and look what is left.

The long form: `python -m tests.fuzz.loop_kills --kills 200`.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl

import mcnet
from mcnet.loop.folder import LoopFolder

ROWS = 400
COLUMNS = ("--score", "pctr", "--label", "click", "--field", "country", "--time", "ts", "--every", "1h")
# Commands are taken from stdin and run as the command line runs them; each is acknowledged when it has ended well.
WORKER = """
import sys
from mcnet.cli.run import run
import mcnet.loop.job
print("ready", flush=True)
for line in sys.stdin:
    code = run([*line.split(), "-q"])
    print(code, line.strip(), flush=True)
"""


def write_hour(folder: Path, hour: int) -> Path:
    """Write the log of an hour, and return its path."""
    rng = np.random.default_rng(hour)
    score, country = rng.uniform(0.02, 0.4, ROWS), rng.choice(["NL", "FR"], ROWS)
    moment = np.datetime64("2026-11-01T00:00:00", "ms") + np.timedelta64(hour, "h") + np.arange(ROWS)
    click = (rng.random(ROWS) < 0.7 * score).astype(np.int8)
    path = folder / f"hour{hour:05}.parquet"
    pl.DataFrame({"pctr": score, "click": click, "country": country, "ts": moment}).write_parquet(path)
    return path


class Attack:
    """A loop whose job is killed again and again."""

    def __init__(self, folder: Path, rng: np.random.Generator) -> None:
        self.folder, self.rng = folder, rng
        self.journal, self.registry = folder / "journal", folder / "registry"
        self.hours = 0
        self.acknowledged: set[str] = set()
        self.met: Counter[str] = Counter()
        self._worker: subprocess.Popen[str] | None = None

    def commands(self) -> list[str]:
        """Return commands for some hours that come next: rows are added by `journal add` or by `update` itself."""
        words = []
        for _ in range(4):
            path = write_hour(self.folder, self.hours)
            self.hours += 1
            if self.rng.random() < 0.5:
                words.append(f"journal add {self.journal} {path} {' '.join(COLUMNS)}")
                words.append(f"update {self.journal} --registry {self.registry} --method platt-field")
            else:
                update = f"update {self.journal} {path} --registry {self.registry} --method platt-field"
                words.append(f"{update} {' '.join(COLUMNS)}")
        return words

    def worker(self) -> "subprocess.Popen[str]":
        """Start a process that runs commands."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def kill_once(self) -> None:
        """Run commands, kill the process at a random moment, and check everything."""
        process = self._worker or self.worker()
        self._worker = None
        assert process.stdin is not None
        commands = self.commands()
        process.stdin.write("".join(f"{line}\n" for line in commands))
        process.stdin.flush()
        time.sleep(float(self.rng.uniform(0.0, 3.0)))
        process.send_signal(signal.SIGKILL)
        self._worker = self.worker()  # it starts while this one is looked at
        out, err = process.communicate(timeout=60)
        assert not err, err
        done = [line.partition(" ")[2] for line in out.splitlines()]
        codes = [line.partition(" ")[0] for line in out.splitlines()]
        assert set(codes) <= {"0", "1"}, out  # a refusal is no failure
        cut = commands[len(done)] if len(done) < len(commands) else "nothing"
        self.met[cut.split()[0] if cut.split()[0] != "journal" else "journal add"] += 1
        self.acknowledged |= {word for line in done for word in line.split() if word.endswith(".parquet")}
        self.check()

    def check(self) -> None:
        """Check that every file is readable and that what was acknowledged is there, once."""
        if (self.journal / "journal.json").exists():
            opened = mcnet.Journal(self.journal)
            assert opened.verify() == []
            rows: Counter[str] = Counter()
            for entry in opened.entries():
                rows[entry.source] += entry.rows
            assert set(rows.values()) <= {ROWS}, f"counted twice, or in part: {rows}"
            assert self.acknowledged <= set(rows), f"lost: {self.acknowledged - set(rows)}"
        if (self.registry / "registry.json").exists():
            registry = mcnet.Registry(self.registry)
            for version in registry.versions[-3:]:
                registry.load(version.number)
            if registry.promoted:
                registry.load()
            registry.history()
            loop = LoopFolder(self.registry)
            loop.runs()
            if loop.status_file.exists():
                json.loads(loop.status_file.read_text(encoding="utf-8"))
            if loop.monitor_file.exists():
                mcnet.Monitor.load(loop.monitor_file)

    def end(self) -> None:
        """Run everything once more to its end: nothing is lost, nothing counts twice, the model is the right one."""
        process = self._worker or self.worker()
        words = f"update {self.journal} {self.folder}/hour*.parquet --registry {self.registry} --method platt-field"
        out, err = process.communicate(f"{words} {' '.join(COLUMNS)} --max-shift 9\n", timeout=300)
        assert out.startswith("0 "), (out, err)
        self.acknowledged = {str(path) for path in self.folder.glob("hour*.parquet")}
        self.check()
        assert sum(entry.rows for entry in mcnet.Journal(self.journal).entries()) == ROWS * self.hours
        other = self.folder / "afresh"
        mcnet.update(self.journal, other, method="platt-field")
        probe = {"country": ["NL", "FR", "BE"]}
        one, two = (
            mcnet.Registry(path).load().predict([0.1, 0.2, 0.3], field=probe) for path in (self.registry, other)
        )
        np.testing.assert_allclose(one, two, rtol=1e-3)
        versions = mcnet.Registry(self.registry).versions
        assert [version.number for version in versions] == list(range(1, len(versions) + 1))
        digests = [version.rows_digest for version in versions]
        assert len(set(digests)) == len(digests), "the same rows were published twice"

    def close(self) -> None:
        """End the process that was started ahead."""
        if self._worker is not None and self._worker.poll() is None:
            self._worker.kill()
            self._worker.communicate()


def loop_kills(rng: np.random.Generator, folder: Path, kills: int = 3) -> str:
    """Kill the loop some times; return what was cut off first."""
    attack = Attack(folder, rng)
    try:
        for _ in range(kills):
            attack.kill_once()
        attack.end()
    finally:
        attack.close()
    return next(iter(attack.met))


def main() -> int:
    """Kill so often, in loops of 20 kills each, and print what was cut off."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.loop_kills")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    met: Counter[str] = Counter()
    rows = versions = 0
    for start in range(0, given.kills, 20):
        with tempfile.TemporaryDirectory() as folder:
            attack = Attack(Path(folder), np.random.default_rng([given.seed, start]))
            try:
                for _ in range(min(20, given.kills - start)):
                    attack.kill_once()
                attack.end()
            finally:
                attack.close()
            met += attack.met
            rows += ROWS * attack.hours
            versions += len(mcnet.Registry(attack.registry).versions)
        print(f"{sum(met.values())} kills: {dict(met)}; {rows:,} rows, {versions} versions, nothing lost", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
