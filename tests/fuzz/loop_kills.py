"""Kill -9 at random moments of `mcnet update` and `mcnet journal add`, and look what is left.

The long form: `python -m tests.fuzz.loop_kills --kills 200`.
"""

import argparse
import contextlib
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
from mcnet.operations.status import status_of

ROWS = 400
COLUMNS = ("--score", "pctr", "--label", "click", "--field", "country", "--time", "ts", "--every", "1h")
# Importing takes longer than working. So one process imports, and forks for every list of commands it is given: the
# child runs them as the command line does, acknowledges each that has ended, and is the one to be killed. Nothing but
# imports has happened before the fork, so no thread is lost by it.
STARTER = """
import json, os, sys
import jinja2, polars, scipy.special
import mcnet.bayes.estimator, mcnet.calibrators.per_field
import mcnet.cli.app, mcnet.operations.update, mcnet.metrics.evaluation
from mcnet.cli.run import run
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        for command in json.loads(line):
            code = run([*command.split(), "-q"])
            print("acknowledged", code, command, flush=True)
        os._exit(0)
    print("child", child, flush=True)
    os.waitpid(child, 0)
    print("over", flush=True)
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


class Starter:
    """The process that starts those which are killed."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", STARTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        assert self._line() == ["ready"]

    def _line(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split(maxsplit=2)

    def run(self, commands: list[str], kill_after: float | None) -> list[tuple[str, str]]:
        """Run commands, kill them after so many seconds, and return (exit code, command) of those acknowledged."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(commands) + "\n")
        self.process.stdin.flush()
        done = []
        while (line := self._line())[0] != "over":
            if line[0] == "acknowledged":
                done.append((line[1], line[2].strip()))
            elif kill_after is not None:
                time.sleep(kill_after)
                with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
                    os.kill(int(line[1]), signal.SIGKILL)
        return done

    def close(self) -> None:
        """End the process."""
        self.process.communicate()


class Attack:
    """A loop whose job is killed again and again."""

    def __init__(self, folder: Path, rng: np.random.Generator, starter: Starter, store: str | None = None) -> None:
        self.folder, self.rng, self.starter = folder, rng, starter
        self.store = store or str(folder / "ads.db")
        self.hours = 0
        self.acknowledged: set[str] = set()
        self.met: Counter[str] = Counter()
        began = time.monotonic()
        self._run(self.commands(3), None)
        self.seconds = time.monotonic() - began

    def commands(self, hours: int) -> list[str]:
        """Return commands for the hours that come next: rows are added by `journal add` or by `update` itself."""
        words = []
        for _ in range(hours):
            path = write_hour(self.folder, self.hours)
            self.hours += 1
            if self.rng.random() < 0.5:
                words.append(f"journal add {self.store} {path} {' '.join(COLUMNS)}")
                words.append(f"update {self.store} --method platt-field")
            else:
                update = f"update {self.store} {path} --method platt-field"
                words.append(f"{update} {' '.join(COLUMNS)}")
        return words

    def _run(self, commands: list[str], kill_after: float | None) -> int:
        done = self.starter.run(commands, kill_after)
        assert {code for code, _ in done} <= {"0", "1", "3"}, done  # a refusal or an alarm is no failure
        self.acknowledged |= {word for _, line in done for word in line.split() if word.endswith(".parquet")}
        return len(done)

    def kill_once(self) -> None:
        """Run commands, kill the process at a random moment, and check everything."""
        commands = self.commands(2)
        done = self._run(commands, float(self.rng.uniform(0.0, self.seconds)))
        cut = commands[done] if done < len(commands) else "nothing"  # it had ended before
        self.met["journal add" if cut.startswith("journal") else cut.split()[0]] += 1
        self.check()

    def check(self) -> None:
        """Check that every file is readable and that what was acknowledged is there, once."""
        store = mcnet.Store(self.store)
        if not store.heads:
            assert not self.acknowledged, "lost: everything"
            return
        assert store.check() == []
        rows: Counter[str] = Counter()
        for entry in store.journal().entries():
            rows[entry.source] += entry.rows
        assert set(rows.values()) <= {ROWS}, f"counted twice, or in part: {rows}"
        assert self.acknowledged <= set(rows), f"lost: {self.acknowledged - set(rows)}"
        registry, runs = store.versions(), store.state().runs()
        if registry.promoted:
            registry.load()
            published = [run["version"] for run in runs if run["outcome"] == "published"]
            assert published[-1:] == [registry.current.name], "a version and the line of its run come together"
        if runs:
            assert status_of(store)
        store.close()

    def end(self) -> None:
        """Run everything once more to its end: nothing is lost, nothing counts twice, the model is the right one."""
        words = f"update {self.store} {self.folder}/hour*.parquet --method platt-field"
        ((code, _),) = self.starter.run([f"{words} {' '.join(COLUMNS)} --max-shift 9 --tolerance 9"], None)
        assert code in ("0", "3"), code
        self.acknowledged = {str(path) for path in self.folder.glob("hour*.parquet")}
        self.check()
        assert sum(entry.rows for entry in mcnet.Journal(self.store).entries()) == ROWS * self.hours
        other = self.folder / "afresh.db"
        for entry, sketch in mcnet.Journal(self.store).counts():
            mcnet.Journal(other).add(sketch(), entry.period, source=entry.source)
        mcnet.update(other, method="platt-field")
        probe = {"country": ["NL", "FR", "BE"]}
        one, two = (mcnet.Registry(path).load().predict([0.1, 0.2, 0.3], field=probe) for path in (self.store, other))
        np.testing.assert_allclose(one, two, rtol=1e-3)
        versions = mcnet.Registry(self.store).versions
        assert [version.number for version in versions] == list(range(1, len(versions) + 1))
        digests = [version.rows_digest for version in versions]
        assert len(set(digests)) == len(digests), "the same rows were published twice"


def loop_kills(rng: np.random.Generator, folder: Path, kills: int = 4, store: str | None = None) -> str:
    """Kill the loop some times, on a store in a file or at an address; return what was cut off first."""
    starter = Starter()
    try:
        attack = Attack(folder, rng, starter, store)
        for _ in range(kills):
            attack.kill_once()
        attack.end()
    finally:
        starter.close()
    return next(iter(attack.met))


def many_loop_kills(kills: int, seed: int = 0) -> tuple[Counter[str], int, int]:
    """Kill so often, in loops of 20 kills each; return what was cut off, the rows and the versions of all loops."""
    met: Counter[str] = Counter()
    rows = versions = 0
    starter = Starter()
    try:
        for start in range(0, kills, 20):
            with tempfile.TemporaryDirectory() as folder:
                attack = Attack(Path(folder), np.random.default_rng([seed, start]), starter)
                for _ in range(min(20, kills - start)):
                    attack.kill_once()
                attack.end()
                met += attack.met
                rows += ROWS * attack.hours
                versions += len(mcnet.Registry(attack.store).versions)
            print(
                f"{sum(met.values())} kills: {dict(met)}; {rows:,} rows, {versions} versions, nothing lost", flush=True
            )
    finally:
        starter.close()
    return met, rows, versions


def main() -> int:
    """Kill as often as the command line says, and print what was cut off."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.loop_kills")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    many_loop_kills(given.kills, given.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
