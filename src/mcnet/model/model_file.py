"""The model's JSON file: its schema and its checksum."""

import json
from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal

import msgspec
import numpy as np

from mcnet._shared.arrays import CodeArray, ScoreType
from mcnet._shared.files import checksum, disk_path
from mcnet._shared.messages import warn
from mcnet.curves.curves import Curves, CurveUncertainty
from mcnet.curves.family import CurveFamily
from mcnet.errors import (
    Advice,
    FileFormatError,
    InputError,
    McnetError,
    NotFittedError,
    NotSupportedError,
)
from mcnet.model.bands import CurveDeviations, Uncertainty
from mcnet.model.model import CalibrationModel
from mcnet.rows.contexts import ANY, Contexts
from mcnet.rows.derived import check_edges
from mcnet.rows.fields import NUMBER, derivation
from mcnet.rows.locations import is_store

# The schema of a model file: which keys it has, and of what types.


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


class DerivedDocument(_Strict):
    """A field that is derived from a column: of which one, how, and where a number is cut into bins."""

    column: str
    kind: Literal["number", "hour", "weekday", "hour-of-week"]
    edges: list[float] | None = None


class ModelDocument(_Strict):
    """A model file: its curves, and the family that they are made of where contexts or intervals need it."""

    format: Literal["mcnet calibration model"]
    schema: Literal[3]
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
    grids: list[list[float]]
    curves: list[CurveDocument]
    family: FamilyDocument | None = None
    uncertainty: dict[str, Any] | None = None
    derived: dict[str, DerivedDocument] | None = None
    evaluation: Literal["sum"] | None = None


def validated(document: dict[str, Any]) -> ModelDocument:
    """Return the document as what the schema says it is; raise InputError naming the first thing that is not.

    >>> validated({"format": "mcnet calibration model", "schema": 3, "method": 3})
    Traceback (most recent call last):
    mcnet.errors.InputError: Expected `str`, got `int` - at `$.method`
    """
    try:
        result = msgspec.convert(document, ModelDocument)
    except msgspec.ValidationError as error:
        raise InputError(str(error)) from None
    if result.total_weight < 0.0:
        raise InputError(f"the total weight is {result.total_weight}; it must not be below 0")
    if not 0.0 <= result.isotonic_share <= 1.0:
        raise InputError(f"the isotonic share is {result.isotonic_share}; it must be from 0 to 1")
    names = [field.name for field in result.fields]
    if len(set(names)) < len(names):
        raise InputError(f"two fields have the same name: {', '.join(names)}")
    for field in result.fields:
        if len(set(field.values)) < len(field.values):
            raise InputError(f"the field {field.name!r} lists a value twice")
    for name, one in (result.derived or {}).items():
        if name not in names or derivation(name) != (one.column, one.kind):
            raise InputError(f"{name!r} is derived from {one.column!r} as {one.kind}, which is no field of the model")
        if (one.kind == NUMBER) != (one.edges is not None):
            raise InputError(f"the derived field {name!r} is a {one.kind}, and its edges do not fit that")
    lacking = [name for name in names if derivation(name) is not None and name not in (result.derived or {})]
    if lacking:
        raise InputError(f"the field {lacking[0]!r} is derived from a column, and the file does not say how")
    return result


# The model file: plain JSON with a schema version and a checksum, readable by a person, never pickle.

SCHEMA = 3
"""1 and 2 were those of versions before the first release."""


def model_document(model: CalibrationModel) -> dict[str, Any]:
    """Return the model as a JSON-able document, checksum included."""
    curves = model.curves
    rows = model.contexts.table.tolist() if model.fields else []
    document = {
        "format": "mcnet calibration model",
        "schema": SCHEMA,
        "method": model.method,
        "monotone": model.monotone,
        "score_type": model.score_type,
        "total_weight": model.total_weight,
        "balanced_by": list(model.balanced_by),
        "isotonic_share": model.isotonic_share,
        "parameters": model.parameters,
        "provenance": model.provenance,
        "fields": [
            {"name": name, "values": list(values)}
            for name, values in zip(model.contexts.names, model.contexts.values, strict=True)
        ],
    }
    edges = model.contexts.edges
    derived = {
        name: {"column": found[0], "kind": found[1]} | ({"edges": list(edges[name])} if name in edges else {})
        for name in model.fields
        if (found := derivation(name)) is not None
    }
    if derived:
        document["derived"] = derived
    if model.sums_up:
        document["evaluation"] = model.evaluation
    document["grids"] = [knots.tolist() for knots in np.split(curves.knots, curves.grid_start[1:-1])]
    document["curves"] = [
        {
            "context": None if curve == 0 else [None if code == ANY else code for code in rows[curve - 1]],
            "grid": int(curves.grid_of[curve]),
            "probabilities": probabilities.tolist(),
        }
        for curve, probabilities in enumerate(np.split(curves.probabilities, curves.value_start[1:-1]))
    ]
    if model.family is not None and (model.sums_up or model.uncertainty is not None):
        document["family"] = model.family.to_dict()
    if model.uncertainty is not None:
        document["uncertainty"] = model.uncertainty.to_dict()
    document["checksum"] = checksum(document)
    return document


def model_text(model: CalibrationModel) -> str:
    """Return the content of a model file: one key per line, lists of curves, grids and fields one entry per line."""
    lines = []
    for key, value in model_document(model).items():
        if isinstance(value, list) and value:
            entries = ",\n    ".join(json.dumps(entry, ensure_ascii=False, allow_nan=False) for entry in value)
            string = f"[\n    {entries}\n  ]"
        elif isinstance(value, dict) and value:
            entries = ",\n    ".join(
                f"{json.dumps(name)}: {json.dumps(entry, ensure_ascii=False, allow_nan=False)}"
                for name, entry in value.items()
            )
            string = f"{{\n    {entries}\n  }}"
        else:
            string = json.dumps(value, ensure_ascii=False, allow_nan=False)
        lines.append(f"  {json.dumps(key)}: {string}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def load(path: str | PathLike[str]) -> CalibrationModel:
    """Load a saved model; a file that is damaged, altered, too new or not ours gives one clear error.

    A calibrator with features saves the curves it had without them; loading these gives a warning.

    Parameters
    ----------
    path : a file that `save` or `mcnet fit` wrote.

    Returns
    -------
    CalibrationModel
        Predicts with NumPy alone.
    """
    return _warned(read_model(path), path)


def model_of_bytes(content: bytes, name: str) -> CalibrationModel:
    """Return the model that the content of a model file describes; `name` is what messages call it."""
    return _warned(parse_model(content.decode("utf-8", errors="replace"), name), name)


def _warned(model: CalibrationModel, path: str | PathLike[str]) -> CalibrationModel:
    if model.without_features:
        warn(
            f"{path} has the curves of a calibrator without its features; they serve rows without features. "
            "For predictions with features call mcnet.WithFeatures.resume(path)"
        )
    return model


def read_model(path: str | PathLike[str]) -> CalibrationModel:
    """Return the model in a file, as it is."""
    if is_store(path):
        raise InputError(
            "a store was given, not a model",
            advice=Advice(
                "mcnet.Store(…).load() returns the model that it serves",
                shell="mcnet versions save writes the model that it serves to a file",
            ),
        )
    path = disk_path(path, "a model")
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a model; give the file in it")
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        string = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        with path.open("rb") as file:
            if file.read(4) == b"PAR1":
                raise FileFormatError(
                    f"{path} is a Parquet file, not a model; mcnet.Sketch.load reads a sketch"
                ) from None
        string = ""
    return parse_model(string, str(path))


def parse_model(text: str, path: str) -> CalibrationModel:
    """Return the model in the text of a file; `path` is what messages call it."""
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise FileFormatError(
            f"{path} is not complete JSON: it is damaged or not a model; save the model again"
        ) from None
    if not isinstance(document, dict) or document.get("format") != "mcnet calibration model":
        raise FileFormatError(f"{path} is JSON but not a model of mcnet; save one with calibrator.save(path)")
    schema = document.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        raise FileFormatError(
            f"{path} has schema {schema}, and this mcnet reads {SCHEMA}: fit and save the model again, or load it with "
            "the version of mcnet that saved it"
        )
    if document.get("checksum") != checksum(document):
        raise FileFormatError(f"{path} does not match its checksum: it was altered or damaged; save the model again")
    try:
        return _model(validated(document))
    except (McnetError, KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        problem = " ".join(str(error).split())
        raise FileFormatError(f"{path} does not hold a valid model ({problem}); save the model again") from None


def model_of(document: dict[str, Any]) -> CalibrationModel:
    """Return the model that `model_document` described."""
    return _model(validated(document))


def _model(document: ModelDocument) -> CalibrationModel:
    names = tuple(field.name for field in document.fields)
    values = tuple(tuple(field.values) for field in document.fields)
    family = None if document.family is None else CurveFamily.from_dict(msgspec.to_builtins(document.family))
    table = _curve_contexts(document.curves, values)
    curves = _curves(document.curves, document.grids)
    cut = {name: one.edges for name, one in (document.derived or {}).items() if one.edges is not None}
    contexts = Contexts(names, values, table, {name: check_edges(name, edges) for name, edges in cut.items()})
    return CalibrationModel(
        method=document.method,
        parameters=document.parameters,
        contexts=contexts,
        curves=curves,
        monotone=document.monotone,
        family=family,
        score_type=document.score_type,
        total_weight=document.total_weight,
        balanced_by=tuple(document.balanced_by),
        isotonic_share=document.isotonic_share,
        uncertainty=_uncertainty(document, family, curves, contexts),
        provenance=document.provenance,
        evaluation="curves" if document.evaluation is None else document.evaluation,
    )


def _uncertainty(
    document: ModelDocument, family: CurveFamily | None, curves: Curves, contexts: Contexts
) -> Uncertainty | None:
    if document.uncertainty is None:
        return None
    if "deviations" in document.uncertainty:
        return CurveDeviations.from_dict(document.uncertainty, curves, contexts)
    if family is None:
        raise InputError("it has an uncertainty without a family of curves")
    return CurveUncertainty.from_dict(document.uncertainty, family)


def _curves(curves: list[CurveDocument], knots: list[list[float]]) -> Curves:
    grids = [np.array(grid, dtype=np.float64) for grid in knots]
    for entry in curves:
        if not 0 <= entry.grid < len(grids):
            raise InputError(f"a curve names grid {entry.grid}, and there are {len(grids)} grids")
    return Curves.of([(grids[entry.grid], np.array(entry.probabilities)) for entry in curves])


def _curve_contexts(curves: list[CurveDocument], values: Sequence[tuple[str | None, ...]]) -> CodeArray:
    """Return the contexts that explicit curves name, one row of codes each."""
    if not curves or curves[0].context is not None:
        raise InputError("the first curve is the pooled one, and names no context")
    if not values:
        return Contexts.none().table
    rows = []
    for entry in curves[1:]:
        if entry.context is None:
            raise InputError("a curve other than the first names no context")
        rows.append([ANY if code is None else code for code in entry.context])
    return _table(rows, values)


def _table(rows: list[list[int]], values: Sequence[tuple[str | None, ...]]) -> CodeArray:
    """Return rows of codes as an array; refuse codes that no value has, and contexts that occur twice."""
    wrong = next((row for row in rows if len(row) != len(values)), None)
    table = np.zeros((0, len(values)), dtype=np.int64)
    if wrong is None and rows:
        table = np.array(rows, dtype=np.int64)
        bad = (table < ANY) | (table >= np.array([len(known) for known in values]))
        wrong = rows[int(np.argmax(bad.any(axis=1)))] if bad.any() else None
    if wrong is not None:
        raise InputError(f"the context {wrong} is not one of the fields' values")
    distinct = np.unique(table[:, 0]) if len(values) == 1 else np.unique(table, axis=0)
    if len(distinct) < len(table):
        raise InputError("a context occurs twice")
    return table.astype(np.int32)


# Return the model of a calibrator, a model or a path.


def as_model(model: Any, done: str) -> CalibrationModel:
    """Return the model of a fitted calibrator or of a model file, or the model itself."""
    if isinstance(model, str | PathLike):
        return load(model)
    if getattr(model, "needs_features", False):
        raise NotSupportedError(
            "with features a probability depends on more than the score, so no curve of the score gives it; "
            "pass calibrator.model_, the calibrator without features"
        )
    result = getattr(model, "model_", model)
    if isinstance(result, CalibrationModel):
        return result
    if hasattr(model, "fit_sketch"):
        raise NotFittedError(f"this {type(model).__name__} is not fitted yet; call fit or fit_sketch first")
    raise InputError(
        f"{type(model).__name__} cannot be {done}; pass a model, a fitted calibrator or the path of a model file"
    )


# What a model asks of clients, beside another one.


def other_requests(model: CalibrationModel, current: CalibrationModel | None) -> str:
    """Return what a model asks of clients that the current one does not, after its name; "" if that is the same."""
    if current is None:
        return ""
    lacking = [name for name in current.fields if name not in model.fields]
    if lacking:
        return f"lacks the field {lacking[0]!r} of the current model"
    more = [name for name in model.fields if name not in current.fields]
    if more:
        return f"needs the field {more[0]!r}, which clients of the current one do not send"
    if current.score_type != model.score_type:
        words = {"probability": "probabilities", "logit": "logits"}
        return f"takes {words[model.score_type]} as scores, the current one {words[current.score_type]}"
    return ""
