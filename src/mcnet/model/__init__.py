"""The served model: curves with their contexts, its file, and applying it to rows and log files.

- `model`: `CalibrationModel`: predict, interval, codes. `small_batches`: a few rows without arrays.
  `score_types`: probabilities or logits. `intervals`: credible intervals.
  `curve_deviations`: the uncertainty of curves that are no family.
- `file`: save and load with a checksum. `as_model`: the model of a calibrator or of a path.
  `schema`: what a file may contain. `version_1`: files of the old schema.
- `apply_files`: calibrate log files of any size. `unseen`: count the rows whose field values are unknown.
- `arrow_batches`: a packed model on batches of Arrow columns, for the executors of Spark.
- `drawing`: lines for plots.
"""
