"""Curves out of Python: ONNX, C, SQL and tables. A new target is one module with a `TARGET`.

- `targets`: `export_model`, the one function for all targets. `pieces`: what every target writes.
- Targets: `onnx`, `c`, `sql`, `table`.
"""

from mcnet.export.targets import export_model, export_options

__all__ = ["export_model", "export_options"]
