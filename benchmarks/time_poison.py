"""Broken hours in the loop: what is served in the hours after, beside the same stream without them.

Twelve field values, 6,000 rows per hour, logits of scores N(−3.2, 1), offsets of values N(0, 0.3). A loop runs after
every hour; one hour, or two, are broken. Judged is the model that is served in each of the six hours after: the ratio
of its mean probability to that of the loop without the broken hour, of all rows and of every value with 100 expected
positives in seven hours. The real counterparts are changes of the world: the rows that have changed are judged against
the truth, beside two oracles that know which rows changed and when, and estimate the size of the change from the rows
since: as these say, or shrunk towards no change, as is best for changes of half a logit. What is measured is kept after
each seed, and taken from there by a run with --resume.
"""

import json
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import mcnet
from benchmarks import report
from benchmarks.peers import calling
from mcnet._shared.arrays import logit, sigmoid

VALUES, ROWS = 12, 6_000
BROKEN_AT, AFTER = 28, 6
SEEDS, QUICK_SEEDS = 20, 2
USUAL_CHANGE = 0.5
"""The standard deviation of changes, in logits, that the shrinking oracle expects."""
JUDGED_AFTER = 3
"""Periods of a change after which the served model is to be near the truth."""
NAMES = np.array([f"v{code:02}" for code in range(VALUES)])


@dataclass(frozen=True)
class Hour:
    """The rows of an hour."""

    score: np.ndarray
    value: np.ndarray
    label: np.ndarray
    truth: np.ndarray

    def sketch(self) -> mcnet.Sketch:
        return mcnet.Sketch.from_rows(self.score, self.label, field={"value": NAMES[self.value]}, resolution=64)


class Stream:
    """Hours of a world that stands still, or changes once."""

    def __init__(self, seed: int, common: float = 0.0, private: float = 0.0) -> None:
        rng = np.random.default_rng([20_264, seed])
        self.seed, self.common, self.private = seed, common, private
        self.share = np.append(0.25, rng.dirichlet(np.full(VALUES - 1, 3.0)) * 0.75)
        self.offset = rng.normal(0.0, 0.3, VALUES)
        self.slope = 0.9

    def hour(self, number: int, draw: int = 0) -> Hour:
        """Return the rows of an hour; from the hour of the change on, the world is another."""
        rng = np.random.default_rng([20_265, self.seed, number, draw])
        raw = rng.normal(-3.2, 1.0, ROWS)
        value = rng.choice(VALUES, ROWS, p=self.share)
        changed = float(number >= BROKEN_AT)
        level = -0.2 + changed * (self.common + self.private * (value == 0))
        truth = sigmoid(level + self.offset[value] + self.slope * raw)
        return Hour(sigmoid(raw), value, (rng.random(ROWS) < truth).astype(float), truth)


def missing(_hour: Hour, _: np.random.Generator) -> None:
    """No rows: what one clean hour less to learn from is worth, the floor of all others."""


def flipped(hour: Hour, _: np.random.Generator) -> Hour:
    return Hour(hour.score, hour.value, 1.0 - hour.label, hour.truth)


def shuffled(hour: Hour, rng: np.random.Generator) -> Hour:
    return Hour(hour.score, hour.value, rng.permutation(hour.label), hour.truth)


def all_positive(hour: Hour, _: np.random.Generator) -> Hour:
    return Hour(hour.score, hour.value, np.ones(len(hour.label)), hour.truth)


def none_positive(hour: Hour, _: np.random.Generator) -> Hour:
    return Hour(hour.score, hour.value, np.zeros(len(hour.label)), hour.truth)


def hundredfold(hour: Hour, _: np.random.Generator) -> Hour:
    return Hour(*(np.tile(part, 100) for part in (hour.score, hour.value, hour.label, hour.truth)))


def one_value_lost(hour: Hour, _: np.random.Generator) -> Hour:
    return Hour(hour.score, hour.value, np.where(hour.value == 0, 0.0, hour.label), hour.truth)


def other_scores(hour: Hour, rng: np.random.Generator) -> Hour:
    """Scores of another model: less sharp, and 0.8 logits too high."""
    raw = -2.0 + 0.7 * (logit(hour.score) + 3.2) + rng.normal(0.0, 0.5, len(hour.score))
    return Hour(sigmoid(raw), hour.value, hour.label, hour.truth)


Poison = Callable[[Hour, np.random.Generator], Hour | None]
POISONS: dict[str, tuple[Poison, int]] = {
    "no rows": (missing, 1),
    "no rows, two hours": (missing, 2),
    "labels flipped": (flipped, 1),
    "labels shuffled": (shuffled, 1),
    "all positive": (all_positive, 1),
    "none positive": (none_positive, 1),
    "rows × 100": (hundredfold, 1),
    "one value's labels lost": (one_value_lost, 1),
    "another model's scores": (other_scores, 1),
    "labels flipped, two hours": (flipped, 2),
    "none positive, two hours": (none_positive, 2),
}
CHANGES = {
    f"{where} {size:+.1f}": {key: size}
    for key, where in (("common", "all values"), ("private", "one value"))
    for size in (-1.0, -0.6, 0.6, 1.0)
}


class Loop:
    """A loop that has learnt the clean hours, to go on from as often as needed."""

    def __init__(self, stream: Stream, folder: str) -> None:
        self.stream, self.begun = stream, Path(folder) / f"begun-{stream.seed}-{id(stream)}"
        self.begun.mkdir()
        for number in range(BROKEN_AT):
            self._add(self.begun, number, stream.hour(number))
        self._run(self.begun)

    def served(self, poison: Poison | None = None, hours: int = 0) -> list[tuple[mcnet.CalibrationModel, str]]:
        """Return what is served in each hour after the broken one, and the outcome of the run before it."""
        rng, served = np.random.default_rng([20_266, self.stream.seed]), []
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "loop"
            shutil.copytree(self.begun, folder)
            for number in range(BROKEN_AT, BROKEN_AT + AFTER):
                rows: Hour | None = self.stream.hour(number)
                if poison is not None and number < BROKEN_AT + hours:
                    rows = poison(rows, rng)
                if rows is not None:
                    self._add(folder, number, rows)
                done = self._run(folder)
                served.append((mcnet.Registry(folder / "ads.db").load(), done.outcome))
        return served

    @staticmethod
    def _add(folder: Path, number: int, rows: Hour) -> None:
        name = f"2026-11-{1 + number // 24:02}T{number % 24:02}"
        mcnet.Journal(folder / "ads.db").add(rows.sketch(), name, source="log")

    @staticmethod
    def _run(folder: Path) -> mcnet.Update:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return mcnet.update(folder / "ads.db")


def log_ratios(
    models: list[mcnet.CalibrationModel], stream: Stream, other: Callable[[int, Hour], np.ndarray]
) -> np.ndarray:
    """Return the log ratio of mean probabilities, per hour, of each large value and, last, of all rows."""
    result = []
    for after, model in enumerate(models):
        fresh = stream.hour(BROKEN_AT + 1 + after, draw=1)
        said, asked = model.predict(fresh.score, {"value": NAMES[fresh.value]}), other(after, fresh)
        sums = [np.bincount(fresh.value, weights=part, minlength=VALUES) for part in (said, asked)]
        logs = np.where(7.0 * sums[1] >= 100.0, np.log(sums[0] / sums[1]), np.nan)
        result.append(np.append(logs, np.log(said.sum() / asked.sum())))
    return np.array(result)


def poisoned(seed: int, names: list[str]) -> dict[str, list[float]]:
    """Return, per poison, how far what is served is from the loop without it where it is farthest, in each hour."""
    with tempfile.TemporaryDirectory() as folder:
        stream = Stream(seed)
        loop = Loop(stream, folder)
        clean = [model for model, _ in loop.served()]

        def unharmed(after: int, hour: Hour) -> np.ndarray:
            return clean[after].predict(hour.score, {"value": NAMES[hour.value]})

        logs = {
            name: log_ratios([model for model, _ in loop.served(*POISONS[name])], stream, unharmed) for name in names
        }
    return {name: np.expm1(np.nanmax(np.abs(log), axis=1)).tolist() for name, log in logs.items()}


def changed(seed: int, names: list[str]) -> dict[str, list[list[float]]]:
    """Return, per real change, how far the loop and the oracles are from the truth of the changed rows, by hour."""
    with tempfile.TemporaryDirectory() as folder:
        loop, result = Loop(Stream(seed), folder), {}
        for name in names:
            stream = loop.stream = Stream(seed, **CHANGES[name])
            rows = 0 if stream.private else VALUES
            logs = log_ratios([model for model, _ in loop.served()], stream, lambda _, hour: hour.truth)[:, rows]
            hours = range(1, AFTER + 1)
            best = [[oracle(stream, hour, width) for hour in hours] for width in (np.inf, USUAL_CHANGE)]
            result[name] = [np.expm1(np.abs(part)).tolist() for part in (logs, *np.array(best))]
        return result


def oracle(stream: Stream, hours: int, width: float) -> float:
    """Return the log ratio to the truth of an estimate of the size of a change alone, from the rows of these hours.

    Parameters
    ----------
    stream : the world.
    hours : so many since the change.
    width : the standard deviation of the normal prior of the size, in logits.
    """
    parts = []
    for hour in (stream.hour(BROKEN_AT + number) for number in range(hours)):
        chosen = (hour.value == 0) | (stream.private == 0.0)
        parts.append((hour.truth[chosen], hour.label[chosen]))
    truth, label = (np.concatenate(part) for part in zip(*parts, strict=True))
    before, size, precision = logit(truth) - stream.common - stream.private, 0.0, width**-2.0
    for _ in range(20):
        chance = sigmoid(before + size)
        size += float((np.sum(label - chance) - precision * size) / (np.sum(chance * (1.0 - chance)) + precision))
    return float(np.log(sigmoid(before + size).sum() / truth.sum()))


def main(full: bool = False) -> None:
    seeds: dict[int, dict] = {}
    for seed in range(SEEDS if full else QUICK_SEEDS):
        path = report.KEPT / "poison" / f"{seed}.json"
        if not (calling.RESUME and path.exists()):
            path.parent.mkdir(parents=True, exist_ok=True)
            measured = {"poisoned": poisoned(seed, list(POISONS)), "changed": changed(seed, list(CHANGES))}
            path.write_text(json.dumps(measured))
        seeds[seed] = json.loads(path.read_text())
        print("   seed", seed, flush=True)
        keep(list(seeds.values()), full)


def keep(seeds: list[dict], full: bool) -> None:
    """Keep the section with the seeds that are measured so far."""
    lines, moves = [], []
    for name in POISONS:
        off = np.array([one["poisoned"][name] for one in seeds])
        lines.append([name, f"{np.median(off):.1%}", f"{np.mean(off <= 0.05):.1%}", f"{off.max():.1%}"])
    for name in CHANGES:
        moves.append([name])
        for off in np.array([one["changed"][name] for one in seeds]).transpose(1, 0, 2)[:, :, JUDGED_AFTER - 1]:
            moves[-1] += [f"{np.median(off):.1%}", f"{np.mean(off <= 0.10):.0%}", f"{off.max():.1%}"]
    told = ("median", "within 10 %", "largest")
    head = ("change", *told, *(f"{who}: {what}" for who in ("oracle", "shrinking oracle") for what in told))
    text = f"""## Time: broken hours

{VALUES} field values, {ROWS:,} rows per hour, {BROKEN_AT} clean hours, {len(seeds)} seeds. How far the served mean
probability is from that of the same loop without the broken hour, in the {AFTER} hours after it, where it is farthest:
all rows, or a value with 100 expected positives in seven hours. A broken hour is not learnt, so that even without any
harm the loop has an hour less to learn from: "no rows" is that floor.

{report.table(("broken hour", "median", "of hours within 5 %", "largest"), lines)}

Real changes of the level, in logits, of all values or of the one with a quarter of the rows: how far the mean
probability of these rows is from the truth after {JUDGED_AFTER} hours. The oracles know the truth before, which rows
changed and when; they estimate the size of the change from the rows since. The second one shrinks it towards no change,
by a normal prior with a standard deviation of {USUAL_CHANGE} logits. What an oracle misses is the noise of these rows.

{report.table(head, moves)}
"""
    report.keep("time_poison", text, full)


if __name__ == "__main__":
    import sys

    main("--full" in sys.argv)
