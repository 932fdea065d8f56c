"""The long form: `python -m tests.fuzz --minutes 10` attacks until the time is up and prints the counts."""

import argparse
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.fuzz.attacks import ATTACKS, run_once


def main() -> int:
    """Run every attack in turn; return 1 if any case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", choices=sorted(ATTACKS))
    parser.add_argument("--seed", type=int, help="run this one case again and show what happens")
    given = parser.parse_args()
    names = [given.only] if given.only else sorted(ATTACKS)
    cases, met, failed = Counter(), {name: Counter() for name in names}, Counter()
    first, until = int(time.time()), time.monotonic() + 60.0 * given.minutes
    seed = first if given.seed is None else given.seed
    while time.monotonic() < until:
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    met[name][run_once(name, seed, Path(folder))] += 1
                except Exception:
                    failed[name] += 1
                    print(f"{name} failed; again with: python -m tests.fuzz --only {name} --seed {seed}")
                    traceback.print_exc(limit=None if given.seed is not None else 3)
            cases[name] += 1
        if given.seed is not None:
            break
        seed += 1
    print(f"{'attack':18}{'cases':>9}{'failed':>8}  met")
    for name in names:
        seen = ", ".join(f"{what} {number:,}" for what, number in met[name].most_common(6))
        print(f"{name:18}{cases[name]:>9,}{failed[name]:>8,}  {seen}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
