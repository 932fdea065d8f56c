"""The application: every command by its name."""

from collections.abc import Callable
from inspect import signature

import typer

from mcnet.cli import options
from mcnet.cli.compare import compare, evaluate, slices
from mcnet.cli.config import read_config
from mcnet.cli.fit import demo, fields, fit, merge, methods, sketch
from mcnet.cli.journal import backtest, journal
from mcnet.cli.models import apply, diff, export, show
from mcnet.cli.monitor import monitor
from mcnet.cli.sources import bins_or_edges
from mcnet.cli.stores import store, versions
from mcnet.cli.update import serve, update
from mcnet.cli.value import value
from mcnet.errors import InputError
from mcnet.rows.locations import read_with
from mcnet.version import __version__

app = options.Commands(
    name="mcnet",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_EVERY_COMMAND = "Options of every command: --head, --new-head, --config, --no-config, --debug. See mcnet --help."
_COMMANDS: dict[str, tuple[Callable[..., None] | typer.Typer, ...]] = {
    "Learn": (fit, compare, fields, sketch, merge, methods),
    "Use": (apply, evaluate, slices, value, show, diff, export),
    "Over time": (journal, update, monitor, backtest),
    "Serve": (serve, versions, store),
    "Study": (demo,),
}
"""Every command, by what it is for."""
_READ_LOGS = {"journal"}
"""The commands that read logs: those that take some, and one that has such a part."""

for purpose, commands in _COMMANDS.items():
    for command in commands:
        if isinstance(command, typer.Typer):
            app.add_typer(command, rich_help_panel=purpose)
        else:
            reads_logs = not {"logs", "log"}.isdisjoint(signature(command).parameters)
            _READ_LOGS.update([command.__name__] if reads_logs else [])
            app.command(epilog=options.READS_LOGS if reads_logs else _EVERY_COMMAND, rich_help_panel=purpose)(command)


@app.command(hidden=True, context_settings={"ignore_unknown_options": True})
def paper(words: list[str] | None = options.argument("WORDS", "", None)) -> None:
    """Say where the study of the paper is: `python -m reproduction`, in a clone of the repository."""
    study = " ".join(["python -m reproduction", *(words or ["all", "--quick"])])
    raise InputError(f"the study of the paper is not part of the package; in a clone of the repository, run {study}")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"mcnet {__version__}")
        raise typer.Exit


@app.callback()
def mcnet(
    context: typer.Context,
    version: bool = options.flag("--version", "Print the version.", callback=_version, is_eager=True),
    head: str | None = options.option("NAME", "The head of a store; the only or the default one if not given."),
    new_head: str | None = options.option("NAME", "The same, and make this head if the store does not have it."),
    config: str | None = options.option("FILE", "Read settings from this file, not from ./mcnet.toml."),
    no_config: bool = options.flag("--no-config", "Do not read ./mcnet.toml."),
    debug: bool = options.flag("--debug", "Show the traceback of an error."),
    where: str | None = options.option("CONDITION", 'Read only these rows of logs: SQL, as in "day = 3".'),
    drop_missing: bool = options.flag(
        "--drop-missing", "Leave out rows without a score, label or weight, and print how many."
    ),
    separator: str | None = options.option("CHARACTER", "The character between the columns of CSV logs."),
    bins: str | None = options.option(
        "N|FILE", "Cut numbers (--field 'age:number') into N bins (16), or as a sketch, model or store is cut."
    ),
    storage_option: list[str] | None = options.option("NAME=VALUE", "A setting of an object store; may be repeated."),
) -> None:
    """Turn ranking scores into true probabilities by one rising curve per context, such as a country.

    A LOG is a file, a glob or a folder, with one row per impression; an address such as s3://bucket/log.parquet
    (gs://, az://, https://), a table of Delta or Iceberg, or - for standard input. A saved sketch is accepted instead
    of a LOG; fit, compare and evaluate also accept a STORE, which has sketches by period: a file such as ads.db, or
    postgresql://user@host/ads. The options of this page may also follow the command.

    \b
    Exit codes:
      0   all went well
      1   a threshold (--fail-if) was not met
      2   wrong use or input
      70  an unexpected error
      74  the disk is full; make room, and run it again
      75  another process is using the same files, or a database cannot be reached; try again later
      130, 143, 129  ended by an interrupt, SIGTERM, SIGHUP

    \b
    Start with:
      mcnet demo
      mcnet compare log.parquet --score pctr --label click --field country
    """
    settings = options.parse_settings(storage_option, lambda _, text: text, "--storage-option", "aws_region=eu-west-1")
    context.with_resource(
        read_with(
            storage_options=settings,
            separator=separator,
            where=where,
            drop_missing=drop_missing,
            **({} if bins is None else bins_or_edges(bins)),
        )
    )
    if context.invoked_subcommand not in _READ_LOGS:
        options.refuse_read_options(f"{context.invoked_subcommand} reads none")
    context.default_map = read_config(context, config, no_config, options.chosen_head(head, new_head))
