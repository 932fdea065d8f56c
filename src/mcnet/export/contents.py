"""The curves to export: those of the model, and those of combinations that its family computes on demand."""

import warnings
from dataclasses import dataclass

import numpy as np

from mcnet._shared.typing import ScoreType
from mcnet.curves.compile import family_curves
from mcnet.curves.curves import Curves
from mcnet.data.contexts import Contexts
from mcnet.errors import CalibrationWarning, InputError, NotSupportedError
from mcnet.model.model import CalibrationModel

__all__ = ["LARGE_BYTES", "MOST_COMBINATIONS", "Exported", "checked_score_type", "warn_of_size"]

MOST_COMBINATIONS = 100_000
"""Up to this many combinations of field values are compiled for an export, each to its own curve."""

LARGE_BYTES = 50_000_000
"""A larger export is announced with its size."""


@dataclass(frozen=True, eq=False)
class Exported:
    """Contexts and their curves, as in a model; the last `added` of them were compiled for the export."""

    contexts: Contexts
    curves: Curves
    added: int = 0
    error: float = 0.0
    """How far a curve that was added may be from predict, relative to p."""

    @staticmethod
    def of(model: CalibrationModel) -> "Exported":
        """Return all that predict can be asked for, as curves; refuse more combinations than a file can hold."""
        contexts = model.contexts
        if not model.asks_family:
            return Exported(contexts, model.curves)
        assert model.family is not None
        every = contexts.completed(MOST_COMBINATIONS)
        if not every.complete:
            number = float(np.prod([len(known) + 1.0 for known in contexts.values])) - 1
            raise NotSupportedError(
                f"{' × '.join(model.fields)} have {number:,.0f} combinations of values, and an export holds at most "
                f"{MOST_COMBINATIONS:,}; fit with fewer fields or fewer values, or serve this model with predict"
            )
        known = set(map(tuple, contexts.table.tolist()))
        missing = every.table[[tuple(row) not in known for row in every.table.tolist()]]
        added, error = family_curves(model.family, missing)
        # The model's own come first and stay as they are: their numbers and their bits are those of predict.
        table = np.concatenate([contexts.table, missing])
        curves = Curves.of(model.curves.pairs() + added.pairs()[1:])
        return Exported(Contexts(contexts.names, contexts.values, table), curves, len(missing), error)


def checked_score_type(model: CalibrationModel, score_type: ScoreType | None) -> ScoreType:
    """Return what an export takes: as asked for, or what the model was fitted on."""
    if score_type not in (None, "probability", "logit"):
        raise InputError(f"score_type is {score_type!r}; it must be 'probability' or 'logit'")
    return score_type or model.score_type


def warn_of_size(what: str, size: float, pieces: int) -> None:
    """Warn of a file of many megabytes, before it is written."""
    if size > LARGE_BYTES:
        warnings.warn(
            f"the {what} will have about {size / 1e6:,.0f} MB, since the curves have {pieces:,} pieces; "
            "ONNX and Parquet are the smallest exports, and fewer field values make each smaller",
            CalibrationWarning,
            stacklevel=3,
        )
