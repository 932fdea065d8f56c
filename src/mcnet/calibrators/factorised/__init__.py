"""The factorised monotone model: `f1(t, c) = exp(φ₀(t) + b_c + u_c·φ(t))`, fitted by empirical Bayes."""

from mcnet.calibrators.factorised.fit import fit_factorised
from mcnet.calibrators.factorised.model import FactorisedModel
from mcnet.calibrators.factorised.prior import Strengths

__all__ = ["FactorisedModel", "Strengths", "fit_factorised"]
