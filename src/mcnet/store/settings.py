"""The settings of a head: how its logs are read, and how its loop learns, publishes and watches."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from mcnet.errors import InputError

if TYPE_CHECKING:
    from mcnet.rows.spec import RowSpec

# What a setting may be: each check returns the value as it is kept, or says what it must be.

Check = Callable[[Any], Any]


def _must(words: str, holds: Callable[[Any], bool]) -> Check:
    """Return a check of what must hold, in words."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise ValueError(words)
        return value

    return check


def _number(least: float, words: str, most: float = math.inf, *, inside: bool = False) -> Check:
    """Return a check of numbers from `least` to `most`, of which `inside` leaves the least out."""

    def check(value: Any) -> float:
        number = math.nan if isinstance(value, bool | str) else float(value)
        if not (least < number if inside else least <= number) or not number <= most or math.isinf(number):
            raise ValueError(words)
        return number

    return check


def _columns(value: Any) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list | tuple) else (None,)
    if not all(isinstance(name, str) and name for name in names):
        raise ValueError("the name of a column, or several")
    return names


def _worth(value: Any) -> Any:
    return _column(value) if isinstance(value, str) else _above_0(value)


def _period(value: Any) -> str:
    from mcnet.rows.periods import parse_every

    parse_every(value)
    return str(value)


def _delay(value: Any) -> int | str:
    from mcnet.rows.periods import delay_in_periods

    delay_in_periods(value, (), "1h")
    return value if isinstance(value, str) and not value.isdecimal() else int(value)


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


_column = _must("the name of a column", lambda value: isinstance(value, str) and value != "")
_name = _must("a name", lambda value: isinstance(value, str))
_auto = _must("'auto'", lambda value: value == "auto")
_flag = _must("True or False", lambda value: isinstance(value, bool))
_score_type = _must("'probability' or 'logit'", lambda value: value in ("probability", "logit"))
_cells = _must("a whole number of cells per unit of logit, or 'exact'", lambda v: v == "exact" or _is_count(v, 1))
_several = _must("a whole number, 2 or more", lambda value: _is_count(value, 2))
_above_0 = _number(0.0, "the name of a column, or what every positive is worth: a number above 0", inside=True)
_share_kept = _number(0.0, "the fraction of negatives kept, in (0, 1]", 1.0, inside=True)
_move = _number(0.0, "a share, 0 or more: 0.2 allows 20 %")
_loss = _number(0.0, "a log-loss, 0 or more")
_chance = _number(0.0, "a probability, such as 0.01", 1.0, inside=True)
_days = _number(0.0, "a number of days above 0", inside=True)


def _setting(check: Check, metavar: str, text: str, usual: Any = None, *, instead: str | None = None) -> Any:
    """Return a setting: what it may be, how the command line names and explains it, and whose place it takes."""
    about = {"check": check, "metavar": metavar, "text": text, "usual": usual, "instead": instead}
    return field(default=None, metadata=about)


@dataclass(frozen=True, kw_only=True, repr=False)
class HeadSettings:
    """How the logs of a head are read, and how its loop learns, publishes and watches.

    `mcnet.toml`, the command line, keywords in Python and the store each give some of them. What is not given, or None,
    is as the head has it; what nobody gives has its usual value, here in brackets.

    Parameters
    ----------
    score, label, weight : columns of logs, as in `mcnet.scan`.
    field : the fields, one name or several.
    fields : "auto" instead: those that `mcnet.find_fields` finds in the first logs of a head; `field` has them then.
    exclude : with fields="auto", columns that are no candidates.
    value, value_per_positive : of logs, as in `mcnet.scan`; a number is what every positive is worth, of feedback too.
    time, every : the column of timestamps, and the length of a period, such as "1h".
    score_type, negatives_kept, resolution : as in `mcnet.scan` ("probability", 1, 512).
    delay : after how many further periods the labels of a period are known, or how long that takes, "2h" (0).
    method : the calibrator of the tracker ("mcnet-bayes").
    look : look at a period before it is learnt: a suspect one is kept and not learnt (True).
    max_shift : how far a mean probability may move at once, of all rows or of a field value with many positives: 0.5
        allows half as much again, and a third less, which is as far down (0.5).
    tolerance : the log-loss per row by which a new model may be worse than the current one (0).
    min_periods : so many periods must have been predicted and judged before a model is published (3).
    alpha : the monitor's chance of ever raising a false alarm (0.01).
    key_days : for how many days the keys of feedback are kept (30).

    >>> mine = HeadSettings(score="pctr", field="country", max_shift=0.2)
    >>> mine, mine.field, mine.tolerance
    (HeadSettings(score='pctr', field=('country',), max_shift=0.2), ('country',), 0.0)
    >>> mine.changed_by(HeadSettings(max_shift=0.3)).given["max_shift"]
    0.3
    """

    score: str | None = _setting(_column, "COLUMN", "The column of scores.")
    label: str | None = _setting(_column, "COLUMN", "The column of labels: 0/1, or fractions with a weight.")
    field: str | Sequence[str] = _setting(
        _columns, "COLUMN", "A field, such as country; repeatable.", (), instead="fields"
    )
    fields: Literal["auto"] | None = _setting(
        _auto, "auto", "auto instead of --field: the columns that mcnet fields finds.", instead="field"
    )
    exclude: str | Sequence[str] = _setting(
        _columns, "COLUMN", "With --fields auto: a column that is not known at serving, or an id; repeatable.", ()
    )
    weight: str | None = _setting(_column, "COLUMN", "The column of weights.")
    value: str | float | None = _setting(
        _worth,
        "COLUMN",
        "What a positive is worth: a column that every row has, or a number. Adds figures in money.",
        instead="value_per_positive",
    )
    value_per_positive: str | None = _setting(
        _column, "COLUMN", "The same, for a column that only positives have.", instead="value"
    )
    time: str | None = _setting(_column, "COLUMN", "The column of timestamps.")
    every: str | None = _setting(_period, "PERIOD", "The length of a period: 15m, 1h, 1d, 1w.")
    score_type: Literal["probability", "logit"] = _setting(
        _score_type, "", "The type of the scores; by default probabilities.", "probability"
    )
    negatives_kept: float = _setting(_share_kept, "SHARE", "The share of negatives that down-sampling has kept.", 1.0)
    resolution: int | Literal["exact"] = _setting(_cells, "", "", 512)
    delay: int | str = _setting(_delay, "TIME", "How late labels are known: 2h, or a number of periods.", 0)
    method: str = _setting(_name, "NAME", "The method; mcnet methods lists them.", "mcnet-bayes")
    look: bool = _setting(_flag, "", "Keep a suspect period and do not learn it, or learn whatever comes.", True)
    max_shift: float = _setting(_move, "SHARE", "How far a mean probability may move at once.", 0.5)
    tolerance: float = _setting(_loss, "LOSS", "How much worse the log-loss per row may be.", 0.0)
    min_periods: int = _setting(_several, "N", "Publish nothing before this many periods were judged.", 3)
    alpha: float = _setting(_chance, "SHARE", "The monitor's chance of ever raising a false alarm.", 0.01)
    key_days: float = _setting(_days, "DAYS", "For how long the keys of feedback are kept.", 30.0)

    def __post_init__(self) -> None:
        """Check what is given, and let the usual values be the others."""
        for one in fields(self):
            value = getattr(self, one.name)
            if value is None:
                value = one.metadata["usual"]
            else:
                try:
                    self.given[one.name] = value = one.metadata["check"](value)
                except InputError:
                    raise
                except (ValueError, TypeError) as error:
                    raise InputError(f"{one.name} is {value!r}; it must be {error}") from None
            object.__setattr__(self, one.name, value)
        if "value" in self.given and "value_per_positive" in self.given:
            raise InputError("value and value_per_positive were both given; give the one that is known")

    @cached_property
    def given(self) -> dict[str, Any]:
        """Those that were given, by name."""
        return {}

    def __repr__(self) -> str:
        return f"HeadSettings({', '.join(f'{name}={value!r}' for name, value in self.given.items())})"

    def joined(self, other: "HeadSettings", where: str) -> "HeadSettings":
        """Return these settings and others; refuse one that both give, and differently.

        Parameters
        ----------
        other : the others.
        where : who gives which, as in "settings and keywords".
        """
        for name in self.given.keys() & other.given.keys():
            if self.given[name] != other.given[name]:
                both = f"{self.given[name]!r} and {other.given[name]!r}"
                raise InputError(f"{name} is given twice, by {where}: {both}; give it once")
        return HeadSettings(**self.given, **other.without(self.given).given)

    @staticmethod
    def of(given: Mapping[str, Any], settings: "HeadSettings | None" = None) -> "HeadSettings":
        """Return settings that are given by their names, as one value, or both ways; refuse a name that is none.

        Parameters
        ----------
        given : the values by name.
        settings : the value.
        """
        for name in given:
            if name not in SETTINGS:
                meant = get_close_matches(name, SETTINGS, 1)
                advice = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(SETTINGS)}"
                raise InputError(f"a head has no setting {name!r}; {advice}")
        if not isinstance(settings, HeadSettings | None):
            raise InputError(f"settings is {settings!r}; make HeadSettings(score=…, label=…), or name each setting")
        named = HeadSettings(**given)
        return named if settings is None else settings.joined(named, "settings and by its name")

    def changed_by(self, later: "HeadSettings") -> "HeadSettings":
        """Return these settings with others in their place, as far as those are given.

        Parameters
        ----------
        later : the others.
        """
        replaced = {SETTINGS[name].metadata["instead"] for name in later.given}
        return HeadSettings(**{**self.without(replaced).given, **later.given})

    def without(self, names: Iterable[str]) -> "HeadSettings":
        """Return these settings, some of them as if nobody had given them.

        Parameters
        ----------
        names : of those.
        """
        gone = set(names)
        return HeadSettings(**{name: value for name, value in self.given.items() if name not in gone})

    def changes(self, before: "HeadSettings") -> tuple[str, ...]:
        """Return what differs from earlier settings, a phrase each.

        Parameters
        ----------
        before : the earlier ones.

        >>> HeadSettings(score="pctr", field="country").changes(HeadSettings(score="pctr"))
        ('field country, before none',)
        """

        def shown(value: Any) -> str:
            return ", ".join(value) or "none" if isinstance(value, tuple) else "none" if value is None else str(value)

        pairs = [(name, getattr(self, name), getattr(before, name)) for name in sorted(SETTINGS)]
        return tuple(f"{name} {shown(now)}, before {shown(then)}" for name, now, then in pairs if now != then)

    @property
    def columns(self) -> dict[str, Any]:
        """Which columns the logs have, and how they are read, as the history of a model says it; empty if unknown."""
        names = ("score", "label", "weight", "score_type", "negatives_kept")
        return {} if self.score is None else {n: v for n in names if (v := getattr(self, n)) is not None}

    @property
    def worth(self) -> float | None:
        """What every positive is worth, if that is one number."""
        return None if isinstance(self.value, str | None) else self.value

    def row_spec(self) -> "RowSpec":
        """Return how rows of logs are read, their column of time aside."""
        from mcnet.rows.spec import RowSpec

        names = ("score", "label", "weight", "score_type", "negatives_kept", "resolution", "value_per_positive")
        more = {name: getattr(self, name) for name in names}
        return RowSpec(fields=tuple(self.field), value=self.value if isinstance(self.value, str) else None, **more)


SETTINGS = {one.name: one for one in fields(HeadSettings)}
"""Every setting by its name."""
OF_THE_LOOP = ("delay", "method", "look", "max_shift", "tolerance", "min_periods", "alpha", "key_days")
"""Those that say nothing of logs."""
