"""`mcnet journal`: the past as a folder of sketches by period."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcnet._shared.terminal_text import count, counted
from mcnet.cli import options
from mcnet.cli.printing import Printer, table

if TYPE_CHECKING:
    from mcnet.tracking.journal_additions import Added

__all__ = ["journal"]

journal = options.Commands(name="journal", no_args_is_help=True)


@journal.callback()
def about() -> None:
    """Manage a journal: the past as sketches by period.

    A journal is a folder of sketches, one per period and source. Any number of processes may add at the same time.
    Adding the same source twice changes nothing, so a job may be retried. fit, evaluate, compare and monitor accept a
    journal instead of a log.

    \b
    Example:
      mcnet journal add history log.parquet --score pctr --label click \\
          --field country --time ts --every 1h
      mcnet journal list history
    """


Folder = Annotated[str, typer.Argument(metavar="JOURNAL", help="The folder of the journal.", show_default=False)]


@journal.command(epilog=options.READS_LOGS)
def add(
    context: typer.Context,
    folder: Annotated[
        str, typer.Argument(metavar="JOURNAL", help="The folder; created if it does not exist.", show_default=False)
    ],
    logs: options.Logs,
    score: options.Score = None,
    label: options.Label = None,
    field: options.Fields = None,
    weight: options.Weight = None,
    time: options.Moments = None,
    every: options.PeriodLength = None,
    period: options.OnePeriod = None,
    source: options.Source = None,
    age: options.Age = None,
    counted: options.Counted = None,
    replace: options.Replace = False,
    allow: options.Allow = None,
    logits: options.Logits = None,
    negatives_kept: options.NegativesKept = 1.0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Add logs or saved sketches to a journal.

    With --time the rows are split into periods, in one pass. With --period all rows are in one period. Running the same
    command again changes nothing and is not an error. A file that changes while it is read, or that has other rows than
    when it was added, is left out with a warning, and the others are added.

    \b
    Example:
      mcnet journal add history log.parquet --score pctr --label click \\
          --field country --time ts --every 1h
      mcnet journal add hourly part0.parquet --period 2026-11-16T13
    """
    from mcnet.cli.config import printer_of
    from mcnet.cli.signals import plain_interrupts
    from mcnet.cli.sources import source_of
    from mcnet.errors import InputError
    from mcnet.loop.new_rows import add_one_period
    from mcnet.tracking.journal import Journal

    printer = printer_of(context, json, quiet)
    given = source_of(logs)
    if given.journal is not None:
        raise InputError(f"{logs[0]} is a journal: give the logs or sketches that it was made of")
    if given.sketched and (time is not None or every is not None):
        raise InputError(f"{logs[0]} is a sketch and has no rows to split by time; name its period with --period")
    if (time is None) == (period is None) or (time is None) != (every is None):
        raise InputError("name the column of time with --time and --every, or one period of all rows with --period")
    if counted is not None and time is None:
        raise InputError("--counted gives the age of each period of --time; give the age of one period with --age")
    columns = given.columns(context)
    plain_interrupts()
    opened = Journal(folder)
    source_options: dict[str, Any] = {"source": source, "age": age, "replace": replace, "allow": allow or ()}
    total = given.row_count if printer.lively else None
    with printer.progress("reading", total) as advance:
        if time is None:
            if source is not None and len(given.paths) > 1:
                raise InputError(f"--source names one file, but {len(given.paths)} were given; add one at a time")
            found = add_one_period(opened, list(given.paths), str(period), columns, source_options, advance)
        else:
            for name in ("score", "label"):
                if columns[name] is None:
                    raise InputError(f"{logs[0]} is a log: name its column of {name}s")
            source_options |= {"time": time, "every": str(every), "counted": counted}
            found = opened.add_files(given.paths, **columns, **source_options, progress=advance)
    printer.note(_what_changed(found, folder))
    document = {"journal": folder, "rows": found.rows, "periods": found.periods, "known": found.known}
    printer.result({**document, "left_out": found.left_out})


def _what_changed(found: "Added", folder: str) -> str:
    if not found.rows:
        return f"nothing changed: {folder} has these rows already ({_periods(found.known)})"
    also = f"; {_periods(found.known)} had their rows already" if found.known else ""
    return f"{found.rows:,} rows of {_periods(found.periods)} → {folder}{also}"


def _periods(names: tuple[str, ...]) -> str:
    from mcnet.data.periods import shown_periods

    if len(names) <= 1:
        return f"the period {names[0]}" if names else "no period"
    shown = shown_periods(names)
    return f"{len(names):,} periods, {shown[0]} to {shown[-1]}"


@journal.command("list")
def list_periods(
    folder: Folder,
    sources: Annotated[bool, typer.Option("--sources", help="Print a line per source of each period.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """List the periods of a journal: sources, rows, positives, ages.

    \b
    Example:
      mcnet journal list history
    """
    from mcnet.cli.sources import open_journal
    from mcnet.data.periods import shown_periods

    entries = open_journal(folder).table().to_dicts()
    names = [entry["period"] for entry in entries]
    shown_as = dict(zip(names, shown_periods(names), strict=True))
    lines: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for entry in entries:
        lines.setdefault((entry["period"], entry["source"]) if sources else (entry["period"],), []).append(entry)
    shown = table(
        ["period", "source" if sources else "sources", "rows", "weight", "positives", "rate", "age"],
        [_line((shown_as[key[0]], *key[1:]), group, sources) for key, group in lines.items()],
        left=2 if sources else 1,
    )
    rows, positives = (sum(entry[name] for entry in entries) for name in ("rows", "positives"))
    number = len({entry["period"] for entry in entries})
    total = f"\n{counted(rows, 'row')}, {counted(positives, 'positive')} in {counted(number, 'period')}"
    Printer(json, quiet).result({"journal": folder, "entries": entries}, shown, total)


def _line(key: tuple[str, ...], group: list[dict[str, Any]], sources: bool) -> list[str]:
    weight, positives = (sum(entry[name] for entry in group) for name in ("weight", "positives"))
    ages = sorted({entry["age"] for entry in group if entry["age"] is not None})
    return [
        key[0],
        key[1] if sources else f"{len(group):,}",
        f"{sum(entry['rows'] for entry in group):,}",
        count(weight),
        count(positives),
        f"{positives / weight:.4g}",
        ", ".join(f"{age:g}" for age in ages) or "complete",
    ]


@journal.command()
def verify(folder: Folder, json: options.Json = False, quiet: options.Quiet = False) -> None:
    """Read every file of a journal and report problems; exit with 1 if there are any.

    \b
    Example:
      mcnet journal verify history
    """
    from mcnet.cli.run import THRESHOLD_NOT_MET
    from mcnet.cli.sources import open_journal

    problems = open_journal(folder).verify()
    Printer(json, quiet).result({"journal": folder, "problems": problems}, *(problems or ["no problems"]))
    if problems:
        raise typer.Exit(THRESHOLD_NOT_MET)


@journal.command()
def compact(
    folder: Folder,
    before: Annotated[
        str | None,
        typer.Option("--before", metavar="P", help="Compact periods earlier than this; all but the last if not given."),
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="PERIOD", help="Merge periods into longer ones, too, as 1d.")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Merge the sources of old periods into one file per period.

    Adding a compacted source again still changes nothing, but it can no longer be replaced or removed. With --every
    periods are merged into longer ones, such as hours into days; trackers, backtests and monitors warn of a journal
    with both lengths.

    \b
    Example:
      mcnet journal compact history --every 1d
    """
    from mcnet.cli.sources import open_journal

    saved = open_journal(folder).compact(before, every)
    printer = Printer(json, quiet)
    printer.note(f"{saved:,} files fewer" if saved else "nothing changed: there is nothing to merge")
    printer.result({"journal": folder, "files_saved": saved})


@journal.command()
def remove(
    folder: Folder,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The source, as in the list.", show_default=False)],
    period: Annotated[
        str | None, typer.Option("--period", metavar="P", help="Remove this period alone; all of them if not given.")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Remove the rows of a source.

    \b
    Example:
      mcnet journal remove history log.parquet --period 2026-11-16T13
    """
    from mcnet.cli.sources import open_journal

    rows = open_journal(folder).remove(source, period)
    printer = Printer(json, quiet)
    printer.note(f"{rows:,} rows of {source} removed from {folder}")
    printer.result({"journal": folder, "source": source, "rows": rows})
