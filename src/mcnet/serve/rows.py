"""Rows of a request, whatever form they came in, and their calibrated probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mcnet._shared.typing import FloatArray, ScoreType
from mcnet.data.fields import FieldColumn, field_columns
from mcnet.serve.board import Numbers
from mcnet.serve.problem import Problem
from mcnet.serve.served import Served

__all__ = ["Calibrated", "calibrate_rows", "check_fields", "check_rows"]


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Probabilities, with the bounds of their intervals if these were asked for."""

    calibrated: FloatArray
    low: FloatArray | None = None
    high: FloatArray | None = None


def check_rows(rows: int, most: int) -> None:
    """Refuse more rows than the service takes in one request."""
    if rows > most:
        raise Problem(
            413, f"the request has {rows:,} rows; this service takes at most {most:,} per request", limit=most
        )


def check_fields(served: Served, given: Sequence[str], at: str = "$.field") -> None:
    """Refuse fields that the model does not have, and a request that lacks one that it needs."""
    model = served.model
    needed = model.fields or model.balanced_by
    if (
        set(given) == set(needed)
        or (not given and not model.fields)
        or (len(given) == len(needed) == 1 == len(model.fields) and needed[0] == "field")
    ):
        return
    wanted = ", ".join(model.fields) or "no field"
    names = ", ".join(given) or "none"
    raise Problem(400, f"fields given: {names}; version {served.name} needs: {wanted}", at=at)


def calibrate_rows(
    served: Served,
    numbers: Numbers,
    score: Any,
    field: dict[str, Any] | None,
    *,
    score_type: ScoreType | None = None,
    interval: float | None = None,
) -> Calibrated:
    """Return the probabilities of columns of rows, and count the rows.

    Parameters
    ----------
    score, field, score_type : as `CalibrationModel.predict` takes them.
    interval : the level of the credible interval that is asked for, too.
    """
    columns: list[FieldColumn] | None = field_columns(field) if field else None
    model = served.model
    result = Calibrated(model.predict(score, columns, score_type=score_type))
    if interval is not None:
        low, high = model.interval(score, columns, interval, score_type=score_type)
        result = Calibrated(result.calibrated, low, high)
    numbers.rows(len(result.calibrated), served.unseen_rows(columns or []))
    return result
