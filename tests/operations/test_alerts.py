"""Alerts: what is told, to whom, until somebody has taken it, and what happens when nobody answers."""

import subprocess

import pytest
import sqlalchemy as sa
from tests.operations.conftest import receiving

import mcnet
from mcnet.errors import InputError
from mcnet.operations import alerts
from mcnet.operations.alerts import Event, Webhook, new_events, send_alerts
from mcnet.operations.status import status_of
from mcnet.store import state as state_module
from mcnet.store.schema import told


def events(number, kind="alarm"):
    names = ("country=NL",)
    return [
        Event(kind, str(one), {"text": f"{one}: country=NL is off", "what": "country=NL"}, names)
        for one in range(number)
    ]


@pytest.fixture
def state(store_address):
    return mcnet.Store(store_address).state("ctr")


def test_what_stands_is_new_once_and_again_after_it_was_gone(state):
    one, other = events(2)
    assert new_events(state, [one]) == [one]
    assert new_events(state, [one, other]) == [other]
    assert new_events(state, [one], "monitor of a model") == [one], "each source tells what it finds"
    assert new_events(state, [other]) == []
    assert new_events(state, [one, other]) == [one]
    assert [(found["data"]["text"][0], found["standing"]) for found in state.told(9)][-1] == ("0", False)


def test_what_is_posted_is_json_and_told_once(state, receiver, store_address):
    new_events(state, events(2))
    assert send_alerts(state, Webhook(receiver.url)) == ""
    assert send_alerts(mcnet.Store(store_address).state("ctr"), Webhook(receiver.url)) == ""
    first, second = receiver.documents
    assert (first["type"], first["data"]["head"], first["id"] < second["id"]) == ("alarm", "ctr", True)
    assert first["data"]["text"] == "0: country=NL is off"
    assert receiver.got[0][0]["content-type"] == "application/json"


def test_what_nobody_took_is_sent_again_by_the_next_run_for_three_days(state, receiver):
    receiver.status = 503
    new_events(state, events(3))
    assert send_alerts(state, Webhook(receiver.url)) == "the answer was 503"
    assert len(receiver.got) == 1, "the others would fail, too"
    assert status_of(state.store, "ctr")["alerts"] == {"waiting": 1, "problem": "the answer was 503"}
    receiver.status = 200
    assert send_alerts(state, Webhook(receiver.url)) == ""
    assert [one["data"]["text"][0] for one in receiver.documents] == ["0", "0", "1", "2"]
    assert receiver.documents[0]["id"] == receiver.documents[1]["id"]
    assert status_of(state.store, "ctr")["alerts"] == {"waiting": 0, "problem": ""}
    new_events(state, events(4))
    with state.store.database.writing() as connection:
        connection.execute(told.update().values(time="2026-01-01T00:00:00+00:00"))
    assert send_alerts(state, Webhook(receiver.url)) == ""
    assert len(receiver.got) == 4, "it is too old"


def test_only_what_stands_is_kept_for_ever(state, monkeypatch):
    monkeypatch.setattr(state_module, "MOST_TOLD", 2)
    for one in events(6):
        new_events(state, [one])
    new_events(state, events(1, "refusal"), "another source")
    with state.store.database.reading() as connection:
        standing = connection.scalars(sa.select(told.c.standing).order_by(told.c.id)).all()
    assert standing == [False, True, True]


def test_redirects_are_not_followed(state, receiver):
    receiver.status = 302
    new_events(state, events(1))
    assert send_alerts(state, Webhook(receiver.url)) == "the answer was 302, a redirect, which is not followed"
    assert len(receiver.got) == 1


def test_a_receiver_that_answers_byte_by_byte_keeps_nobody(state, receiver, monkeypatch):
    monkeypatch.setattr(alerts, "_ATTEMPT_SECONDS", 0.3)
    receiver.slowly.set()
    new_events(state, events(1))
    assert send_alerts(state, Webhook(receiver.url)) == "no answer after 0.3 s"


def test_a_store_that_cannot_be_read_raises_nothing(tmp_path):
    store = mcnet.Store(tmp_path / "ads.db")
    state = store.state("ctr")
    (tmp_path / "ads.db").write_text("something else, that is no database at all")
    assert "is not a store" in send_alerts(state, Webhook("http://127.0.0.1:9/"))


def test_field_values_are_hidden(state, receiver):
    new_events(state, events(1))
    assert send_alerts(state, Webhook(receiver.url, field_values="hide")) == ""
    assert b"country=NL" not in receiver.got[0][1]
    assert receiver.documents[0]["data"]["what"] == "country=(hidden)"


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
def test_addresses_that_are_not_safe_are_refused_and_not_repeated(url, message):
    with pytest.raises(InputError, match=message) as error:
        Webhook.of(url)
    assert "T0KEN" not in str(error.value)


def test_the_address_comes_from_the_environment_too_and_is_not_shown(monkeypatch):
    monkeypatch.delenv("MCNET_WEBHOOK", raising=False)
    assert Webhook.of(None) is None
    monkeypatch.setenv("MCNET_WEBHOOK", "https://example.com/hook")
    made = Webhook.of(None)
    assert made.host == "https://example.com"
    assert "hook" not in repr(made).removeprefix("Webhook")
    with pytest.raises(InputError, match="show, hide"):
        Webhook.of(None, "some")


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
    new_events(state, events(1))
    with receiving(made) as receiver:
        hook = Webhook(receiver.url.replace("http:", "https:"))
        assert "certificate verify failed" in send_alerts(state, hook)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        assert send_alerts(state, hook) == ""
        assert len(receiver.got) == 1
