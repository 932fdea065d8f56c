"""The configuration file `mcnet.toml`: options that need not be repeated on every command line."""

from pathlib import Path
from typing import Any

from mcnet.errors import FileFormatError, InputError

CONFIG_NAME = "mcnet.toml"

SHARED_KEYS = ("score", "label", "field", "weight", "negatives_kept", "logits")
"""Options that may stand at the top of the file and hold for every command that has them."""

ALERT_KEYS = ("webhook", "field_values")
"""Where alerts are sent; these may stand at the top of the file, too."""

COMMANDS = (
    *("fit", "compare", "fields", "sketch", "apply", "evaluate", "slices", "value", "diff"),
    *("update", "backtest", "monitor", "journal", "serve"),
)
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

FILE = "mcnet.config_file"
"""Where a context remembers the file."""


def read_config(
    context: Any, path: str | None, ignored: bool, head: str | None = None
) -> dict[str, dict[str, Any]] | None:
    """Return the options of every command that the configuration file gives, as Typer's `default_map`."""
    if ignored:
        if path is not None:
            raise InputError("--config and --no-config were both given; give one of them")
        return None
    file = Path(CONFIG_NAME if path is None else path)
    if not file.is_file():
        if path is not None:
            raise InputError(f"there is no file {file}")
        return None
    context.meta[FILE] = str(file)
    return _options_of_commands(file, _of_head(file, _document(file), head), context.command)


def _of_head(file: Path, document: dict[str, Any], head: str | None) -> dict[str, Any]:
    """Return the document with the settings of a head in the place of those of all."""
    heads = document.pop("heads", {})
    if not isinstance(heads, dict) or not all(isinstance(table, dict) for table in heads.values()):
        raise InputError(f"{file}: heads has no tables; name a head in each, as in [heads.cvr]")
    for key, value in heads.get(head, {}).items():
        both = isinstance(value, dict) and isinstance(document.get(key), dict)
        document[key] = {**document[key], **value} if both else value
    return document


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
        if name not in (*SHARED_KEYS, *ALERT_KEYS):
            known = ", ".join((*SHARED_KEYS, *ALERT_KEYS, *(f"[{command}]" for command in COMMANDS), "[heads.NAME]"))
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
    return {name: {_READING_PART[name]: given} if name in _READING_PART else given for name, given in result.items()}


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
