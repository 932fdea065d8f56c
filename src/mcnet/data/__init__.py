"""Rows come in: validated columns, fields, contexts, log files, periods.

- `columns`: scores, labels and weights, checked. `fields`: values of any type as codes into canonical texts.
  `arrow_values`: those of Arrow. `distinct_values`, `arrow_strings`: how that is fast. `negative_sampling`: weights of
  a down-sampled log. `index_order`: columns of pandas in another order.
- `contexts`: the combinations of field values that are known. `combinations`: number them, and find them again.
- `files`: paths, globs and folders as one lazy table. `locations`: what a name stands for (a store, a
  lake, standard input). `read_options`: settings that hold while files are opened.
  `log_formats`: each format opened. `partitions`: folders named by values. `csv_files`: types of CSV columns.
  `tables`: recognise tables.
- `periods`: moments cut to hours, days or steps. `automatic_period`: the period found while a log is read.
- `feature_encoding`: features as a network takes them. `row_overlap`: were rows in the training of the base predictor?
"""
