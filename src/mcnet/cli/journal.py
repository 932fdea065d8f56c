"""`mcnet journal` and `mcnet backtest`: the past by period, and how it would have been predicted."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import typer

from mcnet._shared.messages import count, counted
from mcnet.cli import options
from mcnet.cli.compare import write_table
from mcnet.cli.options import Columns, GivenSettings
from mcnet.cli.run import THRESHOLD_NOT_MET, Printer, plain_interrupts, table
from mcnet.cli.sources import PAGE, check_output, open_journal, refuse_one_file, source_of
from mcnet.errors import InputError
from mcnet.store.settings import OF_THE_LOOP, SETTINGS

if TYPE_CHECKING:
    from mcnet.store.entries import Added

# `mcnet journal`: the past as sketches by period.

journal = options.Commands(name="journal", no_args_is_help=True)


@journal.callback()
def about(context: typer.Context) -> None:
    """Manage a journal: the past as sketches by period.

    A journal has a sketch per period and source, and lies in a store: a file such as ads.db, or PostgreSQL. Any number
    of processes may add at the same time. Adding the same source twice changes nothing, so a job may be retried. fit,
    evaluate, compare and monitor accept a store instead of a log.

    \b
    Example:
      mcnet journal add ads.db log.parquet --score pctr --label click \\
          --field country --time ts --every 1h
      mcnet journal list ads.db
    """
    if context.invoked_subcommand != "add":
        options.refuse_read_options(f"journal {context.invoked_subcommand} reads none")


@journal.command(epilog=options.READS_LOGS)
def add(
    store: str = options.argument("STORE", "The store; created if it does not exist."),
    logs: list[str] = options.LOGS,
    settings: GivenSettings = options.head_settings("fields", "exclude", *OF_THE_LOOP),
    addition: dict[str, Any] = options.ADDITION,
    printer: Printer = options.PRINTER,
) -> None:
    """Add logs or saved sketches to a journal.

    With --time the rows are split into periods, in one pass. With --period all rows are in one period. Running the same
    command again changes nothing and is not an error. A file that changes while it is read, that has other rows than
    when it was added, or that cannot be used, is left out with a warning, and the others are added.

    \b
    Example:
      mcnet journal add ads.db log.parquet --score pctr --label click \\
          --field country --time ts --every 1h
      mcnet journal add hourly.db part0.parquet --period 2026-11-16T13
    """
    given = source_of(logs)
    if given.journal is not None:
        raise InputError(f"{logs[0]} is a store: give the logs or sketches that its journal was made of")
    chosen = settings(SETTINGS if given.finished else ())
    plain_interrupts()
    total = given.row_count if printer.lively else None
    with printer.progress("reading", total) as advance:
        added = (
            options.store_to_write(store)
            .journal(options.head_name())
            .add_files(
                given.paths,
                chosen,
                **addition,
                progress=advance,
            )
        )
    printer.note(_what_changed(added, store))
    document = {"store": store, "rows": added.rows, "periods": added.periods, "known": added.known}
    printer.result({**document, "left_out": added.left_out})


def _what_changed(added: "Added", store: str) -> str:
    if not added.rows and not added.known:
        return f"nothing changed: there are no rows to add to {store}"
    if not added.rows:
        return f"nothing changed: {store} has these rows already ({_periods(added.known)})"
    also = f"; {_periods(added.known)} had their rows already" if added.known else ""
    return f"{added.rows:,} rows of {_periods(added.periods)} → {store}{also}"


def _periods(names: tuple[str, ...]) -> str:
    from mcnet.rows.periods import shown_periods

    if len(names) <= 1:
        return f"the period {names[0]}" if names else "no period"
    shown = shown_periods(names)
    return f"{len(names):,} periods, {shown[0]} to {shown[-1]}"


@journal.command("list")
def list_periods(
    store: str = options.STORE,
    sources: bool = options.flag("--sources", "Print a line per source of each period."),
    printer: Printer = options.PRINTER,
) -> None:
    """List the periods of a journal: sources, rows, positives, ages.

    \b
    Example:
      mcnet journal list ads.db
    """
    import polars as pl

    from mcnet.rows.periods import shown_periods

    entries = open_journal(store).table()
    names = entries["period"].unique(maintain_order=True).to_list()
    shown_as = dict(zip(names, shown_periods(names), strict=True))
    groups = entries.group_by(["period", "source"] if sources else ["period"], maintain_order=True).agg(
        pl.len().alias("sources"), pl.sum("rows", "weight", "positives"), pl.col("age").drop_nulls().unique().sort()
    )
    shown = table(
        ["period", "source" if sources else "sources", "rows", "weight", "positives", "rate", "age"],
        [
            [
                shown_as[group["period"]],
                group["source"] if sources else f"{group['sources']:,}",
                f"{group['rows']:,}",
                count(group["weight"]),
                count(group["positives"]),
                f"{group['positives'] / group['weight']:.4g}",
                ", ".join(f"{age:g}" for age in group["age"]) or "complete",
            ]
            for group in groups.to_dicts()
        ],
        left=2 if sources else 1,
    )
    rows, positives = entries.select(pl.sum("rows", "positives")).row(0)
    total = f"\n{counted(rows, 'row')}, {counted(positives, 'positive')} in {counted(len(names), 'period')}"
    printer.result({"store": store, "entries": entries.to_dicts()}, shown, total)


@journal.command()
def verify(store: str = options.STORE, printer: Printer = options.PRINTER) -> None:
    """Read every sketch of a journal and report problems; exit with 1 if there are any.

    \b
    Example:
      mcnet journal verify ads.db
    """
    problems = open_journal(store).verify()
    printer.result({"store": store, "problems": problems}, *(problems or ["no problems"]))
    if problems:
        raise typer.Exit(THRESHOLD_NOT_MET)


@journal.command()
def compact(
    store: str = options.STORE,
    before: str | None = options.option("P", "Compact periods earlier than this; all but the last if not given."),
    printer: Printer = options.PRINTER,
) -> None:
    """Merge the sources of old periods into one sketch per period.

    Adding a compacted source again still changes nothing, but it can no longer be replaced or removed.

    \b
    Example:
      mcnet journal compact ads.db
    """
    saved = open_journal(store).compact(before)
    printer.note(f"{saved:,} sketches fewer" if saved else "nothing changed: there is nothing to merge")
    printer.result({"store": store, "sketches_saved": saved})


@journal.command()
def release(
    store: str = options.STORE,
    period: str = options.argument("PERIOD", "The period to learn."),
    printer: Printer = options.PRINTER,
) -> None:
    """Learn a period although it is suspect.

    `mcnet update` looks at a period before it learns it. One whose labels, scores or rows are suspect is kept and not
    learnt, until two further periods agree with it, its rows are replaced (add them again with --replace), or it is
    released by this command. The next update learns it.

    \b
    Example:
      mcnet journal release ads.db 2026-11-16T13
    """
    open_journal(store).release(period)
    printer.note(f"the period {period} is released: the next update learns it, and the later ones anew")
    printer.result({"store": store, "released": period})


@journal.command()
def remove(
    store: str = options.STORE,
    source: str = options.argument("SOURCE", "The source, as in the list."),
    period: str | None = options.option("P", "Remove this period alone; all of them if not given."),
    printer: Printer = options.PRINTER,
) -> None:
    """Remove the rows of a source.

    \b
    Example:
      mcnet journal remove ads.db log.parquet --period 2026-11-16T13
    """
    rows = open_journal(store).remove(source, period)
    printer.note(f"{rows:,} rows of {source} removed from {store}")
    printer.result({"store": store, "source": source, "rows": rows})


# `mcnet backtest`: how would the tracker, and each method with each memory, have predicted the past?


def backtest(
    logs: list[str] = options.LOGS_OR_STORE,
    columns: Columns = options.columns(
        *("field", "time"),
        every="The length of a period: 15m, 1h, 1d, 1w, or a number for a column that counts.",
    ),
    delay: str = options.option("TIME", "How late labels are known: 2d, or a number of periods.", "0"),
    method: list[str] | None = options.option(
        "NAME",
        "Compare this method; may be repeated. If not given, mcnet-bayes and Platt scaling.",
        autocompletion=options.complete_methods,
    ),
    memory: list[str] | None = options.option(
        "MEMORY", "A half-life in periods (4), everything, or once; may be repeated."
    ),
    tracker_only: bool = options.flag(
        "--tracker-only", "Compare the tracker with the base scores alone, which is fast."
    ),
    look: bool = typer.Option(
        True, "--look/--no-look", help="Keep a suspect period and do not learn it, or learn whatever comes."
    ),
    since: str | None = options.option("PERIOD", "Judge from this period on; learn from all."),
    report: str | None = options.option("FILE", "Write a page to look at (.html)."),
    output: str | None = options.option("FILE", "Write the table of periods (.parquet).", None, "--output", "-o"),
    force: bool = options.FORCE,
    printer: Printer = options.PRINTER,
) -> None:
    """Compare the tracker with methods and memories on the past.

    Each period is predicted from the periods before it, then its labels are revealed. With --delay they are revealed
    that much later. Intervals take periods as clusters.

    \b
    Example:
      mcnet backtest log.parquet --score pctr --label click --field country \\
          --time ts --every 1d --report backtest.html
    """
    from mcnet.tracking.backtest import DEFAULT_MEMORIES
    from mcnet.tracking.backtest import backtest as run_backtest

    if tracker_only and (method or memory):
        raise InputError("--tracker-only compares no methods; leave out --method and --memory")
    refuse_one_file(report=report, output=output)
    source = source_of(logs)
    in_journal = source.journal is not None
    check_output(report, [source], force=force, endings=PAGE)
    check_output(output, [source], force=force, endings=(".parquet",))
    if in_journal:
        columns = columns.without_file()
    else:
        lacking = [name for name in ("score", "label", "time", "every") if getattr(columns, name) is None]
        if lacking:
            raise InputError(f"--{lacking[0]} is missing; a log needs --score, --label, --time and --every")
    plain_interrupts()
    rows = source.row_count if printer.lively else None
    with ExitStack() as bars:
        advance = _bars(printer, bars)
        found = run_backtest(
            source.journal or source.paths,
            score=columns.score,
            label=columns.label,
            field=columns.field,
            weight=columns.weight,
            time=columns.time,
            every=columns.every,
            delay=delay,
            methods=[] if tracker_only else method,
            memories=memory or DEFAULT_MEMORIES,
            look=look,
            since=since,
            score_type=columns.score_type,
            negatives_kept=columns.share_kept,
            progress=lambda _, total: advance("predicting", total, "periods", 1),
            reading=lambda more: advance("reading", rows, "rows", more),
        )
    headings, *lines = found.lines()
    level = f"{100 * found.level:g} %"
    note = (
        f"\nIntervals ({level}) are those of a block bootstrap over periods. By period: --report, --output or --json."
    )
    printer.result(found.to_dict(), found.conclusion() + "\n", table(headings, lines), note)
    if output is not None:
        write_table(output, found.by_period)
        printer.note(f"{len(found.by_period):,} rows → {output}")
    if report is not None:
        from mcnet.report.backtest_page import write_backtest_report

        with printer.steps("drawing the report"):
            title = f"Backtest of {columns.score}" if columns.score else None
            write_backtest_report(report, found, title=title)
        printer.note(f"report → {report}")


def _bars(printer: Printer, shown: ExitStack) -> Callable[[str, int | None, str, int], None]:
    """Return a function that advances the bar of a title; one bar is shown at a time, and closed by the next one."""
    bars: dict[str, Callable[[int], None]] = {}

    def advance(title: str, total: int | None, unit: str, more: int) -> None:
        if title not in bars:
            shown.close()
            bars[title] = shown.enter_context(printer.progress(title, total, unit))
        bars[title](more)

    return advance
