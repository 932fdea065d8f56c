"""Write the golden folders anew: a journal, a registry with the loop that fills it, and a saved tracker.

They were written by mcnet 0.1.0, and later versions must read them. So run this for folders of a new format, into a new
folder beside the old ones, and not to make a failing test pass: `python -m tests.golden.make FOLDER`.
"""

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import mcnet

SCORES = [0.02, 0.1, 0.25, 0.5, 0.9]
VALUES = ["NL", "日本", None, "NL", "never seen"]
DAYS = [f"2026-11-{day:02}" for day in range(1, 10)]


def rows(
    seed: int, ratio: float = 0.5, number: int = 200, values: Sequence[str | None] = ("NL", "日本", None)
) -> mcnet.Sketch:
    """Return the rows of a period: the truth is `ratio` times the score, and half of that in 日本."""
    rng = np.random.default_rng(seed)
    score = rng.uniform(0.1, 0.6, number)
    country = rng.choice(np.array(values, dtype=object), number)
    click = rng.random(number) < ratio * score * np.where(country == "日本", 0.5, 1.0)
    return mcnet.Sketch.from_rows(score, click, field={"country": country}, resolution=4)


def make_journal(path: Path) -> None:
    """Write hours of several sources; the first two are compacted, the positives of one source arrive late.

    One source, the feedback of a service, has the key of its request as its name.
    """
    journal = mcnet.Journal(path)
    hours = [f"2026-11-01T{hour:02}:00" for hour in range(5)]
    for number, hour in enumerate(hours):
        journal.add(rows(number), hour, source="logs/app.parquet")
        journal.add(rows(100 + number, number=100), hour, source=f"feedback request-{number}")
        for age, share in ((0.0, 0.5), (2.0, 1.0)):  # the same rows, counted later and later
            if number + age < len(hours):
                journal.add(rows(200 + number, ratio=0.5 * share), hour, source="orders", age=age)
    journal.add(rows(300), hours[3], source="logs/app.parquet", replace=True)
    journal.add(rows(301), hours[4], source="logs/twice.parquet")
    journal.remove("logs/twice.parquet")
    journal.compact(before=hours[2])
    rows(0).save(path.parent / "compacted.parquet")


def make_loop(journal: Path, registry: Path) -> None:
    """Run the loop day by day: published, refused, failed, held, released and rolled back."""
    folder = registry.parent / "days"
    folder.mkdir()

    def update(day: int, ratio: float = 0.5, **options: Any) -> None:
        file = folder / f"{DAYS[day]}.parquet"
        rows(day, ratio, values=["NL"]).save(file)
        mcnet.update(journal, registry, file, period=DAYS[day], method="per-field", min_periods=2, **options)
        file.unlink()

    versions = mcnet.Registry(registry)
    for day in range(4):
        update(day)
    with contextlib.suppress(mcnet.InputError):
        mcnet.update(journal, registry, folder / "lost.parquet", period=DAYS[4])
    update(4, ratio=0.05, note="labels were lost", max_shift=0.05)
    mcnet.Journal(journal).remove(os.fspath(folder / f"{DAYS[4]}.parquet"))
    update(4, note="labels came back")
    versions.hold("no changes before the sale")
    update(5)
    versions.release("the sale is over")
    update(6)
    update(7)
    versions.prune(keep=2)
    versions.rollback("NL is over-predicted")
    folder.rmdir()


def make_tracker(path: Path) -> None:
    """Save a tracker that has learnt four days, and whose labels are known a day late."""
    tracker = mcnet.Tracker(memories=[], delay=1)
    for number, day in enumerate(DAYS[:4]):
        tracker.update_sketch(rows(number, ratio=0.5 if number < 3 else 0.3, values=["NL"]), day)
    tracker.save(path)


def facts(folder: Path) -> dict[str, Any]:
    """Return what a reader finds in the golden folders."""
    journal, registry = mcnet.Journal(folder / "journal"), mcnet.Registry(folder / "loop" / "registry")
    tracker = mcnet.Tracker.load(folder / "tracker")
    low, high = tracker.interval(SCORES, VALUES)
    return {
        "journal": {
            "table": journal.table().to_dicts(),
            "counts by age": sorted([e.period, e.source, e.age, e.rows, e.positives] for e in journal.counts_by_age()),
            "digests": sorted(entry.digest for entry in journal.entries()),
            "cells": {
                period: [sketch.rows, len(sketch), sketch.total_weight, sketch.total_positives]
                for period, sketch in journal.sketches(corrected=False)
            },
        },
        "corrected positives": {period: sketch.total_positives for period, sketch in journal.sketches()},
        "registry": {
            "versions": [asdict(version) for version in registry.versions],
            "current": registry.current_number,
            "held": asdict(registry.held) if registry.held else None,
            "withdrawn": registry.withdrawn,
            "history": [[line["event"], line["version"], line.get("note")] for line in registry.history()],
        },
        "served": {version.name: predicted(registry.load(version.number)) for version in registry.versions},
        "refused": predicted(mcnet.load(registry.path / "loop" / "refused.json")),
        "tracker": [predicted(tracker), low.tolist(), high.tolist()],
        "belief": tracker.explain().part("belief"),
    }


def predicted(calibrator: Any) -> list[float]:
    """Return the probabilities of a few rows."""
    found: list[float] = calibrator.predict(SCORES, VALUES).tolist()
    return found


def main() -> None:
    """Write the folders, and beside them what is to be found in them."""
    os.chdir(sys.argv[1])  # so that no name in them is longer than it must be
    folder = Path()
    (folder / "loop").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mcnet.CalibrationWarning)
        make_journal(folder / "journal")
        make_loop(folder / "loop" / "journal", folder / "loop" / "registry")
        make_tracker(folder / "tracker")
        found = json.dumps(facts(folder), indent=1, ensure_ascii=False, allow_nan=False)
    (folder / "expected.json").write_text(f"{found}\n", encoding="utf-8")
    for name in (".lock", ".readers"):  # made again by whoever needs them
        for lock in folder.rglob(name):
            lock.unlink()


if __name__ == "__main__":
    main()
