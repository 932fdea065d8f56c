"""SQL as each engine writes it.

- `dialects`: types, literals, names, inline tables of each engine; `DIALECTS`, `dialect_named`.
- `column_types`: how a query tells the type of a column, and writes its values in canonical form; `COLUMN_TYPES`.
- `quoting`: texts and names as each engine quotes them.
"""
