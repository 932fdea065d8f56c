"""`POST /calibrate` in JSON: what a model predicts, and errors that say what, where and what to do."""

import contextlib
import re
import socket
import struct

import numpy as np
import pytest
from tests.service.running import TOKEN, running

import mcnet
from mcnet.store.versions import Registry


def test_columns_and_records_are_answered_with_what_the_model_predicts(shared, models):
    score, country = [0.02, 0.3, 0.3, 0.0, 1.0], ["NL", "FR", None, "never seen", "DE"]
    expected = models[0].predict(score, {"country": country}).tolist()
    assert shared.calibrate(score, {"country": country}) == {"calibrated": expected, "version": "1"}
    records = [{"score": s, "country": c} for s, c in zip(score, country, strict=True)]
    assert shared.post("/calibrate", records).document == {"calibrated": expected, "version": "1"}
    for place in range(5):
        one = shared.calibrate([score[place]], {"country": [country[place]]})
        assert one == {"calibrated": [expected[place]], "version": "1"}
        assert shared.post("/calibrate", [records[place]]).document == one


def counted(service, metric):
    (line,) = (x for x in service.get("/metrics").body.decode().splitlines() if re.match(rf"{metric}[ {{]", x))
    return int(float(line.split()[1]))


def test_keys_of_records_that_the_model_lacks_are_ignored_and_counted(shared, models):
    expected = models[0].predict([0.1], {"country": ["NL"]}).tolist()
    before = counted(shared, "mcnet_unknown_keys_total")
    assert shared.post("/calibrate", [{"score": 0.1, "country": "NL"}]).document["calibrated"] == expected
    assert counted(shared, "mcnet_unknown_keys_total") == before
    bid = {"id": "7", "imp": [{"banner": {"w": 300}}], "country": "NL", "score": 0.1, "tmax": None}
    assert shared.post("/calibrate", [bid]).document["calibrated"] == expected
    assert shared.post("/calibrate", [bid, {"score": 0.1, "country": "NL"}]).document["calibrated"] == expected * 2
    assert counted(shared, "mcnet_unknown_keys_total") == before + 6
    assert shared.post("/calibrate", [{**bid, "country": None}]).status == 200
    del bid["country"]
    lacking = shared.post("/calibrate", [bid])
    assert (lacking.status, counted(shared, "mcnet_unknown_keys_total")) == (400, before + 9)


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
    one = shared.calibrate([0.02], {"country": ["NL"]}, interval=0.8)
    assert (one["low"], one["high"]) == ([low[0]], [high[0]])


def test_a_problem_has_the_column_and_the_row_and_advice_for_clients(shared):
    answer = shared.post("/calibrate", {"score": [0.1, 1.2], "field": {"country": ["NL", "NL"]}})
    assert (answer.document["column"], answer.document["row"]) == ("score", 1)
    assert answer.document["detail"] == (
        'score has 1 value outside [0, 1] (first: row 1, 1.2); send logits with "score_type": "logit", percentages '
        "divided by 100"
    )


def test_no_rows_are_no_mistake(shared):
    assert shared.calibrate([], {"country": []})["calibrated"] == []
    assert shared.post("/calibrate", []).document["calibrated"] == []


@pytest.mark.parametrize(
    ("body", "at", "said"),
    [
        ({"score": [0.1, 1.2], "field": {"country": ["NL", "NL"]}}, "$.score[1]", "outside [0, 1]"),
        ([{"score": 1.2, "country": "NL"}], "$.score[0]", "score_type"),
        ({"score": [0.1, None], "field": {"country": ["NL", "NL"]}}, "$.score[1]", "Expected `float`, got `null`"),
        ({"score": ["0.1"], "field": {"country": ["NL"]}}, "$.score[0]", "Expected `float`, got `str`"),
        ({"score": [0.1]}, "$.field", "needs: country"),
        ({"score": [0.1], "field": {"land": ["NL"]}}, "$.field", "fields given: land"),
        ({"score": [0.1], "field": {"country": ["NL"], "x": [1]}}, "$.field", "country, x"),
        ({"score": [0.1, 0.2], "field": {"country": ["NL"]}}, None, "differ in length"),
        ({"score": [0.1], "field": {"country": "NL"}}, "$.field[...]", "Expected `array`, got `str`"),
        ({"score": 0.1, "field": {"country": "NL"}}, "$.score", 'or records, [{"score": 0.1, "country": "NL"}]'),
        ({"score": [0.1], "field": {"country": [["NL"]]}}, "$.field[...][0]", "got `array`"),
        ({"scores": [0.1]}, "$", "unknown field `scores`"),
        ({"score": [0.1], "label": [1]}, "$", "unknown field `label`"),
        ({"score": [0.1], "country": ["NL"]}, "$", "unknown field `country`"),
        ({"score": [0.1], "field": {"country": ["NL"]}, "interval": 2}, None, "level"),
        ([{"score": 0.1}], "$[0]", "lacks country"),
        ([{"score": 0.1, "country": "NL", "interval": 0.9}], "$[0]", "a record has no interval"),
        ([{"score": 0.1, "country": "NL"}, {"score": 0.1, "country": {"a": 1}}], "$[1].country", "is an object"),
        ([{"score": 0.1, "land": "NL"}], "$[0]", "lacks country"),
        ({"score": 0.1, "country": "NL"}, "$.score", "send columns"),
        ([{"score": 0.1, "country": ["NL"]}], "$[0].country", "is a list"),
        ([{"score": 0.1, "country": "NL", "score_type": "logit"}], "$[0]", "a record has no score_type"),
        ([{"score": 10**400, "country": "NL"}], "$[0].score", "number"),
        ({"score": [0.1], "field": {"country": ["NL"]}, "x": 1}, "$", "unknown field `x`"),
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


def test_a_client_that_sends_its_body_too_slowly_is_answered_and_let_go(shared):
    with socket.create_connection(("127.0.0.1", shared.port), 30) as slow:
        slow.sendall(b"POST /calibrate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        answer = b"".join(iter(lambda: slow.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_head_that_comes_too_slowly_or_is_too_large_ends_the_connection(shared):
    with socket.create_connection(("127.0.0.1", shared.port), 30) as slow:
        slow.sendall(b"POST /cal")
        assert slow.recv(4096) == b""
    with socket.create_connection(("127.0.0.1", shared.port), 30) as large:
        large.sendall(b"POST /calibrate HTTP/1.1\r\nX: " + b"y" * 30_000)
        large.sendall(b"y" * 40_000)
        with contextlib.suppress(ConnectionResetError):
            assert large.recv(4096)[:13] in (b"HTTP/1.1 400 ", b"")


def test_a_client_that_sends_no_more_is_answered(shared):
    body = b'{"score": [0.1], "field": {"country": ["NL"]}}'
    with socket.create_connection(("127.0.0.1", shared.port), 30) as one:
        one.sendall(b"POST /calibrate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        one.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda: one.recv(4096), b"")).startswith(b"HTTP/1.1 200 ")


def test_parameters_that_are_unknown_or_of_another_form_are_refused(shared):
    for query in ("surprise=1", "interval=0.9", "score_type=logit"):
        answer = shared.post(f"/calibrate?{query}", {"score": [0.1], "field": {"country": ["NL"]}})
        assert (answer.status, answer.document["at"]) == (400, "query"), query
    for path in ("/rollback", "/hold", "/release", "/reload"):
        assert "surprise" in shared.change(f"{path}?surprise=1").document["detail"]


BODY = b'{"score": [0.1], "field": {"country": ["NL"]}}'
INFER = b'{"inputs": [{"name": "score", "datatype": "FP64", "shape": [1], "data": [0.1]}]}'


@pytest.mark.parametrize("end", ["close", "half-close", "reset", "no chunk"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/calibrate", BODY),
        ("/feedback", BODY),
        ("/v2/models/calibration/infer", INFER),
        ("/versions/2/promote", b"{}"),
        ("/rollback", b"{}"),
        ("/hold", b"{}"),
        ("/release", b"{}"),
        ("/reload", b"{}"),
    ],
)
def test_a_client_that_ends_in_the_middle_of_its_body_changes_nothing_and_is_no_error(pair, path, body, end):
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
    chunk = b"%x\r\n%b\r\n" % (len(body), body)
    for sent in (
        b"Content-Length: %d\r\n\r\n%b" % (len(body) + 1, body),
        b"Transfer-Encoding: chunked\r\n\r\n" + chunk,
    ):
        with socket.create_connection(("127.0.0.1", pair.port), 30) as one:
            if end == "no chunk":  # what follows is not the size of a chunk
                one.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + b"zz\r\n")
            else:
                one.sendall(head + sent)
            if end == "half-close":
                one.shutdown(socket.SHUT_WR)
            if end in ("half-close", "no chunk"):
                assert one.recv(4096).startswith(b"HTTP/1.1 400 ")
            elif end == "reset":
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert pair.events("unexpected error") == []
    assert pair.get("/versions").document["current"] == "1"
    assert pair.get("/versions").document["held"] is None
    assert counted(pair, 'mcnet_requests_total{route="calibrate",status="5xx"}') == 0


def test_wrong_paths_and_methods(shared):
    assert shared.get("/nothing").status == 404
    wrong = shared.get("/calibrate")
    assert wrong.status == 405
    assert wrong.headers["allow"] == "POST"
    assert shared.ask("HEAD", "/v2").status == 200


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
    registry = Registry(folder / "ads.db")
    for name, model in found.items():
        registry.add(model, name)
    with running(folder / "ads.db", folder) as service:
        yield service, found


def serve_version(service, version):
    """Promote a version that takes other requests than the current one."""
    Registry(service.log_file.parent / "ads.db").promote(version, force=True)
    assert service.change("/reload").status == 200


def test_a_model_of_logits_without_a_field(others):
    service, models = others
    serve_version(service, 1)
    expected = models["logits"].predict([-3.0, 2.5]).tolist()
    assert service.calibrate([-3.0, 2.5])["calibrated"] == expected
    assert service.calibrate([2.5])["calibrated"] == expected[1:]
    as_probability = service.calibrate([0.2], score_type="probability")["calibrated"]
    assert as_probability == models["logits"].predict([0.2], score_type="probability").tolist()
    refused = service.post("/calibrate", {"score": [0.5] * 40})
    assert refused.status == 400
    assert '"score_type": "probability" if' in refused.document["detail"]
    refused = service.post("/calibrate", {"score": [0.5], "field": {"country": ["NL"]}})
    assert "needs: no field" in refused.document["detail"]


def test_a_model_of_several_fields_with_missing_values(others):
    service, models = others
    serve_version(service, 2)
    field = {"country": ["NL", "FR", "XX"], "source": [1, None, 2]}
    expected = models["several"].predict([0.1, 0.2, 0.3], field).tolist()
    assert service.calibrate([0.1, 0.2, 0.3], field)["calibrated"] == expected
    assert service.calibrate([0.2], {"source": [None], "country": ["FR"]})["calibrated"] == expected[1:2]
    lacking = service.post("/calibrate", {"score": [0.1], "field": {"country": ["NL"]}})
    assert lacking.document["detail"] == "fields given: country; version 2 needs: country, source"


def test_a_model_whose_field_has_no_name_takes_any(others):
    service, models = others
    serve_version(service, 3)
    expected = models["unnamed"].predict([0.1], ["FR"]).tolist()
    assert service.calibrate([0.1], {"country": ["FR"]})["calibrated"] == expected
    assert service.calibrate([0.1], {"field": ["FR"]})["calibrated"] == expected
