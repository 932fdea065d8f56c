"""Rows come in: validated columns, fields, contexts, log files, periods, SQL dialects.

- `spec`: `RowSpec`, how rows are read. `columns`: scores, labels and weights, checked. `fields`: values of any type as
  codes into canonical strings. `contexts`: the known combinations of field values.
- `derived`: numbers in bins, hours and weekdays of timestamps, as fields.
- `logs`: paths, globs and folders as one lazy table. `locations`: what a name stands for (a store, a lake, standard
  input, a folder of partitions), and settings that hold while files are opened. `formats`: each format opened.
  `csv_files`: what a format without types needs.
- `candidates`: which columns of a log may be fields, and how each is cut.
- `periods`: timestamps cut to hours, days or steps, and the names of periods.
- `sql_dialects`: what SQL engines write differently. `column_types`: how a query tells the type of a column.
"""
