"""Rows to sketch: a small mergeable table that keeps what every calibrator needs.

- `sketch`: `Sketch`, the table. `grid`: its cells, and which one a score falls into.
  `views`, `folds`: sums, orders, parts and folds of sketches.
- From rows: `scan` (log files and tables), `build` (the one loop for all rows), `accumulate` (the hot loop).
- From a database: `connection`, and `query` (the SQL, and its result as a sketch), of the columns of
  `query_rows`.
- `sketch_file`: Parquet with a checksum.
"""
