"""`mcnet compare`: judge every method on rows it has not seen, and choose one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcnet.cli import options
from mcnet.cli.printing import Printer

if TYPE_CHECKING:
    from mcnet.cli.sources import RowSource
    from mcnet.data.automatic_period import AutomaticPeriod
    from mcnet.sketch.sketch import Sketch

__all__ = ["compare"]


def compare(
    context: typer.Context,
    logs: options.Logs,
    score: options.Score = None,
    label: options.Label = None,
    field: options.Fields = None,
    weight: options.Weight = None,
    test: Annotated[
        list[str] | None,
        typer.Option("--test", metavar="LOG", help="Judge on these rows instead of folds; may be repeated."),
    ] = None,
    method: options.Methods = None,
    folds: Annotated[int, typer.Option("--folds", min=2, metavar="N", help="Split the rows into this many folds.")] = 5,
    logits: options.Logits = None,
    negatives_kept: options.NegativesKept = 1.0,
    report: Annotated[
        str | None, typer.Option("--report", metavar="FILE", help="Write a page to look at (.html).")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="COLUMN", help="The column of time: the report shows the drift.")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            "--every",
            metavar="PERIOD",
            help="Cut --time to periods: 15m, 1h, 1d, 1w, 1mo, or a number for a column that counts.",
        ),
    ] = None,
    save_best: Annotated[
        str | None, typer.Option("--save-best", metavar="FILE", help="Save the chosen method's model.")
    ] = None,
    fail_if: options.Thresholds = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare methods on held-back rows, and choose one.

    The simplest method within one standard error of the best log-loss is chosen. Rows are held back in turn, fold by
    fold, or are those of --test. A method that fails is listed with its reason; the exit code is 0 if at least one
    method could be fitted.

    \b
    Example:
      mcnet compare log.parquet --score pctr --label click --field country \\
          --save-best model.json
    """
    from mcnet.cli.config import printer_of
    from mcnet.cli.files import check_output
    from mcnet.cli.run import THRESHOLD_NOT_MET
    from mcnet.cli.sources import source_of
    from mcnet.cli.thresholds import Figures, broken_thresholds, parse_thresholds
    from mcnet.data.automatic_period import AutomaticPeriod
    from mcnet.errors import InputError
    from mcnet.selection.select import select

    printer = printer_of(context, json, quiet)
    thresholds = parse_thresholds(fail_if)
    source, judged = source_of(logs), source_of(test) if test else None
    sources = [source] if judged is None else [source, judged]
    for given in sources:
        given.refuse_time(time)
    if time is not None and report is None:
        raise InputError("--time is for the drift shown in the report; pass --report too")
    if every is not None and time is None:
        raise InputError("--every cuts a column of time to periods; pass --time too")
    if report is not None and save_best is not None and Path(report).resolve() == Path(save_best).resolve():
        raise InputError(f"--report and --save-best both name {report}; give each its own file")
    for path, endings in ((report, (".html", ".htm")), (save_best, ())):
        if path is not None:
            check_output(path, sources, force=force, endings=endings)
    if judged is not None:
        _warn_of_common_files(printer, source, judged)
    columns = source.columns(context)
    # Without --every, the period is found while the rows are read.
    found = AutomaticPeriod()
    timed = source.read(printer, **source.with_time(columns, time, every or found), folds=1 if test else folds)
    if time is not None:
        _warn_of_texts(printer, timed, time)
    timed_test = None
    if judged is not None:
        before = every or found.every
        timed_test = _read_test(printer, judged, columns, timed, time, before or found)
        if time is not None and before is None and found.every is not None:
            timed = timed.in_periods(time, found.every)
    if time is not None and found.every is not None:
        _say_period(printer, time, found.every)
    sketch = _without(timed, time)
    held = None if timed_test is None else _without(timed_test, time)
    with printer.steps("fitting") as step:
        selection = select(sketch, methods=method, test=held, progress=step)
    # The table has a few metrics; all of them would take longer than most fits.
    document = selection.to_dict() if printer.json else {}
    printer.result(document, str(selection), "\nIntervals and all other metrics: --report or --json.")
    if save_best is not None:
        selection.calibrator.model_.save(save_best)
        printer.note(f"{selection.chosen.method} → {save_best}")
    if report is not None:
        from mcnet.report.page import write_report
        from mcnet.sketch.split import sketches_by

        with printer.steps("drawing the report"):
            title = f"Calibration of {timed.columns['score']}" if "score" in timed.columns else None
            fitted, fresh = (
                _journal_periods(printer, given, sketch)
                if part is None or time not in part.contexts.names
                else sketches_by(part.unfolded(), time)
                for part, given in ((timed, source), (timed_test, judged))
            )
            write_report(report, selection, sketch, title=title, drift=fitted, test_drift=fresh)
        printer.note(f"report → {report}")
    broken = broken_thresholds(thresholds, Figures(selection.chosen.evaluation))
    for sentence in broken:
        printer.note(f"not met by {selection.chosen.method}: {sentence}")
    if broken:
        raise typer.Exit(THRESHOLD_NOT_MET)


def _journal_periods(printer: Printer, source: "RowSource | None", like: "Sketch") -> "dict[str, Sketch] | None":
    """Return the sketch of each period of a journal; None for other files, and where there are too many to show."""
    from mcnet.data.periods import MOST_PERIODS

    if source is None or source.journal is None:
        return None
    if len(source.journal.periods) > MOST_PERIODS:
        printer.note(f"the journal has more than {MOST_PERIODS} periods: the report does not show the drift")
        return None
    return source.periods(like.contexts.names)


def _warn_of_common_files(printer: Printer, fitted: "RowSource", judged: "RowSource") -> None:
    common = [path for path in judged.on_disk if any(path.samefile(other) for other in fitted.on_disk)]
    if common:
        printer.warn(
            f"{common[0]} is read both to fit and as --test: methods are judged on rows they have seen, "
            "and complex ones look better than they are"
        )


def _warn_of_texts(printer: Printer, sketch: "Sketch", time: str) -> None:
    """Warn of a column of time whose values are neither timestamps nor numbers."""
    import polars as pl

    from mcnet.data.periods import cut_to_periods
    from mcnet.errors import InputError

    values = sketch.only(time).contexts.values[0]
    seen = pl.Series(time, [value for value in values if value is not None], dtype=pl.String)
    problem = ""
    for every in ("1d", "1"):
        try:
            cut_to_periods(seen, every)
            return
        except InputError as error:
            problem = problem or str(error).partition(";")[0]
    printer.warn(f"--time: {problem}; the drift is shown in the order of the alphabet")


def _say_period(printer: Printer, time: str, period: str) -> None:
    from mcnet.data.periods import MOST_PERIODS

    printer.note(f"{time} has more than {MOST_PERIODS} values: it is cut to periods of {period} (--every)")


def _read_test(
    printer: Printer,
    test: "RowSource",
    columns: dict[str, Any],
    fitted: "Sketch",
    time: str | None,
    period: "str | AutomaticPeriod",
) -> "Sketch":
    """Return the test rows, read as the fitted ones were; with their time, if they have one."""
    from mcnet.sketch.read import has_column

    has_time = time is not None and has_column(test.paths, time)
    if time is not None and not has_time:
        printer.note(f"the test rows have no column {time}: the report shows the drift of the fitted rows alone")
    if test.finished:
        words = {"field": columns["field"]}  # the rest was settled when it was made
    else:
        # Where the fitted rows were a sketch, it tells which columns are meant.
        given = {name: column for name, column in columns.items() if name in ("score", "label") and column is not None}
        kept = fitted.negatives_kept
        reading = {"score_type": fitted.score_type} | ({} if kept is None else {"negatives_kept": kept})
        words = {**columns, **fitted.columns, **reading, **given}
        words["field"] = [name for name in fitted.contexts.names if name != time]
    timed = test.with_time(words, time if has_time else None, period)
    return test.read(printer, title="reading the test rows", **timed)


def _without(sketch: "Sketch", time: str | None) -> "Sketch":
    names = sketch.contexts.names
    return sketch.only(*(name for name in names if name != time)) if time in names else sketch
