"""`mcnet sketch` and `mcnet merge`: make small tables of logs, and add them up."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcnet.cli import options
from mcnet.cli.run import Printer
from mcnet.rows.dialects import DIALECTS

if TYPE_CHECKING:
    from mcnet.cli.sources import RowSource
    from mcnet.sketch.sketch import Sketch


_WITHOUT_CAST = " or ".join(name for name, dialect in DIALECTS.items() if not dialect.casts_booleans)
"""The dialects that cast no booleans to numbers."""


def sketch(
    context: typer.Context,
    logs: Annotated[list[str] | None, typer.Argument(metavar="LOG", help=options.LOG_HELP)] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="The file to write, or - for stdout.")
    ] = None,
    score: options.Score = None,
    label: options.Label = None,
    field: options.Fields = None,
    weight: options.Weight = None,
    value: options.Value = None,
    value_per_positive: options.ValuePerPositive = None,
    propensity: options.Propensity = None,
    folds: options.Folds = 1,
    resolution: Annotated[
        str | None, options.option("--resolution", "N", "Cells per unit of logit (512), or exact.")
    ] = None,
    logits: options.Logits = None,
    negatives_kept: options.NegativesKept = 1.0,
    sql: Annotated[
        str | None,
        options.option(
            "--sql",
            "DIALECT",
            f"Print the query that makes the sketch in a database instead, for {' or '.join(DIALECTS)}.",
        ),
    ] = None,
    table: Annotated[
        str | None, options.option("--table", "NAME", "With --sql: the table or view with the rows.")
    ] = None,
    label_type: Annotated[
        str,
        options.option(
            "--label-type", "TYPE", f"With --sql: boolean for labels that are true or false in {_WITHOUT_CAST}."
        ),
    ] = "number",
    time: options.Moments = None,
    every: options.Every = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Sketch logs: one pass, one small table.

    Other commands accept the sketch instead of its logs, and sketches can be added (mcnet merge). With --sql the
    command prints a query instead; its result, saved as Parquet or CSV, is accepted as a LOG here.

    \b
    Example:
      mcnet sketch log.parquet --score pctr --label click --field country \\
          -o part1.parquet
      mcnet sketch --sql duckdb --table impressions --score pctr --label click
    """
    from mcnet.cli.options import printer_of
    from mcnet.cli.sources import STANDARD_OUTPUT, check_output, source_of, value_number, write_to_standard_output
    from mcnet.errors import InputError

    if sql is not None or table is not None:
        _print_query(context, sql, table, logs, output, resolution)
        return
    if value_number(value) is not None:
        raise InputError("--value is a number, which needs no sums: give it to mcnet evaluate instead")
    if not logs or output is None:
        lacking = "the logs to read" if not logs else "the file to write with -o"
        raise InputError(f"name {lacking}; or pass --sql and --table to get a query for a database")
    printer = printer_of(context, json, quiet)
    if output == STANDARD_OUTPUT and json:
        raise InputError("both the sketch (-o -) and --json would go to stdout; name a file, or leave out --json")
    source = source_of(logs)
    if output != STANDARD_OUTPUT:
        check_output(output, [source], force=force, endings=[".parquet"])
    made = _of_query_result(source)
    if made is None:
        if resolution is not None and source.finished:
            raise InputError(f"{logs[0]} was sketched before, at the resolution it has; leave out --resolution")
        spec = replace(source.spec(context), resolution=_resolution(resolution), folds=folds)
        made = source.read(printer, source.with_time(spec, time, every))
    if output == STANDARD_OUTPUT:
        write_to_standard_output(made.save, ".parquet")
    else:
        made.save(output)
    _report(printer, made, output)


def _resolution(typed: str | None) -> Any:
    from mcnet.rows.spec import DEFAULT_RESOLUTION

    if typed is None:
        return DEFAULT_RESOLUTION
    return int(typed) if typed.isdecimal() else typed


def _of_query_result(source: "RowSource") -> "Sketch | None":
    """Return the sketch of files that are results of a sketch query; None if they are logs."""
    from mcnet.rows.locations import read_options
    from mcnet.sketch.query_rows import ABOUT
    from mcnet.sketch.scan import has_column
    from mcnet.sketch.sketch import Sketch

    if source.finished or not has_column(source.paths, ABOUT):
        return None
    drop_missing = read_options().drop_missing
    return Sketch.merged([Sketch.from_table(path, drop_missing=drop_missing) for path in source.paths])


def _print_query(
    context: typer.Context,
    dialect: str | None,
    table: str | None,
    logs: list[str] | None,
    output: str | None,
    resolution: str | None,
) -> None:
    """Print the query that makes the sketch where the rows are."""
    from mcnet.cli.sources import value_number
    from mcnet.errors import InputError
    from mcnet.rows.locations import read_options
    from mcnet.sketch.query import sketch_query

    if dialect is None or table is None:
        raise InputError("--sql DIALECT and --table NAME go together: a query for a table of a database")
    if logs or output is not None:
        raise InputError("--sql prints a query and reads no logs; leave out the logs and -o")
    given = context.params
    if given["propensity"] is not None:
        raise InputError("--propensity is for logs; in a database, make weights of it in a view")
    if value_number(given["value"]) is not None:
        raise InputError("--value is a number, which needs no sums: give it to mcnet evaluate instead")
    if given["score"] is None or given["label"] is None:
        raise InputError(f"name the columns of {table} with --score and --label")
    fields, every = list(given["field"] or []), {}
    if given["time"] is not None:
        fields.append(given["time"])
        every = {given["time"]: given["every"] or "1d"}
    query = sketch_query(
        table,
        dialect=dialect,
        score=given["score"],
        label=given["label"],
        field=fields,
        weight=given["weight"],
        folds=given["folds"],
        resolution=_resolution(resolution),
        score_type="logit" if given["logits"] else "probability",
        negatives_kept=given["negatives_kept"],
        every=every,
        where=read_options().where,
        label_type=given["label_type"],
        value=given["value"],
        value_per_positive=given["value_per_positive"],
    )
    typer.echo(query + ";")


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
    from mcnet.cli.sources import check_output, source_of
    from mcnet.sketch.sketch import Sketch

    printer = Printer(json, quiet)
    source = source_of(sketches)
    check_output(output, [source], force=force, endings=[".parquet"])
    total = Sketch.merged([Sketch.load(path) for path in source.paths])
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
