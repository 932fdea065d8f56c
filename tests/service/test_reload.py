"""The service follows the store: promote, rollback, a damaged version, several workers, and requests meanwhile."""

import asyncio
import concurrent.futures
import contextlib
import resource
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from tests.service.running import TOKEN, running

from mcnet.calibrators.parametric import Platt
from mcnet.operations.service.served import ServedHeads
from mcnet.store.schema import heads, versions
from mcnet.store.versions import Registry

ONE = {"score": [0.1], "field": {"country": ["NL"]}}


@pytest.fixture
def registry_of(pair):
    """The registry of the service that the tests share, with its first version current."""
    found = Registry(pair.log_file.parent / "ads.db")
    assert pair.change("/versions/1/promote").status == 200
    return found


def alter(registry, statement):
    """Change a table behind everybody's back."""
    with registry.store.database.writing() as connection:
        connection.execute(statement)


def served(service, times=20):
    return {service.post("/calibrate", ONE).document["version"] for _ in range(times)}


def test_a_version_promoted_elsewhere_is_served_by_every_worker(pair, registry_of, models):
    before = len(pair.events("version loaded"))
    registry_of.promote(2)
    pair.wait_for("two reloads", lambda: len(pair.events("version loaded")) == before + 2)
    expected = models[1].predict([0.1], {"country": ["NL"]}).tolist()
    for _ in range(20):
        assert pair.post("/calibrate", ONE).document == {"calibrated": expected, "version": "2"}
    registry_of.rollback()
    pair.wait_for("two more", lambda: len(pair.events("version loaded")) == before + 4)
    assert served(pair) == {"1"}


def test_promote_and_rollback_are_answered_when_every_worker_serves_the_version(pair, registry_of):
    for version in ("3", "2", "3"):
        answer = pair.change(f"/versions/{version}/promote?note=why")
        assert answer.document == {"version": version, "workers": [version, version], "held": version == "2"}
        assert served(pair, 10) == {version}
    assert pair.change("/rollback").document == {"version": "2", "workers": ["2", "2"], "held": True}
    assert registry_of.current.name == "2"
    assert pair.get("/versions").document["held"]["reason"] == "rolled back from version 3"
    assert '\nmcnet_model_held{head="default"} 1.0\n' in pair.get("/metrics").body.decode()
    assert pair.change("/release?note=looked+at").document == {"version": "2", "workers": ["2", "2"], "held": False}
    assert pair.change("/hold").document["held"]
    assert pair.change("/release?note=looked+at").document["held"] is False
    assert (registry_of.held, registry_of.history()[-1]["note"]) == (None, "looked at")
    assert [line.get("note") for line in registry_of.history() if line["event"] == "promoted"][-1] == "why"
    assert pair.change("/versions/latest/promote").document["version"] == "3"
    assert pair.change("/versions/9/promote").status == 404


@contextlib.contextmanager
def full_disk(service, file_bytes):
    """Let no worker write a file beyond a size: that fails like a full disk, in the middle of writing."""
    for pid in service.workers():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (file_bytes, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        for pid in service.workers():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.mark.skipif(sys.platform != "linux", reason="the limits of another process can be set on Linux alone")
def test_a_full_disk_is_a_503_that_says_what_is_current(pair, registry_of):
    assert pair.change("/versions/2/promote").status == 200
    assert pair.change("/release").status == 200
    with full_disk(pair, 10):
        for path in ("/versions/3/promote", "/rollback", "/hold"):
            answer = pair.change(path)
            assert answer.status == 503, (path, answer.body)
            assert answer.document["detail"] == (
                "the store cannot be written (no space left on the disk, nothing was added); version 2 is current"
            )
            assert answer.headers["retry-after"]
        assert served(pair) == {"2"}
        assert pair.change("/reload").status == 200  # it writes nothing but a line of the log
    assert pair.change("/hold").status == 200
    with full_disk(pair, 10):
        assert "version 2 is current, held" in pair.change("/release").document["detail"]
    assert pair.change("/release").status == 200
    assert pair.events("unexpected error") == []


def test_a_worker_that_does_not_look_is_told_to_be_late(registry, monkeypatch):
    seen = {"mcnet_looked_at": [float("inf"), 0.0], "mcnet_worker_version": [1.0, 0.0]}
    totals = SimpleNamespace(each=lambda name, **labels: seen[name])
    monkeypatch.setattr("mcnet.operations.service.metrics.Totals", lambda: totals)
    found = ServedHeads(registry.store, "default")
    assert asyncio.run(found.everywhere(found.head(), 0.05)) == (["1", "0"], 1)
    seen.update(mcnet_looked_at=[float("inf")] * 2, mcnet_worker_version=[1.0, 1.0])
    assert asyncio.run(found.everywhere(found.head(), 0.05)) == (["1", "1"], 0)


def test_an_altered_version_that_is_not_served_disturbs_no_other(registry, tmp_path):
    alter(registry, versions.update().where(versions.c.number == 2).values(model=b"{"))
    with running(registry.path, tmp_path) as service:
        listed = service.get("/versions").document
        assert [version["version"] for version in listed["versions"]] == ["1", "2", "3"]
        assert str(registry.path) not in service.get("/versions").body.decode() + service.get("/status").body.decode()
        assert service.change("/versions/latest/promote").document["version"] == "3"
        refused = service.change("/versions/2/promote")
        assert refused.status == 409
        assert str(registry.path) not in refused.document["detail"]
        assert service.change("/rollback").document["version"] == "1"
        assert service.get("/v2/models/calibration").document["versions"] == ["1", "2", "3"]


def test_latest_and_current_are_looked_up_in_every_request(pair, registry_of):
    tensors = [
        {"name": "score", "datatype": "FP64", "shape": [1], "data": [0.1]},
        {"name": "country", "datatype": "BYTES", "shape": [1], "data": ["NL"]},
    ]
    for version in ("2", "1", "3"):
        assert pair.change(f"/versions/{version}/promote").status == 200
        for name, expected in (("current", version), ("latest", "3")):
            path = f"/v2/models/calibration/versions/{name}/infer"
            said = {pair.post(path, {"inputs": tensors}).document["model_version"] for _ in range(8)}
            assert said == {expected}


def test_a_version_that_cannot_be_served_is_refused_counted_and_reported(registry, tmp_path):
    with running(registry.path, tmp_path, "--poll", "0.1") as service:
        second = versions.update().where(versions.c.number == 2)
        whole = registry.content(2)
        registry.promote(2)
        service.wait_for("version 2", lambda: service.post("/calibrate", ONE).document["version"] == "2")
        registry.rollback()
        service.wait_for("version 1", lambda: service.post("/calibrate", ONE).document["version"] == "1")
        alter(registry, second.values(model=whole.replace(b"mcnet-bayes", b"mcnet-bayeX")))
        alter(registry, heads.update().values(pointer='{"versions": [1, 2], "since": "now"}'))
        service.wait_for("the refusal", lambda: service.events("version refused"))
        assert "altered" in service.events("version refused")[0]["reason"]
        assert service.post("/calibrate", ONE).document["version"] == "1"
        refused = service.change("/reload")
        assert refused.status == 409
        assert "1 serves on" in refused.document["detail"]
        assert str(tmp_path) not in refused.document["detail"]
        alter(registry, second.values(model=whole))
        assert service.change("/reload").document == {"version": "2", "workers": ["2"], "held": False}
        alter(registry, heads.update().values(pointer="{"))
        service.wait_for("the pointer", lambda: len(service.events("version refused")) > 2)
        assert service.post("/calibrate", ONE).document["version"] == "2"
        found = service.get("/status").document
        assert (found["current"], found["service"]["served"]["version"], len(found["versions"])) == (None, "2", 3)
        assert "damaged" in found["service"]["refused"]["reason"]
        assert service.change("/versions/1/promote").document["version"] == "1", "a promotion writes it anew"


def test_no_request_fails_while_versions_change(pair, registry_of, models):
    asked = {"score": [0.1, 0.3], "field": {"country": ["NL", "FR"]}}
    expected = {str(1 + place): m.predict(asked["score"], asked["field"]).tolist() for place, m in enumerate(models)}
    done = threading.Event()

    def ask() -> tuple[int, set[str]]:
        number, seen = 0, set()
        while not done.is_set():
            answer = pair.post("/calibrate", asked)
            assert answer.status == 200, answer.body
            found = answer.document
            assert found["calibrated"] == expected[found["version"]]
            seen.add(found["version"])
            number += 1
        return number, seen

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(ask) for _ in range(3)]
        try:
            for step in range(12):
                path = "/rollback" if step % 4 == 3 else f"/versions/{1 + (1 + step) % 3}/promote"
                assert pair.change(path).status == 200
        finally:
            done.set()
        found = [each.result() for each in asking]
    assert sum(number for number, _ in found) > 20
    assert set.union(*(seen for _, seen in found)) == {"1", "2", "3"}


def test_without_the_token_nothing_changes(shared, registry, tmp_path):
    own = Registry(shared.log_file.parent / "ads.db")
    before = own.history()
    changes = ("/versions/2/promote", "/rollback", "/hold", "/release", "/reload")
    for path in changes:
        for token in (None, "", "wrong", TOKEN[:-1], TOKEN + "x", "Bearer " + TOKEN):
            answer = shared.post(path, token=token)
            assert answer.status == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")
        assert shared.ask("POST", path, Authorization=f"Basic {TOKEN}").status == 401
        assert shared.get(f"{path}?token={TOKEN}").status == 405
    assert TOKEN not in shared.log_file.read_text()
    assert own.history() == before
    before = registry.history()
    with running(registry.path, tmp_path, token=None) as service:
        assert service.events("read-only")
        for path in changes:
            answer = service.post(path, token=TOKEN)
            assert answer.status == 403
            assert "--token-file" in answer.document["detail"]
    assert registry.history() == before
    assert (own.current.name, registry.current.name) == ("1", "1")


def test_a_version_that_needs_other_requests_is_not_promoted_by_a_request(registry, tmp_path):
    score = np.random.default_rng(0).random(300)
    registry.add(Platt().fit(score, score > 0.5).model_)
    with running(registry.path, tmp_path) as service:
        answer = service.change("/versions/latest/promote")
        assert answer.status == 409, answer.body
        assert "lacks the field 'country' of the current model; once clients" in answer.document["detail"]
        assert served(service, 1) == {"1"}
