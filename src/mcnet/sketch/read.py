"""One sketch from whatever holds the rows: log files, or sketches saved before."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mcnet._shared.typing import ScoreType
from mcnet.data.files import FilePaths, expand_paths, open_log, readable, require_columns, source_name
from mcnet.data.periods import MOST_PERIODS, fitting_period
from mcnet.errors import InputError
from mcnet.sketch.file import is_sketch_file, load_sketch
from mcnet.sketch.grid import DEFAULT_RESOLUTION, Resolution
from mcnet.sketch.scan import scan
from mcnet.sketch.sketch import Sketch

__all__ = ["gather", "has_column", "is_finished", "period_of"]


def is_finished(files: FilePaths) -> bool:
    """Tell whether the files are sketches, not logs."""
    return any(is_sketch_file(path) for path in expand_paths(files))


def has_column(files: FilePaths, name: str) -> bool:
    """Tell whether logs have a column, or finished sketches a field, of this name."""
    paths = expand_paths(files)
    if is_finished(paths):
        return all(name in load_sketch(path).contexts.names for path in paths)
    with readable(source_name(paths)):
        return name in open_log(paths).collect_schema()


def period_of(files: FilePaths, name: str) -> str | None:
    """Return the period that a column of moments must be cut to, lest there be too many to look at; None if few."""
    import polars as pl

    paths = expand_paths(files)
    if is_finished(paths):
        texts = {value for path in paths for value in load_sketch(path).only(name).contexts.values[0]} - {None}
        seen = pl.Series(name, sorted(texts), dtype=pl.String)
        number, low, high = len(seen), seen.min(), seen.max()
        if number and (numbers := seen.cast(pl.Int64, strict=False)).null_count() == 0:
            low, high = numbers.min(), numbers.max()
    else:
        frame, column = open_log(paths), pl.col(name)
        require_columns(frame, [name], source=source_name(paths))
        asked = (column.approx_n_unique().alias("number"), column.min().alias("low"), column.max().alias("high"))
        with readable(source_name(paths)):
            number, low, high = frame.select(*asked).collect(engine="streaming").row(0)
    if number <= MOST_PERIODS:
        return None
    try:
        return fitting_period(low, high)
    except InputError as error:
        raise InputError(
            f"{name} has {number:,} values, more than the {MOST_PERIODS} that can be shown; {error}"
        ) from None


def gather(
    files: FilePaths,
    *,
    score: str | None = None,
    label: str | None = None,
    field: Sequence[str] | None = None,
    weight: str | None = None,
    folds: int = 1,
    resolution: Resolution | None = None,
    score_type: ScoreType = "probability",
    negatives_kept: float = 1.0,
    every: Mapping[str, str] | None = None,
    progress: Callable[[int], Any] | None = None,
) -> Sketch:
    """Return the sketch of log files (see `scan`), or the sum of files that are sketches already.

    Saved sketches know their fields: with `field` they are reduced to those, without it they keep all.
    """
    paths = expand_paths(files)
    finished = [path for path in paths if is_sketch_file(path)]
    if not finished:
        if score is None or label is None:
            lacking = "score" if score is None else "label"
            raise InputError(f"{paths[0]} is a log: name its column of {lacking}s")
        return scan(
            paths,
            score=score,
            label=label,
            field=field or None,
            weight=weight,
            folds=folds,
            resolution=DEFAULT_RESOLUTION if resolution is None else resolution,
            score_type=score_type,
            negatives_kept=negatives_kept,
            every=every,
            progress=progress,
        )
    if len(finished) < len(paths):
        log = next(path for path in paths if path not in finished)
        raise InputError(f"{finished[0]} is a sketch and {log} a log; sketch the log first, or read them apart")
    if negatives_kept != 1.0 or weight is not None or score_type != "probability" or resolution is not None:
        raise InputError(
            f"{finished[0]} is a finished sketch: weight, logits, sampling and resolution were settled when it was made"
        )
    total = Sketch.merged([load_sketch(path) for path in finished])
    if field:
        total = total.only(*field)
    for name, period in (every or {}).items():
        total = total.in_periods(name, period)
    return total.dealt(folds) if folds > 1 and total.folds == 1 else total
