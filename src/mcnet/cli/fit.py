"""`mcnet fit`, `fields`, `apply`, `methods` and `demo`: logs to a saved model, and the model to logs."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from mcnet._shared.messages import counted, figure
from mcnet.cli import options
from mcnet.cli.run import Printer, plain_interrupts, table, unseen_note
from mcnet.errors import InputError, NotSupportedError

# `mcnet fit`: logs to a saved model.


def fit(
    context: typer.Context,
    logs: options.Logs,
    output: options.Output,
    score: options.Score = None,
    label: options.Label = None,
    field: options.Fields = None,
    fields: options.AutoFields = None,
    exclude: options.NoFields = None,
    weight: options.Weight = None,
    propensity: options.Propensity = None,
    time: options.Time = None,
    every: options.Every = None,
    method: options.Method = "mcnet-bayes",
    parameters: options.Parameters = None,
    logits: options.Logits = None,
    negatives_kept: options.NegativesKept = 1.0,
    since: options.Since = None,
    until: options.Until = None,
    half_life: options.HalfLife = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit a method on logs and save the model.

    The rows are read once and sketched. The model remembers the names of its columns, so apply needs no options for
    them. With --time the fit learns from how periods differ: rows of one day are not independent. A journal is split
    into periods already; --since, --until and --half-life choose and weight them.

    \b
    Example:
      mcnet fit log.parquet --score pctr --label click --field country \\
          -o model.json
    """
    from mcnet.calibrators.methods import calibrator
    from mcnet.cli.sources import by_period, check_output, remember_periods, source_of

    printer = options.printer_of(context, json, quiet)
    source = source_of(logs)
    source.refuse_time(time)
    check_output(output, [source], force=force)
    chosen = calibrator(method, **options.parse_settings(parameters))
    if every is not None and time is None:
        raise InputError("--every cuts a column of time to periods; pass --time too")
    spec = source.with_fields(printer, source.spec(context), fields, time, exclude)
    spec = source.with_time(spec, time, every)
    chosen_periods = source.chosen_periods(since=since, until=until, half_life=half_life)
    sketch = source.read(printer, spec, **chosen_periods)
    parts = source.periods(spec.fields, since, until) if time is None else by_period(sketch, time)
    with printer.steps(f"fitting {chosen.method}"):
        # Rows that count less with age are no blocks of independent rows: they are fitted as their sum.
        alike = parts is None or half_life is not None
        model = (chosen.fit_sketch(sketch) if alike or parts is None else chosen.fit_journal(parts)).model_
    if parts is not None:
        model = remember_periods(model, list(parts))
    model.save(output)
    printer.note(f"{counted(sketch.rows, 'row')}, {counted(sketch.total_positives, 'positive')} → {model} → {output}")
    for name, number in model.provenance.get("pooled_values", {}).items():
        known = len(model.contexts.values[model.fields.index(name)])
        printer.note(f"{number:,} of {known:,} values of {name} have too few rows for their own curve: pooled")
    for name, values in zip(model.fields, model.contexts.values, strict=True):
        if len(values) == 1 and len(sketch.contexts) == 1:
            printer.note(f"the field {name} has one value in all rows, and so tells nothing")
    for name in model.provenance.get("left_out_fields", []):
        printer.note(f"the field {name} adds nothing to the others: left out")
    printer.result({"output": output, "method": model.method, **model.provenance})


# `mcnet fields`: which columns are worth being fields.


def fields(
    context: typer.Context,
    logs: options.LogFiles,
    score: options.Score = None,
    label: options.Label = None,
    weight: options.Weight = None,
    time: Annotated[
        str | None, options.option("--time", "COLUMN", "The column of timestamps: spans of time are held back.")
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
    from mcnet.cli.sources import source_of

    printer = options.printer_of(context, json, quiet)
    source = source_of(logs)
    spec = source.spec(context, field=None)
    plain_interrupts()
    found = source.find_fields(printer, spec, time, exclude or ())
    printer.result(found.to_dict(), str(found))


# `mcnet apply`: calibrate logs of any size with a saved model.


def apply(
    context: typer.Context,
    model: options.ModelFile,
    logs: options.LogFiles,
    output: options.Output,
    score: options.Score = None,
    # Not called `field`: what the configuration file says of fields is about logs to fit, and the model knows its own.
    field_columns: Annotated[
        list[str] | None,
        options.option(
            "--field",
            "COLUMN",
            "The column of the model's field, if it has another name here; for several, in the model's order.",
        ),
    ] = None,
    column: Annotated[str, options.option("--column", "NAME", "The name of the column to add.")] = "calibrated",
    replace: Annotated[bool, typer.Option("--replace", help="Replace the column if the log has it already.")] = False,
    logits: options.LogitsOfModel = None,
    interval: options.Interval = None,
    fail_if: Annotated[
        list[str] | None,
        options.option(
            "--fail-if", "THRESHOLD", "Exit with 1 if this holds: 'unseen>0.05', 'missing>0'; may be repeated."
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

    from mcnet.cli.sources import (
        STANDARD_OUTPUT,
        check_output,
        load_model,
        remembered,
        score_type,
        source_of,
        write_to_standard_output,
    )
    from mcnet.cli.thresholds import MISSING, UNSEEN, Figures, broken_thresholds, end_if_broken, parse_thresholds
    from mcnet.model.apply import Applied, NewColumn, UnseenValues, apply_to_files
    from mcnet.rows.locations import FORMATS
    from mcnet.rows.logs import file_format

    printer = options.printer_of(context, json, quiet)
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
            column=NewColumn(column, replace, interval),
            score_type=None if logits is None else score_type(loaded, logits),
            progress=advance,
            unseen=unseen,
        )

    with printer.progress("calibrating", source.row_count if printer.lively else None) as advance:
        if output == STANDARD_OUTPUT:
            endings = file_format(source.paths[0]).endings or FORMATS["parquet"].endings
            done = write_to_standard_output(write, endings[0])
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
    end_if_broken(printer, broken)


# `mcnet methods`: list the methods.

TWO_MCNETS = (
    "mcnet-bayes, the default of mcnet fit, is this project's own model: a few numbers per field value under priors\n"
    "whose strengths are learnt (empirical Bayes). It fits in seconds, needs few rows per value, and has intervals.\n"
    "mcnet is the published model (WWW 2025): one monotone neural network per score bin. It takes longer and needs\n"
    "the extra networks. Take it to reproduce or extend the paper, mcnet-bayes otherwise.\n"
    "mcnet-none is mcnet without the field, one curve for all rows; a comparison has both."
)
"""What the two MCNets are, how they differ, and when to take which."""


def methods(json: options.Json = False, quiet: options.Quiet = False) -> None:
    """List the methods, simplest first.

    \b
    Example:
      mcnet methods
    """
    from mcnet.calibrators.methods import methods as names

    uses = {"none": "no", "optional": "if given", "required": "needed", "unknown": "?"}
    entries = [_entry(name) for name in names()]
    lines = [
        (e["method"], uses[e["field"]], {True: "yes", False: "no", None: "?"}[e["keeps_order"]], e["summary"])
        for e in entries
    ]
    headings = ("method", "field", "keeps order", "what it is")
    Printer(json, quiet).result({"methods": entries}, table(headings, lines, left=4), f"\n{TWO_MCNETS}")


def _entry(name: str) -> dict[str, Any]:
    """Return what is known of a method; where a library that it needs is missing, how to install it."""
    from mcnet.calibrators.methods import calibrator

    try:
        made = calibrator(name)
    except NotSupportedError as error:
        return {"method": name, "field": "unknown", "keeps_order": None, "parameters": {}, "summary": str(error)}
    return {
        "method": name,
        "field": made.field_use,
        "keeps_order": bool(made.monotone),
        "parameters": made._plain_parameters(),
        "summary": (type(made).__doc__ or "").strip().splitlines()[0],
    }


# `mcnet demo`: compare the methods on simulated rows whose true probabilities are known.


_DEMO_HOURS = 48


def demo(
    rows: Annotated[int, options.option("--rows", "N", "Rows to fit on, and as many to judge on.", min=1000)] = 300_000,
    seed: Annotated[int, options.option("--seed", "N", "Seed of the simulation.", min=0)] = 0,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the simulated rows, to try the other commands on (Parquet)."
        ),
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare every method on a simulated click log.

    The truth is known. The log is shaped like AliExpress: four field values of very different size, a CTR of 2 %. The
    rows that --output writes lie in the 48 hours before now, by the column ts, to try `mcnet update` on.

    \b
    Example:
      mcnet demo --rows 100000
    """
    import polars as pl

    from mcnet._shared.files import whole_file
    from mcnet.cli.sources import check_output
    from mcnet.selection import demo_log, demonstrate

    printer = Printer(json, quiet)
    if output is not None:
        check_output(output, [], force=force, endings=(".parquet",))
    with printer.steps("simulating") as step:
        log = demo_log(rows, seed)
        if output is not None:
            now = datetime.now(UTC).replace(tzinfo=None, minute=0, second=0, microsecond=0)
            hours = pl.int_range(pl.len()) * _DEMO_HOURS // pl.len() - _DEMO_HOURS
            with whole_file(output) as part:
                log.frame().with_columns(ts=pl.lit(now) + pl.duration(hours=hours)).write_parquet(part)
        sketch, lines, failed = demonstrate(log, progress=step)
    lines = sorted(lines, key=lambda line: line.evaluation.log_loss)  # the best first, as in compare
    metrics = ("pcoc", "f_rce", "auc", "log_loss", "excess_log_loss")
    shown = [
        (
            line.method,
            figure(line.evaluation.pcoc, 3),
            f"{line.evaluation.f_rce:.4f}",
            f"{line.evaluation.floor('f_rce'):.4f}",
            f"{line.evaluation.auc:.4f}",
            f"{line.evaluation.log_loss:.5f}",
            f"{1e5 * line.evaluation.excess_log_loss:.1f}",
            f"{line.fit_seconds:.2f}",
        )
        for line in lines
    ]
    headings = ("method", "PCOC", "F-RCE", "floor", "AUC", "log-loss", "excess ×10⁻⁵", "fit s")
    printer.result(
        {
            "rows": rows,
            "seed": seed,
            "failed": failed,
            "methods": [
                {
                    "method": line.method,
                    "fit_seconds": line.fit_seconds,
                    **{metric: getattr(line.evaluation, metric) for metric in metrics},
                    "f_rce_floor": line.evaluation.floor("f_rce"),
                }
                for line in lines
            ],
        },
        f"{rows:,} simulated impressions, {sketch.total_positives:,.0f} clicks, {len(sketch.contexts)} field values → "
        f"a sketch of {len(sketch):,} cells; judged on {rows:,} others.\n",
        table(headings, shown),
        "\nPCOC is predicted over observed clicks (1 is right), F-RCE the mean relative error by field value;\n"
        "its floor is what noise alone gives.\n"
        "The excess is the log-loss over that of the true probabilities, which only a simulation knows.\n",
        TWO_MCNETS,
    )
    if output is not None:
        printer.note(f"{len(log):,} simulated rows → {output}")
    for method, reason in failed.items():
        printer.note(f"{method} failed: {reason}")
