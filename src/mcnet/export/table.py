"""Curves as tables."""

import json
import re
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from mcnet._shared.files import whole_file
from mcnet._shared.messages import warn
from mcnet.errors import Advice, InputError
from mcnet.export.pieces import Exported, free_name, stamp, stamp_line, warn_of_size
from mcnet.export.targets import Target
from mcnet.model.model import CalibrationModel
from mcnet.rows.contexts import ANY

if TYPE_CHECKING:
    import polars as pl

_FORMATS = ("parquet", "csv")
_BYTES_PER_KNOT = {"parquet": 18, "csv": 60}
_NUMBERS = ("curve", "knot", "score", "probability")


def knot_table(exported: Exported) -> "pl.DataFrame":
    """Return the knots of every curve, one per row: the context, curve, knot, score, probability.

    A field has two columns: its value, and after it NAME_is, which tells a "value" from "missing" and "any" (any value
    not listed). Curve 0 is the pooled one, for every combination that has no curve of its own. A curve is straight
    between two knots, flat outside them, and has its right value where two knots have one score.

    >>> from mcnet.curves.curves import Curves
    >>> from mcnet.rows.contexts import Contexts
    >>> table = knot_table(Exported(Contexts.none(), Curves.constant(0.25)))
    >>> table.rows()
    [(0, 0, 0.5, 0.25)]
    """
    import polars as pl

    curves = exported.curves
    sizes = np.diff(curves.value_start)
    rows = np.repeat(np.arange(len(curves)), sizes)
    columns: dict[str, pl.Series] = {}
    for field, name in enumerate(exported.contexts.names):
        known = exported.contexts.values[field]
        codes = [ANY, *exported.contexts.table[:, field].tolist()]
        strings = [None if code == ANY else known[code] for code in codes]
        kinds = ["any" if code == ANY else "missing" if known[code] is None else "value" for code in codes]
        value = free_name(name, [*_NUMBERS, *columns])
        columns[value] = pl.Series(strings, dtype=pl.String).gather(rows)
        columns[free_name(f"{value}_is", [*_NUMBERS, *columns])] = pl.Series(kinds, dtype=pl.String).gather(rows)
    return pl.DataFrame(
        {
            **columns,
            "curve": rows.astype(np.int32),
            "knot": (np.arange(len(rows)) - np.repeat(curves.value_start[:-1], sizes)).astype(np.int32),
            "score": np.concatenate([curves.grid(curve) for curve in range(len(curves))]),
            "probability": curves.probabilities,
        }
    )


def export_table(
    model: CalibrationModel, path: str | PathLike[str], *, format: Literal["parquet", "csv"] | None = None
) -> None:
    """Write the knots as Parquet (origin in the file's metadata) or CSV (origin as JSON in a first line, after "# ").

    Parameters
    ----------
    format : "parquet" or "csv"; by default what the name of the file ends in.
    """
    if format not in (None, *_FORMATS):
        raise InputError(f"format is {format!r}; it must be 'parquet' or 'csv'")
    chosen = format or Path(path).suffix.removeprefix(".").lower()
    if chosen not in _FORMATS:
        advice = Advice("pass {format}", shell="pass --set format=csv", format=None)
        raise InputError(f"a table is written as parquet or csv, and {str(path)!r} ends in neither", advice=advice)
    exported = Exported.of(model)
    origin = stamp(model, exported, "probability")
    knots = len(exported.curves.probabilities)
    warn_of_size(f"{chosen} table", knots * _BYTES_PER_KNOT[chosen], knots)
    if model.score_type == "logit":
        warn("the model was fitted on logits z, and its table is of probabilities: look up 1 / (1 + exp(-z))")
    table = knot_table(exported)
    with whole_file(path) as part:
        if chosen == "parquet":
            described = {k: v if isinstance(v, str) else json.dumps(v) for k, v in origin.items()}
            table.write_parquet(part, metadata=described)
        else:
            # A text in quotes and an empty field tell "" from a missing value.
            body = table.write_csv(quote_style="non_numeric", null_value="")
            # Readers of CSV look for the end of a quote even in a line they skip, so that every quote must have one: an
            # escaped quote inside a text, which has none, is written by its number.
            line = re.sub(r"\\(.)", lambda pair: r"\u0022" if pair[1] == '"' else pair[0], stamp_line(origin))
            part.write_text(f"# {line}\n{body}", encoding="utf-8", newline="\n")


TARGET = Target("table", (".parquet", ".csv"), export_table)
