"""A selection as text: one line per method, narrow enough for any terminal."""

from typing import TYPE_CHECKING

from mcnet._shared.terminal_text import narrow

if TYPE_CHECKING:
    from mcnet.selection.selection import Selection

__all__ = ["UNIT_OF_DIFFERENCES", "difference_words", "explanation", "failure_lines", "method_lines"]

UNIT_OF_DIFFERENCES = "×10⁻⁵"
"""The unit of differences of log-loss, wherever they are printed."""


def difference_words(*differences: float) -> tuple[str, ...]:
    """Return differences of log-loss in their unit.

    >>> difference_words(0.001445, 0.000053)
    ('144.5', '5.3')
    """
    return tuple(narrow(1e5 * difference, 1) for difference in differences)


def explanation(selection: "Selection") -> str:
    """Return what the lines show."""
    text = f"Judged on {selection.judged_on}; ← is chosen."
    if selection.judged.folds > 1:
        of_fields = "F-RCE and AUC are means of the folds. The floor is the F-RCE of noise alone."
        return f"{text}\n{of_fields if selection.judged.contexts.names else 'AUC is the mean of the folds.'}"
    if selection.judged.contexts.names:
        text += "\nF-RCE includes noise; its floor is what noise alone gives."
    return text


def failure_lines(selection: "Selection") -> list[str]:
    """Return a sentence for each method that failed."""
    return [f"{method} failed: {reason}" for method, reason in selection.failed.items()]


def method_lines(selection: "Selection") -> list[tuple[str, ...]]:
    """Return a line of words for each method, the best first, below a line of headings.

    Without a field there is no error inside one, and no column for it.
    """
    fields = bool(selection.judged.contexts.names)
    errors = ("F-RCE", "floor") if fields else ()
    lines: list[tuple[str, ...]] = [
        ("method", "log-loss", f"over best {UNIT_OF_DIFFERENCES}", "PCOC", *errors, "AUC", "fit s")
    ]
    for result in selection.results:
        ev, gap = result.evaluation, result.difference
        value, error = difference_words(gap.value, gap.standard_error)
        lines.append(
            (
                f"{result.method} ←" if result.method == selection.chosen.method else result.method,
                f"{result.log_loss:.5f}",
                f"{value} ± {error}" if gap.value else "best",
                narrow(ev.pcoc, 3),
                *((f"{ev.f_rce:.4f}", f"{ev.floor('f_rce'):.4f}") if fields else ()),
                f"{ev.auc:.4f}",
                narrow(result.fit_seconds, 2),
            )
        )
    return lines
