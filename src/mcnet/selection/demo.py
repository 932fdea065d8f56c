"""A demonstration: every method on a simulated log whose true probabilities are known."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcnet.calibrators.registry import calibrator, methods
from mcnet.datasets.simulator import SimulatedLog, simulate
from mcnet.errors import CalibrationWarning, McnetError
from mcnet.metrics.evaluation import Evaluation, evaluate
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
    """Sketch the calibration rows, fit every method, judge on the test rows; also return what failed, and why."""
    fit_on, judge_on = log.calibration(), log.test()
    (name,) = log.fields
    sketch = Sketch.from_rows(fit_on.score, fit_on.label, field={name: fit_on.text(name)})
    field = judge_on.text(name)
    lines, failed = [], {}
    for method in methods():
        if progress is not None:
            progress(method)
        chosen = calibrator(method).prepare()
        uses_field = chosen.field_use != "none"
        begin = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CalibrationWarning)
                chosen.fit_sketch(sketch if uses_field else sketch.pooled())
        except McnetError as error:
            failed[method] = str(error)
            continue
        seconds = time.perf_counter() - begin
        p = chosen.predict(judge_on.score, {name: field} if uses_field else None)
        found = evaluate(p, judge_on.label, field={name: judge_on.fields[name]}, truth=judge_on.probability)
        lines.append(DemoLine(method, found, seconds))
    return sketch, lines, failed
