"""The process: metrics over all workers, a worker that dies, a graceful end, wrong starts, and tricks with paths."""

import concurrent.futures
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.service.running import TOKEN, free_port, is_ready, running
from tests.service.test_reload import alter

from mcnet.cli.run import run
from mcnet.operations.service.settings import read_tokens
from mcnet.store.schema import versions

ONE = {"score": [0.1], "field": {"country": ["NL"]}}


HEAD = (("head", "default"),)


def samples(service):
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")
    found = {}
    for family in parser.text_string_to_metric_families(service.get("/metrics").body.decode()):
        for sample in family.samples:
            found[(sample.name, *sorted(sample.labels.items()))] = sample.value
    return found


def test_metrics_add_up_over_workers_and_survive_one(registry, tmp_path):
    with running(registry.path, tmp_path, "--workers", "2") as service:
        calibrate = (("route", "calibrate"), ("status", "2xx"))
        for number in range(30):
            country = "unheard of" if number < 6 else "NL"
            assert service.post("/calibrate", {"score": [0.1] * 2, "field": {"country": [country] * 2}}).status == 200
        service.post("/calibrate", {"score": 1})
        found = samples(service)
        assert found[("mcnet_requests_total", *calibrate)] == 30
        assert found["mcnet_requests_total", ("route", "calibrate"), ("status", "4xx")] == 1
        assert found["mcnet_requests_total", ("route", "calibrate"), ("status", "5xx")] == 0
        assert found["mcnet_request_seconds_count", ("route", "calibrate")] == 31
        assert found["mcnet_request_seconds_bucket", ("le", "+Inf"), ("route", "calibrate")] == 31
        assert found["mcnet_predictions_total", *HEAD] == 60
        assert found["mcnet_unseen_rows_total", *HEAD] == 12
        assert found["mcnet_workers",] == 2
        assert found["mcnet_model_version", *HEAD] == 1
        assert found["mcnet_model_age_seconds", *HEAD] >= 0
        assert service.change("/versions/3/promote").status == 200
        later = samples(service)
        assert (later["mcnet_reloads_total", *HEAD], later["mcnet_model_version", *HEAD]) == (2, 3)
        assert later["mcnet_model_versions_served", *HEAD] == 1
        assert len(later) < 300  # few series, whatever was asked

        os.kill(service.workers()[0], signal.SIGKILL)
        service.wait_for("another worker", lambda: len(service.workers()) == 3)
        for _ in range(10):
            assert service.post("/calibrate", ONE).document["version"] == "3"
        last = samples(service)
        assert last[("mcnet_requests_total", *calibrate)] == 40
        assert last["mcnet_workers",] == 2


def test_a_worker_that_dies_again_and_again_does_not_end_the_service(registry, tmp_path):
    with running(registry.path, tmp_path) as service:
        for deaths in range(1, 4):
            os.kill(service.workers()[-1], signal.SIGKILL)  # as soon as it has started
            service.wait_for("the next worker", lambda deaths=deaths: len(service.workers()) == deaths + 1)
        service.wait_for("an answer", lambda: is_ready(service))
        assert [event["worker"] for event in service.events("worker died")] == [1, 1, 1]
        assert service.change("/hold").status == 200
        os.kill(service.workers()[-1], signal.SIGKILL)
        service.wait_for("the death", lambda: len(service.events("worker died")) == 4)
        assert service.stop() == 0  # also while it waits before it starts another one


def test_more_connections_than_files_are_usual_keep_nobody_waiting(registry, tmp_path):
    number = 1_300
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * number:
        pytest.skip(f"a process may have {hard} open files here, which are too few")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * number), hard))
    try:
        with running(registry.path, tmp_path) as service, contextlib.ExitStack() as all_of_them:
            address = ("127.0.0.1", service.port)
            slow = [all_of_them.enter_context(socket.create_connection(address, 60)) for _ in range(number)]
            for one in slow:
                one.sendall(b"P")
            assert service.post("/calibrate", ONE).status == 200
            assert all(one.recv(1) == b"" for one in slow), "each is closed after a while"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_token_file_for_its_owner_alone_is_not_warned_of(tmp_path, capsys):
    file = tmp_path / "token"
    file.write_text(TOKEN)
    for mode, said in ((0o600, False), (0o400, False), (0o604, True), (0o660, True)):
        file.chmod(mode)
        assert len(read_tokens(file)) == 1
        assert ("token file open to others" in capsys.readouterr().err) == said


STARTER = """
import sys
from pathlib import Path
from tests.service.running import begin
service = begin(Path(sys.argv[1]), Path(sys.argv[2]), "--workers", "2")
service.wait_for("all workers", lambda: len(service.workers()) == 2)
print(service.process.pid, *service.workers(), flush=True)
input()
"""


def test_all_processes_end_when_whoever_started_them_is_killed(registry, tmp_path):
    command = [sys.executable, "-c", STARTER, str(registry.path), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        pids = [int(word) for word in starter.stdout.readline().split()]
        assert len(pids) == 3
        starter.kill()
    until = time.monotonic() + 100.0
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < until, [pid for pid in pids if is_alive(pid)]
        time.sleep(0.05)
    (log,) = tmp_path.glob("log-*.jsonl")
    assert log.read_text().count("worker left alone") == 2


def is_alive(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_requests_in_flight_are_finished_before_the_end(registry, tmp_path):
    with running(registry.path, tmp_path) as service:
        body = b'{"score": [0.1], "field": {"country": ["NL"]}}'
        with socket.create_connection(("127.0.0.1", service.port), 120) as slow:
            slow.sendall(
                f"POST /calibrate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body[:5]
            )
            assert service.post("/calibrate", ONE).status == 200  # the slow one is being read by now
            service.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            slow.sendall(body[5:])
            assert slow.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert service.process.wait(120) == 0
        assert service.events("worker stopped")
        assert service.events("service stopped")


def start(*words, **environment):
    known = {name: value for name, value in os.environ.items() if name != "MCNET_TOKEN"} | environment
    command = [sys.executable, "-m", "mcnet", "serve", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=known, timeout=200)


def test_a_wrong_start_is_one_line_for_a_person(registry, tmp_path, capsys, monkeypatch):
    def refused(*words):
        # In this process, where nothing has to be imported again.
        assert run(["serve", *map(str, words)]) == 2
        return capsys.readouterr().err

    monkeypatch.delenv("MCNET_TOKEN", raising=False)
    nothing = refused(tmp_path / "nothing")
    assert nothing.count("\n") == 1
    assert "there is no store" in nothing
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        taken.listen()
        busy = start(registry.path, "--port", taken.getsockname()[1])
    assert busy.returncode == 2
    assert "--port" in busy.stderr
    assert "--every" in refused(registry.path, "--learn")
    assert "no head 'cvr'; it has default" in refused(registry.path, "--head", "cvr")
    monkeypatch.setenv("MCNET_TOKEN", "short")
    short = refused(registry.path)
    assert "16" in short
    assert "short" not in short.replace("secrets", "")
    alter(registry, versions.update().where(versions.c.number == 1).values(model=b"{}"))
    damaged = start(registry.path)
    assert damaged.returncode == 2
    assert "altered" in damaged.stderr


TRICKS = (
    "/../../../../etc/passwd",
    "/versions/../../../etc/passwd",
    "/versions/..%2f..%2f..%2fetc%2fpasswd",
    "/versions/%2e%2e/promote",
    "/versions//etc/passwd/promote",
    "/versions/%2Fetc%2Fpasswd/promote",
    "/versions/000001/promote",
    "/versions/1%00/promote",
    "/heads/..%2f..%2fetc/calibrate",
    "/heads/default%2f../versions/2/promote",
    "/heads/%00/calibrate",
    "/v2/models/..%2f/infer",
    "/v2/models/calibration/versions/..%2f..%2f1/infer",
    "/v2/models/calibration/versions/../../secret/infer",
    "//etc/passwd",
    "/%2e%2e/%2e%2e/secret.txt",
    "/\\..\\secret.txt",
)


def test_tricks_with_paths_reach_no_file(registry, tmp_path):
    secret = "the content of a file outside"
    (tmp_path / "secret.txt").write_text(secret)
    with running(registry.path, tmp_path) as service:
        for path in TRICKS:
            for method in ("GET", "POST", "PUT", "DELETE"):
                with socket.create_connection(("127.0.0.1", service.port), 30) as raw:
                    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
                    raw.sendall((head + "Content-Length: 0\r\nConnection: close\r\n\r\n").encode())
                    answer = b"".join(iter(lambda raw=raw: raw.recv(65536), b""))
                assert answer[9:10] == b"4", (method, path, answer)
                assert secret.encode() not in answer
                assert b"root:" not in answer
        assert registry.current.name == "1"
        assert service.post("/calibrate", ONE).document["version"] == "1"
        service.process.send_signal(signal.SIGINT)
        assert service.process.wait(120) in (0, 130)
        assert "Traceback" not in service.log_file.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="the files of another process are seen on Linux alone")
def test_connections_are_dealt_out_to_all_workers(shared):
    def sockets(pid):
        links = (os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink())
        return sum(link.startswith("socket:") for link in links)

    before = [sockets(pid) for pid in shared.workers()]
    with contextlib.ExitStack() as all_of_them:
        for _ in range(80):
            all_of_them.enter_context(socket.create_connection(("127.0.0.1", shared.port), 60))
        workers = list(zip(shared.workers(), before, strict=True))
        shared.wait_for("both workers", lambda: all(sockets(pid) >= least + 10 for pid, least in workers))


def test_slow_clients_do_not_keep_others_waiting(shared):
    slow = [socket.create_connection(("127.0.0.1", shared.port), 30) for _ in range(60)]
    try:
        for place, one in enumerate(slow):
            rest = b"Content-Length: 9\r\n\r\n{" if place % 2 else b""
            one.sendall(b"POST /calibrate HTTP/1.1\r\nHost: x\r\n" + rest)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: shared.post("/calibrate", ONE).status, range(100)))
        assert answers == [200] * 100
    finally:
        for one in slow:
            one.close()
