"""Evaluate probabilities in a Spark table, from a sketch of them."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from mcnet.metrics.evaluate_sketch import evaluate_cells
from mcnet.metrics.evaluation import Evaluation
from mcnet.metrics.settings import MetricSettings
from mcnet.spark.sketching import sketch

__all__ = ["evaluate"]


def evaluate(
    df: DataFrame,
    *,
    probability: str = "calibrated",
    label: str = "label",
    field: str | Sequence[str] | None = None,
    weight: str | None = None,
    negatives_kept: float = 1.0,
    **settings: Any,
) -> Evaluation:
    """Measure how well the probabilities in a Spark table agree with its labels, overall and inside every field.

    Spark makes a sketch of the probabilities, and the metrics are computed from it. Rows whose probabilities are closer
    than 1/512 in logit share a cell: they count as ties in AUC, and count with their mean probability.

    Parameters
    ----------
    df : the rows.
    probability, label, weight : names of columns.
    field : the name of a field column, or a list of names.
    negatives_kept : the fraction of negatives that survived down-sampling; they are weighted back.
    settings : those of `mcnet.evaluate`: epsilon, level, bins …

    Returns
    -------
    Evaluation
        As `mcnet.evaluate` gives for rows in memory.
    """
    chosen = MetricSettings(**settings)  # refused before Spark works
    rows = sketch(df, score=probability, label=label, field=field, weight=weight, negatives_kept=negatives_kept)
    return evaluate_cells(rows.score, rows, chosen).compute_all()
