"""Messages about rows whose field values a model has not seen in its fit."""

from typing import TYPE_CHECKING

from mcnet.cli.printing import Printer

if TYPE_CHECKING:
    from mcnet.model.unseen import UnseenValues

__all__ = ["unseen_note"]

_WARN_FROM = 0.01
"""The share of rows with unseen values from which there is a warning."""


def unseen_note(printer: Printer, unseen: "UnseenValues") -> None:
    """Say which share of the rows had unseen field values; warn if it is large."""
    if not unseen.unseen:
        return
    by_field = ", ".join(f"{name} {part / unseen.total:.3%}" for name, part in unseen.by_field.items() if part)
    text = f"{unseen.share:.3%} of the rows have a field value that the model has not seen ({by_field})"
    if unseen.share >= _WARN_FROM:
        printer.warn(f"{text}; they get the curve of any other value: was a value renamed?")
    else:
        printer.note(text)
