"""Files of a command: outputs that may be written, models that remember their columns."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mcnet._shared.atomic_files import output_file
from mcnet.errors import InputError

if TYPE_CHECKING:
    from mcnet._shared.typing import ScoreType
    from mcnet.cli.sources import RowSource
    from mcnet.model.model import CalibrationModel
    from mcnet.sketch.sketch import Sketch

__all__ = [
    "by_period",
    "check_output",
    "load_model",
    "remembered",
    "score_type",
]


def check_output(
    path: str, inputs: "Sequence[str | RowSource]", *, force: bool, endings: Sequence[str] = (), elsewhere: bool = False
) -> None:
    """Refuse, before any work is done, an output that is an input, exists, is no regular file or has another ending.

    Parameters
    ----------
    path : the output.
    inputs : what the command reads: files, and sources of rows.
    force : whether an output that exists is replaced.
    endings : the endings that its name may have; any if there are none.
    elsewhere : whether the command writes to object stores, too.
    """
    from mcnet._shared.disk_paths import is_url, local_path
    from mcnet.cli.storage import url_exists

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
        kind = (
            {"parquet": "a Parquet file", "html": "an HTML page"}[endings[0][1:]]
            if ".csv" not in endings
            else "a table"
        )
        raise InputError(f"{target} will be {kind}; give it a name that ends in {' or '.join(endings)}")
    output_file(target)
    if not target.exists():
        return
    files = [file for source in inputs for file in ([Path(source)] if isinstance(source, str) else source.on_disk)]
    if any(file.exists() and target.samefile(file) for file in files):
        raise InputError(f"{target} is one of the files to read; write to another file")
    if not force:
        raise InputError(f"{target} exists already; pass --force to overwrite it")


def by_period(sketch: "Sketch", time: str) -> "dict[str, Sketch]":
    """Return the sketch of each period; rows without a moment are refused."""
    from mcnet.data.fields import MISSING_LABEL
    from mcnet.sketch.split import sketches_by

    parts = sketches_by(sketch, time)
    if MISSING_LABEL in parts:
        rows = parts[MISSING_LABEL].rows
        raise InputError(f"{rows:,} rows have no timestamp in {time}; drop these rows, or give them one")
    return parts


def load_model(path: str) -> "CalibrationModel":
    """Load a model; say what a file is that is none."""
    from mcnet.data.files import file_format
    from mcnet.errors import FileFormatError
    from mcnet.model.file import load
    from mcnet.sketch.file import is_sketch_file

    file = Path(path)
    if is_sketch_file(path):
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
        raise InputError(f"the model does not know which column has the {name}; pass --{name}")
    return column
