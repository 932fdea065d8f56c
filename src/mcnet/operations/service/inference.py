"""The Open Inference Protocol, version 2: tensors in JSON, or in the binary form that Triton's clients use."""

import math
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray
from mcnet.operations.service.arrow import check_rows
from mcnet.operations.service.calibrate import Calibrated, calibrate_rows, check_fields
from mcnet.operations.service.metrics import HeadNumbers
from mcnet.operations.service.problems import Problem
from mcnet.operations.service.served import Served

BINARY_HEADER = "inference-header-content-length"
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
    parameters: Parameters = {}


class Inference(msgspec.Struct):
    """A request of the protocol."""

    inputs: list[Tensor]
    id: str | None = None
    parameters: Parameters = {}
    outputs: list[Output] | None = None


_decoder = msgspec.json.Decoder(Inference)


def server_metadata(version: str) -> dict[str, Any]:
    """Return what `GET /v2` tells."""
    return {"name": "mcnet", "version": version, "extensions": ["binary_tensor_data"]}


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


def answer_inference(
    served: Served, name: str, body: bytes, json_bytes: str, most_rows: int, numbers: HeadNumbers
) -> tuple[bytes, dict[str, str]]:
    """Return the answer to an inference request, and the headers that tell its form.

    Parameters
    ----------
    served : the version that answers.
    name : what the model is called.
    body, json_bytes : the request, and how many bytes of it are JSON (empty: all); the rest are binary tensors.
    most_rows, numbers : the limit, and where the rows are counted.
    """
    asked, rest = _split(body, json_bytes)
    columns, rest = _columns(asked.inputs, rest, most_rows)
    if len(rest):
        raise Problem(400, f"{len(rest):,} bytes follow the tensors that the request describes")
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
    wanted = asked.outputs or [Output("calibrated", {"binary_data": asked.parameters.get("binary_data_output")})]
    unknown = [output.name for output in wanted if output.name not in ("calibrated", "low", "high")]
    if unknown:
        raise Problem(400, f"there is no output {unknown[0]!r}; there are calibrated, low and high", at="$.outputs")
    level = None
    if any(output.name != "calibrated" for output in wanted):
        given = asked.parameters.get("interval", _INTERVAL)
        level = float(given) if isinstance(given, int | float) else math.nan
    score_type: Any = asked.parameters.get("score_type")
    values: dict[str, Any] = {field: column.tolist() for field, column in columns.items()}
    result = calibrate_rows(served, numbers, score, values or None, score_type=score_type, interval=level)
    shape = next(tensor.shape for tensor in asked.inputs if tensor.name == "score")
    return _answer(asked, wanted, result, shape, name, served.name)


def _split(body: bytes, json_bytes: str) -> tuple[Inference, memoryview]:
    if not json_bytes:
        return _decoder.decode(body), memoryview(b"")
    if not json_bytes.isdecimal() or not json_bytes.isascii() or len(json_bytes) > 18 or int(json_bytes) > len(body):
        raise Problem(400, f"{BINARY_HEADER} is {json_bytes[:40]!r}, but the body has {len(body):,} bytes")
    length = int(json_bytes)
    return _decoder.decode(body[:length]), memoryview(body)[length:]


def _columns(tensors: list[Tensor], rest: memoryview, most_rows: int) -> tuple[dict[str, NDArray[Any]], memoryview]:
    """Return the inputs by name, and what is left of the binary part."""
    columns: dict[str, NDArray[Any]] = {}
    for index, tensor in enumerate(tensors):
        at = f"$.inputs[{index}]"
        if tensor.name in columns:
            raise Problem(400, f"the input {tensor.name!r} is given twice", at=at)
        rows = _rows(tensor, at)
        check_rows(rows, most_rows)
        size = tensor.parameters.get("binary_data_size")
        if size is not None:
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(rest):
                raise Problem(400, f"binary_data_size is {size!r}, but {len(rest):,} bytes are left", at=at)
            column, rest = _binary(tensor, rest[:size], rows, at), rest[size:]
        else:
            column = _listed(tensor, rows, at)
        missing = tensor.parameters.get("missing")
        if missing is not None and tensor.datatype == "BYTES":
            column = np.array([None if value == missing else value for value in column.tolist()], dtype=object)
        columns[tensor.name] = column
    return columns, rest


def _rows(tensor: Tensor, at: str) -> int:
    """Return how many rows a tensor has; it is one column, however its shape says that."""
    shape = tensor.shape
    if not 1 <= len(shape) <= 8 or any(side < 0 for side in shape) or sum(side != 1 for side in shape) > 1:
        raise Problem(400, f"the shape is {shape[:9]}; it must be one column: [rows] or [rows, 1]", at=f"{at}.shape")
    return math.prod(shape)


def _binary(tensor: Tensor, content: memoryview, rows: int, at: str) -> NDArray[Any]:
    if tensor.datatype == "BYTES":
        return _texts(content, rows, at)
    kind = _kind(tensor, at)
    if len(content) != rows * np.dtype(kind).itemsize:
        raise Problem(400, f"{rows:,} values of {tensor.datatype} are not {len(content):,} bytes", at=at)
    return np.frombuffer(content, dtype=kind)


def _texts(content: memoryview, rows: int, at: str) -> NDArray[Any]:
    """Return texts that each come after their length in four bytes."""
    result, index, end = [], 0, len(content)
    for _ in range(rows):
        length = int.from_bytes(content[index : index + 4], "little")
        if index + 4 + length > end:
            raise Problem(400, "the texts are longer than the bytes given", at=at)
        result.append(bytes(content[index + 4 : index + 4 + length]).decode("utf-8", errors="backslashreplace"))
        index += 4 + length
    if index != end:
        raise Problem(400, f"{end - index:,} bytes follow the {rows:,} texts", at=at)
    return np.array(result, dtype=object)


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
        raise Problem(400, f"the input {tensor.name!r} has no data", at=f"{at}.data")
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


def _answer(
    asked: Inference, wanted: list[Output], result: Calibrated, shape: list[int], name: str, version: str
) -> tuple[bytes, dict[str, str]]:
    outputs: list[dict[str, Any]] = []
    parts: list[bytes] = []
    everything = asked.parameters.get("binary_data_output") is True
    for output in wanted:
        column: FloatArray = getattr(result, output.name)
        described: dict[str, Any] = {"name": output.name, "datatype": "FP64", "shape": shape}
        if output.parameters.get("binary_data", everything):
            parts.append(column.astype("<f8").tobytes())
            described["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            described["data"] = column.tolist()
        outputs.append(described)
    document = {"model_name": name, "model_version": version, "outputs": outputs}
    if asked.id is not None:
        document["id"] = asked.id
    head = msgspec.json.encode(document)
    if not parts:
        return head, {"content-type": "application/json"}
    headers = {"content-type": "application/octet-stream", BINARY_HEADER: str(len(head))}
    return b"".join([head, *parts]), headers
