"""The registry of metrics: one entry has everything that tables, JSON and thresholds need."""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from inspect import signature
from math import nan
from typing import Any, Literal

from mcnet.errors import InputError
from mcnet.metrics.calibration_error import cal_n, f_ece, f_rce, mean_smooth_ece, pcoc, pcoc_std
from mcnet.metrics.intervals import Estimate
from mcnet.metrics.judged_rows import JudgedSums, MetricSettings
from mcnet.metrics.scores import brier, excess_log_loss, kl_to_truth, log_loss


@dataclass(frozen=True)
class Metric:
    """One metric: its name in code and JSON, its label in tables, its function and its direction.

    `function` takes the judged rows (`JudgedRows`) and returns an `Estimate`. A metric with `needs="sums"` uses only
    their `sums` and `settings`, so it is computed for each field on its own too. `compares_values` tells that it
    compares field values and is not shown where there is one; `detail` says what of the settings it depends on.
    """

    name: str
    label: str
    function: Callable[[Any], Estimate]
    better: Literal["lower", "higher", "one"]
    needs: Literal["rows", "sums", "truth", "value"] = "rows"
    compares_values: bool = False
    detail: Callable[[MetricSettings], str] = lambda _: ""

    def full_label(self, settings: MetricSettings) -> str:
        """Return the label with the settings it depends on, as in `F-RCE (ε = 0.01)`."""
        detail = self.detail(settings)
        return f"{self.label} ({detail})" if detail else self.label


def find_metric(name: str) -> Metric:
    """Return a metric by its name or label, whatever the capitals and hyphens.

    >>> [find_metric(name).name for name in ("PCOC", "f_rce", "F-RCE (ε = 0.01)", "smECE")]
    ['pcoc', 'f_rce', 'f_rce', 'smooth_ece']
    """
    keys = {_key(spelling): metric for metric in METRICS.values() for spelling in (metric.label, metric.name)}
    key = _key(name)
    if key not in keys:
        close = get_close_matches(key, keys, n=1)
        hint = f" (did you mean {keys[close[0]].name}?)" if close else ""
        raise InputError(f"there is no metric {name!r}{hint}; there are {', '.join(METRICS)}")
    return keys[key]


def add_metric(metric: Metric) -> None:
    """Add a metric to those that every evaluation computes."""
    known = {_key(spelling) for known in METRICS.values() for spelling in (known.label, known.name)}
    for spelling in (metric.name, metric.label):
        if _key(spelling) in known:
            raise InputError(f"there is a metric {spelling!r} already; choose another name")
    METRICS[metric.name] = metric


def field_metrics() -> list[str]:
    """Return the names of the metrics that each field has on its own."""
    return [name for name, metric in METRICS.items() if metric.needs == "sums" and metric.compares_values]


def _key(name: str) -> str:
    """Return a spelling without capitals, signs and what stands in brackets."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"\(.*", "", name).lower())


_SETTINGS = {field.name for field in fields(MetricSettings)}


def _of(function: Callable[..., Estimate], *parts: str, unknown: str = "") -> Callable[[Any], Estimate]:
    """Return a metric of some parts of the judged rows, with the settings that its function takes.

    Where a part is None, as a truth that is not known, the metric is not defined, and `unknown` says why.
    """
    names = [name for name in signature(function).parameters if name in _SETTINGS]

    def estimate(judged: JudgedSums) -> Estimate:
        given = [getattr(judged, part) for part in parts]
        if any(part is None for part in given):
            return Estimate(nan, note=unknown)
        return function(*given, **{name: getattr(judged.settings, name) for name in names})

    return estimate


_NO_TRUTH = "the true probabilities are not known: pass truth="
_NO_VALUE = "what a positive is worth is not known: pass value="


def _epsilon(settings: MetricSettings) -> str:
    return f"ε = {settings.epsilon:g}" + (", values without positives dropped" if settings.drop_empty else "")


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("pcoc", "PCOC", _of(pcoc, "sums"), "one", needs="sums"),
        Metric("f_rce", "F-RCE", _of(f_rce, "sums"), "lower", needs="sums", compares_values=True, detail=_epsilon),
        Metric("f_ece", "F-ECE", _of(f_ece, "sums"), "lower", needs="sums", compares_values=True),
        Metric("pcoc_std", "PCOC STD", _of(pcoc_std, "sums"), "lower", needs="sums", compares_values=True),
        Metric("auc", "AUC", lambda rows: rows.auc, "higher"),
        Metric(
            "gauc", "GAUC", lambda rows: rows.auc if len(rows.sums) == 1 else rows.gauc, "higher", compares_values=True
        ),
        Metric("log_loss", "log-loss", _of(log_loss, "p", "y", "w"), "lower", detail=lambda of: f"clip {of.clip:g}"),
        Metric("brier", "Brier", _of(brier, "p", "y", "w"), "lower"),
        Metric(
            "prob_ece",
            "Prob-ECE",
            _of(f_ece, "compared_bins"),
            "lower",
            detail=lambda settings: f"{settings.bins} bins, equal mass",
        ),
        Metric("cal_n", "Cal-N", _of(cal_n, "compared_bins"), "lower", detail=lambda of: f"N = {of.bins}"),
        Metric("smooth_ece", "smECE", _of(mean_smooth_ece, "parts"), "lower"),
        Metric(
            "excess_log_loss",
            "log-loss over the truth",
            _of(excess_log_loss, "p", "truth", "y", "w", unknown=_NO_TRUTH),
            "lower",
            needs="truth",
        ),
        Metric(
            "kl_to_truth", "KL to the truth", _of(kl_to_truth, "p", "truth", "w", unknown=_NO_TRUTH), "lower", "truth"
        ),
        Metric("overbid", "over-bid", _of(lambda money: money.over, "money", unknown=_NO_VALUE), "lower", "value"),
        Metric("underbid", "under-bid", _of(lambda money: money.under, "money", unknown=_NO_VALUE), "lower", "value"),
    )
}
"""Every metric by its name, in the order of the tables."""
