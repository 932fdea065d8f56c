"""Alerts: what is told, to whom, signed, once, and what happens when nobody answers."""

import base64
import hmac
import subprocess
import threading

import pytest
from tests.operations.conftest import receiving

import mcnet
from mcnet.errors import InputError
from mcnet.operations import alerts
from mcnet.operations.alerts import HASH_KEY, Event, Webhook, add_events, alert_counts, name_of, send_alerts

SECRET = "a-secret-of-tests-0123456789"


def webhook(url, **more):
    return Webhook(url, SECRET.encode(), **more)


def events(number, kind="alarm"):
    names = ("country=NL",)
    return [
        Event(kind, str(one), {"text": f"{one}: country=NL is off", "what": "country=NL"}, names)
        for one in range(number)
    ]


def make_due(state):
    """Let everything that waits be tried now."""
    for name, event in state.all("alert").items():
        state.put("alert", event | {"next": 0.0}, name)


@pytest.fixture
def state(store_address):
    return mcnet.Store(store_address).state("ctr")


def test_what_is_sent_is_signed_as_standard_webhooks_says(state, receiver):
    add_events(state, events(1))
    assert send_alerts(state.store, webhook(receiver.url)).sent == 1
    ((headers, body),) = receiver.got
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(SECRET.encode(), signed, "sha256").digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    (document,) = receiver.documents
    assert (document["type"], document["data"]["head"]) == ("alarm", "ctr")
    assert document["data"]["text"] == "0: country=NL is off"


def test_many_senders_send_every_event_once(state, receiver, store_address):
    add_events(state, events(12))
    add_events(state, events(12))  # the same ones
    receiver.barrier = threading.Barrier(3)

    def send():
        store = mcnet.Store(store_address)
        receiver.barrier.wait()
        send_alerts(store, webhook(receiver.url))
        store.close()

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sent = [headers["webhook-id"] for headers, _ in receiver.got]
    assert len(sent) == len(set(sent)) == 12
    assert alert_counts(state) == {"sent": 12, "failures": 0, "dropped": 0, "waiting": 0, "reason": ""}
    add_events(state, events(12))
    assert send_alerts(mcnet.Store(store_address), webhook(receiver.url)).sent == 0, "a restart sends nothing again"


def test_what_nobody_took_is_kept_and_sent_later_after_growing_waits(state, receiver):
    receiver.status = 503
    add_events(state, events(3))
    slept = []
    done = send_alerts(state.store, webhook(receiver.url), waits_seconds=(1.0, 2.0), sleep=slept.append)
    assert (done.sent, done.reason, slept) == (0, "the answer was 503", [1.0, 2.0])
    assert len(receiver.got) == 3, "the first event, three times: the others would fail, too"
    assert send_alerts(state.store, webhook(receiver.url)).reason == "the answer was 503", "the next event"
    waits = []
    for _ in range(9):
        make_due(state)
        before = alerts.time.time()
        send_alerts(state.store, webhook(receiver.url))
        waits.append(max(event["next"] for event in state.all("alert").values()) - before)
    assert 30.0 <= waits[0] < waits[-1] <= 3_700.0
    receiver.status = 200
    make_due(state)
    receiver.got.clear()
    assert send_alerts(state.store, webhook(receiver.url)).sent == 3
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 3
    counts = alert_counts(state)
    assert (counts["sent"], counts["waiting"]) == (3, 0)
    assert counts["failures"] == 13


def test_an_event_of_a_process_that_died_is_sent_by_the_next_one(state, receiver):
    add_events(state, events(1))
    name, _ = alerts._claim(state)
    assert send_alerts(state.store, webhook(receiver.url)).sent == 0, "it belongs to the other process"
    make_due(state)  # its time is over
    assert send_alerts(state.store, webhook(receiver.url)).sent == 1
    assert receiver.got[0][0]["webhook-id"] == name


def test_nothing_is_kept_for_ever(state, receiver, monkeypatch):
    add_events(state, events(1))
    ((name, event),) = state.all("alert").items()
    state.put("alert", event | {"time": "2026-01-01T00:00:00+00:00"}, name)
    assert send_alerts(state.store, webhook(receiver.url)).sent == 0
    assert (alert_counts(state)["dropped"], alert_counts(state)["waiting"]) == (1, 0)
    monkeypatch.setattr(alerts, "MOST_EVENTS", 2)
    add_events(state, events(5, "suspect"))
    assert len(state.all("alert")) == 2
    assert alert_counts(state)["dropped"] == 4


def test_redirects_are_not_followed(state, receiver):
    receiver.status = 302
    add_events(state, events(1))
    assert send_alerts(state.store, webhook(receiver.url)).reason == (
        "the answer was 302, a redirect, which is not followed"
    )
    assert len(receiver.got) == 1


def test_a_receiver_that_answers_byte_by_byte_keeps_nobody(state, receiver, monkeypatch):
    monkeypatch.setattr(alerts, "_ATTEMPT_SECONDS", 0.3)
    receiver.slowly.set()
    add_events(state, events(1))
    assert send_alerts(state.store, webhook(receiver.url)).reason == "no answer after 0.3 s"


def test_an_outbox_that_cannot_be_read_raises_nothing(tmp_path):
    (tmp_path / "ads.db").write_text("something else, that is no database at all")
    assert "is not a store" in send_alerts(mcnet.Store(tmp_path / "ads.db"), webhook("http://127.0.0.1:9/")).reason


@pytest.mark.parametrize("how", ["hash", "hide"])
def test_field_values_are_hashed_or_left_out(state, receiver, how):
    add_events(state, events(1))
    assert send_alerts(state.store, webhook(receiver.url, field_values=how)).sent == 1
    assert b"country=NL" not in receiver.got[0][1]
    told = receiver.documents[0]["data"]["what"]
    if how == "hide":
        assert told == "country=(hidden)"
    else:
        assert told == name_of("country=NL", "hash", state.get(HASH_KEY))
        assert told != name_of("country=NL", "hash", state.store.state("cvr").get(HASH_KEY) or "")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://example.com/T0KEN", "not encrypted"),
        ("https://me:T0KEN@example.com/", "a user or a password"),
        ("example.com/T0KEN", "not one of http"),
        ("ftp://example.com/T0KEN", "not one of http"),
        ("https://example.com:port/T0KEN", "not one"),
        ("https://example.com/T0KEN\r\nX: y", "not one"),
    ],
)
def test_addresses_that_are_not_safe_are_refused_and_not_repeated(url, message, monkeypatch):
    monkeypatch.setenv("MCNET_WEBHOOK_SECRET", SECRET)
    with pytest.raises(InputError, match=message) as error:
        Webhook.of(url)
    assert "T0KEN" not in str(error.value)


def test_the_secret_comes_from_the_environment_or_a_file(tmp_path, monkeypatch):
    url = "https://example.com/hook"
    monkeypatch.delenv("MCNET_WEBHOOK_SECRET", raising=False)
    monkeypatch.delenv("MCNET_WEBHOOK", raising=False)
    with pytest.raises(InputError, match="no secret to sign alerts with"):
        Webhook.of(url)
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    assert Webhook.of(url, str(file)).secret == SECRET.encode()
    file.write_text("whsec_" + base64.b64encode(b"sixteen bytes ok").decode())
    assert Webhook.of(url, str(file)).secret == b"sixteen bytes ok"
    for wrong, message in (("short", "fewer than 16"), ("whsec_not base64!!", "not Base64")):
        file.write_text(wrong)
        with pytest.raises(InputError, match=message):
            Webhook.of(url, str(file))
    with pytest.raises(InputError, match="cannot be read"):
        Webhook.of(url, str(tmp_path / "none"))
    monkeypatch.setenv("MCNET_WEBHOOK_SECRET", SECRET)
    assert Webhook.of(None) is None
    monkeypatch.setenv("MCNET_WEBHOOK", url)
    made = Webhook.of(None)
    assert made.host == "https://example.com"
    assert "hook" not in repr(made).removeprefix("Webhook")
    assert SECRET not in repr(made)
    monkeypatch.setenv("MCNET_WEBHOOK", "off")
    assert Webhook.of(url) is None
    with pytest.raises(InputError, match="show, hash, hide"):
        Webhook.of(url, None, "some")


def test_https_checks_the_certificate(state, tmp_path, program, monkeypatch):
    made = tmp_path / "both.pem"
    words = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
    ]
    subprocess.run(
        [program("openssl"), *words, "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    made.write_text((tmp_path / "key.pem").read_text() + (tmp_path / "cert.pem").read_text())
    add_events(state, events(1))
    with receiving(made) as receiver:
        hook = webhook(receiver.url.replace("http:", "https:"))
        assert "certificate verify failed" in send_alerts(state.store, hook).reason
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        make_due(state)
        assert send_alerts(state.store, hook).sent == 1
        assert len(receiver.got) == 1
