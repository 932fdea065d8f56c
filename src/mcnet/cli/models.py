"""What is done with saved models: `mcnet apply`, `show`, `diff` and `export`."""

import os
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from mcnet._shared.messages import aligned, counted, figure, shown_value
from mcnet.cli import options
from mcnet.cli.run import Printer, file_size, plain_interrupts, table, unseen_note
from mcnet.cli.sources import (
    STANDARD_OUTPUT,
    check_output,
    load_model,
    remembered,
    source_of,
    write_to_standard_output,
)
from mcnet.cli.thresholds import MISSING, UNSEEN, Figures, broken_thresholds, end_if_broken, parse_thresholds
from mcnet.errors import InputError
from mcnet.rows.locations import FORMATS

if TYPE_CHECKING:
    from mcnet.model.model import CalibrationModel

# `mcnet apply`: calibrate logs of any size with a saved model.


def apply(
    model: str = options.MODEL,
    logs: list[str] = options.LOG_FILES,
    output: str = options.OUTPUT,
    score: str | None = options.SCORE,
    # Not called `field`: what the configuration file says of fields is about logs to fit, and the model knows its own.
    field_columns: list[str] | None = options.option(
        "COLUMN",
        "The column of the model's field, if it has another name here; for several, in the model's order.",
        None,
        "--field",
    ),
    column: str = options.option("NAME", "The name of the column to add.", "calibrated"),
    replace: bool = options.flag("--replace", "Replace the column if the log has it already."),
    logits: bool | None = options.LOGITS_OF_MODEL,
    interval: float | None = options.option(
        "LEVEL", "Add the bounds of the credible interval of this level, such as 0.9."
    ),
    fail_if: list[str] | None = options.option(
        "THRESHOLD", "Exit with 1 if this holds: 'unseen>0.05', 'missing>0'; may be repeated."
    ),
    force: bool = options.FORCE,
    printer: Printer = options.PRINTER,
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

    from mcnet.model.apply import Applied, NewColumn, UnseenValues, apply_to_files
    from mcnet.rows.logs import file_format

    thresholds = parse_thresholds(fail_if, [UNSEEN, MISSING])
    if output == STANDARD_OUTPUT and printer.json:
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
            score_type=None if logits is None else "logit" if logits else "probability",
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
    figures = Figures(shares={UNSEEN: unseen.share, MISSING: done.missing_share})
    broken = broken_thresholds(thresholds, figures)
    document = {"output": output, "rows": rows, "seconds": seconds, "column": column}
    printer.result({**document, MISSING: done.missing, UNSEEN: unseen.to_dict(), "broken": broken})
    end_if_broken(printer, broken)


# `mcnet show`: describe and draw a saved model in the terminal.

_SHOWN_SCORES = 5


def show(
    model: str = options.MODEL,
    contexts: int = options.option("N", "Show this many contexts, the largest first.", 8, min=0),
    printer: Printer = options.PRINTER,
) -> None:
    """Show what a model is and what it does.

    \b
    Example:
      mcnet show model.json
    """
    loaded = load_model(model)
    printer.result(
        {
            "method": loaded.method,
            "monotone": loaded.monotone,
            "parameters": loaded.parameters,
            "fields": dict(zip(loaded.fields, map(len, loaded.contexts.values), strict=True)),
            "contexts": loaded.context_count,
            "knots": len(loaded.curves.probabilities),
            "provenance": loaded.provenance,
        },
        _facts(loaded),
        "",
        *_contributions(loaded),
        *_pictures(loaded, contexts),
    )


def _facts(model: "CalibrationModel") -> str:
    """Return what a model is; of its parameters those that are not the method's own defaults."""
    from mcnet.calibrators.methods import default_parameters
    from mcnet.model.drawing import model_facts

    usual = default_parameters(model.method)
    chosen = {name: value for name, value in model.parameters.items() if name not in usual or usual[name] != value}
    known = ", ".join(f"{name}={value}" for name, value in chosen.items())
    lines = [("method", model.method + (f" ({known})" if known else "")), *model_facts(model)]
    return "\n".join(f"{name:<12}{value}" for name, value in lines)


def _contributions(model: "CalibrationModel") -> list[str]:
    """Return what each field contributes and its strongest values, if the model knows it."""
    from mcnet.model.drawing import CONTRIBUTIONS_EXPLAINED, contribution_tables

    tables = [aligned(lines) for lines in contribution_tables(model) if lines]
    return ["\n\n".join([*tables, fill(CONTRIBUTIONS_EXPLAINED, 100)]), ""] if tables else []


def _pictures(model: "CalibrationModel", contexts: int) -> list[Any]:
    """Return a table of a few scores and a plot of the pooled curve, over the range of the fit."""
    import numpy as np

    from mcnet._shared.arrays import logit, sigmoid
    from mcnet.curves.evaluate import Evaluator
    from mcnet.model.drawing import largest_lines
    from mcnet.plots.style import terminal_plot

    ends = np.array([model.provenance.get("lowest_score", 0.001), model.provenance.get("highest_score", 0.999)])
    low, high = logit(np.clip(ends, 1e-6, 1.0 - 1e-6))
    scores = sigmoid(np.linspace(low, high, _SHOWN_SCORES))
    evaluate = Evaluator(model.curves)
    if model.sums_up:
        drawn = largest_lines(model, contexts, points=_SHOWN_SCORES)
        names = ["any other", *(shown_value(line.label) for line in drawn[1:])]
        lines = [(name, *(figure(p) for p in line.probability)) for name, line in zip(names, drawn, strict=True)]
    else:
        shown = [0, *(1 + index for index in _largest_first(model, contexts))]
        names = ["any other" if model.fields else "all", *(model.contexts.labels() if model.fields else [])]
        names = [shown_value(name) for name in names]
        lines = [(names[curve], *(figure(p) for p in evaluate(scores, np.full(len(scores), curve)))) for curve in shown]
    result: list[Any] = [table(("score", *(figure(score) for score in scores)), lines)]
    rest = 1 + model.context_count - len(lines)
    if rest:
        result.append(f"… and {rest:,} more contexts (--contexts N)")
    fine = sigmoid(np.linspace(low, high, 400))
    plot = {"score": (fine, fine), "calibrated": (fine, np.maximum(evaluate(fine), 0.1 * fine[0]))}
    title = f"\ncalibrated probability over score, {names[0]}; the diagonal is the score itself"
    return [*result, title, terminal_plot(plot)]


def _largest_first(model: "CalibrationModel", number: int) -> list[int]:
    """Return the indices of so many contexts: those that the history names as the largest, then the others in order."""
    curves = range(len(model.curves) - 1)
    named = model.provenance.get("largest_contexts") or [] if model.fields else []
    largest = [model.contexts.find(values) for values in named if len(values) == len(model.fields)]
    return list(dict.fromkeys([*(index for index in largest if index in curves), *curves]))[:number]


# `mcnet diff`: what changes from one model to another.


def diff(
    old: str = options.argument("OLD", "A saved model."),
    new: str = options.argument("NEW", "Another saved model."),
    log: list[str] | None = options.option("LOG", "Weight the change by these logs or sketches; may be repeated."),
    score: str | None = options.SCORE,
    label: str | None = options.LABEL,
    contexts: int = options.option("N", "Show this many contexts.", 15, min=1),
    printer: Printer = options.JSON_PRINTER,
) -> None:
    """Show what changes from one model to another.

    The output shows where, by how much and for which field values probabilities change.

    \b
    Example:
      mcnet diff old.json new.json --log log.parquet
    """
    from mcnet.difference import diff as compare_models

    if not log:
        options.refuse_read_options("no --log is named")
    before, after = load_model(old), load_model(new)
    sketch = None
    if log:
        from mcnet.rows.spec import RowSpec

        known: dict[str, Any] = before.provenance.get("columns") or after.provenance.get("columns", {})
        fields = tuple(dict.fromkeys([*before.needed_fields, *after.needed_fields]))
        spec = RowSpec(score or known.get("score"), label or known.get("label"), fields, score_type=before.score_type)
        source = source_of(log)
        sketch = source.read(printer, RowSpec(fields=fields) if source.finished else spec)
    difference = compare_models(before, after, sketch)
    shown = difference.table.head(contexts)
    rows = [(shown_value(row["context"]), *_rates(row), f"{row['largest']:.2%}") for row in shown.to_dicts()]
    where = "the rows given" if sketch is not None else "scores spread evenly over the fitted range"
    largest = f"{difference.largest:.2%}"
    message = f"Mean probability {difference.shift:+.2%}, largest change of a probability {largest}, over {where}."
    left_out = difference.table.height - len(rows)
    more = [f"{counted(left_out, 'more context')}; --contexts shows all"] if left_out else []
    only = [
        f"{len(names):,} with a curve in the {which} model only: "
        f"{', '.join(map(shown_value, names[:5]))}{' …' if len(names) > 5 else ''}"
        for which, names in (("old", difference.only_old), ("new", difference.only_new))
        if names
    ]
    headings = ("context", "old rate", "new rate", "shift", "largest")
    bands = [
        (f"{row['score_low']:.4g} … {row['score_high']:.4g}", *_rates(row)) for row in difference.by_score.to_dicts()
    ]
    by_score = table(("score", "old rate", "new rate", "shift"), bands)
    printer.result(difference.to_dict(), message, table(headings, rows), *more, *only, by_score)


def _rates(row: dict[str, Any]) -> tuple[str, str, str]:
    """Return the mean probability by the old and by the new model, and how much it moves."""
    return f"{row['old_rate']:.4%}", f"{row['new_rate']:.4%}", f"{row['shift']:+.2%}"


# `mcnet export`: write a model in the language of the system that serves it.


def export(
    model: str = options.MODEL,
    output: str | None = options.option(
        "FILE", "The file to write; by default beside the model.", None, "--output", "-o"
    ),
    to: str | None = options.option("TARGET", "The target, if the file's name does not say."),
    parameters: list[str] | None = options.option(
        "NAME=VALUE", "An option of the target; may be repeated.", None, "--set"
    ),
    force: bool = options.FORCE,
    printer: Printer = options.PRINTER,
) -> None:
    """Export a model to ONNX, C, SQL or a table of knots.

    \b
    Targets, and their options for --set:
      onnx    number_type=double|float, field_type=string|int64,
              missing=TEXT and missing_number=N for a missing value,
              score_type=probability|logit, if not as in the fit
      c       name=PREFIX of every name in the header,
              score_type=probability|logit
      sql     dialect=DIALECT, as for mcnet sketch --sql,
              source=TABLE, score=COLUMN,
              fields={"FIELD":"COLUMN"}, output=COLUMN, form=auto|case|tables,
              tables=PREFIX of the tables that are made,
              score_type=probability|logit
      table   format=parquet|csv

    \b
    Example:
      mcnet export model.json --to onnx
      mcnet export model.json -o calibrate.h --set name=ctr
      mcnet export model.json --to sql -o calibrate.sql --set dialect=bigquery
    """
    from mcnet.export.targets import default_path, export_model, option_from_text, target_of, targets

    chosen = options.parse_settings(parameters, option_from_text)
    if output is None:
        if to is None:
            raise InputError(f"name the target with --to ({', '.join(targets())}), or the file with --output")
        output = str(default_path(model, to, **chosen))
    to = target_of(output, to)
    check_output(output, [model], force=force)
    loaded = load_model(model)
    export_model(loaded, output, to=to, **chosen)
    size = os.path.getsize(output)
    printer.note(f"{loaded} → {output} ({file_size(size)})")
    printer.result({"output": output, "to": to, "method": loaded.method, "bytes": size})
