"""The registry of metrics: one entry has everything that tables, JSON and thresholds need."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from math import nan
from typing import Any, Literal

from mcnet.errors import InputError
from mcnet.metrics.calibration_error import cal_n, f_ece, f_rce, mean_mvce, mean_smooth_ece, mf_rce, pcoc, pcoc_std
from mcnet.metrics.intervals import Estimate
from mcnet.metrics.judged_rows import JudgedRows, JudgedSums, MetricSettings
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


def _relative(of: Callable[..., Estimate]) -> Callable[[JudgedSums], Estimate]:
    def estimate(judged: JudgedSums) -> Estimate:
        chosen = judged.settings
        return of(
            judged.sums, epsilon=chosen.epsilon, drop_empty=chosen.drop_empty, level=chosen.level, seed=chosen.seed
        )

    return estimate


def _over_groups(of: Callable[..., Estimate]) -> Callable[[JudgedSums], Estimate]:
    return lambda judged: of(judged.sums, level=judged.settings.level, seed=judged.settings.seed)


_UNKNOWN_TRUTH = Estimate(nan, note="the true probabilities are not known: pass truth=")


def _excess_log_loss(rows: JudgedRows) -> Estimate:
    if rows.truth is None:
        return _UNKNOWN_TRUTH
    return excess_log_loss(rows.p, rows.truth, rows.y, rows.w, clip=rows.settings.clip, level=rows.settings.level)


def _kl_to_truth(rows: JudgedRows) -> Estimate:
    if rows.truth is None:
        return _UNKNOWN_TRUTH
    return kl_to_truth(rows.p, rows.truth, rows.w, clip=rows.settings.clip, level=rows.settings.level)


_UNKNOWN_VALUE = Estimate(nan, note="what a positive is worth is not known: pass value=")


def _overbid(rows: JudgedRows) -> Estimate:
    return _UNKNOWN_VALUE if rows.money is None else rows.money.over


def _underbid(rows: JudgedRows) -> Estimate:
    return _UNKNOWN_VALUE if rows.money is None else rows.money.under


def _epsilon(settings: MetricSettings) -> str:
    return f"ε = {settings.epsilon:g}" + (", values without positives dropped" if settings.drop_empty else "")


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("pcoc", "PCOC", lambda rows: pcoc(rows.sums, level=rows.settings.level), "one", needs="sums"),
        Metric("f_rce", "F-RCE", _relative(f_rce), "lower", needs="sums", compares_values=True, detail=_epsilon),
        Metric("f_ece", "F-ECE", _over_groups(f_ece), "lower", needs="sums", compares_values=True),
        Metric("mf_rce", "MF-RCE", _relative(mf_rce), "lower", needs="sums", compares_values=True),
        Metric("pcoc_std", "PCOC STD", _over_groups(pcoc_std), "lower", needs="sums", compares_values=True),
        Metric("auc", "AUC", lambda rows: rows.auc, "higher"),
        Metric(
            "gauc", "GAUC", lambda rows: rows.auc if len(rows.sums) == 1 else rows.gauc, "higher", compares_values=True
        ),
        Metric(
            "log_loss",
            "log-loss",
            lambda rows: log_loss(rows.p, rows.y, rows.w, clip=rows.settings.clip, level=rows.settings.level),
            "lower",
            detail=lambda settings: f"clip {settings.clip:g}",
        ),
        Metric("brier", "Brier", lambda rows: brier(rows.p, rows.y, rows.w, level=rows.settings.level), "lower"),
        Metric(
            "prob_ece",
            "Prob-ECE",
            lambda rows: f_ece(rows.compared_bins, level=rows.settings.level, seed=rows.settings.seed),
            "lower",
            detail=lambda settings: f"{settings.bins} bins, equal mass",
        ),
        Metric(
            "prob_ece_width",
            "Prob-ECE-width",
            lambda rows: f_ece(rows.width_sums(), level=rows.settings.level, seed=rows.settings.seed),
            "lower",
            detail=lambda settings: f"{settings.width_bins} bins, equal width",
        ),
        Metric(
            "cal_n",
            "Cal-N",
            lambda rows: cal_n(rows.compared_bins, level=rows.settings.level, seed=rows.settings.seed),
            "lower",
            detail=lambda settings: f"N = {settings.bins}",
        ),
        Metric(
            "mvce",
            "MVCE",
            lambda rows: mean_mvce(
                rows.parts, bin_size=rows.settings.bin_size, level=rows.settings.level, seed=rows.settings.seed
            ),
            "lower",
            detail=lambda settings: f"bins of {settings.bin_size}",
        ),
        Metric(
            "smooth_ece",
            "smECE",
            lambda rows: mean_smooth_ece(rows.parts, level=rows.settings.level, seed=rows.settings.seed),
            "lower",
        ),
        Metric("excess_log_loss", "log-loss over the truth", _excess_log_loss, "lower", needs="truth"),
        Metric("kl_to_truth", "KL to the truth", _kl_to_truth, "lower", needs="truth"),
        Metric("overbid", "over-bid", _overbid, "lower", needs="value"),
        Metric("underbid", "under-bid", _underbid, "lower", needs="value"),
    )
}
"""Every metric by its name, in the order of the tables."""
