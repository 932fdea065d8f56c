"""Compare methods on rows that their fits have not seen, and choose the simplest that is as good as the best."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from mcnet._shared.arrays import FloatArray, ScoreType
from mcnet._shared.messages import UNIT_OF_DIFFERENCES, aligned, amount, counted, narrow, warn
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.methods import VARIANTS, calibrator
from mcnet.calibrators.methods import methods as registered_methods
from mcnet.calibrators.parameters import clone
from mcnet.datasets.simulator import SimulatedLog
from mcnet.errors import CalibrationWarning, InputError, McnetError
from mcnet.metrics.evaluation import Evaluation, evaluate, evaluate_cells
from mcnet.metrics.scores import Difference, log_loss, log_loss_difference
from mcnet.plots.style import card
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.views import held_back_parts

# The methods to compare if none is named: all of them, and the published MCNet also without the field.


def default_candidates(methods: Sequence[str], *, has_fields: bool) -> dict[str, str | Calibrator]:
    """Return the methods that suit the rows, in the order given; the name alone where a library is missing."""
    result: dict[str, str | Calibrator] = {}
    for name in methods:
        try:
            made = calibrator(name)
            if has_fields:
                result |= {other: calibrator(other) for other, (method, _) in VARIANTS.items() if method == name}
        except McnetError:
            result[name] = name  # it is tried again, and then listed as failed
            continue
        if has_fields or made.field_use != "required":
            result[name] = made
    return result


# Warnings of many fits on the same rows: each is shown once, with the number of methods that gave it.


class FitWarnings:
    """Collects the warnings of fits, and shows equal ones once."""

    def __init__(self) -> None:
        """Start without warnings."""
        self._messages: dict[str, list[str]] = {}

    @contextmanager
    def of(self, method: str) -> Iterator[None]:
        """Collect what a fit warns of; other kinds of warnings pass."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CalibrationWarning)
            yield
        for warning in caught:
            if issubclass(warning.category, CalibrationWarning):
                message = str(warning.message)
                self._messages.setdefault(message.removeprefix(f"{method}: "), []).append(message)
            else:
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)

    def show(self) -> None:
        """Show each warning once: as it was if one method gave it, else with the number of methods."""
        for reason, messages in self._messages.items():
            warn(messages[0] if len(messages) == 1 else f"{reason} ({len(messages)} methods)")


# Predictions for rows that a fit has not seen: rows held back in turn, fold by fold, or a test sketch.


@dataclass(frozen=True)
class FittingSketches:
    """Rows to fit on, with their fields and pooled, so that each method takes what it has a use for."""

    sketch: Sketch

    @cached_property
    def pooled(self) -> Sketch:
        """The rows without their fields, pooled once for all methods."""
        return self.sketch.pooled()

    def fit(self, candidate: Calibrator) -> Calibrator:
        """Fit a copy of a calibrator."""
        fitted: Calibrator = clone(candidate)
        return fitted.fit_sketch(self.pooled if candidate.field_use == "none" else self.sketch)


class Folds:
    """The folds of a sketch, split once for all methods."""

    def __init__(self, sketch: Sketch) -> None:
        """Split the sketch into what each fit sees and what is held back from it."""
        self.sketch = sketch
        self._parts = [(FittingSketches(train), held, cells) for train, held, cells in held_back_parts(sketch)]

    def predict(self, candidate: Calibrator) -> FloatArray:
        """Return a prediction for every cell by a fit that did not see its fold."""
        result = np.empty(len(self.sketch.fold))
        with warnings.catch_warnings():
            # What one fold lacks (a value without positives) is not news; the fit on all rows may still warn.
            warnings.simplefilter("ignore", CalibrationWarning)
            for rows, held, cells in self._parts:
                result[cells] = rows.fit(candidate).model_.predict_cells(held)
        return result


# A selection as text: one line per method, narrow enough for any terminal.


def difference_words(*differences: float) -> tuple[str, ...]:
    """Return differences of log-loss in their unit.

    >>> difference_words(0.001445, 0.000053)
    ('144.5', '5.3')
    """
    return tuple(narrow(1e5 * difference, 1) for difference in differences)


def explanation(selection: "Selection") -> str:
    """Return what the lines show."""
    string = f"Judged on {selection.judged_on}; ← is chosen."
    if selection.judged.folds > 1:
        of_fields = "F-RCE and AUC are means of the folds. The floor is the F-RCE of noise alone."
        return f"{string}\n{of_fields if selection.judged.contexts.names else 'AUC is the mean of the folds.'}"
    if selection.judged.contexts.names:
        string += "\nF-RCE includes noise; its floor is what noise alone gives."
    return string


def failure_lines(selection: "Selection") -> list[str]:
    """Return a sentence for each method that failed."""
    return [f"{method} failed: {reason}" for method, reason in selection.failed.items()]


def method_lines(selection: "Selection") -> list[tuple[str, ...]]:
    """Return a line of words for each method, the best first, below a line of headings.

    Without a field there is no error inside one, and no column for it.
    """
    fields = bool(selection.judged.contexts.names)
    errors = ("F-RCE", "floor") if fields else ()
    money = ("over-bid", "under-bid") if selection.judged.value_kind else ()
    lines: list[tuple[str, ...]] = [
        ("method", "log-loss", f"over best {UNIT_OF_DIFFERENCES}", "PCOC", *errors, "AUC", *money, "fit s")
    ]
    for result in selection.results:
        ev, gap = result.evaluation, result.difference
        value, error = difference_words(gap.value, gap.standard_error)
        lines.append(
            (
                f"{result.method} ←" if result.method == selection.chosen.method else result.method,
                f"{result.log_loss:.5f}",
                f"{value} ± {error}" if gap.value else "best",
                narrow(ev.pcoc, 3),
                *((f"{ev.f_rce:.4f}", f"{ev.floor('f_rce'):.4f}") if fields else ()),
                f"{ev.auc:.4f}",
                *((amount(ev.overbid), amount(ev.underbid)) if money else ()),
                narrow(result.fit_seconds, 2),
            )
        )
    return lines


# The result of a selection: every method with what it was judged by, and the one chosen.


@dataclass(frozen=True)
class MethodResult:
    """One method of a selection: fitted on all rows, judged on rows it had not seen."""

    method: str
    calibrator: Calibrator
    log_loss: float
    """The log-loss on the rows it was judged on."""
    difference: Difference
    """The log-loss minus that of the best method, on the same rows, with its standard error."""
    fit_seconds: float
    probabilities: FloatArray = field(repr=False)
    """What it predicted for the cells of the rows it was judged on, none of which it had seen."""
    judged: Sketch = field(repr=False)
    """The rows it was judged on."""

    def __repr__(self) -> str:
        return f"MethodResult({self.method}, log-loss {self.log_loss:.5f})"

    @cached_property
    def evaluation(self) -> Evaluation:
        """Return all metrics on the rows it was judged on, each computed when first asked for."""
        return evaluate_cells(self.probabilities, self.judged, within_folds=self.judged.folds > 1)


@dataclass(frozen=True)
class Selection:
    """Methods from the lowest held-back log-loss up, and the one chosen.

    Attributes
    ----------
    results : what each method reached.
    chosen : the one that `select` recommends.
    judged_on : on which rows they were judged, in words.
    """

    results: tuple[MethodResult, ...]
    chosen: MethodResult
    judged_on: str
    failed: dict[str, str]
    """The methods that could not be fitted or judged, each with the reason."""
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
        if method in self.failed:
            raise InputError(f"{method} failed: {self.failed[method]}")
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
        head, *lines = method_lines(self)
        return card("Selection", head, lines, " ".join([explanation(self), *failure_lines(self)]))

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"Selection({self.chosen.method} of {counted(len(self.results), 'method')}{failed}, {self.judged_on})"

    def __str__(self) -> str:
        return "\n".join([explanation(self), "", aligned(method_lines(self)), *failure_lines(self)])


# Compare methods by held-back log-loss, and choose the simplest that is as good as the best.

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
    tested = None if test is None else _test_rows(test, how, sketch)
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
            held_back = None if folds is None else folds.predict(made)
            made.prepare()
            begin = time.perf_counter()
            with heard.of(made.method):
                fitted = rows.fit(made)
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


def _test_rows(test: Any, how: dict[str, Any], fitted: Sketch) -> Sketch:
    if isinstance(test, Sketch):
        return test.unfolded()
    if not isinstance(test, tuple) or len(test) not in (2, 3):
        raise InputError("test is a sketch, or a tuple (scores, labels) or (scores, labels, field)")
    scores, labels, *field = test
    given = fitted.contexts.given(field[0]) if field and fitted.contexts.derived else field[0] if field else None
    return Sketch.from_rows(scores, labels, field=given, **how)


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


# A demonstration: every method on a simulated log whose true probabilities are known.


def demonstrate(
    log: SimulatedLog, *, progress: Callable[[str], Any] | None = None
) -> tuple[Sketch, Selection, dict[str, Evaluation]]:
    """Compare every method on a log; return the sketch of its calibration rows, the methods, and how good each is."""
    (name,) = log.fields
    judged = log.test()
    sketch, test = (
        Sketch.from_rows(rows.score, rows.label, field={name: rows.text(name)}) for rows in (log.calibration(), judged)
    )
    selection = select(sketch, test=test, progress=progress)
    evaluations = {}
    for result in selection.results:
        field = {name: judged.text(name)} if result.calibrator.model_.fields else None
        p = result.calibrator.predict(judged.score, field)
        evaluations[result.method] = evaluate(
            p, judged.label, field={name: judged.fields[name]}, truth=judged.probability
        )
    return sketch, selection, evaluations
