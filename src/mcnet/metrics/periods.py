"""Evaluation over time: a few metrics per period, with intervals, as a tidy table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnet._shared.terminal_text import aligned, count, figure
from mcnet.data.periods import shown_periods
from mcnet.metrics.estimate import Estimate
from mcnet.metrics.evaluate_sketch import Predictor, evaluate_cells, predict_cells
from mcnet.metrics.fields import FieldTable
from mcnet.metrics.settings import MetricSettings
from mcnet.sketch.sketch import Sketch

if TYPE_CHECKING:
    import polars as pl

__all__ = ["PERIOD_METRICS", "PeriodEvaluations", "evaluate_periods"]

PERIOD_METRICS = ("pcoc", "f_rce", "auc", "log_loss")
"""The metrics that each period has; F-RCE only where there is a field."""


@dataclass(frozen=True)
class PeriodEvaluations:
    """Some metrics of each period, in order."""

    periods: tuple[str, ...]
    rows: tuple[int, ...]
    weight: tuple[float, ...]
    positives: tuple[float, ...]
    estimates: tuple[dict[str, Estimate], ...]

    def __len__(self) -> int:
        return len(self.periods)

    def table(self) -> "pl.DataFrame":
        """Return a tidy table: one line per period and metric, with value, interval and noise floor."""
        import polars as pl

        return pl.DataFrame(self.to_dicts(), infer_schema_length=None)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the lines of the tidy table, None for what is not defined."""
        lines = []
        for place, period in enumerate(self.periods):
            sums = {"rows": self.rows[place], "weight": self.weight[place], "positives": self.positives[place]}
            for metric, found in self.estimates[place].items():
                figures = {name: getattr(found, name) for name in ("value", "low", "high", "floor")}
                defined = {name: float(x) if np.isfinite(x) else None for name, x in figures.items()}
                lines.append({"period": period, **sums, "metric": metric, **defined})
        return lines

    def pcoc_table(self) -> FieldTable:
        """Return the PCOC of each period, as the values of a field have it."""
        pcoc = [found["pcoc"] for found in self.estimates]
        weight, positives = np.array(self.weight), np.array(self.positives)
        columns = (np.array([getattr(one, name) for one in pcoc]) for name in ("value", "low", "high"))
        return FieldTable(self.periods, weight, positives, np.full(len(self), np.nan), *columns)

    def text(self, most: int = 60) -> str:
        """Return one aligned line per period, the last `most` of them."""
        has_fields = any("f_rce" in found for found in self.estimates)
        head = [
            "period",
            "rows",
            "positives",
            "PCOC",
            "interval",
            *(["F-RCE"] if has_fields else []),
            "AUC",
            "log-loss",
        ]
        lines, names = [head], shown_periods(self.periods)
        for place in range(max(0, len(self) - most), len(self)):
            found = self.estimates[place]
            pcoc = found["pcoc"]
            line = [names[place], f"{self.rows[place]:,}", count(self.positives[place]), figure(pcoc.value)]
            line.append(f"{figure(pcoc.low)} … {figure(pcoc.high)}")
            line += [figure(found[name].value) for name in PERIOD_METRICS[1:] if name in found]
            lines.append(line)
        left_out = len(self) - most
        note = f"\n{left_out:,} earlier periods are not shown; --json and --table have them" if left_out > 0 else ""
        return aligned(lines) + note


def evaluate_periods(
    model: Predictor | None,
    periods: Iterable[tuple[str, Sketch]],
    settings: MetricSettings | None = None,
    *,
    by: Sequence[str] | None = None,
) -> PeriodEvaluations:
    """Evaluate a model on each period, one in memory at a time.

    Parameters
    ----------
    model : what turns scores into probabilities; None to judge the scores.
    periods : (period, sketch) in order.
    settings : those of an evaluation.
    by : the fields to judge inside of; all fields of the sketches if not given.
    """
    lines: list[tuple[str, int, float, float, dict[str, Estimate]]] = []
    for period, sketch in periods:
        probability = sketch.score if model is None else predict_cells(model, sketch)
        found = evaluate_cells(probability, sketch, settings, by=by)
        names = [name for name in PERIOD_METRICS if name != "f_rce" or found.fields]
        # Plain figures: the rows of a period are released when it is done.
        estimates = {name: replace(found.estimates[name]) for name in names}
        lines.append((period, found.rows, found.weight, found.positives, estimates))
    columns = list(zip(*lines, strict=True)) if lines else [()] * 5
    return PeriodEvaluations(*columns)
