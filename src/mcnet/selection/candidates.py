"""The methods to compare if none is named: all of them, and the published MCNet also without the field."""

from collections.abc import Sequence

from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.registry import VARIANTS, calibrator
from mcnet.errors import McnetError

__all__ = ["default_candidates"]


def default_candidates(methods: Sequence[str], *, has_fields: bool) -> dict[str, str | Calibrator]:
    """Return the methods that suit the rows, in the order given; the name alone where a library is missing."""
    found: dict[str, str | Calibrator] = {}
    for name in methods:
        try:
            made = calibrator(name)
            if has_fields:
                found |= {other: calibrator(other) for other, (method, _) in VARIANTS.items() if method == name}
        except McnetError:
            found[name] = name  # it is tried again, and then listed as failed
            continue
        if has_fields or made.field_use != "required":
            found[name] = made
    return found
