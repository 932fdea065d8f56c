"""`POST /calibrate` in plain JSON: columns, one row, or records."""

from typing import Literal

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
    if isinstance(question, list):
        question = _columns(served, question, most_rows)
    single = not isinstance(question.score, list)
    score = question.score if isinstance(question.score, list) else [question.score]
    if len(score) == 1 and question.interval is None:
        found = _one_row(served, question, score[0], single, numbers)
        if found is not None:
            form = b'{"calibrated":%r,"version":"%s"}' if single else b'{"calibrated":[%r],"version":"%s"}'
            return form % (found, served.name.encode())
    check_rows(len(score), most_rows)
    columns = _as_columns(served, question.field, single)
    result = calibrate_rows(served, numbers, score, columns, score_type=question.score_type, interval=question.interval)
    calibrated: list[float] = result.calibrated.tolist()
    answer = Answer(calibrated[0] if single else calibrated, served.name)
    if result.low is not None and result.high is not None:
        low, high = result.low.tolist(), result.high.tolist()
        answer.low, answer.high = (low[0], high[0]) if single else (low, high)
    return _encode(answer)


def _one_row(served: Served, question: Question, score: float, single: bool, numbers: Numbers) -> float | None:
    """Return the answer to the usual question, one row with all its fields; None if it needs a closer look."""
    field, names = question.field, served.model.fields
    if not names:
        if field is not None:
            return None
        found = served.model.predict_one(score, None, score_type=question.score_type)
        numbers.rows(1, 0)
        return found
    if field is None or len(field) != len(names):
        return None
    values = []
    for name in names:
        if name not in field:
            return None
        value = field[name]
        if isinstance(value, list):
            if single or len(value) != 1:
                return None
            values.append(value[0])
        elif single:
            values.append(value)
        else:
            return None
    row = tuple(values)
    found = served.model.predict_one(score, row, score_type=question.score_type)
    numbers.rows(1, served.unseen(row))
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
