"""`mcnet export`: a model in the language of the place that serves it."""

from typing import Annotated

import typer

from mcnet.cli import options
from mcnet.cli.printing import Printer

__all__ = ["export"]


def export(
    model: options.ModelFile,
    output: options.Output,
    to: Annotated[
        str | None, typer.Option("--to", metavar="KIND", help="onnx, c, sql or table, if the file's name does not say.")
    ] = None,
    parameters: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="An option of the target; may be repeated.")
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Export a model to ONNX, C, SQL or a table of knots.

    \b
    Options by target, for --set:
      onnx    score_type=double|float, field_type=string|int64,
              missing=TEXT and missing_number=N, which stand for a missing value
      c       name=PREFIX of every name in the header
      sql     dialect=duckdb|postgresql|bigquery, source=TABLE, score=COLUMN,
              fields={"FIELD":"COLUMN"}, output=COLUMN, form=auto|case|tables,
              tables=PREFIX of the tables that are made
      table   format=parquet|csv

    \b
    Example:
      mcnet export model.json --to c -o calibrate.h
      mcnet export model.json --to sql -o calibrate.sql --set dialect=bigquery
    """
    from mcnet.cli.files import check_output
    from mcnet.cli.parameters import parse_parameters
    from mcnet.curves.store import load
    from mcnet.export import export_model

    printer = Printer(json, quiet)
    check_output(output, [model], force=force)
    loaded = load(model)
    export_model(loaded, output, to=to, **parse_parameters(parameters))
    printer.note(f"{loaded} → {output}")
    printer.result({"output": output, "to": to, "method": loaded.method})
