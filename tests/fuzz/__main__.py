"""The long form: `python -m tests.fuzz --minutes 10 --kills 200` attacks until the time is up and prints the counts."""

import argparse
import platform
import sys
import tempfile
import time
import traceback
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from tests.fuzz.attacks import ATTACKS, run_once
from tests.fuzz.loop_kills import many_loop_kills

import mcnet

PAGE = """\
# The last long run of the attacks

Written by `make soak` on {when} with mcnet {version}, Python {python}: {minutes:g} minutes of random cases from
seed {seed}, and {kills} times `kill -9` in the middle of `mcnet update` or `mcnet journal add`. The suite has a few
cases of each attack.

| attack | cases | failed | what was met |
|---|---:|---:|---|
{lines}
"""


def main() -> int:
    """Run every attack in turn; return 1 if any case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", choices=sorted(ATTACKS))
    parser.add_argument("--seed", type=int, help="run this one case again and show what happens")
    parser.add_argument("--kills", type=int, default=0, help="then kill the hourly loop so many times")
    parser.add_argument("--write", type=Path, help="write the counts to this page")
    given = parser.parse_args()
    names = [given.only] if given.only else sorted(ATTACKS)
    first = int(time.time()) if given.seed is None else given.seed
    lines = _random_cases(names, first, given.minutes, once=given.seed is not None)
    if given.kills:
        lines.append(_kills(given.kills, first))
    print(f"{'attack':18}{'cases':>9}{'failed':>8}  met")
    for name, cases, failed, met in lines:
        print(f"{name:18}{cases:>9,}{failed:>8,}  {met}")
    if given.write:
        text = PAGE.format(
            when=datetime.now(UTC).date(),
            version=mcnet.__version__,
            python=platform.python_version(),
            minutes=given.minutes,
            seed=first,
            kills=given.kills,
            lines="\n".join(f"| `{name}` | {cases:,} | {failed:,} | {met} |" for name, cases, failed, met in lines),
        )
        given.write.write_text(text, encoding="utf-8")
    return 1 if any(failed for _, _, failed, _ in lines) else 0


def _random_cases(names: list[str], first: int, minutes: float, *, once: bool) -> list[tuple[str, int, int, str]]:
    """Give each attack its share of the time, or one case; return its cases, how many failed, and what was met."""
    lines = []
    for name in names:
        seed, failed, met = first, 0, Counter()
        until = time.monotonic() + 60.0 * minutes / len(names)
        while seed == first or (not once and time.monotonic() < until):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    met[run_once(name, seed, Path(folder))] += 1
                except Exception:
                    failed += 1
                    print(f"{name} failed; again with: python -m tests.fuzz --only {name} --seed {seed}")
                    traceback.print_exc(limit=None if once else 3)
            seed += 1
        said = ", ".join(f"{what} {number:,}" for what, number in met.most_common(6))
        lines.append((name, seed - first, failed, said))
        print(f"{name}: {seed - first:,} cases, {failed:,} failed", flush=True)
    return lines


def _kills(number: int, seed: int) -> tuple[str, int, int, str]:
    """Kill the hourly loop so many times; return the line of the table."""
    try:
        met, rows, versions = many_loop_kills(number, seed)
    except AssertionError:
        traceback.print_exc()
        return "kills of the loop", number, 1, f"seed {seed}"
    cut = ", ".join(f"{what} {times:,}" for what, times in met.most_common())
    said = f"cut off: {cut}; {rows:,} rows and {versions:,} versions, none lost or counted twice"
    return "kills of the loop", number, 0, said


if __name__ == "__main__":
    sys.exit(main())
