"""`POST /calibrate`: rows in JSON or Arrow to calibrated probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from mcnet._shared.arrays import FloatArray, ScoreType
from mcnet.operations.service.arrow import check_rows, read_arrow
from mcnet.operations.service.metrics import HeadNumbers
from mcnet.operations.service.problems import Problem, decoded
from mcnet.operations.service.served import Served
from mcnet.rows.fields import source_column

# Rows of a request, whatever form they came in, and their calibrated probabilities.


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Probabilities, with the bounds of their intervals if these were asked for."""

    calibrated: FloatArray
    low: FloatArray | None = None
    high: FloatArray | None = None


def check_fields(served: Served, given: Sequence[str], at: str = "$.field") -> None:
    """Refuse fields that the model does not have, and a request that lacks one that it needs."""
    model = served.model
    needed, allowed = model.needed_fields, model.fields or model.balanced_by
    given = list(model.contexts.by_field(dict.fromkeys(given))) if model.contexts.derived else given
    if set(needed) <= set(given) <= set(allowed) or (
        len(given) == len(needed) == 1 == len(model.fields) and needed[0] == "field"
    ):
        return
    wanted = ", ".join(map(source_column, needed)) or "no field"
    names = ", ".join(given) or "none"
    raise Problem(400, f"fields given: {names}; version {served.name} needs: {wanted}", at=at)


def calibrate_rows(
    served: Served,
    numbers: HeadNumbers,
    score: Any,
    field: dict[str, Any] | None,
    *,
    score_type: ScoreType | None = None,
    interval: float | None = None,
) -> Calibrated:
    """Return the probabilities of columns of rows, and count the rows."""
    model = served.model
    columns = model.contexts.given(field) if field else None
    result = Calibrated(model.predict(score, columns, score_type=score_type))
    if interval is not None:
        low, high = model.interval(score, columns, interval, score_type=score_type)
        result = Calibrated(result.calibrated, low, high)
    numbers.count_rows(len(result.calibrated), served.unseen_rows(columns or []))
    return result


def answer_arrow(
    served: Served,
    body: bytes,
    most_rows: int,
    numbers: HeadNumbers,
    score_type: ScoreType | None,
    interval: float | None,
) -> bytes:
    """Return a stream with the column `calibrated`, and `low` and `high` if an interval was asked for."""
    import pyarrow as pa

    columns = read_arrow(body, most_rows)
    if "score" not in columns:
        raise Problem(400, f"the stream has the columns {', '.join(columns) or 'none'}; it needs score", at="score")
    score = columns.pop("score")
    check_fields(served, list(columns), at="columns")
    result = calibrate_rows(served, numbers, score, columns or None, score_type=score_type, interval=interval)
    table = pa.table({name: pa.array(column) for name, column in vars(result).items() if column is not None})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


# `POST /calibrate` in JSON: columns, or records.

Value = str | int | float | bool | None

_LEVEL = msgspec.Meta(extra_json_schema={"exclusiveMinimum": 0, "exclusiveMaximum": 1})


class Question(msgspec.Struct, forbid_unknown_fields=True):
    """Columns of rows."""

    score: list[float]
    field: dict[str, list[Value]] | None = None
    score_type: Literal["probability", "logit"] | None = None
    interval: Annotated[float, _LEVEL] | None = None


class Answer(msgspec.Struct, omit_defaults=True):
    """The probabilities in the order of the rows, and the version that they are from."""

    calibrated: list[float]
    version: str
    low: list[float] | None = None
    high: list[float] | None = None


Record = Annotated[
    dict[str, Any],
    msgspec.Meta(extra_json_schema={"properties": {"score": {"type": "number"}}, "required": ["score"]}),
]
"""One row: its score and its fields under their names. Other keys, whatever is in them, are ignored."""

_FORMS = 'send columns, {"score": [0.1], "field": {"country": ["NL"]}}, or records, [{"score": 0.1, "country": "NL"}]'
_VALUE_TYPES = frozenset((str, int, float, bool, type(None)))
_decoder: msgspec.json.Decoder[Question | list[Record]] = msgspec.json.Decoder(Question | list[Record])
_encode = msgspec.json.Encoder().encode


def answer_json(served: Served, body: bytes, most_rows: int, numbers: HeadNumbers) -> bytes:
    """Return the answer to a question as JSON; all its rows are from the one version that is given."""
    question = decoded(_decoder, body, _FORMS)
    if isinstance(question, list):
        question = _columns(served, question, most_rows, numbers)
    score, field = question.score, question.field
    if len(score) == 1 and question.interval is None:
        row = _one_row(served, field)
        if row is not None:
            one = served.model.predict_one(score[0], row or None, score_type=question.score_type)
            numbers.count_rows(1, served.unseen(row) if row else 0)
            return b'{"calibrated":[%r],"version":"%b"}' % (one, served.name_bytes)
    check_rows(len(score), most_rows)
    if field and served.model.contexts.derived:  # columns that the model cuts, by the names of its fields
        field = served.model.contexts.by_field(field)
    check_fields(served, list(field or {}))
    result = calibrate_rows(
        served, numbers, score, field or None, score_type=question.score_type, interval=question.interval
    )
    calibrated, low, high = (None if part is None else part.tolist() for part in vars(result).values())
    return _encode(Answer(calibrated or [], served.name, low, high))


def _one_row(served: Served, field: dict[str, list[Value]] | None) -> tuple[Value, ...] | None:
    """Return the values of one row in the order of the model's fields; None if it needs a closer look."""
    names, given = served.fields, field or {}
    if len(given) != len(names):
        return None
    values = []
    for name in names:
        column = given.get(name)
        if column is None or len(column) != 1:
            return None
        values.append(column[0])
    return tuple(values)


def _columns(served: Served, records: list[Record], most_rows: int, numbers: HeadNumbers) -> Question:
    """Return records as columns; every record has the score and the fields of the model under their names.

    Keys that the model does not know are ignored and counted: a bid request has many.
    """
    check_rows(len(records), most_rows)
    names = served.model.needed_fields
    if "score" in names:
        raise Problem(400, "a field of this model is called score, so records are ambiguous; send columns", at="$")
    wanted = {"score", *names}
    score: list[float] = []
    unknown = 0
    if served.model.contexts.derived:
        records = [served.model.contexts.by_field(record) for record in records]
    for index, record in enumerate(records):
        if record.keys() != wanted:
            lacking = sorted(wanted - record.keys())
            if lacking:
                what = f"lacks {', '.join(lacking)}; a record has {', '.join(['score', *names])}"
                raise Problem(400, f"record {index} {what}", at=f"$[{index}]")
            _refuse_options(record, names, f"$[{index}]")
            unknown += len(record) - len(wanted)
        number = record["score"]
        if type(number) is not float and type(number) is not int:
            raise Problem(400, f"score is {number!r:.80}, not a number", at=f"$[{index}].score")
        try:
            score.append(float(number))
        except OverflowError:
            raise Problem(400, "score is too large a number", at=f"$[{index}].score") from None
    columns: dict[str, list[Value]] = {}
    for name in names:
        column: list[Any] = [record[name] for record in records]
        if not _VALUE_TYPES.issuperset(map(type, column)):
            index = next(index for index, value in enumerate(column) if type(value) not in _VALUE_TYPES)
            what = f"the field {name!r} is {'a list' if type(column[index]) is list else 'an object'}, not one value"
            raise Problem(400, what, at=f"$[{index}].{name}")
        columns[name] = column
    if unknown:
        numbers.add("unknown_keys", unknown)
    return Question(score, columns or None)


def _refuse_options(record: Record, names: tuple[str, ...], at: str) -> None:
    """Refuse what would change the meaning of a score if it were not ignored."""
    for name in ("score_type", "interval"):
        if name in record and name not in names:
            form = f'{{"score": [...], "field": {{...}}, "{name}": ...}}'
            raise Problem(400, f"a record has no {name}, which is one for all rows; send columns: {form}", at=at)
