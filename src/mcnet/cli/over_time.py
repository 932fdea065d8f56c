"""Evaluation over time: the periods of a log, of sketches or of a journal."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mcnet.errors import InputError

if TYPE_CHECKING:
    from mcnet.cli.sources import RowSource
    from mcnet.metrics.periods import PeriodEvaluations
    from mcnet.metrics.settings import MetricSettings
    from mcnet.model.model import CalibrationModel
    from mcnet.sketch.sketch import Sketch
    from mcnet.tracking.journal import Journal

__all__ = ["check_time", "period_evaluations", "write_table"]


def check_time(source: "RowSource", time: str | None, every: str | None, table: str | None) -> None:
    """Refuse options of time that do not fit together, before anything is read."""
    source.refuse_time(time)
    if source.journal is not None:
        return
    if (time is None) != (every is None):
        lacking = "--every, the length of a period," if every is None else "--time, the column of time,"
        raise InputError(f"to judge periods {lacking} is needed too")
    if table is not None and time is None:
        raise InputError("--table has the figures of periods; pass --time and --every too")


def period_evaluations(
    journal: "Journal | None",
    timed: "Sketch",
    time: str | None,
    every: str | None,
    model: "CalibrationModel | None",
    settings: "MetricSettings",
    by: Sequence[str] | None,
    since: str | None,
    until: str | None,
) -> "PeriodEvaluations | None":
    """Return the evaluation of each period; None for logs without a column of time."""
    from mcnet.metrics.periods import evaluate_periods
    from mcnet.sketch.split import sketches_by

    if journal is not None:
        return evaluate_periods(model, _longer_periods(journal, every, since, until), settings, by=by)
    if time is None:
        return None
    return evaluate_periods(model, sketches_by(timed, time).items(), settings, by=by)


def _longer_periods(
    journal: "Journal", every: str | None, since: str | None, until: str | None
) -> Iterator[tuple[str, "Sketch"]]:
    """Yield the periods of a journal, added up to longer ones if asked for, one in memory at a time."""
    if every is None:
        yield from journal.sketches(since, until)
        return
    import polars as pl

    from mcnet.data.periods import cut_to_periods
    from mcnet.sketch.sketch import Sketch
    from mcnet.tracking.period import period_text

    parts: list[Sketch] = []
    last = ""
    for period, sketch in journal.sketches(since, until):
        name = period_text(cut_to_periods(pl.Series("period", [period]), every)[0])
        if parts and name != last:
            yield last, Sketch.merged(parts)
            parts = []
        last = name
        parts.append(sketch)
    if parts:
        yield last, Sketch.merged(parts)


def write_table(path: str, periods: "PeriodEvaluations") -> None:
    """Write the tidy table of periods, whole or not at all."""
    from mcnet._shared.atomic_files import whole_file

    found = periods.table()
    with whole_file(path) as part:
        found.write_csv(part) if Path(path).suffix.lower() == ".csv" else found.write_parquet(part)
