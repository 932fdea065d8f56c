"""An evaluation as text: one aligned table for a reader, one line per method for a comparison."""

from collections.abc import Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING

import numpy as np

from mcnet._shared.terminal_text import display_width, one_line, pad, shown_value
from mcnet.metrics.registry import METRICS, find_metric

if TYPE_CHECKING:
    from mcnet.metrics.evaluation import Evaluation
    from mcnet.metrics.fields import FieldEvaluation

__all__ = ["INTERVAL_OF", "aligned", "compare", "describe", "heading", "metric_lines"]

INTERVAL_OF = "the true value: noise is part of an error's value, but not of its interval"
_MOST_VALUES_SHOWN = 12
_MARKS = "¹²³⁴⁵⁶⁷⁸⁹"
_OUTSIDE = "noise is part of the value (see its floor), but not of the true value"


def describe(ev: "Evaluation") -> str:
    """Return the metrics with intervals and floors, then a table for each field."""
    lines, notes = metric_lines(ev)
    tables = [_field_table(found) for found in ev.fields.values()]
    return "\n\n".join(["\n".join([heading(ev), aligned(lines), *notes]), *tables])


def heading(ev: "Evaluation") -> str:
    """Return what was evaluated, in one line."""
    head = f"{ev.rows:,} rows, weight {ev.weight:,.10g}, {ev.positives:,.10g} positives"
    groups = len(ev.contexts.table)
    return head + (f", {groups:,} values of {ev.contexts.name}" if groups > 1 else "")


def metric_lines(ev: "Evaluation") -> tuple[list[tuple[str, ...]], list[str]]:
    """Return a line of words for each metric (value, floor, interval, mark), headings first; and the notes.

    Metrics that compare field values are left out where there is one value, those against a truth where none is known.
    """
    one_value = len(ev.contexts.table) == 1
    notes: list[str] = []
    lines: list[tuple[str, ...]] = [("metric", "value", "noise floor", f"true value ({ev.settings.level:.0%})", "")]
    for name, found in ev.estimates.items():
        metric = METRICS[name]
        if (metric.compares_values and one_value) or (metric.needs == "truth" and isnan(found.value)):
            continue
        interval = "" if isnan(found.low) else f"{_figure(found.low)} … {_figure(found.high)}"
        floor = "" if isnan(found.floor) else _figure(found.floor)
        note = found.note or (_OUTSIDE if found.value < found.low or found.value > found.high else "")
        if note and note not in notes:
            notes.append(note)
        mark = _MARKS[notes.index(note)] if note else ""
        lines.append((metric.full_label(ev.settings), _figure(found.value), floor, interval, mark))
    return lines, [f"{mark} {note}" for mark, note in zip(_MARKS, notes, strict=False)]


def compare(
    evaluations: Mapping[str, "Evaluation"],
    metrics: Sequence[str] = ("pcoc", "f_rce", "auc", "log_loss", "excess_log_loss"),
) -> str:
    """Return a table with one line for each named evaluation, and one column for each metric."""
    lines = [("", *(find_metric(metric).label for metric in metrics))]
    lines += [(name, *(_figure(ev.estimates[metric].value) for metric in metrics)) for name, ev in evaluations.items()]
    return aligned(lines)


def _field_table(found: "FieldEvaluation") -> str:
    table = found.table
    lines = [(found.name, "weight", "positives", "mean prediction", "PCOC", "interval")]
    shown = np.argsort(-table.weight, kind="stable")[:_MOST_VALUES_SHOWN]
    for i in shown:
        spread = f"{_figure(table.pcoc_low[i])} … {_figure(table.pcoc_high[i])}"
        weight, positives = f"{table.weight[i]:,.10g}", f"{table.positives[i]:,.10g}"
        mean = _figure(table.mean_prediction[i])
        lines.append((shown_value(table.values[i]), weight, positives, mean, _figure(table.pcoc[i]), spread))
    rest = len(table) - len(shown)
    summary = "" if len(table) == 1 else f"\n{_field_error(found)}"
    return aligned(lines) + (f"\n… and {rest:,} values of less weight" if rest else "") + summary


def _field_error(found: "FieldEvaluation") -> str:
    """Return the error of a field in one line, beside what noise alone gives."""
    error = found.estimates["f_rce"]
    interval = "" if isnan(error.low) else f", true value {_figure(error.low)} … {_figure(error.high)}"
    return f"F-RCE of {one_line(found.name)}: {_figure(error.value)}, noise floor {_figure(error.floor)}{interval}"


def _figure(value: float) -> str:
    if isnan(value):
        return "–"
    return f"{value:.4f}" if abs(value) >= 0.1 or value == 0 else f"{value:.4g}"


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return a table with columns of equal width: the first column to the left, the others to the right.

    Widths are those of a terminal, where some characters take two columns; control characters are written out.

    >>> print(aligned([("city", "rows"), ("東京", "12"), ("Oslo", "3")]))
    city  rows
    東京    12
    Oslo     3
    """
    cells = [[one_line(word) for word in line] for line in lines]
    widths = [max(map(display_width, column)) for column in zip(*cells, strict=True)]
    padded = (
        "  ".join(pad(word, width, right=i > 0) for i, (word, width) in enumerate(zip(line, widths, strict=True)))
        for line in cells
    )
    return "\n".join(line.rstrip() for line in padded)
