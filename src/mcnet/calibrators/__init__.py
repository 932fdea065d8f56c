"""Sketch to fitted calibrator: the classical methods, one base class, one registry.

- `base`: `Calibrator`, what every method shares. `methods`: the registry, methods by name.
- Methods: `parametric` (identity, Platt, temperature, beta, Gaussian and gamma scaling), `binning` (histogram,
  isotonic, SIR), `per_field` (Platt with shrunken offsets, any method per context). `mcnet.bayes` and `mcnet.networks`
  have the others.
- `parameters`: their checks, and one-class warnings. `period_effects`: rows of one period that are not independent.
  `training_state`: calibrators that keep the function they fitted, and training that continues.
"""
