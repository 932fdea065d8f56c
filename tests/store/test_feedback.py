"""Feedback: many requests are one transaction, each with its own outcome; nothing is lost, nothing counts twice."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import wait
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from mcnet.errors import BusyError, InputError, McnetError, StoreUnavailableError
from mcnet.rows.periods import period_text
from mcnet.sketch.sketch import Sketch
from mcnet.store.entries import Added, OtherRowsError
from mcnet.store.feedback import FeedbackRows, FeedbackWriter, add_feedback
from mcnet.store.schema import entries, keys
from mcnet.store.store import Store

NOW = datetime.now(UTC)


def hour(before=0):
    return period_text((NOW - timedelta(hours=before)).strftime("%Y-%m-%dT%H:00"))


def rows(seed, number=20, field="country", weight=None):
    rng = np.random.default_rng(seed)
    score = rng.random(number)
    names = {field: rng.choice(["NL", "FR"], number)} if field else None
    return Sketch.from_rows(score, rng.random(number) < score, field=names, weight=weight)


def request(key, seed=None, before=1, head="ctr", **more):
    return FeedbackRows(head, hour(before), key, rows(hash(key) % 1000 if seed is None else seed), "1h", **more)


@pytest.fixture
def store(store_address):
    store = Store(store_address)
    store.configure("ctr", every="1h")
    return store


def test_requests_that_arrive_together_are_added_together(store):
    store.add_head("cvr")
    requests = [request("a", 1), request("b", 2), request("c", 3, before=2), request("a", 4, head="cvr")]
    assert [outcome.rows for outcome in add_feedback(store, requests)] == [20, 20, 20, 20]
    assert store.journal("ctr").sketch() == rows(3) + rows(1) + rows(2)
    assert store.journal("cvr").sketch() == rows(4)
    assert store.journal("ctr").periods == [hour(2), hour(1)]
    assert store.check() == []


def test_a_period_may_be_named_in_any_form(store):
    midnight = f"{NOW:%Y-%m-%d}"
    forms = [midnight, f"{midnight}T00", f"{midnight}T00:00"]
    for n, form in enumerate(forms):
        assert add_feedback(store, [FeedbackRows("ctr", form, f"k{n}", rows(n), "1h")])[0].periods == (midnight,)
    assert store.journal("ctr").sketch(midnight, midnight) == rows(0) + rows(1) + rows(2)


def test_a_request_sent_again_counts_once_whatever_its_period(store):
    add_feedback(store, [request("a", 1, before=2)])
    again, later, twice, once_more = add_feedback(
        store, [request("a", 1, before=2), request("a", 1, before=1), request("b", 2), request("b", 2)]
    )
    assert (again.rows, again.known) == (0, (hour(2),))
    assert (later.rows, later.known) == (0, (hour(2),)), "a client may name the present period when it tries again"
    assert (twice.rows, once_more.rows) == (20, 0)
    assert store.journal("ctr").sketch() == rows(1) + rows(2)


def test_one_bad_request_never_fails_the_others(store):
    add_feedback(store, [request("old", 1)])
    bad = {
        "came with other rows": request("old", 2),
        "the fields of these rows": FeedbackRows("ctr", hour(1), "x1", rows(3, field="city"), "1h"),
        "400 periods after now": FeedbackRows("ctr", "2099-01-01T00:00", "x2", rows(3), "1h"),
        "a row of weight": FeedbackRows("ctr", hour(1), "x3", rows(3), "1h", largest_weight=1e9),
        "allow is 'age'": request("x4", 3, allow=["age"]),
        "no head 'nowhere'": request("x5", 3, head="nowhere"),
        "UTF-8": request("x\x006", 3),
        "age is -1": request("x7", 3, age=-1.0),
        "of different kinds": FeedbackRows("ctr", "17", "x8", rows(3), None),
        "days ago": FeedbackRows("ctr", "2025-01-01T00:00", "x9", rows(3), "1h", allow=["period"]),
    }
    good = [request(f"good {n}", 10 + n) for n in range(len(bad))]
    requests = [one for pair in zip(bad.values(), good, strict=True) for one in pair]
    outcomes = add_feedback(store, requests)
    for (reason, _), outcome in zip(bad.items(), outcomes[::2], strict=True):
        assert isinstance(outcome, McnetError), reason
        assert reason in str(outcome)
    assert isinstance(outcomes[0], OtherRowsError)
    assert [outcome.rows for outcome in outcomes[1::2]] == [20] * len(bad)
    assert store.journal("ctr").sketch() == rows(1) + sum(rows(10 + n) for n in range(len(bad)))


def test_the_first_rows_decide_on_the_fields_also_within_a_group(store):
    both = Sketch.from_rows([0.1, 0.2], [0, 1], field={"country": ["NL", "FR"], "site": ["a", "b"]})
    turned = Sketch.from_rows([0.3, 0.4], [0, 1], field={"site": ["a", "b"], "country": ["NL", "FR"]})
    requests = [
        FeedbackRows("ctr", "2099-01-01T00:00", "0", rows(1), "1h"),
        FeedbackRows("ctr", hour(1), "1", both, "1h"),
        FeedbackRows("ctr", hour(1), "2", turned, "1h"),
        FeedbackRows("ctr", hour(1), "3", rows(3), "1h"),
    ]
    far, first, second, third = add_feedback(store, requests)
    assert isinstance(far, InputError)
    assert (first.rows, second.rows) == (2, 2)
    assert "the fields of these rows" in str(third)
    assert store.journal("ctr").sketch().contexts.names == ("country", "site")


def test_a_period_long_past_does_not_begin_a_journal(store):
    store.configure("ctr", key_days=3650)
    (refused,) = add_feedback(store, [FeedbackRows("ctr", hour(500), "a", rows(1), "1h")])
    assert "periods before now, and the journal has no rows yet" in str(refused)
    (taken,) = add_feedback(store, [FeedbackRows("ctr", hour(500), "a", rows(1), "1h", allow=["period"])])
    assert taken.rows == 20


def test_rows_that_are_removed_while_they_are_read_are_said_to_be(store):
    journal = store.journal("ctr")
    for number in range(3):
        journal.add(rows(number), 1, source=f"feedback-{number}")
    past, read = journal.snapshot(), [read for _, read in journal.counts()]
    journal.remove("feedback-1")
    assert past.sketch() == Sketch.merged([rows(0), rows(1), rows(2)]), "a snapshot stays as it is"
    assert read[2]() == rows(2)
    with pytest.raises(BusyError, match="was changed by another process while it was read; try again"):
        read[1]()


def test_the_feedback_of_closed_periods_is_merged_and_its_keys_stay_known(store):
    journal = store.journal("ctr")
    add_feedback(store, [request(f"{p} {n}", 10 * p + n, before=p) for p in (1, 2, 3) for n in range(4)])
    journal.add(rows(99), hour(3), source="logs/a.parquet")
    before = dict(journal.sketches())
    assert journal.compact_feedback() == 6
    assert dict(journal.sketches()) == before
    assert journal.table().filter(period=hour(3))["source"].to_list() == ["(compacted)", "logs/a.parquet"]
    again = add_feedback(
        store, [request("3 1", 31, before=3), request("2 0", 1, before=2), request("late", 5, before=3)]
    )
    assert (again[0].rows, again[0].known, again[2].rows) == (0, (hour(3),), 20)
    assert isinstance(again[1], OtherRowsError)
    assert journal.compact_feedback() == 1, "late rows are merged with those merged before"
    assert add_feedback(store, [request("late", 5, before=3)])[0].rows == 0
    assert journal.remove("logs/a.parquet") == 20, "what logs gave can still be removed"
    assert store.check() == []


def test_keys_are_forgotten_only_when_their_rows_would_be_refused(store):
    journal = store.journal("ctr")
    store.configure("ctr", key_days=2)
    add_feedback(store, [request("old", 1, before=40), request("new", 2, before=1)])
    add_feedback(store, [request("other", 3, before=40)])
    journal.compact_feedback()
    assert len(count(store, keys)) == 2
    journal.compact_feedback(now=NOW + timedelta(days=1))
    assert len(count(store, keys)) == 2, "a day longer than what is refused"
    journal.compact_feedback(now=NOW + timedelta(days=3))
    assert count(store, keys) == []
    (refused,) = add_feedback(store, [request("very old", 4, before=24 * 3)])
    assert "the keys of feedback are kept for 2 days" in str(refused)


def test_a_key_that_was_forgotten_counts_once_also_if_keys_are_kept_for_longer_again(store):
    journal = store.journal("ctr")
    add_feedback(store, [request("old", 1, before=72), request("other", 2, before=72), request("new", 3, before=1)])
    store.configure("ctr", key_days=1)
    journal.compact_feedback()
    assert count(store, keys) == [], "both keys of the old period are forgotten"
    store.configure("ctr", key_days=30)
    resent, fresh, later = add_feedback(
        store, [request("old", 1, before=72), request("fresh", 4, before=60), request("later", 5, before=40)]
    )
    for refused in (resent, fresh):
        assert "the keys of feedback of that time are forgotten" in str(refused)
    assert later.rows == 20, "what is younger than all keys that were forgotten is taken"
    assert dict(journal.sketches())[hour(72)] == rows(1) + rows(2)


def count(store, table):
    with store.database.reading() as connection:
        return list(connection.scalars(sa.select(table.c.source)))


REQUESTS = st.tuples(st.sampled_from("abcd"), st.integers(0, 2), st.integers(1, 3))
"""Key, rows, and hours ago."""


@settings(max_examples=25)
@given(st.lists(st.one_of(st.just("compact"), st.lists(REQUESTS, min_size=1, max_size=5)), max_size=8))
def test_any_sequence_of_requests_counts_each_key_once(tmp_path_factory, steps):
    store = Store(tmp_path_factory.mktemp("feedback") / "ads.db")
    store.configure("ctr", every="1h")
    journal, known = store.journal("ctr"), {}
    for step in steps:
        if step == "compact":
            journal.compact_feedback(until=hour(2))
            continue
        outcomes = add_feedback(store, [request(*one) for one in step])
        for (key, seed, before), outcome in zip(step, outcomes, strict=True):
            first = known.setdefault(key, (seed, hour(before)))
            if first[0] != seed:
                assert isinstance(outcome, OtherRowsError)
            elif outcome.rows:
                assert (outcome.rows, outcome.periods) == (20, (first[1],))
            else:
                assert outcome.known == (first[1],)
    expected = {
        period: sum(rows(seed) for seed, other in known.values() if other == period) for _, period in known.values()
    }
    assert dict(journal.sketches()) == expected
    assert journal.verify() == []


def test_a_writer_answers_each_request_when_its_rows_are_there(store):
    writer = FeedbackWriter(store)
    results = [writer.submit(request(f"k{n % 30}", n % 30)) for n in range(60)]
    assert not results[0].cancel(), "a client that leaves does not stop the writer"
    bad = writer.submit(FeedbackRows("ctr", hour(1), "bad", rows(1, field="city"), "1h"))
    wait([*results, bad], timeout=60)
    assert sum(result.result().rows for result in results) == 30 * 20
    assert isinstance(bad.exception(), InputError)
    assert store.journal("ctr").sketch() == sum(rows(n) for n in range(30))
    writer.close()


def test_a_database_that_is_gone_is_told_to_every_request_and_resending_is_safe(store, monkeypatch):
    writer = FeedbackWriter(store)
    assert writer.submit(request("a", 1)).result(60).rows == 20

    def gone(*_, **__):
        raise StoreUnavailableError("the server is gone")

    with monkeypatch.context() as patch:
        patch.setattr(store.database, "_begin", gone)
        for result in [writer.submit(request(key, 2)) for key in "bc"]:
            assert isinstance(result.exception(60), StoreUnavailableError)
    assert writer.submit(request("b", 2)).result(60).rows == 20
    writer.close()


WRITER = """
import sys, numpy as np
from mcnet.sketch.sketch import Sketch
from mcnet.store.feedback import FeedbackRows, add_feedback
from mcnet.store.store import Store
store, period = Store(sys.argv[1]), sys.argv[2]
for group in range(200):
    requests = []
    for n in range(8 * group, 8 * group + 8):
        rng = np.random.default_rng(n)
        score, country = rng.random(20), rng.choice(["NL", "FR"], 20)
        sketch = Sketch.from_rows(score, rng.random(20) < score, field={"country": country})
        requests.append(FeedbackRows("ctr", period, f"k{n}", sketch, "1h"))
    outcomes = add_feedback(store, requests)
    print(*(8 * group + n for n, outcome in enumerate(outcomes)), flush=True)
"""


def test_kills_lose_no_request_that_was_answered_and_count_none_twice(store):
    chance = random.Random(1)
    words = [sys.executable, "-c", textwrap.dedent(WRITER), store.database.given, hour(1)]
    for _ in range(4):
        writers = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]  # the same keys, twice
        lines = [writer.stdout.readline() for writer in writers]
        time.sleep(chance.random() * 0.1)
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
        lines += [line for writer in writers for line in writer.communicate()[0].splitlines(keepends=True)]
        answered = {int(word) for line in lines if line.endswith("\n") for word in line.split()}
        there = sorted(int(source.removeprefix("feedback k")) for source in count(store, entries))
        assert answered <= set(there)
        assert len(there) == len(set(there))
        assert len(there) % 8 == 0, "a group is there as a whole or not at all"
        assert store.journal("ctr").sketch() == sum(rows(n) for n in there)
    assert store.check() == []


def test_a_server_that_crashes_loses_nothing_and_the_writer_goes_on(postgresql_store, postgresql):
    """The sessions are ended under the writer: unanswered requests are sent again, and count once."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
    store = Store(postgresql_store())
    store.configure("ctr", every="1h")
    writer = FeedbackWriter(store, most=4)
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mcnet'"
    for turn in range(5):
        results = [writer.submit(request(f"{turn} {n}", 20 * turn + n)) for n in range(20)]
        with psycopg.connect(postgresql, autocommit=True) as admin:
            admin.execute(ended)
        for n, result in enumerate(results):
            while isinstance(result.exception(60), StoreUnavailableError):
                result = writer.submit(request(f"{turn} {n}", 20 * turn + n))
            assert isinstance(result.result(), Added)
    writer.close()
    assert store.journal("ctr").sketch() == sum(rows(n) for n in range(100))


def test_the_writer_tells_that_the_statements_are_over_before_the_rows_are_durable(store):
    told = []
    writer = FeedbackWriter(store, executed=lambda: told.append(len(store.journal("ctr").entries())))
    try:
        assert writer.submit(request("a", 1)).result(60).rows == 20
        assert told == [1]  # of the transaction itself
        with pytest.raises(InputError, match="no head 'nope'"):
            writer.submit(request("b", 2, head="nope")).result(60)
        assert not writer.is_executing
    finally:
        writer.close()
