"""`--learn`: the update job learns from the journal, and the service serves what it publishes."""

import queue
import re
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest
from tests.operations.conftest import receiving
from tests.service.conftest import rows
from tests.service.running import running

from mcnet.errors import InputError
from mcnet.operations.alerts import Event, new_events
from mcnet.operations.service.feedback import Present, named_period, present
from mcnet.operations.service.schedule import Learning
from mcnet.operations.service.settings import ServiceSettings
from mcnet.operations.status import status_of
from mcnet.operations.update import record_failed_run
from mcnet.report.status_page import write_status_page
from mcnet.sketch.sketch import Sketch
from mcnet.store.store import Store


def test_feedback_is_learnt_and_what_is_published_is_served(registry, tmp_path):
    now = datetime.now(UTC).replace(tzinfo=None, minute=0, second=0, microsecond=0)
    journal = registry.store.journal()
    for hour in range(6, 0, -1):
        score, label, country = rows(hour, 3_000, factor=0.5)
        journal.add(Sketch.from_rows(score, label, field={"country": country}), now - timedelta(hours=hour), source="s")
    words = ("--learn", "--every", "1h", "--learn-after", "0", "--field-values", "hide")
    new_events(registry.store.state(), [Event("alarm", "1", {"text": "country=NL is off"}, ("country=NL",))], "a test")
    with (
        receiving() as receiver,
        running(registry.path, tmp_path, *words, "--webhook", receiver.url) as service,
    ):
        service.wait_for("the alert", lambda: receiver.got)
        assert receiver.documents[0]["data"]["text"] == "country=(hidden) is off"
        service.wait_for("the update job", lambda: service.events("update finished") or service.events("update failed"))
        assert service.events("update failed") == []
        done = service.events("update finished")[0]
        assert done["outcome"] == "published"
        assert done["version"] == "4"
        ask = {"country": ["NL"]}
        service.wait_for("version 4", lambda: service.calibrate([0.1], ask)["version"] == "4")
        found = service.get("/status").document
        assert found["last_run"]["outcome"] == "published"
        assert found["monitor"] is not None
        assert [each["rows"] for each in found["periods"]] == [3_000] * 6
        assert found["periods"][-1]["served_version"] == "1", "what served then, not what serves now"
        written = write_status_page(tmp_path / "status.html", status_of(registry.store)).read_text("utf-8")
        dashboard = service.get("/").body.decode()
        for part in ("Field values", "What it changed, and why it was published", 'id="runs"', "Calibration by period"):
            assert part in written
            assert part in dashboard
        assert str(registry.path) not in dashboard
        metrics = service.get("/metrics").body.decode()
        assert 'mcnet_monitor_alarms{head="default"} 0' in metrics
        assert "mcnet_update_age_seconds" in metrics
        assert '\nmcnet_alerts_waiting{head="default"} 0.0\n' in metrics
        assert "mcnet_value_pcoc{" not in metrics, "field values are hidden"
        assert '\nmcnet_update_failed{head="default"} 0.0\n' in metrics
        for path in ("/status", "/curves", "/versions", "/"):
            assert re.findall(r"\b(DE|FR|NL|US)\b", service.get(path).body.decode()) == [], path
        assert service.get("/curves?country=NL").status == 403
        assert [len(service.get("/curves").document[part]) for part in ("fields", "lines")] == [0, 1]
        assert service.change("/rollback").document["version"] == "1"
        # Rows without a period belong to the present one.
        row = {"score": [0.1], "label": [1], "field": {"country": ["NL"]}, "key": "now"}
        hours = {present("1h").period}
        found = service.change("/feedback", row).document["period"]
        assert found.removesuffix("T00:00") in hours | {present("1h").period}, "midnight is the name of a day, too"
        later = service.change("/feedback", row | {"period": "2962-11-16T13", "key": "later"})
        assert (later.status, later.document["at"]) == (400, "$.period")
        record_failed_run(registry.path, f"the disk of {registry.path} is full")
        assert service.get("/status").document["last_run"]["reason"] == "the disk of the store is full"
        assert '\nmcnet_update_failed{head="default"} 1.0\n' in service.get("/metrics").body.decode()
        assert service.stop() == 0


def test_the_job_runs_at_the_start_and_at_the_end_of_every_period(monkeypatch, tmp_path):
    # The shortest period of a journal is a minute, too long for a test: here the calendar has periods of 0.2 seconds.
    length, begin = timedelta(seconds=0.2), datetime.now(UTC).replace(tzinfo=None)

    def quick(every, now):
        number = (now - begin) // length
        return Present(str(number), str(number - 1), begin + (number + 1) * length)

    jobs = queue.Queue()
    monkeypatch.setattr("mcnet.operations.service.schedule.present", quick)
    monkeypatch.setattr(Learning, "_update", lambda self, head, until: jobs.put((head, int(until))) or True)
    store = Store(tmp_path / "ads.db")
    store.configure("ctr", every="1m")
    store.add_head("cvr")
    learning = Learning(ServiceSettings(store.name, every="1m", learn=True, learn_after_seconds=0.0))
    learning.start()
    found = [jobs.get(timeout=60) for _ in range(8)]
    learning.stop()
    for head in ("ctr", "cvr"):
        periods = [period for name, period in found if name == head]
        assert len(periods) == 4
        assert periods == sorted(set(periods)), "each period once, after its end"


@pytest.mark.parametrize(
    ("period", "every", "said"),
    [
        ("2026-11-16T13", "1h", "2026-11-16T13:00"),
        ("2026-11-16T14:00+01:00", "1h", "2026-11-16T13:00"),
        ("2026-11-16", "1d", "2026-11-16"),
        ("2026-11", "1mo", "2026-11-01"),
        ("2026-11-16T13:28", "1m", "2026-11-16T13:28"),
        (7, "1h", "named by the moment they begin, such as 2026-11-16T13:00"),
        ("monday", "1d", "named by the moment they begin, such as 2026-11-16"),
        ("2026-11-16", "1mo", "lies in the period 2026-11-01"),
        ("2026-11-16T13:20", "1h", "lies in the period 2026-11-16T13:00"),
        ("2026-11-16T13", "1d", "lies in the period 2026-11-16"),
        ("2026-11-16T14", "1h", "has not begun: it is 2026-11-16T13:25:00 UTC"),
        ("2062-11-16", "1d", "has not begun"),
        ("0001-01-01", "1d", "named by the moment they begin"),
        ("1970-01-01", "1h", "named by the moment they begin"),
    ],
)
def test_the_period_of_feedback_is_one_of_the_service(period, every, said):
    try:
        found = named_period(period, every, datetime(2026, 11, 16, 13, 25))
    except InputError as error:
        found = str(error)
    assert said in found


def test_an_update_that_fails_is_told_and_tried_again(registry, tmp_path, monkeypatch):
    journal = registry.store.journal()
    score, label, country = rows(1, 500)
    journal.add(Sketch.from_rows(score, label, field={"country": country}), "2024-05-01", source="s")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mcnet.toml").write_text("not toml")
    learning = Learning(ServiceSettings(registry.path, every="1d", learn=True))
    assert not learning._update("default", "2024-05-01")
    assert registry.store.state().runs()[-1]["outcome"] == "failed"
    assert "mcnet.toml" in registry.store.state().runs()[-1]["reason"]
    (tmp_path / "mcnet.toml").unlink()
    assert learning._update("default", "2024-05-01")
    monkeypatch.setattr("mcnet.operations.service.schedule._LONGEST_SLEEP_SECONDS", 0.01)
    tried = []
    monkeypatch.setattr(Learning, "_update", lambda self, head, until: (tried.append(until), len(tried) > 2)[1])
    learning = Learning(ServiceSettings(registry.path, every="1y", learn=True))
    learning.start()
    while len(tried) < 3:
        time.sleep(0.01)
    learning.stop()
    assert len(tried) == 3


def test_an_update_that_was_killed_is_told(registry, tmp_path, monkeypatch):
    journal = registry.store.journal()
    score, label, country = rows(1, 500)
    journal.add(Sketch.from_rows(score, label, field={"country": country}), "2024-05-01", source="s")
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -c "{killed}"\n')
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    learning = Learning(ServiceSettings(registry.path, every="1d", learn=True))
    assert not learning._update("default", "2024-05-01")
    (run,) = registry.store.state().runs()
    assert (run["outcome"], run["reason"]) == ("failed", "the update was ended by signal 9")


@pytest.mark.parametrize(
    ("every", "now", "period", "previous", "end"),
    [
        ("15m", (2026, 11, 16, 13, 25), "2026-11-16T13:15", "2026-11-16T13:00", (2026, 11, 16, 13, 30)),
        ("1d", (2026, 11, 16, 13, 25), "2026-11-16", "2026-11-15", (2026, 11, 17)),
        ("1mo", (2026, 12, 31), "2026-12-01", "2026-11-01", (2027, 1, 1)),
    ],
)
def test_periods_end_when_the_calendar_says(every, now, period, previous, end):
    found = present(every, datetime(*now))
    assert (found.period, found.previous, found.end) == (period, previous, datetime(*end))


@pytest.mark.parametrize("every", ["1", "h", "5 minutes", ""])
def test_what_is_no_period_is_refused(every):
    with pytest.raises(InputError):
        present(every)
