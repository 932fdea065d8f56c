"""A worker that starts while its store is gone waits for it: alive, unready, and never the end of the service."""

import os
import signal

from tests.service.running import running
from tests.service.test_lifecycle import ONE


def test_a_worker_starts_without_its_store_and_is_unready_until_it_is_there(registry, tmp_path):
    with running(registry.path, tmp_path, "--poll", "0.1") as service:
        away = tmp_path / "away"
        away.mkdir()
        stored = list(tmp_path.glob("ads.db*"))
        for file in stored:
            file.rename(away / file.name)
        (tmp_path / "ads.db").mkdir()  # what is no file cannot be opened
        os.kill(service.workers()[0], signal.SIGKILL)
        service.wait_for("another worker", lambda: len(service.workers()) == 2)
        ready = service.get("/v2/health/ready")
        assert (ready.status, ready.document) == (503, {"ready": False})
        assert service.get("/v2/health/live").status == 200
        for path in ("/calibrate", "/v2/models/calibration/infer"):
            refused = service.post(path, ONE if path == "/calibrate" else {"inputs": []})
            assert (refused.status, "retry-after" in refused.headers) == (503, True)
            assert "waits for its store" in refused.document["detail"]
        assert service.get("/metrics").status == 200
        (tmp_path / "ads.db").rmdir()
        for file in stored:
            (away / file.name).rename(file)
        service.wait_for("the store", lambda: service.get("/v2/health/ready").status == 200)
        assert service.post("/calibrate", ONE).status == 200
        assert len(service.events("worker died")) == 1
        assert service.events("unexpected error") == []
