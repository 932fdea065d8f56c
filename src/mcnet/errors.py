"""Every error and warning of mcnet; each message says what was found, where, and what to do."""

__all__ = [
    "BusyError",
    "CalibrationWarning",
    "FileFormatError",
    "InputError",
    "McnetError",
    "NotFittedError",
    "NotSupportedError",
]


class McnetError(Exception):
    """The root of every error that mcnet raises on purpose."""


class InputError(McnetError, ValueError):
    """The rows, columns or parameters given cannot be used as they are."""


class NotSupportedError(McnetError, TypeError):
    """The method cannot honour what was asked of it (a field, features, an export)."""


class NotFittedError(McnetError, ValueError, AttributeError):
    """The calibrator was used before it was fitted."""


class FileFormatError(McnetError, ValueError):
    """A file is not one of ours, is damaged, or comes from a newer version."""


class BusyError(McnetError):
    """Another process is at work on the same files; trying again later will do."""


class CalibrationWarning(UserWarning):
    """The fit succeeded, but the data forced a documented simplification."""
