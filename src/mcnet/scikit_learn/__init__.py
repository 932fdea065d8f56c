"""Calibration inside scikit-learn.

- `classifier`: `CalibratedClassifier`, a binary classifier with calibrated probabilities.
- `feature_columns`: the columns of its X.
"""
