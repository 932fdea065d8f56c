"""What learns from logs: `mcnet fit`, `fields`, `sketch` and `merge`, `methods`, `demo`."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from mcnet._shared.files import whole_file
from mcnet._shared.messages import count, counted, figure
from mcnet.cli import options
from mcnet.cli.options import Columns
from mcnet.cli.run import Printer, plain_interrupts, table
from mcnet.cli.sources import (
    DEFAULT_PERIOD,
    STANDARD_OUTPUT,
    by_period,
    check_output,
    check_periods,
    remember_periods,
    source_of,
    write_to_standard_output,
)
from mcnet.errors import InputError, NotSupportedError
from mcnet.rows.locations import read_options
from mcnet.rows.sql_dialects import DIALECTS

if TYPE_CHECKING:
    from mcnet.cli.sources import RowSource
    from mcnet.sketch.sketch import Sketch

# `mcnet fit`: logs to a saved model.


def fit(
    logs: list[str] = options.LOGS,
    output: str = options.OUTPUT,
    columns: Columns = options.columns(
        *("field", "fields", "exclude", "propensity"),
        time="The column of timestamps: learn from how periods differ.",
        every=options.CUT_TIME,
    ),
    method: str = options.option(
        "NAME", "The method; mcnet methods lists them.", "mcnet-bayes", autocompletion=options.complete_methods
    ),
    parameters: list[str] | None = options.option(
        "NAME=VALUE", "A parameter of the method; may be repeated.", None, "--set"
    ),
    since: str | None = options.SINCE,
    until: str | None = options.UNTIL,
    half_life: float | None = options.option("N", "Of a journal: the weight of rows halves every N periods."),
    force: bool = options.FORCE,
    printer: Printer = options.PRINTER,
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

    source = source_of(logs)
    check_periods(columns, source)
    check_output(output, [source], force=force)
    chosen = calibrator(method, **options.parse_settings(parameters))
    spec = source.with_time(source.with_fields(printer, columns), columns.time, columns.every)
    sketch = source.read(printer, spec, since=since, until=until, half_life=half_life)
    parts = source.periods(spec.fields, since, until) if columns.time is None else by_period(sketch, columns.time)
    with printer.steps(f"fitting {chosen.method}"):
        # Rows that count less with age are no blocks of independent rows: they are fitted as their sum.
        alike = parts is None or half_life is not None
        model = (chosen.fit_sketch(sketch) if alike or parts is None else chosen.fit_journal(parts)).model_
    if parts is not None:
        model = remember_periods(model, list(parts))
    model.save(output)
    weight = "" if sketch.total_weight == sketch.rows else f", weight {count(sketch.total_weight)}"
    positives = f"{counted(sketch.total_positives, 'positive')}{' by weight' if weight else ''}"
    printer.note(f"{counted(sketch.rows, 'row')}{weight}, {positives} → {model} → {output}")
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
    logs: list[str] = options.LOG_FILES,
    columns: Columns = options.columns(
        *("value", "value_per_positive", "propensity"),
        exclude=options.LEFT_OUT,
        time="The column of timestamps: spans of time are held back.",
    ),
    printer: Printer = options.PRINTER,
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
    source = source_of(logs)
    plain_interrupts()
    search = source.find_fields(printer, columns)
    printer.result(search.to_dict(), str(search))


# `mcnet sketch` and `mcnet merge`: make small tables of logs, and add them up.

_WITHOUT_CAST = " or ".join(name for name, dialect in DIALECTS.items() if not dialect.casts_booleans)
"""The dialects that cast no booleans to numbers."""


def sketch(
    logs: list[str] | None = options.argument("LOG", options.LOG_HELP, None),
    output: str | None = options.option("FILE", "The file to write, or - for stdout.", None, "--output", "-o"),
    columns: Columns = options.columns(
        *("field", "value", "value_per_positive", "propensity", "time"), every=options.CUT_TIME
    ),
    folds: int = options.option("N", "Split the rows into this many folds.", 1),
    resolution: str | None = options.option("N", "Cells per unit of logit (512), or exact."),
    sql: str | None = options.option(
        "DIALECT", f"Print the query that makes the sketch in a database instead, for {' or '.join(DIALECTS)}."
    ),
    table: str | None = options.option("NAME", "With --sql: the table or view with the rows."),
    label_type: str = options.option(
        "TYPE", f"With --sql: boolean for labels that are true or false in {_WITHOUT_CAST}.", "number"
    ),
    force: bool = options.FORCE,
    printer: Printer = options.PRINTER,
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
    if options.value_number(columns.value) is not None:
        raise InputError("--value is a number, which needs no sums: give it to mcnet evaluate instead")
    check_periods(columns)
    if sql is not None or table is not None:
        if logs or output is not None:
            raise InputError("--sql prints a query and reads no logs; leave out the logs and -o")
        _print_query(columns, sql, table, folds=folds, resolution=_resolution(resolution), label_type=label_type)
        return
    if not logs or output is None:
        lacking = "the logs to read" if not logs else "the file to write with -o"
        raise InputError(f"name {lacking}; or pass --sql and --table to get a query for a database")
    if output == STANDARD_OUTPUT and printer.json:
        raise InputError("both the sketch (-o -) and --json would go to stdout; name a file, or leave out --json")
    source = source_of(logs)
    if output != STANDARD_OUTPUT:
        check_output(output, [source], force=force, endings=[".parquet"])
    made = _of_query_result(source)
    if made is None:
        if resolution is not None and source.finished:
            raise InputError(f"{logs[0]} was sketched before, at the resolution it has; leave out --resolution")
        spec = replace(source.spec(columns), resolution=_resolution(resolution), folds=folds)
        made = source.read(printer, source.with_time(spec, columns.time, columns.every))
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
    from mcnet.sketch.query_rows import ABOUT
    from mcnet.sketch.scan import has_column
    from mcnet.sketch.sketch import Sketch

    if source.finished or not has_column(source.paths, ABOUT):
        return None
    drop_missing = read_options().drop_missing
    return Sketch.merged([Sketch.from_table(path, drop_missing=drop_missing) for path in source.paths])


def _print_query(columns: Columns, dialect: str | None, table: str | None, **settings: Any) -> None:
    """Print the query that makes the sketch where the rows are."""
    from mcnet.sketch.query import sketch_query

    if dialect is None or table is None:
        raise InputError("--sql DIALECT and --table NAME go together: a query for a table of a database")
    if columns.propensity is not None:
        raise InputError("--propensity is for logs; in a database, make weights of it in a view")
    if columns.score is None or columns.label is None:
        raise InputError(f"name the columns of {table} with --score and --label")
    every = {} if columns.time is None else {columns.time: columns.every or DEFAULT_PERIOD}
    query = sketch_query(
        table,
        dialect=dialect,
        score=columns.score,
        label=columns.label,
        field=[*(columns.field or []), *every],
        weight=columns.weight,
        score_type=columns.score_type,
        negatives_kept=columns.share_kept,
        every=every,
        where=read_options().where,
        value=columns.value,
        value_per_positive=columns.value_per_positive,
        **settings,
    )
    typer.echo(query + ";")


def merge(
    sketches: list[str] = options.argument("SKETCH", "Saved sketches, globs or folders."),
    output: str = options.OUTPUT,
    force: bool = options.FORCE,
    printer: Printer = options.PRINTER,
) -> None:
    """Add sketches up: of shards, of hours, of machines.

    \b
    Example:
      mcnet merge part*.parquet -o all.parquet
    """
    from mcnet.sketch.sketch import Sketch

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


# `mcnet methods`: list the methods.

TWO_MCNETS = (
    "mcnet-bayes, the default of mcnet fit, is this project's own model: a few numbers per field value under priors\n"
    "whose strengths are learnt (empirical Bayes). It fits in seconds, needs few rows per value, and has intervals.\n"
    "mcnet is the published model (WWW 2025): one monotone neural network per score bin. It takes longer and needs\n"
    "the extra networks. Take it to reproduce or extend the paper, mcnet-bayes otherwise.\n"
    "mcnet-none is mcnet without the field, one curve for all rows; a comparison has both."
)
"""What the two MCNets are, how they differ, and when to take which."""


def methods(printer: Printer = options.PRINTER) -> None:
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
    printer.result({"methods": entries}, table(headings, lines, left=4), f"\n{TWO_MCNETS}")


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
    rows: int = options.option("N", "Rows to fit on, and as many to judge on.", 300_000, min=1000),
    seed: int = options.option("N", "Seed of the simulation.", 0, min=0),
    output: str | None = options.option(
        "FILE", "Write the simulated rows, to try the other commands on (Parquet).", None, "--output", "-o"
    ),
    force: bool = options.FORCE,
    printer: Printer = options.PRINTER,
) -> None:
    """Compare every method on a simulated click log.

    The truth is known. The log is shaped like AliExpress: four field values of very different size, a CTR of 2 %. The
    rows that --output writes lie in the 48 hours before now, by the column ts, to try `mcnet update` on.

    \b
    Example:
      mcnet demo --rows 100000
    """
    import polars as pl

    from mcnet.datasets.simulator import simulate
    from mcnet.selection import demonstrate

    check_output(output, [], force=force, endings=(".parquet",))
    with printer.steps("simulating") as step:
        log = simulate(rows, test_rows=rows, seed=seed)
        if output is not None:
            now = datetime.now(UTC).replace(tzinfo=None, minute=0, second=0, microsecond=0)
            hours = pl.int_range(pl.len()) * _DEMO_HOURS // pl.len() - _DEMO_HOURS
            with whole_file(output) as part:
                log.frame().with_columns(ts=pl.lit(now) + pl.duration(hours=hours)).write_parquet(part)
        sketch, selection, judged = demonstrate(log, progress=step)
    judged = dict(sorted(judged.items(), key=lambda item: item[1].log_loss))  # the best first, as in compare
    metrics = ("pcoc", "f_rce", "auc", "log_loss", "excess_log_loss")
    shown = [
        (
            method,
            figure(ev.pcoc, 3),
            f"{ev.f_rce:.4f}",
            f"{ev.floor('f_rce'):.4f}",
            f"{ev.auc:.4f}",
            f"{ev.log_loss:.5f}",
            f"{1e5 * ev.excess_log_loss:.1f}",
            f"{selection[method].fit_seconds:.2f}",
        )
        for method, ev in judged.items()
    ]
    headings = ("method", "PCOC", "F-RCE", "floor", "AUC", "log-loss", "excess ×10⁻⁵", "fit s")
    printer.result(
        {
            "rows": rows,
            "seed": seed,
            "failed": selection.failed,
            "methods": [
                {
                    "method": method,
                    "fit_seconds": selection[method].fit_seconds,
                    **{metric: getattr(ev, metric) for metric in metrics},
                    "f_rce_floor": ev.floor("f_rce"),
                }
                for method, ev in judged.items()
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
    for method, reason in selection.failed.items():
        printer.note(f"{method} failed: {reason}")
