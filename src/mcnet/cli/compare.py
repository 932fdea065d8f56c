"""`mcnet compare`, `evaluate` and `slices`: how good are methods, scores, or the probabilities of a model?"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcnet._shared.files import whole_file
from mcnet.cli import options
from mcnet.cli.options import Columns
from mcnet.cli.run import Printer, plain_interrupts, unseen_note
from mcnet.cli.sources import PAGE, check_output, check_periods, load_model, refuse_one_file, source_of
from mcnet.cli.thresholds import UNSEEN, Figures, broken_thresholds, end_if_broken, parse_thresholds, threshold_names
from mcnet.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from mcnet.cli.sources import RowSource
    from mcnet.rows.spec import RowSpec
    from mcnet.sketch.sketch import Sketch
    from mcnet.store.journal import Journal

# `mcnet compare`: judge every method on rows it has not seen, and choose one.


def compare(
    logs: list[str] = options.LOGS,
    columns: Columns = options.columns(
        *("field", "fields", "exclude", "value", "value_per_positive", "propensity"),
        time="The column of time: the report shows the drift.",
        every="Cut --time to periods: 15m, 1h, 1d, 1w, 1mo, or a number for a column that counts.",
    ),
    test: list[str] | None = options.option("LOG", "Judge on these rows instead of folds; may be repeated."),
    method: list[str] | None = options.option(
        "NAME", "Compare this method; may be repeated. Default: all.", autocompletion=options.complete_methods
    ),
    folds: int = options.option("N", "Split the rows into this many folds.", 5, min=2),
    report: str | None = options.option("FILE", "Write a page to look at (.html)."),
    save_best: str | None = options.option("FILE", "Save the chosen method's model."),
    fail_if: list[str] | None = options.THRESHOLDS,
    force: bool = options.FORCE,
    printer: Printer = options.PRINTER,
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
    from mcnet.selection import select

    thresholds = parse_thresholds(fail_if)
    source, judged = source_of(logs, alone=not test), source_of(test, alone=False) if test else None
    sources = [source] if judged is None else [source, judged]
    time, every = columns.time, columns.every
    check_periods(columns, *sources)
    if time is not None and report is None:
        raise InputError("--time is for the drift shown in the report; pass --report too")
    refuse_one_file(report=report, save_best=save_best)
    check_output(report, sources, force=force, endings=PAGE)
    check_output(save_best, sources, force=force)
    if judged is not None:
        _warn_of_common_files(printer, source, judged)
    spec = source.with_fields(printer, columns)
    if time is not None and every is None:
        every = _period_to_show(printer, sources, time)
    timed = source.read(printer, replace(source.with_time(spec, time, every, None), folds=1 if test else folds))
    if time is not None:
        _warn_of_texts(printer, timed, time)
    timed_test = None if judged is None else _read_test(printer, judged, spec, timed, time, every)
    number = options.value_number(columns.value)
    if number is not None:
        timed = timed.with_value(number)
        timed_test = None if timed_test is None else timed_test.with_value(number)
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
        from mcnet.sketch.views import sketches_by

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
    end_if_broken(printer, broken, f" by {selection.chosen.method}")


def _journal_periods(printer: Printer, source: "RowSource | None", like: "Sketch") -> "dict[str, Sketch] | None":
    """Return the sketch of each period of a journal; None for other files, and where there are too many to show."""
    from mcnet.rows.periods import MOST_PERIODS

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

    from mcnet.rows.periods import cut_to_periods

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


def _period_to_show(printer: Printer, sources: list["RowSource"], time: str) -> str | None:
    """Return the period to which to cut the time of the rows, or of all rows and test rows; None to leave it."""
    from mcnet.rows.periods import MOST_PERIODS, period_to_show
    from mcnet.sketch.scan import columns_of, has_column

    timed = [source.paths for source in sources if has_column(source.paths, time)]
    every = None
    for number in range(1, 1 + len(timed)):
        every = every or period_to_show(column for paths in timed[:number] for column in columns_of(paths, time))
    if every is not None:
        printer.note(f"{time} has more than {MOST_PERIODS} values: it is cut to periods of {every} (--every)")
    return every


def _read_test(
    printer: Printer,
    test: "RowSource",
    spec: "RowSpec",
    fitted: "Sketch",
    time: str | None,
    every: str | None,
) -> "Sketch":
    """Return the test rows, read as the fitted ones were; with their time, if they have one."""
    from mcnet.rows.spec import RowSpec
    from mcnet.sketch.scan import has_column

    has_time = time is not None and has_column(test.paths, time)
    if time is not None and not has_time:
        printer.note(f"the test rows have no column {time}: the report shows the drift of the fitted rows alone")
    if test.finished:
        spec = RowSpec(fields=spec.fields)  # the rest was settled when it was made
    else:
        # Where the fitted rows were a sketch, it tells which columns are meant.
        given = {name: column for name, column in spec.columns.items() if name in ("score", "label")}
        fields = tuple(name for name in fitted.contexts.names if name != time)
        read_before: dict[str, Any] = {**fitted.columns, **given, **fitted.reading}
        spec = replace(spec, **read_before, fields=fields)
    timed = test.with_time(spec, time if has_time else None, every, None)
    return test.read(printer, timed, title="reading the test rows")


def _without(sketch: "Sketch", time: str | None) -> "Sketch":
    names = sketch.contexts.names
    return sketch.only(*(name for name in names if name != time)) if time in names else sketch


# Evaluation over time: the periods of a log, of sketches or of a journal.


def _check_time(source: "RowSource", columns: Columns, table: str | None) -> None:
    """Refuse options of time that do not fit together, before anything is read."""
    check_periods(replace(columns, every=None), source)
    if source.journal is not None:
        return
    if (columns.time is None) != (columns.every is None):
        lacking = "--every, the length of a period," if columns.every is None else "--time, the column of time,"
        raise InputError(f"to judge periods {lacking} is needed too")
    if table is not None and columns.time is None:
        raise InputError("--table has the figures of periods; pass --time and --every too")


def _longer_periods(
    journal: "Journal", every: str | None, since: str | None, until: str | None
) -> Iterator[tuple[str, "Sketch"]]:
    """Yield the periods of a journal, added up to longer ones if asked for, one in memory at a time."""
    if every is None:
        yield from journal.sketches(since, until)
        return
    import polars as pl

    from mcnet.rows.periods import cut_to_periods, period_text
    from mcnet.sketch.sketch import Sketch

    parts: list[Sketch] = []
    last = ""
    for period, sketch in journal.sketches(since, until):
        name = period_text(cut_to_periods(pl.Series("period", [period]), every)[0])
        if parts and name != last:
            yield last, Sketch.merged(parts)
            parts = []
        last = name
        parts.append(sketch)
    if parts:
        yield last, Sketch.merged(parts)


def write_table(path: str, table: "pl.DataFrame") -> None:
    """Write a table, whole or not at all."""
    with whole_file(path) as part:
        table.write_csv(part) if Path(path).suffix.lower() == ".csv" else table.write_parquet(part)


# `mcnet evaluate`: measure how good scores, or the probabilities of a model, are on logs.


def evaluate(
    logs: list[str] = options.LOGS,
    columns: Columns = options.columns_as_fitted(
        *("value", "value_per_positive", "propensity"),
        field="Judge inside this field; may be repeated.",
        time="The column of time: judge each period, too.",
        every="The length of a period: 15m, 1h, 1d, 1w, or a number.",
    ),
    model: str | None = options.JUDGED_MODEL,
    actions: bool = options.flag(
        "--actions", "List the field values to act on, by money beyond noise; without --value, by positives."
    ),
    actions_table: str | None = options.option("FILE", "Write that list as a table (.csv, .parquet)."),
    since: str | None = options.SINCE,
    until: str | None = options.UNTIL,
    table: str | None = options.option("FILE", "Write the figures of all periods as a table (.parquet, .csv)."),
    report: str | None = options.option("FILE", "With --model: write a page to look at (.html)."),
    level: float = options.option("SHARE", "The level of the intervals.", 0.95),
    fail_if: list[str] | None = options.THRESHOLDS,
    force: bool = options.FORCE,
    printer: Printer = options.PRINTER,
) -> None:
    """Measure PCOC, F-RCE, AUC, log-loss and more.

    Each figure has an interval. With --field the metrics are also computed for every value of the field; without it,
    for the fields of the model. With a model, the share of rows with unseen field values is also measured: --fail-if
    'unseen>0.05'.

    With --time and --every, PCOC, F-RCE, AUC and log-loss of each period follow; a journal is split into periods
    already, and --every makes them longer. --fail-if tests a metric, a bound of its interval (pcoc.low), any value of a
    field (field.pcoc, country.pcoc) or any period (period.pcoc), with a smallest volume if you like: where
    positives>100. With --value, figures in money are added: over-bid and under-bid, per field value and in all, and
    --actions lists the field values that are worth acting on. With --report, a page shows the rows before and after the
    model: by field value, by score, and over time.

    \b
    Example:
      mcnet evaluate log.parquet --score pctr --label click --field country
      mcnet evaluate log.parquet --model model.json --field country \\
          --fail-if 'F-RCE>0.2' --fail-if 'PCOC<0.8'
      mcnet evaluate log.parquet --model model.json --report page.html
      mcnet evaluate log.parquet --model model.json --time ts --every 1d \\
          --fail-if 'field.pcoc.low>1.5 where positives>100'
      mcnet evaluate log.parquet --score pctr --label click --field country \\
          --value bid --actions
    """
    from mcnet.metrics.evaluation import evaluate_cells, evaluate_periods, predict_cells
    from mcnet.metrics.judged_rows import MetricSettings
    from mcnet.model.apply import ScoresSeen, UnseenValues
    from mcnet.model.model import refuse_probabilities
    from mcnet.rows.periods import MOST_PERIODS
    from mcnet.sketch.views import sketches_by

    known = threshold_names() if model is None else [*threshold_names(), UNSEEN]
    thresholds = parse_thresholds(fail_if, known)
    source = source_of(logs)
    time, every = columns.time, columns.every
    _check_time(source, columns, table)
    refuse_one_file(table=table, actions_table=actions_table)
    for path in (table, actions_table):
        check_output(path, [source], force=force, endings=[".parquet", ".csv"])
    if report is not None and model is None:
        raise InputError("--report shows what a model does to the scores; pass --model too")
    check_output(report, [source], force=force, endings=PAGE)
    loaded = None if model is None else load_model(model)
    spec = source.spec_as_fitted(columns, printer, None if source.finished else loaded)
    inside = list(spec.fields) or None
    needed = loaded.needed_fields if loaded is not None else ()
    spec = replace(spec, fields=tuple(dict.fromkeys([*spec.fields, *needed])))
    timed = source.read(printer, source.with_time(spec, time, every), since=since, until=until)
    number = options.value_number(columns.value)
    if number is None and (actions or actions_table is not None) and timed.value_kind is None:
        number = 1.0
        printer.note("without --value every positive is worth 1: money is a number of positives")
    if number is not None:
        timed = timed.with_value(number)
    sketch = _without(timed, time)
    if loaded is not None and not source.finished and columns.logits is None and loaded.score_type == "logit":
        refuse_probabilities(sketch.score, sketch.rows, name=str(spec.score))
    if loaded is not None:
        scores = ScoresSeen(loaded)
        scores.add(sketch.score, sketch.weight)
        scores.warn(str(spec.score or "score"))
    # Without a model the scores themselves are judged.
    p = predict_cells(loaded, sketch) if loaded is not None else sketch.score
    evaluation = evaluate_cells(p, sketch, MetricSettings(level=level), by=inside)
    parts: Iterable[tuple[str, Sketch]] | None = None if time is None else sketches_by(timed, time).items()
    if source.journal is not None:
        parts = _longer_periods(source.journal, every, since, until)
        if number is not None:
            parts = ((period, part.with_value(number)) for period, part in parts)
    periods = None
    if parts is not None:
        periods = evaluate_periods(loaded, parts, MetricSettings(level=level), by=inside or (needed or None))
    document = {"model": model, **evaluation.to_dict(), **({} if periods is None else {"periods": periods.to_dicts()})}
    to_do = evaluation.actions() if actions or actions_table is not None else None
    if to_do is not None:
        document["actions"] = to_do.to_dict()
    shares = {}
    if loaded is not None:
        unseen = UnseenValues.of_sketch(loaded, sketch)
        shares[UNSEEN] = unseen.share
        document[UNSEEN] = unseen.to_dict()
        unseen_note(printer, unseen)
    figures = Figures(evaluation, None if periods is None else periods.pcoc_table(), shares)
    broken = broken_thresholds(thresholds, figures)
    over_time = [] if periods is None else ["", periods.text()]
    listed = [] if to_do is None else ["", str(to_do)]
    printer.result({**document, "broken": broken}, str(evaluation), *over_time, *listed)
    if table is not None and periods is not None:
        write_table(table, periods.table())
        printer.note(f"{len(periods):,} periods → {table}")
    if actions_table is not None and to_do is not None:
        write_table(actions_table, to_do.table())
        printer.note(f"{len(to_do):,} field values → {actions_table}")
    if report is not None and loaded is not None:
        from mcnet.report.page import write_evaluation

        with printer.steps("drawing the report"):
            by_period = None if time is None else sketches_by(timed.unfolded(), time)
            if source.journal is not None:
                chosen_ones = _longer_periods(source.journal, every, since, until)
                by_period = {period: part.only(*sketch.contexts.names) for period, part in chosen_ones}
            if by_period is not None and len(by_period) > MOST_PERIODS:
                printer.note(f"there are more than {MOST_PERIODS} periods: the report does not show them")
                by_period = None
            write_evaluation(report, loaded, sketch, title=f"Evaluation of {model}", periods=by_period)
        printer.note(f"report → {report}")
    end_if_broken(printer, broken)


# `mcnet slices`: which values of any column are still off.


def slices(
    logs: list[str] = options.LOG_FILES,
    columns: Columns = options.columns_as_fitted(exclude=options.LEFT_OUT),
    model: str | None = options.JUDGED_MODEL,
    printer: Printer = options.PRINTER,
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
    from mcnet.metrics.slices import find_slices

    source = source_of(logs)
    loaded = None if model is None else load_model(model)
    spec = source.spec_as_fitted(columns, printer, None if source.finished else loaded)
    source.require_columns(spec)
    plain_interrupts()
    length = None if not printer.lively or source.row_count is None else 2 * source.row_count
    with printer.progress("reading twice", length) as advance:
        excluded, type_given = columns.exclude or (), columns.logits is not None
        result = find_slices(source.paths, spec, loaded, excluded, type_given=type_given, progress=advance)
    printer.result({"model": model, **result.to_dict()}, str(result))
