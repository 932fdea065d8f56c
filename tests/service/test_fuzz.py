"""Requests that no client should send get an answer that is not the server's fault, and cost no memory."""

import subprocess
import sys

import pytest
from tests.service.running import TOKEN

from benchmarks.service_fuzz import fuzz


def test_no_request_is_answered_with_a_server_error(shared, models):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[serve]'")
    found = fuzz(shared.port, 1_500, TOKEN, seed=1)
    assert {"200", "400", "404", "405"} <= set(found)
    expected = models[0].predict([0.1], {"country": ["NL"]}).tolist()
    assert shared.calibrate([0.1], {"country": ["NL"]})["calibrated"] == expected
    assert shared.events("unexpected error") == []
    assert len(shared.events("worker started")) == 2


def test_requests_made_from_the_description(shared):
    pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    checks = "not_a_server_error,response_schema_conformance,content_type_conformance"
    words = ["--checks", checks, "--phases", "examples,fuzzing", "--max-examples", "6", "--seed", "1", "--no-color"]
    # The change of versions is tested elsewhere: here it would change what other tests of this file expect.
    words += ["--exclude-path-regex", "promote|rollback|reload|hold|release", "-H", f"Authorization: Bearer {TOKEN}"]
    words += ["--suppress-health-check", "all"]  # slow is no failure
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{shared.url}/openapi.json", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert shared.events("unexpected error") == []
