"""What a sketch query returns: the names of its columns, what it says of itself, and the numbers of unusable rows."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcnet._shared.typing import ScoreType
from mcnet.errors import FileFormatError
from mcnet.sketch.grid import Resolution

__all__ = [
    "ABOUT",
    "CELL",
    "FOLD",
    "HIGHEST_SCORES",
    "LOWEST_SCORES",
    "MARKS",
    "MISSING_MARK",
    "PLAIN_MARK",
    "POSITION",
    "POSITIVES",
    "PROBLEMS",
    "ROWS",
    "WEIGHT",
    "WITHOUT_WEIGHT",
    "About",
    "RowProblem",
]

CELL, FOLD = "mcnet_cell", "mcnet_fold"
ROWS, WEIGHT, POSITIVES, POSITION = "mcnet_rows", "mcnet_weight", "mcnet_positives", "mcnet_position"
ABOUT = "mcnet_sketch"
MARKS = "mcnet_types"
"""The column that has one letter per field: how its value is to be read where a client has made a string of it."""

MISSING_MARK, PLAIN_MARK = "m", "p"
"""The letters of a missing value, and of one whose string is what it is; see `ColumnTypes.marks` for the others."""

_QUERY_VERSION = 1
"""The version of the grid and of the columns; a result of another version is refused."""

WITHOUT_WEIGHT = -1_000_000
"""The number that stands in the column of cells for rows of weight 0."""

LOWEST_SCORES, HIGHEST_SCORES = -1_000_010, -1_000_011
"""The numbers that stand there for scores at or beyond the ends of the grid, which are clipped to them."""


@dataclass(frozen=True)
class RowProblem:
    """Why rows cannot be used; no cell of any grid has such a number."""

    number: int
    column: str
    what: str
    advice: str
    missing: bool


PROBLEMS = (
    RowProblem(-1_000_001, "label", "missing, NaN or infinite", "drop these rows", True),
    RowProblem(
        -1_000_002,
        "label",
        "outside [0, 1]",
        "labels are 0/1, booleans, or fractions with the number of impressions as weight",
        False,
    ),
    RowProblem(-1_000_003, "weight", "missing, NaN or infinite", "give them a number", True),
    RowProblem(-1_000_004, "weight", "below 0", "weights are counts or importances ≥ 0", False),
    RowProblem(-1_000_005, "score", "missing, NaN or infinite", "drop or fill these rows", True),
    RowProblem(
        -1_000_006,
        "score",
        "outside [0, 1]",
        "pass logits with score_type='logit', percentages divided by 100",
        False,
    ),
    RowProblem(-1_000_007, "folds", "missing, or no whole number from 0 to 99", "give them a fold", False),
)


@dataclass(frozen=True)
class About:
    """How the rows were read; a query writes it into every row of its result."""

    resolution: Resolution
    columns: Mapping[str, str]
    fields: tuple[str, ...] = ()
    folds: int | None = 1
    """Into how many folds to split the cells; None where the rows have a column of folds."""
    score_type: ScoreType = "probability"
    negatives_kept: float = 1.0
    every: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """Return it as a short text, usual values left out."""
        usual = About(self.resolution, self.columns)
        values = {name: value for name, value in vars(self).items() if value != getattr(usual, name)}
        values |= {"version": _QUERY_VERSION, "resolution": self.resolution, "columns": dict(self.columns)}
        return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def of(text: str) -> "About":
        """Read the text; refuse that of another version."""
        refusal = FileFormatError(
            f"the column {ABOUT} has {str(text)[:60]!r}, which no query of mcnet writes; leave it as it is"
        )
        try:
            values: dict[str, Any] = json.loads(text)
            version = values.pop("version")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise refusal from None
        if version != _QUERY_VERSION:
            raise FileFormatError(
                f"the table was made by a query of version {version}, and this mcnet reads {_QUERY_VERSION}: "
                "run the query that mcnet.sketch_query writes now"
            )
        try:
            return About(**{**values, "fields": tuple(values.get("fields", ()))})
        except TypeError:
            raise refusal from None
