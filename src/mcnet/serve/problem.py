"""Problems: errors as RFC 9457 problem details, which say what was found, where, and what to do."""

import re
from http import HTTPStatus
from typing import Any

import msgspec

from mcnet._shared.atomic_files import is_disk_full
from mcnet.errors import FileFormatError, McnetError
from mcnet.tracking.journal_additions import ImplausibleError

__all__ = ["PROBLEM_TYPE", "RETRY", "Problem", "problem_of"]

PROBLEM_TYPE = "application/problem+json"

RETRY = (("retry-after", "30"),)
"""A header for answers of 503: somebody has to make room on the disk first."""

_FIRST_ROW = re.compile(r"\b(score|label|weight) has .*\(first: row (\d+),")
_FOR_CALLERS = (
    ("; pass field=", "; send it under `field`"),
    ("pass logits with score_type='logit'", 'send logits with "score_type": "logit"'),
    ("pass score_type='probability' if", 'send "score_type": "probability" if'),
    (", score_type='logit' if", ', "score_type": "logit" if'),
    ("pass allow='weight'", 'send "allow": ["weight"]'),
    ("pass allow='period'", 'send "allow": ["period"]'),
)  # fmt: skip
"""What other packages advise to callers of functions, as a client of the service has it."""


class Problem(Exception):
    """An answer that is not the one asked for.

    Parameters
    ----------
    status : of HTTP.
    detail : what was found, where, and what to do.
    at : the place in the request, as a JSON path.
    headers : more headers of the answer.
    more : further members of the document.
    """

    def __init__(
        self, status: int, detail: str, *, at: str | None = None, headers: tuple[tuple[str, str], ...] = (), **more: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.at = at
        self.headers = headers
        self.more = more

    def document(self) -> dict[str, Any]:
        """Return the problem details; `error` repeats them for clients of the Open Inference Protocol."""
        found: dict[str, Any] = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        if self.at is not None:
            found["at"] = self.at
        return found | self.more | {"error": self.detail}


def problem_of(error: Exception) -> Problem | None:
    """Return what an error means to a client; None for one that is not the client's doing."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, msgspec.ValidationError):
        detail, _, where = str(error).partition(" - at ")
        return Problem(400, _plain(detail), at=where.strip("`") or "$")
    if isinstance(error, msgspec.DecodeError):
        return Problem(400, f"the body is not JSON: {error}")
    if isinstance(error, UnicodeDecodeError):
        return Problem(400, f"the body is not JSON: a text in it is not UTF-8 ({error.reason})")
    if isinstance(error, RecursionError):
        return Problem(400, "the body is not JSON that can be read: it is nested too deeply")
    if isinstance(error, FileFormatError):
        return Problem(409, str(error))  # a version or a period on disk is damaged; the request is not at fault
    if is_disk_full(error):
        reason = getattr(error, "strerror", None) or "no space left on the disk"
        return Problem(
            503, f"the disk of the service is full ({reason}); make room, and send this again", headers=RETRY
        )
    if isinstance(error, McnetError):
        detail = str(error)
        for ours, meant in _FOR_CALLERS:
            detail = detail.replace(ours, meant)
        if isinstance(error, ImplausibleError):
            return Problem(400, detail, at=f"$.{error.guard}")
        first = _FIRST_ROW.search(detail)
        return Problem(400, detail, at=f"$.{first[1]}[{first[2]}]" if first else None)
    return None


_KINDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_EXPECTED = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")


def _plain(detail: str) -> str:
    """Return what msgspec says of a wrong type in plain words.

    >>> _plain("Expected `float | array`, got `str`")
    'expected a number or a list, found a text'
    """
    found = _EXPECTED.fullmatch(detail)
    if found is None:
        return detail[:1].lower() + detail[1:]
    wanted, got = ([_KINDS.get(kind, kind) for kind in side.split(" | ")] for side in found.groups())
    return f"expected {' or '.join(wanted)}, found {' or '.join(got)}"
