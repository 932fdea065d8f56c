"""The result of a selection: every method with what it was judged by, and the one chosen."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mcnet._shared.terminal_text import aligned
from mcnet._shared.typing import FloatArray
from mcnet.calibrators.base import Calibrator
from mcnet.errors import InputError
from mcnet.metrics.evaluate_sketch import evaluate_cells
from mcnet.metrics.evaluation import Evaluation
from mcnet.metrics.scoring import Difference
from mcnet.selection.text import explanation, failure_lines, method_lines
from mcnet.sketch.sketch import Sketch

__all__ = ["MethodResult", "Selection"]


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
        from mcnet.plots.html import card

        head, *lines = method_lines(self)
        return card("Selection", head, lines, " ".join([explanation(self), *failure_lines(self)]))

    def __str__(self) -> str:
        return "\n".join([explanation(self), "", aligned(method_lines(self)), *failure_lines(self)])
