"""The Open Inference Protocol, asked by Triton's own client, and by hand where that client would not go."""

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


def inputs(triton, scores=SCORES, names=NAMES):
    score = triton.InferInput("score", [len(scores)], "FP64")
    score.set_data_from_numpy(scores, binary_data=False)
    country = triton.InferInput("country", [len(names)], "BYTES")
    country.set_data_from_numpy(np.array(names, dtype=object), binary_data=False)
    return [score, country]


def test_the_client_finds_server_model_and_versions(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("calibration")
    assert client.is_model_ready("calibration", "2")
    assert not client.is_model_ready("calibration", "9")
    assert not client.is_model_ready("another")
    assert client.get_server_metadata()["extensions"] == []
    found = client.get_model_metadata("calibration")
    assert found["versions"] == ["1", "2", "3"]
    assert [tensor["name"] for tensor in found["inputs"]] == ["score", "country"]


@pytest.mark.parametrize("binary_out", [True, False, None])
def test_the_client_gets_what_the_model_predicts(triton, client, models, binary_out):
    wanted = None if binary_out is None else [triton.InferRequestedOutput("calibrated", binary_data=binary_out)]
    found = client.infer("calibration", inputs(triton), outputs=wanted, request_id="7")
    expected = models[0].predict(SCORES, {"country": NAMES})
    assert found.as_numpy("calibrated").tolist() == expected.tolist()
    assert found.get_response()["model_version"] == "1"
    assert found.get_response()["id"] == "7"


def test_a_version_can_be_named(triton, client, models):
    for place in (2, 1, 0):
        found = client.infer("calibration", inputs(triton), model_version=str(1 + place))
        assert found.as_numpy("calibrated").tolist() == models[place].predict(SCORES, {"country": NAMES}).tolist()


def test_intervals_are_outputs(triton, client, models):
    wanted = [triton.InferRequestedOutput(name) for name in ("low", "high")]
    found = client.infer("calibration", inputs(triton), outputs=wanted, parameters={"interval": 0.5})
    low, high = models[0].interval(SCORES, {"country": NAMES}, 0.5)
    assert found.as_numpy("low").tolist() == low.tolist()
    assert found.as_numpy("high").tolist() == high.tolist()


def test_many_rows_and_float32(triton, client, models):
    rng = np.random.default_rng(3)
    scores, names = rng.random(40_000).astype(np.float32), rng.choice(["NL", "DE"], 40_000).tolist()
    score = triton.InferInput("score", [40_000, 1], "FP32")
    score.set_data_from_numpy(scores[:, None], binary_data=False)
    found = client.infer("calibration", [score, inputs(triton, np.zeros(40_000), names)[1]])
    assert found.as_numpy("calibrated").shape == (40_000, 1)
    assert found.as_numpy("calibrated")[:, 0].tolist() == models[0].predict(scores, {"country": names}).tolist()


def test_the_client_is_told_what_is_wrong(triton, client):
    with pytest.raises(triton.InferenceServerException, match="outside"):
        client.infer("calibration", inputs(triton, scores=np.array([0.1, 2.0, 0.3])))
    with pytest.raises(triton.InferenceServerException, match="needs: country"):
        client.infer("calibration", inputs(triton)[:1])
    with pytest.raises(triton.InferenceServerException, match="no such model"):
        client.infer("another", inputs(triton))


def tensor(name, datatype, data, shape=None, **more):
    return {"name": name, "datatype": datatype, "shape": shape or [len(data)], "data": data, **more}


def test_missing_values_are_null(shared, models):
    expected = models[0].predict([0.1, 0.1], {"country": [None, "NL"]}).tolist()
    asked = {"inputs": [tensor("score", "FP64", [0.1, 0.1]), tensor("country", "BYTES", [None, "NL"])]}
    assert shared.post("/v2/models/calibration/infer", asked).document["outputs"][0]["data"] == expected


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
        ([tensor("score", "INT64", [0.9])], "not of INT64"),
        ([tensor("score", "FP64", [True])], "not of FP64"),
        ([tensor("score", "FP64", [0.1]), tensor("country", "INT64", [1.9])], "not of INT64"),
        ([tensor("score", "FP64", [0.1]), tensor("country", "BOOL", [5])], "not of BOOL"),
        ([tensor("score", "BYTES", ["0.1"])], "must be of FP16"),
        ([tensor("score", "FP64", [0.1]), tensor("score", "FP64", [0.1])], "given twice"),
        ([NO_DATA], "no data"),
        ([tensor("score", "FP64", []), tensor("country", "BYTES", ["NL"])], "score has 0 rows, country has 1"),
        ([tensor("score", "FP64", [0.1, 0.2]), tensor("country", "BYTES", ["NL"])], "score has 2 rows, country has 1"),
    ],
)
def test_tensors_that_cannot_be_read(shared, inputs, said):
    answer = shared.post("/v2/models/calibration/infer", {"inputs": inputs})
    assert answer.status == 400
    assert said in answer.document["error"]


def test_binary_tensors_are_refused_with_what_to_send(triton, client):
    score = triton.InferInput("score", [1], "FP64")
    score.set_data_from_numpy(np.array([0.1]), binary_data=True)
    with pytest.raises(triton.InferenceServerException, match="binary_data=False"):
        client.infer("calibration", [score, inputs(triton, names=["NL"])[1]])
