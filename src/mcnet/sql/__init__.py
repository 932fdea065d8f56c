"""SQL as each engine writes it.

- `dialects`: types, literals, names, inline tables of each engine; `DIALECTS`, `dialect_named`.
- `quoting`: texts and names as each engine quotes them.
"""
