"""`mcnet demo`: compare the methods on simulated rows whose true probabilities are known."""

from typing import Annotated

import typer

from mcnet._shared.terminal_text import figure
from mcnet.cli import options
from mcnet.cli.printing import Printer, table

__all__ = ["demo"]


def demo(
    rows: Annotated[
        int, typer.Option("--rows", min=1000, metavar="N", help="Rows to fit on, and as many to judge on.")
    ] = 300_000,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Seed of the simulation.")] = 0,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the simulated rows, to try the other commands on (Parquet)."
        ),
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare every method on a simulated click log.

    The truth is known. The log is shaped like AliExpress: four field values of very different size, a CTR of 2 %.

    \b
    Example:
      mcnet demo --rows 100000
    """
    from mcnet._shared.atomic_files import whole_file
    from mcnet.cli.files import check_output
    from mcnet.cli.methods import TWO_MCNETS
    from mcnet.selection.demo import demo_log, demonstrate

    printer = Printer(json, quiet)
    if output is not None:
        check_output(output, [], force=force, endings=(".parquet",))
    with printer.steps("simulating") as step:
        log = demo_log(rows, seed)
        if output is not None:
            with whole_file(output) as part:
                log.frame().write_parquet(part)
        sketch, lines, failed = demonstrate(log, progress=step)
    lines = sorted(lines, key=lambda line: line.evaluation.log_loss)  # the best first, as in compare
    metrics = ("pcoc", "f_rce", "auc", "log_loss", "excess_log_loss")
    shown = [
        (
            line.method,
            figure(line.evaluation.pcoc, 3),
            f"{line.evaluation.f_rce:.4f}",
            f"{line.evaluation.floor('f_rce'):.4f}",
            f"{line.evaluation.auc:.4f}",
            f"{line.evaluation.log_loss:.5f}",
            f"{1e5 * line.evaluation.excess_log_loss:.1f}",
            f"{line.fit_seconds:.2f}",
        )
        for line in lines
    ]
    headings = ("method", "PCOC", "F-RCE", "floor", "AUC", "log-loss", "excess ×10⁻⁵", "fit s")
    printer.result(
        {
            "rows": rows,
            "seed": seed,
            "failed": failed,
            "methods": [
                {
                    "method": line.method,
                    "fit_seconds": line.fit_seconds,
                    **{metric: getattr(line.evaluation, metric) for metric in metrics},
                    "f_rce_floor": line.evaluation.floor("f_rce"),
                }
                for line in lines
            ],
        },
        f"{rows:,} simulated impressions, {sketch.total_positives:,.0f} clicks, {len(sketch.contexts)} field values → "
        f"a sketch of {len(sketch):,} cells; judged on {rows:,} others.\n",
        table(headings, shown),
        "\nPCOC is predicted over observed clicks (1 is right), F-RCE the mean relative error by field value;\n"
        "its floor is what noise alone gives.\n"
        "The excess is the log-loss over that of the true probabilities, which only a simulation knows.\n",
        TWO_MCNETS,
    )
    if output is not None:
        printer.note(f"{len(log):,} simulated rows → {output}")
    for method, reason in failed.items():
        printer.note(f"{method} failed: {reason}")
