"""Warn the caller, at the line that called into mcnet."""

import sys
import warnings

from mcnet.errors import CalibrationWarning

__all__ = ["warn"]


def warn(message: str) -> None:
    """Raise a CalibrationWarning that points to the first line outside mcnet."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("mcnet."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, CalibrationWarning, stacklevel=level)
