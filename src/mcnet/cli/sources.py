"""Where the rows of a command come from, and the files it writes."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcnet._shared.files import is_url, local_path, output_file
from mcnet.cli.options import Columns, head_name, refuse_read_options, value_number
from mcnet.cli.run import Printer, plain_interrupts
from mcnet.errors import FileFormatError, InputError
from mcnet.rows.locations import Locations, is_store, read_options

if TYPE_CHECKING:
    from mcnet.field_search import FieldSearch
    from mcnet.model.model import CalibrationModel
    from mcnet.rows.locations import Locations
    from mcnet.rows.spec import RowSpec
    from mcnet.sketch.sketch import Sketch
    from mcnet.store.journal import Journal

# Standard output and object stores: what can be written to them.

STANDARD_OUTPUT = "-"


def url_exists(url: str) -> bool:
    """Tell whether there is something at an address of an object store; if in doubt, there is."""
    from mcnet.rows.logs import open_log

    try:
        open_log(url).collect_schema()
    except Exception as error:  # Polars has many kinds; only "there is none" makes the address free
        return not any(words in str(error).lower() for words in ("not found", "expanded paths were empty", "404"))
    return True


def write_to_standard_output(write: Callable[[Path], Any], ending: str) -> Any:
    """Let a file be written as a whole, then pass it on to standard output; return what the function returned."""
    if sys.stdout.isatty() and ending in (".parquet", ".arrow"):
        raise InputError(f"stdout is a terminal, and {ending[1:]} is not for reading; pipe it on, or name a file")
    with tempfile.TemporaryDirectory(prefix="mcnet-") as folder:
        target = Path(folder) / f"output{ending}"
        result = write(target)
        with target.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    return result


# Files of a command: outputs that may be written, models that remember their columns.


PAGE = (".html", ".htm")
"""The endings of a page."""

_KINDS = {".parquet": "a Parquet file", ".html": "an HTML page", ".json": "a JSON file"}
"""What an output is, by the first of its endings; one that may be .csv is a table."""


def check_output(
    path: str | None,
    inputs: "Sequence[str | RowSource]",
    *,
    force: bool,
    endings: Sequence[str] = (),
    elsewhere: bool = False,
) -> None:
    """Refuse, before any work is done, an output that is an input, exists, is no regular file or has another ending."""
    if path is None:
        return
    target = Path(local_path(path))
    if is_url(path):
        if not elsewhere or path.startswith(("http:", "https:", "hf:")):
            raise InputError(f"{path} cannot be written from here; write to a file, and copy it there")
        if any(path in ((source,) if isinstance(source, str) else source.names) for source in inputs):
            raise InputError(f"{path} is one of the files to read; write to another file")
        if not force and url_exists(path):
            raise InputError(f"{path} exists already; pass --force to overwrite it")
        return
    if path == "-":
        raise InputError("nothing is written to stdout but --json; name a file instead of -, or ./- if it is called so")
    if endings and target.suffix.lower() not in endings:
        kind = "a table" if ".csv" in endings else _KINDS[endings[0]]
        raise InputError(f"{target} will be {kind}; give it a name that ends in {' or '.join(endings)}")
    output_file(target)
    if not target.exists():
        return
    files = [file for source in inputs for file in ([Path(source)] if isinstance(source, str) else source.on_disk)]
    if any(file.exists() and target.samefile(file) for file in files):
        raise InputError(f"{target} is one of the files to read; write to another file")
    if not force:
        raise InputError(f"{target} exists already; pass --force to overwrite it")


def refuse_one_file(**outputs: str | None) -> None:
    """Refuse two outputs, by their options, that are one file: the second would replace the first."""
    (first, one), (second, other) = outputs.items()
    if one is not None and other is not None and Path(one).resolve() == Path(other).resolve():
        options = " and ".join("--" + name.replace("_", "-") for name in (first, second))
        raise InputError(f"{options} both name {one}; give each its own file")


def by_period(sketch: "Sketch", time: str) -> "dict[str, Sketch]":
    """Return the sketch of each period; rows without a timestamp are refused."""
    from mcnet.rows.fields import MISSING_LABEL
    from mcnet.sketch.views import sketches_by

    parts = sketches_by(sketch, time)
    if MISSING_LABEL in parts:
        rows = parts[MISSING_LABEL].rows
        raise InputError(f"{rows:,} rows have no timestamp in {time}; drop these rows, or give them one")
    return parts


def load_model(path: str) -> "CalibrationModel":
    """Load a model; say what a file is that is none."""
    from mcnet.model.model_file import load
    from mcnet.rows.logs import file_format
    from mcnet.sketch.scan import is_sketch_file

    file = Path(path)
    if is_sketch_file(path):
        raise FileFormatError(f"{file} is a sketch, not a model; fit one on it: mcnet fit {file} -o model.json")
    try:
        kind = file_format(file).kind
    except InputError:
        model = load(file)
        read_options().edges.update(model.contexts.edges)  # the rows of this command are cut as the model's were
        return model
    raise FileFormatError(f"{file} is a {kind} file, not a model; a model is the JSON file that mcnet fit writes")


def bins_or_edges(given: str) -> dict[str, Any]:
    """Return what --bins says: a number of bins, or the edges of a sketch, a model or a head of a store."""
    from mcnet.rows.derived import check_bins
    from mcnet.sketch.scan import is_sketch_file
    from mcnet.sketch.sketch_file import load_sketch

    if given.lstrip("+-").isdigit():
        return {"bins": check_bins(int(given))}
    if is_store(given):
        edges = open_journal(given).edges()
    elif is_sketch_file(given):
        edges = dict(load_sketch(given).contexts.edges)
    else:
        edges = dict(load_model(given).contexts.edges)
    if not edges:
        raise InputError(f"--bins {given}: it has no field of numbers cut into bins, as --field 'age:number' has")
    return {"edges": edges}


def remembered(model: "CalibrationModel", name: str, given: str | None) -> str:
    """Return the column given, or the one the model was fitted on."""
    column = given or model.provenance.get("columns", {}).get(name)
    if not isinstance(column, str):
        raise InputError(f"the model does not know which column has the {name}; pass --{name}")
    return column


def remembered_negatives(printer: Printer, model: "CalibrationModel", given: float | None) -> float | None:
    """Return the share of negatives that is given, or that of the rows that a model was fitted on, and say so."""
    known: float = model.provenance.get("columns", {}).get("negatives_kept", 1.0)
    if given is not None or known == 1.0:
        return given
    printer.note(
        f"negatives count {1.0 / known:.6g} times, as in the fit of the model; "
        "pass --negatives-kept 1 if this log has them all"
    )
    return known


# Where the rows of a command come from: log files, saved sketches, or a journal.

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

        from mcnet.rows.logs import file_format, open_log, readable, source_name

        if self.finished or any(file_format(path).layout != "columns" for path in self.paths):
            return None
        with readable(source_name(self.names)):
            return int(open_log(self.paths).select(pl.len()).collect().item())

    def spec(self, columns: Columns) -> "RowSpec":
        """Return how the rows are read; for rows that were sketched before the configuration file does not count."""
        from mcnet.rows.spec import RowSpec, field_names

        given = columns.without_file() if self.finished else columns
        return RowSpec(
            given.score,
            given.label,
            field_names(given.field),
            given.weight,
            score_type=given.score_type,
            negatives_kept=given.share_kept,
            value=None if value_number(given.value) is not None else given.value,
            value_per_positive=given.value_per_positive,
            propensity=given.propensity,
        )

    def spec_as_fitted(self, columns: Columns, printer: Printer, model: "CalibrationModel | None") -> "RowSpec":
        """Return how the rows are read: by the options of a command, and otherwise as those of a model were."""
        if model is not None:
            columns = replace(
                columns,
                score=remembered(model, "score", columns.score),
                label=remembered(model, "label", columns.label),
                logits=model.score_type == "logit" if columns.logits is None else columns.logits,
                weight=columns.weight or model.provenance.get("columns", {}).get("weight"),
                negatives_kept=remembered_negatives(printer, model, columns.negatives_kept),
            )
        return self.spec(columns)

    def with_time(
        self, spec: "RowSpec", time: str | None, every: str | None, usual: str | None = DEFAULT_PERIOD
    ) -> "RowSpec":
        """Return the spec with a column of time, if any, as a further field; that of a log is cut to usual periods."""
        if time is None:
            return spec
        if time in spec.fields:
            raise InputError(f"{time} is the column of time and a field; name it once, with --time")
        timed = spec.with_time(time, every if self.finished else every or usual)
        # A saved sketch keeps all its fields unless some are named.
        return timed if spec.fields or not self.finished else replace(timed, fields=())

    def require_columns(self, spec: "RowSpec") -> None:
        """Refuse rows that were sketched before, whose other columns are gone, and logs whose columns are not named."""
        if self.finished:
            raise InputError(f"{self.names[0]} was sketched before and has no other columns; give the log itself")
        if spec.score is None or spec.label is None:
            raise InputError("name the columns with --score and --label")

    def find_fields(self, printer: Printer, columns: Columns) -> "FieldSearch":
        """Search the columns of logs for those that are worth being fields; refuse rows that were sketched before."""
        from mcnet.field_search import search

        spec = self.spec(columns)
        self.require_columns(spec)
        with printer.steps("searching for fields") as step:
            return search(self.paths, spec, exclude=columns.exclude or (), time=columns.time, progress=step)

    def with_fields(self, printer: Printer, columns: Columns) -> "RowSpec":
        """Return how the rows are read, with the fields that --fields auto finds."""
        from mcnet.rows.spec import check_search

        spec = self.spec(columns)
        if columns.fields is None and not columns.exclude:
            return spec
        check_search(columns.fields, spec.fields, columns.exclude)
        search = self.find_fields(printer, columns)
        say_fields(printer, search)
        return replace(spec, fields=search.fields)

    def read(self, printer: Printer, spec: "RowSpec", *, title: str = "reading", **periods: Any) -> "Sketch":
        """Sketch logs, or add up saved sketches or the chosen periods of a journal, with a progress bar."""
        from mcnet.sketch.scan import sketch_files

        periods = {name: value for name, value in periods.items() if value is not None}
        if periods and self.journal is None:
            option = next(iter(periods)).replace("_", "-")
            raise InputError(
                f"--{option} is for journals, and {self.names[0]} is not a journal; make one with mcnet journal add"
            )
        plain_interrupts()
        if self.journal is not None:
            sketch = _sum_of_periods(self.journal, spec, **periods)
        else:
            with printer.progress(title, self.row_count if printer.lively else None) as advance:
                sketch = sketch_files(self.paths, spec, sketched=self.sketched, progress=advance)
        read_options().edges.update(sketch.contexts.edges)  # other rows of this command are cut alike
        return sketch

    def periods(
        self, field: Sequence[str] | None, since: str | None = None, until: str | None = None
    ) -> "dict[str, Sketch] | None":
        """Return the sketch of each period of a journal, with these fields alone if any are named; None for logs."""
        if self.journal is None:
            return None
        sketches = self.journal.sketches(since, until)
        return {period: sketch.only(*field) if field else sketch for period, sketch in sketches}


def say_fields(printer: Printer, search: "FieldSearch") -> None:
    """Say which fields were chosen, and which columns look like outcomes."""
    gain = search.base_log_loss - search.log_loss
    chosen = f"{', '.join(search.fields)} (log-loss {gain:.5f} lower)" if search.fields else "none gains anything"
    printer.note(f"fields chosen: {chosen}; only you know whether they are known at serving. mcnet fields shows all")
    for one in search.candidates:
        if one.warning is not None:
            printer.note(f"{one.name} {one.warning}: not taken")


def check_periods(columns: Columns, *sources: RowSource) -> None:
    """Refuse a column of time for a journal, and a length of periods without the column that it cuts."""
    for source in sources:
        if source.journal is not None and columns.time is not None:
            raise InputError(f"{source.journal.path} is a journal: its periods are known, so leave out --time")
    if columns.every is not None and columns.time is None:
        raise InputError("--every cuts a column of time to periods; pass --time too")


def source_of(names: Sequence[str], *, alone: bool = True) -> RowSource:
    """Find out what the names of a command stand for. A journal is read alone."""
    from mcnet.rows.logs import expand_paths
    from mcnet.sketch.scan import are_sketches

    journals = [name for name in names if is_store(name)]
    if not journals:
        paths = expand_paths(list(names))
        sketched = are_sketches(paths)
        if sketched:
            refuse_read_options(f"{names[0]} is a saved sketch, whose rows were read before", filters_only=not alone)
        return RowSource(tuple(names), paths, sketched=sketched)
    if len(names) > 1:
        other = next(name for name in names if name != journals[0])
        raise InputError(f"{journals[0]} is a store and is read alone; leave out {other}, or add it to the store")
    refuse_read_options(f"{journals[0]} is a store, whose rows were read before", filters_only=not alone)
    return RowSource(tuple(names), Locations(), open_journal(journals[0]))


def open_journal(address: str) -> "Journal":
    """Return the journal of the head that is meant; it must be there."""
    from mcnet.store.journal import Journal

    journal = Journal(address, head_name())
    journal.store.require_head(journal.head)
    return journal


def _sum_of_periods(journal: "Journal", spec: "RowSpec", **chosen: Any) -> "Sketch":
    """Return one sketch of a journal's periods; refuse options that say how logs are read."""
    if not spec.only_names:
        raise InputError(
            f"{journal.path} is a journal: weight, value, logits, sampling and resolution were settled when its rows "
            "were added; leave them out"
        )
    total = journal.sketch(**chosen)
    if spec.fields:
        total = total.only(*spec.fields)
    return total.with_folds(spec.folds) if isinstance(spec.folds, int) and spec.folds > 1 else total


def remember_periods(model: "CalibrationModel", periods: Sequence[str]) -> "CalibrationModel":
    """Return a model whose history tells which periods it was fitted on."""
    from mcnet.rows.periods import period_text

    span = {"first": period_text(periods[0]), "last": period_text(periods[-1]), "number": len(periods)}
    return replace(model, provenance={**model.provenance, "fitted_periods": span})
