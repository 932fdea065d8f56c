"""`mcnet export`: write a model in the language of the system that serves it."""

import os
from typing import Annotated

import typer

from mcnet.cli import options
from mcnet.cli.printing import Printer, file_size

__all__ = ["LARGE_EXPORT_BYTES", "export"]

LARGE_EXPORT_BYTES = 50_000_000
"""A larger file is worth a warning: compilers, warehouses and reviewers have trouble with it."""


def export(
    model: options.ModelFile,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="The file to write; by default beside the model."),
    ] = None,
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
      onnx    number_type=double|float, field_type=string|int64,
              missing=TEXT and missing_number=N for a missing value,
              score_type=probability|logit, if not as in the fit
      c       name=PREFIX of every name in the header,
              score_type=probability|logit
      sql     dialect=duckdb|postgresql|bigquery|snowflake|spark|clickhouse|trino,
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
    from mcnet.cli.files import check_output, load_model
    from mcnet.cli.parameters import parse_parameters
    from mcnet.errors import InputError
    from mcnet.export.export import default_path, export_model, target_of
    from mcnet.export.options import option_from_text

    printer = Printer(json, quiet)
    chosen = parse_parameters(parameters, option_from_text)
    if output is None:
        if to is None:
            raise InputError("name the kind with --to (onnx, c, sql or table), or the file with --output")
        output = str(default_path(model, to, **chosen))
    to = target_of(output, to)
    check_output(output, [model], force=force)
    loaded = load_model(model)
    export_model(loaded, output, to=to, **chosen)
    size = os.path.getsize(output)
    printer.note(f"{loaded} → {output} ({file_size(size)})")
    if size > LARGE_EXPORT_BYTES:
        printer.warn(
            f"{output} has {file_size(size)}, for {len(loaded.curves):,} curves; --to table is the smallest form, and "
            "a model with fewer field values is smaller"
        )
    printer.result({"output": output, "to": to, "method": loaded.method, "bytes": size})
