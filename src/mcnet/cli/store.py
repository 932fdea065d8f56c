"""`mcnet store`: look at a store, check it, copy it, make it smaller, and take folders of earlier versions in."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mcnet.cli import options
from mcnet.cli.run import UNUSABLE, Printer, table
from mcnet.errors import InputError

if TYPE_CHECKING:
    from mcnet.store.store import Store


store = options.Commands(name="store", no_args_is_help=True)


@store.callback()
def about() -> None:
    """Look after a store.

    A store has everything that is kept between runs, in a file or in PostgreSQL. A password never belongs into the
    address: set PGPASSWORD, PGPASSFILE or ~/.pgpass.

    \b
    Example:
      mcnet store import ads.db history --head ctr
      mcnet store show ads.db
    """


def _require(address: str) -> "Store":
    """Return a store that is there, and has the head that is named."""
    from mcnet.store.store import Store

    opened = Store(address)
    if not opened.database.exists():
        raise InputError(f"there is no store in {opened.name}; `mcnet journal add`, update or store import make one")
    head = options.head_name()
    if head is not None:
        opened.require_head(head)
    return opened


@store.command("import")
def import_(
    store: options.StoreAddress,
    folders: Annotated[
        list[str], typer.Argument(metavar="FOLDER", help="Journals and registries of mcnet 0.1.", show_default=False)
    ],
    json: options.Json = False,
) -> None:
    """Take journals and registries of mcnet 0.1 into a store; the folders are not changed.

    A folder is taken in as a whole or not at all, and compared by counts and digests. It can be repeated.

    \b
    Example:
      mcnet store import ads.db history --head ctr
    """
    from mcnet.store.import_folders import import_folder
    from mcnet.store.store import Store

    opened, printer = Store(store), Printer(json)
    options.announce_head(store, printer)
    done = [import_folder(opened, folder, options.head_name()) for folder in folders]
    for one in done:
        for problem in one.left_out:
            printer.warn(problem)
    columns = ("folder", "head", "sources", "rows", "merged", "versions", "runs")
    rows = [[_shown(getattr(one, name)) for name in columns] for one in done]
    printer.result({"imported": [asdict(one) for one in done]}, table(columns, rows, left=2))


@store.command()
def show(
    store: options.StoreAddress,
    status: Annotated[
        str | None, options.option("--status", "FILE", "Write a page about the state of the loop of a head (.html).")
    ] = None,
    json: options.Json = False,
) -> None:
    """Show what a store has, by head.

    \b
    Example:
      mcnet store show ads.db
    """
    opened = _require(store)
    found = opened.show()
    columns = ("periods", "first_period", "last_period", "sources", "rows", "versions", "current", "runs")
    rows = [[name, *(_shown(head[column]) for column in columns)] for name, head in found["heads"].items()]
    titles = ("head", *(column.replace("_", " ") for column in columns))
    held = [f"{name}: {head['held']}" for name, head in found["heads"].items() if head["held"]]
    Printer(json).result(found, table(titles, rows, left=1), *held)
    if status is not None:
        from mcnet.operations.status import status_of
        from mcnet.report.monitor_page import write_status_page

        document = status_of(opened, options.head_name())
        if document["last_run"] is None:
            raise InputError(f"`mcnet update` has not run on {store} yet, so there is no state of the loop")
        write_status_page(status, document)
        Printer(json).note(f"status → {status}")


@store.command()
def check(store: options.StoreAddress, json: options.Json = False) -> None:
    """Read everything in a store, compare it with its digests, and name what is wrong (exit code 2).

    \b
    Example:
      mcnet store check ads.db
    """
    from mcnet.operations.learning import check_loop

    opened = _require(store)
    problems = opened.check() + [problem for head in opened.heads for problem in check_loop(opened.state(head))]
    Printer(json).result({"problems": problems}, *(problems or [f"{opened.name} is whole"]))
    if problems:
        raise typer.Exit(UNUSABLE)


@store.command()
def backup(
    store: options.StoreAddress,
    output: Annotated[str, typer.Argument(metavar="FILE", help="The copy.", show_default=False)],
) -> None:
    """Copy a store in a file while others use it.

    Copying the file by other means loses what still lies beside it, in the file that ends in -wal. A store in
    PostgreSQL is copied with pg_dump.

    \b
    Example:
      mcnet store backup ads.db copy.db
    """
    opened = _require(store)
    opened.backup(output)
    Printer().note(f"{opened.name} was copied to {output}")


@store.command()
def forget(
    store: options.StoreAddress,
    before: Annotated[str, options.option("--before", "PERIOD", "The first period that stays.")],
    json: options.Json = False,
) -> None:
    """Delete the rows of all periods before one, for good; the versions stay.

    \b
    Example:
      mcnet store forget ads.db --before 2023-11-14
    """
    opened, head = _require(store), options.head_name()
    if head is None and len(opened.heads) > 1:
        raise InputError(f"{opened.name} has the heads {', '.join(opened.heads)}; name one with --head")
    gone = opened.forget(before, head)
    where = f"{gone['periods']:,} periods of {opened.chosen_head(head)} were deleted, with {gone['rows']:,} rows"
    Printer(json).result(dict(gone), where)


Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the head.", show_default=False)]


@store.command("add-head")
def add_head(store: options.StoreAddress, name: Name) -> None:
    """Make a head, also one whose name is like that of another one; rows and versions make others by themselves.

    \b
    Example:
      mcnet store add-head ads.db crt
    """
    opened = _require(store)
    opened.add_head(name)
    Printer().note(f"{opened.name} has the heads {', '.join(opened.heads)}")


@store.command("remove-head")
def remove_head(store: options.StoreAddress, name: Name) -> None:
    """Delete a head with its rows, versions and history, for good.

    \b
    Example:
      mcnet store remove-head ads.db crt
    """
    opened = _require(store)
    opened.remove_head(name)
    Printer().note(f"the head {name} of {opened.name} was deleted; it has {', '.join(opened.heads) or 'none'} now")


@store.command()
def migrate(store: options.StoreAddress) -> None:
    """Bring the tables of a store in PostgreSQL up to date, as a role that may change them; files do so by themselves.

    \b
    Example:
      mcnet store migrate ads.db
    """
    opened = _require(store)
    opened.database.migrate()
    Printer().note(f"the tables of {opened.name} are up to date")


def _shown(value: object) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
