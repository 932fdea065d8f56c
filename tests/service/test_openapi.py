"""The description of the service is made of its operations and types, and leaves none out."""

import pytest

from mcnet.operations.service import calibrate, feedback, inference
from mcnet.operations.service.app import OPERATIONS
from mcnet.operations.service.endpoints import NoQuery, operation
from mcnet.operations.service.openapi import description


def of(path):
    return next(one for one in OPERATIONS if one.path == path)


def test_every_operation_is_described_with_its_words_parameters_and_forms(shared):
    described = shared.get("/openapi.json").document
    assert {(one.method.lower(), one.path) for one in OPERATIONS} == {
        (method, path) for path, methods in described["paths"].items() for method in methods
    }
    for one in OPERATIONS:
        told = described["paths"][one.path][one.method.lower()]
        assert told["description"].endswith("."), one.path
        assert ("security" in told) == one.changes
        assert set(told["responses"]) == {*map(str, one.status), "default"}
        wanted = {part[1:-1] for part in one.path.split("/") if part.startswith("{")}
        assert {p["name"] for p in told["parameters"] if p["in"] == "path"} == wanted
        assert ("requestBody" in told) == bool(one.body)
    forms = described["components"]["schemas"]
    assert set(forms) >= {"Question", "Answer", "Feedback", "Taken", "Moved", "Versions", "Inference", "ProblemDetails"}
    assert forms["Question"]["required"] == ["score"]
    assert set(forms["ProblemDetails"]["properties"]) >= {"detail", "at", "column", "row"}


def test_bodies_are_described_by_the_types_that_decode_them():
    assert set(of("/calibrate").body[:2]) == {calibrate.Question, list[calibrate.Record]}
    assert calibrate._decoder.type == calibrate.Question | list[calibrate.Record]
    assert of("/feedback").body[0] is feedback._decoder.type
    assert of("/v2/models/{name}/infer").body[0] is inference._decoder.type


def test_an_operation_without_words_cannot_be_added():
    async def silent(service, call):
        return None

    with pytest.raises(ValueError, match="/new is not described"):
        operation("GET", "/new", group="other")(silent)


def test_the_parameters_that_are_described_are_those_that_are_taken(shared):
    paths = description()["paths"]
    for path in ("/rollback", "/hold", "/release", "/reload", "/versions/9/promote"):
        answer = shared.change(f"{path}?surprise=1")
        told = paths[path.replace("9", "{version}")]["post"]["parameters"]
        known = ", ".join(one["name"] for one in told if one["in"] == "query") or "none"
        assert (answer.status, answer.document["detail"].endswith(f"known parameters: {known}")) == (400, True)
    assert of("/reload").query is NoQuery
