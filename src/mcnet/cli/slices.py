"""`mcnet slices`, `mcnet fields`: which values of any column are still off, and which columns to take as fields."""

from typing import Annotated

import typer

from mcnet.cli import options
from mcnet.errors import InputError


def slices(
    context: typer.Context,
    logs: Annotated[list[str], typer.Argument(metavar="LOG", help=f"{options.LOG_FILES}; or - for stdin.")],
    score: options.Score = None,
    label: options.Label = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="FILE", help="Judge this model's probabilities, not the scores.")
    ] = None,
    weight: options.Weight = None,
    exclude: options.Exclude = None,
    logits: options.LogitsOfModel = None,
    negatives_kept: options.NegativesKeptOfModel = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find where scores, or a model, are still wrong.

    Every column of the log is looked at, whether it is a field of the model or not: strings and whole numbers as they
    are, other numbers in bins, of timestamps the hour, the weekday and the hour of the week. The values that are off
    beyond noise are listed, false discoveries controlled, with PCOC, its interval, and PCOC freed of noise. One number
    sums it up: the multicalibration error, beside what noise alone gives. The columns that would save log-loss as
    fields come last: give them to --field.

    \b
    Example:
      mcnet slices log.parquet --score pctr --label click
      mcnet slices log.parquet --model model.json --exclude day
    """
    from mcnet.cli.options import printer_of
    from mcnet.cli.run import plain_interrupts
    from mcnet.cli.sources import load_model, remembered, remembered_negatives, score_type, source_of
    from mcnet.metrics.slices import find_slices

    printer = printer_of(context, json, quiet)
    source = source_of(logs)
    if source.finished:
        raise InputError(f"{logs[0]} was sketched before and has no other columns; give the log itself")
    loaded = None if model is None else load_model(model)
    given = logits is not None
    if loaded is not None:
        score, label = remembered(loaded, "score", score), remembered(loaded, "label", label)
        logits = score_type(loaded, logits) == "logit"
        weight = weight or loaded.provenance.get("columns", {}).get("weight")
        negatives_kept = remembered_negatives(printer, loaded, negatives_kept)
    if score is None or label is None:
        raise InputError("name the columns with --score and --label")
    spec = source.spec(
        context, score=score, label=label, field=None, weight=weight, logits=logits, negatives_kept=negatives_kept
    )
    plain_interrupts()
    length = None if not printer.lively or source.row_count is None else 2 * source.row_count
    with printer.progress("reading twice", length) as advance:
        found = find_slices(source.paths, spec, loaded, exclude or (), type_given=given, progress=advance)
    printer.result({"model": model, **found.to_dict()}, str(found))


# `mcnet fields`: which columns are worth being fields.


def fields(
    context: typer.Context,
    logs: Annotated[list[str], typer.Argument(metavar="LOG", help=f"{options.LOG_FILES}; or - for stdin.")],
    score: options.Score = None,
    label: options.Label = None,
    weight: options.Weight = None,
    time: Annotated[
        str | None,
        typer.Option("--time", metavar="COLUMN", help="The column of timestamps: spans of time are held back."),
    ] = None,
    exclude: options.Exclude = None,
    value: options.Value = None,
    value_per_positive: options.ValuePerPositive = None,
    propensity: options.Propensity = None,
    logits: options.Logits = None,
    negatives_kept: options.NegativesKept = 1.0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find the columns that are worth being fields.

    Candidates are columns of few values, whole numbers, other numbers in bins (age:number), and of timestamps the hour,
    the weekday and the hour of the week (ts:hour). One after the other, the column that lowers the log-loss of rows
    held back most is chosen, until its gain may be noise. Of more than 2 million rows a sample is searched. Columns
    that look like outcomes are named and not chosen; only you know what is known when a score is served, so leave out
    the rest with --exclude. fit, compare and update make the same choice with --fields auto.

    \b
    Example:
      mcnet fields log.parquet --score pctr --label click
    """
    from mcnet.cli.options import printer_of
    from mcnet.cli.run import plain_interrupts
    from mcnet.cli.sources import source_of

    printer = printer_of(context, json, quiet)
    source = source_of(logs)
    spec = source.spec(context, field=None)
    plain_interrupts()
    found = source.find_fields(printer, spec, time, exclude or ())
    printer.result(found.to_dict(), str(found))
