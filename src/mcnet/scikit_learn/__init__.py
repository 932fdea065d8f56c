"""Calibration inside scikit-learn.

- `classifier`: `CalibratedClassifier`, a binary classifier with calibrated probabilities.
- `columns`: the columns of its X.
"""
