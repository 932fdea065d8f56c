"""Options that several commands share."""

import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from mcnet._shared.messages import warn
from mcnet.cli import config
from mcnet.cli.config import SHARED_KEYS, from_config
from mcnet.cli.run import Printer
from mcnet.errors import Advice, InputError
from mcnet.rows.locations import FORMAT_NAMES, read_options
from mcnet.store.settings import SETTINGS

if TYPE_CHECKING:
    from mcnet.operations.alerts import Webhook
    from mcnet.store.settings import HeadSettings
    from mcnet.store.store import Store

_head: ContextVar[str | None] = ContextVar("mcnet head", default=None)
_is_new: ContextVar[bool] = ContextVar("mcnet new head", default=False)


def head_name() -> str | None:
    """Return the head that `--head` or `--new-head` names; None for the only or the default one."""
    return _head.get()


def chosen_head(head: str | None, new_head: str | None) -> str | None:
    """Remember the head of this command, and whether a command that writes may make it; return its name."""
    if head is not None and new_head is not None:
        raise InputError("--head and --new-head were both given; give one of them")
    _head.set(head or new_head)
    _is_new.set(new_head is not None)
    return head or new_head


def store_to_write(address: str) -> "Store":
    """Return the store, with the head that `--new-head` names; refuse another head that it does not have."""
    from mcnet.store.store import Store

    opened = Store(address)
    name = opened.chosen_head(head_name())
    if _is_new.get():
        opened.add_head(name)
    opened.refuse_unknown_head(name)
    return opened


def printer_of(context: Any, json: bool, quiet: bool = False) -> Printer:
    """Return what prints for a command, and say which options the configuration file gave it."""
    given = [name for name, value in context.params.items() if value is not None and from_config(context, name)]
    printer = Printer(json, quiet, context.meta.get(config.FILE) if given else None)
    if given:
        printer.note(f"{', '.join(name.replace('_', '-') for name in given)}: from {printer.config}")
    return printer


def webhook_of(context: Any) -> "Webhook | None":
    """Return where alerts are sent: by the command line, else the environment, else the file; None if nowhere."""
    from mcnet.operations.alerts import ADDRESS_VARIABLE, Webhook

    url = context.params["webhook"]
    if from_config(context, "webhook"):
        url = os.environ.get(ADDRESS_VARIABLE) or url
    return Webhook.of(url, context.params["field_values"])


def send_told(store: "Store", webhook: "Webhook | None") -> None:
    """Send the alerts of a head that nobody has taken yet; what fails is said, and changes nothing else."""
    if webhook is None:
        return
    from mcnet.operations.alerts import send_alerts

    problem = send_alerts(store.state(head_name()), webhook)
    if problem:
        warn(f"an alert could not be sent to {webhook.host} ({problem})", Advice("the next run sends it again"))


# Settings from words like `bins=10`: parameters of a method, options of an export, settings of an object store.


def _as_json(_: str, text: str) -> Any:
    """Return a number, true, false, null or a list if the text reads so, else the text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def parse_settings(
    words: Sequence[str] | None,
    read: Callable[[str, str], Any] = _as_json,
    option: str = "--set",
    example: str = "bins=10",
) -> dict[str, Any]:
    """Return words such as bins=10 as a mapping.

    >>> parse_settings(["bins=10", "inner=platt", "smooth_targets=true"])
    {'bins': 10, 'inner': 'platt', 'smooth_targets': True}
    """
    settings: dict[str, Any] = {}
    for word in words or ():
        name, equals, text = word.partition("=")
        if not equals or not name.strip():
            raise InputError(f"{option} {word!r} is not NAME=VALUE, as in {option} {example}")
        if name.strip() in settings:
            raise InputError(f"{option} gives {name.strip()!r} twice; give it once")
        settings[name.strip()] = read(name.strip(), text)
    return settings


# What several commands share: arguments, options, and how their help is printed.


class _HelpCommand(TyperCommand):
    """A command whose help names arguments by their metavar alone: LOG... and not {LOG}... or LOG <list[str]>."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse; refuse two models where one is taken, and prefer what is typed of --field and --fields to the file."""
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        if sum(option.name == "model" and not option.multiple for option in order) > 1:
            raise InputError("--model was given twice; give one model, and run the command once for each")
        rest: list[str] = super().parse_args(ctx, args)
        if ctx.params.get("field") and ctx.params.get("fields"):
            filed = [name for name in ("field", "fields") if from_config(ctx, name)]
            if len(filed) == 1:
                ctx.params[filed[0]] = None
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line."""
        return ["[OPTIONS]", *(_usage(parameter) for parameter in self.get_params(ctx) if _is_argument(parameter))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options."""
        _write_parameters(self.get_params(ctx), ctx, formatter)


class _HelpGroup(TyperGroup):
    """A group of commands whose help lists them by what they are for, each with its whole summary."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, then the commands."""
        _write_parameters(self.get_params(ctx), ctx, formatter)
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in commands.items():
            if command is not None and not command.hidden:
                summary = (command.short_help or command.help or "").partition("\n\n")[0]
                # Each name as wide as the longest one, so that the summaries of all sections are in one column.
                padded = name.ljust(max(map(len, commands)))
                title = getattr(command, "rich_help_panel", None) or "Commands"
                sections.setdefault(title, []).append((padded, " ".join(summary.split())))
        for title, lines in sections.items():
            with formatter.section(title):
                formatter.write_dl(lines)


class Commands(typer.Typer):
    """Commands with plain help: an example in a box, or wrapped in the middle, cannot be pasted."""

    def __init__(self, **settings: Any) -> None:
        """Take the settings of `typer.Typer`."""
        super().__init__(cls=_HelpGroup, rich_markup_mode=None, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[..., Any]:
        """Return a decorator that adds a command, as that of `typer.Typer` does."""
        registered = super().command(name, cls=_HelpCommand, **settings)
        return lambda command: registered(_with_groups(command))


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _usage(argument: Any) -> str:
    name = f"{argument.metavar or argument.name.upper()}{'' if argument.nargs == 1 else '...'}"
    return name if argument.required else f"[{name}]"


def _write_parameters(parameters: Iterable[Any], ctx: Any, formatter: Any) -> None:
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in parameters:
        record = parameter.get_help_record(ctx)
        if record is not None and _is_argument(parameter):
            sections["Arguments"].append((parameter.metavar or parameter.name.upper(), record[1]))
        elif record is not None:
            sections["Options"].append(record)
    for title, records in sections.items():
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


def option(metavar: str, text: str, default: Any = None, *names: str, **settings: Any) -> Any:
    """Return the default of a parameter that is an option of a command."""
    return typer.Option(default, *names, metavar=metavar, help=text, **settings)


def argument(metavar: str, text: str, default: Any = ...) -> Any:
    """Return the default of a parameter that is an argument of a command, which must be given if it has no default."""
    return typer.Argument(default, metavar=metavar, help=text, show_default=default not in (..., None))


def flag(name: str, text: str, **settings: Any) -> Any:
    """Return the default of a parameter that is an option without a value."""
    return typer.Option(False, name, help=text, **settings)


READS_LOGS = (
    "\b\nOptions for reading logs: --where, --drop-missing, --separator, --storage-option, --bins.\n"
    "Options of every command: --head, --new-head, --config, --no-config, --debug. See mcnet --help."
)
"""What stands below the help of a command that reads logs."""


# Groups: options that several commands share are one parameter of a command, whose value is made of what is given.


@dataclass(frozen=True)
class _Group:
    """The default of a parameter that stands for several options."""

    options: tuple[Parameter, ...]
    value: Callable[..., Any]
    """Makes the value of the parameter of the context and the options."""


def _group(value: Callable[..., Any], **options: tuple[Any, Any]) -> Any:
    """Return a group of options, each with its type."""
    where = Parameter.POSITIONAL_OR_KEYWORD
    made = (Parameter(name, where, default=default, annotation=kind) for name, (kind, default) in options.items())
    return _Group(tuple(made), value)


def _with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that has, for Typer, the options of a group in the place of the group."""

    @wraps(command)
    def run(context: Any, **given: Any) -> None:
        for name, group in groups.items():
            given[name] = group.value(context, **{one.name: given.pop(one.name) for one in group.options})
        command(**({"context": context} if "context" in own else {}), **given)

    own = signature(command).parameters
    groups = {name: one.default for name, one in own.items() if isinstance(one.default, _Group)}
    every = [Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
    for name, one in own.items():
        every += [] if name == "context" else groups[name].options if name in groups else [one]
    run.__signature__ = Signature(every)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in every}
    return run


@dataclass(frozen=True, kw_only=True)
class Columns:
    """How logs are read, by the command line and the configuration file; None is what neither gives."""

    score: str | None = None
    label: str | None = None
    field: list[str] | None = None
    fields: str | None = None
    exclude: list[str] | None = None
    weight: str | None = None
    value: str | None = None
    value_per_positive: str | None = None
    propensity: str | None = None
    logits: bool | None = None
    negatives_kept: float | None = None
    time: str | None = None
    every: str | None = None
    filed: frozenset[str] = frozenset()
    """Those that the configuration file gives."""

    @property
    def score_type(self) -> Literal["probability", "logit"]:
        """What the scores are."""
        return "logit" if self.logits else "probability"

    @property
    def share_kept(self) -> float:
        """The share of negatives that survived down-sampling."""
        return 1.0 if self.negatives_kept is None else self.negatives_kept

    def without_file(self) -> "Columns":
        """Return what the command line gives: rows that were sketched before know how they were read."""
        ignored: dict[str, Any] = dict.fromkeys(self.filed.intersection((*SHARED_KEYS, "time", "every")))
        return replace(self, **ignored)


_EVERY_LOG = {"score", "label", "weight", "logits", "negatives_kept"}
_PROPENSITY = "The probability that the row was logged, such as that of winning: rows are weighted by its inverse."
_TYPE_OF_MODEL = "The type of the scores; by default as in the fit of the model, or probabilities."
_KEPT_OF_MODEL = "The share of negatives that survived down-sampling; as in the model's fit if not given."


def columns(*names: str, **texts: str) -> Any:
    """Return the options that say how logs are read: those of every log and some more, some with texts of their own."""
    named = {*_EVERY_LOG, *names, *texts}
    in_order = [name for name in Columns.__dataclass_fields__ if name in named]
    return _Group(tuple(_column(name, texts.get(name)) for name in in_order), _columns_given)


def columns_as_fitted(*names: str, **texts: str) -> Any:
    """Return the same options for a command whose model tells what is not given."""
    return columns(*names, **{"logits": _TYPE_OF_MODEL, "negatives_kept": _KEPT_OF_MODEL, **texts})


def _column(name: str, text: str | None) -> Parameter:
    if name == "propensity":
        return _parameter("weight", _PROPENSITY).replace(name=name)
    return _parameter("score_type" if name == "logits" else name, text)


def _columns_given(context: Any, **given: Any) -> Columns:
    return Columns(**given, filed=frozenset(name for name in given if from_config(context, name)))


GivenSettings = Callable[[Collection[str]], "HeadSettings"]
"""Returns the settings of a head that are given, without those of the file that are named."""

# The settings of a head as options: every one that a command takes, in the order of `HeadSettings`.

_FLAGS = {"score_type": ("logits", "--logits/--probabilities"), "look": ("look", "--look/--no-look")}
"""The name of a parameter, and of its options, for what is switched on and off."""


def head_settings(*left_out: str) -> Any:
    """Return an option for every setting of a head, but for some; the value is a function that returns those given."""
    named = [name for name in SETTINGS if name not in left_out and name not in _NOT_TYPED]
    return _Group(tuple(map(_parameter, named)), lambda context, **_: partial(_given_settings, context))


_NOT_TYPED = ("resolution",)


def _parameter(name: str, text: str | None = None) -> Parameter:
    about = SETTINGS[name].metadata
    parameter, flags = _FLAGS.get(name, (name, None))
    usual = about["usual"]
    shown = "" if flags or usual in (None, ()) else f" ({usual:g})" if isinstance(usual, int | float) else f" ({usual})"
    in_words = text or f"{about['text'].removesuffix('.')}{shown}."
    settings: dict[str, Any] = {"help": in_words, "show_default": False}
    if name == "method":
        settings["autocompletion"] = complete_methods
    made = typer.Option(None, *([flags] if flags else []), metavar=None if flags else about["metavar"], **settings)
    numbers = SETTINGS[name].type if SETTINGS[name].type in (int, float) else str
    kind: Any = bool if flags else list[str] if isinstance(usual, tuple) else numbers
    return Parameter(parameter, Parameter.POSITIONAL_OR_KEYWORD, default=made, annotation=kind | None)


def _given_settings(context: Any, without_file: Collection[str] = ()) -> "HeadSettings":
    """Return the settings that the command line and the configuration file give; refuse two that differ."""
    from mcnet.store.settings import HeadSettings

    typed: dict[str, Any] = {}
    filed: dict[str, Any] = {}
    for option in context.command.params:
        name = "score_type" if option.name == "logits" else option.name
        if name not in SETTINGS:
            continue
        if name not in without_file and option.name in (context.default_map or {}):
            filed[name] = option.process_value(context, context.default_map[option.name])
        if not from_config(context, option.name):
            typed[name] = context.params[option.name]
    words, file = (HeadSettings.of({n: _as_kept(n, value) for n, value in given.items()}) for given in (typed, filed))
    file = file.without(SETTINGS[name].metadata["instead"] for name in words.given)
    return words.joined(file, f"the command line and {context.meta.get(config.FILE)}")


def value_number(typed: str | None) -> float | None:
    """Return the value per positive if --value is a number; None if it names a column, or was not given.

    >>> value_number("2.5"), value_number("bid")
    (2.5, None)
    """
    try:
        return None if typed is None else float(typed)
    except ValueError:
        return None


def _as_kept(name: str, value: Any) -> Any:
    """Return an option as the setting is given in Python; None if it is not given."""
    if value is None or value in ([], ()):
        return None
    if name == "score_type":
        return "logit" if value else "probability"
    number = value_number(value) if name == "value" else None
    return value if number is None else number


def refuse_read_options(reason: str, *, filters_only: bool = False) -> None:
    """Refuse the options for reading logs where they would have no effect."""
    given = read_options()
    filters = {"--where": given.where, "--drop-missing": given.drop_missing}
    others = {"--separator": given.separator, "--storage-option": given.storage_options, "--bins": given.bins}
    for option, value in (filters if filters_only else filters | others).items():
        if value:
            raise InputError(f"{option} is for reading logs, and {reason}: leave it out")


def complete_methods(beginning: str) -> list[str]:
    """Return the names of methods that a word may be completed to."""
    from mcnet.calibrators.methods import VARIANTS, methods

    return [name for name in (*methods(), *VARIANTS) if name.startswith(beginning)]


def _metrics(beginning: str) -> list[str]:
    from mcnet.cli.thresholds import UNSEEN, threshold_names

    return [name for name in (*threshold_names(), UNSEEN) if name.startswith(beginning)]


_ALLOWED = "Add what looks like a mistake: weight (far above all before), period (far before the first); repeatable."
_FILES = f"{FORMAT_NAMES} files, globs, folders or addresses (s3://...)"
LOG_HELP = f"{_FILES}; or - for stdin; or saved sketches; or a store (ads.db, postgresql://...)."
LOGS = argument("LOG", LOG_HELP)
LOG_FILES = argument("LOG", f"{_FILES}; or - for stdin.")
LOGS_OR_STORE = argument("LOG", f"{_FILES}; or a store.")
STORE = argument("STORE", "A file such as ads.db, or postgresql://user@host/ads.")
MODEL = argument("MODEL", "A saved model.")
JUDGED_MODEL = option("FILE", "Judge this model's probabilities, not the scores.")
SCORE = _parameter("score").default
LABEL = _parameter("label").default
LOGITS_OF_MODEL = _parameter("score_type", _TYPE_OF_MODEL).default
CUT_TIME = "Cut --time to periods: 15m, 1h, 1d (the default), 1w, 1mo, or a number for a column that counts."
LEFT_OUT = "A column to leave out, such as an id; may be repeated."
OUTPUT = option("FILE", "The file to write.", ..., "--output", "-o", show_default=False)
SINCE = option("P", "Of a journal: the first period to read.")
UNTIL = option("P", "Of a journal: the last period to read.")
FORCE = flag("--force", "Overwrite the output if it exists.")
THRESHOLDS = option(
    "THRESHOLD",
    "Exit with 1 if this is true: 'f_rce>0.05' or 'field.pcoc>1.1 where positives>100'; may be repeated.",
    autocompletion=_metrics,
)
WEBHOOK_ADDRESS = option("URL", "Send alarms, refusals and suspect periods here (https); or set MCNET_WEBHOOK.")
FIELD_VALUES = option("HOW", "Field values in alerts, metrics and the pages of the service: show or hide.", "show")
JSON = flag("--json", "Print JSON for a script instead.")
QUIET = typer.Option(False, "--quiet", "-q", help="Print nothing but errors, warnings and --json.")
PRINTER = _group(printer_of, json=(bool, JSON), quiet=(bool, QUIET))
JSON_PRINTER = _group(printer_of, json=(bool, JSON))
ADDITION = _group(
    lambda _, allow, **given: {**given, "allow": allow or ()},
    period=(str | None, option("P", "The period of all rows; for sketches, and logs without a time.")),
    source=(str | None, option("NAME", "The name of the source; by default its path.")),
    age=(
        float | None,
        option("N", "For positives that arrive late: they were counted N periods after the end.", min=0.0),
    ),
    counted=(str | None, option("TIMESTAMP", "For positives that arrive late: when they were counted.")),
    replace=(bool, flag("--replace", "Replace earlier rows of the same source and period.")),
    allow=(list[str] | None, option("NAME", _ALLOWED)),
)
"""How rows are added to a journal, as `Journal.add_files` takes it."""
