"""Errors as problem documents (RFC 9457), which say what was found, where, and what to do."""

import traceback
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect

from mcnet._shared.files import is_disk_full
from mcnet.errors import BusyError, FileFormatError, McnetError, StoreUnavailableError, in_words
from mcnet.operations.service.settings import log_event

T = TypeVar("T")

RETRY = {"retry-after": "10"}
"""A header for answers of 503: somebody has to make room on the disk, or to start the database, first."""
CLOSE = {"connection": "close"}
"""A header for answers to clients that are still sending."""


class Problem(Exception):
    """An answer that is not the one asked for; `where` are further members: `at`, `column`, `row`, `limit`."""

    def __init__(self, status: int, detail: str, *, headers: dict[str, str] | None = None, **where: Any) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers, self.where = status, detail, headers or {}, where


class ProblemDetails(msgspec.Struct, omit_defaults=True):
    """What is wrong, where, and what to do (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    error: str
    """The detail again, where clients of the Open Inference Protocol look for it."""
    at: str | None = None
    """Where in the request, as a JSON path."""
    column: str | None = None
    row: int | None = None
    limit: int | None = None


def problem_of(error: Exception) -> Problem:
    """Return what an error means to a client; one that is not the client's doing is logged."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, msgspec.ValidationError):
        detail, _, where = str(error).partition(" - at ")
        return Problem(400, detail, at=where.strip("`") or "$")
    if isinstance(error, msgspec.DecodeError | UnicodeDecodeError | RecursionError):
        return Problem(400, f"the body is not JSON: {error}")
    if isinstance(error, ClientDisconnect):  # nothing was done, and in general nobody reads the answer
        return Problem(400, "the connection ended before the body was complete; nothing was done: send it again")
    if isinstance(error, FileFormatError):
        return Problem(409, str(error))  # a version or a period on disk is damaged; the request is not at fault
    if is_disk_full(error):
        return Problem(503, "the disk of the service is full; make room, and send this again", headers=RETRY)
    if isinstance(error, StoreUnavailableError | BusyError):
        return Problem(503, str(error), headers=RETRY)
    if isinstance(error, McnetError):
        at = None if error.column is None else f"$.{error.column}" + ("" if error.row is None else f"[{error.row}]")
        return Problem(400, in_words(error, "service"), at=at, column=error.column, row=error.row)
    where = "".join(traceback.format_exception(error)[-6:])
    log_event("unexpected error", "error", error=repr(error), traceback=where)
    return Problem(500, "an unexpected error; the log of the service has it")


def decoded(decoder: msgspec.json.Decoder[T], body: bytes, form: str) -> T:
    """Return what a body says; say what form it must have where it has another one."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        problem = problem_of(error)
        raise Problem(400, f"{problem.detail}; {form}", **problem.where) from None


def document_of(problem: Problem, detail: str) -> ProblemDetails:
    """Return the document of a problem, with its detail as it may be told."""
    title = HTTPStatus(problem.status).phrase
    return ProblemDetails("about:blank", title, problem.status, detail, detail, **problem.where)
