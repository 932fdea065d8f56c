"""Where the rows of a command come from: log files, saved sketches, or a journal."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcnet.errors import InputError

if TYPE_CHECKING:
    from mcnet.model.model import CalibrationModel
    from mcnet.sketch.sketch import Sketch
    from mcnet.tracking.journal import Journal

__all__ = [
    "input_files",
    "is_finished",
    "journal_of",
    "journal_periods",
    "open_journal",
    "periods_of",
    "read_journal",
    "remember_periods",
]


def journal_of(files: Sequence[str]) -> "Journal | None":
    """Return the journal that the files are; None for logs and sketches. A journal is read alone."""
    from mcnet.tracking.journal import Journal
    from mcnet.tracking.journal_files import is_journal

    journals = [file for file in files if is_journal(file)]
    if not journals:
        return None
    if len(files) > 1:
        other = next(file for file in files if file != journals[0])
        raise InputError(f"{journals[0]} is a journal and is read alone; leave out {other}, or add it to the journal")
    return Journal(journals[0])


def open_journal(path: str) -> "Journal":
    """Return a journal that exists."""
    from mcnet.tracking.journal import Journal
    from mcnet.tracking.journal_files import require_journal

    require_journal(Path(path), create=False)
    return Journal(path)


def is_finished(files: Sequence[str]) -> bool:
    """Tell whether the rows were sketched before, so that how they are read was settled then."""
    from mcnet.sketch.read import are_sketches

    return bool(files) and (journal_of(files) is not None or are_sketches(list(files)))


def input_files(files: Sequence[str]) -> list[Path]:
    """Return the files on disk that a command reads; those of a journal have names of its own, and are not listed."""
    from mcnet.data.files import expand_paths
    from mcnet.tracking.journal_files import is_journal

    plain = [file for file in files if not is_journal(file)]
    return [path for path in expand_paths(plain) if isinstance(path, Path)] if plain else []


def read_journal(
    journal: "Journal",
    *,
    field: Sequence[str] | None = None,
    folds: int = 1,
    since: str | None = None,
    until: str | None = None,
    half_life: float | None = None,
    **settled: Any,
) -> "Sketch":
    """Return one sketch of a journal's periods.

    Parameters
    ----------
    field : the fields to keep; all if none are named.
    folds : into how many folds to split the rows.
    since, until, half_life : as in `Journal.sketch`.
    settled : options that say how logs are read; refused unless they have their usual values.
    """
    _refuse_settled(journal, **settled)
    total = journal.sketch(since, until, half_life=half_life)
    if field:
        total = total.only(*field)
    return total.with_folds(folds) if folds > 1 else total


def _refuse_settled(
    journal: "Journal",
    *,
    score: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    score_type: str = "probability",
    negatives_kept: float = 1.0,
    resolution: Any = None,
) -> None:
    """Refuse options that say how logs are read: that was settled when the rows were added."""
    if weight is not None or score_type != "probability" or negatives_kept != 1.0 or resolution is not None:
        raise InputError(
            f"{journal.path} is a journal: weight, logits, sampling and resolution were settled when its rows were "
            "added; leave them out"
        )


def periods_of(files: Sequence[str], **options: Any) -> dict[str, Any]:
    """Return the options that choose periods of a journal; refuse them for logs, which have none."""
    given = {name: value for name, value in options.items() if value is not None}
    if given and journal_of(files) is None:
        option = next(iter(given)).replace("_", "-")
        raise InputError(f"--{option} is for journals, and {files[0]} is none; make one with mcnet journal add")
    return given


def journal_periods(
    journal: "Journal", field: Sequence[str] | None, since: str | None, until: str | None
) -> "dict[str, Sketch]":
    """Return the sketch of each period of a journal, with these fields alone if some are named."""
    return {period: sketch.only(*field) if field else sketch for period, sketch in journal.sketches(since, until)}


def remember_periods(model: "CalibrationModel", periods: Sequence[str]) -> "CalibrationModel":
    """Return a model whose history tells which periods it was fitted on."""
    from mcnet.tracking.period import period_text

    told = {"first": period_text(periods[0]), "last": period_text(periods[-1]), "number": len(periods)}
    return replace(model, provenance={**model.provenance, "fitted_periods": told})
