"""`mcnet sketch` and `mcnet merge`: make small tables of logs, and add them up."""

from typing import TYPE_CHECKING, Annotated

import typer

from mcnet.cli import options
from mcnet.cli.printing import Printer

if TYPE_CHECKING:
    from mcnet.sketch.sketch import Sketch

__all__ = ["merge", "sketch"]


def sketch(
    context: typer.Context,
    logs: options.Logs,
    output: options.Output,
    score: options.Score = None,
    label: options.Label = None,
    field: options.Fields = None,
    weight: options.Weight = None,
    folds: options.Folds = 1,
    resolution: Annotated[
        str | None, typer.Option("--resolution", metavar="N", help="Cells per unit of logit (512), or exact.")
    ] = None,
    logits: options.Logits = None,
    negatives_kept: options.NegativesKept = 1.0,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Sketch logs: one pass, one small table.

    The sketch stands for its logs in every other command, and sketches add up.

    \b
    Example:
      mcnet sketch log.parquet --score pctr --label click --field country \\
          -o part1.parquet
    """
    from mcnet.cli.config import printer_of
    from mcnet.cli.files import check_output, columns_of, read_sketch

    printer = printer_of(context, json, quiet)
    check_output(output, logs, force=force, endings=[".parquet"])
    columns = columns_of(context, logs)
    columns["resolution"] = int(resolution) if resolution is not None and resolution.isdecimal() else resolution
    made = read_sketch(printer, logs, **columns, folds=folds)
    made.save(output)
    _report(printer, made, output)


def merge(
    sketches: Annotated[list[str], typer.Argument(metavar="SKETCH", help="Saved sketches, globs or folders.")],
    output: options.Output,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Add sketches up: of shards, of hours, of machines.

    \b
    Example:
      mcnet merge part*.parquet -o all.parquet
    """
    from mcnet.cli.files import check_output
    from mcnet.data.files import expand_paths
    from mcnet.sketch.sketch import Sketch

    printer = Printer(json, quiet)
    check_output(output, sketches, force=force, endings=[".parquet"])
    total = Sketch.merged([Sketch.load(path) for path in expand_paths(sketches)])
    total.save(output)
    _report(printer, total, output)


def _report(printer: Printer, made: "Sketch", output: str) -> None:
    printer.note(f"{made} → {output}")
    printer.result(
        {
            "output": output,
            "rows": made.rows,
            "weight": made.total_weight,
            "positives": made.total_positives,
            "cells": len(made),
            "fields": list(made.contexts.names),
            "contexts": len(made.contexts),
            "folds": made.folds,
        }
    )
