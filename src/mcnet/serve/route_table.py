"""The route table: which handler answers which method and path."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from mcnet.serve.problem import Problem
from mcnet.serve.request import Request, Response

__all__ = ["Handler", "Route", "RouteTable"]

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Route:
    """One method and path, such as `GET /versions/{version}`, and what answers it."""

    method: str
    path: str
    counted: str
    """The group of routes that it is counted in."""
    handler: Handler
    changes: bool = False
    """Whether it changes state, and so needs the token."""


class RouteTable:
    """Find the route of a request.

    A part of a path in braces matches one part of the request's path, whatever it is. Handlers compare it with names
    they know, and never make a path of a file of it.
    """

    def __init__(self, routes: list[Route]) -> None:
        self.routes = routes
        self._exact = {(route.method, route.path): route for route in routes if "{" not in route.path}
        self._open = [(route, route.path.split("/")) for route in routes if "{" in route.path]

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """Return the route, and the parts of the path that it leaves open."""
        asked = "GET" if method == "HEAD" else method
        exact = self._exact.get((asked, path))
        if exact is not None:
            return exact, {}
        parts = path.split("/")
        for route, pattern in self._open:
            if route.method == asked and (found := _matched(pattern, parts)) is not None:
                return route, found
        allowed = {m for m, p in self._exact if p == path}
        allowed |= {route.method for route, pattern in self._open if _matched(pattern, parts) is not None}
        if allowed:
            if "GET" in allowed:
                allowed.add("HEAD")
            allow = ", ".join(sorted(allowed))
            raise Problem(405, f"{method} is not for this path; it takes {allow}", headers=(("allow", allow),))
        raise Problem(404, "there is nothing at this path; GET /docs lists what there is")


def _matched(pattern: list[str], parts: list[str]) -> dict[str, str] | None:
    if len(pattern) != len(parts):
        return None
    found = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted.startswith("{"):
            found[wanted[1:-1]] = part
        elif wanted != part:
            return None
    return found
