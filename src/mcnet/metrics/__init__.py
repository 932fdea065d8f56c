"""How good probabilities are: PCOC, F-RCE, AUC, log-loss, the ECE family, with intervals.

- `metric`: every metric, one entry each; add one here. `evaluation`: all of them at once, from rows or a sketch.
- Metrics: `calibration_error` (of field values, of bins, smooth), `scores` (log-loss, Brier, AUC, GAUC).
- Money: `money` (over-bid and under-bid), `actions` (the field values to act on).
- `slices`: which values of any column are off, by the sums of `slice_sums`.
- What they work on: `judged_rows`, `sums`, `field_values`. How sure they are: `intervals`. Their tables: `text`.
"""

from mcnet.metrics.calibration_error import (
    cal_n,
    f_ece,
    f_rce,
    group_pcoc,
    pcoc,
    pcoc_std,
    prob_ece,
    reliability,
    smooth_ece,
    smooth_ece_at,
)
from mcnet.metrics.evaluation import Evaluation, evaluate, evaluate_columns
from mcnet.metrics.field_values import CodedField, FieldEvaluation, FieldTable
from mcnet.metrics.intervals import Estimate, poisson_bootstrap
from mcnet.metrics.judged_rows import MetricSettings
from mcnet.metrics.metric import METRICS, Metric, add_metric, find_metric
from mcnet.metrics.scores import (
    Difference,
    auc,
    brier,
    excess_log_loss,
    gauc,
    kl_to_truth,
    log_loss,
    log_loss_difference,
)
from mcnet.metrics.sums import GroupSums, group_sums
from mcnet.metrics.text import compare
from mcnet.plots.figures import Reliability

__all__ = [
    "METRICS",
    "CodedField",
    "Difference",
    "Estimate",
    "Evaluation",
    "FieldEvaluation",
    "FieldTable",
    "GroupSums",
    "Metric",
    "MetricSettings",
    "Reliability",
    "add_metric",
    "auc",
    "brier",
    "cal_n",
    "compare",
    "evaluate",
    "evaluate_columns",
    "excess_log_loss",
    "f_ece",
    "f_rce",
    "find_metric",
    "gauc",
    "group_pcoc",
    "group_sums",
    "kl_to_truth",
    "log_loss",
    "log_loss_difference",
    "pcoc",
    "pcoc_std",
    "poisson_bootstrap",
    "prob_ece",
    "reliability",
    "smooth_ece",
    "smooth_ece_at",
]
