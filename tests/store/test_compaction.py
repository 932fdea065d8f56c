"""Compacting changes no sum, and keeps what was merged known."""

import pytest
from tests.store.conftest import rows

from mcnet.errors import InputError
from mcnet.sketch.sketch import Sketch
from mcnet.store.store import Store


def test_compacting_changes_no_sum_and_keeps_retries_harmless(journal):
    for period in range(5):
        for source in "abc":
            journal.add(rows(10 * period + ord(source)), period, source=source)
    before = dict(journal.sketches())
    assert journal.compact() == 8  # the last period stays
    assert dict(journal.sketches()) == before
    for period in range(5):
        for source in "abc":
            assert journal.add(rows(10 * period + ord(source)), period, source=source).rows == 0
    journal.add(rows(99), 0, source="late")
    assert journal.sketch(until=0) == before["0"] + rows(99)
    assert journal.compact(before=5) == 1 + 2
    assert journal.sketch(until=0) == before["0"] + rows(99)
    assert journal.add(rows(99), 0, source="late").rows == 0
    assert journal.verify() == []
    with pytest.raises(InputError, match="compacted"):
        journal.add(rows(98), 0, source="late", replace=True)


def test_compacting_leaves_what_was_counted_at_several_ages(journal):
    for source, age, seed in (("orders", 0, 1), ("orders", None, 2), ("a", None, 3), ("b", None, 4)):
        journal.add(rows(seed), 1, source=source, age=age)
    assert journal.compact(before=2) == 1
    assert journal.sketch() == rows(2) + rows(3) + rows(4)
    assert sorted(entry.source for entry, _ in journal.counts()) == ["(compacted)", "orders", "orders"]
    assert journal.arrival() is not None
    with pytest.raises(InputError, match="a gave other rows for 1 before, and they are compacted"):
        journal.add(rows(5), 1, source="a", age=0)  # an earlier count that comes late


def test_rows_that_were_replaced_do_not_come_back_by_compacting(journal):
    journal.add(rows(1), 1, source="a")
    journal.add(rows(2), 1, source="a", replace=True)
    journal.add(rows(3), 1, source="b")
    journal.compact(before=9)
    assert journal.sketch() == rows(2) + rows(3)
    assert len(journal.entries()) == 1


def test_removing_a_source_that_is_partly_compacted_removes_nothing(journal):
    for period in range(4):
        journal.add(rows(period), period, source="a")
        journal.add(rows(period + 10), period, source="b")
    journal.compact(before=3)
    before = journal.table()
    with pytest.raises(InputError, match=r"gave for 3 periods, 0 to 2, is compacted .* nothing was removed"):
        journal.remove("a")
    assert journal.table().equals(before)
    assert journal.remove("a", 3) == 50


def test_a_journal_without_rows_has_nothing_to_compact(journal):
    with pytest.raises(InputError, match="there is no store in"):
        journal.compact()
    journal.store.add_head(journal.head)
    assert journal.compact() == journal.compact("2026-11-16") == 0


def test_rows_that_change_while_a_period_is_merged_are_merged_as_they_are_then(store, monkeypatch):
    journal = store.journal("ctr")
    for source in "ab":
        for period in (1, 2):
            journal.add(rows(ord(source)), period, source=source)
    merged = Sketch.merged
    other = Store(store.database.given).journal("ctr")

    def slow(sketches):
        monkeypatch.undo()
        other.add(rows(7), 1, source="b", replace=True)
        return merged(sketches)

    monkeypatch.setattr("mcnet.store.journal.Sketch.merged", slow)
    assert journal.compact() == 1
    assert journal.sketch(until=1) == rows(ord("a")) + rows(7)
    assert journal.verify() == []
