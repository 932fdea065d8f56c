"""The schema of a model file: which keys it has, and of what types. What a file asks for is bounded here, too."""

from typing import Any, Literal

import msgspec

from mcnet._shared.typing import ScoreType
from mcnet.errors import InputError

__all__ = [
    "EVERY_COMBINATION",
    "EVERY_VALUE",
    "MOST_COMBINATIONS_BY_NAME",
    "MOST_FAMILY_NUMBERS",
    "CombinationDocument",
    "CurveDocument",
    "FamilyDocument",
    "FieldDocument",
    "ModelDocument",
    "validated",
]

EVERY_VALUE: Literal["every value"] = "every value"
EVERY_COMBINATION: Literal["every combination"] = "every combination"

MOST_COMBINATIONS_BY_NAME = 250_000
"""More combinations than this are listed one by one, so that a small file cannot ask for a large table."""

MOST_FAMILY_NUMBERS = 100_000_000
"""The most contexts × knots that a family in a file may be compiled to: 0.8 GB."""


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    """A part of the file in which every key is known."""


class FieldDocument(_Strict):
    """A field and its values; null is the missing value."""

    name: str
    values: list[str | None]


class CurveDocument(_Strict):
    """One curve: the codes of its field values (null for any other value), its grid, its probabilities there."""

    context: list[int | None] | None
    grid: int
    probabilities: list[float]


class CombinationDocument(_Strict):
    """Two fields taken together as one more field."""

    first: int
    second: int
    size: int
    keys: list[int]


class FamilyDocument(_Strict):
    """What `CurveFamily.to_dict` returns."""

    knots: list[float]
    origin: int
    limit: float | None
    offset: float
    log_slope: list[float]
    offset_by: list[float]
    log_slope_by: list[list[float]]
    numbers: list[list[list[float]]]
    combinations: list[CombinationDocument]


class ModelDocument(_Strict):
    """A model file of schema version 2: either grids and curves, or contexts and the family that makes their curves."""

    format: Literal["mcnet calibration model"]
    schema: Literal[2]
    method: str
    monotone: bool
    score_type: ScoreType
    total_weight: float
    balanced_by: list[str]
    isotonic_share: float
    parameters: dict[str, Any]
    provenance: dict[str, Any]
    fields: list[FieldDocument]
    checksum: str
    contexts: list[list[int]] | Literal["every value", "every combination"] | None = None
    grids: list[list[float]] | None = None
    curves: list[CurveDocument] | None = None
    family: FamilyDocument | None = None
    uncertainty: dict[str, Any] | None = None


def validated(document: dict[str, Any]) -> ModelDocument:
    """Return the document as what the schema says it is; raise InputError naming the first thing that is not.

    >>> validated({"format": "mcnet calibration model", "schema": 2, "method": 3})
    Traceback (most recent call last):
    mcnet.errors.InputError: Expected `str`, got `int` - at `$.method`
    """
    try:
        found = msgspec.convert(document, ModelDocument)
    except msgspec.ValidationError as error:
        raise InputError(str(error)) from None
    if found.total_weight < 0.0:
        raise InputError(f"the total weight is {found.total_weight}; it must not be below 0")
    if not 0.0 <= found.isotonic_share <= 1.0:
        raise InputError(f"the isotonic share is {found.isotonic_share}; it must be from 0 to 1")
    names = [field.name for field in found.fields]
    if len(set(names)) < len(names):
        raise InputError(f"two fields have the same name: {', '.join(names)}")
    for field in found.fields:
        if len(set(field.values)) < len(field.values):
            raise InputError(f"the field {field.name!r} lists a value twice")
    if (found.curves is None) != (found.grids is None) or (found.curves is None) == (found.contexts is None):
        raise InputError("a file has either grids and curves, or contexts and a family of curves")
    if found.curves is None and found.family is None:
        raise InputError("it holds neither curves nor a family of curves")
    return found
