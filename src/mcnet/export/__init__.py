"""Curves out of Python: ONNX, C, SQL and tables. A new target is one module with a `TARGET`.

- `targets`: `export_model`, the one function for all targets. `pieces`: what every target writes.
- Targets: `onnx`, `c` (its text in `c_source`), `sql` (its field values in `sql_fields`), `table`.
"""

from mcnet.export.targets import export_model, export_options

__all__ = ["export_model", "export_options"]
