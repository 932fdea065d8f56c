"""BayesMCNet: `f1(t, c) = exp(φ₀(t) + b_c + u_c·φ(t))`, fitted by empirical Bayes.

- `estimator`: the class. `fit`: from a sketch to the maximum of the posterior, and to a family of curves.
- The model: `model` (functions of the score, all parameters, contexts and values), `likelihood`, `prior` (put your own
  beside it).
- The solver: `newton` (log-posterior, Newton steps and their linear system, field balance).
- `fields`: which values share the common curve, which fields and pairs of fields tell something, and what each field
  contributes. `tempering`: how much rows that come in periods are worth.
- After the fit: `posterior` (covariance, variances for intervals), `misfit` (where the smooth curve misses: wider
  intervals), `isotonic` (isotonic steps mixed in).
"""
