"""Curves out of Python: ONNX, C, SQL and tables. A new target is one module with a `TARGET`.

- `export`: `export_model`, the one function for all targets. `targets`: finds them. `options`: checks their options.
- Targets: `onnx` (`onnx_graph` collects its nodes), `c` (with `c_source`), `sql` (with `sql_case`, `sql_tables`),
  `table`.
- Shared by targets: `contents` (which curves), `pieces` (curves as straight pieces), `context_map` (field values to
  curves), `guide_table` (score to piece), `stamp` (the origin of an export).
"""

from mcnet.export.export import export_model, export_options

__all__ = ["export_model", "export_options"]
