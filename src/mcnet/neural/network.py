"""The base class of calibrators that are trained networks: compile, guarantee, exact prediction, training state."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from os import PathLike
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.math import logit, sums_by
from mcnet._shared.typing import FloatArray, ScoreType
from mcnet.calibrators.base import Calibrator, Fitted
from mcnet.calibrators.one_class_warnings import warn_of_gaps
from mcnet.calibrators.training_state import load_state, save_state, state_path
from mcnet.curves.compile import DENSE_PER_LOGIT, Projection, compile_table, dense_scores, project_monotone
from mcnet.curves.curves import Curves
from mcnet.data.columns import check_lengths, scores_column
from mcnet.data.contexts import Contexts
from mcnet.data.fields import field_columns
from mcnet.errors import InputError, NotSupportedError
from mcnet.model.file import read_model
from mcnet.sketch.sketch import Sketch

__all__ = ["EVERY_COMBINATION", "NetworkCalibrator", "NetworkFit", "network_cells", "network_curves"]

EVERY_COMBINATION = 20_000
"""Up to so many combinations of several fields' values each get a curve, seen or not."""

_FINE = 4 * DENSE_PER_LOGIT
_NUDGE = 1e-9


class NetworkFit(Protocol):
    """A trained network, as the networks room returns it."""

    def predict(self, logit: FloatArray, codes: NDArray[Any]) -> FloatArray:
        """Return the probability of each row from its logit and its field codes `[rows, fields]`."""

    def state(self) -> dict[str, Any]:
        """Return every tensor by name."""

    def description(self) -> dict[str, Any]:
        """Return what is needed besides the tensors, ready for JSON."""


def network_cells(sketch: Sketch) -> Any:
    """Return the cells of a sketch as the networks take them."""
    from mcnet.networks.training_points import TrainingCells

    contexts = sketch.contexts
    if not contexts.names:
        return TrainingCells.of(sketch.logit, sketch.weight, sketch.positives)
    sizes = tuple(len(known) for known in contexts.values)
    table = contexts.table.astype(np.int64)
    return TrainingCells.of(sketch.logit, sketch.weight, sketch.positives, sketch.context.astype(np.int64), table, sizes)


def network_curves(
    function: Callable[[FloatArray, NDArray[Any]], FloatArray],
    contexts: Contexts,
    sketch: Sketch,
    *,
    breaks: FloatArray | None,
    jumps: FloatArray | None,
    guarantee: bool,
) -> tuple[Curves, Projection]:
    """Compile a function of (logit, field codes) to the pooled curve and one a context; project what falls.

    At a jump the function is asked a hair to the left of it for the left value, and a hair to the right for the other,
    since the logit of a score may fall short of the edge by a rounding.
    """
    scores = dense_scores(breaks, jumps, per_logit=_FINE)
    logits = logit(scores)
    jump = np.flatnonzero(scores[:-1] == scores[1:])
    logits[jump] -= _NUDGE
    logits[jump + 1] += _NUDGE
    fields = len(contexts.names)
    codes = np.full((1, fields), -1, dtype=np.int64)
    if fields:
        codes = np.concatenate([codes, contexts.table.astype(np.int64)])
    pairs, moved, largest = [], 0, 0.0
    masses = _masses(sketch, contexts, scores) if guarantee else None
    for start in range(0, len(codes), 64):  # in blocks, to bound the memory
        part = codes[start : start + 64]
        values = function(np.tile(logits, len(part)), np.repeat(part, len(logits), axis=0)).reshape(len(part), -1)
        if masses is not None:
            values, projection = project_monotone(values, masses(start, len(part)))
            moved, largest = moved + projection.curves, max(largest, projection.largest)
        pairs += compile_table(scores, values).pairs()
    curves = Curves.of(pairs)
    if masses is None:
        falling = sum(bool((np.diff(values) < 0.0).any()) for _, values in pairs)
        return curves, Projection(falling, curves.largest_drop())
    return curves, Projection(moved, largest)


def _masses(sketch: Sketch, contexts: Contexts, scores: FloatArray) -> Callable[[int, int], FloatArray]:
    """Return how much weight lies at each of the scores, for blocks of curves (the pooled one first)."""
    place = np.minimum(np.searchsorted(scores, sketch.score), len(scores) - 1)
    pooled = sums_by(place, sketch.weight, len(scores))
    which = contexts.lookup(sketch.contexts.columns(sketch.context)) if contexts.names else np.zeros(0, dtype=np.int32)

    def block(start: int, number: int) -> FloatArray:
        mass = np.tile(pooled * 1e-6, (number, 1))
        for row in range(number):
            if start + row == 0:
                mass[row] = pooled
            elif contexts.names:
                own = which == start + row - 1
                mass[row] += sums_by(place[own], sketch.weight[own], len(scores))
        return mass

    return block


class NetworkCalibrator(Calibrator):
    """A calibrator whose function is a trained network; serves its compiled curve, and keeps the network.

    `order_violations_` tells by how much, at most, the order guarantee had to move a probability (with guarantee=False:
    how far a curve falls).
    """

    field_use = "optional"
    network_: Any
    order_violations_: float

    guarantee: bool
    warm_start: bool

    _one_curve: bool = False
    """Whether one curve serves all rows, and a field is for the balance term alone."""
    _restored_by: ClassVar[str]
    """Where the networks room restores this kind of fit: module:function."""

    def _train(self, sketch: Sketch, warm: Any) -> NetworkFit:
        """Return the network trained on the sketch, starting from an earlier one if given."""
        raise NotImplementedError

    def _breaks(self, network: Any) -> tuple[FloatArray | None, FloatArray | None]:
        """Return the scores at which the network's function has kinks, and those at which it jumps."""
        raise NotImplementedError

    def _contexts(self, sketch: Sketch) -> Contexts:
        """Return the contexts that get a curve."""
        return Contexts.none() if self._one_curve else sketch.contexts.completed(EVERY_COMBINATION)

    def _balanced_by(self, sketch: Sketch) -> tuple[str, ...]:
        return sketch.contexts.names if self._one_curve else ()

    @property
    def monotone(self) -> bool:  # type: ignore[override]
        """Whether the curves are guaranteed not to fall."""
        return self.guarantee

    def prepare(self) -> Self:
        """Load the libraries that fitting needs, so that a first fit is not timed with them."""
        import_module("mcnet.networks.training")
        return self

    def fit_sketch(self, sketch: Sketch) -> Self:
        """Fit on a sketch of any number of rows."""
        # Refitting forgets everything but what a warm start goes on from.
        self._earlier = self._remembered() if self.warm_start else None
        return super().fit_sketch(sketch)

    def _remembered(self) -> tuple[Contexts, Any] | None:
        return (self.model_.contexts, self.network_) if hasattr(self, "network_") else None

    def _warm_sketch(self, sketch: Sketch) -> tuple[Sketch, Any]:
        """Return the sketch with its field values in the earlier order, new ones last, and the earlier fit."""
        if self._earlier is None:
            return sketch, None
        contexts, network = self._earlier
        if self._one_curve:
            return sketch, network  # which does not know the fields
        if contexts.names != sketch.contexts.names:
            known, given = ", ".join(contexts.names) or "none", ", ".join(sketch.contexts.names) or "none"
            raise InputError(f"a warm start needs the fields of the earlier fit ({known}); this sketch has {given}")
        return sketch.with_values_like(contexts), network

    def _degenerate(self, sketch: Sketch) -> Fitted | None:
        constant = super()._degenerate(sketch.pooled() if self._one_curve else sketch)
        if constant is not None:
            self.order_violations_ = 0.0
            constant = replace(constant, balanced_by=self._balanced_by(sketch))
        return constant

    def _learns_from_one_score(self, has_fields: bool) -> bool:
        return has_fields or bool(getattr(self, "auxiliary", False))

    def _fit(self, sketch: Sketch) -> Fitted:
        sketch, warm = self._warm_sketch(sketch.unfolded())
        warn_of_gaps(self.method, sketch)
        self.network_ = self._train(sketch, warm)
        contexts = self._contexts(sketch)
        breaks, jumps = self._breaks(self.network_)
        curves, projection = network_curves(
            self.network_.predict, contexts, sketch, breaks=breaks, jumps=jumps, guarantee=self.guarantee
        )
        self.order_violations_ = projection.largest
        return Fitted(curves, contexts, balanced_by=self._balanced_by(sketch))

    def predict(
        self,
        scores: Any,
        field: Any = None,
        *,
        codes: Any = None,
        score_type: ScoreType | None = None,
        exact: bool = False,
    ) -> FloatArray:
        """Return the calibrated probability of each score; `exact` asks the network itself, not its curve."""
        if not exact:
            return super().predict(scores, field, codes=codes, score_type=score_type)
        if codes is not None:
            raise InputError("codes name curves; with exact=True give the field itself")
        score = scores_column(scores, score_type=score_type or self._fitted().score_type)
        return self._exact(logit(score), self._field_codes(field, len(score)))

    def _exact(self, logits: FloatArray, codes: NDArray[Any]) -> FloatArray:
        self._fitted()
        if not hasattr(self, "network_"):
            raise NotSupportedError(
                f"this fit is a constant ({self.constant_because_}): there is no network behind its curve"
            )
        found: FloatArray = self.network_.predict(logits, codes)
        return found

    def _field_codes(self, field: Any, rows: int) -> NDArray[Any]:
        contexts = self._fitted().contexts
        if self.model_.balanced_by:
            field = None  # it weighed in the fit and bends no curve
        if field is None and contexts.names:
            raise InputError(f"this {self.method} model needs the field {', '.join(contexts.names)}; pass field=")
        if field is None:
            return np.zeros((rows, 0), dtype=np.int64)
        if not contexts.names:
            raise NotSupportedError(f"this {self.method} model was fitted without a field; call it without field=")
        codes = contexts.field_codes(field_columns(field)).astype(np.int64)
        check_lengths(score=range(rows), field=codes)
        return codes

    # -- training state -----------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Save the model as JSON and, beside it, the network's weights, from which `resume` goes on."""
        super().save(path)
        if hasattr(self, "network_"):
            arrays, description = self._state()
            more, further = self._further_state()
            about = {"method": self.method, "parameters": self._plain_parameters(), "network": description}
            save_state(path, arrays | more, about | further | {"order_violations": self.order_violations_})
        else:
            # A constant has no state, and one left by an earlier model must not be taken for its own.
            state_path(path).unlink(missing_ok=True)

    @classmethod
    def resume(cls, path: str | PathLike[str]) -> Self:
        """Return the fitted calibrator that `save` wrote; with warm_start it goes on training from there."""
        model = read_model(path)
        if model.method != cls.method:
            raise InputError(f"{path} is a model of {model.method}, not of {cls.method}; resume it with its own class")
        arrays, about = load_state(path)
        restored = cls(**{name: _thawed(value) for name, value in about["parameters"].items()})
        restored.model_ = model
        restored._restore_further(arrays, about)
        restored._restore(arrays, about["network"])
        restored.order_violations_ = about["order_violations"]
        return restored

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays = {name: tensor.numpy() for name, tensor in self.network_.state().items()}
        return arrays, self.network_.description()

    def _further_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return what is to be kept besides the network: arrays, and entries of the description."""
        return {}, {}

    def _restore_further(self, arrays: dict[str, NDArray[Any]], about: dict[str, Any]) -> None:
        """Take out of the arrays what `_further_state` had put beside the network's own."""

    def _restore(self, arrays: dict[str, NDArray[Any]], description: dict[str, Any]) -> None:
        self.network_ = self._restored(arrays, description)

    def _restored(self, arrays: dict[str, NDArray[Any]], description: dict[str, Any]) -> NetworkFit:
        """Return the network that its tensors and its description make."""
        torch = import_module("torch")
        module, function = self._restored_by.split(":")
        tensors = {name: torch.as_tensor(array) for name, array in arrays.items()}
        restored: NetworkFit = getattr(import_module(module), function)(tensors, description)
        return restored


def _thawed(value: Any) -> Any:
    """Return a parameter as it was before it became JSON: lists were tuples."""
    return tuple(value) if isinstance(value, list) else value
