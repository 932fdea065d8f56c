"""The application: every command by its name."""

from typing import Annotated

import typer

from mcnet.cli.apply import apply
from mcnet.cli.compare import compare
from mcnet.cli.demo import demo
from mcnet.cli.evaluate import evaluate
from mcnet.cli.export import export
from mcnet.cli.fit import fit
from mcnet.cli.methods import methods
from mcnet.cli.paper import paper
from mcnet.cli.show import show
from mcnet.cli.sketch import merge, sketch

__all__ = ["app"]

# Help is plain text: an example in a box, or wrapped in the middle, cannot be pasted.
app = typer.Typer(
    name="mcnet",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (demo, compare, fit, apply, evaluate, show, export, sketch, merge, methods):
    app.command()(command)
app.add_typer(paper)


def _version(asked: bool) -> None:
    if asked:
        from mcnet.version import __version__

        typer.echo(f"mcnet {__version__}")
        raise typer.Exit


@app.callback()
def mcnet(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Turn ranking scores into true probabilities, overall and inside every field, without losing their order.

    A LOG is a Parquet, CSV or Arrow file, a glob or a folder, with a row an impression; a finished sketch will do too.

    \b
    Start with:
      mcnet demo
      mcnet compare log.parquet --score pctr --label click --field country
    """
