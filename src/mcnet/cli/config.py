"""The configuration file `mcnet.toml`: options that need not be repeated on every command line."""

from pathlib import Path
from typing import Any

from mcnet.cli.printing import Printer
from mcnet.errors import FileFormatError, InputError

__all__ = ["CONFIG_NAME", "from_config", "printer_of", "read_config"]

CONFIG_NAME = "mcnet.toml"

SHARED_KEYS = ("score", "label", "field", "weight", "negatives_kept", "logits")
"""Options that may stand at the top of the file and hold for every command that has them."""

COMMANDS = ("compare", "fit", "apply", "evaluate", "backtest", "sketch", "journal", "monitor", "update")
"""Commands that may have their own table in the file."""

_READING_PART = {"journal": "add"}
"""Of a command with parts, the one that reads logs: the table of the command has its options."""

_NEVER = frozenset(
    {
        "help",
        "output",
        "report",
        "save_best",
        "test",
        "model",
        "force",
        "json",
        "quiet",
        "period",
        "source",
        "replace",
        "state",
        "table",
        "folder",
        "note",
        "until",
    }
)
"""Options that belong to one run: what is read, what is written, and what is printed."""

_FILE = "mcnet.config_file"


def read_config(context: Any, path: str | None, ignored: bool) -> dict[str, dict[str, Any]] | None:
    """Return the options of every command that the configuration file gives, as Typer's `default_map`.

    Parameters
    ----------
    context : the context of `mcnet` itself, which knows the commands and their options.
    path : the file; `mcnet.toml` in the working directory, if there is one, when it is None.
    ignored : read no file.
    """
    if ignored:
        if path is not None:
            raise InputError("--config and --no-config were both given; give one of them")
        return None
    file = Path(CONFIG_NAME if path is None else path)
    if not file.is_file():
        if path is not None:
            raise InputError(f"there is no file {file}")
        return None
    context.meta[_FILE] = str(file)
    return _options_of_commands(file, _document(file), context.command)


def printer_of(context: Any, json: bool, quiet: bool) -> Printer:
    """Return what prints for a command, and say which options the configuration file gave it."""
    given = [name for name in context.params if from_config(context, name)]
    printer = Printer(json, quiet, context.meta.get(_FILE) if given else None)
    if given:
        printer.note(f"{', '.join(name.replace('_', '-') for name in given)}: from {printer.config}")
    return printer


def from_config(context: Any, name: str) -> bool:
    """Tell whether the configuration file, and not the command line, gave an option."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT_MAP"


def _document(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{file} is not valid TOML: {error}") from None


def _options_of_commands(file: Path, document: dict[str, Any], application: Any) -> dict[str, dict[str, Any]]:
    options = {
        name: {p.name: p for p in _command(application, name).params if p.param_type_name == "option"}
        for name in COMMANDS
    }
    result: dict[str, dict[str, Any]] = {name: {} for name in COMMANDS}
    own_tables: dict[str, dict[str, Any]] = {}
    for key, value in document.items():
        if key in COMMANDS and isinstance(value, dict):
            own_tables[key] = value
            continue
        name = key.replace("-", "_")
        if name not in SHARED_KEYS:
            known = ", ".join((*SHARED_KEYS, *(f"[{command}]" for command in COMMANDS)))
            raise InputError(f"{file} has the unknown key {key!r}; it may have {known}")
        for command in COMMANDS:
            if name in options[command]:
                result[command][name] = _value(file, key, value, options[command][name])
    for command, table in own_tables.items():
        allowed = {_key(option): option for name, option in options[command].items() if name not in _NEVER}
        for key, value in table.items():
            option = allowed.get(key.replace("-", "_"))
            if option is None:
                raise InputError(
                    f"{file} has the unknown key {key!r} in [{command}]; it may have {', '.join(sorted(allowed))}"
                )
            result[command][option.name] = _value(file, f"{command}.{key}", value, option)
    return {name: {_READING_PART[name]: found} if name in _READING_PART else found for name, found in result.items()}


def _command(application: Any, name: str) -> Any:
    """Return the command, or the part of it, that has options in the file."""
    command = application.commands[name]
    return command.commands[_READING_PART[name]] if name in _READING_PART else command


def _key(option: Any) -> str:
    """Return the name of an option as it is typed, without hyphens."""
    return str(option.opts[0]).lstrip("-").replace("-", "_")


def _value(file: Path, key: str, value: Any, option: Any) -> Any:
    """Return a value of the file as it would be typed, or say what it should be; Typer converts numbers later."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise InputError(f"{file}: {key} is {value!r}; it must be true or false")
        return value
    many = option.multiple and isinstance(value, list)
    for entry in value if many else [value]:
        if isinstance(entry, bool) or not isinstance(entry, str | int | float):
            wanted = "text, or a list of texts" if option.multiple else "text or a number"
            raise InputError(f"{file}: {key} is {value!r}; it must be {wanted}")
    if option.multiple:
        return [str(entry) for entry in (value if many else [value])]
    return str(value)
