"""The difference between two models: where, by how much and for which field values probabilities change."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnet._shared.arrays import FloatArray, logit, sigmoid, sums_by
from mcnet.errors import InputError
from mcnet.metrics.evaluation import predict_cells
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import as_model
from mcnet.rows.contexts import Contexts
from mcnet.rows.fields import MISSING_LABEL
from mcnet.sketch.sketch import Sketch

if TYPE_CHECKING:
    import polars as pl

_SCORES = 200
"""Scores at which two models are compared where no rows say which scores occur."""
_BANDS = 10
"""Into so many bands of about equal weight the scores are cut."""


@dataclass(frozen=True, eq=False)
class ModelDifference:
    """What changes from one model to another.

    Attributes
    ----------
    only_new : contexts that have their own curve in the new model only.
    """

    weighted_by: str
    """ "rows" of a sketch, or "scores" spread evenly over the range that was fitted."""
    shift: float
    """The change of the mean probability, relative to the old one: 0.02 is 2 % more."""
    largest: float
    """The largest relative change of a probability, up or down, where there is weight."""
    table: "pl.DataFrame"
    """One row per context, the largest change in expected positives first."""
    only_old: tuple[str, ...]
    """Contexts that have their own curve in the old model only."""
    only_new: tuple[str, ...]
    by_score: "pl.DataFrame"
    """One row per tenth of the weight, the lowest scores first."""

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as JSON-able values."""
        return {
            "weighted_by": self.weighted_by,
            "shift": self.shift,
            "largest": self.largest,
            "contexts": self.table.to_dicts(),
            "only_old": list(self.only_old),
            "only_new": list(self.only_new),
            "scores": self.by_score.to_dicts(),
        }


def diff(old: Any, new: Any, sketch: Sketch | None = None) -> ModelDifference:
    """Compare two models, weighted by the rows of a sketch if one is given.

    Parameters
    ----------
    old, new : models, fitted calibrators or paths of model files; without a sketch they must need the same fields, in
        the same order.
    sketch : rows that say which scores and field values occur, and how often.

    Returns
    -------
    ModelDifference : the change overall and per context.

    >>> from mcnet.calibrators.parametric import Platt
    >>> score, label = np.linspace(0.1, 0.6, 50), np.arange(50) % 3 == 0
    >>> one, other = Platt().fit(score, label).model_, Platt().fit(score, label | (score > 0.5)).model_
    >>> diff(one, other).shift > 0
    True
    """
    old, new = as_model(old, "compared"), as_model(new, "compared")
    if sketch is not None and not isinstance(sketch, Sketch):
        raise InputError(f"the rows are {type(sketch).__name__}; make a Sketch of them with mcnet.scan first")
    if sketch is None and old.fields != new.fields:
        names = [", ".join(model.fields) or "none" for model in (old, new)]
        raise InputError(
            f"the models need different fields ({names[0]} and {names[1]}): compare them on rows that have all of them"
        )
    if old.score_type != new.score_type:
        raise InputError(f"the old model takes {old.score_type}s and the new one {new.score_type}s as scores")
    result = _on_a_grid(old, new) if sketch is None else _on_rows(old, new, sketch)
    alike = set(old.fields) == set(new.fields)  # contexts of other fields have no counterpart to be missing
    return ModelDifference(
        "scores" if sketch is None else "rows",
        float(result.weight @ result.after / (result.weight @ result.before) - 1.0),
        float(np.abs(result.after / result.before - 1.0)[result.weight > 0.0].max()),
        _by_context(result),
        _only_in(old.contexts, new.contexts) if alike else (),
        _only_in(new.contexts, old.contexts) if alike else (),
        _by_score(result),
    )


@dataclass(frozen=True)
class _Compared:
    """Points (cells of rows, or scores of a grid), and what both models say there."""

    contexts: Contexts
    place: "np.typing.NDArray[np.intp]"
    """The context of each point."""
    score: FloatArray
    weight: FloatArray
    before: FloatArray
    after: FloatArray


def _on_rows(old: CalibrationModel, new: CalibrationModel, sketch: Sketch) -> _Compared:
    sketch = sketch.unfolded()
    needed = list(dict.fromkeys([*old.needed_fields, *new.needed_fields]))
    lacking = [name for name in needed if name not in sketch.contexts.names]
    if lacking:
        raise InputError(f"the models need the field {lacking[0]!r}, which the rows do not have")
    sketch = sketch.only(*needed)
    before, after = (predict_cells(model, sketch) for model in (old, new))
    index = sketch.context.astype(np.intp)
    return _Compared(sketch.contexts, index, sketch.score, sketch.weight, before, after)


def _on_a_grid(old: CalibrationModel, new: CalibrationModel) -> _Compared:
    """Compare at scores spread evenly in logits over the range that both were fitted on."""
    lows = [model.provenance.get("lowest_score", 0.001) for model in (old, new)]
    highs = [model.provenance.get("highest_score", 0.999) for model in (old, new)]
    low, high = np.clip([min(lows), max(highs)], 1e-6, 1.0 - 1e-6)
    scores = sigmoid(np.linspace(logit(np.array(low)), logit(np.array(high)), _SCORES))
    contexts, _, _ = old.contexts.united(new.contexts)
    index = np.repeat(np.arange(len(contexts), dtype=np.intp), _SCORES)
    columns = contexts.columns(index.astype(np.int32)) or None
    every = np.tile(scores, len(contexts))
    before, after = (model.predict(every, columns, score_type="probability") for model in (old, new))
    return _Compared(contexts, index, every, np.ones(len(every)), before, after)


def _only_in(contexts: Contexts, others: Contexts) -> tuple[str, ...]:
    """Return the names of contexts that others lack, in whatever order these have their fields."""
    known = {frozenset(row.items()) for row in others.rows()} if others.names else set()
    rows = contexts.rows() if contexts.names else []
    named = zip(_names(contexts), rows, strict=True)
    return tuple(sorted(name for name, row in named if frozenset(row.items()) not in known))


def _names(contexts: Contexts) -> list[str]:
    """Return a name for each context: its values, with the names of the fields if there are several."""
    if not contexts.names:
        return []
    rows = contexts.rows()
    shown = [{name: MISSING_LABEL if value is None else str(value) for name, value in row.items()} for row in rows]
    if len(contexts.names) == 1:
        return [next(iter(row.values())) for row in shown]
    return [", ".join(f"{name}={value}" for name, value in row.items()) for row in shown]


def _by_context(compared: _Compared) -> "pl.DataFrame":
    """Return the table of contexts, the largest change in expected positives first."""
    import polars as pl

    names = _names(compared.contexts) or ["all rows"]
    number = len(names)
    total, old, new = (
        sums_by(compared.place, column, number)
        for column in (compared.weight, compared.weight * compared.before, compared.weight * compared.after)
    )
    largest = np.zeros(number)
    np.maximum.at(largest, compared.place, np.abs(compared.after / compared.before - 1.0))
    seen = np.flatnonzero(total > 0.0)
    order = seen[np.argsort(-np.abs(new - old)[seen], kind="stable")]
    return pl.DataFrame(
        {
            "context": [names[index] for index in order],
            **_rates(total[order], old[order], new[order]),
            "largest": largest[order],
            "positives_moved": (new - old)[order],
        }
    )


def _by_score(compared: _Compared) -> "pl.DataFrame":
    """Return the change in bands of the score that have about equal weight."""
    import polars as pl

    order = np.argsort(compared.score, kind="stable")
    score, weight, before, after = (
        column[order] for column in (compared.score, compared.weight, compared.before, compared.after)
    )
    middle = np.cumsum(weight) - 0.5 * weight
    band = np.minimum((middle / weight.sum() * _BANDS).astype(np.intp), _BANDS - 1)
    first = np.flatnonzero(np.diff(band, prepend=-1))
    total, old, new = (np.add.reduceat(column, first) for column in (weight, weight * before, weight * after))
    return pl.DataFrame(
        {
            "score_low": score[first],
            "score_high": score[np.append(first[1:], len(score)) - 1],
            **_rates(total, old, new),
        }
    )


def _rates(weight: FloatArray, old: FloatArray, new: FloatArray) -> dict[str, FloatArray]:
    """Return the columns that both tables have, from the weight and the positives that each model expects."""
    return {"weight": weight, "old_rate": old / weight, "new_rate": new / weight, "shift": new / old - 1.0}
