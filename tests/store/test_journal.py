"""The journal: nothing is lost, nothing counts twice, whatever is retried, interrupted or done at the same time."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.conftest import rows

from mcnet.errors import CalibrationWarning, InputError
from mcnet.sketch.sketch import Sketch
from mcnet.store.journal import Journal
from mcnet.store.schema import entries
from mcnet.store.store import Store


def test_a_journal_adds_up_what_was_added(journal):
    parts = {day: rows(place) for place, day in enumerate(["2026-11-14", "2026-11-15", "2026-11-16"])}
    for day, sketch in parts.items():
        journal.add(sketch, day, source="shop")
    assert journal.periods == list(parts)
    assert journal.sketch() == sum(parts.values())
    assert journal.sketch(since="2026-11-15") == parts["2026-11-15"] + parts["2026-11-16"]
    assert journal.sketch(until="2026-11-14") == parts["2026-11-14"]
    assert dict(journal.sketches()) == parts
    assert journal.verify() == []


def test_what_rows_are_worth_is_kept_and_its_loss_is_said_once(journal):
    worth = {day: rows(day).with_value(2.0) for day in (1, 2, 3)}
    for day, sketch in worth.items():
        journal.add(sketch, day, source="shop")
    assert dict(journal.sketches()) == {str(day): sketch for day, sketch in worth.items()}
    assert journal.sketch().value_kind == "row"
    for seed in (4, 5):
        journal.add(rows(seed), 1, source=f"feedback {seed}")
        journal.add(rows(seed + 9), 3, source=f"feedback {seed}")
    for merge in (lambda: journal.sketch(until=1), lambda: journal.compact(before=2)):
        with pytest.warns(CalibrationWarning, match="has no values") as said:
            merge()
        assert len(said) == 1
    assert journal.sketch(since=2, until=2).value_kind == "row"


def test_a_source_may_have_more_periods_than_a_statement_may_name(tmp_path):
    store = Store(tmp_path / "ads.db")
    set_limit = lambda connection, _: connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 1_010)  # noqa: E731
    sa.event.listen(store.database.engine, "connect", set_limit)
    journal, early, late = store.journal(), rows(1, 2), rows(2, 2)
    assert journal.add_parts(dict.fromkeys(range(1_100), early), source="shop").rows == 2_200
    assert journal.add_parts(dict.fromkeys(range(1_100), late), source="shop", replace=True).rows == 2_200
    assert (len(journal.periods), journal.remove("shop")) == (1_100, 2_200)


def test_the_same_source_twice_changes_nothing(journal):
    assert journal.add(rows(1), 1, source="a").rows == 50
    again = journal.add(rows(1), 1, source="a")
    assert (again.rows, again.known) == (0, ("1",))
    assert journal.sketch() == rows(1)


def test_the_same_rows_without_a_source_count_once(journal):
    journal.add(rows(1), 1)
    assert journal.add(rows(1), 1).rows == 0
    assert journal.add(rows(1), 2).rows == 50


def test_other_rows_of_a_source_are_refused_unless_they_replace(journal):
    journal.add(rows(1), 1, source="a")
    with pytest.raises(InputError, match="50 other rows for 1 before"):
        journal.add(rows(2), 1, source="a")
    assert journal.sketch() == rows(1)
    journal.add(rows(2), 1, source="a", replace=True)
    assert journal.sketch() == rows(2)


def test_late_rows_of_an_old_period_add_up(journal):
    journal.add(rows(1), 1, source="a")
    journal.add(rows(2), 2, source="a")
    journal.add(rows(3), 1, source="late")
    assert dict(journal.sketches()) == {"1": rows(1) + rows(3), "2": rows(2)}


def test_a_source_can_be_removed(journal):
    for period in (1, 2):
        journal.add(rows(period), period, source="a")
        journal.add(rows(period + 10), period, source="b")
    assert journal.remove("a", 1) == 50
    assert dict(journal.sketches()) == {"1": rows(11), "2": rows(2) + rows(12)}
    assert journal.remove("b") == 100
    assert journal.periods == ["2"]
    with pytest.raises(InputError, match="nothing from 'c'"):
        journal.remove("c")


def test_half_life_and_weights(journal):
    for period in (0, 1, 4):  # a gap counts as what it is
        journal.add(rows(period), period)
    decayed = journal.sketch(half_life=1.0)
    expected = 2.0**-4 * rows(0) + 2.0**-3 * rows(1) + rows(4)
    assert decayed == expected
    assert journal.sketch(weights={0: 0.0, 4: 0.5}) == rows(1) + 0.5 * rows(4)
    with pytest.raises(InputError, match="half_life"):
        journal.sketch(half_life=0)
    with pytest.raises(InputError, match="every period has weight 0"):
        journal.sketch(weights={0: 0, 1: 0, 4: 0})


def test_rows_that_do_not_add_up_are_refused(journal):
    journal.add(rows(1), 1)
    with pytest.raises(InputError, match="fields"):
        journal.add(rows(2, field=False), 2)
    with pytest.raises(InputError, match="different kinds"):
        journal.add(rows(2), "2026-11-16")


def test_a_later_count_takes_the_place_of_an_earlier_one(journal):
    early, late = rows(1), rows(2)
    journal.add(early, 1, source="orders", age=0)
    journal.add(late, 1, source="orders", age=3)
    assert journal.sketch() == late
    assert [entry.age for entry, _ in journal.counts()] == [0.0, 3.0]
    journal.add(rows(3), 1, source="orders")  # complete
    assert journal.sketch() == rows(3)


def test_a_folder_is_no_journal(tmp_path):
    with pytest.raises(InputError, match="is a folder; a store is a file"):
        Journal(tmp_path)
    with pytest.raises(InputError, match="there is no store"):
        Journal(tmp_path / "none").verify()


def test_a_damaged_journal_says_so(journal):
    journal.add(rows(1), 1, source="a")
    journal.add(rows(2), 2, source="b")
    with journal.changing() as (connection, _):
        other = connection.scalar(sa.select(entries.c.sketch).where(entries.c.source == "b"))
        connection.execute(entries.update().where(entries.c.source == "a").values(sketch=other))
        connection.execute(entries.update().where(entries.c.source == "b").values(sketch=b"nothing"))
    first, second = journal.verify()
    assert "1 of a" in first
    assert "has other rows than were added" in first
    assert "2 of b" in second


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(0, 2)), max_size=12), st.randoms())
def test_any_sequence_of_additions_counts_each_source_and_period_once(tmp_path_factory, steps, chance):
    journal = Journal(tmp_path_factory.mktemp("journal") / "it.db")
    expected = {}
    for period, source, seed in steps:
        journal.add(rows(seed, 5), period, source=source, replace=True)
        expected[period, source] = rows(seed, 5)
        if chance.random() < 0.3:
            journal.remove(source, period)
            del expected[period, source]
    if expected:
        assert journal.sketch() == sum(expected.values())
    else:
        assert journal.periods == []


WRITER = """
import sys, numpy as np
from mcnet.sketch.sketch import Sketch
from mcnet.store.journal import Journal
journal = Journal(sys.argv[1], "journal")
for n in range(int(sys.argv[3])):
    rng = np.random.default_rng(n)
    score = rng.random(20)
    journal.add(Sketch.from_rows(score, rng.random(20) < score), n % 5, source=f"{sys.argv[2]}-{n}")
    print(n, flush=True)
"""


def small(n):
    rng = np.random.default_rng(n)
    score = rng.random(20)
    return Sketch.from_rows(score, rng.random(20) < score)


def writer(journal, name, number):
    words = [journal.store.database.given, name, str(number)]
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(WRITER), *words], stdout=subprocess.PIPE, text=True)


def test_two_writers_at_once_lose_nothing(journal):
    running = [writer(journal, name, 12) for name in "ab"]
    for process in running:
        process.communicate(timeout=120)
        assert process.returncode == 0
    assert journal.sketch() == sum(small(n) for n in range(12)) * 2


def test_writers_of_the_same_source_count_once(journal):
    running = [writer(journal, "same", 8) for _ in range(3)]
    for process in running:
        process.communicate(timeout=120)
        assert process.returncode == 0
    assert journal.sketch() == sum(small(n) for n in range(8))


def test_kill_at_any_moment_loses_nothing_that_was_acknowledged(journal):
    chance = random.Random(0)
    for _ in range(3):
        process = writer(journal, "a", 30)
        acknowledged = [int(process.stdout.readline())]
        time.sleep(chance.random() * 0.1)
        os.kill(process.pid, signal.SIGKILL)
        acknowledged += [int(line) for line in process.communicate()[0].split()]
        found = {entry.source for entry in journal.entries()}
        assert {f"a-{n}" for n in acknowledged} <= found
        assert journal.sketch() == sum(small(int(source[2:])) for source in found)
        assert journal.verify() == []


# -- all or nothing, and never twice in silence --------------------------------------------------------------------


def test_an_age_needs_a_source(journal, tmp_path):
    with pytest.raises(InputError, match="age was given without a source"):
        journal.add(rows(1), 1, age=0)
    with pytest.raises(InputError, match="age was given without a source"):
        journal.add_files(tmp_path / "log.parquet", score="s", label="y", time="t", every="1d", age=0)
    assert journal.periods == []


def test_the_weights_of_periods_are_numbers_of_periods_that_are_there(journal):
    for period in (1, 2):
        journal.add(rows(period), period)
    for wrong in (-1.0, float("nan"), float("inf"), "2"):
        with pytest.raises(InputError, match=r"the weight of 2 is .*; it must be a number, 0 or more"):
            journal.sketch(weights={2: wrong})
    with pytest.raises(InputError, match="weights has the period 7, of which the journal has no rows"):
        journal.sketch(weights={7: 0.5})
    assert journal.sketch(since=2, weights={1: 0.0}) == rows(2)


def test_a_journal_that_is_not_there_is_named(tmp_path):
    for read in (lambda journal: list(journal.sketches()), lambda journal: journal.sketch()):
        with pytest.raises(InputError, match=r"there is no store in .*typo"):
            read(Journal(tmp_path / "typo"))


# -- readers beside writers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [lambda j: j.compact(), lambda j: j.remove("b", 2)])
def test_a_reader_goes_on_while_files_are_merged_or_removed(opened, journal, change):
    for period in range(4):
        journal.add(rows(period), period, source="a")
        journal.add(rows(period + 10), period, source="b")
    expected = dict(journal.sketches())
    reader = journal.sketches()
    first = next(reader)
    change(opened("journal"))
    assert dict([first, *reader]) == expected
    journal.add(rows(99), 99)
    assert journal.verify() == []


def test_a_snapshot_is_what_the_journal_was(journal):
    for source in ("a", "b"):
        journal.add(rows(source == "a"), 1, source=source)
        journal.add(rows(source == "a"), 2, source=source)
    past = journal.snapshot()
    journal.compact()
    journal.add(rows(5), 2, source="late")
    assert dict(past.sketches()) == {"1": rows(0) + rows(1), "2": rows(0) + rows(1)}
    del past
    journal.compact(before=3)


def weighted(*weights):
    return Sketch.from_rows([0.1] * len(weights), [0.0] * len(weights), weight=list(weights))


def test_a_weight_far_above_every_one_before_is_refused_unless_it_is_allowed(journal):
    for weight, most in ((1e100, 1e6), (2e6, 1e6)):
        with pytest.raises(InputError, match="1,000,000, the most in an empty journal; correct the weight, or allow"):
            journal.add(weighted(1.0, weight), "2026-11-01", source="a", largest_weight=weight, allow="period")
        assert weight > most
    with pytest.raises(InputError, match="allow is 'weights'; there are weight and period"):
        journal.add(weighted(1.0), "2026-11-01", source="a", allow=["weights"])
    assert not journal.entries()
    journal.add(weighted(1.0, 500.0), "2026-11-01", source="a", largest_weight=500.0)
    journal.add(weighted(499_000.0, 1.0), "2026-11-02", source="b", largest_weight=499_000.0)
    journal.add(weighted(1.0), "2026-11-02", source="c")
    assert journal.compact(before="2026-11-03") == 1
    assert max(entry.heaviest for entry in journal.entries()) == 499_000.0  # also of what was merged
    heavy = {"sketch": weighted(1e9, 1.0), "period": "2026-12-03", "source": "d", "largest_weight": 1e9}
    with pytest.raises(InputError, match=r"d has a row of weight 1e\+09 for 2026-12-03, above 1,000 times the largest"):
        journal.add(**heavy)
    assert journal.add(**heavy, allow="weight").rows == 2
    assert journal.add(**heavy).rows == 0  # what is there already is not judged again
    journal.add(weighted(1e11), "2026-12-04", source="e")


@pytest.mark.parametrize(
    ("known", "period", "every", "fine"),
    [
        (["2026-11-16T13:00"], "1971-01-01", None, False),
        (["2026-11-16T13:00"], "2026-10-31", None, True),
        (["2026-11-16T13:00"], "2026-10-30", None, False),
        (["2026-11-16T13:00"], "2025-11-16", "1d", True),
        (["2026-11-15", "2026-11-16"], "2025-10-12", None, True),
        (["2026-11-15", "2026-11-16"], "2025-10-10", None, False),
        (["2026-11-15", "2026-11-16"], "2099-01-01", None, False),
        ([], "2099-01-01", None, False),
        ([], "1971-01-01", None, True),
        (["7", "8", "9"], "-500", None, False),
        (["700", "701", "702"], "300", None, True),
        (["b", "c"], "a", None, True),
    ],
)
def test_a_period_far_before_the_first_or_far_after_now_is_refused(journal, known, period, every, fine):
    for name in known:
        journal.add(rows(1), name, source="old")
    if fine:
        assert journal.add(rows(2), period, source="new", every=every).rows == 50
        return
    with pytest.raises(InputError, match=rf"the period {period} lies .*allow it by name: pass allow='period'"):
        journal.add(rows(2), period, source="new", every=every)
    assert journal.add(rows(2), period, source="new", every=every, allow="period").rows == 50


def test_rows_whose_scores_and_labels_look_swapped_are_refused(journal):
    with pytest.warns(CalibrationWarning, match="every score is 0 or 1"):
        swapped = Sketch.from_rows([1.0, 0.0, 1.0], [0.1, 0.2, 0.3])
    with pytest.raises(InputError, match=r"every score is 0 or 1 and label has fractions: .* look swapped; swap them"):
        journal.add(swapped, "2026-11-16")
    assert journal.periods == []
    with pytest.warns(CalibrationWarning, match="every score is 0 or 1"):  # the weights have the fractions
        weighted = Sketch.from_rows([1.0, 0.0, 1.0], [1, 0, 1], weight=[0.3, 0.3, 0.5])
    assert journal.add(weighted, "2026-11-16").rows == 3


def logit_rows(seed):
    rng = np.random.default_rng(seed)
    logit = rng.normal(-2.0, 1.0, 50)
    return Sketch.from_rows(logit, rng.random(50) < 0.1, field=rng.choice(["NL", "FR"], 50), score_type="logit")


def test_scores_of_another_type_are_refused(journal):
    journal.add(rows(1), "2026-11-16", source="a")
    with pytest.raises(InputError, match="are logits, those of the journal probabilities; read them as such: pass sco"):
        journal.add(logit_rows(2), "2026-11-17", source="b")
    assert journal.add(rows(3), "2026-11-17", source="b").rows == 50
    assert journal.edges() == {}
    with pytest.raises(InputError, match="are logits"):
        journal.add(logit_rows(2), "2026-11-18", source="c")


def test_periods_of_another_length_than_those_of_the_head_are_refused(journal):
    journal.store.configure(journal.head, every="6h")
    journal.add(rows(1), "2026-11-16T06", source="a", every="6h")
    with pytest.raises(
        InputError, match="these rows are 1d long, those of the head 6h; cut them alike: pass every='6h'"
    ):
        journal.add(rows(2), "2026-11-17", source="b", every="1d")
    assert journal.add(rows(2), "2026-11-17", source="b", every="360m").rows == 50
