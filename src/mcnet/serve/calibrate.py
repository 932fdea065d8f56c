"""`POST /calibrate` in plain JSON: columns, one row, or records."""

from typing import Any, Literal

import msgspec

from mcnet.serve.board import Numbers
from mcnet.serve.problem import Problem
from mcnet.serve.rows import calibrate_rows, check_fields, check_rows
from mcnet.serve.served import Served

__all__ = ["Answer", "Question", "answer_json"]

Value = str | int | float | bool | None


class Question(msgspec.Struct, forbid_unknown_fields=True):
    """Columns of rows, or one row: then every column is a single value."""

    score: float | list[float]
    field: dict[str, Value | list[Value]] | None = None
    score_type: Literal["probability", "logit"] | None = None
    interval: float | None = None


class Answer(msgspec.Struct, omit_defaults=True):
    """The probabilities in the order of the rows, and the version that they are from."""

    calibrated: float | list[float]
    version: str
    low: float | list[float] | None = None
    high: float | list[float] | None = None


Record = dict[str, Value]
_decoder: msgspec.json.Decoder[Question | list[Record]] = msgspec.json.Decoder(Question | list[Record])
_encode = msgspec.json.Encoder().encode
_ABSENT: Any = object()


def answer_json(served: Served, body: bytes, most_rows: int, numbers: Numbers) -> bytes:
    """Return the answer to a question as JSON.

    Parameters
    ----------
    served : the version that answers; it is asked for once, so that all rows of an answer are from one version.
    body : the question as JSON.
    most_rows : how many rows it may have.
    numbers : where the rows are counted.
    """
    question = _decoder.decode(body)
    if type(question) is list:
        question = _columns(served, question, most_rows)
    assert isinstance(question, Question)
    score = question.score
    single = type(score) is not list
    if question.interval is None and (single or len(score) == 1):  # type: ignore[arg-type]
        found = _one_row(served, question, single, numbers)
        if found is not None:
            form = b'{"calibrated":%r,"version":"%b"}' if single else b'{"calibrated":[%r],"version":"%b"}'
            return form % (found, served.name_bytes)
    rows = score if isinstance(score, list) else [score]
    check_rows(len(rows), most_rows)
    columns = _as_columns(served, question.field, single)
    result = calibrate_rows(served, numbers, rows, columns, score_type=question.score_type, interval=question.interval)
    calibrated: list[float] = result.calibrated.tolist()
    answer = Answer(calibrated[0] if single else calibrated, served.name)
    if result.low is not None and result.high is not None:
        low, high = result.low.tolist(), result.high.tolist()
        answer.low, answer.high = (low[0], high[0]) if single else (low, high)
    return _encode(answer)


def _one_row(served: Served, question: Question, single: bool, numbers: Numbers) -> float | None:
    """Return the answer to the usual question, one row with all its fields; None if it needs a closer look."""
    field, names = question.field, served.fields
    row: tuple[Value, ...] | None = None
    if names:
        if field is None or len(field) != len(names):
            return None
        values: list[Any] = []
        for name in names:
            value = field.get(name, _ABSENT)
            if single:
                if value is _ABSENT or type(value) is list:
                    return None
                values.append(value)
            elif type(value) is list and len(value) == 1:
                values.append(value[0])
            else:
                return None
        row = tuple(values)
    elif field is not None:
        return None
    score: Any = question.score
    found = served.model.predict_one(score if single else score[0], row, score_type=question.score_type)
    numbers.rows(1, 0 if row is None else served.unseen(row))
    return found


def _as_columns(
    served: Served, field: dict[str, Value | list[Value]] | None, single: bool
) -> dict[str, list[Value]] | None:
    check_fields(served, list(field or {}))
    columns: dict[str, list[Value]] = {}
    for name, values in (field or {}).items():
        if isinstance(values, list) == single:
            wanted = "one value, as score is one number" if single else "a list, as score is a list"
            raise Problem(400, f"the field {name!r} must be {wanted}", at=f"$.field.{name}")
        columns[name] = values if isinstance(values, list) else [values]
    return columns or None


def _columns(served: Served, records: list[Record], most_rows: int) -> Question:
    """Return records as columns; every record has the score and the fields of the model under their names."""
    check_rows(len(records), most_rows)
    names = served.model.fields
    if "score" in names:
        raise Problem(400, "a field of this model is called score, so records are ambiguous; send columns", at="$")
    wanted = {"score", *names}
    score: list[float] = []
    for place, record in enumerate(records):
        if record.keys() != wanted:
            lacking, surplus = sorted(wanted - record.keys()), sorted(record.keys() - wanted)
            what = f"lacks {', '.join(lacking)}" if lacking else f"has {', '.join(surplus)} besides"
            raise Problem(400, f"record {place} {what}; a record has {', '.join(['score', *names])}", at=f"$[{place}]")
        number = record["score"]
        if type(number) is not float and type(number) is not int:
            raise Problem(400, f"score is {number!r}, not a number", at=f"$[{place}].score")
        score.append(float(number))
    return Question(score, {name: [record[name] for record in records] for name in names} or None)
