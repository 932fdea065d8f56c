"""The model: curves and contexts that predict, with intervals; what a fit leaves behind and is served."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from numbers import Real
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mcnet._shared.arrays import CodeArray, FloatArray, IndexArray, IntArray, ScoreType, inside_unit, sigmoid
from mcnet._shared.files import whole_file
from mcnet._shared.messages import counted
from mcnet.curves.curves import Curves
from mcnet.curves.evaluate import Evaluator
from mcnet.curves.family import CurveFamily, family_problem
from mcnet.curves.rising_sum import RisingSum, distinct_keys
from mcnet.errors import Advice, InputError, NotSupportedError
from mcnet.model.bands import Bands, Uncertainty, check_level
from mcnet.model.small_batches import SmallBatches
from mcnet.rows.columns import as_floats, check_lengths, scores_column, warn_of_other_order
from mcnet.rows.contexts import ANY, Contexts, distinct_contexts
from mcnet.rows.fields import UNNAMED, FieldColumn

if TYPE_CHECKING:
    from mcnet.sketch.sketch import Sketch

# Which scores a model is given: its own type, the type that the caller names, and data that show another one.

FEWEST_ROWS_TO_JUDGE = 32
"""Fewer logits than this may all lie in [0, 1] by chance; more are taken for probabilities."""


Evaluation = Literal["curves", "sum"]
"""How a model is evaluated: each context by its own compiled curve, or as the sum of what its field values add."""

FIELD_ADVICE = Advice("pass {field}", service="send it under `field`", field=None)


def as_probabilities(scores: Any, own: ScoreType, given: ScoreType | None) -> FloatArray:
    """Return scores as probabilities, neither clipped nor checked where they are probabilities already."""
    score_type, column = given or own, as_floats(scores, "score")
    if score_type == "probability" or len(column) == 0:
        return column
    result = scores_column(column, score_type=score_type, clip=False)
    if given is None:
        refuse_probabilities(result, len(result))
    return result


def refuse_probabilities(scores: FloatArray, rows: int, *, name: str = "score") -> None:
    """Raise if scores that were logits, and are probabilities now, cannot be the logits that a model was fitted on."""
    if rows < FEWEST_ROWS_TO_JUDGE or len(scores) == 0:
        return
    lowest, highest = sigmoid(np.array([0.0, 1.0]))
    rounding = 1.0 + 1e-12
    if scores.min() * rounding >= lowest and scores.max() <= highest * rounding:
        raise InputError(
            f"{name} has {rows:,} values, all in [0, 1], but the model was fitted on logits",
            advice=Advice(
                "pass score_type='probability' if they are probabilities, score_type='logit' if they are logits",
                shell="pass --probabilities if they are probabilities, --logits if they are logits",
                service='send "score_type": "probability" if they are probabilities, "score_type": "logit" if logits',
            ),
            column=name,
        )


# The model: the result of a fit, which is saved and served.


@dataclass(frozen=True, eq=False)
class CalibrationModel:
    """Curves with their contexts and their history: predicts with NumPy alone, saves as plain JSON.

    Curve 0 is the pooled curve, used for unseen field values; curve i + 1 belongs to context i. A model whose
    evaluation is "sum" computes every combination of field values from its family, and lists only contexts whose curve
    is more than that: those with an isotonic part.

    Attributes
    ----------
    method : the name of the method in the registry.
    parameters : the constructor arguments of the calibrator.
    contexts : the fields, and the combinations of their values that have a curve.
    curves : the curves themselves.
    monotone : whether no curve falls.
    """

    method: str
    parameters: dict[str, Any]
    contexts: Contexts
    curves: Curves
    monotone: bool = True
    family: CurveFamily | None = None
    """What the curves were made from, if they are a family: it serves combinations that have no curve of their own."""
    score_type: ScoreType = "probability"
    """What kind of scores the model was fitted on, and takes unless the caller says otherwise."""
    total_weight: float = 0.0
    """The weight of all rows of the fit."""
    balanced_by: tuple[str, ...] = ()
    """Fields that only weighed in the balance term of the fit: they may be given to `predict` and change nothing."""
    isotonic_share: float = 0.0
    """How much of each context's own isotonic fit is mixed into its curve, from 0 to 1."""
    uncertainty: Uncertainty | None = None
    """How sure the fit is of its curves, if it knows: what `interval` needs."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """The history of the fit, for people: no probability depends on it."""
    evaluation: Evaluation = "curves"
    """Whether contexts without a curve of their own are sums of parts, or have the pooled curve."""

    def __post_init__(self) -> None:
        """Refuse curves that break the guarantee."""
        problem = self.curves.problem(number=1 + (len(self.contexts) if self.fields else 0), monotone=self.monotone)
        if problem is None and self.family is not None:
            problem = family_problem(self.family, [len(known) for known in self.contexts.values])
        if problem is None and self.sums_up and (self.family is None or not self.fields):
            problem = "they are to be summed up over fields, which needs a family of curves and a field"
        if problem is not None:
            raise InputError(f"the curves of this model are not valid: {problem}")
        columns = self.provenance.get("columns")
        if self.fields == (UNNAMED,) and isinstance(columns, dict) and "score" in columns:
            object.__setattr__(self, "contexts", replace(self.contexts, from_log=True))

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the names of the fields of the fit."""
        return self.contexts.names

    @property
    def needed_fields(self) -> tuple[str, ...]:
        """Return the fields that rows must have. The fit found the others useless: they may be given or not."""
        return self.contexts.needed

    @property
    def without_features(self) -> bool:
        """Whether these are the curves that a calibrator with features keeps for rows without them."""
        return self.method == "with-features"

    @property
    def sums_up(self) -> bool:
        """Whether combinations of field values are evaluated as the sum of what each value adds."""
        return self.evaluation == "sum"

    @property
    def context_count(self) -> int:
        """Return how many contexts have a curve that differs from the pooled one: 0 without fields."""
        if self.sums_up:
            return int(self.contexts.combinations)
        return len(self.contexts) if self.fields else 0

    @cached_property
    def rising_sum(self) -> RisingSum:
        """Return what evaluates combinations of field values, if they are summed up."""
        assert self.family is not None
        return RisingSum(self.family)

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.curves)

    @cached_property
    def _small_batches(self) -> SmallBatches:
        return SmallBatches(self.contexts, self.curves, self.rising_sum if self.sums_up else None)

    def predict(self, scores: Any, field: Any = None, *, score_type: ScoreType | None = None) -> FloatArray:
        """Return the calibrated probability of each score, float64 inside (0, 1).

        Parameters
        ----------
        scores : a column of scores in [0, 1], or of logits if the model was fitted on logits. A single number gives a
            single number (np.float64), its field a single value as in `predict_one`.
        field : the field column(s), as in fit; unseen values get the pooled curve.
        score_type : "probability" or "logit"; by default what the model was fitted on. Scores outside [0, 1] are
            refused as probabilities; a column of 32 or more scores that all lie in [0, 1] is refused as logits, unless
            score_type="logit" says that they are.

        Returns
        -------
        array : one probability per score.
        """
        if (score_type or self.score_type) == "probability":
            few = self._small_batches(scores, field)
            if few is not None:
                return few
        if _is_scalar(scores):
            one: Any = np.float64(self.predict_one(float(scores), field, score_type=score_type))
            return one  # type: ignore[no-any-return]
        if hasattr(scores, "__len__") and not isinstance(scores, str | bytes) and len(scores) == 0:
            return np.empty(0)  # an empty batch is no mistake when serving
        score = as_probabilities(scores, self.score_type, score_type)
        warn_of_other_order(field, score=scores)
        if self.sums_up:
            self._check_field(field)
            columns = self.contexts.given(field)
            check_lengths(score=score, field=columns[0])
            return self._summed_up(score, *self._distinct(columns))
        which = self._looked_up(field)
        check_lengths(score=score, field=which)
        result = self._evaluator.attempt(score, which, 1)
        return self._evaluator(scores_column(score), which, 1) if result is None else result

    def predict_pooled(self, scores: FloatArray) -> FloatArray:
        """Return the probability of each score in a context whose field values the fit has not seen.

        Parameters
        ----------
        scores : an array of scores in [0, 1].

        Returns
        -------
        array : one probability per score.
        """
        nowhere = np.full(len(scores), -1, dtype=np.int32)
        if not self.sums_up:
            return self._evaluator(scores, nowhere, 1)
        return self._summed_up(scores, np.full((1, len(self.fields)), ANY, dtype=np.int32), nowhere + 1)

    def predict_cells(self, sketch: "Sketch") -> FloatArray:
        """Return the calibrated probability of every cell of a sketch, at its mean score.

        Parameters
        ----------
        sketch : the rows, with the fields that the model needs; others are left out.

        Returns
        -------
        array : one probability per cell.
        """
        if not self.fields:
            return self._evaluator(sketch.score, None, 1)
        known = sketch.contexts.names
        lacking = [name for name in self.needed_fields if name not in known]
        if lacking:
            has = ", ".join(known) or "none"
            raise InputError(f"the model needs the field {lacking[0]!r}; the sketch has {has}: scan it with that field")
        if self.sums_up:
            own = sketch.contexts.columns(sketch.contexts.all())
            table = self.contexts.field_codes([column for column in own if column.name in self.fields])
            return self._summed_up(sketch.score, table, sketch.context)
        return self._evaluator(sketch.score, self.contexts.indices_of(sketch.contexts)[sketch.context], 1)

    # A sum of parts: contexts are numbered by the codes of their values, "any other value" (-1) among them.

    def _decoded(self, keys: IntArray) -> IntArray:
        """Return the codes `[contexts, fields]` of combinations, given by their number plus 1."""
        assert self.contexts.strides is not None
        codes = []
        for stride in self.contexts.strides:
            digit, keys = np.divmod(keys, stride)
            codes.append(digit - 1)
        return np.column_stack(codes)

    def _distinct(self, columns: list[FieldColumn]) -> tuple[IndexArray, IndexArray]:
        """Return the field codes of the distinct contexts `[contexts, fields]`, and which of them each row has."""
        if self.contexts.strides is None:
            return distinct_contexts(self.contexts.field_codes(columns))
        numbers = self.contexts.combination_keys(columns)
        keys, which = distinct_keys(numbers, int(self.contexts.combinations) + 1)
        return self._decoded(keys), which

    def _summed_up(self, score: FloatArray, table: IndexArray, which: IndexArray) -> FloatArray:
        """Return the probabilities of rows in contexts given by field codes `[contexts, fields]`."""
        if not inside_unit(score):
            scores_column(score)
        result = self.rising_sum.predict(score, table, which)
        if len(self.contexts):  # some contexts have an isotonic part
            own = self.contexts.find_codes(table)[which]
            rows = np.flatnonzero(own >= 0)
            if len(rows):
                result[rows] = self._evaluator(score[rows], own[rows], 1)
        return result

    def predict_one(self, score: float, field: Any = None, *, score_type: ScoreType | None = None) -> float:
        """Return the calibrated probability of one score as a plain float: what `predict` gives, sooner.

        Parameters
        ----------
        score : a number in [0, 1], or a logit if the model was fitted on logits.
        field : the value of the only field; for several fields a mapping of names to values, or a tuple of values
            in the order of `fields`. A value that is missing is written `(None,)`, since None means no field at all.
        score_type : "probability" or "logit"; by default what the model was fitted on.

        Returns
        -------
        float : the probability.
        """
        probability = (score_type or self.score_type) == "probability"
        result = self._small_batches.one(score, field) if probability else None
        if result is not None:
            return result
        if np.ndim(score) != 0:
            raise InputError(f"score is {type(score).__name__}, not a number; predict takes columns of scores")
        return float(self.predict([score], self._one_row(field), score_type=score_type)[0])

    def _one_row(self, field: Any) -> Any:
        """Return the value(s) of one row as columns of one row."""
        if isinstance(field, Mapping):
            return {name: [value] for name, value in field.items()}
        if not isinstance(field, tuple) or not self.fields:
            return None if field is None else [field]
        names = self.fields if len(field) == len(self.fields) else self.needed_fields
        if len(field) != len(names):
            raise InputError(f"field has {len(field)} values; needed: {', '.join(names)}, in this order")
        return {name: [value] for name, value in zip(names, field, strict=True)}

    def _check_field(self, field: Any) -> None:
        if field is None and self.needed_fields:
            needed = ", ".join(self.needed_fields)
            raise InputError(f"this {self.method} model needs the field {needed}", advice=FIELD_ADVICE)

    def _looked_up(self, field: Any) -> CodeArray | None:
        self._check_field(field)
        if field is None:
            return None
        if self.balanced_by:
            return None  # the field weighed in the fit and bends no curve
        if not self.fields:
            raise NotSupportedError(f"this {self.method} model was fitted without a field; call predict without field=")
        return self.contexts.lookup(self.contexts.given(field))

    def save(self, path: str | PathLike[str]) -> None:
        """Save the model as JSON, completely or not at all.

        Parameters
        ----------
        path : the file to write.
        """
        from mcnet.model.model_file import model_text

        text = model_text(self)
        with whole_file(path) as part:
            part.write_text(text, encoding="utf-8")

    def interval(
        self, scores: Any, field: Any = None, level: float = 0.9, *, score_type: ScoreType | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return a credible interval of the true probability at each score: (low, high).

        It is the uncertainty of the curve, not of a single click. Both ends rise with the score, and what `predict`
        gives lies between them. An unseen field value adds the spread that the values of its field have.

        Parameters
        ----------
        scores, field, score_type : as in `predict`.
        level : the probability that the interval includes the truth.

        Returns
        -------
        tuple[array, array] : the lower and the upper end at each score.
        """
        check_level(level)
        if self.uncertainty is None:
            raise NotSupportedError(f"a {self.method} model has curves and no intervals; fit BayesMCNet to have them")
        if _is_scalar(scores):
            low, high = self.interval([float(scores)], self._one_row(field), level, score_type=score_type)
            return low[0], high[0]
        score = as_probabilities(scores, self.score_type, score_type)
        if len(score) == 0:
            return np.empty(0), np.empty(0)
        served = self.predict(score, field, score_type="probability")
        codes = np.zeros((len(score), 0), dtype=np.int32)
        if self.fields:
            codes = self.contexts.field_codes(self.contexts.given(field))
        low, high = self._bands(score, codes, float(level))
        return np.minimum(low, served), np.maximum(high, served)

    @cached_property
    def _bands(self) -> Bands:
        assert self.uncertainty is not None
        return Bands(self.uncertainty)

    def plot(self, field: Any = None) -> Any:
        """Show the curves as a Plotly figure: the pooled one and those of the largest contexts, or of a field value.

        `mcnet.plot_curves(model, sketch)` shows a curve over the rows it was fitted on.

        Parameters
        ----------
        field : a field value, or a mapping of names to values; None for the pooled curve and the largest contexts.

        Returns
        -------
        figure : of Plotly.
        """
        from mcnet.model.drawing import plot_lines

        return plot_lines(self, field)

    def _repr_html_(self) -> str:
        from mcnet.model.drawing import model_card

        return model_card(self)

    def __repr__(self) -> str:
        knots = counted(len(self.curves.probabilities), "knot")
        if self.sums_up:
            return f"CalibrationModel({self.method}, {' × '.join(self.needed_fields)}: {self.described_curves()})"
        return f"CalibrationModel({self.method}, {self.contexts.described()}, {knots})"

    def described_curves(self) -> str:
        """Return how many curves there are and what they are made of, in words."""
        if self.family is None or not self.sums_up:
            return f"{counted(len(self.curves), 'curve')}, {counted(len(self.curves.probabilities), 'knot')}"
        numbers = counted(sum(part.size for part in self.family.numbers), "number")
        own = f", {counted(len(self.contexts), 'curve')} with an isotonic part" if len(self.contexts) else ""
        return f"{counted(self.context_count, 'context')}, each the sum of its values' parts ({numbers}){own}"


def _is_scalar(scores: Any) -> bool:
    return isinstance(scores, Real | Decimal | np.generic) or (isinstance(scores, np.ndarray) and scores.ndim == 0)


# What an executor of Spark runs: a packed model applied to batches of Arrow columns.
#
# The module imports little, since every Python process of every executor imports it.

_MODELS_KEPT = 4
"""How many models a Python process of an executor keeps, so that its next task need not unpack them again."""

_unpacked: dict[bytes, CalibrationModel] = {}


def packed_model(model: CalibrationModel) -> bytes:
    """Return a model as it travels to executors.

    Its curves go as they are: executors with another processor might compile them to other last digits.
    """
    return pickle.dumps(replace(model, provenance={}), protocol=5)


def unpacked_model(digest: bytes, packed: bytes) -> CalibrationModel:
    """Return the model of a digest, from those that this process has already if it is one of them."""
    result = _unpacked.get(digest)
    if result is None:
        while len(_unpacked) >= _MODELS_KEPT:
            _unpacked.pop(next(iter(_unpacked)))
        result = _unpacked[digest] = pickle.loads(packed)
    return result


def calibrated_batch(
    model: CalibrationModel, scores: Any, fields: dict[str, Any], score_type: ScoreType, interval: float | None
) -> Any:
    """Return the calibrated probabilities of one batch of Arrow columns; a missing score stays missing.

    With an interval they are structs of the probability (`served`) and its bounds (`low`, `high`).
    """
    import pyarrow as pa

    missing = scores.is_null().to_numpy(zero_copy_only=False) if scores.null_count else None
    numbers = np.asarray(scores.fill_null(0.5) if missing is not None else scores, dtype=np.float64)
    columns = fields or None
    made = [model.predict(numbers, columns, score_type=score_type)]
    if interval is None:
        return _arrow(made[0], missing)
    made += model.interval(numbers, columns, interval, score_type=score_type)
    return pa.StructArray.from_arrays([_arrow(part, missing) for part in made], names=["served", "low", "high"])


def _arrow(numbers: FloatArray, missing: Any) -> Any:
    import pyarrow as pa

    return pa.array(numbers, mask=missing, type=pa.float64())
