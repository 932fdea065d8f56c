"""Sketch to fitted calibrator: one file per method, one base class, one registry.

- `base`: `Calibrator`, what every method shares. `fitted`: what a fit gives. `registry`: methods by name.
- Methods: `identity`, `histogram`, `isotonic`, `platt` (and temperature), `beta`, `density_scaling` (Gaussian, gamma),
  `sir`, `platt_field`, `per_field` (any of them per context). `mcnet.bayes` and `mcnet.neural` have the others.
- Shared by methods: `smooth` (a curve with few coefficients), `logistic` (bounded logistic regression),
  `exact_prediction`, `parameter_checks`, `one_class_warnings`, `weight_range`, `fit_history`.
- Rows of one period that are not independent: `period_blocks`, `period_effects`.
- Continued training: `warm_start`, `training_state`.
"""
