"""Curves out of Python: ONNX, C, SQL and tables."""

from mcnet.export.export import TARGETS, export_model, export_options

__all__ = ["TARGETS", "export_model", "export_options"]
