"""Warnings of many fits on the same rows: each is shown once, with the number of methods that gave it."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from mcnet._shared.user_warnings import warn
from mcnet.errors import CalibrationWarning

__all__ = ["FitWarnings"]


class FitWarnings:
    """Collects the warnings of fits, and shows equal ones once."""

    def __init__(self) -> None:
        """Start without warnings."""
        self._methods: dict[str, list[str]] = {}
        self._texts: dict[str, str] = {}

    @contextmanager
    def of(self, method: str) -> Iterator[None]:
        """Collect what a fit warns of; other kinds of warnings pass."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CalibrationWarning)
            yield
        for warning in caught:
            if issubclass(warning.category, CalibrationWarning):
                text = str(warning.message)
                reason = text.removeprefix(f"{method}: ")
                self._texts.setdefault(reason, text)
                self._methods.setdefault(reason, []).append(method)
            else:
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)

    def show(self) -> None:
        """Show each warning once: as it was if one method gave it, else with the number of methods."""
        for reason, methods in self._methods.items():
            warn(self._texts[reason] if len(methods) == 1 else f"{reason} ({len(methods)} methods)")
