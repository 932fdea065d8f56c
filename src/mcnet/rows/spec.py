"""How rows are read: which columns they have, what their scores are, and what becomes of their timestamps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, Literal

from mcnet._shared.arrays import ScoreType
from mcnet.errors import Advice, InputError
from mcnet.rows.columns import check_negatives_kept
from mcnet.rows.fields import Edges, derivation, source_column

Resolution = int | Literal["exact"]
DEFAULT_RESOLUTION = 512
MOST_FOLDS = 100

ValueKind = Literal["row", "positive"]
"""Whether what a positive is worth is known for every row, or for positives alone."""

MORE_COLUMNS = ("value", "value_per_positive", "propensity")
"""Columns of numbers that few logs have: what positives are worth, and how probably rows were logged."""


def field_names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of fields, given as one name or as several.

    >>> field_names("country"), field_names(["country", "device"]), field_names(None)
    (('country',), ('country', 'device'), ())
    """
    return (given,) if isinstance(given, str) else tuple(given or ())


def check_search(fields: Any, named: Sequence[str], exclude: str | Sequence[str] | None) -> None:
    """Refuse what `fields` does not take, fields that are named as well, and `exclude` without a search."""
    if fields is None and exclude:
        raise InputError(
            "exclude leaves columns out of a search for fields",
            advice=Advice('pass fields="auto", too', shell="pass --fields auto, too"),
        )
    if fields not in (None, "auto"):
        name = fields if isinstance(fields, str) else "NAME"
        raise InputError(
            f'fields is {fields!r}; it takes "auto" alone',
            advice=Advice("name fields with field=", shell=f"name a field with --field {name}"),
        )
    if fields is not None and named:
        raise InputError(
            "fields and field were both given",
            advice=Advice('give fields="auto" or field=', shell="give --fields auto or --field"),
        )


def check_folds(folds: Any) -> int:
    """Return the number of folds, or raise if it is not one."""
    if isinstance(folds, bool) or not isinstance(folds, Integral) or not 1 <= int(folds) <= MOST_FOLDS:
        raise InputError(
            f"folds is {folds!r}; it must be a whole number from 1 to {MOST_FOLDS}, or a column of fold numbers"
        )
    return int(folds)


@dataclass(frozen=True)
class RowSpec:
    """How rows are read. Functions that users call take its parts as arguments and make it once.

    Attributes
    ----------
    score, label, weight : names of columns; None for columns in memory, and for what was read before.
    fields : names of columns, or of fields that are derived from columns (`mcnet.rows.derived`); of rows that were
        sketched before, none means all.
    folds : into how many folds to split the rows, or the name of a column of fold numbers.
    resolution : cells per unit of logit, or "exact".
    score_type : whether scores are probabilities or logits.
    negatives_kept : the fraction of negatives that survived down-sampling; they are weighted back.
    every : fields of timestamps and the periods to cut them to.
    time : that of these fields by which the rows are divided into periods, if there is one.
    drop_missing : leave out rows whose score, label or weight is missing.
    value : the column of what a positive is worth, known for every row.
    value_per_positive : the same, known for positives alone.
    propensity : the column of the probability that a row was logged; its inverse weighs the row.
    edges : where fields that are numbers are cut into bins; those of the others are chosen from the rows.

    >>> spec = RowSpec("pctr", "click", ("country",)).with_time("ts", "1d")
    >>> spec.fields, spec.every, spec.columns
    (('country', 'ts'), {'ts': '1d'}, {'score': 'pctr', 'label': 'click'})
    """

    score: str | None = None
    label: str | None = None
    fields: tuple[str, ...] = ()
    weight: str | None = None
    folds: int | str = 1
    resolution: Resolution = DEFAULT_RESOLUTION
    score_type: ScoreType = "probability"
    negatives_kept: float = 1.0
    every: Mapping[str, str] = field(default_factory=dict)
    time: str | None = None
    drop_missing: bool = False
    value: str | None = None
    value_per_positive: str | None = None
    propensity: str | None = None
    edges: Mapping[str, Edges] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, str]:
        """The columns that a sketch remembers."""
        named = {role: getattr(self, role) for role in ("score", "label", "weight", *MORE_COLUMNS)}
        return {role: column for role, column in named.items() if column is not None}

    @property
    def fold_column(self) -> str | None:
        """The column of fold numbers, if there is one."""
        return self.folds if isinstance(self.folds, str) else None

    @property
    def value_kind(self) -> ValueKind | None:
        """Of which rows the value is known, if there is one."""
        return "row" if self.value is not None else "positive" if self.value_per_positive is not None else None

    @property
    def numbers(self) -> list[str]:
        """The columns of numbers."""
        return [*self.columns.values(), *([] if self.fold_column is None else [self.fold_column])]

    @property
    def field_columns(self) -> list[str]:
        """The columns that the fields are read from."""
        return list(dict.fromkeys(map(source_column, self.fields)))

    @property
    def freely_written(self) -> list[str]:
        """Those of them that nothing but periods and derived fields is made of, so that any string of one will do."""
        plain = [name for name in self.fields if derivation(name) is None and name not in self.every]
        return [column for column in self.field_columns if column not in plain]

    @property
    def only_names(self) -> bool:
        """Whether it says no more than names, as it must where rows were sketched before: the rest is settled."""
        usual = self.score_type == "probability" and self.negatives_kept == 1.0
        columns = all(role in ("score", "label") for role in self.columns)
        return usual and columns and self.resolution == DEFAULT_RESOLUTION

    def name_of(self, role: str) -> str:
        """Return what messages call a column: its name, or its role where it has none."""
        column = getattr(self, role)
        return column if isinstance(column, str) else role

    def with_time(self, time: str, every: str | None) -> "RowSpec":
        """Return the spec with a column of timestamps as a further field, cut to periods unless they are there."""
        cut = {} if every is None else {time: every}
        return replace(self, fields=(*self.fields, time), every={**self.every, **cut}, time=time)

    def arguments(self) -> dict[str, Any]:
        """Return what functions that users call take it as: score, label, field …; time and folds aside."""
        fields = [name for name in self.fields if name != self.time]
        kinds = {"score_type": self.score_type, "negatives_kept": self.negatives_kept}
        names = {"score": self.score, "label": self.label, "field": fields or None, "weight": self.weight}
        names |= {role: getattr(self, role) for role in MORE_COLUMNS if getattr(self, role) is not None}
        return names | kinds | ({} if self.resolution == DEFAULT_RESOLUTION else {"resolution": self.resolution})

    def check(self) -> None:
        """Refuse names that are no names, or used twice, and kinds of scores that are none, before anything is read."""
        for column in (self.score, self.label, *self.columns.values(), *self.fields):
            if not isinstance(column, str):
                raise InputError(
                    f"scan takes names of columns, not {type(column).__name__}; give columns to mcnet.Sketch.from_rows"
                )
        used = [*self.numbers, *self.fields]
        if len(set(used)) < len(used):
            twice = next(column for column in used if used.count(column) > 1)
            raise InputError(
                f"the column {twice!r} is used twice; score, label, fields, weight and folds must be different columns"
            )
        for name in self.fields:
            for role, column in (("label", self.label), ("score", self.score)):
                if column is not None and derivation(name) is not None and source_column(name) == column:
                    raise InputError(f"the field {name!r} is derived from the {role}; leave it out")
        for name in self.every:
            if name not in self.fields:
                raise InputError(f"every names {name!r}, which is not a field of this scan; pass it as a field too")
        if self.score_type not in ("probability", "logit"):
            raise InputError(f"score_type is {self.score_type!r}; it must be 'probability' or 'logit'")
        if self.fold_column is None:
            check_folds(self.folds)
        if self.value is not None and self.value_per_positive is not None:
            raise InputError("value and value_per_positive were both given; give the one that is known")
        check_negatives_kept(self.negatives_kept)
