"""What a reader finds in the golden folders: a journal, a registry with its loop, and a saved tracker.

They were written by mcnet 0.1.0, the last version that kept its state in folders; `mcnet store import` must read them.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import mcnet
from mcnet.model.model_file import model_of_bytes

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


def facts(store: mcnet.Store, folder: Path) -> dict[str, Any]:
    """Return what a reader finds in the golden folders, after they were imported: heads "orders" and "ctr"."""
    journal, registry = store.journal("orders"), store.versions("ctr")
    tracker = mcnet.Tracker.load(folder / "tracker")
    low, high = tracker.interval(SCORES, VALUES)
    return {
        "journal": {
            "table": journal.table().to_dicts(),
            "counts by age": sorted(
                [e.period, e.source, e.age, e.rows, e.positives] for e, _ in journal.counts() if e.age is not None
            ),
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
        "refused": predicted(model_of_bytes(registry.content("refused"), "refused")),
        "tracker": [predicted(tracker), low.tolist(), high.tolist()],
        "belief": tracker.explain().part("belief"),
    }


def predicted(calibrator: Any) -> list[float]:
    """Return the probabilities of a few rows."""
    found: list[float] = calibrator.predict(SCORES, VALUES).tolist()
    return found
