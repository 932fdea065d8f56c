"""A demonstration: every method on a simulated log whose true probabilities are known."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcnet.calibrators.registry import calibrator, methods
from mcnet.datasets.simulated_log import SimulatedLog
from mcnet.datasets.simulator import simulate
from mcnet.metrics.evaluation import Evaluation, evaluate
from mcnet.selection.candidates import default_candidates
from mcnet.selection.fit_warnings import FitWarnings
from mcnet.selection.held_back import FittingSketches
from mcnet.selection.select import failure_reason
from mcnet.sketch.sketch import Sketch

__all__ = ["DemoLine", "demo_log", "demonstrate"]


@dataclass(frozen=True)
class DemoLine:
    """One method of the demonstration, judged on rows of the same world that it has not seen."""

    method: str
    evaluation: Evaluation
    fit_seconds: float


def demo_log(rows: int, seed: int) -> SimulatedLog:
    """Return an AliExpress-shaped log: four field values of very different size, a CTR of 2 %, a test period."""
    return simulate(rows, test_rows=rows, seed=seed)


def demonstrate(
    log: SimulatedLog, *, progress: Callable[[str], Any] | None = None
) -> tuple[Sketch, list[DemoLine], dict[str, str]]:
    """Sketch the calibration rows, fit every method, judge on the test rows; also return what failed, and why.

    Raises the last error if every method fails.
    """
    fit_on, judge_on = log.calibration(), log.test()
    (name,) = log.fields
    sketch = Sketch.from_rows(fit_on.score, fit_on.label, field={name: fit_on.text(name)})
    field = judge_on.text(name)
    rows, heard = FittingSketches(sketch), FitWarnings()
    lines: list[DemoLine] = []
    failed: dict[str, Exception] = {}
    for method, candidate in default_candidates(methods(), has_fields=True).items():
        if progress is not None:
            progress(method)
        try:
            chosen = (calibrator(candidate) if isinstance(candidate, str) else candidate).prepare()
            begin = time.perf_counter()
            with heard.of(method):
                fitted = rows.fit(chosen, pooled=chosen.field_use == "none")
            seconds = time.perf_counter() - begin
            p = fitted.predict(judge_on.score, {name: field} if fitted.model_.fields else None)
            found = evaluate(p, judge_on.label, field={name: judge_on.fields[name]}, truth=judge_on.probability)
            lines.append(DemoLine(method, found, seconds))
        except Exception as error:
            failed[method] = error
    heard.show()
    if not lines:
        raise next(reversed(failed.values()))
    return sketch, lines, {method: failure_reason(error) for method, error in failed.items()}
