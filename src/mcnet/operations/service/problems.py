"""Errors as problem documents (RFC 9457), which say what was found, where, and what to do."""

import traceback
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge

from mcnet._shared.files import is_disk_full
from mcnet.errors import BusyError, FileFormatError, McnetError, StoreUnavailableError, in_words
from mcnet.operations.service.settings import log_event

RETRY = {"retry-after": "10"}
"""A header for answers of 503: somebody has to make room on the disk, or to start the database, first."""


class Problem(HTTPException):
    """An answer that is not the one asked for.

    Parameters
    ----------
    status, detail, headers : of the answer.
    where : further members of the document: `at`, `column`, `row`, `limit`.
    """

    def __init__(self, status: int, detail: str, *, headers: dict[str, str] | None = None, **where: Any) -> None:
        super().__init__(detail=detail, status_code=status, headers=headers)
        self.status, self.where = status, where


def problem_of(error: Exception) -> Problem | None:
    """Return what an error means to a client; None for one that is not the client's doing."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, msgspec.ValidationError):
        detail, _, where = str(error).partition(" - at ")
        return Problem(400, detail, at=where.strip("`") or "$")
    if isinstance(error, msgspec.DecodeError | UnicodeDecodeError | RecursionError):
        return Problem(400, f"the body is not JSON: {error}")
    if isinstance(error, FileFormatError):
        return Problem(409, str(error))  # a version or a period on disk is damaged; the request is not at fault
    if is_disk_full(error):
        return Problem(503, "the disk of the service is full; make room, and send this again", headers=RETRY)
    if isinstance(error, StoreUnavailableError | BusyError):
        return Problem(503, str(error), headers=RETRY)
    if isinstance(error, McnetError):
        at = None if error.column is None else f"$.{error.column}" + ("" if error.row is None else f"[{error.row}]")
        return Problem(400, in_words(error, "service"), at=at, column=error.column, row=error.row)
    if isinstance(error, RequestEntityTooLarge):
        return Problem(413, "the body is larger than this service takes; send fewer rows at once")
    if isinstance(error, HTTPException) and "disconnected" not in error.detail:
        more = "" if not error.extra else f": {error.extra}"
        return Problem(error.status_code, error.detail + more, headers=error.headers)
    if isinstance(error, HTTPException):  # nothing was done, and in general nobody reads the answer
        return Problem(400, "the connection ended before the body was complete; nothing was done: send it again")
    return None


def answer(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Return the answer to a request that failed; what is not the client's doing is logged."""
    state = request.app.state
    if isinstance(error, StoreUnavailableError | BusyError):
        state.heads.count_error(error)
    problem = problem_of(error)
    encoding = request.headers.get("content-encoding")
    if encoding not in (None, "identity"):
        problem = Problem(415, f"the body is encoded as {encoding[:40]!r}; send it as it is")
    if problem is None:
        where = "".join(traceback.format_exception(error)[-6:])
        log_event("unexpected error", "error", path=request.url.path[:200], error=repr(error), traceback=where)
        problem = Problem(500, "an unexpected error; the log of the service has it")
    detail = state.settings.public(problem.detail)
    document = {"type": "about:blank", "title": HTTPStatus(problem.status).phrase, "status": problem.status}
    document |= {"detail": detail, "error": detail}  # the latter for clients of the Open Inference Protocol
    document |= {name: value for name, value in problem.where.items() if value is not None}
    kind = "application/problem+json"
    return Response(
        msgspec.json.encode(document), status_code=problem.status, media_type=kind, headers=problem.headers or {}
    )
