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


Record = dict[str, Any]
"""One row: its score and its fields under their names. Other keys, whatever is in them, are ignored."""

_decoder: msgspec.json.Decoder[Question | list[Record]] = msgspec.json.Decoder(Question | list[Record])
_record_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
_VALUE_TYPES = frozenset((str, int, float, bool, type(None)))
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
    try:
        question = _decoder.decode(body)
        if type(question) is list:
            question = _columns(served, question, most_rows, numbers)
    except msgspec.ValidationError:
        record = _single_record(body)
        if record is None:
            raise
        question = _one_row_of(_columns(served, [record], most_rows, numbers, "$"))
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


def _single_record(body: bytes) -> Record | None:
    """Return a body that is one record, as a list of records has it; None if it is meant as something else."""
    try:
        found = _record_decoder.decode(body)
    except msgspec.ValidationError:
        return None
    columns = isinstance(found.get("score"), list) or isinstance(found.get("field"), dict)
    return None if "score" not in found or columns else found


def _one_row_of(question: Question) -> Question:
    """Return a question of one row in its short form, so that it is answered with one number."""
    assert isinstance(question.score, list)
    columns = question.field or {}
    field: dict[str, Value | list[Value]] = {n: values[0] for n, values in columns.items() if isinstance(values, list)}
    return Question(question.score[0], field or None)


def _columns(served: Served, records: list[Record], most_rows: int, numbers: Numbers, at: str = "") -> Question:
    """Return records as columns; every record has the score and the fields of the model under their names.

    Keys that the model does not know are ignored and counted: a bid request has many.
    """
    check_rows(len(records), most_rows)
    names = served.model.fields
    if "score" in names:
        raise Problem(400, "a field of this model is called score, so records are ambiguous; send columns", at="$")
    wanted = {"score", *names}
    score: list[float] = []
    unknown = 0
    for place, record in enumerate(records):
        if record.keys() != wanted:
            lacking = sorted(wanted - record.keys())
            if lacking:
                what = f"lacks {', '.join(lacking)}; a record has {', '.join(['score', *names])}"
                raise Problem(400, f"record {place} {what}", at=at or f"$[{place}]")
            _refuse_options(record, names, at or f"$[{place}]")
            unknown += len(record) - len(wanted)
        number = record["score"]
        if type(number) is not float and type(number) is not int:
            raise Problem(400, f"score is {number!r:.80}, not a number", at=f"{at or f'$[{place}]'}.score")
        try:
            score.append(float(number))
        except OverflowError:
            raise Problem(400, "score is too large a number", at=f"{at or f'$[{place}]'}.score") from None
    columns: dict[str, Value | list[Value]] = {}
    for name in names:
        column: list[Any] = [record[name] for record in records]
        if not _VALUE_TYPES.issuperset(map(type, column)):
            place = next(place for place, value in enumerate(column) if type(value) not in _VALUE_TYPES)
            what = f"the field {name!r} is {'a list' if type(column[place]) is list else 'an object'}, not one value"
            raise Problem(400, what, at=f"{at or f'$[{place}]'}.{name}")
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
