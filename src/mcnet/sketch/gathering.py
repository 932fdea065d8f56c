"""One sketch from whatever holds the rows: log files, or sketches saved before."""

from collections.abc import Callable, Sequence
from typing import Any

from mcnet.errors import InputError
from mcnet.rows.columns import ScoreType
from mcnet.rows.files import FilePaths, expand_paths
from mcnet.sketch.grid import DEFAULT_RESOLUTION, Resolution
from mcnet.sketch.scanning import scan
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.store import is_sketch_file, load_sketch

__all__ = ["gather", "is_finished"]


def is_finished(files: FilePaths) -> bool:
    """Tell whether the files are sketches, not logs."""
    return any(is_sketch_file(path) for path in expand_paths(files))


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
    return total.dealt(folds) if folds > 1 and total.folds == 1 else total
