"""The Open Inference Protocol, version 2: tensors in JSON."""

import math
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from mcnet.operations.service.arrow import check_rows
from mcnet.operations.service.calibrate import calibrate_rows, check_fields
from mcnet.operations.service.metrics import HeadNumbers
from mcnet.operations.service.problems import Problem
from mcnet.operations.service.served import Served

_INTERVAL = 0.9

_TYPES = {
    "BOOL": "?",
    "UINT8": "u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
"""Number types of the protocol, as NumPy names them; BYTES are texts."""

Parameters = dict[str, str | int | float | bool | None]


class Tensor(msgspec.Struct):
    """One column of the rows."""

    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters = {}
    data: list[Any] | None = None


class Output(msgspec.Struct):
    """One column that is asked for."""

    name: str


class Inference(msgspec.Struct):
    """A request of the protocol."""

    inputs: list[Tensor]
    id: str | None = None
    parameters: Parameters = {}
    outputs: list[Output] | None = None


_decoder = msgspec.json.Decoder(Inference)


def server_metadata(version: str) -> dict[str, Any]:
    """Return what `GET /v2` tells."""
    return {"name": "mcnet", "version": version, "extensions": []}


def model_metadata(served: Served, name: str, versions: list[str]) -> dict[str, Any]:
    """Return what `GET /v2/models/{name}` tells."""
    fields = [{"name": field, "datatype": "BYTES", "shape": [-1]} for field in served.model.needed_fields]
    outputs = ["calibrated"] + (["low", "high"] if served.model.uncertainty is not None else [])
    return {
        "name": name,
        "versions": versions,
        "platform": "mcnet",
        "inputs": [{"name": "score", "datatype": "FP64", "shape": [-1]}, *fields],
        "outputs": [{"name": output, "datatype": "FP64", "shape": [-1]} for output in outputs],
    }


def answer_inference(served: Served, name: str, body: bytes, most_rows: int, numbers: HeadNumbers) -> bytes:
    """Return the answer to an inference request.

    Parameters
    ----------
    served : the version that answers.
    name : what the model is called.
    body : the request.
    most_rows, numbers : the limit, and where the rows are counted.
    """
    asked = _decoder.decode(body)
    columns = _columns(asked.inputs, most_rows)
    if "score" not in columns:
        raise Problem(400, f"inputs given: {', '.join(columns) or 'none'}; the model needs score", at="$.inputs")
    score = columns.pop("score")
    if score.dtype.kind not in "fiu":
        raise Problem(
            400, f"score is a tensor of {score.dtype}; it must be of FP64, FP32 or whole numbers", at="$.inputs"
        )
    check_fields(served, list(columns), at="$.inputs")
    for field, column in columns.items():
        if len(column) != len(score):
            raise Problem(400, f"score has {len(score):,} rows, {field} has {len(column):,}", at="$.inputs")
    wanted = ["calibrated"] if asked.outputs is None else [output.name for output in asked.outputs]
    unknown = [output for output in wanted if output not in ("calibrated", "low", "high")]
    if unknown:
        raise Problem(400, f"there is no output {unknown[0]!r}; there are calibrated, low and high", at="$.outputs")
    level = None
    if set(wanted) & {"low", "high"}:
        given = asked.parameters.get("interval", _INTERVAL)
        level = float(given) if isinstance(given, int | float) else math.nan
    score_type: Any = asked.parameters.get("score_type")
    values: dict[str, Any] = {field: column.tolist() for field, column in columns.items()}
    result = calibrate_rows(served, numbers, score, values or None, score_type=score_type, interval=level)
    shape = next(tensor.shape for tensor in asked.inputs if tensor.name == "score")
    outputs = [
        {"name": output, "datatype": "FP64", "shape": shape, "data": getattr(result, output).tolist()}
        for output in wanted
    ]
    document = {"model_name": name, "model_version": served.name, "outputs": outputs}
    return msgspec.json.encode(document if asked.id is None else {**document, "id": asked.id})


def _columns(tensors: list[Tensor], most_rows: int) -> dict[str, NDArray[Any]]:
    """Return the inputs by name."""
    columns: dict[str, NDArray[Any]] = {}
    for index, tensor in enumerate(tensors):
        at = f"$.inputs[{index}]"
        if tensor.name in columns:
            raise Problem(400, f"the input {tensor.name!r} is given twice", at=at)
        rows = _rows(tensor, at)
        check_rows(rows, most_rows)
        columns[tensor.name] = _listed(tensor, rows, at)
    return columns


def _rows(tensor: Tensor, at: str) -> int:
    """Return how many rows a tensor has; it is one column, however its shape says that."""
    shape = tensor.shape
    if not 1 <= len(shape) <= 8 or any(side < 0 for side in shape) or sum(side != 1 for side in shape) > 1:
        raise Problem(400, f"the shape is {shape[:9]}; it must be one column: [rows] or [rows, 1]", at=f"{at}.shape")
    return math.prod(shape)


def _kind(tensor: Tensor, at: str) -> str:
    if tensor.datatype not in _TYPES:
        known = ", ".join([*_TYPES, "BYTES"])
        raise Problem(400, f"the datatype is {tensor.datatype!r}; known: {known}", at=f"{at}.datatype")
    return _TYPES[tensor.datatype]


def _is_of(datatype: str, value: Any) -> bool:
    """Tell whether a value in JSON is of a datatype; a number must not lose its fraction, nor a truth become one."""
    if value is None or datatype == "BYTES":
        return not isinstance(value, list | dict)
    if datatype == "BOOL" or isinstance(value, bool):
        return datatype == "BOOL" and isinstance(value, bool)
    return isinstance(value, int) or (isinstance(value, float) and (datatype[:2] == "FP" or value.is_integer()))


def _listed(tensor: Tensor, rows: int, at: str) -> NDArray[Any]:
    if tensor.data is None:
        raise Problem(400, f"the input {tensor.name!r} has no data; binary tensors are not read", at=f"{at}.data")
    flat: list[Any] = tensor.data
    while flat and isinstance(flat[0], list) and len(flat) <= rows:
        if not all(isinstance(part, list) for part in flat):
            break
        flat = [value for part in flat for value in part]
    if len(flat) != rows:
        raise Problem(400, f"the shape says {rows:,} values, the data have {len(flat):,}", at=f"{at}.data")
    texts = tensor.datatype == "BYTES"
    kind = "O" if texts else _kind(tensor, at)
    for index, value in enumerate(flat):
        if not _is_of(tensor.datatype, value):
            raise Problem(400, f"{value!r:.80} is not of {tensor.datatype}", at=f"{at}.data[{index}]")
    if None in flat:
        if tensor.name == "score":
            raise Problem(400, "score has a value that is null", at=f"{at}.data[{flat.index(None)}]")
        kind = "O"
    try:
        return np.array(flat, dtype=kind)
    except (ValueError, OverflowError, TypeError) as error:
        raise Problem(400, f"the data are not of {tensor.datatype}: {error}", at=f"{at}.data") from None
