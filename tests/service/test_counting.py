"""What is counted: every answer before it is sent, and nothing lost between threads."""

import asyncio
import json
import sys
import threading
from types import SimpleNamespace

import pytest

from mcnet.operations.service import calibrate
from mcnet.operations.service.board import ROUTES, Board, HeadNumbers, Numbers
from mcnet.operations.service.served import load_served
from mcnet.operations.service.service import Service
from mcnet.operations.service.settings import ServiceSettings
from mcnet.rows.fields import field_columns

CALIBRATE = ROUTES.index("calibrate")


@pytest.mark.parametrize(("query", "status", "counted"), [("", 200, [1, 0, 0]), ("wrong=1", 400, [0, 1, 0])])
def test_an_answer_is_counted_before_it_is_sent(registry, tmp_path, query, status, counted):
    """Whoever has an answer, and then asks any worker for the metrics, finds it there."""
    service, seen = Service(ServiceSettings(registry.path, board=tmp_path)), []
    body = json.dumps({"score": 0.1, "field": {"country": "NL"}}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    scope = SimpleNamespace(proto="http", method="POST", path="/calibrate", query_string=query, headers=headers)

    class Protocol:
        async def __call__(self):
            return body

        def response_bytes(self, status, headers, body):
            elsewhere = Board(tmp_path).total()
            seen.append((status, elsewhere.statuses(CALIBRATE)))

    for _ in range(3):
        asyncio.run(service.__rsgi__(scope, Protocol()))
    assert seen == [(status, [times * number for number in counted]) for times in (1, 2, 3)]


def test_threads_that_count_at_the_same_time_lose_nothing(tmp_path):
    numbers, often = Board(tmp_path).own, 3_000

    class Slow(list):
        """Numbers whose reading gives way to another thread, as may happen anywhere."""

        def __getitem__(self, place):
            found = super().__getitem__(place)
            threading.Event().wait(0)
            return found

    numbers, of_head = Numbers(Slow(numbers.values.tolist())), HeadNumbers(Slow([0.0] * len(HeadNumbers.names)))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=_count, args=(numbers, of_head, often)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert of_head["rows"] == 4 * often
    assert numbers.statuses(CALIBRATE) == [4 * often, 0.0, 0.0]


def _count(numbers: Numbers, of_head: HeadNumbers, often: int) -> None:
    for _ in range(often):
        of_head.count_rows(1, 0)
        numbers.answered(CALIBRATE, 200, 0.001)


@pytest.mark.parametrize("rows", [2, 8, 9])
def test_a_few_rows_are_answered_and_counted_as_many_are(registry, tmp_path, monkeypatch, rows):
    served, numbers = load_served(registry), Board(tmp_path).head(1)
    scores = [0.05 * (row + 1) for row in range(rows)]
    field = {"country": (["NL", "nowhere"] * 5)[:rows]}
    made = []
    contexts = type(served.model.contexts)
    given = contexts.given
    monkeypatch.setattr(contexts, "given", lambda self, field: made.append(field) or given(self, field))
    result = calibrate.calibrate_rows(served, numbers, scores, field)
    monkeypatch.undo()
    assert result.calibrated.tolist() == served.model.predict(scores, field_columns(field)).tolist()
    assert (numbers["rows"], numbers["unseen_rows"]) == (rows, field["country"].count("nowhere"))
    assert bool(made) == (rows > 8)  # columns are made of many rows only
