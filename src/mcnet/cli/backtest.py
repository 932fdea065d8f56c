"""`mcnet backtest`: how would the tracker, and each method with each memory, have predicted the past?"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Annotated, Self

import typer

from mcnet.cli import options
from mcnet.cli.printing import Printer

__all__ = ["backtest"]


def backtest(
    context: typer.Context,
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG", help="Parquet, CSV or Arrow files, globs or folders; or the folder of a journal."
        ),
    ],
    score: options.Score = None,
    label: options.Label = None,
    field: options.Fields = None,
    weight: options.Weight = None,
    time: Annotated[str | None, typer.Option("--time", metavar="COLUMN", help="The column of time.")] = None,
    every: Annotated[
        str | None,
        typer.Option(
            "--every",
            metavar="PERIOD",
            help="The length of a period: 15m, 1h, 1d, 1w, or a number for a column that counts.",
        ),
    ] = None,
    delay: Annotated[
        str,
        typer.Option("--delay", metavar="TIME", help="How late labels are known: 2d, or a number of periods."),
    ] = "0",
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            metavar="NAME",
            help="Compare this method; may be repeated. If not given, mcnet-bayes and Platt scaling.",
            autocompletion=options.complete_methods,
        ),
    ] = None,
    memory: Annotated[
        list[str] | None,
        typer.Option(
            "--memory",
            metavar="MEMORY",
            help="A half-life in periods (4), window:7, everything, or once; may be repeated.",
        ),
    ] = None,
    tracker_only: Annotated[
        bool, typer.Option("--tracker-only", help="Compare the tracker with the base scores alone, which is fast.")
    ] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="PERIOD", help="Judge from this period on; learn from all.")
    ] = None,
    folder: Annotated[
        str | None,
        typer.Option("--folder", metavar="FOLDER", help="Write results here as they come; run again to continue."),
    ] = None,
    report: Annotated[
        str | None, typer.Option("--report", metavar="FILE", help="Write a page to look at (.html).")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the table of periods (.parquet).", show_default=False
        ),
    ] = None,
    logits: options.Logits = None,
    negatives_kept: options.NegativesKept = 1.0,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare the tracker with methods and memories on the past.

    Each period is predicted from the periods before it, then its labels are revealed. With --delay they are revealed
    that much later. Intervals take periods as clusters.

    \b
    Example:
      mcnet backtest log.parquet --score pctr --label click --field country \\
          --time ts --every 1d --report backtest.html
    """
    from pathlib import Path

    from mcnet.cli.config import from_config, printer_of
    from mcnet.cli.files import check_output
    from mcnet.cli.printing import table
    from mcnet.cli.signals import plain_interrupts
    from mcnet.cli.sources import source_of
    from mcnet.errors import InputError
    from mcnet.tracking.backtest import backtest as run_backtest
    from mcnet.tracking.backtest_memories import DEFAULT_MEMORIES

    printer = printer_of(context, json, quiet)
    if tracker_only and (method or memory):
        raise InputError("--tracker-only compares no methods; leave out --method and --memory")
    if report is not None and output is not None and Path(report).resolve() == Path(output).resolve():
        raise InputError(f"--report and --output both name {report}; give each its own file")
    source = source_of(logs)
    in_journal = source.journal is not None
    for path, endings in ((report, (".html", ".htm")), (output, (".parquet",))):
        if path is not None:
            check_output(path, [source], force=force, endings=endings)
    columns = {"score": score, "label": label, "weight": weight, "time": time, "every": every, "field": field}
    if in_journal:  # it knows its columns: what the configuration file says of logs does not concern it
        columns = {name: None if from_config(context, name) else given for name, given in columns.items()}
    else:
        lacking = [name for name in ("score", "label", "time", "every") if columns[name] is None]
        if lacking:
            raise InputError(f"--{lacking[0]} is missing; a log needs --score, --label, --time and --every")
    plain_interrupts()
    with _Bars(printer, source.row_count if printer.lively else None) as bars:
        found = run_backtest(
            source.journal or source.paths,
            **columns,  # type: ignore[arg-type]
            delay=delay,
            methods=[] if tracker_only else method,
            memories=memory or DEFAULT_MEMORIES,
            since=since,
            folder=folder,
            score_type="logit" if logits else "probability",
            negatives_kept=negatives_kept,
            progress=bars.predicted,
            reading=bars.read,
        )
    headings, *lines = found.lines()
    level = f"{100 * found.level:g} %"
    note = (
        f"\nIntervals ({level}) are those of a block bootstrap over periods. By period: --report, --output or --json."
    )
    printer.result(found.to_dict(), found.conclusion() + "\n", table(headings, lines), note)
    if output is not None:
        from mcnet._shared.atomic_files import whole_file

        with whole_file(output) as part:
            found.by_period.write_parquet(part)
        printer.note(f"{len(found.by_period):,} rows → {output}")
    if report is not None:
        from mcnet.report.backtest_page import write_backtest_report

        with printer.steps("drawing the report"):
            title = f"Backtest of {score}" if score else None
            write_backtest_report(report, found, title=title)
        printer.note(f"report → {report}")


class _Bars(ExitStack):
    """One progress bar after the other: of the rows that are read, then of the periods that are predicted."""

    def __init__(self, printer: Printer, rows: int | None) -> None:
        super().__init__()
        self._printer, self._rows = printer, rows
        self._shown = ""
        self._advance: Callable[[int], None] = lambda _: None

    def __enter__(self) -> Self:
        return self

    def read(self, rows: int) -> None:
        """Show that more rows were read."""
        self._show("reading", self._rows, "rows")
        self._advance(rows)

    def predicted(self, done: int, total: int) -> None:
        """Show that one more period was predicted."""
        self._show("predicting", total, "periods")
        self._advance(1)

    def _show(self, title: str, total: int | None, unit: str) -> None:
        if title != self._shown:
            self.close()
            self._advance = self.enter_context(self._printer.progress(title, total, unit))
            self._shown = title
