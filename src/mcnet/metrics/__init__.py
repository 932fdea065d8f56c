"""How good probabilities are: PCOC, F-RCE, AUC, log-loss, the ECE family, with intervals.

- `registry`: every metric, one entry each; add one here. `evaluation`: all of them at once.
  `evaluate_sketch`: the same from a sketch. `settings`: the settings of an evaluation. `text`: its tables.
  `periods`: a few metrics per period.
- Metrics: `field_error` (PCOC, F-RCE, F-ECE, MF-RCE), `ranking` (AUC, GAUC), `scoring` (log-loss, Brier, distance to a
  known truth), `binned` (Prob-ECE, Cal-N, reliability), `mvce`, `smooth_error` (smECE).
- What they work on: `probability_columns`, `judged_rows`, `group_sums`, `fold_sums`, `fields`.
- How sure they are: `estimate`, `estimates`, `intervals`, `noise_floor`, `truth_interval`, `bootstrap`.
"""

from mcnet.metrics.binned import Reliability, cal_n, prob_ece, prob_ece_width, reliability
from mcnet.metrics.bootstrap import poisson_bootstrap
from mcnet.metrics.estimate import Estimate
from mcnet.metrics.evaluation import Evaluation, evaluate, evaluate_columns
from mcnet.metrics.field_error import f_ece, f_rce, group_pcoc, mf_rce, pcoc, pcoc_std
from mcnet.metrics.fields import CodedField, FieldEvaluation, FieldTable
from mcnet.metrics.group_sums import GroupSums, group_sums
from mcnet.metrics.mvce import mvce
from mcnet.metrics.ranking import auc, gauc
from mcnet.metrics.registry import METRICS, Metric, add_metric, find_metric
from mcnet.metrics.scoring import (
    Difference,
    brier,
    excess_log_loss,
    kl_to_truth,
    log_loss,
    log_loss_difference,
)
from mcnet.metrics.settings import MetricSettings
from mcnet.metrics.smooth_error import smooth_ece, smooth_ece_at
from mcnet.metrics.text import compare

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
    "mf_rce",
    "mvce",
    "pcoc",
    "pcoc_std",
    "poisson_bootstrap",
    "prob_ece",
    "prob_ece_width",
    "reliability",
    "smooth_ece",
    "smooth_ece_at",
]
