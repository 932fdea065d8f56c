"""`mcnet show` and `mcnet export`: describe a saved model, and write it in another language."""

import os
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcnet._shared.messages import aligned, figure, shown_value
from mcnet.cli import options
from mcnet.cli.run import Printer, file_size, table

if TYPE_CHECKING:
    from mcnet.model.model import CalibrationModel

# `mcnet show`: describe and draw a saved model in the terminal.

_PLACES = 5


def show(
    model: options.ModelFile,
    contexts: Annotated[
        int, options.option("--contexts", "N", "Show this many contexts, the largest first.", min=0)
    ] = 8,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show what a model is and what it does.

    \b
    Example:
      mcnet show model.json
    """
    from mcnet.cli.sources import load_model

    loaded = load_model(model)
    Printer(json, quiet).result(
        {
            "method": loaded.method,
            "monotone": loaded.monotone,
            "parameters": loaded.parameters,
            "fields": {name: len(v) for name, v in zip(loaded.fields, loaded.contexts.values, strict=True)},
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
    from mcnet.model.drawing import model_facts

    known = ", ".join(f"{name}={value}" for name, value in _chosen_parameters(model).items())
    lines = [("method", model.method + (f" ({known})" if known else "")), *model_facts(model)]
    return "\n".join(f"{name:<12}{value}" for name, value in lines)


def _contributions(model: "CalibrationModel") -> list[str]:
    """Return what each field contributes and its strongest values, if the model knows it."""
    from mcnet.model.drawing import CONTRIBUTIONS_EXPLAINED, contribution_tables

    tables = [aligned(lines) for lines in contribution_tables(model) if lines]
    return ["\n\n".join([*tables, fill(CONTRIBUTIONS_EXPLAINED, 100)]), ""] if tables else []


def _chosen_parameters(model: "CalibrationModel") -> dict[str, Any]:
    """Return the parameters that are not the method's own defaults; all of them for a method of another version."""
    from mcnet.calibrators.methods import default_parameters

    usual = default_parameters(model.method)
    return {name: value for name, value in model.parameters.items() if name not in usual or usual[name] != value}


def _pictures(model: "CalibrationModel", contexts: int) -> list[Any]:
    """Return a table of a few scores and a plot of the pooled curve, over the range of the fit."""
    import numpy as np

    from mcnet._shared.arrays import logit, sigmoid
    from mcnet.curves.evaluate import Evaluator
    from mcnet.model.drawing import largest_lines
    from mcnet.plots.style import terminal_plot

    ends = np.array([model.provenance.get("lowest_score", 0.001), model.provenance.get("highest_score", 0.999)])
    low, high = logit(np.clip(ends, 1e-6, 1.0 - 1e-6))
    places = sigmoid(np.linspace(low, high, _PLACES))
    evaluate = Evaluator(model.curves)
    if model.sums_up:
        drawn = largest_lines(model, contexts, points=_PLACES)
        names = ["any other", *(shown_value(line.label) for line in drawn[1:])]
        lines = [(name, *(figure(p) for p in line.probability)) for name, line in zip(names, drawn, strict=True)]
    else:
        shown = [0, *(1 + place for place in _largest_first(model, contexts))]
        names = ["any other" if model.fields else "all", *(model.contexts.labels() if model.fields else [])]
        names = [shown_value(name) for name in names]
        lines = [(names[curve], *(figure(p) for p in evaluate(places, np.full(_PLACES, curve)))) for curve in shown]
    result: list[Any] = [table(("score", *(figure(place) for place in places)), lines)]
    rest = 1 + model.context_count - len(lines)
    if rest:
        result.append(f"… and {rest:,} more contexts (--contexts N)")
    fine = sigmoid(np.linspace(low, high, 400))
    plot = {"score": (fine, fine), "calibrated": (fine, np.maximum(evaluate(fine), 0.1 * fine[0]))}
    title = f"\ncalibrated probability over score, {names[0]}; the diagonal is the score itself"
    return [*result, title, terminal_plot(plot)]


def _largest_first(model: "CalibrationModel", number: int) -> list[int]:
    """Return the places of so many contexts: those that the history names as the largest, then the others in order."""
    curves = range(len(model.curves) - 1)
    named = model.provenance.get("largest_contexts") or [] if model.fields else []
    largest = [model.contexts.find(values) for values in named if len(values) == len(model.fields)]
    return list(dict.fromkeys([*(place for place in largest if place in curves), *curves]))[:number]


# `mcnet export`: write a model in the language of the system that serves it.


def export(
    model: options.ModelFile,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="The file to write; by default beside the model."),
    ] = None,
    to: Annotated[str | None, options.option("--to", "TARGET", "The target, if the file's name does not say.")] = None,
    parameters: Annotated[
        list[str] | None, options.option("--set", "NAME=VALUE", "An option of the target; may be repeated.")
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
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
    from mcnet.cli.options import parse_settings
    from mcnet.cli.sources import check_output, load_model
    from mcnet.errors import InputError
    from mcnet.export.targets import default_path, export_model, option_from_text, target_of, targets

    printer = Printer(json, quiet)
    chosen = parse_settings(parameters, option_from_text)
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
