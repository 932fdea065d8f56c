"""Fitted functions to monotone curves: compile, guarantee, evaluate, store.

- `curves`: `Curves`, the one representation of every fitted calibrator.
- `compile`: functions to curves within an error bound; the projection that keeps the order. `knots`: where knots lie.
- `evaluate`: scores to probabilities, the hot loop of serving. `lookup_tables`: where in a curve to start looking.
- `family`: `CurveFamily`, the curves of every combination of field values. `family_check`: that they rise.
  `family_evaluation`: combinations without a compiled curve.
- `uncertainty`: variances of a family, for intervals.
"""
