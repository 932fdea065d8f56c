"""The description of the service is made of its routes and types, and leaves none out."""

from pathlib import Path

import pytest

from mcnet.operations.service import calibrate, feedback, inference
from mcnet.operations.service.board import Board
from mcnet.operations.service.handlers import Handlers
from mcnet.operations.service.http import Request, Response, Route
from mcnet.operations.service.openapi import describe
from mcnet.operations.service.served import ServedHeads
from mcnet.operations.service.settings import ServiceSettings, log_event


@pytest.fixture
def routes(registry, tmp_path: Path) -> list[Route]:
    board = Board(tmp_path)
    heads = ServedHeads(registry.store, None, board, log_event)
    return Handlers(ServiceSettings(registry.path), board, heads).routes()


def of(routes: list[Route], path: str) -> Route:
    (route,) = (route for route in routes if route.path == path)
    return route


def test_every_route_is_described_with_its_words_parameters_and_forms(routes):
    described = describe(routes)
    assert {(route.method.lower(), route.path) for route in routes} == {
        (method, path) for path, methods in described["paths"].items() for method in methods
    }
    for route in routes:
        one = described["paths"][route.path][route.method.lower()]
        assert (bool(one["summary"]), bool(one["description"]), one["summary"].endswith(".")) == (True, True, False)
        assert ("security" in one) == route.changes
        assert set(one["responses"]) == {*map(str, route.answers), "default"}
        wanted = {part[1:-1] for part in route.path.split("/") if part.startswith("{")}
        assert {p["name"] for p in one.get("parameters", ()) if p["in"] == "path"} == wanted
        assert ("requestBody" in one) == bool(route.body)
    forms = described["components"]["schemas"]
    assert set(forms) >= {"Question", "Answer", "Feedback", "Taken", "Moved", "Versions", "Inference", "ProblemDetails"}
    assert forms["Question"]["required"] == ["score"]
    assert set(forms["ProblemDetails"]["properties"]) >= {"detail", "at", "column", "row"}


def test_bodies_are_described_by_the_types_that_decode_them(routes):
    question = calibrate._decoder.type
    assert set(of(routes, "/calibrate").body[:3]) == {calibrate.Question, calibrate.Record, list[calibrate.Record]}
    assert question == calibrate.Question | list[calibrate.Record]
    assert of(routes, "/feedback").body[0] is feedback._decoder.type
    assert of(routes, "/v2/models/{name}/infer").body[0] is inference._decoder.type


def test_a_route_without_a_description_cannot_be_added(routes):
    async def silent(request: Request) -> Response:
        return Response.json({})

    async def short(request: Request) -> Response:
        """Say hello."""
        return Response.json({})

    for handler in (silent, short):
        with pytest.raises(ValueError, match="GET /new is not described"):
            describe([*routes, Route("GET", "/new", "other", handler)])
    with pytest.raises(KeyError, match="unknown"):
        describe([*routes, Route("GET", "/new/{unknown}", "other", of(routes, "/versions").handler)])


def test_the_parameters_that_are_described_are_those_that_are_taken(shared):
    described = shared.get("/openapi.json").document["paths"]
    for path in ("/rollback", "/hold", "/release", "/versions/9/promote"):
        answer = shared.change(f"{path}?surprise=1", None)
        route = described[path.replace("9", "{version}")]["post"]
        names = [one["name"] for one in route["parameters"] if one["in"] == "query"]
        assert (answer.status, answer.document["detail"]) == (
            400,
            f"the query has 'surprise'; known: {', '.join(names)}",
        )
