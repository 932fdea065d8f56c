"""`mcnet apply`: calibrate logs of any size with a saved model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mcnet.cli import options

if TYPE_CHECKING:
    from mcnet.data.locations import Location

__all__ = ["apply"]


def apply(
    context: typer.Context,
    model: options.ModelFile,
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG",
            help="Parquet, CSV, JSONL or Arrow files, globs, folders or addresses (s3://...); or - for stdin.",
        ),
    ],
    output: options.Output,
    score: options.Score = None,
    # Not called `field`: what the configuration file says of fields is about logs to fit, and the model knows its own.
    field_columns: Annotated[
        list[str] | None,
        typer.Option(
            "--field",
            metavar="COLUMN",
            help="The column of the model's field, if it has another name here; for several, in the model's order.",
        ),
    ] = None,
    column: Annotated[
        str, typer.Option("--column", metavar="NAME", help="The name of the column to add.")
    ] = "calibrated",
    replace: Annotated[bool, typer.Option("--replace", help="Replace the column if the log has it already.")] = False,
    logits: options.Logits = None,
    interval: options.Interval = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="THRESHOLD",
            help="Exit with 1 if this holds: 'unseen>0.05', 'missing>0'; may be repeated.",
        ),
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Add the calibrated probability to every row of logs.

    All columns and the order of the rows are kept. Rows are streamed: a file of any size fits in memory. With
    --interval 0.9 two more columns have the bounds of a credible interval (models of mcnet-bayes have it). A row
    without a score gets no probability. How many there are is printed, and the share of rows with field values that
    the model has not seen; with --fail-if 'unseen>0.05' the exit code depends on it, after the output was written.

    -o - writes to stdout, in the format of the log.

    \b
    Example:
      mcnet apply model.json log.parquet -o calibrated.parquet
    """
    import time

    from mcnet.cli.config import printer_of
    from mcnet.cli.files import check_output, load_model, remembered, score_type
    from mcnet.cli.run import THRESHOLD_NOT_MET
    from mcnet.cli.signals import plain_interrupts
    from mcnet.cli.sources import source_of
    from mcnet.cli.storage import STANDARD_OUTPUT, write_to_standard_output
    from mcnet.cli.thresholds import MISSING, UNSEEN, Figures, broken_thresholds, parse_thresholds
    from mcnet.cli.unseen import unseen_note
    from mcnet.errors import InputError
    from mcnet.model.apply_files import Applied, apply_to_files
    from mcnet.model.unseen import UnseenValues

    printer = printer_of(context, json, quiet)
    thresholds = parse_thresholds(fail_if, [UNSEEN, MISSING])
    if output == STANDARD_OUTPUT and json:
        raise InputError("both the rows (-o -) and --json would go to stdout; name a file, or leave out --json")
    loaded, source = load_model(model), source_of(logs)
    if output != STANDARD_OUTPUT:
        check_output(output, [model, source], force=force, elsewhere=True)
    if source.finished:
        kind = "sketch" if source.sketched else "journal"
        raise InputError(f"{logs[0]} is a {kind}: it has no rows to calibrate; give the logs it was made of")
    plain_interrupts()
    unseen = UnseenValues(loaded)
    begin = time.perf_counter()

    def write(target: str | Path) -> Applied:
        return apply_to_files(
            loaded,
            source.paths,
            target,
            score=remembered(loaded, "score", score),
            field=field_columns or None,
            column=column,
            replace=replace,
            score_type=None if logits is None else score_type(loaded, logits),
            interval=interval,
            progress=advance,
            unseen=unseen,
        )

    with printer.progress("calibrating", source.row_count if printer.lively else None) as advance:
        if output == STANDARD_OUTPUT:
            done = write_to_standard_output(write, f".{_piped_format(source.paths[0])}")
        else:
            done = write(output)
    seconds, rows = time.perf_counter() - begin, done.rows
    printer.note(f"{rows:,} rows in {seconds:.1f} s ({rows / seconds / 1e6:.1f} M rows/s) → {output}")
    if done.missing:
        printer.note(f"{done.missing:,} of {rows:,} rows have no score and got no probability")
    unseen_note(printer, unseen)
    broken = broken_thresholds(thresholds, Figures(unseen=unseen.share, missing=done.missing_share))
    document = {"output": output, "rows": rows, "seconds": seconds, "column": column}
    printer.result({**document, MISSING: done.missing, UNSEEN: unseen.to_dict(), "broken": broken})
    for sentence in broken:
        printer.note(f"not met: {sentence}")
    if broken:
        raise typer.Exit(THRESHOLD_NOT_MET)


def _piped_format(log: "Location") -> str:
    """Return the format of what is written to stdout: that of the log, and Parquet for tables of lakes."""
    from mcnet.data.files import file_format

    kind = file_format(log)
    return "parquet" if kind in ("delta", "iceberg") else kind
