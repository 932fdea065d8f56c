"""`mcnet versions` and `mcnet store`: versions of a model, and the store itself."""

from dataclasses import asdict
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import typer

from mcnet._shared.files import whole_file
from mcnet._shared.messages import counted
from mcnet.cli import options
from mcnet.cli.run import UNUSABLE, Printer, table
from mcnet.cli.sources import check_output
from mcnet.errors import InputError

if TYPE_CHECKING:
    from mcnet.store.store import Store
    from mcnet.store.versions import Registry, Version

# `mcnet versions`: immutable versions of a model, and which one is served.

_NOTE_WIDTH = 70
"""Characters of a note in the list of versions; `show` has all of it."""

versions = options.Commands(name="versions", no_args_is_help=True)

VERSION_NAME = options.argument("VERSION", "The number of a version, or latest.")
NOTE = options.option("TEXT", "The reason, for the history.", "")


@versions.callback()
def about_versions() -> None:
    """Manage the versions of a model in a store.

    A version never changes; a pointer names the one that is served. --head names the model, if a store has several.

    \b
    Example:
      mcnet versions add ads.db model.json
    """


@versions.command()
def add(store: str = options.STORE, model: str = options.MODEL, note: str = NOTE, json: bool = options.JSON) -> None:
    """Add a model file as a new version; the first one becomes current.

    \b
    Example:
      mcnet versions add ads.db model.json --note "weekly fit"
    """
    from mcnet.store.versions import Registry

    printer = Printer(json)
    opened = Registry(options.store_to_write(store), options.head_name())
    version = opened.add(model, note)
    state = (
        "current" if opened.current_number == version.number else "not yet current: mcnet versions promote makes it so"
    )
    printer.result(_document(version, opened.current_number), f"version {version.name} ({state})")


def _short(note: str) -> str:
    """Return a note in one line of the list, cut between words and never inside brackets, such as an interval."""
    short = shorten(note, _NOTE_WIDTH, placeholder=" …")
    opened = short.rfind("(")
    if short.endswith(" …") and opened > 0 and ")" not in short[opened:]:
        return f"{short[:opened].rstrip()} …"
    return short


@versions.command("list")
def list_versions(store: str = options.STORE, json: bool = options.JSON) -> None:
    """List the versions, oldest first, and mark the current one.

    \b
    Example:
      mcnet versions list ads.db
    """
    opened = _open(store)
    there, current, held = opened.versions, opened.current_number, opened.held
    rows = [
        (f"{one.name}{' ←' if one.number == current else ''}", one.added, one.method, _short(one.note)) for one in there
    ]
    document = {
        "current": None if current is None else str(current),
        "held": None if held is None else asdict(held),
        "versions": [_document(version, current) for version in there],
    }
    more = [] if held is None else [f"version {current} is {held}; {_until_released(store)}"]
    Printer(json).result(document, table(("version", "added", "method", "note"), rows, left=4), *more)


@versions.command("show")
def show_version(
    store: str = options.STORE,
    version: str = options.argument("VERSION", "A number, latest or current.", "current"),
    json: bool = options.JSON,
) -> None:
    """Show a version: when it was added, what it is, and what was done with it.

    \b
    Example:
      mcnet versions show ads.db 3
    """
    opened = _open(store)
    chosen = opened.version(version)
    events = [line for line in opened.history() if line.get("version") == chosen.number]
    facts = _document(chosen, opened.current_number) | {"history": events}
    shown = facts | {"fields": ", ".join(chosen.fields), "current": "yes" if facts["current"] else "no"}
    lines = [f"{name:<10}{value}" for name, value in shown.items() if name != "history" and value not in (None, "")]
    Printer(json).result(facts, "\n".join(lines), *([_events(events)] if events else []))


@versions.command("history")
def show_history(
    store: str = options.STORE,
    last: int = options.option("N", "How many events, the latest.", 20, min=1),
    json: bool = options.JSON,
) -> None:
    """Show what was done with the versions: when, by whom and why, oldest first.

    \b
    Example:
      mcnet versions history ads.db
    """
    events = _open(store).history(last)
    Printer(json).result({"history": events}, _events(events) if events else "nothing was done yet")


def _events(events: list[dict[str, Any]]) -> str:
    """Return lines of the history as a table."""
    rows = [
        (
            line["time"][:16].replace("T", " "),
            "" if line.get("version") is None else str(line["version"]),
            line["event"],
            line.get("who", ""),
            _short(line.get("note") or line.get("reason") or ""),
        )
        for line in events
    ]
    return table(("time (UTC)", "version", "event", "who", "why"), rows, left=5)


@versions.command()
def save(
    store: str = options.STORE,
    version: str = options.argument("VERSION", "A number, latest, current or refused."),
    output: str = options.option("FILE", "The model file to write.", ..., "--output", "-o"),
    force: bool = options.FORCE,
) -> None:
    """Write the model of a version to a file, for other commands; "refused" is the last one that the gate refused.

    \b
    Example:
      mcnet versions save ads.db latest -o model.json
    """
    check_output(output, [], force=force, endings=(".json",))
    content = _open(store).content(version)
    with whole_file(output) as part:
        part.write_bytes(content)
    Printer().note(f"version {version} of {store} → {output}")


@versions.command()
def promote(
    store: str = options.STORE,
    version: str = VERSION_NAME,
    note: str = NOTE,
    force: bool = options.flag("--force", "Also if it takes other scores or fields than the current version."),
    json: bool = options.JSON,
) -> None:
    """Make a version the current one; one that is not the latest is held.

    A version that takes scores of another type, or other fields, than the current one is refused without --force: the
    requests of today's clients would fail, or get wrong probabilities.

    \b
    Example:
      mcnet versions promote ads.db latest
    """
    opened = _open(store)
    chosen = opened.promote(version, note, force=force)
    held = f", and held: {_until_released(store)}" if opened.held else ""
    Printer(json).result(_moved(chosen, opened), f"version {chosen.name} is current{held}")


@versions.command()
def rollback(store: str = options.STORE, note: str = NOTE, json: bool = options.JSON) -> None:
    """Go back to the version that was current before, and hold it: `mcnet update` does not undo this.

    \b
    Example:
      mcnet versions rollback ads.db --note "NL over-predicted"
    """
    opened = _open(store)
    chosen = opened.rollback(note)
    message = f"version {chosen.name} is current again, and held: {_until_released(store)}"
    Printer(json).result(_moved(chosen, opened), message)


@versions.command()
def hold(store: str = options.STORE, note: str = NOTE, json: bool = options.JSON) -> None:
    """Hold the current version: `mcnet update` publishes nothing until the hold is released.

    \b
    Example:
      mcnet versions hold ads.db --note "no changes before the sale"
    """
    opened = _open(store)
    held, current = opened.hold(note), opened.current
    message = f"version {current.name} is {held}; {_until_released(store)}"
    Printer(json).result(_moved(current, opened), message)


@versions.command()
def release(store: str = options.STORE, note: str = NOTE, json: bool = options.JSON) -> None:
    """End a hold: `mcnet update` may publish again, and the current version stays until it does.

    \b
    Example:
      mcnet versions release ads.db --note "the labels of NL are correct again"
    """
    opened = _open(store)
    was = opened.release(note)
    message = "was held, and may be replaced now" if was else "was not held"
    Printer(json).result(_moved(opened.current, opened), f"version {opened.current.name} {message}")


@versions.command()
def prune(
    store: str = options.STORE,
    keep: int = options.option("N", "How many of the newest versions to keep.", ..., min=1),
    json: bool = options.JSON,
) -> None:
    """Delete old versions, except the current one and the one that a rollback would restore.

    \b
    Example:
      mcnet versions prune ads.db --keep 1000
    """
    gone = _open(store).prune(keep)
    Printer(json).result({"deleted": [str(number) for number in gone]}, f"{counted(len(gone), 'version')} deleted")


def _open(store: str) -> "Registry":
    """Return the versions of the head that is meant; it must be there."""
    from mcnet.store.versions import Registry

    found = Registry(store, options.head_name())
    found.store.require_head(found.head)
    return found


def _until_released(store: str) -> str:
    head = "" if options.head_name() is None else f" --head {options.head_name()}"
    return f"mcnet update publishes nothing until `mcnet versions release {store}{head}`"


def _moved(version: "Version", registry: "Registry") -> dict[str, Any]:
    """Return the current version after a change, and whether it is held."""
    held = registry.held
    return _document(version, registry.current_number) | {"held": None if held is None else asdict(held)}


def _document(version: "Version", current: int | None) -> dict[str, Any]:
    return {
        "version": version.name,
        "current": current == version.number,
        "added": version.added,
        "method": version.method,
        "fields": list(version.fields),
        "rows": version.rows,
        "digest": version.digest,
        "note": version.note,
    }


# `mcnet store`: look at a store, check it, copy it, make it smaller.

store = options.Commands(name="store", no_args_is_help=True)


@store.callback()
def about_store() -> None:
    """Look after a store.

    A store has everything that is kept between runs, in a file or in PostgreSQL. A password never belongs into the
    address: set PGPASSWORD, PGPASSFILE or ~/.pgpass.

    \b
    Example:
      mcnet store show ads.db
    """


def _require(address: str) -> "Store":
    """Return a store that is there, and has the head that is named."""
    from mcnet.store.store import Store

    opened = Store(address)
    if not opened.database.exists():
        raise InputError(f"there is no store in {opened.name}; `mcnet journal add` or update make one")
    head = options.head_name()
    if head is not None:
        opened.require_head(head)
    return opened


@store.command("show")
def show_store(
    store: str = options.STORE,
    status: str | None = options.option("FILE", "Write a page about the state of the loop of a head (.html)."),
    json: bool = options.JSON,
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
        from mcnet.report.status_page import write_status_page

        document = status_of(opened, options.head_name())
        if document["last_run"] is None:
            raise InputError(f"`mcnet update` has not run on {store} yet, so there is no state of the loop")
        write_status_page(status, document)
        Printer(json).note(f"status → {status}")


@store.command()
def check(store: str = options.STORE, json: bool = options.JSON) -> None:
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
    store: str = options.STORE,
    output: str = options.argument("FILE", "The copy."),
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
    store: str = options.STORE,
    before: str = options.option("PERIOD", "The first period that stays.", ...),
    json: bool = options.JSON,
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


@store.command("remove-head")
def remove_head(store: str = options.STORE, name: str = options.argument("NAME", "The name of the head.")) -> None:
    """Delete a head with its rows, versions and history, for good.

    \b
    Example:
      mcnet store remove-head ads.db crt
    """
    opened = _require(store)
    opened.remove_head(name)
    Printer().note(f"the head {name} of {opened.name} was deleted; it has {', '.join(opened.heads) or 'none'} now")


def _shown(value: object) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
