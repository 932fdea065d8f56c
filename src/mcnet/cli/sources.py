"""Where the rows of a command come from: log files, saved sketches, or a journal."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcnet.cli.config import SHARED_KEYS, from_config
from mcnet.cli.printing import Printer
from mcnet.errors import InputError

if TYPE_CHECKING:
    from mcnet.data.automatic_period import AutomaticPeriod
    from mcnet.data.locations import Locations
    from mcnet.model.model import CalibrationModel
    from mcnet.sketch.sketch import Sketch
    from mcnet.tracking.journal import Journal

__all__ = ["RowSource", "open_journal", "remember_periods", "source_of"]

DEFAULT_PERIOD = "1d"
"""What a column of time is cut to unless --every says otherwise."""


@dataclass(frozen=True)
class RowSource:
    """The rows that a command was given, looked at once."""

    names: tuple[str, ...]
    """As they were typed."""
    paths: "Locations"
    """The files behind the names; none for a journal, whose files have names of their own."""
    journal: "Journal | None" = None
    sketched: bool = False
    """Whether the files are saved sketches."""

    @property
    def finished(self) -> bool:
        """Tell whether the rows were sketched before, so that how they are read was settled then."""
        return self.sketched or self.journal is not None

    @property
    def on_disk(self) -> list[Path]:
        """The files on disk, or the folder of the journal."""
        if self.journal is not None:
            return [Path(self.journal.path)]
        return [path for path in self.paths if isinstance(path, Path)]

    @cached_property
    def row_count(self) -> int | None:
        """The number of rows if the files tell it without being read, for the length of a progress bar."""
        import polars as pl

        from mcnet.data.files import file_format, open_log, readable, source_name

        if self.finished or any(file_format(path) not in ("parquet", "arrow") for path in self.paths):
            return None
        with readable(source_name(self.names)):
            return int(open_log(self.paths).select(pl.len()).collect().item())

    def columns(self, context: Any, **found: Any) -> dict[str, Any]:
        """Return the options that say how logs are read, under the names that `read` takes.

        A saved sketch or a journal knows how its logs were read: what the configuration file says of logs is ignored.

        Parameters
        ----------
        context : the context of the command, which has its options.
        found : options that the command itself has found out, instead of those that were given.
        """
        options = {name: context.params[name] for name in SHARED_KEYS} | found
        if self.finished:
            options = {name: None if from_config(context, name) else value for name, value in options.items()}
        logits, negatives_kept = options.pop("logits", None), options.pop("negatives_kept", None)
        return {
            **options,
            "score_type": "logit" if logits else "probability",
            "negatives_kept": 1.0 if negatives_kept is None else negatives_kept,
        }

    def with_time(
        self, columns: dict[str, Any], time: str | None, every: "str | AutomaticPeriod | None"
    ) -> dict[str, Any]:
        """Return the options of `read` with a column of time, if any, as a further field, cut to periods (days)."""
        if time is None:
            return columns
        fields = list(columns.get("field") or [])
        if time in fields:
            raise InputError(f"{time} is the column of time and a field; name it once, with --time")
        cut = {} if every is None and self.finished else {time: every or DEFAULT_PERIOD}
        # A saved sketch keeps all its fields unless some are named.
        return {**columns, "field": [*fields, time] if fields or not self.finished else None, "every": cut}

    def refuse_time(self, time: str | None) -> None:
        """Refuse a column of time for a journal."""
        if self.journal is not None and time is not None:
            raise InputError(f"{self.journal.path} is a journal: its periods are known, so leave out --time")

    def chosen_periods(self, **options: Any) -> dict[str, Any]:
        """Return the options that choose periods of a journal; refuse them for logs, which have none."""
        given = {name: value for name, value in options.items() if value is not None}
        if given and self.journal is None:
            option = next(iter(given)).replace("_", "-")
            raise InputError(
                f"--{option} is for journals, and {self.names[0]} is not a journal; make one with mcnet journal add"
            )
        return given

    def read(self, printer: Printer, *, title: str = "reading", **columns: Any) -> "Sketch":
        """Sketch logs, or add up saved sketches or the periods of a journal, with a progress bar.

        Parameters
        ----------
        printer : draws the progress bar.
        title : what the bar is called.
        columns : how logs are read, and which periods of a journal.
        """
        from mcnet.cli.signals import plain_interrupts
        from mcnet.sketch.read import sketch_files

        plain_interrupts()
        if self.journal is not None:
            return _sum_of_periods(self.journal, **columns)
        with printer.progress(title, self.row_count if printer.lively else None) as advance:
            return sketch_files(self.paths, sketched=self.sketched, **columns, progress=advance)

    def periods(
        self, field: Sequence[str] | None, since: str | None = None, until: str | None = None
    ) -> "dict[str, Sketch] | None":
        """Return the sketch of each period of a journal, with these fields alone if any are named; None for logs."""
        if self.journal is None:
            return None
        found = self.journal.sketches(since, until)
        return {period: sketch.only(*field) if field else sketch for period, sketch in found}


def source_of(names: Sequence[str]) -> RowSource:
    """Find out what the names of a command stand for. A journal is read alone."""
    from mcnet.data.files import expand_paths
    from mcnet.data.locations import Locations
    from mcnet.sketch.read import are_sketches
    from mcnet.tracking.journal_files import is_journal

    journals = [name for name in names if is_journal(name)]
    if not journals:
        paths = expand_paths(list(names))
        return RowSource(tuple(names), paths, sketched=are_sketches(paths))
    if len(names) > 1:
        other = next(name for name in names if name != journals[0])
        raise InputError(f"{journals[0]} is a journal and is read alone; leave out {other}, or add it to the journal")
    from mcnet.tracking.journal import Journal

    return RowSource(tuple(names), Locations(), Journal(journals[0]))


def open_journal(path: str) -> "Journal":
    """Return a journal that exists."""
    from mcnet.tracking.journal import Journal
    from mcnet.tracking.journal_files import require_journal

    require_journal(Path(path), create=False)
    return Journal(path)


def _sum_of_periods(
    journal: "Journal",
    *,
    field: Sequence[str] | None = None,
    folds: int = 1,
    since: str | None = None,
    until: str | None = None,
    half_life: float | None = None,
    **settled: Any,
) -> "Sketch":
    """Return one sketch of a journal's periods; `settled` are options that say how logs are read."""
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


def remember_periods(model: "CalibrationModel", periods: Sequence[str]) -> "CalibrationModel":
    """Return a model whose history tells which periods it was fitted on."""
    from mcnet.tracking.period import period_text

    span = {"first": period_text(periods[0]), "last": period_text(periods[-1]), "number": len(periods)}
    return replace(model, provenance={**model.provenance, "fitted_periods": span})
