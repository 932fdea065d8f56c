"""Curves out of Python: ONNX, C, SQL and tables. A new target is one module with a `TARGET` (see targets.py)."""

from mcnet.export.export import export_model, export_options

__all__ = ["export_model", "export_options"]
