"""Experts: the curves that a tracker's memories were last fitted to, evaluated in logits."""

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from mcnet._shared.math import logit, sigmoid
from mcnet._shared.typing import FloatArray, IndexArray, IntArray
from mcnet.bayes.fit_sketch import belief_limit, family_of, fit_bayes_sketch
from mcnet.bayes.posterior_model import BayesFit
from mcnet.bayes.uncertainty import uncertainty_of
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.registry import calibrator, calibrator_class
from mcnet.curves.evaluate import Evaluator
from mcnet.curves.family import CurveFamily
from mcnet.curves.uncertainty import CurveUncertainty
from mcnet.data.contexts import ANY, Contexts
from mcnet.errors import InputError
from mcnet.model.file import model_document, model_of
from mcnet.model.model import CalibrationModel
from mcnet.sketch.field_views import value_order_of
from mcnet.sketch.sketch import Sketch

__all__ = ["BAYES", "Expert", "FamilyExpert", "ModelExpert", "check_method", "expert_from_state", "fit_expert"]

BAYES = "mcnet-bayes"


class Expert(Protocol):
    """Curves of all contexts, in logits."""

    def logits(self, contexts: Contexts, which: IndexArray, raw: FloatArray) -> FloatArray:
        """Return the calibrated logit of each row: its context a place in `contexts`, its score a raw logit."""

    def state(self) -> dict[str, Any]:
        """Return the expert as JSON-able values, exact to the bit."""


@dataclass(frozen=True, eq=False)
class FamilyExpert:
    """A fit of BayesMCNet that is evaluated as it is, without compiled curves.

    `contexts` tells the order of the field values in the fit; its table does not matter.
    """

    contexts: Contexts
    fit: BayesFit
    limit: float

    @cached_property
    def family(self) -> CurveFamily:
        """The curves."""
        return family_of(self.fit, self.limit)

    def codes(self, contexts: Contexts) -> IntArray:
        """Return the fit's own codes of contexts `[contexts, fields]`, -1 for a value that the fit has not seen."""
        columns = []
        for field, (own, values) in enumerate(zip(self.contexts.values, contexts.values, strict=True)):
            place = {value: code for code, value in enumerate(own)}
            # The last entry answers for ANY, which is -1.
            codes = np.array([*(place.get(value, ANY) for value in values), ANY], dtype=np.int64)
            columns.append(codes[contexts.table[:, field]])
        return np.column_stack(columns) if columns else np.zeros((len(contexts), 0), dtype=np.int64)

    def logits(self, contexts: Contexts, which: IndexArray, raw: FloatArray) -> FloatArray:
        """Return the calibrated logit of each row."""
        return self.family.lines(self.codes(contexts)).each(which, raw)

    def uncertainty(self, sketch: Sketch) -> CurveUncertainty:
        """Return the posterior variances of the curves, given the rows that they were fitted on."""
        sketch = value_order_of(self.contexts, sketch)
        fit = _fit(sketch, start=self.fit, covariance=True)
        return uncertainty_of(fit, family_of(fit, self.limit))

    def state(self) -> dict[str, Any]:
        """Return the expert as JSON-able values."""
        arrays = {
            name: {"type": str(array.dtype), "shape": list(array.shape), "numbers": array.ravel().tolist()}
            for name, array in self.fit.arrays().items()
        }
        fields = {"names": list(self.contexts.names), "values": [list(values) for values in self.contexts.values]}
        return {"kind": "family", **fields, "limit": self.limit, "arrays": arrays}


@dataclass(frozen=True, eq=False)
class ModelExpert:
    """The curves of any other calibrator."""

    model: CalibrationModel

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.model.curves)

    def logits(self, contexts: Contexts, which: IndexArray, raw: FloatArray) -> FloatArray:
        """Return the calibrated logit of each row."""
        places = None
        if self.model.fields:
            places = self.model.contexts.places_of(contexts)
            places = np.where((contexts.table == ANY).any(axis=1), np.int32(-1), places)[which]
        return logit(self._evaluator(sigmoid(raw), places, 1))

    def state(self) -> dict[str, Any]:
        """Return the expert as JSON-able values."""
        return {"kind": "model", "model": model_document(self.model)}


def expert_from_state(state: dict[str, Any]) -> Expert:
    """Return the expert that `state()` described."""
    if state["kind"] == "model":
        return ModelExpert(model_of(state["model"]))
    arrays = {
        name: np.array(array["numbers"], dtype=array["type"]).reshape(array["shape"])
        for name, array in state["arrays"].items()
    }
    names = tuple(state["names"])
    contexts = Contexts(names, tuple(map(tuple, state["values"])), np.zeros((0, len(names)), dtype=np.int32))
    return FamilyExpert(contexts, BayesFit.from_arrays(arrays), float(state["limit"]))


def check_method(method: str) -> None:
    """Refuse a method whose curves cannot be mixed to rising ones."""
    kind: type[Calibrator] = calibrator_class(method)
    if kind.needs_features or not kind.monotone:
        why = "needs the features of rows" if kind.needs_features else "does not keep the order of scores"
        raise InputError(f"the tracker cannot use {method}, which {why}; leave method out, or name another")


def fit_expert(method: str, sketch: Sketch, earlier: Expert | None) -> Expert | None:
    """Fit a method to a sketch; None where the rows have nothing to tell about a curve.

    Parameters
    ----------
    method : its name in the registry.
    sketch : the rows.
    earlier : the last fit of the same memory, to start from with the strengths of its priors; None to start afresh and
        learn these.
    """
    least = 1e-6 * min(sketch.total_weight, 1.0)
    if not least < sketch.total_positives < sketch.total_weight - least:
        return None  # rows of one class
    if not sketch.contexts.names and sketch.cells.key.min() == sketch.cells.key.max():
        return None  # one score
    if method != BAYES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ModelExpert(calibrator(method).fit_sketch(sketch).model_)
    start = None
    if isinstance(earlier, FamilyExpert):
        sketch, start = value_order_of(earlier.contexts, sketch), earlier.fit
    return FamilyExpert(sketch.contexts, _fit(sketch, start, covariance=False), belief_limit(sketch.total_weight))


def _fit(sketch: Sketch, start: BayesFit | None, *, covariance: bool) -> BayesFit:
    return fit_bayes_sketch(
        sketch,
        panels=None,
        interactions=True,
        alpha_balance=0.0,
        balance="global",
        start=start,
        strengths=None if start is None else start.strengths,
        covariance=covariance,
    )
