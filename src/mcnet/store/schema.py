"""The tables of a store, written once: SQLite and PostgreSQL get the same ones."""

import json
import math
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

SCHEMA = 1
"""Counts up with every change of a table; a store of another number is refused.

From version 1.0 on, a list of SQL by number, here, has the statements that bring a store from each schema to the next.
"""

METADATA = MetaData()
_Serial = BigInteger().with_variant(Integer, "sqlite")  # only INTEGER counts up by itself in SQLite


class Age(TypeDecorator[float]):
    """How many periods after its end a period was counted; None, for complete labels, is infinite in the database."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Any) -> float:
        """Return what is written."""
        return math.inf if value is None else value

    def process_result_value(self, value: float | None, dialect: Any) -> float | None:
        """Return what was read."""
        return None if value == math.inf else value


class Names(TypeDecorator[tuple[str, ...]]):
    """Several names; JSON in the database."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: tuple[str, ...] | None, dialect: Any) -> str:
        """Return what is written."""
        return json.dumps(value or ())

    def process_result_value(self, value: str | None, dialect: Any) -> tuple[str, ...]:
        """Return what was read."""
        return tuple(json.loads(value or "[]"))


def _head(*, primary_key: bool = False) -> Column[int]:
    return Column("head", ForeignKey("heads.id"), nullable=False, primary_key=primary_key)


heads = Table(
    "heads",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("settings", Text, nullable=False, server_default="{}"),  # JSON
    # What every addition to the journal is compared with; NULL while it has no rows.
    Column("shape", Text),  # JSON: the fields in their order, and the resolution
    Column("first_period", Text),
    Column("heaviest", Double),
    # Feedback for periods that began before this timestamp (seconds, UTC) is refused: their keys are forgotten.
    Column("keys_forgotten", Double),
    # JSON: the versions that were current, the hold, those withdrawn; and how often that has changed.
    Column("pointer", Text, nullable=False, server_default="{}"),
    Column("moves", BigInteger, nullable=False, server_default="0"),
    # Counts up whenever a process begins to learn: whoever has an earlier number may no longer publish.
    Column("fence", BigInteger, nullable=False, server_default="0"),
)

entries = Table(  # the journal: the count of one source for one period, made at one age
    "entries",
    METADATA,
    Column("id", _Serial, primary_key=True),
    _head(),
    Column("period", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("age", Age, nullable=False),
    Column("digest", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("weight", Double, nullable=False),
    Column("positives", Double, nullable=False),
    Column("largest_weight", Double),
    Column("sketch", LargeBinary, nullable=False),  # a sketch file
    UniqueConstraint("head", "source", "period", "age", name="entries_key"),
    Index("entries_period", "head", "period"),
    sqlite_autoincrement=True,  # the number of an entry that was deleted is never that of other rows
)

keys = Table(  # what was merged into another entry: adding it again changes nothing
    "keys",
    METADATA,
    _head(primary_key=True),
    Column("source", Text, primary_key=True),
    Column("period", Text, primary_key=True),
    Column("age", Age, primary_key=True),
    Column("digest", Text, nullable=False),
    Index("keys_period", "head", "period"),
)

versions = Table(
    "versions",
    METADATA,
    _head(primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("added", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("fields", Names, nullable=False),
    Column("rows", BigInteger),
    Column("note", Text, nullable=False),
    Column("fitted_until", Text),
    Column("rows_digest", Text),
    Column("model", LargeBinary, nullable=False),  # a model file
)

history = Table(  # who changed the versions of a head, when and why
    "history",
    METADATA,
    Column("id", _Serial, primary_key=True),
    _head(),
    Column("line", Text, nullable=False),  # JSON
    Index("history_head", "head", "id"),
)

runs = Table(  # of the update job
    "runs",
    METADATA,
    Column("id", _Serial, primary_key=True),
    _head(),
    Column("line", Text, nullable=False),  # JSON
    Index("runs_head", "head", "id"),
)

checkpoints = Table(  # states of the tracker after so many periods
    "checkpoints",
    METADATA,
    _head(primary_key=True),
    Column("ticks", Integer, primary_key=True),
    Column("document", Text, nullable=False),  # JSON
    Column("sketches", LargeBinary, nullable=False),  # MessagePack: sketch files by name
)

served = Table(  # which version served a period, and how calibrated it was there
    "served",
    METADATA,
    Column("id", _Serial, primary_key=True),
    _head(),
    Column("period", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("kept_loss", Double),
    Column("pcoc", Double),
    Column("low", Double),
    Column("high", Double),
    UniqueConstraint("head", "period", name="served_period"),
)

told = Table(  # what people are told: alarms, refusals and suspect periods; `sent` once a webhook has taken it
    "told",
    METADATA,
    Column("id", _Serial, primary_key=True),
    _head(),
    Column("source", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("standing", Boolean, nullable=False),
    Column("event", Text, nullable=False),  # JSON
    Column("time", Text, nullable=False),
    Column("sent", Text),
    Column("problem", Text),  # of the last attempt
    Index("told_head", "head", "id"),
)

documents = Table(  # whatever has a name and is replaced as a whole: the monitor, the last decision, the status
    "documents",
    METADATA,
    _head(primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("document", Text, nullable=False),  # JSON
)

schema = Table("mcnet_schema", METADATA, Column("number", Integer, primary_key=True))
