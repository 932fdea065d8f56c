"""A selection as text: one line per method, narrow enough for any terminal."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcnet.selection.selection import Selection

__all__ = ["explanation", "failure_lines", "method_lines"]


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
    lines: list[tuple[str, ...]] = [("method", "log-loss", "over best ×10⁻⁵", "PCOC", *errors, "AUC", "fit s")]
    for result in selection.results:
        ev, gap = result.evaluation, result.difference
        lines.append(
            (
                f"{result.method} ←" if result.method == selection.chosen.method else result.method,
                f"{result.log_loss:.5f}",
                f"{_narrow(1e5 * gap.value, 1)} ± {_narrow(1e5 * gap.standard_error, 1)}" if gap.value else "best",
                _narrow(ev.pcoc, 3),
                *((f"{ev.f_rce:.4f}", f"{ev.floor('f_rce'):.4f}") if fields else ()),
                f"{ev.auc:.4f}",
                _narrow(result.fit_seconds, 2),
            )
        )
    return lines


def _narrow(number: float, decimals: int) -> str:
    """Return a number with fewer decimals the larger it is, so that a column keeps its width.

    >>> _narrow(3.14159, 2), _narrow(314.159, 2), _narrow(31415.9, 1)
    ('3.14', '314.2', '31416')
    """
    whole = len(f"{abs(number):.0f}")
    return f"{number:.{min(decimals, max(4 - whole, 0))}f}"
