"""Compare methods by held-back log-loss, and choose the simplest that is as good as the best."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone

from mcnet._shared.typing import FloatArray
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.registry import calibrator, methods
from mcnet.errors import CalibrationWarning, InputError, McnetError
from mcnet.metrics.evaluate_sketch import evaluate_cells, predict_cells
from mcnet.metrics.evaluation import Evaluation
from mcnet.metrics.scoring import Difference, log_loss_difference
from mcnet.metrics.text import aligned
from mcnet.selection.text import explanation, method_lines
from mcnet.sketch.sketch import Sketch

__all__ = ["MethodResult", "Selection", "select"]

_FOLDS = 5


@dataclass(frozen=True)
class MethodResult:
    """One method of a selection: fitted on all rows, judged on rows it had not seen."""

    method: str
    calibrator: Calibrator
    evaluation: Evaluation
    difference: Difference
    """The log-loss minus that of the best method, on the same rows, with its standard error."""
    fit_seconds: float
    probabilities: FloatArray = field(repr=False)
    """What it predicted for the cells of the rows it was judged on, none of which it had seen."""

    @property
    def log_loss(self) -> float:
        """Return the held-back log-loss."""
        return self.evaluation.log_loss


@dataclass(frozen=True)
class Selection:
    """Methods from the lowest held-back log-loss up, and the one chosen."""

    results: tuple[MethodResult, ...]
    chosen: MethodResult
    judged_on: str
    failed: dict[str, str]
    """What could not be fitted, and why."""
    judged: Sketch = field(repr=False)
    """The rows that the methods were judged on."""

    @property
    def calibrator(self) -> Calibrator:
        """Return the chosen calibrator, fitted on all rows."""
        return self.chosen.calibrator

    def __getitem__(self, method: str) -> MethodResult:
        for result in self.results:
            if result.method == method:
                return result
        raise InputError(f"{method!r} was not compared; compared were {', '.join(r.method for r in self.results)}")

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain lists, numbers and text."""
        return {
            "chosen": self.chosen.method,
            "judged_on": self.judged_on,
            "failed": self.failed,
            "methods": [
                {
                    "method": result.method,
                    "fit_seconds": result.fit_seconds,
                    "log_loss_difference": result.difference.value,
                    "log_loss_difference_error": result.difference.standard_error,
                    **result.evaluation.to_dict(),
                }
                for result in self.results
            ],
        }

    def _repr_html_(self) -> str:
        from mcnet.plots.html import card

        head, *lines = method_lines(self)
        return card("Selection", head, lines, explanation(self))

    def __str__(self) -> str:
        return f"{explanation(self)}\n\n{aligned(method_lines(self))}"


def select(
    sketch: Sketch,
    methods: str | Calibrator | Sequence[str | Calibrator] | None = None,
    *,
    test: Sketch | None = None,
    progress: Callable[[str], Any] | None = None,
) -> Selection:
    """Compare methods by held-back log-loss and choose the simplest within one standard error of the best.

    Parameters
    ----------
    sketch : the rows to fit on. Its folds serve the cross-validation; without folds its rows are dealt into five.
    methods : a name or a calibrator, or several; all registered methods that suit the sketch if not given. Which is
        simpler is stated by each class (`simplicity`), not by the order given here; among calibrators of one method
        the first is taken for the simplest.
    test : judge on this sketch instead of cross-validating.
    progress : is called with the name of each method before it is fitted.

    >>> rng = np.random.default_rng(0)
    >>> scores = rng.uniform(0.01, 0.2, 20_000)
    >>> found = select(Sketch.from_rows(scores, rng.random(20_000) < scores / 2), ["base", "platt", "isotonic"])
    >>> found.chosen.method
    'platt'
    """
    named = _candidates(sketch, methods)
    dealt = sketch if sketch.folds > 1 or test is not None else sketch.dealt(_FOLDS)
    judged = dealt if test is None else test
    predictions: dict[str, FloatArray] = {}
    fitted: dict[str, tuple[Calibrator, float]] = {}
    failed: dict[str, str] = {}
    for name, candidate in named.items():
        if progress is not None:
            progress(name)
        try:
            with warnings.catch_warnings():
                # What one fold lacks (a value without positives) is not news; the fit on all rows may still warn.
                warnings.simplefilter("ignore", CalibrationWarning)
                held_back = _out_of_fold(candidate, dealt) if test is None else None
            candidate.prepare()
            begin = time.perf_counter()
            final = _fit(candidate, sketch)
            seconds = time.perf_counter() - begin
            predictions[name] = held_back if held_back is not None else predict_cells(final, judged)
            fitted[name] = (final, seconds)
        except McnetError as error:
            failed[name] = str(error)
    if not fitted:
        raise InputError("no method could be fitted: " + "; ".join(f"{name}: {why}" for name, why in failed.items()))
    return _chosen(judged, predictions, fitted, failed, "the test rows" if test is not None else _cross(dealt))


def _cross(sketch: Sketch) -> str:
    return f"rows held back in turn, {sketch.folds} folds"


def _candidates(sketch: Sketch, chosen: str | Calibrator | Sequence[str | Calibrator] | None) -> dict[str, Calibrator]:
    """Return the methods to compare by their names, the simplest first."""
    has_fields = bool(sketch.contexts.names)
    if chosen is None:
        every = [calibrator(name) for name in methods()]
        suitable = [c for c in every if has_fields or c.field_use != "required"]
        return {c.method: c for c in suitable}
    listed = [chosen] if isinstance(chosen, str | Calibrator) else chosen
    named: dict[str, Calibrator] = {}
    for candidate in sorted(map(_candidate, listed), key=lambda candidate: candidate.simplicity):
        name = candidate.method if candidate.method not in named else f"{candidate.method} ({len(named)})"
        named[name] = candidate
    if not named:
        raise InputError("methods is empty; name at least one, or leave it out for all")
    return named


def _candidate(item: str | Calibrator) -> Calibrator:
    if isinstance(item, Calibrator):
        return item
    if not isinstance(item, str):
        raise InputError(f"methods has {item!r} in it; a method is a name or a calibrator")
    return calibrator(item)


def _fit(candidate: Calibrator, sketch: Sketch) -> Calibrator:
    pooled = sketch if candidate.field_use != "none" else sketch.pooled()
    fitted: Calibrator = clone(candidate)
    return fitted.fit_sketch(pooled)


def _out_of_fold(candidate: Calibrator, sketch: Sketch) -> FloatArray:
    """Return a prediction of every cell by a fit that did not see its fold."""
    result = np.empty(len(sketch))
    for fold in range(sketch.folds):
        train, held = sketch.fold_parts(fold)
        if len(held):
            result[sketch.fold == fold] = predict_cells(_fit(candidate, train.unfolded()), held)
    return result


def _chosen(
    judged: Sketch,
    predictions: dict[str, FloatArray],
    fitted: dict[str, tuple[Calibrator, float]],
    failed: dict[str, str],
    judged_on: str,
) -> Selection:
    evaluations = {name: evaluate_cells(p, judged) for name, p in predictions.items()}
    best = min(evaluations, key=lambda name: evaluations[name].log_loss)
    results = {}
    for name, (final, seconds) in fitted.items():
        gap = log_loss_difference(predictions[name], predictions[best], judged.rate, judged.weight)
        results[name] = MethodResult(name, final, evaluations[name], gap, seconds, predictions[name])
    # Methods come simplest first: the first one that cannot be told from the best is chosen.
    chosen = next(r for r in results.values() if r.difference.value <= r.difference.standard_error)
    ordered = tuple(sorted(results.values(), key=lambda result: result.log_loss))
    return Selection(ordered, chosen, judged_on, failed, judged)
