"""Rows to sketch: a small mergeable table that keeps what every calibrator needs.

- `sketch`: `Sketch`, the table. `cells`: its columns. `grid`: which cell a score falls into.
  `sums`, `field_views`, `folds`, `split`: sketches from sketches. `text`: how one is shown.
- From rows: `scan` (log files and tables), `rows` (columns in memory), `build` (the one loop of both),
  `accumulator` and `accumulate` (the hot loop), `running_contexts`, `column_checks`, `likely_mistakes` (warnings).
- From a database: `connection`, `query` (the SQL: `query_rows`, `query_cells`, `query_grid`), `query_result`,
  `from_table` (its result as a sketch).
- `file`: Parquet with a checksum. `read`: logs or saved sketches. `sources`: rows that are added twice are noticed.
- `equal_mass`: bins of equal weight.
"""
