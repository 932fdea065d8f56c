"""`mcnet compare`: every method judged on rows it has not seen, and one chosen."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcnet.cli import options
from mcnet.cli.printing import Printer, figure, spread, table

if TYPE_CHECKING:
    from mcnet.selection.selecting import Selection
    from mcnet.sketch.sketch import Sketch

__all__ = ["compare"]

_MOST_PERIODS = 400


def compare(
    logs: options.Logs,
    score: options.Score = None,
    label: options.Label = None,
    field: options.Fields = None,
    weight: options.Weight = None,
    test: Annotated[
        list[str] | None,
        typer.Option("--test", metavar="LOG", help="Judge on these rows instead of folds; may be repeated."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", metavar="NAME", help="Compare this method; may be repeated. All if not given."),
    ] = None,
    folds: options.Folds = 5,
    logits: options.Logits = False,
    negatives_kept: options.NegativesKept = 1.0,
    report: Annotated[
        str | None, typer.Option("--report", metavar="FILE", help="Write a page to look at, as HTML.")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="COLUMN", help="The column of periods: the report shows the drift.")
    ] = None,
    save_best: Annotated[
        str | None, typer.Option("--save-best", metavar="FILE", help="Save the chosen method's model.")
    ] = None,
    fail_if: options.Bars = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare methods on held-back rows, and choose one.

    The simplest method within one standard error of the best log-loss is chosen. Rows are held back in turn, fold by
    fold, or are those of --test.

    \b
    Example:
      mcnet compare log.parquet --score pctr --label click --field country \\
          --save-best model.json
    """
    from mcnet.cli.bars import broken_bars, parse_bars
    from mcnet.cli.files import check_output, read_sketch, with_memory
    from mcnet.cli.running import BAR_NOT_MET
    from mcnet.errors import InputError
    from mcnet.selection.selecting import select

    printer = Printer(json, quiet)
    bars = parse_bars(fail_if)
    if time is not None and report is None:
        raise InputError("--time is for the drift shown in the report; pass --report too")
    if report is not None and save_best is not None and Path(report).resolve() == Path(save_best).resolve():
        raise InputError(f"--report and --save-best both name {report}; give each a file of its own")
    for path in (report, save_best):
        if path is not None:
            check_output(path, [*logs, *(test or [])], force=force)
    score_type = "logit" if logits else "probability"
    columns: dict[str, Any] = {
        "score": score,
        "label": label,
        "field": field,
        "weight": weight,
        "score_type": score_type,
        "negatives_kept": negatives_kept,
    }
    timed = read_sketch(printer, logs, **_with_field(columns, time), folds=1 if test else folds)
    if time is not None:
        _check_periods(timed, time)
    sketch = timed if time is None else timed.only(*(name for name in timed.contexts.names if name != time))
    held = read_sketch(printer, test, title="reading the test rows", **columns) if test else None
    with printer.steps("fitting") as step:
        selection = select(sketch, method, test=held, progress=step)
    printer.result(selection.to_dict(), f"Judged on {selection.judged_on}; ← is chosen.\n", _table(selection))
    for name, reason in selection.failed.items():
        printer.note(f"{name} could not be fitted: {reason}")
    if save_best is not None:
        with_memory(selection.calibrator.model_, score=score, label=label, weight=weight, score_type=score_type).save(
            save_best
        )
        printer.note(f"{selection.chosen.method} → {save_best}")
    if report is not None:
        from mcnet.report.drift import sketches_by
        from mcnet.report.page import write_report

        with printer.steps("drawing the report"):
            periods = None if time is None else sketches_by(timed.unfolded(), time)
            title = None if score is None else f"Calibration of {score}"
            write_report(report, selection, sketch, title=title, drift=periods)
        printer.note(f"report → {report}")
    broken = broken_bars(bars, selection.chosen.evaluation)
    for sentence in broken:
        printer.note(f"not met by {selection.chosen.method}: {sentence}")
    if broken:
        raise typer.Exit(BAR_NOT_MET)


def _check_periods(sketch: "Sketch", time: str) -> None:
    from mcnet.errors import InputError

    periods = len(sketch.contexts.values[sketch.contexts.names.index(time)])
    if periods > _MOST_PERIODS:
        raise InputError(
            f"{time} has {periods:,} values; give a column of at most {_MOST_PERIODS} periods, such as a day"
        )


def _with_field(columns: dict[str, Any], time: str | None) -> dict[str, Any]:
    return columns if time is None else {**columns, "field": [*(columns["field"] or []), time]}


def _table(selection: "Selection") -> Any:
    """Return a line a method, the best first, with 95 % intervals beside what is estimated."""
    lines = []
    for result in selection.results:
        found, gap = result.evaluation, result.difference
        lines.append(
            (
                f"{result.method} ←" if result.method == selection.chosen.method else result.method,
                f"{found.log_loss:.5f}",
                f"{gap.value:+.1e} ± {gap.standard_error:.1e}" if gap.value else "best",
                figure(found.pcoc, 3),
                spread(*found.interval("pcoc"), 3),
                figure(found.f_rce),
                spread(*found.interval("f_rce")),
                figure(found.auc),
                f"{result.fit_seconds:.2f}",
            )
        )
    headings = ("method", "log-loss", "over the best", "PCOC", "95 %", "F-RCE", "95 %", "AUC", "fit s")
    return table(headings, lines)
