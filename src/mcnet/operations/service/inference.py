"""The Open Inference Protocol, version 2: tensors in JSON."""

import math
from types import GenericAlias
from typing import Annotated, Any

import msgspec

from mcnet.operations.service.arrow import check_rows
from mcnet.operations.service.calibrate import calibrate_rows, check_fields
from mcnet.operations.service.metrics import HeadNumbers
from mcnet.operations.service.problems import Problem
from mcnet.operations.service.served import Served

_INTERVAL = 0.9
_NUMBERS: dict[str, Any] = {
    **dict.fromkeys(("FP16", "FP32", "FP64"), float),
    **{f"INT{n}": Annotated[int, msgspec.Meta(ge=-(2 ** (n - 1)), le=2 ** (n - 1) - 1)] for n in (8, 16, 32, 64)},
    **{f"UINT{n}": Annotated[int, msgspec.Meta(ge=0, le=2**n - 1)] for n in (8, 16, 32)},
    "UINT64": Annotated[int, msgspec.Meta(ge=0)],
}
_TYPES = {**_NUMBERS, "BOOL": bool, "BYTES": str | int | float | bool}
"""What the data of each datatype of the protocol are in JSON; BYTES are texts."""

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
    """Return the answer to an inference request for a model, as `name` calls it."""
    asked = _decoder.decode(body)
    columns: dict[str, list[Any]] = {}
    for index, tensor in enumerate(asked.inputs):
        if tensor.name in columns:
            raise Problem(400, f"the input {tensor.name!r} is given twice", at=f"$.inputs[{index}]")
        columns[tensor.name] = _column(tensor, most_rows, f"$.inputs[{index}]")
    if "score" not in columns:
        raise Problem(400, f"inputs given: {', '.join(columns) or 'none'}; the model needs score", at="$.inputs")
    score = columns.pop("score")
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
    result = calibrate_rows(served, numbers, score, columns or None, score_type=score_type, interval=level)
    shape = next(tensor.shape for tensor in asked.inputs if tensor.name == "score")
    outputs = [
        {"name": output, "datatype": "FP64", "shape": shape, "data": getattr(result, output).tolist()}
        for output in wanted
    ]
    document = {"model_name": name, "model_version": served.name, "outputs": outputs}
    return msgspec.json.encode(document if asked.id is None else {**document, "id": asked.id})


def _column(tensor: Tensor, most_rows: int, at: str) -> list[Any]:
    """Return the values of a tensor; it is one column, however its shape says that."""
    shape, data = tensor.shape, tensor.data
    if not 1 <= len(shape) <= 8 or any(side < 0 for side in shape) or sum(side != 1 for side in shape) > 1:
        raise Problem(400, f"the shape is {shape[:9]}; it must be one column: [rows] or [rows, 1]", at=f"{at}.shape")
    rows = math.prod(shape)
    check_rows(rows, most_rows)
    types = _NUMBERS if tensor.name == "score" else _TYPES
    if tensor.datatype not in types:
        raise Problem(
            400, f"the datatype is {tensor.datatype!r}; it must be of {', '.join(types)}", at=f"{at}.datatype"
        )
    if data is None:
        raise Problem(400, f"the input {tensor.name!r} has no data; binary tensors are not read", at=f"{at}.data")
    while len(data) <= rows and data and all(isinstance(part, list) for part in data):
        data = [value for part in data for value in part]
    if len(data) != rows:
        raise Problem(400, f"the shape says {rows:,} values, the data have {len(data):,}", at=f"{at}.data")
    kind = types[tensor.datatype] if tensor.name == "score" else types[tensor.datatype] | None
    try:
        column: list[Any] = msgspec.convert(data, GenericAlias(list, kind))
    except msgspec.ValidationError as error:
        raise Problem(400, f"the data are not of {tensor.datatype}: {error}", at=f"{at}.data") from None
    return column
