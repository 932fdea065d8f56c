"""The backtest: how well would each method, with each memory, and the tracker have predicted the past?"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mcnet._shared.arrays import ScoreType
from mcnet.errors import InputError, McnetError
from mcnet.rows.fields import MISSING_LABEL, is_table
from mcnet.rows.locations import is_store
from mcnet.rows.logs import expand_paths
from mcnet.rows.periods import delay_in_periods, period_text, periods_between
from mcnet.rows.spec import Resolution, RowSpec, field_names
from mcnet.sketch.scan import scan_table
from mcnet.sketch.views import sketches_by
from mcnet.store.entries import GUARDS
from mcnet.store.files import Addition, NewFiles
from mcnet.store.journal import Journal
from mcnet.tracking.backtest_result import Backtest, backtest_of
from mcnet.tracking.backtest_run import Follower, MemoryForecaster, TrackerForecaster, judged_periods
from mcnet.tracking.tracker import Tracker

DEFAULT_MEMORIES = (1, 2, 4, 8, 16, "everything", "once")
BACKTEST_RESOLUTION = 64
"""Cells per logit of logs that are read for a backtest; cells keep their mean score, so losses agree to 1e-5."""
SHARE_FITTED_ONCE = 0.1
"""The share of all periods that "once" is fitted on by default."""


def backtest(
    log: Any,
    *,
    score: str | None = None,
    label: str | None = None,
    field: str | Sequence[str] | None = None,
    weight: str | None = None,
    time: str | None = None,
    every: str | None = None,
    delay: int | str = 0,
    methods: Sequence[str] | None = None,
    memories: Sequence[Any] = DEFAULT_MEMORIES,
    since: Any = None,
    tracker: Callable[[], Follower] | None = None,
    look: bool = True,
    score_type: ScoreType = "probability",
    negatives_kept: float = 1.0,
    resolution: Resolution = BACKTEST_RESOLUTION,
    level: float = 0.95,
    seed: int = 0,
    progress: Callable[[int, int], Any] | None = None,
    reading: Callable[[int], Any] | None = None,
) -> Backtest:
    """Compare the tracker with every method and memory on the past, each period predicted from earlier ones alone.

    Logs are read once, into a journal of sketches per period; everything else works on those.

    Parameters
    ----------
    log : log files (paths, globs, folders), a table, a `Journal`, or the address of a store.
    score, label, weight, score_type, negatives_kept, resolution : of logs and tables, as in `mcnet.scan`.
    field : the name of a field column, or several; of a journal, which of its fields to use (all if not given).
    time, every : the column of moments and the length of a period, such as "1d"; a journal has its periods already.
    delay : after how many further periods the labels of a period are known, or how long that takes ("2d").
    methods : the methods to compare; our default and Platt scaling with the field if not given, none for the tracker
        alone.
    memories : what the methods are fitted to: a number is a half-life in periods, "everything" all periods so far,
        "once" the first ones alone (those before `since`, or a tenth of all), never fitted again.
    since : the first period to judge; earlier ones are only learnt from.
    tracker : makes what is compared with the methods, an object with `predict` and `update_sketch`; by default
        `Tracker(delay=delay)`.
    look : the tracker keeps a suspect period and does not learn it, as in `Tracker.update`, unless it was released in
        the journal; False learns all of them.
    level, seed : of the intervals by block bootstrap.
    progress : a function that is called with the number of periods done, and of all.
    reading : a function that is called with the number of rows of each batch read.

    Returns
    -------
    Backtest : tidy tables.

    >>> import numpy as np
    >>> import polars as pl
    >>> rng = np.random.default_rng(0)
    >>> pctr = rng.uniform(0.05, 0.3, 6000)
    >>> day = np.repeat(np.arange(12), 500)
    >>> log = pl.DataFrame({"pctr": pctr, "click": rng.random(6000) < 0.5 * pctr, "day": day})
    >>> found = backtest(
    ...     log, score="pctr", label="click", time="day", every="1", methods=["platt"], memories=[4, "everything"]
    ... )
    >>> found.summary["forecaster"].to_list()[-1], len(found.periods)
    ('base scores', 11)
    """
    reads = {"score": score, "label": label, "time": time, "every": every}
    fields = field_names(field)
    with tempfile.TemporaryDirectory() as home:
        if isinstance(log, Journal) or is_store(log):
            refused = [name for name, given in (reads | {"weight": weight}).items() if given]
            if refused:
                raise InputError(
                    f"{refused[0]} was given, but a journal has its rows and periods already; leave it out"
                )
            past = log if isinstance(log, Journal) else Journal(log)
        else:
            lacking = [name for name, given in reads.items() if given is None]
            if lacking:
                raise InputError(f"{lacking[0]} was not given; a log needs score, label, time and every")
            past = Journal(Path(home) / "journal.db")
            spec = RowSpec(
                score,
                label,
                fields,
                weight,
                resolution=resolution,
                score_type=score_type,
                negatives_kept=negatives_kept,
            )
            _read(past, log, spec.with_time(str(time), every), str(time), reading)
        past = past.snapshot()  # others may add to it meanwhile
        periods = past.periods
        if len(periods) < 2:
            raise InputError(
                f"there are rows of {len(periods)} period(s); a backtest needs two or more: cut time finer"
            )
        known = next(past.sketches(periods[0], periods[0]))[1].contexts.names
        used = fields or known
        unknown = [name for name in used if name not in known]
        if unknown:
            raise InputError(f"the journal has no field {unknown[0]!r}; it has {', '.join(known) or 'none'}")
        late, first = delay_in_periods(delay, periods), _since(since, periods)
        before = round(SHARE_FITTED_ONCE * len(periods)) if first is None else periods.index(first)
        if methods is None:
            methods = ["mcnet-bayes", "platt-field" if used else "platt"]
        others = [MemoryForecaster(one, memory, bool(used), max(1, before)) for one in methods for memory in memories]
        others = list({one.name: one for one in others}.values())
        follower = TrackerForecaster(Tracker(delay=late) if tracker is None else tracker())
        record = judged_periods(
            past, follower, others, fields=used, delay=late, since=first, look=look, progress=progress
        )
    if not record.figures:
        raise InputError(
            f"no period could be judged: there are {len(periods)} and labels are known after {late} further ones"
        )
    failures = {one.name: one.failures for one in others if one.failures}
    return backtest_of(record, failures, delay=late, fields=used, level=level, seed=seed)


def _read(journal: Journal, log: Any, spec: RowSpec, time: str, reading: Callable[[int], Any] | None) -> None:
    """Read logs or a table into a journal."""
    if is_table(log):
        parts = sketches_by(scan_table(log, spec), time)
        if MISSING_LABEL in parts:
            raise InputError(f"the table has rows without a timestamp in {time}; drop these rows, or give them one")
        journal.add_parts(parts, source="table", allow=GUARDS)
        return
    outcomes = NewFiles(expand_paths(log), spec, Addition(allow=GUARDS)).add_to(journal, reading)
    for outcome in outcomes.values():
        if isinstance(outcome, McnetError):  # a result of some of the files would be one of other rows
            raise outcome


def _since(since: Any, periods: Sequence[str]) -> str | None:
    if since is None:
        return None
    text = period_text(since)
    later = periods_between(periods, text, None)
    if not later:
        raise InputError(f"there is no period from {text} on; the last one is {periods[-1]}")
    return later[0]
