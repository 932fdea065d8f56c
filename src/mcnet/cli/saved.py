"""What is saved as files: `mcnet sketch` and `merge` make and add sketches, `show` and `export` read a model."""

import os
from dataclasses import replace
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcnet._shared.messages import aligned, figure, shown_value
from mcnet.cli import options
from mcnet.cli.run import Printer, file_size
from mcnet.cli.run import table as text_table
from mcnet.errors import InputError
from mcnet.rows.sql_dialects import DIALECTS

if TYPE_CHECKING:
    from mcnet.cli.sources import RowSource
    from mcnet.model.model import CalibrationModel
    from mcnet.sketch.sketch import Sketch

# `mcnet sketch` and `mcnet merge`: make small tables of logs, and add them up.

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
    time: options.Timestamps = None,
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
    from mcnet.cli.sources import STANDARD_OUTPUT, check_output, source_of, value_number, write_to_standard_output

    if sql is not None or table is not None:
        _print_query(context, sql, table, logs, output, resolution)
        return
    if value_number(value) is not None:
        raise InputError("--value is a number, which needs no sums: give it to mcnet evaluate instead")
    if not logs or output is None:
        lacking = "the logs to read" if not logs else "the file to write with -o"
        raise InputError(f"name {lacking}; or pass --sql and --table to get a query for a database")
    printer = options.printer_of(context, json, quiet)
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


# `mcnet show`: describe and draw a saved model in the terminal.

_SHOWN_SCORES = 5


def show(
    model: options.ModelFile,
    contexts: Annotated[
        int, options.option("--contexts", "N", "Show this many contexts, the largest first.", min=0)
    ] = 8,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show what a model is and what it does.

    \b
    Example:
      mcnet show model.json
    """
    from mcnet.cli.sources import load_model

    loaded = load_model(model)
    Printer(json, quiet).result(
        {
            "method": loaded.method,
            "monotone": loaded.monotone,
            "parameters": loaded.parameters,
            "fields": {name: len(v) for name, v in zip(loaded.fields, loaded.contexts.values, strict=True)},
            "contexts": loaded.context_count,
            "knots": len(loaded.curves.probabilities),
            "provenance": loaded.provenance,
        },
        _facts(loaded),
        "",
        *_contributions(loaded),
        *_pictures(loaded, contexts),
    )


def _facts(model: "CalibrationModel") -> str:
    """Return what a model is; of its parameters those that are not the method's own defaults."""
    from mcnet.calibrators.methods import default_parameters
    from mcnet.model.drawing import model_facts

    usual = default_parameters(model.method)
    chosen = {name: value for name, value in model.parameters.items() if name not in usual or usual[name] != value}
    known = ", ".join(f"{name}={value}" for name, value in chosen.items())
    lines = [("method", model.method + (f" ({known})" if known else "")), *model_facts(model)]
    return "\n".join(f"{name:<12}{value}" for name, value in lines)


def _contributions(model: "CalibrationModel") -> list[str]:
    """Return what each field contributes and its strongest values, if the model knows it."""
    from mcnet.model.drawing import CONTRIBUTIONS_EXPLAINED, contribution_tables

    tables = [aligned(lines) for lines in contribution_tables(model) if lines]
    return ["\n\n".join([*tables, fill(CONTRIBUTIONS_EXPLAINED, 100)]), ""] if tables else []


def _pictures(model: "CalibrationModel", contexts: int) -> list[Any]:
    """Return a table of a few scores and a plot of the pooled curve, over the range of the fit."""
    import numpy as np

    from mcnet._shared.arrays import logit, sigmoid
    from mcnet.curves.evaluate import Evaluator
    from mcnet.model.drawing import largest_lines
    from mcnet.plots.style import terminal_plot

    ends = np.array([model.provenance.get("lowest_score", 0.001), model.provenance.get("highest_score", 0.999)])
    low, high = logit(np.clip(ends, 1e-6, 1.0 - 1e-6))
    scores = sigmoid(np.linspace(low, high, _SHOWN_SCORES))
    evaluate = Evaluator(model.curves)
    if model.sums_up:
        drawn = largest_lines(model, contexts, points=_SHOWN_SCORES)
        names = ["any other", *(shown_value(line.label) for line in drawn[1:])]
        lines = [(name, *(figure(p) for p in line.probability)) for name, line in zip(names, drawn, strict=True)]
    else:
        shown = [0, *(1 + index for index in _largest_first(model, contexts))]
        names = ["any other" if model.fields else "all", *(model.contexts.labels() if model.fields else [])]
        names = [shown_value(name) for name in names]
        lines = [(names[curve], *(figure(p) for p in evaluate(scores, np.full(len(scores), curve)))) for curve in shown]
    result: list[Any] = [text_table(("score", *(figure(score) for score in scores)), lines)]
    rest = 1 + model.context_count - len(lines)
    if rest:
        result.append(f"… and {rest:,} more contexts (--contexts N)")
    fine = sigmoid(np.linspace(low, high, 400))
    plot = {"score": (fine, fine), "calibrated": (fine, np.maximum(evaluate(fine), 0.1 * fine[0]))}
    title = f"\ncalibrated probability over score, {names[0]}; the diagonal is the score itself"
    return [*result, title, terminal_plot(plot)]


def _largest_first(model: "CalibrationModel", number: int) -> list[int]:
    """Return the indices of so many contexts: those that the history names as the largest, then the others in order."""
    curves = range(len(model.curves) - 1)
    named = model.provenance.get("largest_contexts") or [] if model.fields else []
    largest = [model.contexts.find(values) for values in named if len(values) == len(model.fields)]
    return list(dict.fromkeys([*(index for index in largest if index in curves), *curves]))[:number]


# `mcnet export`: write a model in the language of the system that serves it.


def export(
    model: options.ModelFile,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="The file to write; by default beside the model."),
    ] = None,
    to: Annotated[str | None, options.option("--to", "TARGET", "The target, if the file's name does not say.")] = None,
    parameters: Annotated[
        list[str] | None, options.option("--set", "NAME=VALUE", "An option of the target; may be repeated.")
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Export a model to ONNX, C, SQL or a table of knots.

    \b
    Targets, and their options for --set:
      onnx    number_type=double|float, field_type=string|int64,
              missing=TEXT and missing_number=N for a missing value,
              score_type=probability|logit, if not as in the fit
      c       name=PREFIX of every name in the header,
              score_type=probability|logit
      sql     dialect=DIALECT, as for mcnet sketch --sql,
              source=TABLE, score=COLUMN,
              fields={"FIELD":"COLUMN"}, output=COLUMN, form=auto|case|tables,
              tables=PREFIX of the tables that are made,
              score_type=probability|logit
      table   format=parquet|csv

    \b
    Example:
      mcnet export model.json --to onnx
      mcnet export model.json -o calibrate.h --set name=ctr
      mcnet export model.json --to sql -o calibrate.sql --set dialect=bigquery
    """
    from mcnet.cli.sources import check_output, load_model
    from mcnet.export.targets import default_path, export_model, option_from_text, target_of, targets

    printer = Printer(json, quiet)
    chosen = options.parse_settings(parameters, option_from_text)
    if output is None:
        if to is None:
            raise InputError(f"name the target with --to ({', '.join(targets())}), or the file with --output")
        output = str(default_path(model, to, **chosen))
    to = target_of(output, to)
    check_output(output, [model], force=force)
    loaded = load_model(model)
    export_model(loaded, output, to=to, **chosen)
    size = os.path.getsize(output)
    printer.note(f"{loaded} → {output} ({file_size(size)})")
    printer.result({"output": output, "to": to, "method": loaded.method, "bytes": size})
