"""`POST /calibrate` in JSON: what a model predicts, and errors that say what, where and what to do."""

import asyncio

import numpy as np
import pytest
from tests.serve.running import running

import mcnet
from mcnet.serve.request import BodyReader
from mcnet.serve.settings import Limits
from mcnet.versions.registry import Registry


def test_columns_records_and_one_row_are_answered_with_what_the_model_predicts(shared, models):
    score, country = [0.02, 0.3, 0.3, 0.0, 1.0], ["NL", "FR", None, "never seen", "DE"]
    expected = models[0].predict(score, {"country": country}).tolist()
    assert shared.calibrate(score, {"country": country}) == {"calibrated": expected, "version": "1"}
    records = [{"score": s, "country": c} for s, c in zip(score, country, strict=True)]
    assert shared.post("/calibrate", records).document == {"calibrated": expected, "version": "1"}
    for place in range(5):
        one = shared.calibrate(score[place], {"country": country[place]})
        assert one == {"calibrated": expected[place], "version": "1"}
        listed = shared.calibrate([score[place]], {"country": [country[place]]})
        assert listed == {"calibrated": [expected[place]], "version": "1"}


def test_many_rows_in_a_thread_are_answered_as_few(shared, models):
    rng = np.random.default_rng(5)
    score, country = rng.random(30_000).tolist(), rng.choice(["NL", "XX"], 30_000).tolist()
    found = shared.calibrate(score, {"country": country})
    assert found["calibrated"] == models[0].predict(score, {"country": country}).tolist()


def test_intervals_are_given_on_request(shared, models):
    found = shared.calibrate([0.02, 0.3], {"country": ["NL", "FR"]}, interval=0.8)
    low, high = models[0].interval([0.02, 0.3], {"country": ["NL", "FR"]}, 0.8)
    assert found["low"] == low.tolist()
    assert found["high"] == high.tolist()
    one = shared.calibrate(0.02, {"country": "NL"}, interval=0.8)
    assert (one["low"], one["high"]) == (low[0], high[0])


def test_no_rows_are_no_mistake(shared):
    assert shared.calibrate([], {"country": []})["calibrated"] == []
    assert shared.post("/calibrate", []).document["calibrated"] == []


@pytest.mark.parametrize(
    ("body", "at", "said"),
    [
        ({"score": [0.1, 1.2], "field": {"country": ["NL", "NL"]}}, "$.score[1]", "outside [0, 1]"),
        ({"score": 1.2, "field": {"country": "NL"}}, "$.score[0]", "score_type"),
        ({"score": [0.1, None], "field": {"country": ["NL", "NL"]}}, "$.score[1]", "expected a number, found null"),
        ({"score": ["0.1"], "field": {"country": ["NL"]}}, "$.score[0]", "expected a number, found a text"),
        ({"score": [0.1]}, "$.field", "needs: country"),
        ({"score": [0.1], "field": {"land": ["NL"]}}, "$.field", "fields given: land"),
        ({"score": [0.1], "field": {"country": ["NL"], "x": [1]}}, "$.field", "country, x"),
        ({"score": [0.1, 0.2], "field": {"country": ["NL"]}}, None, "differ in length"),
        ({"score": [0.1], "field": {"country": "NL"}}, "$.field.country", "must be a list"),
        ({"score": 0.1, "field": {"country": ["NL"]}}, "$.field.country", "one value"),
        ({"score": [0.1], "field": {"country": [["NL"]]}}, "$.field[...][0]", "found a list"),
        ({"scores": [0.1]}, "$", "unknown field `scores`"),
        ({"score": [0.1], "field": {"country": ["NL"]}, "interval": 2}, None, "level"),
        ([{"score": 0.1}], "$[0]", "lacks country"),
        ([{"score": 0.1, "country": "NL", "x": 1}], "$[0]", "has x besides"),
        ([{"score": "high", "country": "NL"}], "$[0].score", "not a number"),
        (b'{"score": [NaN], "field": {"country": ["NL"]}}', None, "not JSON"),
        (b'{"score": [0.1', None, "not JSON"),
        (b"", None, "not JSON"),
        (b"\xff\xfe", None, "not JSON"),
    ],
)
def test_an_error_says_what_where_and_what_to_do(shared, body, at, said):
    answer = shared.post("/calibrate", body)
    problem = answer.document
    assert answer.status == problem["status"] == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert said in problem["detail"]
    assert problem.get("at") == at
    assert problem["title"] == "Bad Request"


def test_limits_on_rows_and_bytes(shared):
    many = shared.post("/calibrate", {"score": [0.1] * 500_001, "field": {"country": ["NL"] * 500_001}})
    assert many.status == 413
    assert many.document["limit"] == 500_000
    large = shared.ask("POST", "/calibrate", b"x", Content_Length="64000001")
    assert large.status == 413
    assert "64,000,000 bytes" in large.document["detail"]


def test_a_body_of_unknown_length_is_limited_too(shared):
    pieces = iter([b'{"score": [0.1], "field": {"country": ["NL"]}', b"}"])
    assert shared.ask("POST", "/calibrate", pieces).status == 200
    try:
        status = shared.ask("POST", "/calibrate", iter([b" " * 1_000_000] * 70)).status
    except OSError:
        status = 413  # the service hung up while the rest was being sent
    assert status == 413


def test_large_bodies_in_memory_at_once_are_limited():
    class Sent:
        def __init__(self, size):
            self.headers = {"content-length": str(size)}
            self.arrived = asyncio.Event()

        async def __call__(self):
            await self.arrived.wait()
            return b"x"

    async def three():
        reader = BodyReader(Limits(bytes_at_once=500_000))
        bodies = [Sent(200_000), Sent(250_000), Sent(90_000), Sent(200_000)]
        tasks = [asyncio.ensure_future(reader.read(body.headers, body)) for body in bodies]
        await asyncio.sleep(0)
        for body in bodies:
            body.arrived.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)
        return found, await asyncio.ensure_future(reader.read(bodies[3].headers, bodies[3]))

    (*fine, refused), later = asyncio.run(three())
    assert fine == [b"x"] * 3, "a short body is never in the way"
    assert (refused.status, dict(refused.headers)["retry-after"], later) == (429, "1", b"x")


def test_a_client_that_sends_too_slowly_is_answered_and_let_go(shared):
    import socket

    with socket.create_connection(("127.0.0.1", shared.port), 30) as slow:
        slow.sendall(b"POST /calibrate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        answer = slow.recv(4096)
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_wrong_paths_and_methods(shared):
    assert shared.get("/nothing").status == 404
    wrong = shared.get("/calibrate")
    assert wrong.status == 405
    assert wrong.headers["allow"] == "POST"


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Models of other kinds: logits without a field, several fields, a field without a name."""
    rng = np.random.default_rng(4)
    number = 4_000
    logits = rng.normal(-2.0, 1.0, number)
    label = (rng.random(number) < 1.0 / (1.0 + np.exp(-logits))).astype(float)
    score = 1.0 / (1.0 + np.exp(-logits))
    fields = {"country": rng.choice(["NL", "FR"], number), "source": rng.choice(np.array([1, 2, None], object), number)}
    folder = tmp_path_factory.mktemp("others")
    found = {
        "logits": mcnet.Platt().fit(logits, label, score_type="logit").model_,
        "several": mcnet.PerField("isotonic").fit(score, label, field=fields).model_,
        "unnamed": mcnet.PerField("platt").fit(score, label, field=fields["country"]).model_,
    }
    registry = Registry(folder / "registry")
    for name, model in found.items():
        registry.add(model, name)
    with running(folder / "registry", folder) as service:
        yield service, found


def test_a_model_of_logits_without_a_field(others):
    service, models = others
    assert service.change("/versions/1/promote").status == 200
    expected = models["logits"].predict([-3.0, 2.5]).tolist()
    assert service.calibrate([-3.0, 2.5])["calibrated"] == expected
    assert service.calibrate(2.5)["calibrated"] == expected[1]
    as_probability = service.calibrate([0.2], score_type="probability")["calibrated"]
    assert as_probability == models["logits"].predict([0.2], score_type="probability").tolist()
    refused = service.post("/calibrate", {"score": [0.5] * 40})
    assert refused.status == 400
    assert '"score_type": "probability" if' in refused.document["detail"]
    refused = service.post("/calibrate", {"score": [0.5], "field": {"country": ["NL"]}})
    assert "needs: no field" in refused.document["detail"]


def test_a_model_of_several_fields_with_missing_values(others):
    service, models = others
    assert service.change("/versions/2/promote").status == 200
    field = {"country": ["NL", "FR", "XX"], "source": [1, None, 2]}
    expected = models["several"].predict([0.1, 0.2, 0.3], field).tolist()
    assert service.calibrate([0.1, 0.2, 0.3], field)["calibrated"] == expected
    assert service.calibrate(0.2, {"source": None, "country": "FR"})["calibrated"] == expected[1]
    lacking = service.post("/calibrate", {"score": [0.1], "field": {"country": ["NL"]}})
    assert lacking.document["detail"] == "fields given: country; version 2 needs: country, source"


def test_a_model_whose_field_has_no_name_takes_any(others):
    service, models = others
    assert service.change("/versions/3/promote").status == 200
    expected = models["unnamed"].predict([0.1], ["FR"]).tolist()
    assert service.calibrate([0.1], {"country": ["FR"]})["calibrated"] == expected
    assert service.calibrate([0.1], {"field": ["FR"]})["calibrated"] == expected
