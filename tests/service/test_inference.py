"""The Open Inference Protocol, asked by Triton's own client, and by hand where that client would not go."""

import json

import numpy as np
import pytest

NAMES = ["NL", "FR", "never seen"]
SCORES = np.array([0.02, 0.3, 0.3])


@pytest.fixture(scope="module")
def triton():
    return pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed")


@pytest.fixture
def client(triton, shared):
    with triton.InferenceServerClient(f"127.0.0.1:{shared.port}") as found:
        yield found


def inputs(triton, binary, scores=SCORES, names=NAMES):
    score = triton.InferInput("score", [len(scores)], "FP64")
    score.set_data_from_numpy(scores, binary_data=binary)
    country = triton.InferInput("country", [len(names)], "BYTES")
    country.set_data_from_numpy(np.array(names, dtype=object), binary_data=binary)
    return [score, country]


def test_the_client_finds_server_model_and_versions(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("calibration")
    assert client.is_model_ready("calibration", "2")
    assert not client.is_model_ready("calibration", "9")
    assert not client.is_model_ready("another")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    found = client.get_model_metadata("calibration")
    assert found["versions"] == ["1", "2", "3"]
    assert [tensor["name"] for tensor in found["inputs"]] == ["score", "country"]


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
def test_the_client_gets_what_the_model_predicts(triton, client, models, binary_in, binary_out):
    wanted = None if binary_out is None else [triton.InferRequestedOutput("calibrated", binary_data=binary_out)]
    found = client.infer("calibration", inputs(triton, binary_in), outputs=wanted, request_id="7")
    expected = models[0].predict(SCORES, {"country": NAMES})
    assert found.as_numpy("calibrated").tolist() == expected.tolist()
    assert found.get_response()["model_version"] == "1"
    assert found.get_response()["id"] == "7"


def test_a_version_can_be_named(triton, client, models):
    for place in (2, 1, 0):
        found = client.infer("calibration", inputs(triton, True), model_version=str(1 + place))
        assert found.as_numpy("calibrated").tolist() == models[place].predict(SCORES, {"country": NAMES}).tolist()


def test_intervals_are_outputs(triton, client, models):
    wanted = [triton.InferRequestedOutput(name) for name in ("low", "high")]
    found = client.infer("calibration", inputs(triton, True), outputs=wanted, parameters={"interval": 0.5})
    low, high = models[0].interval(SCORES, {"country": NAMES}, 0.5)
    assert found.as_numpy("low").tolist() == low.tolist()
    assert found.as_numpy("high").tolist() == high.tolist()


def test_many_rows_and_float32(triton, client, models):
    rng = np.random.default_rng(3)
    scores, names = rng.random(40_000).astype(np.float32), rng.choice(["NL", "DE"], 40_000).tolist()
    score = triton.InferInput("score", [40_000, 1], "FP32")
    score.set_data_from_numpy(scores[:, None])
    found = client.infer("calibration", [score, inputs(triton, True, np.zeros(40_000), names)[1]])
    assert found.as_numpy("calibrated").shape == (40_000, 1)
    assert found.as_numpy("calibrated")[:, 0].tolist() == models[0].predict(scores, {"country": names}).tolist()


def test_the_client_is_told_what_is_wrong(triton, client):
    with pytest.raises(triton.InferenceServerException, match="outside"):
        client.infer("calibration", inputs(triton, True, scores=np.array([0.1, 2.0, 0.3])))
    with pytest.raises(triton.InferenceServerException, match="needs: country"):
        client.infer("calibration", inputs(triton, True)[:1])
    with pytest.raises(triton.InferenceServerException, match="no such model"):
        client.infer("another", inputs(triton, True))


def tensor(name, datatype, data, shape=None, **more):
    return {"name": name, "datatype": datatype, "shape": shape or [len(data)], "data": data, **more}


def test_missing_values_in_json_and_by_a_reserved_text(shared, models):
    expected = models[0].predict([0.1, 0.1], {"country": [None, "NL"]}).tolist()
    score = tensor("score", "FP64", [0.1, 0.1])
    for country in (
        tensor("country", "BYTES", [None, "NL"]),
        tensor("country", "BYTES", ["none", "NL"], parameters={"missing": "none"}),
    ):
        answer = shared.post("/v2/models/calibration/infer", {"inputs": [score, country]})
        assert answer.document["outputs"][0]["data"] == expected


NO_DATA = {"name": "score", "datatype": "FP64", "shape": [1]}


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([], "needs score"),
        ([tensor("score", "FP64", [0.1], [2])], "shape says 2 values"),
        ([tensor("score", "FP64", [0.1], [-1])], "one column"),
        ([tensor("score", "FP64", [0.1] * 4, [2, 2])], "one column"),
        ([tensor("score", "FP65", [0.1])], "datatype"),
        ([tensor("score", "FP64", ["a"])], "not of FP64"),
        ([tensor("score", "FP64", [None])], "null"),
        ([tensor("score", "UINT8", [700])], "not of UINT8"),
        ([tensor("score", "INT64", [0.9])], "0.9 is not of INT64"),
        ([tensor("score", "FP64", [True])], "True is not of FP64"),
        ([tensor("score", "FP64", [0.1]), tensor("country", "INT64", [1.9])], "1.9 is not of INT64"),
        ([tensor("score", "FP64", [0.1]), tensor("country", "BOOL", [5])], "5 is not of BOOL"),
        ([tensor("score", "BYTES", ["0.1"])], "must be of FP64"),
        ([tensor("score", "FP64", [0.1]), tensor("score", "FP64", [0.1])], "given twice"),
        ([NO_DATA], "no data"),
        ([tensor("score", "FP64", []), tensor("country", "BYTES", ["NL"])], "score has 0 rows, country has 1"),
        ([tensor("score", "FP64", [0.1, 0.2]), tensor("country", "BYTES", ["NL"])], "score has 2 rows, country has 1"),
        (
            [{"name": "score", "datatype": "FP64", "shape": [1], "parameters": {"binary_data_size": 8}}],
            "bytes are left",
        ),
    ],
)
def test_tensors_that_cannot_be_read(shared, inputs, said):
    answer = shared.post("/v2/models/calibration/infer", {"inputs": inputs})
    assert answer.status == 400
    assert said in answer.document["error"]


def test_binary_parts_that_do_not_fit(shared):
    def ask(head, rest, length=None):
        head = json.dumps(head).encode()
        sent = {"Inference_Header_Content_Length": str(len(head) if length is None else length)}
        return shared.ask("POST", "/v2/models/calibration/infer", head + rest, **sent)

    score = tensor("score", "FP64", [0.1])
    texts = {"name": "country", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 6}}
    good = ask({"inputs": [score, texts]}, b"\2\0\0\0NL")
    assert good.status == 200
    for rest in (b"\3\0\0\0NL", b"\1\0\0\0NL", b"\2\0\0\0NL!", b"NL"):
        assert ask({"inputs": [score, texts]}, rest).status == 400
    for length in (-1, "x", 10**6, 10**30):
        assert ask({"inputs": [score, texts]}, b"\2\0\0\0NL", length).status == 400
