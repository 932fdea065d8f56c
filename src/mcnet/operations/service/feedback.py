"""`POST /feedback`: labelled rows, or a sketch of them, into the journal; answered when they are on disk."""

import asyncio
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from mcnet._shared.arrays import ScoreType
from mcnet.errors import BusyError, FileFormatError, InputError, StoreUnavailableError
from mcnet.operations.service.arrow import ARROW, check_rows, read_arrow
from mcnet.operations.service.calibrate import Value
from mcnet.operations.service.metrics import FEEDBACK_COMMITS
from mcnet.operations.service.problems import RETRY, Problem, decoded
from mcnet.operations.service.served import Served, ServedHeads, ServedVersions
from mcnet.operations.service.settings import LARGE_BODY, ServiceSettings
from mcnet.rows.columns import weights_column
from mcnet.rows.fields import field_columns, number_fields
from mcnet.rows.periods import cut_to_periods, duration_seconds, parse_every, period_text, shown_periods
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.sketch_file import sketch_of_bytes
from mcnet.store.additions import shape_of
from mcnet.store.entries import OtherRowsError
from mcnet.store.feedback import FeedbackRows, FeedbackWriter

# Which period it is now, and when it ends.

_SLACK = timedelta(minutes=5)
"""By how much the clock of a client may be ahead."""

_FIRST_YEAR = 1970
"""Moments of this year are counters in a wrong unit, or no moments at all."""


@dataclass(frozen=True)
class Present:
    """The period that a moment lies in."""

    period: str
    previous: str
    """The period before it, the last one that has ended."""
    end: datetime
    """When it ends, in UTC."""


def present(every: str, now: datetime | None = None) -> Present:
    """Return the period that a moment in UTC (by default the present one) lies in.

    >>> present("1h", datetime(2026, 11, 16, 0, 25))
    Present(period='2026-11-16', previous='2026-11-15T23:00', end=datetime.datetime(2026, 11, 16, 1, 0))
    """
    import polars as pl

    timestamp = (now or datetime.now(UTC)).replace(tzinfo=None)
    column = pl.Series("now", [timestamp])
    period = period_text(cut_to_periods(column, every)[0])
    try:
        begin = column.dt.truncate(every)
        end = begin.dt.offset_by(every)[0]
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{every!r} is not the length of a period ({error}); write 15m, 1h or 1d") from None
    before = period_text(cut_to_periods(pl.Series("now", [begin[0] - timedelta(seconds=1)]), every)[0])
    return Present(period, before, end)


def _as_read(period: str, every: str | None) -> str:
    """Return the name of a period as people read it: midnight with its time, where periods are shorter than days."""
    seconds = None if every is None or parse_every(every).unit is None else duration_seconds(every)
    return shown_periods([period], seconds=seconds)[0]


def named_period(period: str | int, every: str, now: datetime | None = None) -> str:
    """Return the canonical name of a period; refuse one that a service with periods of this length cannot have.

    >>> named_period("2026-11-16T13", "1h", datetime(2026, 11, 16, 13, 25))
    '2026-11-16T13:00'
    """
    now = (now or datetime.now(UTC)).replace(tzinfo=None)
    text = period_text(period)
    try:
        # Years are not named by the day or the moment they begin.
        begin = datetime.strptime(text, "%Y") if parse_every(every).unit == "y" else datetime.fromisoformat(text)
        if begin.year <= _FIRST_YEAR:
            raise ValueError
    except ValueError:
        raise InputError(
            f"the period is {text!r}; this service has periods of {every}, named by the moment they begin, such as "
            f"{_as_read(present(every, now).period, every)}"
        ) from None
    if text == str(period).strip() != _as_read(text, every):  # midnight has this name, and so has the day
        raise InputError(
            f"{text} names a day, and this service has periods of {every}; the first of that day is "
            f"{_as_read(text, every)}"
        )
    named = present(every, begin).period
    if named != text:
        raise InputError(
            f"the period {text} is not one of {every}: that moment lies in the period {_as_read(named, every)}"
        )
    if begin > now + _SLACK:
        raise InputError(
            f"the period {_as_read(text, every)} has not begun: it is {now.isoformat(timespec='seconds')} UTC "
            "by the clock of this service; send rows of a past or the present period"
        )
    return text


# `POST /feedback`: labelled rows, or a sketch of them, into the journal; answered when they are on disk.

SKETCH = "application/vnd.apache.parquet"
_LONGEST_KEY, _LONGEST_PERIOD = 200, 60
_FORM = 'send columns: {"score": [0.1], "label": [1], "field": {"country": ["NL"]}, "key": "web-1/17"}'
_SWITCH_SECONDS, _USUAL_SWITCH_SECONDS = 0.0005, sys.getswitchinterval()
"""How long a thread waits for one that computes, while feedback is written and otherwise. The thread that writes waits
after each of its statements; but where nothing is written, short waits only cost switches between threads."""


class About(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What Arrow and sketches have behind the question mark, and JSON in the body."""

    period: Annotated[str | int | None, msgspec.Meta(description="The period of the rows.")] = None
    key: Annotated[str | None, msgspec.Meta(description="The key.", extra_json_schema={"maxLength": _LONGEST_KEY})] = (
        None
    )
    age: Annotated[
        float | None,
        msgspec.Meta(description="How many periods later labels were counted.", extra_json_schema={"minimum": 0}),
    ] = None
    score_type: Annotated[ScoreType | None, msgspec.Meta(description="What the scores are.")] = None
    allow: Annotated[str, msgspec.Meta(description="Implausible rows to add: weight, period.")] = ""


class Feedback(About, kw_only=True):
    """Labelled rows as columns; scores as they were sent to `/calibrate`."""

    score: list[float]
    label: list[float | bool]
    field: dict[str, list[Value]] | None = None
    weight: list[float] | None = None
    value: list[float] | None = None
    allow: list[Literal["weight", "period"]] | None = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Sent:
    """A request: its body, and what is behind the question mark and in the header Idempotency-Key."""

    body: bytes
    media_type: str
    query: About
    key: str


class Taken(msgspec.Struct):
    """What came of feedback: the rows are in the journal, now or since before."""

    rows: int
    period: str
    key: str
    known: bool


_decoder = msgspec.json.Decoder(Feedback)


class Inbox:
    """Takes feedback in: requests that arrive while others are being written are written together.

    The key of a request is the name of its source in the journal. So a request that is sent again changes nothing, and
    another one under the same key is refused.
    """

    def __init__(self, settings: ServiceSettings, heads: ServedHeads) -> None:
        self._settings = settings
        self._heads = heads
        self._loop: asyncio.AbstractEventLoop | None = None
        self._executed = asyncio.Event()
        self._waiting = 0
        self._writer = FeedbackWriter(heads.store, executed=self._note_executed, committed=FEEDBACK_COMMITS.inc)
        Sketch.from_rows([0.5], [1.0], field=["any"])  # so that the first request need not wait for imports

    def close(self) -> None:
        """Finish what was taken in."""
        self._writer.close()

    def _note_executed(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended, and nobody waits
                self._loop.call_soon_threadsafe(self._executed.set)

    async def take(self, request: Sent, head: ServedVersions) -> Taken:
        """Add the rows of a request to the journal of a head; return what changed, once it is on disk."""
        if len(request.body) > LARGE_BODY or request.media_type == SKETCH:
            asked = await asyncio.to_thread(self._asked, request, head)
        else:
            # Two threads that compute delay each other, so rows are read while the disk works.
            self._loop = asyncio.get_running_loop()
            if self._writer.is_executing:
                self._executed.clear()
                await self._executed.wait()
            asked = self._asked(request, head)
        if extra := _more_fields(asked.sketch, head.current):
            # The first rows decide on the fields of a journal; more than those of the model are no slip if it has them.
            about = await asyncio.to_thread(self._heads.store.require_head, head.name)
            if about.shape is None:
                given = ", ".join(asked.sketch.contexts.names)
                detail = f"fields given: {given}; the served model does not have {extra[0]}"
                raise Problem(400, detail, at="$.field")
        self._waiting += 1
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            added = await asyncio.wrap_future(self._writer.submit(asked))
        except OtherRowsError as error:
            raise Problem(409, str(error), at="$.key") from None
        except (StoreUnavailableError, BusyError, OSError) as error:
            self._heads.count_error(error)
            reason = (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
            safe = "send the request again, with the same key: rows count once"
            raise Problem(503, f"the journal cannot be written ({reason}); {safe}", headers=RETRY) from None
        finally:
            self._waiting -= 1
            if not self._waiting:
                sys.setswitchinterval(_USUAL_SWITCH_SECONDS)
        known = not added.rows
        head.numbers.add("feedback_rows", added.rows)
        if known:
            head.numbers.add("feedback_known")
        period = (added.known if known else added.periods)[0]
        return Taken(added.rows, _as_read(period, asked.every), asked.key, known)

    def _asked(self, request: Sent, head: ServedVersions) -> FeedbackRows:
        """Read a request; refuse one that cannot be used, whatever the journal has."""
        sketch, about, largest_weight = self._read(request, head)
        key = about.key or request.key
        if not key.strip() or len(key) > _LONGEST_KEY or not key.isprintable():
            needed = f"a key of 1 to {_LONGEST_KEY} printable characters is needed, so that a request sent again counts"
            raise Problem(400, f"{needed} once; send `key`, or the header Idempotency-Key", at="$.key")
        _check_fields(sketch, head.current)
        every = self._settings.every_of(head.settings)
        period = _period(about.period, every)
        allow = about.allow.split(",") if about.allow and isinstance(about.allow, str) else about.allow
        asked = FeedbackRows(head.name, period, key, sketch, every, about.age, largest_weight, allow or ())
        asked.ready(self._heads.store.shapes.get(head.name))  # here, since the thread that writes has no time for it
        return asked

    def _read(self, request: Sent, head: ServedVersions) -> tuple[Sketch, About, float | None]:
        """Return the rows, what is said about them, and their largest weight if it is known."""
        kind, about = request.media_type, request.query
        if kind == SKETCH:
            try:
                return sketch_of_bytes(request.body, "the body"), about, None
            except FileFormatError as error:  # of the body, not of the store
                raise Problem(400, str(error)) from None
        if kind == ARROW:
            columns = read_arrow(request.body, self._settings.limits.rows)
            lacking = [name for name in ("score", "label") if name not in columns]
            if lacking:
                raise Problem(400, f"the stream lacks the column {lacking[0]}", at=lacking[0])
            score, label, weight, value = (columns.pop(name, None) for name in ("score", "label", "weight", "value"))
        else:
            if about != About():
                raise Problem(400, "the query is for Arrow and sketches; in JSON all of it is in the body", at="query")
            about = rows = decoded(_decoder, request.body, _FORM)
            check_rows(len(rows.score), self._settings.limits.rows)
            score, label, weight, value, columns = rows.score, rows.label, rows.weight, rows.value, rows.field or {}
        own = head.settings.score_type if head.current is None else head.current.model.score_type
        if len(score) == 0:
            raise Problem(400, "there are no rows; feedback has at least one", at="$.score")
        given: dict[str, Any] = {"field": self._fields(columns, head) or None, "weight": weight, "value": value}
        sketch = Sketch.from_rows(score, label, **given, score_type=about.score_type or own)
        return sketch, about, None if weight is None else float(weights_column(weight).max())

    def _fields(self, columns: dict[str, Any], head: ServedVersions) -> Any:
        """Return the fields of the rows; numbers are cut as those of the served model or of the journal were."""
        if head.current is not None:
            return head.current.model.contexts.given(columns) if columns else None
        wanted = number_fields(columns)
        if not wanted:
            return columns
        shape = shape_of(self._heads.store.find_head(head.name))
        if shape is None or any(name not in shape.edges for name in wanted):
            detail = f"the bins of {wanted[0]!r} are chosen from the rows of logs; add logs with mcnet update first"
            raise Problem(400, detail, at="$.field")
        return field_columns(columns, shape.edges)


def _period(given: str | int | None, every: str | None) -> str:
    """Return the period of the rows: the one given, if it can be one, else the present one."""
    if given is None:
        if every is None:
            raise Problem(400, "the period of the rows is needed, such as 2026-11-16T13", at="$.period")
        return _present_period(every, int(time.time()) // 60)
    if isinstance(given, str) and len(given) > _LONGEST_PERIOD:
        raise Problem(400, f"the period has {len(given):,} characters; name it shortly", at="$.period")
    try:
        return period_text(given) if every is None else _named_period(given, every, int(time.time()) // 60)
    except InputError as error:
        raise Problem(400, str(error), at="$.period") from None


@lru_cache(64)
def _present_period(every: str, minute: int) -> str:  # no period is shorter than a minute
    return present(every).period


@lru_cache(256)
def _named_period(given: str | int, every: str, minute: int) -> str:
    return named_period(given, every)


def _check_fields(sketch: Sketch, served: Served | None) -> None:
    """Refuse rows from which the served model could not be learnt again."""
    needed, given = () if served is None else served.model.fields, sketch.contexts.names
    if needed == ("field",) and len(given) == 1:
        return  # a field without a name of its own
    lacking = [name for name in needed if name not in given]
    if lacking:
        fields = f"fields given: {', '.join(given) or 'none'}"
        raise Problem(400, f"{fields}; the served model needs {lacking[0]}, too", at="$.field")


def _more_fields(sketch: Sketch, served: Served | None) -> list[str]:
    """Return the fields of rows that the served model does not have."""
    if served is None:
        return []
    known, given = served.model.fields or served.model.balanced_by, sketch.contexts.names
    return [] if known == ("field",) and len(given) == 1 else [name for name in given if name not in known]
