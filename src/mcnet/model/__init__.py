"""The served model: curves with their contexts, its file, and applying it to rows and log files.

- `model`: `CalibrationModel`: predict, interval, codes. `small_batches`: a few rows without arrays.
- `bands`: credible intervals, also of curves that are no family.
- `model_file`: save and load with a checksum and a schema; the model of a calibrator or of a path.
- `apply`: calibrate log files of any size; count rows whose field values are unknown.
- `drawing`: lines for plots.
"""
