"""BayesMCNet: `f1(t, c) = exp(φ₀(t) + b_c + u_c·φ(t))`, fitted by empirical Bayes.

- `estimator`: the class. `fit_sketch`: from a sketch to a fit, and from a fit to a family of curves.
  `fit`: maximise the posterior and learn the strengths of the priors. `prior`: the priors; put your own beside them.
- The model: `panels` (the partition of logits), `structure` (functions of the score, all parameters),
  `likelihood` (its curvature along `directions`) and, for very many contexts, `sparse_table`; `incidence` (which
  contexts have which values), `balance`.
- The solver: `newton` (log-posterior and damped Newton steps), `block_solver`, `small_blocks` and, for
  several fields, `newton_system` (its linear system).
- Which values and pairs get parameters: `rare_values`, `field_pairs`, `shape_resolution`.
- After the fit: `posterior_model`, `uncertainty` (variances for intervals), `isotonic_mixture` (steps where they help).
- `period_tempering`: how much rows that come in periods are worth.
"""
