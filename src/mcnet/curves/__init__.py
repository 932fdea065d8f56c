"""Fitted functions to monotone curves: compile, guarantee, evaluate, store.

- `curves`: `Curves`, the one representation of every fitted calibrator, and their uncertainty.
- `compile`: functions to curves within an error bound; the projection that keeps the order; where knots lie.
- `evaluate`: scores to probabilities, the hot loop of serving.
- `family`: `CurveFamily`, the curves of every combination of field values.
- `rising_sum`: `RisingSum`, the evaluation of a model of several fields, with the same bits in C.
"""
