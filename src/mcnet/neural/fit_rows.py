"""The rows of a fit, validated, for training that needs them one by one."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.typing import FloatArray, IntArray, ScoreType
from mcnet.data.columns import check_lengths, labels_column, scores_column, weights_column
from mcnet.data.contexts import Contexts
from mcnet.data.feature_encoding import EncodedFeatures, FeatureEncoding
from mcnet.data.fields import FieldColumn, field_columns
from mcnet.data.negative_sampling import restore_negatives

__all__ = ["FitRows"]


@dataclass(frozen=True)
class FitRows:
    """Scores, labels, weights, fields and features of rows; rows of weight 0 are left out."""

    score: FloatArray
    label: FloatArray
    weight: FloatArray | None
    fields: tuple[FieldColumn, ...]
    encoding: FeatureEncoding | None
    features: EncodedFeatures | None

    @staticmethod
    def of(
        scores: Any,
        labels: Any,
        field: Any,
        weight: Any,
        features: Any,
        *,
        score_type: ScoreType,
        negatives_kept: float,
    ) -> "FitRows":
        """Return the rows from columns of any kind."""
        encoding = None if features is None else FeatureEncoding.learn(features)
        encoded = None if encoding is None else encoding.encode(features)
        score, counts = scores_column(scores, score_type=score_type), None if weight is None else weights_column(weight)
        check_lengths(score=score, features=None if encoded is None else encoded.numbers)
        label, counts = restore_negatives(labels_column(labels), counts, negatives_kept)
        rows = FitRows(score, label, counts, tuple(field_columns(field)), encoding, encoded)
        return rows if counts is None or counts.all() else rows.taken(np.flatnonzero(counts))

    def __len__(self) -> int:
        return len(self.score)

    def taken(self, which: NDArray[Any]) -> "FitRows":
        """Return some of the rows."""
        return FitRows(
            self.score[which],
            self.label[which],
            None if self.weight is None else self.weight[which],
            tuple(column[which] for column in self.fields),
            self.encoding,
            None if self.features is None else self.features.rows(which),
        )

    def codes(self, contexts: Contexts) -> tuple[IntArray, tuple[int, ...]]:
        """Return the field codes `[rows, fields]` as contexts number them, and each field's number of values."""
        if not contexts.names:
            return np.zeros((len(self), 0), dtype=np.int64), ()
        sizes = tuple(len(known) for known in contexts.values)
        return contexts.field_codes(self.fields).astype(np.int64), sizes
