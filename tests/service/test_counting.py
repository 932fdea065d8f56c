"""What is counted, when, and that few rows are counted as many are."""

import asyncio
import json

import pytest

from mcnet.operations.service import calibrate, metrics
from mcnet.operations.service.app import make_app
from mcnet.operations.service.metrics import HeadNumbers
from mcnet.operations.service.served import load_served
from mcnet.operations.service.settings import ServiceSettings
from mcnet.rows.fields import field_columns


@pytest.mark.parametrize(("query", "status", "counted"), [(b"", 200, "2xx"), (b"wrong=1", 400, "4xx")])
def test_an_answer_is_counted_before_it_is_sent(registry, query, status, counted):
    """Whoever has an answer, and then asks any worker for the metrics, finds it there."""
    app, seen = make_app(ServiceSettings(registry.path, head="default")), []
    number = metrics._ANSWERED["calibrate", counted]._value
    before = number.get()
    body = json.dumps({"score": [0.1], "field": {"country": ["NL"]}}).encode()
    scope = {"type": "http", "method": "POST", "path": "/calibrate", "query_string": query, "headers": []}

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        if message["type"] == "http.response.start":
            seen.append((message["status"], number.get() - before))

    for _ in range(3):
        asyncio.run(app(scope, receive, send))
    assert seen == [(status, times) for times in (1, 2, 3)]


@pytest.mark.parametrize("rows", [1, 2, 8, 9])
def test_a_few_rows_are_answered_and_counted_as_many_are(registry, rows):
    served, numbers = load_served(registry), HeadNumbers(f"head {rows}")
    scores = [0.05 * (row + 1) for row in range(rows)]
    field = {"country": (["NL", "nowhere"] * 5)[:rows]}
    found = json.loads(
        calibrate.answer_json(served, json.dumps({"score": scores, "field": field}).encode(), 9, numbers)
    )
    assert found["calibrated"] == served.model.predict(scores, field_columns(field)).tolist()
    counted = [numbers._counts[name]._value.get() for name in ("predictions", "unseen_rows")]
    assert counted == [rows, field["country"].count("nowhere")]
