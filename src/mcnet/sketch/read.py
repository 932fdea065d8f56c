"""One sketch from log files, or from saved sketches."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mcnet._shared.typing import ScoreType
from mcnet.data.automatic_period import AutomaticPeriod
from mcnet.data.files import file_format, open_log, readable, source_name
from mcnet.data.locations import Location, Locations
from mcnet.errors import InputError
from mcnet.sketch.file import is_sketch_file, load_sketch
from mcnet.sketch.grid import DEFAULT_RESOLUTION, Resolution
from mcnet.sketch.scan import scan_files
from mcnet.sketch.sketch import Sketch

__all__ = ["are_sketches", "has_column", "sketch_files"]


def are_sketches(paths: Sequence[Location]) -> bool:
    """Tell whether the files are sketches, not logs."""
    return any(is_sketch_file(path) for path in paths)


def has_column(paths: Locations, name: str) -> bool:
    """Tell whether logs have a column, or saved sketches a field, of this name."""
    if are_sketches(paths):
        return all(name in load_sketch(path).contexts.names for path in paths)
    with readable(source_name(paths)):
        return name in open_log(paths).collect_schema()


def sketch_files(
    paths: Locations,
    *,
    sketched: bool | None = None,
    score: str | None = None,
    label: str | None = None,
    field: Sequence[str] | None = None,
    weight: str | None = None,
    folds: int = 1,
    resolution: Resolution | None = None,
    score_type: ScoreType = "probability",
    negatives_kept: float = 1.0,
    every: Mapping[str, str | AutomaticPeriod] | None = None,
    progress: Callable[[int], Any] | None = None,
) -> Sketch:
    """Return the sketch of log files (see `scan`), or the sum of files that are sketches already.

    Saved sketches know their fields: with `field` they are reduced to those, without it they keep all. Whether any of
    the files is a sketch is looked up unless `sketched` tells.
    """
    saved = [] if sketched is False else [path for path in paths if is_sketch_file(path)]
    if not saved:
        if score is None or label is None:
            file_format(paths[0])  # refuse a file that is not a log before asking for its columns
            lacking = "score" if score is None else "label"
            raise InputError(f"{paths[0]} is a log: name its column of {lacking}s")
        return scan_files(
            paths,
            score=score,
            label=label,
            field=field or [],
            weight=weight,
            folds=folds,
            resolution=DEFAULT_RESOLUTION if resolution is None else resolution,
            score_type=score_type,
            negatives_kept=negatives_kept,
            every=every or {},
            progress=progress,
        )
    if len(saved) < len(paths):
        log = next(path for path in paths if path not in saved)
        raise InputError(f"{saved[0]} is a sketch and {log} a log; sketch the log first, or read them apart")
    if negatives_kept != 1.0 or weight is not None or score_type != "probability" or resolution is not None:
        raise InputError(
            f"{saved[0]} is a saved sketch: weight, logits, sampling and resolution were settled when it was made"
        )
    total = Sketch.merged([load_sketch(path) for path in saved])
    if field:
        total = total.only(*field)
    for name, period in (every or {}).items():
        total = _in_periods(total, name, period)
    return total.with_folds(folds) if folds > 1 and total.folds == 1 else total


def _in_periods(sketch: Sketch, name: str, period: str | AutomaticPeriod) -> Sketch:
    if isinstance(period, str):
        return sketch.in_periods(name, period)
    import polars as pl

    values = sketch.only(name).contexts.values[0]
    period.cut(pl.Series(name, values, dtype=pl.String))
    return sketch if period.every is None else sketch.in_periods(name, period.every)
