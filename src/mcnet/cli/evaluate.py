"""`mcnet evaluate`: measure how good scores, or the probabilities of a model, are on logs."""

from typing import Annotated

import typer

from mcnet.cli import options

__all__ = ["evaluate"]


def evaluate(
    context: typer.Context,
    logs: options.Logs,
    score: options.Score = None,
    label: options.Label = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="FILE", help="Judge this model's probabilities, not the scores.")
    ] = None,
    field: Annotated[
        list[str] | None, typer.Option("--field", metavar="COLUMN", help="Judge inside this field; may be repeated.")
    ] = None,
    weight: options.Weight = None,
    logits: options.Logits = None,
    negatives_kept: Annotated[
        float | None,
        typer.Option(
            "--negatives-kept",
            metavar="SHARE",
            help="The share of negatives that survived down-sampling; as in the model's fit if not given.",
        ),
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="COLUMN", help="The column of time: judge each period, too.")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="PERIOD", help="The length of a period: 15m, 1h, 1d, 1w, or a number."),
    ] = None,
    since: options.Since = None,
    until: options.Until = None,
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="FILE", help="Write the figures of all periods as a table (.parquet, .csv)."),
    ] = None,
    report: Annotated[
        str | None, typer.Option("--report", metavar="FILE", help="With --model: write a page to look at (.html).")
    ] = None,
    level: Annotated[float, typer.Option("--level", metavar="SHARE", help="The level of the intervals.")] = 0.95,
    fail_if: options.Thresholds = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure PCOC, F-RCE, AUC, log-loss and more.

    Each figure has an interval. With --field the metrics are also computed for every value of the field; without it,
    for the fields of the model. With a model, the share of rows with unseen field values is also measured: --fail-if
    'unseen>0.05'.

    With --time and --every, PCOC, F-RCE, AUC and log-loss of each period follow; a journal is split into periods
    already, and --every makes them longer. --fail-if tests a metric, a bound of its interval (pcoc.low), any value of a
    field (field.pcoc, country.pcoc) or any period (period.pcoc), with a smallest volume if you like: where
    positives>100. With --report, a page shows the rows before and after the model: by field value, by score, and over
    time.

    \b
    Example:
      mcnet evaluate log.parquet --score pctr --label click --field country
      mcnet evaluate log.parquet --model model.json --field country \\
          --fail-if 'F-RCE>0.2' --fail-if 'PCOC<0.8'
      mcnet evaluate log.parquet --model model.json --report page.html
      mcnet evaluate log.parquet --model model.json --time ts --every 1d \\
          --fail-if 'field.pcoc.low>1.5 where positives>100'
    """
    from mcnet.cli.config import printer_of
    from mcnet.cli.files import check_output, load_model, remembered, score_type
    from mcnet.cli.over_time import check_time, period_evaluations, write_table
    from mcnet.cli.run import THRESHOLD_NOT_MET
    from mcnet.cli.sources import source_of
    from mcnet.cli.thresholds import UNSEEN, Figures, broken_thresholds, parse_thresholds, threshold_names
    from mcnet.cli.unseen import unseen_note
    from mcnet.data.periods import MOST_PERIODS
    from mcnet.errors import InputError
    from mcnet.metrics.evaluate_sketch import evaluate_cells, predict_cells
    from mcnet.metrics.settings import MetricSettings
    from mcnet.model.score_types import refuse_probabilities_read_as_logits
    from mcnet.model.unseen import UnseenValues
    from mcnet.sketch.split import sketches_by

    printer = printer_of(context, json, quiet)
    known = threshold_names() if model is None else [*threshold_names(), UNSEEN]
    thresholds = parse_thresholds(fail_if, known)
    source = source_of(logs)
    check_time(source, time, every, table)
    if table is not None:
        check_output(table, [source], force=force, endings=[".parquet", ".csv"])
    if report is not None:
        if model is None:
            raise InputError("--report shows what a model does to the scores; pass --model too")
        check_output(report, [source], force=force, endings=[".html", ".htm"])
    loaded = None if model is None else load_model(model)
    judged = False
    if loaded is not None and not source.finished:
        score, label = remembered(loaded, "score", score), remembered(loaded, "label", label)
        judged = logits is None and loaded.score_type == "logit"
        logits = score_type(loaded, logits) == "logit"
        fitted_columns = loaded.provenance.get("columns", {})
        weight = weight or fitted_columns.get("weight")
        if negatives_kept is None and fitted_columns.get("negatives_kept", 1.0) != 1.0:
            negatives_kept = fitted_columns["negatives_kept"]
            printer.note(
                f"negatives count {1.0 / negatives_kept:.6g} times, as in the fit of the model; "
                "pass --negatives-kept 1 if this log has them all"
            )
    columns = source.columns(
        context, score=score, label=label, weight=weight, logits=logits, negatives_kept=negatives_kept
    )
    inside = columns["field"] or None
    needed = loaded.fields if loaded is not None else ()
    columns["field"] = list(dict.fromkeys([*(inside or ()), *needed]))
    chosen = source.chosen_periods(since=since, until=until)
    timed = source.read(printer, **source.with_time(columns, time, every), **chosen)
    sketch = timed if time is None else timed.only(*(name for name in timed.contexts.names if name != time))
    if judged:
        refuse_probabilities_read_as_logits(sketch.score, sketch.rows, name=str(score))
    # Without a model the scores themselves are judged.
    p = predict_cells(loaded, sketch) if loaded is not None else sketch.score
    found = evaluate_cells(p, sketch, MetricSettings(level=level), by=inside)
    periods = period_evaluations(
        source.journal,
        timed,
        time,
        every,
        loaded,
        MetricSettings(level=level),
        inside or (needed or None),
        since,
        until,
    )
    document = {"model": model, **found.to_dict(), **({} if periods is None else {"periods": periods.to_dicts()})}
    share = None
    if loaded is not None:
        unseen = UnseenValues.of_sketch(loaded, sketch)
        share = unseen.share
        document[UNSEEN] = unseen.to_dict()
        unseen_note(printer, unseen)
    figures = Figures(found, None if periods is None else periods.pcoc_table(), share)
    broken = broken_thresholds(thresholds, figures)
    over_time = [] if periods is None else ["", periods.text()]
    printer.result({**document, "broken": broken}, str(found), *over_time)
    if table is not None and periods is not None:
        write_table(table, periods)
        printer.note(f"{len(periods):,} periods → {table}")
    if report is not None and loaded is not None:
        from mcnet.report.page import write_evaluation

        with printer.steps("drawing the report"):
            by_period = source.periods(sketch.contexts.names) if source.journal is not None else None
            if time is not None:
                by_period = sketches_by(timed.unfolded(), time)
            if by_period is not None and len(by_period) > MOST_PERIODS:
                printer.note(f"there are more than {MOST_PERIODS} periods: the report does not show them")
                by_period = None
            write_evaluation(report, loaded, sketch, title=f"Evaluation of {model}", periods=by_period)
        printer.note(f"report → {report}")
    for sentence in broken:
        printer.note(f"not met: {sentence}")
    if broken:
        raise typer.Exit(THRESHOLD_NOT_MET)
