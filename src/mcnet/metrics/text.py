"""Evaluations as text: tables, narrow enough for any terminal."""

from collections.abc import Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING

from mcnet._shared.messages import aligned, amount, count, counted, figure, one_line, shown_value
from mcnet.metrics.metric import METRICS, find_metric
from mcnet.plots.figures import worst_first

if TYPE_CHECKING:
    from mcnet.metrics.evaluation import Evaluation
    from mcnet.metrics.field_values import FieldEvaluation

INTERVAL_OF = "the true value: noise is part of an error's value, but not of its interval"
_MOST_VALUES_SHOWN = 12
_MARKS = "¹²³⁴⁵⁶⁷⁸⁹"
_OUTSIDE = "noise is part of the value (see its floor), but not of the true value"


def describe(ev: "Evaluation") -> str:
    """Return the metrics with intervals and floors, then a table for each field."""
    lines, notes = metric_lines(ev)
    tables = ["\n".join(filter(None, (aligned(lines), note))) for lines, note in map(field_lines, ev.fields.values())]
    money = [] if ev.money is None else [ev.money.describe()]
    return "\n\n".join(["\n".join([heading(ev), aligned(lines), *notes]), *tables, *money])


def heading(ev: "Evaluation") -> str:
    """Return what was evaluated, in one line."""
    head = f"{counted(ev.rows, 'row')}, weight {count(ev.weight)}, {counted(ev.positives, 'positive')}"
    groups = len(ev.contexts.table)
    return head + (f", {groups:,} values of {ev.contexts.name}" if groups > 1 else "")


def summary(ev: "Evaluation") -> str:
    """Return the rows and the main metrics in one line."""
    names = [name for name in ("pcoc", "f_rce", "auc", "log_loss") if name != "f_rce" or ev.fields]
    metrics = ", ".join(f"{METRICS[name].label} {figure(ev.estimates[name].value)}" for name in names)
    return f"{counted(ev.rows, 'row')}, {counted(ev.positives, 'positive')}: {metrics}"


def metric_lines(ev: "Evaluation") -> tuple[list[tuple[str, ...]], list[str]]:
    """Return a line of words for each metric (value, floor, interval, mark), headings first; and the notes.

    Metrics that compare field values are left out where there is one value, those against a truth or in
    money where none is known.
    """
    one_value = len(ev.contexts.table) == 1
    notes: list[str] = []
    lines: list[tuple[str, ...]] = [("metric", "value", "noise floor", f"true value ({ev.settings.level:.0%})", "")]
    for name, estimate in ev.estimates.items():
        metric = METRICS[name]
        if (metric.compares_values and one_value) or (metric.needs in ("truth", "value") and isnan(estimate.value)):
            continue
        shown = amount if metric.needs == "value" else figure
        interval = "" if isnan(estimate.low) else f"{shown(estimate.low)} … {shown(estimate.high)}"
        floor = "" if isnan(estimate.floor) else figure(estimate.floor)
        note = estimate.note or (_OUTSIDE if estimate.value < estimate.low or estimate.value > estimate.high else "")
        if note and note not in notes:
            notes.append(note)
        mark = _MARKS[notes.index(note)] if note else ""
        lines.append((metric.full_label(ev.settings), shown(estimate.value), floor, interval, mark))
    return lines, [f"{mark} {note}" for mark, note in zip(_MARKS, notes, strict=False)]


def compare(
    evaluations: Mapping[str, "Evaluation"],
    metrics: Sequence[str] = ("pcoc", "f_rce", "auc", "log_loss", "excess_log_loss"),
) -> str:
    """Return a table with one line for each named evaluation, and one column for each metric."""
    lines = [("", *(find_metric(metric).label for metric in metrics))]
    lines += [(name, *(figure(ev.estimates[metric].value) for metric in metrics)) for name, ev in evaluations.items()]
    return aligned(lines)


def field_lines(field: "FieldEvaluation") -> tuple[list[tuple[str, ...]], str]:
    """Return a line of words for each of the worst values of a field, headings first; and the note below them.

    The worst values are those whose predicted positives are farthest off beyond what noise explains.
    """
    table = field.table
    beyond = table.beyond_noise
    lines: list[tuple[str, ...]] = [
        (field.name, "weight", "positives", "mean prediction", "PCOC", "interval", "off beyond noise")
    ]
    worst = worst_first(table)[:_MOST_VALUES_SHOWN]
    for i in worst:
        spread = f"{figure(table.pcoc_low[i])} … {figure(table.pcoc_high[i])}"
        weight, positives = count(table.weight[i]), count(table.positives[i])
        off = f"{beyond[i]:+,.1f}" if beyond[i] else "0"
        mean, pcoc = figure(table.mean_prediction[i]), figure(table.pcoc[i])
        lines.append((shown_value(table.values[i]), weight, positives, mean, pcoc, spread, off))
    rest = len(table) - len(worst)
    notes = [f"… and {counted(rest, 'value')} less far off"] if rest else []
    notes += [_field_error(field)] if len(table) > 1 else []
    return lines, "\n".join(notes)


def _field_error(field: "FieldEvaluation") -> str:
    """Return the error of a field in one line, beside what noise alone gives."""
    error = field.estimates["f_rce"]
    interval = "" if isnan(error.low) else f", true value {figure(error.low)} … {figure(error.high)}"
    return f"F-RCE of {one_line(field.name)}: {figure(error.value)}, noise floor {figure(error.floor)}{interval}"
