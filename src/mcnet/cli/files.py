"""Files of a command: logs and sketches to read, outputs that may be written, models that remember their columns."""

import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcnet._shared.atomic_files import output_file
from mcnet.cli.config import SHARED_KEYS, from_config
from mcnet.cli.printing import Printer
from mcnet.errors import InputError

if TYPE_CHECKING:
    from mcnet._shared.typing import ScoreType
    from mcnet.model.model import CalibrationModel
    from mcnet.sketch.sketch import Sketch

__all__ = [
    "by_period",
    "check_output",
    "columns_of",
    "load_model",
    "plain_interrupts",
    "read_sketch",
    "remembered",
    "row_count",
    "score_type",
    "with_time",
]

DEFAULT_PERIOD = "1d"
"""What a column of time is cut to unless --every says otherwise."""


def check_output(
    path: str, inputs: Sequence[str], *, force: bool, endings: Sequence[str] = (), elsewhere: bool = False
) -> None:
    """Refuse, before any work is done, an output that is an input, exists, is no regular file or has another ending.

    Parameters
    ----------
    path : the output.
    inputs : what the command reads.
    force : whether an output that exists is replaced.
    endings : the endings that its name may have; any if there are none.
    elsewhere : whether the command writes to object stores, too.
    """
    from mcnet._shared.disk_paths import is_url
    from mcnet.cli.sources import input_files
    from mcnet.cli.storage import url_exists

    target = Path(path)
    if is_url(path):
        if not elsewhere or path.startswith(("http:", "https:", "hf:")):
            raise InputError(f"{path} cannot be written from here; write to a file, and copy it there")
        if path in inputs:
            raise InputError(f"{path} is one of the files to read; write to another file")
        if not force and url_exists(path):
            raise InputError(f"{path} exists already; pass --force to overwrite it")
        return
    if path == "-":
        raise InputError("nothing is written to stdout but --json; name a file instead of -, or ./- if it is called so")
    if endings and target.suffix.lower() not in endings:
        kind = (
            {"parquet": "a Parquet file", "html": "an HTML page"}[endings[0][1:]]
            if ".csv" not in endings
            else "a table"
        )
        raise InputError(f"{target} will be {kind}; give it a name that ends in {' or '.join(endings)}")
    output_file(target)
    if not target.exists():
        return
    if inputs and any(target.samefile(source) for source in input_files(inputs)):
        raise InputError(f"{target} is one of the files to read; write to another file")
    if not force:
        raise InputError(f"{target} exists already; pass --force to overwrite it")


def plain_interrupts() -> None:
    """Let Python alone hear Ctrl-C: Polars hears it too, and aborts its threads with a page of backtraces."""
    if threading.current_thread() is threading.main_thread():
        import polars  # noqa: F401  (it listens from when it is imported)

        signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))


def row_count(files: Sequence[str]) -> int | None:
    """Return the number of rows if the files tell it without being read, for the length of a progress bar."""
    import polars as pl

    from mcnet.data.files import expand_paths, file_format, open_log, readable

    if any(file_format(path) not in ("parquet", "arrow") for path in expand_paths(list(files))):
        return None
    with readable(", ".join(files)):
        return int(open_log(list(files)).select(pl.len()).collect().item())


def read_sketch(printer: Printer, files: Sequence[str], *, title: str = "reading", **columns: Any) -> "Sketch":
    """Sketch logs, or add up saved sketches or the periods of a journal, with a progress bar."""
    from mcnet.cli.sources import journal_of, read_journal
    from mcnet.sketch.read import sketch_files

    plain_interrupts()
    journal = journal_of(files)
    if journal is not None:
        return read_journal(journal, **columns)
    total = row_count(files) if printer.lively else None
    with printer.progress(title, total) as advance:
        return sketch_files(list(files), **columns, progress=advance)


def columns_of(context: Any, files: Sequence[str], **found: Any) -> dict[str, Any]:
    """Return the options that say how logs are read, under the names that `read_sketch` takes.

    A saved sketch or a journal knows how its logs were read: what the configuration file says of logs is ignored.

    Parameters
    ----------
    context : the context of the command, which has its options.
    files : the logs.
    found : options that the command itself has found out, instead of those that were given.
    """
    from mcnet.cli.sources import is_finished

    options = {name: context.params[name] for name in SHARED_KEYS} | found
    if is_finished(files):
        options = {name: None if from_config(context, name) else value for name, value in options.items()}
    logits, negatives_kept = options.pop("logits", None), options.pop("negatives_kept", None)
    return {
        **options,
        "score_type": "logit" if logits else "probability",
        "negatives_kept": 1.0 if negatives_kept is None else negatives_kept,
    }


def with_time(columns: dict[str, Any], files: Sequence[str], time: str, every: str | None) -> dict[str, Any]:
    """Return the options of `read_sketch` with a column of time as a further field, cut to periods (days)."""
    from mcnet.cli.sources import is_finished

    finished = is_finished(files)
    fields = list(columns.get("field") or [])
    if time in fields:
        raise InputError(f"{time} is the column of time and a field; name it once, with --time")
    cut = {} if every is None and finished else {time: every or DEFAULT_PERIOD}
    # A saved sketch keeps all its fields unless some are named.
    return {**columns, "field": [*fields, time] if fields or not finished else None, "every": cut}


def by_period(sketch: "Sketch", time: str) -> "dict[str, Sketch]":
    """Return the sketch of each period; rows without a moment are refused."""
    from mcnet.data.fields import MISSING_LABEL
    from mcnet.sketch.split import sketches_by

    parts = sketches_by(sketch, time)
    if MISSING_LABEL in parts:
        rows = parts[MISSING_LABEL].rows
        raise InputError(f"{rows:,} rows have no moment in {time}; drop these rows, or give them one")
    return parts


def load_model(path: str) -> "CalibrationModel":
    """Load a model; say what a file is that is none."""
    from mcnet.data.files import file_format
    from mcnet.errors import FileFormatError
    from mcnet.model.file import load
    from mcnet.sketch.file import is_sketch_file

    file = Path(path)
    if is_sketch_file(file):
        raise FileFormatError(f"{file} is a sketch, not a model; fit one on it: mcnet fit {file} -o model.json")
    try:
        kind = file_format(file)
    except InputError:
        return load(file)
    raise FileFormatError(f"{file} is a {kind} file, not a model; a model is the JSON file that mcnet fit writes")


def score_type(model: "CalibrationModel", logits: bool | None) -> "ScoreType":
    """Return what kind of scores the model reads: as asked for, or as it was fitted."""
    if logits is None:
        return model.score_type
    return "logit" if logits else "probability"


def remembered(model: "CalibrationModel", name: str, given: str | None) -> str:
    """Return the column given, or the one the model was fitted on."""
    column = given or model.provenance.get("columns", {}).get(name)
    if not isinstance(column, str):
        raise InputError(f"the model does not say which column holds the {name}; pass --{name}")
    return column
