"""Simulated worlds that change: the tracker's distance to the known truth, beside a static fit and an oracle.

The distance is the Kullback–Leibler divergence from what a forecast can know at best (the mean over effects of the
coming period) to what is said, on fresh rows of the coming period.
"""

import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import numpy as np

import mcnet
from benchmarks import report
from mcnet.datasets.worlds import WORLDS, DelayedWorld, World, WorldName, WorldPeriod, make_world

PERIODS, FIRST_JUDGED, EVERY = 100, 40, 5
SEEDS, QUICK_SEEDS = 8, 2
OTHER_SEEDS, QUICK_OTHER_SEEDS = 2, 1
FIRST_SEED = 200
"""Seeds that no setting of the tracker was chosen on."""
REPEATED: tuple[WorldName, ...] = ("still", "day-effects", "jump")
"""Worlds for which a figure was asked: more seeds."""
JUMP_AT, AFTER = 60, (1, 2, 3, 4, 5, 10)
FRESH_ROWS = 4_000
JOURNAL_WORLDS = ("still", "day-effects", "slow", "weekly", "one-value", "autoregressive", "fast")
LATE_WORLDS: dict[WorldName, tuple[dict[str, int], float | None]] = {
    "still": ({}, None),
    "slow": ({}, 3.0),
    "jump": ({"jump_at": 26}, 3.0),
}
"""Worlds with positives that arrive late: their options, and the half-life of the fit."""
LATE_PERIODS, LATE_ROWS, LATEST_AGE, LEFT_OUT = 30, 2_000, 10, 8
LEVEL = 0.9
HOURS, FIRST_HOUR, HOURLY_ROWS, HOURLY_VALUES = 336, 168, 3_000, 6
DAY_AND_NIGHT, HOURLY_LOGIT = 0.4, -3.0
"""The amplitude of the level over a day, and the mean score, in logits."""


def divergence(truth: np.ndarray, said: np.ndarray) -> float:
    """Return 10⁴ · KL."""
    kept, other = truth * np.log(truth / said), (1.0 - truth) * np.log((1.0 - truth) / (1.0 - said))
    return 1e4 * float(np.mean(kept + other))


def static_fit(past: mcnet.Sketch) -> mcnet.BayesMCNet:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mcnet.BayesMCNet().fit_sketch(past)


def fresh_rows(world: World, t: int) -> WorldPeriod:
    return world.with_rows(max(FRESH_ROWS, world.rows)).period(t, draw=7)


def run(name: WorldName, seed: int) -> np.ndarray:
    """Return the divergence of a static fit of everything and of the tracker, the coverage of both's intervals, the
    CPU seconds of a median update of the tracker, and the bytes of the saved one."""
    world, tracker, past = make_world(name, seed, periods=PERIODS), mcnet.Tracker(), []
    found, took = [], []
    for t in range(world.periods):
        rows = world.period(t)
        if t >= FIRST_JUDGED and t % EVERY == 0:
            fresh = fresh_rows(world, t)
            fitted = static_fit(mcnet.Sketch.merged(past))
            line = [divergence(fresh.expected, one.predict(fresh.score, fresh.field)) for one in (fitted, tracker)]
            for one in (fitted, tracker):
                low, high = one.interval(fresh.score, fresh.field, level=LEVEL)
                line.append(float(np.mean((low <= fresh.probability) & (fresh.probability <= high))))
            found.append(line)
        begin = time.process_time()
        tracker.update(rows.score, rows.label, field=rows.field, period=t)
        took.append(time.process_time() - begin)
        past.append(mcnet.Sketch.from_rows(rows.score, rows.label, field=rows.field, resolution=64))
    with tempfile.TemporaryDirectory() as folder:
        tracker.save(f"{folder}/tracker")
        saved = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return np.array([*np.mean(found, axis=0), np.median(took), saved])


def after_jump(seed: int) -> Iterator[tuple[float, float]]:
    """Yield the divergence of the tracker and of an oracle after so many periods of the new regime."""
    world, tracker, new = (
        make_world("jump", seed, periods=JUMP_AT + AFTER[-1] + 1, jump_at=JUMP_AT),
        mcnet.Tracker(),
        [],
    )
    for t in range(world.periods):
        rows = world.period(t)
        if t - JUMP_AT in AFTER:
            fresh = fresh_rows(world, t)
            oracle = static_fit(mcnet.Sketch.merged(new))
            ours, best = (
                divergence(fresh.expected, one.predict(fresh.score, fresh.field)) for one in (tracker, oracle)
            )
            yield ours, best
        tracker.update(rows.score, rows.label, field=rows.field, period=t)
        if t >= JUMP_AT:
            new.append(mcnet.Sketch.from_rows(rows.score, rows.label, field=rows.field, resolution=64))


def worlds(full: bool) -> str:
    lines = []
    for name in WORLDS:
        seeds = (SEEDS if full else QUICK_SEEDS) if name in REPEATED else (OTHER_SEEDS if full else QUICK_OTHER_SEEDS)
        found = np.mean([run(name, FIRST_SEED + seed) for seed in range(seeds)], axis=0)
        static, ours, covered, covered_ours, took, saved = found.tolist()
        lines.append(
            [name, seeds, f"{static:.2f}", f"{ours:.2f}", f"{ours / static - 1.0:+.1%}"]
            + [f"{share:.0%}" for share in (covered, covered_ours)]
            + [report.seconds(took), report.size(saved)]
        )
        print("  ", *lines[-1], flush=True)
    head = ("world", "seeds", "static fit of everything", "Tracker()", "difference")
    more = ("coverage of the static fit's 90 % intervals", "of the tracker's", "CPU of an update", "saved tracker")
    return report.table((*head, *more), lines)


def jumps(full: bool) -> str:
    seeds = SEEDS if full else QUICK_SEEDS
    found = np.mean([list(after_jump(FIRST_SEED + seed)) for seed in range(seeds)], axis=0)
    lines = [
        [n, f"{ours:.1f}", f"{oracle:.1f}", f"{ours / oracle - 1.0:+.0%}"]
        for n, (ours, oracle) in zip(AFTER, found, strict=True)
    ]
    return report.table(
        ("periods of the new regime learnt", "Tracker()", "oracle, fitted on them alone", "difference"), lines
    )


def day_and_night_errors(seed: int) -> list[float]:
    """Return the logarithm of predicted ÷ true rate of the rows of each hour of the second week."""
    rng, tracker, errors = np.random.default_rng([seed, 5]), mcnet.Tracker(), []
    offset, names = rng.normal(0.0, 0.3, HOURLY_VALUES), np.array([f"v{code}" for code in range(HOURLY_VALUES)])
    for hour in range(HOURS):
        code, raw = rng.integers(0, HOURLY_VALUES, HOURLY_ROWS), rng.normal(HOURLY_LOGIT, 1.0, HOURLY_ROWS)
        level = DAY_AND_NIGHT * np.sin(2.0 * np.pi * hour / 24.0)
        score, truth = (1.0 / (1.0 + np.exp(-logit)) for logit in (raw, raw + offset[code] + level))
        if hour >= FIRST_HOUR:
            errors.append(float(np.log(tracker.predict(score, names[code]).sum() / truth.sum())))
        label = rng.random(HOURLY_ROWS) < truth
        tracker.update(score, label, field=names[code], period=np.datetime64("2026-01-01T00") + hour)
    return errors


def days_and_nights(full: bool) -> str:
    """Return the error of the common level in an hourly world, with seasons and without."""
    lines = []
    for label in ("Tracker()", "without seasons"):
        no_season = mock.patch("mcnet.tracking.learner.season_lengths", return_value=(0, 0))
        with no_season if label == "without seasons" else nullcontext():
            seeds = range(FIRST_SEED, FIRST_SEED + (4 if full else 1))
            found = np.array([day_and_night_errors(seed) for seed in seeds])
        lines.append([label, len(found), f"{np.sqrt(np.mean(found**2)):.4f}"])
        print("  ", *lines[-1], flush=True)
    return report.table(("", "seeds", "rms of log PCOC"), lines)


def fitted_on_half(name: WorldName, seed: int) -> tuple[float, float]:
    """Return the divergence over the later half of a fit on the earlier one: on the sum of its rows, on its journal."""
    world = make_world(name, seed, periods=PERIODS)
    half = world.periods // 2
    with tempfile.TemporaryDirectory() as folder:
        journal = _journal(folder, world, half)
        static = static_fit(journal.sketch())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            known = mcnet.BayesMCNet().fit_journal(journal)
    fresh = [fresh_rows(world, t) for t in range(half, world.periods, EVERY)]
    first, second = (
        float(np.mean([divergence(rows.expected, fit.predict(rows.score, rows.field)) for rows in fresh]))
        for fit in (static, known)
    )
    return first, second


def _journal(folder: str, world: World, periods: int) -> mcnet.Journal:
    journal = mcnet.Journal(f"{folder}/{periods}.db")
    for t in range(periods):
        rows = world.period(t)
        journal.add(mcnet.Sketch.from_rows(rows.score, rows.label, field=rows.field, resolution=64), period=t)
    return journal


def journals(full: bool) -> str:
    lines = []
    for name in JOURNAL_WORLDS:
        seeds = 4 if full else 2
        summed, known = np.mean([fitted_on_half(name, FIRST_SEED + seed) for seed in range(seeds)], axis=0)
        lines.append([name, seeds, f"{summed:.2f}", f"{known:.2f}", f"{known / summed - 1.0:+.1%}"])
        print("  ", *lines[-1], flush=True)
    return report.table(("world", "seeds", "rows as if independent", "`fit_journal`", "difference"), lines)


def with_late_positives(name: WorldName, seed: int) -> list[float]:
    """Return the divergence in the coming period of fits that ignore, leave out, correct, or need not know delays."""
    options, half_life = LATE_WORLDS[name]
    world = make_world(name, seed, periods=LATE_PERIODS + 1, rows=LATE_ROWS, **options)
    late = DelayedWorld(world)
    with tempfile.TemporaryDirectory() as folder:
        journal = mcnet.Journal(f"{folder}/ads.db")
        for t in range(LATE_PERIODS):
            rows = world.period(t)
            for age in range(min(LATEST_AGE, LATE_PERIODS - 1 - t) + 1):
                sketch = mcnet.Sketch.from_rows(rows.score, late.arrived(t, age), field=rows.field, resolution=64)
                journal.add(sketch, period=t, source="late", age=age)
        sketches = [
            journal.sketch(half_life=half_life, corrected=False),
            journal.sketch(half_life=half_life, until=LATE_PERIODS - 1 - LEFT_OUT),
            journal.sketch(half_life=half_life),
            _journal(folder, world, LATE_PERIODS).sketch(half_life=half_life),
        ]
    fresh = fresh_rows(world, LATE_PERIODS)
    return [divergence(fresh.expected, static_fit(sketch).predict(fresh.score, fresh.field)) for sketch in sketches]


def late_positives(full: bool) -> str:
    lines = []
    for name in LATE_WORLDS:
        seeds = 8 if full else 3
        found = np.mean([with_late_positives(name, FIRST_SEED + seed) for seed in range(seeds)], axis=0)
        lines.append([name, seeds, *(f"{figure:.1f}" for figure in found)])
        print("  ", *lines[-1], flush=True)
    head = ("world", "seeds", "missing positives taken for negatives", f"the last {LEFT_OUT} periods left out")
    return report.table((*head, "corrected", "labels at once"), lines)


def main(full: bool = False) -> None:
    text = f"""## Time: simulated worlds

10⁴ · KL to the truth over periods {FIRST_JUDGED} to {PERIODS - 1}; 1,000 rows per period and 8 field values unless the
world has its own. Lower is better.
Coverage is that of the truth of the coming period, its effects included.

{worlds(full)}

After the level jumped by 0.7 logits, beside an oracle that knows when, fitted on the new periods alone:

{jumps(full)}

Fitted on periods 0 to {PERIODS // 2 - 1} and judged on the later ones, with the rows of a period taken as independent
or not:

{journals(full)}

Hours with day and night: {HOURLY_VALUES} field values, {HOURLY_ROWS:,} rows per hour, the level
{DAY_AND_NIGHT:g} · sin(2πh/24). How far all rows of an hour of the second week are from their true rate:

{days_and_nights(full)}

Positives that arrive late: 30 % at once, the others after 2 periods on average; {LATE_PERIODS} periods of
{LATE_ROWS:,} rows, counted at ages up to {LATEST_AGE}, judged on the coming period. The fits of the worlds that move
have a half-life of 3 periods; the jump is four periods ago.

{late_positives(full)}
"""
    report.keep("time_worlds", text, full)


if __name__ == "__main__":
    import sys

    main("--full" in sys.argv)
