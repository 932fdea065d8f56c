"""The page of the loop, which has no script: its words, and its looks in a real browser."""

import copy
import re
from pathlib import Path

import numpy as np
import pytest
from tests.report.browser import LOADED, browse, find_chromium

from mcnet.report.status_page import write_status_page

ODD = "<b>bold</b>"
RUN = {
    "time": "2026-11-16T13:05:09+00:00",
    "seconds": 1.25,
    "outcome": "published",
    "reason": "log-loss -100.0 ×10⁻⁵ beside version 1 (…)",
    "version": "2",
    "replaced": "1",
    "forced": False,
    "until": "2026-11-15",
    "note": "",
    "added": {"rows": 1234, "periods": ["2026-11-15"], "files": 1, "unchanged": 0},
    "learnt": ["2026-11-15"],
    "alarms": [],
    "gate": {
        "passed": True,
        "problems": [],
        "waiting": "",
        "notes": [],
        "comparison": {
            "other": "version 1",
            "periods": 5,
            "first": "2026-11-10",
            "last": "2026-11-15",
            "difference": -0.001,
            "low": -0.002,
            "high": 0.0005,
        },
        "shift": {"overall": 0.02, "largest": -0.1, "where": ODD, "size": 0.111},
    },
}
ALARM = {
    "what": f"country={ODD}",
    "raised": "2026-11-15",
    "since": "2026-11-12",
    "pcoc": 1.3,
    "told": RUN["time"],
    "standing": False,
    "advice": f"the probabilities of country={ODD} are over-predicted since 2026-11-12: update the model",
}
VERSION = {
    "number": 2,
    "added": RUN["time"],
    "digest": "ab" * 32,
    "method": "tracker",
    "fields": ["country"],
    "rows": 99_000,
    "note": f"a long note about {ODD} " * 9,
    "fitted_until": "2026-11-15",
    "rows_digest": None,
    "reason": f"better than version 1 on 5 unseen periods, not in {ODD}",
    "changed": "DE +12 %, FR −3 %",
}


def status(**changes):
    rng = np.random.default_rng(0)
    periods = []
    for day in range(1, 16):
        pcoc = float(np.exp(rng.normal(0.1, 0.2)))
        ends = [pcoc, 0.9 * pcoc, 1.1 * pcoc]
        periods.append({"period": f"2026-11-{day:02}", "base_pcoc": ends, "tracker_pcoc": ends, "served_pcoc": None})
    ran = {name: RUN[name] for name in RUN if name not in ("added", "gate")}
    ran |= {"rows": 1234, "alarms": 1, "times": 25, "first": "2026-11-15T13:00:00+00:00"}
    line = {"what": f"country={ODD}", "log_evidence": 7.0, "since": "2026-11-12", "alarm": True, "excess": 31.0}
    document = {
        "time": RUN["time"],
        "store": "ads.db",
        "head": "default",
        "heads": [{"head": "default", "version": 2}],
        "service": None,
        "problem": "",
        "suspects": [],
        "following": None,
        "alerts": {"waiting": 0, "problem": ""},
        "events": [{"time": RUN["time"], "event": "held", "version": 2, "note": ODD, "times": 1, "first": RUN["time"]}],
        "journal": {"periods": 15, "last_period": "2026-11-15", "rows": 99_000},
        "current": VERSION | {"since": RUN["time"]},
        "held": None,
        "versions": [VERSION, {**VERSION, "number": 1}],
        "last_run": RUN,
        "decision": RUN,
        "runs": [ran, {**ran, "outcome": "refused"}],
        "periods": periods,
        "alarms": [ALARM],
        "monitor": {"alpha": 0.01, "table": [{**line, "pcoc": 1.3, "pcoc_low": None, "pcoc_high": 1.5}]},
    }
    return copy.deepcopy({**document, **changes})


def test_the_status_says_what_is_served_and_why(tmp_path):
    page = write_status_page(tmp_path / "status.html", status()).read_text(encoding="utf-8")
    assert "Version 2 was published." in page
    assert "was published:</p>" in page
    assert "<title>✓ Calibration: version 2</title>" in page
    assert "1,234 new rows, 1 period learnt" in page
    assert "<small>since 2026-11-16 13:05 UTC</small>" in page
    assert "<strong>DE +12 %, FR −3 %</strong><span>better than version 1 on 5 unseen periods" in page
    assert "refused 25 times since 2026-11-15 13:00</strong>" in page
    assert "country=&lt;b&gt;bold&lt;/b&gt;</strong> is over, found in 2026-11-15" in page
    assert ODD not in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "<script" not in page
    assert "ellipsis" not in page  # a note is shown as a whole


def test_the_page_says_what_is_followed_and_what_is_suspect_and_why(tmp_path):
    value = {"field": "country", "value": "NL", "memory": 2.5, "since": "2026-11-12T18:00", "offset": -0.6}
    following = {"level_age": 8.0, "shape_age": 31.0, "moving": 14, "others": 11, "others_age": [7.9, 8.1]}
    following["values"] = [{**value, "low": -0.7, "high": -0.5, "same_as": "device=app"}]
    suspects = [
        {"period": "2026-11-15T02:00", "cause": f"labels of {ODD} missing?", "state": "waiting"},
        {"period": "2026-11-13T02:00", "cause": "labels flipped?", "state": "left out"},
    ]
    ends = {"value": 1234.5, "low": 900.0, "high": 1500.0}
    action = {"field": "country", "value": ODD, "money": 17233.17, "advice": "bid 12 % less"}
    money = {"periods": [{}] * 7, "overbid": ends, "underbid": ends, "observed_value": 99_000.0}
    money["actions"] = {"actions": [action]}
    monitor = status()["monitor"] | {"served": ["country=NL over-predicted by 12 % (8 … 16), since 13:00"]}
    monitor["table"][0]["served"] = {"pcoc": 1.12, "low": 1.08, "high": None}
    page = status(following=following, suspects=suspects, monitor=monitor, money=money)
    text = write_status_page(tmp_path / "s.html", page).read_text(encoding="utf-8")
    for words in (
        "The level follows rows with a mean age of 8 periods, slope and shape 31.",
        "country=NL moves by itself since 2026-11-12T18:00, by -0.60 logits (-0.70 … -0.50), from rows with a mean "
        "age of 2.5 periods; device=app always occurs with it and cannot be told apart.",
        "13 more values move by themselves, less far.",
        "11 field values move with the level, from rows with a mean age of 7.9 to 8.1 periods.",
        "The period 2026-11-15T02:00 is suspect, kept and not learnt: labels of &lt;b&gt;",
        "<strong>left out</strong>: labels flipped?",
        "country=NL over-predicted by 12 % (8 … 16), since 13:00.",
        "1.120 (1.080 … ∞)",
        "<strong>17,233</strong>: bid 12 % less",
    ):
        assert words in text, words


def test_a_broken_hour_does_not_squeeze_the_others_into_a_line(tmp_path):
    broken = status()
    wild = broken["periods"][7]
    wild["base_pcoc"] = wild["tracker_pcoc"] = [0.07, 0.06, 0.08]
    left_out = [{"period": wild["period"], "cause": "labels flipped?", "state": "left out"}]
    for suspects, drawn in (([], True), (left_out, False)):
        page = write_status_page(tmp_path / "s.html", broken | {"suspects": suspects}).read_text(encoding="utf-8")
        assert (">0.5</text>" in page) is drawn
        assert ("Suspect periods are not drawn." in page) is not drawn


def test_little_evidence_names_no_change(tmp_path):
    calm = status()
    for evidence, told in ((7.0, True), (1.0, False)):
        calm["monitor"]["table"][0]["log_evidence"] = evidence
        page = write_status_page(tmp_path / "s.html", calm).read_text(encoding="utf-8")
        assert ("<td>2026-11-12</td><td>1.300 (– … 1.500)</td><td>+31</td>" in page) is told
        assert ("<td>–</td><td>–</td><td>–</td>" in page) is not told


def test_midnight_has_its_hour_in_a_loop_of_hours_and_not_in_one_of_days(tmp_path):
    text = write_status_page(tmp_path / "days.html", status()).read_text(encoding="utf-8")
    assert "2026-11-15T00:00" not in text
    hours = status()
    hours["periods"][0]["period"] = "2026-11-14T23:00"
    text = write_status_page(tmp_path / "hours.html", hours).read_text(encoding="utf-8")
    for shown in ("with the rows until 2026-11-15T00:00", ">2026-11-15T00:00</td>", "<td>2026-11-12T00:00</td>"):
        assert shown in text
    assert "found in 2026-11-15T00:00" in text
    assert not re.search(r"2026-11-15(?![T ])", text.replace("advice", ""))


def test_a_refusal_and_an_alarm_are_in_the_headline(tmp_path):
    refused = {**RUN, "outcome": "refused", "gate": {**RUN["gate"], "problems": ["it moves too far"]}}
    page = write_status_page(
        tmp_path / "status.html", status(last_run={**refused, "alarms": [ALARM]}, decision=refused)
    ).read_text(encoding="utf-8")
    assert "The gate refused a new model: version 2 stays. One new alarm: the probabilities of country=" in page
    assert "<title>! Calibration: version 2</title>" in page
    assert "it moves too far." in page
    nothing = {**RUN, "outcome": "nothing new", "gate": None}
    page = write_status_page(tmp_path / "status.html", status(last_run=nothing, decision=refused)).read_text("utf-8")
    assert "Nothing new: version 2 is served. The gate refused the last new model." in page


def test_a_loop_that_has_just_begun_has_a_page(tmp_path):
    run = {**RUN, "outcome": "waiting", "version": None, "gate": {**RUN["gate"], "comparison": None, "shift": None}}
    page = write_status_page(
        tmp_path / "status.html",
        status(last_run=run, decision=run, current=None, versions=[], periods=[], alarms=[], monitor=None),
    ).read_text(encoding="utf-8")
    assert "Too few periods to judge a model by: no version is served." in page
    assert "No period was predicted yet" in page


@pytest.mark.parametrize(("width", "dark"), [(1100, False), (390, True)])
def test_the_page_in_a_browser(width: int, dark: bool, tmp_path: Path):
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with browse(chromium) as browser:
        browser.open(write_status_page(tmp_path / "status.html", status()), width=width, dark=dark, ready=LOADED)
        assert browser.complaints() == []
        assert browser.requests() == []
        assert browser.run("document.documentElement.scrollWidth") <= width
        shown = "[...document.querySelectorAll('svg')].filter(e => e.getBoundingClientRect().width > 250).length"
        assert browser.run(shown) >= 1
        colour = "rgb(17, 20, 23)" if dark else "rgb(243, 245, 247)"
        assert browser.run("getComputedStyle(document.body).backgroundColor") == colour
