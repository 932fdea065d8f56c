"""`mcnet apply`: a saved model over logs of any size."""

from typing import Annotated

import typer

from mcnet.cli import options
from mcnet.cli.printing import Printer

__all__ = ["apply"]


def apply(
    model: options.ModelFile,
    logs: options.Logs,
    output: options.Output,
    score: options.Score = None,
    column: Annotated[
        str, typer.Option("--column", metavar="NAME", help="The name of the column to add.")
    ] = "calibrated",
    replace: Annotated[bool, typer.Option("--replace", help="Replace the column if the log has it already.")] = False,
    logits: options.Logits = False,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Add the calibrated probability to every row of logs.

    All columns and the order of the rows are kept. Rows are streamed: a file of any size fits in memory.

    \b
    Example:
      mcnet apply model.json log.parquet -o calibrated.parquet
    """
    import time

    from mcnet.cli.files import check_output, plain_interrupts, remembered, row_count, score_type
    from mcnet.data.files import expand_paths
    from mcnet.errors import InputError
    from mcnet.model.apply_files import apply_to_files
    from mcnet.model.file import load
    from mcnet.sketch.file import is_sketch_file

    printer = Printer(json, quiet)
    check_output(output, [model, *logs], force=force)
    loaded = load(model)
    sketches = [path for path in expand_paths(logs) if is_sketch_file(path)]
    if sketches:
        raise InputError(f"{sketches[0]} is a sketch: it has no rows to calibrate; give the log it was made of")
    plain_interrupts()
    begin = time.perf_counter()
    with printer.progress("calibrating", row_count(logs) if printer.lively else None) as advance:
        rows = apply_to_files(
            loaded,
            logs,
            output,
            score=remembered(loaded, "score", score),
            column=column,
            replace=replace,
            score_type=score_type(loaded, logits),
            progress=advance,
        )
    seconds = time.perf_counter() - begin
    printer.note(f"{rows:,} rows in {seconds:.1f} s ({rows / seconds / 1e6:.1f} M rows/s) → {output}")
    printer.result({"output": output, "rows": rows, "seconds": seconds, "column": column})
