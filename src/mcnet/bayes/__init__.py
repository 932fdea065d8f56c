"""BayesMCNet: `f1(t, c) = exp(φ₀(t) + b_c + u_c·φ(t))`, fitted by empirical Bayes."""
