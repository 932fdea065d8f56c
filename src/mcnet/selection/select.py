"""Compare methods by held-back log-loss, and choose the simplest that is as good as the best."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mcnet._shared.typing import FloatArray, ScoreType
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.registry import calibrator
from mcnet.calibrators.registry import methods as registered_methods
from mcnet.errors import InputError, McnetError
from mcnet.metrics.scoring import log_loss, log_loss_difference
from mcnet.selection.candidates import default_candidates
from mcnet.selection.fit_warnings import FitWarnings
from mcnet.selection.held_back import FittingSketches, Folds
from mcnet.selection.selection import MethodResult, Selection
from mcnet.sketch.sketch import Sketch

__all__ = ["failure_reason", "select"]

_FOLDS = 5


def select(
    data: Any,
    labels: Any = None,
    *misplaced: Any,
    methods: str | Calibrator | Sequence[str | Calibrator] | None = None,
    field: Any = None,
    weight: Any = None,
    score_type: ScoreType = "probability",
    negatives_kept: float = 1.0,
    test: Any = None,
    progress: Callable[[str], Any] | None = None,
) -> Selection:
    """Compare methods by held-back log-loss and choose the simplest within one standard error of the best.

    A method that fails is listed with its reason (`failed`), and the others are compared; if all fail, the error has
    every reason.

    Parameters
    ----------
    data : the rows to fit on: a sketch, or the column of scores. The folds of a sketch serve the cross-validation;
        rows without folds are split into five.
    labels, field, weight, score_type, negatives_kept : the rest of the rows, if `data` are scores; see
        `Sketch.from_rows`.
    methods : a name or a calibrator, or several; all registered methods that suit the rows if not given, the published
        MCNet with and without the field. Which is simpler is stated by each class (`complexity`), not by the order
        given here; among calibrators of one method the first is taken for the simplest.
    test : judge on these rows instead of cross-validating: a sketch, or `(scores, labels)` or
        `(scores, labels, field)`.
    progress : is called with the name of each method before it is fitted.

    Returns
    -------
    Selection
        The methods from the lowest log-loss up, the chosen one, and what failed.

    >>> rng = np.random.default_rng(0)
    >>> scores = rng.uniform(0.01, 0.2, 20_000)
    >>> select(scores, rng.random(20_000) < scores / 2, methods=["base", "platt", "isotonic"]).chosen.method
    'platt'
    """
    if misplaced:
        raise InputError("select takes scores and labels by position; name the rest: field=…, weight=…")
    how = {"score_type": score_type, "negatives_kept": negatives_kept}
    sketch = _rows(data, labels, field, weight, how)
    tested = None if test is None else _test_rows(test, how)
    candidates = _candidates(sketch, methods)
    folds = None if tested is not None else Folds(sketch if sketch.folds > 1 else sketch.with_folds(_FOLDS))
    judged = folds.sketch if folds is not None else tested
    assert judged is not None
    rows, heard = FittingSketches(sketch), FitWarnings()
    results: list[tuple[str, Calibrator, FloatArray, float]] = []
    failed: dict[str, Exception] = {}
    for name, candidate in candidates.items():
        if progress is not None:
            progress(name)
        try:
            made = candidate if isinstance(candidate, Calibrator) else calibrator(candidate)
            pooled = made.field_use == "none"
            held_back = None if folds is None else folds.predict(made, pooled=pooled)
            made.prepare()
            begin = time.perf_counter()
            with heard.of(made.method):
                fitted = rows.fit(made, pooled=pooled)
            seconds = time.perf_counter() - begin
            p = fitted.model_.predict_cells(judged) if held_back is None else held_back
            if not np.isfinite(p).all():
                raise InputError("its probabilities are not all finite")
            results.append((name, fitted, p, seconds))
        except Exception as error:
            failed[name] = error
    heard.show()
    if not results:
        raise _all_failed(failed)
    reasons = {name: failure_reason(error) for name, error in failed.items()}
    judged_on = "the test rows" if folds is None else f"rows held back in turn, {judged.folds} folds"
    return _chosen(judged, results, reasons, judged_on)


def failure_reason(error: Exception) -> str:
    """Return why a method failed: the message of an error of ours, the kind and the message of any other."""
    if isinstance(error, McnetError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _all_failed(failed: dict[str, Exception]) -> Exception:
    """Return the error to raise when no method is left: an unexpected one as it is, else one with every reason."""
    every = "; ".join(f"{name}: {failure_reason(error)}" for name, error in failed.items())
    for error in failed.values():
        if not isinstance(error, McnetError):
            error.add_note(f"no method could be fitted: {every}")
            return error
    return InputError(f"no method could be fitted: {every}")


def _rows(data: Any, labels: Any, field: Any, weight: Any, how: dict[str, Any]) -> Sketch:
    if not isinstance(data, Sketch):
        if labels is None:
            raise InputError("select was given scores without labels; pass select(scores, labels) or a sketch")
        return Sketch.from_rows(data, labels, field=field, weight=weight, **how)
    if labels is not None:
        raise InputError("a sketch has its labels already; name the methods to compare with methods=")
    if field is not None or weight is not None:
        raise InputError("a sketch has its fields and weights already; pass field and weight when it is made")
    return data


def _test_rows(test: Any, how: dict[str, Any]) -> Sketch:
    if isinstance(test, Sketch):
        return test.unfolded()
    if not isinstance(test, tuple) or len(test) not in (2, 3):
        raise InputError("test is a sketch, or a tuple (scores, labels) or (scores, labels, field)")
    scores, labels, *field = test
    return Sketch.from_rows(scores, labels, field=field[0] if field else None, **how)


def _candidates(
    sketch: Sketch, chosen: str | Calibrator | Sequence[str | Calibrator] | None
) -> dict[str, str | Calibrator]:
    """Return the methods to compare by their names, the simplest first; a name where it cannot be loaded."""
    if chosen is None:
        return default_candidates(registered_methods(), has_fields=bool(sketch.contexts.names))
    listed = [chosen] if isinstance(chosen, str | Calibrator) else chosen
    named: dict[str, str | Calibrator] = {}
    for name, made in sorted(map(_candidate, listed), key=lambda candidate: candidate[1].complexity):
        named[name if name not in named else f"{name} ({len(named)})"] = made
    if not named:
        raise InputError("methods is empty; name at least one, or leave it out for all")
    return named


def _candidate(item: str | Calibrator) -> tuple[str, Calibrator]:
    if isinstance(item, Calibrator):
        return item.method, item
    if not isinstance(item, str):
        raise InputError(f"methods has {item!r} in it; a method is a name or a calibrator")
    return item, calibrator(item)


def _chosen(
    judged: Sketch, fits: list[tuple[str, Calibrator, FloatArray, float]], failed: dict[str, str], judged_on: str
) -> Selection:
    """Judge the methods by their log-loss alone; the other metrics are computed when they are asked for."""
    labels, weight = judged.rate, judged.weight
    losses = {name: log_loss(p, labels, weight).value for name, _, p, _ in fits}
    best = next(p for name, _, p, _ in fits if losses[name] == min(losses.values()))
    results = []
    for name, fitted, p, seconds in fits:
        difference = log_loss_difference(p, best, labels, weight)
        results.append(MethodResult(name, fitted, losses[name], difference, seconds, p, judged))
    # Methods come simplest first: the first one that is as good as the best, within a standard error, is chosen.
    chosen = next(result for result in results if result.difference.value <= result.difference.standard_error)
    return Selection(tuple(sorted(results, key=lambda result: result.log_loss)), chosen, judged_on, failed, judged)
