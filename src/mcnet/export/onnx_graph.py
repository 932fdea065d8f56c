"""A small builder of ONNX graphs: nodes, tables and names that never collide."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from mcnet.export.context_map import free_name

__all__ = ["Graph"]


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
        name = self._new(wanted)
        info = helper.make_tensor_value_info(name, element_type, ["rows"])
        info.doc_string = description
        self.inputs.append(info)
        return name

    def table(self, values: NDArray[Any] | np.generic) -> str:
        """Store an array in the graph."""
        name = self._new("table")
        self._tables.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def add(self, operator: str, *inputs: str, domain: str = "", output: str | None = None, **attributes: Any) -> str:
        """Apply an operator."""
        name = output if output is not None else self._new(operator.lower())
        self._nodes.append(helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name

    def finished(self, output: str) -> GraphProto:
        """Return the graph with its one output, a double a row."""
        result = helper.make_tensor_value_info(output, TensorProto.DOUBLE, ["rows"])
        return helper.make_graph(self._nodes, "calibration", self.inputs, [result], self._tables)

    def _new(self, wanted: str) -> str:
        name = free_name(wanted, self._names)
        self._names.add(name)
        return name
