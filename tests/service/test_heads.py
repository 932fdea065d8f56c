"""One service for every head of a store: paths, tokens, heads that come and go, and heads that cannot be served."""

import re

import pytest
from tests.service.running import TOKEN, running
from tests.service.test_feedback import PERIOD, feedback
from tests.service.test_reload import alter

from mcnet.errors import InputError
from mcnet.operations.service.settings import read_tokens
from mcnet.sketch.sketch import Sketch
from mcnet.store.schema import versions
from mcnet.store.store import Store

ONE = {"score": [0.1], "field": {"country": ["NL"]}}
TENSORS = {
    "inputs": [
        {"name": "score", "datatype": "FP64", "shape": [1], "data": [0.1]},
        {"name": "country", "datatype": "BYTES", "shape": [1], "data": ["NL"]},
    ]
}
ONLY_CVR = "a-token-for-cvr-alone-0123456789"


@pytest.fixture(scope="module")
def service(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    store = Store(folder / "ads.db")
    store.add_head("empty")
    for head, model in zip(("default", "cvr", "add to-cart"), models, strict=True):
        store.add_head(head)
        store.versions(head).add(model)
    store.versions("cvr").add(models[0])
    store.configure("cvr", every="1h")
    store.journal("empty").add(Sketch.from_rows([0.1, 0.2], [0, 1]), PERIOD, source="logs")
    tokens = folder / "tokens"
    tokens.write_text(f"{TOKEN}\n\n{ONLY_CVR} heads=cvr, empty\n")
    tokens.chmod(0o600)
    with running(store.name, folder, "--workers", "2", "--token-file", str(tokens), "--poll", "0.1", token=None) as one:
        yield one


@pytest.fixture
def store(service):
    return Store(service.log_file.parent / "ads.db")


def test_every_head_is_served_under_its_name_and_the_default_one_without(service, models):
    expected = {
        "/calibrate": models[0],
        "/heads/default/calibrate": models[0],
        "/heads/cvr/calibrate": models[1],
        "/heads/add%20to-cart/calibrate": models[2],
    }
    for path, model in expected.items():
        wanted = {"calibrated": model.predict([0.1], ONE["field"]).tolist(), "version": "1"}
        assert service.post(path, ONE).document == wanted
        assert service.post(path, ONE, Content_Type="text/json").status == 415, "also on the long way"
    for name, model in (("cvr", models[1]), ("calibration", models[0]), ("default", models[0])):
        answer = service.post(f"/v2/models/{name}/infer", TENSORS).document
        assert answer["model_name"] == name
        assert answer["outputs"][0]["data"] == model.predict([0.1], ONE["field"]).tolist()
    assert service.post("/v2/models/cvr/versions/2/infer", TENSORS).document["model_version"] == "2"
    listed = {one["head"]: (one["version"], one["default"]) for one in service.get("/heads").document}
    assert listed == {"add to-cart": ("1", False), "cvr": ("1", False), "default": ("1", True), "empty": (None, False)}


def test_a_head_that_does_not_exist_or_has_no_version_is_told(service):
    unknown = service.post("/heads/nope/calibrate", ONE)
    assert (unknown.status, "this service has add to-cart, cvr" in unknown.document["detail"]) == (404, True)
    assert service.post("/v2/models/nope/infer", TENSORS).status == 404
    for path in ("/heads/empty/calibrate", "/v2/models/empty/infer"):
        answer = service.post(path, ONE if "heads" in path else TENSORS)
        assert (answer.status, "has no version yet" in answer.document["detail"]) == (409, True)
    assert service.get("/heads/empty/status").document["service"]["served"] is None
    assert service.change("/heads/nope/feedback", feedback(1, "x")).status == 404


def test_feedback_and_versions_of_heads_are_apart(service, store):
    assert service.change("/heads/cvr/feedback", feedback(1, "same key")).status == 201
    assert service.change("/feedback", feedback(2, "same key")).status == 201
    one_row = {"score": [0.1], "label": [1], "key": "a"}
    present = service.change("/heads/cvr/feedback", one_row | {"field": {"country": ["NL"]}})
    assert present.status == 201, "cvr has periods of an hour by its own settings"
    assert service.change("/heads/empty/feedback", one_row | {"period": PERIOD}).status == 201
    assert service.change("/feedback", one_row | {"field": {"country": ["NL"]}}).document["at"] == "$.period"
    found = {head: store.journal(head).sketch().rows for head in ("default", "cvr", "empty")}
    assert found == {"default": 50, "cvr": 51, "empty": 3}
    moved = service.change("/heads/cvr/versions/2/promote").document
    assert moved == {"version": "2", "workers": ["2", "2"], "held": False}
    assert {service.post("/heads/cvr/calibrate", ONE).document["version"] for _ in range(10)} == {"2"}
    assert service.post("/calibrate", ONE).document["version"] == "1"
    assert service.change("/heads/cvr/rollback").document["version"] == "1"
    assert store.versions("cvr").held is not None
    metrics = service.get("/metrics").body.decode()
    assert '\nmcnet_model_held{head="cvr"} 1.0\n' in metrics
    assert '\nmcnet_feedback_rows_total{head="default"} 50.0\n' in metrics


def test_only_a_head_with_two_versions_can_be_rolled_back(service):
    button = r'<button type="button" id="rollback"[^>]*?( disabled)?>'
    for head, disabled in (("cvr", None), ("add%20to-cart", " disabled")):
        assert re.search(button, service.get(f"/heads/{head}/").body.decode())[1] == disabled


def test_a_token_for_one_head_changes_no_other_one(service, store):
    assert service.post("/heads/cvr/hold", token=ONLY_CVR).status == 200
    assert service.post("/heads/cvr/release", token=ONLY_CVR).status == 200
    for path in ("/hold", "/heads/default/hold", "/heads/nope/hold", "/feedback"):
        answer = service.post(path, token=ONLY_CVR)
        assert (answer.status, "for other heads" in answer.document["detail"]) == (403, True), path
    assert service.post("/heads/cvr/hold", token=ONLY_CVR + "x").status == 401
    assert store.versions("default").held is None
    assert ONLY_CVR not in service.log_file.read_text()


def test_heads_that_come_and_go_are_served_at_once(service, store, models):
    store.add_head("new")
    store.versions("new").add(models[2])
    service.wait_for("the head", lambda: service.post("/heads/new/calibrate", ONE).status == 200)
    store.versions("new").add(models[1])
    store.versions("new").promote(2)
    service.wait_for("its version", lambda: service.post("/heads/new/calibrate", ONE).document.get("version") == "2")
    store.remove_head("new")
    service.wait_for("its end", lambda: service.post("/heads/new/calibrate", ONE).status == 404)
    assert service.post("/calibrate", ONE).status == 200
    assert service.events("unexpected error") == []


def test_a_head_that_cannot_be_served_does_not_keep_the_others_from_it(registry, models, tmp_path):
    registry.store.add_head("cvr")
    registry.store.versions("cvr").add(models[1])
    alter(registry, versions.update().where(versions.c.number == 1, versions.c.head == 1).values(model=b"{}"))
    with running(registry.path, tmp_path, "--head", "cvr") as service:
        assert service.post("/calibrate", ONE).document["version"] == "1", "of cvr, as --head says"
        refused = service.post("/heads/default/calibrate", ONE)
        assert (refused.status, "altered" in refused.document["detail"]) == (503, True)
        assert str(tmp_path) not in refused.document["detail"]
        assert service.events("version refused")[0]["head"] == "default"
        assert service.change("/heads/default/versions/2/promote").status == 200
        assert service.post("/heads/default/calibrate", ONE).document["version"] == "2"


def test_without_a_default_head_the_path_must_name_one(models, tmp_path):
    store = Store(tmp_path / "ads.db")
    for head in ("ctr", "cvr"):
        store.add_head(head)
        store.versions(head).add(models[0])
    with running(store.name, tmp_path) as service:
        answer = service.post("/calibrate", ONE)
        assert (answer.status, "the heads ctr, cvr; name one of them" in answer.document["detail"]) == (404, True)
        assert service.post("/heads/ctr/calibrate", ONE).status == 200


def test_tokens_are_read_with_their_heads(tmp_path):
    file = tmp_path / "tokens"
    file.touch(0o600)
    file.write_text(f"{TOKEN}\n{ONLY_CVR} heads=cvr,add to cart\n")
    first, second = read_tokens(file)
    assert (first.heads, second.heads) == (None, {"cvr", "add to cart"})
    assert TOKEN not in repr(first)
    for text in (f"{TOKEN} cvr", f"{TOKEN} heads=", "", "short heads=cvr"):
        file.write_text(text)
        with pytest.raises(InputError, match=r"token in"):
            read_tokens(file)
