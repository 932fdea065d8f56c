"""Feedback: labelled rows of many small requests, written together, each of which counts once and is answered."""

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy.engine import Connection

from mcnet.errors import InputError, McnetError
from mcnet.rows.periods import is_timestamp, period_position, period_text
from mcnet.sketch.sketch import Sketch
from mcnet.store.additions import Before, SourceRows, shape_of, take
from mcnet.store.entries import FEEDBACK, Added, Entry, OtherRowsError, check_first_period, check_periods, entry_of

if TYPE_CHECKING:
    from mcnet.store.store import Head, Store


class FeedbackRows(SourceRows):
    """The labelled rows of one request.

    A key that came before with the same rows, whatever their period, changes nothing. Rows of a period that is older
    than the keys that are kept are refused, since it cannot be told whether they came before.
    """

    def __init__(
        self,
        head: str,
        period: str,
        key: str,
        sketch: Sketch,
        every: str | None = None,
        age: float | None = None,
        largest_weight: float | None = None,
        allow: Collection[str] = (),
    ) -> None:
        super().__init__(
            lambda: [entry_of(sketch, period_text(period), FEEDBACK + key, age, largest_weight)], every, allow
        )
        self.head, self.key, self.sketch = head, key, sketch

    def known_for(self, entry: Entry, before: Mapping[str, "Before"]) -> str | None:
        """Return the period for which the same rows came before; other rows under the same key are refused."""
        same = next((period for period, known in before.items() if known.digest == entry.digest), None)
        if same is None and before:
            raise OtherRowsError(
                f"the key {self.key!r} came with other rows for {next(iter(before))} before; use another key"
            )
        return same

    def check_periods(self, connection: Connection, head: "Head", periods: Sequence[str]) -> None:
        """Refuse periods that are implausible, or so old that nobody can tell whether the rows came before."""
        for period in periods:
            _refuse_forgotten(head, period)
        if "period" not in self.allow:
            for period in periods if head.first_period is None else ():
                check_first_period(period, self.every)
            check_periods(periods, [] if head.first_period is None else [head.first_period], self.every)

    def copies(self, *_: Any) -> tuple[tuple[str, str, str], ...]:
        """Return nothing: requests may have the same rows."""
        return ()


def _refuse_forgotten(head: "Head", period: str) -> None:
    begin = period_position(period)
    if begin is None or not is_timestamp(period):
        return
    days = (datetime.now(UTC).timestamp() - begin) / 86_400.0
    why = ""
    if days > head.settings.key_days:
        why = f"are kept for {head.settings.key_days:g} days"
    elif begin < (head.keys_forgotten or -np.inf):
        why = "of that time are forgotten, since they were kept for fewer days before"
    if why:
        raise InputError(
            f"the period {period} began {days:,.0f} days ago, and the keys of feedback {why}, so rows that came "
            "before would count twice; add them as a log: `mcnet journal add`"
        )


def add_feedback(
    store: "Store", requests: Sequence[FeedbackRows], executed: Callable[[], None] = lambda: None
) -> list[Added | McnetError]:
    """Commit many requests in one transaction, and return what each has changed, or why it was refused.

    `executed` is called after the last statement, before the rows are made durable. Where the database cannot be
    reached or written, nothing was added, and all of them may be sent again.
    """
    outcomes: dict[FeedbackRows, Added | McnetError] = {}
    by_head: dict[str, list[FeedbackRows]] = defaultdict(list)
    for request in requests:
        by_head[request.head].append(request)
    with store.transaction(what="nothing was added"):
        for name, left in sorted(by_head.items()):
            while left:
                try:
                    with store.writing_head("journal", name, create=False) as (connection, head):
                        shape = store.shapes[name] = shape_of(head)
                        now = left if shape is not None else left[:1]  # the first rows of a head decide on its shape
                        outcomes |= zip(now, take(connection, head, now), strict=True)
                        left = left[len(now) :]
                except InputError as error:  # there is no such head
                    outcomes |= dict.fromkeys(left, error)
                    left = []
        executed()
    return [outcomes[request] for request in requests]


class FeedbackWriter:
    """Commits requests that arrive while an earlier group is being written as one group, of at most so many.

    `executed` and `committed` are called after the statements of each group, and when it is durable.
    """

    def __init__(
        self,
        store: "Store",
        most: int = 256,
        executed: Callable[[], None] = lambda: None,
        committed: Callable[[], None] = lambda: None,
    ) -> None:
        self.is_executing = False
        """Whether statements are being executed that compute in this process; not while a disk or a server works."""
        self._store, self._most = store, most
        self._executed, self._committed = executed, committed
        self._waiting: queue.SimpleQueue[tuple[FeedbackRows, Future[Added]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="mcnet-feedback", daemon=True)
        self._thread.start()

    def submit(self, request: FeedbackRows) -> "Future[Added]":
        """Take a request; its result is there when its rows are durable, or why they were refused."""
        result: Future[Added] = Future()
        result.set_running_or_notify_cancel()  # a client that leaves does not take its rows back
        self._waiting.put((request, result))
        return result

    def close(self) -> None:
        """Write what was taken, and end."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (one := self._waiting.get()) is not None:
            group = [one]
            with suppress(queue.Empty):
                while len(group) < self._most and (one := self._waiting.get_nowait()) is not None:
                    group.append(one)
            self._commit(group)
            if one is None:
                return

    def _commit(self, group: list[tuple[FeedbackRows, "Future[Added]"]]) -> None:
        self.is_executing = self._store.database.is_sqlite
        try:
            outcomes = add_feedback(self._store, [request for request, _ in group], self._end_statements)
        except BaseException as error:  # of the whole group, such as a database that cannot be reached
            self._end_statements()
            for _, result in group:
                result.set_exception(error)
            return
        self._committed()
        for (_, result), outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Added):
                result.set_result(outcome)
            else:
                result.set_exception(outcome)

    def _end_statements(self) -> None:
        self.is_executing = False
        self._executed()
