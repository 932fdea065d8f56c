"""Several services on one PostgreSQL: promotions reach all; a database that is gone, and kills, lose nothing."""

import concurrent.futures
import contextlib
import http.client
import os
import random
import re
import signal
import threading
import time

import pytest
from tests.databases import Server
from tests.service.running import running
from tests.service.test_feedback import PERIOD, feedback
from tests.service.test_lifecycle import is_alive

from mcnet.store.store import Store

ONE = {"score": [0.1], "field": {"country": ["NL"]}}
KILLS = int(os.environ.get("MCNET_KILLS", "20"))
"""`make soak` has ten times as many."""
ROWS, PASSWORD = 5, "open-sesame"


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
    one = Server()
    try:
        yield one
    finally:
        one.remove()


@pytest.fixture(scope="module")
def services(server, models, tmp_path_factory):
    """Three services on one database, which look by themselves only once an hour."""
    folder = tmp_path_factory.mktemp("machines")
    store = Store(server.address)
    for model in models:
        store.versions("ctr").add(model)
    with contextlib.ExitStack() as all_of_them:
        words = (server.address, folder, "--poll", "3600")
        yield [all_of_them.enter_context(running(*words, PGPASSWORD=PASSWORD)) for _ in range(3)]


def counted(service, metric):
    return int(re.search(rf"\n{metric} (\d+)\.0\n", service.get("/metrics").body.decode())[1])


def test_a_promotion_anywhere_is_told_to_every_service(services, server):
    assert services[0].change("/versions/2/promote").status == 200
    for service in services:
        service.wait_for("version 2", lambda s=service: s.post("/calibrate", ONE).document["version"] == "2")
    Store(server.address).versions("ctr").promote(1)  # as an update job elsewhere does
    for service in services:
        service.wait_for("version 1", lambda s=service: s.post("/calibrate", ONE).document["version"] == "1")


def test_while_the_database_is_gone_answers_come_from_memory_and_feedback_is_to_be_sent_again(services, server):
    service = services[0]
    assert service.change("/feedback", feedback(1, "before", ROWS)).status == 201
    expected, errors = service.post("/calibrate", ONE).document, counted(service, "mcnet_store_errors_total")
    server.crash()
    try:
        for _ in range(2):
            refused = service.change("/feedback", feedback(2, "gone", ROWS))
            assert (refused.status, "retry-after" in refused.headers) == (503, True), refused.body
            assert "same key" in refused.document["detail"]
        assert service.change("/versions/2/promote").status == 503
        assert service.post("/calibrate", ONE).document == expected
        assert service.post("/v2/models/ctr/infer", {"inputs": []}).status == 400
        assert service.get("/v2/health/ready").status == 200
        assert counted(service, "mcnet_store_errors_total") >= errors + 3
        assert counted(service, "mcnet_store_reachable") == 0
        answer = service.get("/status")
        assert (answer.status, str(server.port) in answer.body.decode()) == (503, False), answer.body
    finally:
        server.start()
    service.wait_for("the journal", lambda: service.change("/feedback", feedback(2, "gone", ROWS)).status in (200, 201))
    assert service.change("/feedback", feedback(2, "gone", ROWS)).document["known"]
    service.wait_for("the store", lambda: counted(service, "mcnet_store_reachable") == 1)
    assert Store(server.address).versions("ctr").promote(3).name == "3"
    for one in services:
        one.wait_for("version 3", lambda s=one: s.post("/calibrate", ONE).document["version"] == "3")
    assert service.events("unexpected error") == []
    assert [line for line in service.log_file.read_text().splitlines() if not line.startswith("{")] == []
    said = [
        service.log_file.read_text(),
        *(str(service.get(path).body) for path in ("/metrics", "/status", "/heads", "/")),
    ]
    assert not [text for text in said if PASSWORD in text or "mcnet@" in text.replace(server.address, "")]
    assert Store(server.address).journal("ctr").sketch().rows == 2 * ROWS


@pytest.mark.timeout(300 + 10 * KILLS)
def test_kills_of_services_and_server_lose_nothing_and_count_nothing_twice(services, server):
    chance, done, acknowledged = random.Random(7), threading.Event(), set()
    before = {entry.source for entry in Store(server.address).journal("ctr").entries()}

    def send(client):
        for number in range(1_000_000):
            key = f"{client}-{number}"
            while True:  # until some service has answered; whichever takes it, it counts once
                if done.is_set():
                    return key
                with contextlib.suppress(OSError, http.client.HTTPException):  # a killed worker may cut its answer off
                    asked = feedback(1_000 * client + number, key, ROWS)
                    answer = services[chance.randrange(3)].change("/feedback", asked, timeout=30)
                    assert answer.status in (200, 201, 503), answer.body
                    if answer.status != 503:
                        break
                time.sleep(0.02)
            acknowledged.add(key)
        raise AssertionError("no end")

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        sending = [pool.submit(send, client) for client in range(3)]
        try:
            for kill in range(KILLS):
                wanted = len(acknowledged) + 5
                services[0].wait_for("feedback", lambda wanted=wanted: len(acknowledged) >= wanted)
                living = [pid for service in services if is_alive(pid := service.workers()[-1])]
                if kill % 2 or len(living) < 2:
                    server.crash()
                    server.start()
                else:
                    os.kill(chance.choice(living), signal.SIGKILL)
        finally:
            done.set()
        unanswered = {each.result() for each in sending}
    journal = Store(server.address).journal("ctr")
    found = [entry for entry in journal.entries() if entry.source not in before]
    keys = [entry.source.removeprefix("feedback ") for entry in found]
    assert len(acknowledged) >= 5 * KILLS
    assert acknowledged <= set(keys) <= acknowledged | unanswered
    assert len(keys) == len(set(keys))
    assert {(entry.rows, entry.period) for entry in found} == {(ROWS, PERIOD)}
    assert journal.verify() == []
    current = Store(server.address).versions("ctr").current.name
    for service in services:
        service.wait_for("an answer", lambda s=service: s.workers() and answers(s, current))
        assert service.events("unexpected error") == []


def answers(service, version):
    try:
        return service.post("/calibrate", ONE).document["version"] == version
    except OSError:
        return False
