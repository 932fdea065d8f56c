"""Curves to ONNX: a plain graph of standard operators that computes the same bits as predict."""

import json
from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import ScoreType
from mcnet._shared.files import whole_file
from mcnet._shared.messages import install_hint
from mcnet.errors import Advice, InputError, NotSupportedError
from mcnet.export.pieces import (
    HIGHEST_SCORE,
    LOWEST_SCORE,
    ContextMap,
    Exported,
    Parts,
    Pieces,
    checked_score_type,
    free_name,
    stamp,
    warn_of_size,
)
from mcnet.export.targets import Target
from mcnet.model.model import CalibrationModel
from mcnet.rows.derived import bin_texts
from mcnet.rows.fields import CLOCK, MISSING_LABEL, Edges, derivation
from mcnet.version import __version__

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto

# A small builder of ONNX graphs: nodes, tables and names that never collide.


class Graph:
    """Collects the nodes of a graph; each call returns the name of what it made."""

    def __init__(self, *reserved: str) -> None:
        """Start an empty graph; no input or inner name will be one of those reserved."""
        self.inputs: list[ValueInfoProto] = []
        self._names = set(reserved)
        self._nodes: list[NodeProto] = []
        self._tables: list[TensorProto] = []

    def input(self, wanted: str, element_type: int, description: str) -> str:
        """Declare an input of one column, of any number of rows."""
        from onnx import helper

        name = self._new(wanted)
        info = helper.make_tensor_value_info(name, element_type, ["rows"])
        info.doc_string = description
        self.inputs.append(info)
        return name

    def table(self, values: NDArray[Any] | np.generic) -> str:
        """Store an array in the graph."""
        from onnx import numpy_helper

        name = self._new("table")
        self._tables.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def add(
        self,
        operator: str,
        *inputs: str | NDArray[Any] | np.generic,
        domain: str = "",
        output: str | None = None,
        **attributes: Any,
    ) -> str:
        """Apply an operator to what is in the graph already, by its names, and to numbers."""
        from onnx import helper

        names = [part if isinstance(part, str) else self.table(part) for part in inputs]
        name = output if output is not None else self._new(operator.lower())
        self._nodes.append(helper.make_node(operator, names, [name], domain=domain, **attributes))
        return name

    def finished(self, output: str) -> "GraphProto":
        """Return the graph with its one output, a double a row."""
        from onnx import TensorProto, helper

        result = helper.make_tensor_value_info(output, TensorProto.DOUBLE, ["rows"])
        return helper.make_graph(self._nodes, "calibration", self.inputs, [result], self._tables)

    def _new(self, wanted: str) -> str:
        name = free_name(wanted, self._names)
        self._names.add(name)
        return name


# Curves to ONNX: a plain graph of standard operators that computes the same bits as predict.

OPSET = 17
"""The version of the standard operators the graph is written in."""

ML_OPSET = 3
"""The version of the ai.onnx.ml operators, of which the graph uses LabelEncoder alone."""

_IR_VERSION = 8
_BEYOND_LOGITS = 1e9
"""Where the first and the last panel end: beyond every logit."""
_LOWEST_INT64 = -(2**63)

FieldType = Literal["string", "int64"]


def export_onnx(
    model: CalibrationModel,
    path: str | PathLike[str],
    *,
    number_type: Literal["double", "float"] = "double",
    field_type: FieldType | Mapping[str, FieldType] = "string",
    missing: str = MISSING_LABEL,
    missing_number: int = _LOWEST_INT64,
    score_type: ScoreType | None = None,
) -> None:
    """Write the model as an ONNX graph: inputs score and one per field, shape [rows]; output calibrated, double.

    A field that is derived from a column has that column as its input: a double that is cut by comparisons, or seconds
    since 1970 as int64. A score below 0 or above 1 is taken as 0 or 1, and NaN gives NaN.

    Parameters
    ----------
    number_type : the type of the input score; float is widened to double before anything is computed.
    field_type : the type of the field inputs, for all or by name; int64 where every value is a whole number.
    missing : the text that stands for a missing value, which ONNX does not have; never a value of the model itself.
    missing_number : the same for int64 inputs.
    score_type : what the input score is, "probability" or "logit"; by default what the model was fitted on.
    """
    takes = checked_score_type(model, score_type)
    try:
        from onnx import TensorProto, checker, helper

    except ImportError:
        raise NotSupportedError(
            f"the export to ONNX needs onnx, which is not installed; {install_hint('onnx')}"
        ) from None
    if number_type not in ("double", "float"):
        raise InputError(f"number_type is {number_type!r}; it must be 'double' or 'float'")
    graph = Graph("calibrated")
    wide = number_type == "double"
    what = "the raw score, a logit" if takes == "logit" else "the raw score, inside [0, 1]"
    score = graph.input("score", TensorProto.DOUBLE if wide else TensorProto.FLOAT, what)
    if not wide:
        score = graph.add("Cast", score, to=TensorProto.DOUBLE)
    if takes == "logit":
        score = graph.add("Sigmoid", score)
    exported = Exported.in_parts(model)
    known = ContextMap.of(exported.contexts)
    if "" in known.names:
        raise InputError("a field has the empty name, which no input of an ONNX graph can have; refit with a name")
    columns, keys = [], []
    cuts = _Cuts(graph, model.contexts.edges, missing_number)
    for name, digits, kind in zip(known.names, known.digits, _types(known.names, field_type), strict=True):
        if derivation(name) is not None:
            columns.append(cuts.index(name))
            keys.append(cuts.keys(name, digits))
            continue
        what = f"the value of field {name!r}; if missing, "
        if kind == "string":
            keys.append(_text_keys(name, digits, missing))
            columns.append(graph.input(name, TensorProto.STRING, what + repr(missing)))
        else:
            keys.append(_number_keys(name, digits, missing_number))
            columns.append(graph.input(name, TensorProto.INT64, what + str(missing_number)))
    pieces = Pieces.of(exported.curves)
    if exported.parts is None:
        result = _evaluate(graph, pieces, score, _curve(graph, known, columns, keys))
    else:
        result = _summed_up(graph, exported.parts, score, known, columns, keys)
        if known.curves:
            curve = _curve(graph, known, columns, keys)
            assert curve is not None
            own = graph.add("Greater", curve, np.int64(0))
            result = graph.add("Where", own, _evaluate(graph, pieces, score, curve), result)
    # Without this, a NaN would be clipped to an honest-looking score.
    graph.add("Where", graph.add("IsNaN", score), score, result, output="calibrated")
    document = helper.make_model(
        graph.finished("calibrated"),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        ir_version=_IR_VERSION,
        producer_name="mcnet",
        producer_version=__version__,
        doc_string=f"Raw score to calibrated probability, by {model.method}; the metadata say where it comes from.",
    )
    origin = {**stamp(model, exported, takes), "inputs": {info.name: info.doc_string for info in graph.inputs}}
    helper.set_model_props(
        document, {key: value if isinstance(value, str) else json.dumps(value) for key, value in origin.items()}
    )
    checker.check_model(document)
    content = document.SerializeToString(deterministic=True)
    warn_of_size("ONNX graph", len(content), len(pieces))
    with whole_file(path) as part:
        part.write_bytes(content)


class _Cuts:
    """Adds what derives fields from the columns of the rows: the input of each column, and the index of its value."""

    def __init__(self, graph: Graph, edges: Mapping[str, Edges], missing: int) -> None:
        self._graph, self._edges, self._missing = graph, edges, missing
        self._inputs: dict[tuple[str, int], str] = {}

    def keys(self, name: str, digits: dict[str | None, int]) -> dict[str | int, int]:
        """Return the digit of each index; -1 is the missing value."""
        found = derivation(name)
        assert found is not None
        texts = CLOCK[found[1]] if found[1] in CLOCK else bin_texts(self._edges[name])
        return {**{at: digits[text] for at, text in enumerate(texts) if text in digits}, -1: digits.get(None, 0)}

    def index(self, name: str) -> str:
        """Return the index of each row's value."""
        from onnx import TensorProto

        found, graph = derivation(name), self._graph
        assert found is not None
        if found[1] in CLOCK:
            what = f"seconds since 1970 in UTC; if missing, {self._missing}"
            seconds = self._input(found[0], TensorProto.INT64, what)
            hour = graph.add("Mod", graph.add("Div", seconds, np.int64(3600)), np.int64(24))
            days = graph.add("Div", seconds, np.int64(86_400))
            day = graph.add("Mod", graph.add("Add", days, np.int64(3)), np.int64(7))
            both = graph.add("Add", graph.add("Mul", day, np.int64(24)), hour)
            value = {"hour": hour, "weekday": day}.get(found[1], both)
            absent = graph.add("Equal", seconds, np.int64(self._missing))
        else:
            number = self._input(found[0], TensorProto.DOUBLE, "a number; NaN if it is missing")
            column = graph.add("Unsqueeze", number, np.array([1]))
            above = graph.add("GreaterOrEqual", column, np.array([self._edges[name] or (np.inf,)]))
            counts = graph.add("Cast", above, to=TensorProto.INT64)
            value = graph.add("ReduceSum", counts, np.array([1]), keepdims=0)
            absent = graph.add("IsNaN", number)
        return graph.add("Where", absent, np.int64(-1), value)

    def _input(self, column: str, kind: int, what: str) -> str:
        if (column, kind) not in self._inputs:
            self._inputs[column, kind] = self._graph.input(column, kind, what)
        return self._inputs[column, kind]


def _types(names: tuple[str, ...], field_type: FieldType | Mapping[str, FieldType]) -> list[FieldType]:
    """Return the type of each field's input."""
    if isinstance(field_type, str):
        types = [field_type] * len(names)
    else:
        unknown = sorted(set(field_type) - set(names))
        if unknown:
            raise InputError(f"field_type names {', '.join(unknown)}; the fields are {', '.join(names) or 'none'}")
        types = [field_type.get(name, "string") for name in names]
    for kind in types:
        if kind not in ("string", "int64"):
            raise InputError(f"field_type is {kind!r}; it must be 'string' or 'int64'")
    return types


def _text_keys(field: str, digits: dict[str | None, int], missing: str) -> dict[str | int, int]:
    """Return the digit of each text, the one that stands for a missing value included."""
    if missing in digits:
        what = f"{missing!r} is a real value of field {field!r}"
        raise InputError(what, advice=Advice("pass another text as missing=", shell="pass another: --set missing=TEXT"))
    keys: dict[str | int, int] = {value: digit for value, digit in digits.items() if value is not None}
    return {**keys, missing: digits.get(None, 0)}


def _number_keys(field: str, digits: dict[str | None, int], missing: int) -> dict[str | int, int]:
    """Return the digit of each whole number, the one that stands for a missing value included."""
    keys: dict[str | int, int] = {}
    for value, digit in digits.items():
        if value is None:
            continue
        if not _is_int64(value):
            raise InputError(f"field {field!r} has the value {value!r}, not an int64; use field_type='string'")
        keys[int(value)] = digit
    if missing in keys:
        raise InputError(f"{missing} is a real value of field {field!r}; pass another number as missing_number=")
    return {**keys, missing: digits.get(None, 0)}


def _is_int64(text: str) -> bool:
    """Tell whether a text is how an int64 is written as a field value: no sign +, no leading zeros."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        return False
    return str(int(text)) == text and _LOWEST_INT64 <= int(text) < -_LOWEST_INT64


def _curve(graph: "Graph", known: ContextMap, columns: list[str], keys: list[dict[str | int, int]]) -> str | None:
    """Add the lookup from field values to the number of a curve; None for a model without fields."""
    if not columns:
        return None
    unseen = known.curves.get(0, 0)
    if len(columns) == 1:
        # One field needs no combination: its values lead to curves directly.
        return _encode(graph, columns[0], {v: known.curves.get(digit, 0) for v, digit in keys[0].items()}, unseen)
    total = ""
    for column, digits, stride in zip(columns, keys, known.strides, strict=True):
        index = _encode(graph, column, {value: digit * stride for value, digit in digits.items()}, 0)
        total = graph.add("Add", total, index) if total else index
    return _encode(graph, total, known.curves | {0: unseen}, 0)


def _encode(graph: "Graph", column: str, table: Mapping[Any, int], default: int) -> str:
    """Add a lookup by hash; what the table does not hold gets the default."""
    strings = isinstance(next(iter(table)), str)
    attributes: dict[str, Any] = {
        "keys_strings" if strings else "keys_int64s": list(table),
        "values_int64s": list(table.values()),
        "default_int64": default,
    }
    return graph.add("LabelEncoder", column, domain="ai.onnx.ml", **attributes)


def _evaluate(graph: "Graph", pieces: Pieces, score: str, curve: str | None) -> str:
    """Add the search for each row's piece and the line through it.

    The search halves its step from the largest grid's size downwards, for all rows at once: its cost grows with the
    logarithm of the knots, whatever the number of curves.
    """
    x = _clipped(graph, score)
    begin = pieces.grid_begin[pieces.grid_of]
    last = begin + pieces.grid_size[pieces.grid_of] - 1
    shift = pieces.curve_begin - begin

    def of_curve(values: np.ndarray) -> str:
        if curve is None:
            return graph.table(np.int32(values[0]))
        return graph.add("Gather", values.astype(np.int32), curve)

    starts = graph.table(pieces.starts)
    at, end = of_curve(begin), of_curve(last)
    steps = int(pieces.grid_size.max() - 1).bit_length()
    for power in range(steps - 1, -1, -1):
        probe = graph.add("Min", graph.add("Add", at, np.int32(1 << power)), end)
        passed = graph.add("LessOrEqual", graph.add("Gather", starts, probe), x)
        at = graph.add("Where", passed, probe, at)
    piece = graph.add("Add", at, of_curve(shift)) if shift.any() else at
    run = graph.add("Sub", x, graph.add("Gather", starts, at))
    rise = graph.add("Mul", graph.add("Gather", pieces.slopes, piece), run)
    line = graph.add("Add", rise, graph.add("Gather", pieces.values, piece))
    return graph.add("Min", line, graph.add("Gather", pieces.ceilings, piece))


def _clipped(graph: "Graph", score: str) -> str:
    return graph.add("Clip", score, np.float64(LOWEST_SCORE), np.float64(HIGHEST_SCORE))


def _summed_up(
    graph: "Graph", parts: Parts, score: str, known: ContextMap, columns: list[str], keys: list[dict[str | int, int]]
) -> str:
    """Add the sum of rising terms: the numbers of each row's values and pairs, its slopes, and the way along them."""
    digits = [_encode(graph, column, table, 0) for column, table in zip(columns, keys, strict=True)]
    rows = []
    for field, numbers in zip(parts.fields, parts.numbers[: len(parts.fields)], strict=True):
        index, each = digits[field], np.arange(len(known.digits[field]) + 1)
        if len(numbers) < each[-1]:  # a rare value has no numbers, as an unseen one
            index = graph.add("Gather", np.where(each <= len(numbers), each, 0), index)
        rows.append((index, numbers))
    for pair, numbers in zip(parts.pairs, parts.numbers[len(parts.fields) :], strict=True):
        size = len(known.digits[pair.second]) + 1
        firsts = np.repeat(np.arange(1, len(pair.begin)), np.diff(pair.begin))
        pair_keys = (firsts * size + pair.seconds + 1).tolist()
        both = graph.add("Add", graph.add("Mul", digits[pair.first], np.int64(size)), digits[pair.second])
        rows.append((_encode(graph, both, dict(zip(pair_keys, range(1, len(numbers) + 1), strict=True)), 0), numbers))
    moved = ""
    for index, numbers in rows:
        # The first row is that of values and pairs that are not known.
        term = graph.add("Gather", np.concatenate([np.zeros((1, parts.width)), numbers]), index)
        moved = graph.add("Add", moved, term) if moved else term
    sums = graph.add("Add", graph.add("MatMul", moved, parts.moves.T.copy()), parts.common)
    last, knots, origin = len(parts.common) - 1, parts.family.knots, parts.family.origin
    offset = graph.add("Gather", sums, np.int64(last), axis=1)
    slopes = graph.add("Exp", graph.add("Gather", sums, np.arange(last), axis=1))
    one = graph.table(np.float64(1.0))
    inside = _clipped(graph, score)
    x = graph.add("Log", graph.add("Div", inside, graph.add("Sub", one, inside)))
    column = graph.add("Unsqueeze", x, np.array([1]))
    high, low = np.append(knots, _BEYOND_LOGITS), np.append(-_BEYOND_LOGITS, knots)
    way = graph.add("Max", graph.add("Min", column, high), low)
    way = graph.add("Sub", way, np.clip(knots[origin], low, high))
    climbed = graph.add("ReduceSum", graph.add("Mul", slopes, way), np.array([1]), keepdims=0)
    total = graph.add("Add", offset, climbed)
    limits = [graph.table(np.float64(sign * parts.limit)) for sign in (-1.0, 1.0)]
    total = graph.add("Max", total, graph.add("Min", x, limits[0]))
    total = graph.add("Min", total, graph.add("Max", x, limits[1]))
    return graph.add("Div", one, graph.add("Add", one, graph.add("Exp", graph.add("Neg", total))))


TARGET = Target("onnx", (".onnx",), export_onnx)
