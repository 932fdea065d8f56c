"""Feedback ends in the journal: once, as a whole, and only acknowledged when it is on disk."""

import asyncio
import concurrent.futures
import os
import signal
import socket
import sys
import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest
from tests.service.conftest import rows
from tests.service.running import TOKEN, running
from tests.service.test_reload import full_disk

from mcnet.errors import InputError
from mcnet.operations.service.feedback import About, Inbox, named_period
from mcnet.operations.service.problems import Problem
from mcnet.operations.service.served import ServedHeads
from mcnet.operations.service.settings import ServiceSettings
from mcnet.sketch.sketch import Sketch
from mcnet.store.journal import Journal
from mcnet.store.store import Store

PERIOD = f"{datetime.now(UTC) - timedelta(days=2):%Y-%m-%d}T13:00"


def feedback(seed, key, number=50, period=PERIOD, **more):
    score, label, country = rows(seed, number)
    columns = {"score": score.tolist(), "label": label.tolist(), "field": {"country": country.tolist()}}
    return {**columns, "period": period, "key": key, **more}


@pytest.fixture
def journal(shared):
    """The journal of the shared service, empty again."""
    found = Journal(shared.log_file.parent / "ads.db")
    for source in {entry.source for entry in found.entries()}:
        found.remove(source)
    return found


def test_rows_are_in_the_journal_when_they_are_acknowledged(shared, journal):
    answer = shared.change("/feedback", feedback(1, "a"))
    assert answer.status == 201
    assert answer.document == {"rows": 50, "period": PERIOD, "key": "a", "known": False}
    again = shared.change("/feedback", feedback(1, "a"))
    assert (again.status, again.document["known"], again.document["rows"]) == (200, True, 0)
    other = shared.change("/feedback", feedback(2, "a"))
    assert other.status == 409
    assert "another key" in other.document["detail"]
    assert shared.change("/feedback", feedback(2, "b")).status == 201
    score, label, country = (np.concatenate(parts) for parts in zip(rows(1, 50), rows(2, 50), strict=True))
    expected = Sketch.from_rows(score, label, field={"country": country})
    found = journal.sketch()
    assert (found.rows, found.total_positives) == (100, expected.total_positives)
    assert found.weight.tolist() == expected.weight.tolist()
    assert journal.verify() == []


def test_a_sketch_and_a_stream_are_feedback_too(shared, journal, tmp_path):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[serve]'")
    score, label, country = rows(3, 400)
    made = Sketch.from_rows(score, label, field={"country": country})
    made.save(tmp_path / "part.parquet")
    body = (tmp_path / "part.parquet").read_bytes()
    kind = {"Content_Type": "application/vnd.apache.parquet"}
    assert shared.change(f"/feedback?period={PERIOD}&key=sketch", body, **kind).document["rows"] == 400
    sink = pa.BufferOutputStream()
    score, label, country = rows(4, 400)
    made += Sketch.from_rows(score, label, field={"country": country})
    table = pa.table({"score": score, "label": label, "country": country.tolist()})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream = sink.getvalue().to_pybytes()
    kind_of_stream = {"Content_Type": "application/vnd.apache.arrow.stream", "Idempotency_Key": "stream"}
    assert shared.change(f"/feedback?period={PERIOD}", stream, **kind_of_stream).document["rows"] == 400
    assert journal.sketch().weight.tolist() == made.weight.tolist()
    damaged = shared.change(f"/feedback?period={PERIOD}&key=bad", body[:-20] + body[-19:], **kind)
    assert damaged.status == 400
    assert "/tmp" not in damaged.document["detail"]


@pytest.mark.parametrize("end", ["close", "half-close", "no chunk", "no marker", "no marker, chunked", "two streams"])
def test_rows_of_a_stream_that_was_cut_are_not_taken(shared, journal, end):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[serve]'")
    score, label, country = rows(6, 300)
    table = pa.table({"score": score, "label": label, "country": country.tolist()})
    sink = pa.BufferOutputStream()
    sizes = []
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=100):
            writer.write_batch(batch)
            sizes.append(sink.tell())
    whole = sink.getvalue().to_pybytes()
    cut = whole[: sizes[1]]  # two of three record batches
    kind = {"Content_Type": "application/vnd.apache.arrow.stream"}
    path = f"/feedback?period={PERIOD}&key=stream"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
    head += f"Content-Type: {kind['Content_Type']}\r\nTransfer-Encoding: chunked\r\n\r\n"
    if end in ("close", "half-close", "no chunk"):
        with socket.create_connection(("127.0.0.1", shared.port), 30) as one:
            one.sendall(head.encode() + b"%x\r\n%b\r\n" % (len(cut), cut))
            if end == "half-close":
                one.shutdown(socket.SHUT_WR)
            elif end == "no chunk":
                one.sendall(b"zz\r\n")
            if end != "close":
                assert one.recv(4096).startswith(b"HTTP/1.1 400 ")
    else:
        sent = {"no marker": cut, "no marker, chunked": iter([cut]), "two streams": whole + whole}[end]
        answer = shared.change(path, sent, **kind)
        assert answer.status == 400, answer.body
        assert ("follow the end" if end == "two streams" else "marker of its end") in answer.document["detail"]
    again = shared.change(path, iter([whole[:1000], whole[1000:]]), **kind)
    assert (again.status, again.document["rows"]) == (201, 300)
    assert journal.sketch().rows == 300


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"key": ""}, "key"),
        ({"key": "x" * 201}, "key"),
        ({"period": None}, "period"),
        ({"period": " 13 "}, "period"),
        ({"period": "x" * 100}, "shortly"),
        ({"field": None}, "needs country"),
        ({"field": {"land": ["NL"] * 50}}, "needs country"),
        ({"field": {"country": ["NL"] * 50, "color": ["red"] * 50}}, "does not have color"),
        ({"key": " "}, "key"),
        ({"label": [2.0] * 50}, "label"),
        ({"label": [0.0] * 49}, "length"),
        ({"score": [], "label": [], "field": {"country": []}}, "no rows"),
        ({"score": [1.5] * 50}, "outside"),
        ({"weight": [-1.0] * 50}, "weight"),
        ({"age": -1}, "age"),
        ({"more": 1}, "unknown field"),
        ({"field": None, "country": ["NL"] * 50}, "unknown field"),
        ({"score": 0.1, "label": 1, "field": {"country": "NL"}}, "send columns: {"),
        ([{"score": 0.1, "label": 1, "country": "NL"}], "send columns: {"),
    ],
)
def test_feedback_that_cannot_be_used_changes_nothing(shared, journal, change, said):
    answer = shared.change("/feedback", change if isinstance(change, list) else {**feedback(1, "x"), **change})
    assert answer.status == 400, answer.body
    assert said in answer.document["detail"]
    assert journal.entries() == []


def test_absurd_weights_and_periods_are_refused_unless_they_are_allowed_by_name(shared, journal):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[serve]'")
    heavy = {"weight": [1.0] * 49 + [1e9]}
    first = shared.change("/feedback", feedback(1, "a", **heavy))
    assert (first.status, first.document["at"]) == (400, "$.weight")
    assert "above 1,000,000, the most in an empty journal" in first.document["detail"]
    assert 'send "allow": ["weight"]' in first.document["detail"]
    assert shared.change("/feedback", feedback(1, "a")).status == 201
    for weight in (1e100, 1e9, 1_001.0):
        answer = shared.change("/feedback", feedback(2, "b", weight=[1.0] * 49 + [weight]))
        assert answer.status == 400, weight
    old = shared.change("/feedback", feedback(2, "b", period="1971-03-01T10:00"))
    assert (old.status, old.document["at"]) == (400, "$.period")
    assert 'send "allow": ["period"]' in old.document["detail"]
    sink = pa.BufferOutputStream()
    score, label, country = rows(2, 50)
    table = pa.table({"score": score, "label": label, "country": country.tolist(), "weight": heavy["weight"]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    kind = {"Content_Type": "application/vnd.apache.arrow.stream"}
    path = "/feedback?period=1971-03-01T10:00&key=b"
    body = sink.getvalue().to_pybytes()
    for allowed, status in (("", 400), ("&allow=weight", 400), ("&allow=period", 400), ("&allow=all", 400)):
        assert shared.change(path + allowed, body, **kind).status == status
    assert [entry.source for entry in journal.entries()] == ["feedback a"]
    assert shared.change(path + "&allow=weight,period", body, **kind).status == 201
    allowed = feedback(3, "c", period="1970-01-02T10:00", weight=[1.0] * 49 + [1e13], allow=["weight", "period"])
    assert shared.change("/feedback", allowed).status == 201


def inbox(tmp_path, monkeypatch, every="1h"):
    """Return what takes rows in without HTTP, and its journal."""
    store = Store(tmp_path / "ads.db")
    store.configure("ctr", every=every)
    heads = ServedHeads(store, "ctr")
    taken = Inbox(ServiceSettings(store.name), heads)
    score, label, country = rows(5, 40)
    sent = {
        name: Sketch.from_rows(score, label * one, field={"country": country}) for name, one in (("a", 1), ("b", 0))
    }
    monkeypatch.setattr(taken, "_read", lambda asked, _: (sent[asked.body], About(**asked.about), None))

    def take(body, **about):
        return asyncio.run(taken.take(SimpleNamespace(body=body, about=about, media_type=""), heads.head()))

    return taken, take, store.journal()


@pytest.mark.parametrize("every", ["1h", None])
def test_a_period_long_past_does_not_begin_a_journal_unless_it_is_allowed(tmp_path, monkeypatch, every):
    taken, take, journal = inbox(tmp_path, monkeypatch, every)
    journal.store.configure(key_days=100_000)
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0, tzinfo=None)
    past = [now - timedelta(hours=back) for back in (398, 425)]
    past = [one if one.hour else one - timedelta(hours=1) for one in past]  # midnight would be the name of a day
    first, old = (f"{one:%Y-%m-%dT%H}" for one in past)
    for period in (old, "1971-11-18T05"):
        with pytest.raises(InputError, match=r"periods before now, and the journal has no rows yet") as refused:
            take("a", key="a", period=period)
        assert refused.value.column == "period"
    assert journal.entries() == []
    assert take("a", key="a", period=first).rows == 40
    assert take("a", key="b", period=old).rows == 40, "a day before the first one"
    for source in ("feedback a", "feedback b"):
        journal.remove(source)
    assert take("a", key="a", period="1971-11-18T05", allow=["period"]).rows == 40
    taken.close()


def test_feedback_for_periods_whose_keys_are_forgotten_is_refused(tmp_path, monkeypatch):
    taken, take, journal = inbox(tmp_path, monkeypatch)
    ago = {days: f"{datetime.now(UTC) - timedelta(days=days):%Y-%m-%dT00}" for days in (3, 40)}
    assert take("a", key="a", period=ago[3]).rows == 40
    for allow in ([], ["period"]):
        with pytest.raises(InputError, match=r"the keys of feedback are kept for 30 days.*mcnet journal add"):
            take("b", key="b", period=ago[40], allow=allow)
    journal.store.configure(key_days=50)
    assert take("b", key="b", period=ago[40], allow=["period"]).rows == 40
    taken.close()


def test_what_is_sent_again_in_the_next_period_counts_once(tmp_path, monkeypatch):
    hours = iter([PERIOD, PERIOD.replace("T13", "T14")])
    monkeypatch.setattr("mcnet.operations.service.feedback._present_period", lambda *_: next(hours))
    taken, take, journal = inbox(tmp_path, monkeypatch)
    first, again = (take("a", key="hourly") for _ in range(2))
    other = PERIOD.replace("T13", "T09")
    named = take("a", key="hourly", period=other)
    assert (first.period, first.known) == (PERIOD, False)
    for found in (again, named):
        assert (found.period, found.known) == (PERIOD, True)
    with pytest.raises(Problem) as refused:
        take("b", key="hourly", period=other)
    assert refused.value.status == 409
    assert take("b", key="another", period=other).period == other
    assert journal.sketch().rows == 80
    taken.close()


@pytest.mark.parametrize(("every", "shown"), [("1h", "T00:00"), ("1d", "")])
def test_the_first_hour_of_a_day_is_answered_with_its_time(tmp_path, monkeypatch, every, shown):
    taken, take, journal = inbox(tmp_path, monkeypatch, every)
    day = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
    assert take("a", key="a", period=f"{day}T00").period == f"{day}{shown}"
    assert journal.periods == [day]
    with pytest.raises(InputError, match=f"lies in the period {day}{shown}$"):
        named_period(f"{day}T00:20", every)
    taken.close()


def test_a_head_without_a_version_takes_feedback(tmp_path, monkeypatch):
    taken, take, journal = inbox(tmp_path, monkeypatch)
    assert taken._heads.head("ctr").current is None
    assert take("a", key="a", period=PERIOD).rows == 40
    assert journal.sketch().contexts.names == ("country",)
    taken.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the limits of another process can be set on Linux alone")
def test_feedback_on_a_full_disk_is_a_503_and_nothing_is_added(shared, journal, tmp_path):
    Sketch.from_rows(*rows(8, 50)[:2], field={"country": rows(8, 50)[2]}).save(tmp_path / "part.parquet")
    assert shared.change("/feedback", feedback(7, "before")).status == 201
    kind = {"Content_Type": "application/vnd.apache.parquet"}
    with full_disk(shared, 10):
        answers = [
            shared.change("/feedback", feedback(8, "full")),
            shared.change(f"/feedback?period={PERIOD}&key=sketch", (tmp_path / "part.parquet").read_bytes(), **kind),
        ]
    for answer in answers:
        assert (answer.status, "retry-after" in answer.headers) == (503, True), answer.body
    assert "nothing was added" in answers[0].document["detail"]
    assert [entry.source for entry in journal.entries()] == ["feedback before"]
    assert shared.change("/feedback", feedback(8, "full")).status == 201
    assert shared.events("unexpected error") == []


def test_feedback_needs_the_token(shared, journal):
    assert shared.post("/feedback", feedback(1, "x")).status == 401
    assert journal.entries() == []


def test_feedback_of_many_clients_at_once_adds_up(shared, journal):
    def send(client):
        for number in range(4):
            assert shared.change("/feedback", feedback(client, f"{client}-{number}", 20)).status == 201

    threads = [threading.Thread(target=send, args=(client,)) for client in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert journal.sketch().rows == 4 * 4 * 20


def test_what_was_acknowledged_survives_a_kill_and_counts_once(registry, tmp_path):
    done, acknowledged, failures = threading.Event(), set(), []
    with running(registry.path, tmp_path, "--workers", "3") as service:

        def send(client: int) -> None:
            number = 0
            while not done.is_set():
                key = f"{client}-{number}"
                try:
                    answer = service.change("/feedback", feedback(client, key, 10), timeout=30)
                except OSError:
                    failures.append(key)  # the worker died; the client sends the same again
                    continue
                assert answer.status in (200, 201)
                acknowledged.add(key)
                number += 1

        service.wait_for("all workers", lambda: len(service.workers()) == 3)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            sending = [pool.submit(send, client) for client in range(3)]
            try:
                for place, worker in enumerate(service.workers()):
                    enough = 8 * (1 + place)
                    service.wait_for("feedback", lambda enough=enough: len(acknowledged) >= enough)
                    os.kill(worker, signal.SIGKILL)
            finally:
                done.set()
            for each in sending:
                each.result()
    journal = registry.store.journal()
    sources = [entry.source.removeprefix("feedback ") for entry in journal.entries()]
    assert len(acknowledged) >= 24
    assert acknowledged <= set(sources) <= acknowledged | set(failures)
    assert len(sources) == len(set(sources))
    assert sum(entry.rows for entry in journal.entries()) == 10 * len(sources)
    assert journal.verify() == []
    assert TOKEN not in service.log_file.read_text()


def test_a_body_of_another_type_is_not_read_as_json(shared, journal):
    assert shared.change("/feedback", b"score,label", Content_Type="text/csv").status == 415
    packed = shared.change("/feedback", b"\x1f\x8b\x08", Content_Encoding="gzip")
    assert (packed.status, "gzip" in packed.document["detail"]) == (415, True)


def test_values_of_feedback_are_kept(shared, journal):
    assert shared.change("/feedback", feedback(1, "a", value=[0.5] * 50)).status == 201
    _, label, _ = rows(1, 50)
    assert journal.sketch().values.sum(axis=0).tolist() == [25e6, 0.5e6 * label.sum(), 12.5e6]
    refused = shared.change("/feedback", feedback(2, "b", value=[-1.0] * 50))
    assert refused.status == 400
    assert "below 0" in refused.document["detail"]


def test_feedback_of_swapped_columns_is_refused_and_warnings_are_lines_of_the_log(shared, journal):
    country = {"country": ["NL", "FR", "NL"]}
    swapped = {"score": [1, 0, 1], "label": [0.1, 0.2, 0.3], "field": country, "period": PERIOD, "key": "swapped"}
    answer = shared.change("/feedback", swapped)
    assert answer.status == 400, answer.body
    assert "look swapped; swap them back" in answer.document["detail"]
    assert journal.periods == []
    lines = shared.log_file.read_text().splitlines()
    assert all(line.startswith("{") for line in lines), lines
    (said,) = [line for line in shared.events("warning") if "every score is 0 or 1" in line["reason"]]
    assert (said["level"], said["kind"]) == ("warning", "CalibrationWarning")


def test_feedback_with_scores_of_another_type_is_refused(shared, journal):
    assert shared.change("/feedback", feedback(1, "first")).status == 201
    answer = shared.change("/feedback", feedback(2, "logits", score_type="logit"))
    assert answer.status == 400, answer.body
    said = 'are logits, those of the journal probabilities; read them as such: pass "score_type": "probability"'
    assert said in answer.document["detail"]


def test_a_day_is_no_period_of_an_hour():
    now = datetime(2026, 11, 19, 12, 0)
    with pytest.raises(InputError, match=r"2026-11-19 names a day, and this service has periods of 1h; the first of"):
        named_period("2026-11-19", "1h", now)
    assert named_period("2026-11-19T00:00", "1h", now) == named_period("2026-11-19", "1d", now) == "2026-11-19"
