"""Every error and warning of mcnet: what is wrong, where (file, column, row), the value found, and what to do.

Python, the command line and the HTTP service give the same advice in different words. So advice names a parameter as
such, and `in_words` writes it as `replace=True`, `--replace` or `"replace": true`.
"""

import json
from typing import Any, Literal

__all__ = [
    "Advice",
    "BusyError",
    "CalibrationWarning",
    "FileFormatError",
    "InputError",
    "McnetError",
    "NotFittedError",
    "NotSupportedError",
    "StoreUnavailableError",
    "Surface",
    "in_words",
]

Surface = Literal["python", "shell", "service"]
"""Where a message is read: by a caller of functions, at the command line, or by a client of the HTTP service."""

_SURFACES: tuple[Surface, ...] = ("python", "shell", "service")

_FLAGS = {("score_type", "logit"): "--logits", ("score_type", "probability"): "--probabilities"}
"""Options of the command line that are not called as their parameter is."""


class Advice:
    """What to do about an error, in the words of Python, the command line and the service.

    Parameters
    ----------
    python : the advice; `{name}` stands for a parameter.
    shell, service : the advice where other words are needed than those of Python.
    parameters : the value of each parameter; None for one whose value the reader chooses.

    >>> advice = Advice("name another, or pass {replace}", replace=True)
    >>> str(advice), advice.words["shell"]
    ('name another, or pass replace=True', 'name another, or pass --replace')
    """

    def __init__(self, python: str, *, shell: str | None = None, service: str | None = None, **parameters: Any) -> None:
        self.words: dict[Surface, str] = {"python": python, "shell": shell or python, "service": service or python}
        for surface in _SURFACES:
            for name, value in parameters.items():
                said = self.words[surface].replace(f"{{{name}}}", _parameter(name, value, surface))
                self.words[surface] = said

    def __str__(self) -> str:
        return self.words["python"]

    def __or__(self, other: "Advice") -> "Advice":
        """Return both: do the one, or the other."""
        return Advice(**{surface: f"{self.words[surface]}, or {other.words[surface]}" for surface in _SURFACES})


def _parameter(name: str, value: Any, surface: Surface) -> str:
    """Return a parameter, with its value if it has one, as readers write it there."""
    if surface == "python":
        return f"{name}=" if value is None else f"{name}={value!r}"
    if surface == "service":
        return f'"{name}"' if value is None else f'"{name}": {json.dumps(value)}'
    if (name, value) in _FLAGS:
        return _FLAGS[name, value]
    flag = f"--{name.replace('_', '-')}"
    return flag if value is None or value is True else f"{flag} {value if str(value).isalnum() else repr(value)}"


class _InParts(Exception):
    """The parts of an error or a warning.

    Parameters
    ----------
    what : what is wrong, and where; with the advice inside, if it is the same for every reader.
    advice : what to do.
    column, row, file : where it is: the name of a column, the index of a row (from 0), the name of a file.
    found : the value there.
    """

    def __init__(
        self,
        what: str = "",
        *,
        advice: Advice | str | None = None,
        column: str | None = None,
        row: int | None = None,
        file: str | None = None,
        found: Any = None,
    ) -> None:
        super().__init__(what if advice is None else f"{what}; {advice}")
        self.what, self.column, self.row, self.file, self.found = what, column, row, file, found
        self.advice = Advice(advice) if isinstance(advice, str) else advice


def in_words(error: BaseException, surface: Surface) -> str:
    """Return the message of an error or a warning, its advice in the words of those who read it.

    >>> error = InputError("the log has a column 'p' already", advice=Advice("pass {replace}", replace=True))
    >>> print(error)
    the log has a column 'p' already; pass replace=True
    >>> in_words(error, "shell")
    "the log has a column 'p' already; pass --replace"
    """
    if isinstance(error, _InParts) and error.advice is not None:
        return f"{error.what}; {error.advice.words[surface]}"
    return str(error)


class McnetError(_InParts):
    """The root of every error that mcnet raises on purpose."""


class InputError(McnetError, ValueError):
    """The rows, columns or parameters given cannot be used as they are."""


class NoRowsError(InputError):
    """There are no rows: a file is empty, which an hour without impressions may be."""


class NotSupportedError(McnetError, TypeError):
    """The method cannot honour what was asked of it (a field, features, an export)."""


class NotFittedError(McnetError, ValueError, AttributeError):
    """The calibrator was used before it was fitted."""


class FileFormatError(McnetError, ValueError):
    """A file is not one of ours, is damaged, or comes from a newer version."""


class BusyError(McnetError):
    """Another process is at work on the same files; trying again later will do."""


class StoreUnavailableError(McnetError):
    """The database of a store cannot be reached or refuses to work; trying again later is safe."""


class CalibrationWarning(_InParts, UserWarning):
    """The fit succeeded, but the data forced a documented simplification."""
