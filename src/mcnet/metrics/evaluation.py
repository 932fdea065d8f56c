"""Evaluate probabilities with every metric at once, from rows or from a sketch, overall and per period."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mcnet._shared.arrays import FloatArray, IndexArray, ScoreType
from mcnet._shared.files import finite
from mcnet._shared.messages import aligned, amount, count, figure, warn
from mcnet.errors import InputError, NotSupportedError
from mcnet.metrics.actions import Actions, find_actions
from mcnet.metrics.calibration_error import reliability_of_bins
from mcnet.metrics.field_values import (
    CodedField,
    Estimates,
    FieldEvaluation,
    FieldTable,
    FoldSums,
    coded_fields,
    combine,
    compact,
    evaluate_field,
    seen_values,
)
from mcnet.metrics.intervals import Estimate
from mcnet.metrics.judged_rows import JudgedRows, MetricSettings
from mcnet.metrics.metric import METRICS
from mcnet.metrics.money import Money, money_of_cells, money_of_rows, row_values
from mcnet.metrics.scores import CLIP
from mcnet.metrics.sums import columns, group_sums, is_whole, order_by_probability
from mcnet.metrics.text import INTERVAL_OF, describe, field_lines, heading, metric_lines, summary
from mcnet.model.model_file import as_model
from mcnet.plots.figures import PcocTable, Reliability, draw_forest, draw_reliability, forest_of
from mcnet.plots.style import as_plotly, card
from mcnet.rows.columns import (
    check_lengths,
    check_total_weight,
    labels_column,
    restore_negatives,
    scores_column,
    warn_of_other_order,
    weights_column,
)
from mcnet.rows.fields import field_columns
from mcnet.rows.periods import shown_periods
from mcnet.sketch.sketch import Sketch

if TYPE_CHECKING:
    import polars as pl

# The evaluation of probabilities against labels: every metric at once, with intervals.


@dataclass(frozen=True, repr=False)
class Evaluation:
    """How good probabilities are: each metric is an attribute (`ev.pcoc`), its interval `ev.interval("pcoc")`.

    `estimates` has the metrics by name: value, interval, noise floor. Metrics by field value (`f_rce`, `f_ece`,
    `pcoc_std`, `gauc`) are over the contexts, that is over the values when there is one field;
    `fields[name]` has them for each field on its own. Without a field all rows are one context. What cannot be
    computed is NaN, and `estimates[name].note` says why.

    Attributes
    ----------
    rows, weight, positives : of the rows that were judged.
    settings : bins, levels and bounds that the metrics were computed with.
    estimates : the metrics by name.
    fields : the metrics by field value, for each field on its own.
    contexts : the same over the combinations of field values.
    reliability : the reliability curve.
    money : what the errors are worth, if the rows have a value.
    """

    rows: int
    weight: float
    positives: float
    settings: MetricSettings
    estimates: Estimates
    fields: Mapping[str, FieldEvaluation]
    contexts: FieldEvaluation
    reliability: Reliability
    money: Money | None = None

    def __getattr__(self, name: str) -> float:
        if name in METRICS and "estimates" in vars(self):
            return self.estimates[name].value
        raise AttributeError(f"an evaluation has no attribute {name!r}; its metrics are {', '.join(METRICS)}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.estimates]

    def interval(self, name: str) -> tuple[float, float]:
        """Return the interval of a metric's true value: `ev.interval("pcoc")` → (low, high).

        An error made of absolute values, such as F-RCE, includes noise; its interval does not, and may lie below the
        value. `floor(name)` is what noise alone gives.

        Parameters
        ----------
        name : the name or the label of a metric.
        """
        result = self.estimates[name]
        return result.low, result.high

    def floor(self, name: str) -> float:
        """Return what a metric would be for true probabilities, by noise alone; NaN if noise averages out.

        Parameters
        ----------
        name : the name or the label of a metric.
        """
        return self.estimates[name].floor

    def compute_all(self) -> "Evaluation":
        """Compute every metric now and release the rows, instead of computing each when first asked for.

        Returns
        -------
        self : with every metric computed.
        """
        for estimates in (self.estimates, *(part.estimates for part in (self.contexts, *self.fields.values()))):
            estimates.compute_all()
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain lists, numbers and text, with None for what is undefined or infinite."""
        return {
            "rows": self.rows,
            "weight": self.weight,
            "positives": self.positives,
            "settings": asdict(self.settings),
            "interval_of": INTERVAL_OF,
            "metrics": self.estimates.to_dict(),
            "fields": {name: field.to_dict() for name, field in self.fields.items()},
            "contexts": self.contexts.to_dict(),
            "reliability": self.reliability.to_dict(),
            **({} if self.money is None else {"money": self.money.to_dict()}),
        }

    def actions(self, *, q: float = 0.05) -> Actions:
        """Return the field values to act on, the most money beyond noise first; needs an evaluation with a value.

        Parameters
        ----------
        q : the share of the list that may be there by chance (Benjamini and Hochberg).

        Returns
        -------
        Actions : a sequence; `table()` and `to_dicts()` have its columns.
        """
        if self.money is None:
            raise InputError("actions are sorted by money; evaluate with value=, such as value=1 for positives")
        fields = {name: (values, table.sums) for name, (values, table) in self.money.fields.items()}
        return find_actions(fields, q=q, level=self.settings.level)

    def plot(self, field: str | None = None, *, before: "Evaluation | None" = None) -> Any:
        """Show the reliability diagram as a Plotly figure or, given a field's name, the PCOC of its values.

        Parameters
        ----------
        field : the name of a field; None for the reliability diagram.
        before : another evaluation of the same rows, shown beside this one, such as that of the raw scores.

        Returns
        -------
        figure : of Plotly.
        """
        named = {"evaluated": self} if before is None else {"before": before, "after": self}
        if field is None:
            return as_plotly(draw_reliability({name: ev.reliability for name, ev in named.items()}))
        for name, ev in named.items():
            if field not in ev.fields:
                where = " in the evaluation before" if name == "before" else ""
                raise InputError(f"there is no field {field!r}{where}; there are {', '.join(ev.fields) or 'none'}")
        tables: dict[str, PcocTable] = {name: ev.fields[field].table for name, ev in named.items()}
        return as_plotly(draw_forest(forest_of(tables)))

    def __str__(self) -> str:
        return describe(self)

    def __repr__(self) -> str:
        return f"Evaluation({summary(self)})"

    def _repr_html_(self) -> str:
        (head, *lines), notes = metric_lines(self)
        cards = [card(f"Evaluation of {heading(self)}", head, lines, "; ".join(notes))]
        for field in self.fields.values():
            (head, *lines), note = field_lines(field)
            cards.append(card(f"Values of {field.name}, the worst first", head, lines, note.replace("\n", "; ")))
        return "".join(cards)


def evaluate(
    probabilities: Any,
    labels: Any,
    field: Any = None,
    weight: Any = None,
    *,
    truth: Any = None,
    epsilon: float = 0.01,
    drop_empty: bool = False,
    level: float = 0.95,
    bins: int = 20,
    clip: float = CLIP,
    seed: int = 0,
    negatives_kept: float = 1.0,
    value: Any = None,
    value_per_positive: Any = None,
) -> Evaluation:
    """Measure how well probabilities agree with labels, overall and inside every field.

    Parameters
    ----------
    probabilities : a column of probabilities, to be judged.
    labels : a column of labels; they may be fractions (clicks over impressions) with the impressions as weight.
    field : one column, or several as `{name: column}`.
    weight : a column; a weight counts as that many rows, in the intervals too.
    truth : the true probabilities, known for simulated rows: adds the excess log-loss and the KL divergence.
    epsilon : what F-RCE adds per row to its denominator.
    drop_empty : leave field values without positives out of F-RCE.
    level : of the confidence intervals.
    bins : the number of bins of equal mass (Prob-ECE, Cal-N, reliability).
    clip : where log-loss clips the probabilities.
    seed : of the simulations behind some intervals.
    negatives_kept : the fraction of negatives that survived down-sampling; they are weighted back.
    value : what a positive is worth (the bid, the margin): a number, or a column that is known for every row. Adds
        predicted, observed, over-bid and under-bid money.
    value_per_positive : a column that is known for positives alone; the mean of the field value stands for it.

    Returns
    -------
    Evaluation
        Every metric as an attribute, `interval(name)`, `floor(name)`, `fields`, and a table when printed.

    >>> ev = evaluate([0.1, 0.2, 0.6, 0.7], [0, 0, 1, 1], field=["a", "b", "a", "b"])
    >>> round(ev.pcoc, 3), ev.auc, ev.fields["field"].table.values
    (0.8, 1.0, ('a', 'b'))
    """
    settings = MetricSettings(epsilon, drop_empty, level, bins, clip, seed)
    p = scores_column(probabilities, name="probability", clip=False)
    y = labels_column(labels)
    w = None if weight is None else weights_column(weight)
    known = None if truth is None else scores_column(truth, name="truth", clip=False)
    warn_of_other_order(field, probability=probabilities, label=labels, weight=weight, truth=truth)
    columns = field_columns(field)
    check_lengths(probability=p, label=y, weight=w, truth=known, **{f"field {c.name}": c for c in columns})
    y, w = restore_negatives(y, w, negatives_kept)
    w = np.ones_like(y) if w is None else w
    if not w.any():
        raise InputError("every row has weight 0; at least one row with a weight above 0 is needed")
    if is_whole(p) and not is_whole(y):
        warn(
            "every probability is 0 or 1 and label has fractions; probabilities come first, labels second: "
            "if they are swapped, swap them back"
        )
    fields = coded_fields(columns)
    worth = row_values(y, w, fields, value, value_per_positive)
    money = None if worth is None else money_of_rows(worth.rows(p, y, w), fields, settings)
    return evaluate_columns(p, y, w, fields, truth=known, settings=settings, money=money).compute_all()


def evaluate_columns(
    p: FloatArray,
    y: FloatArray,
    w: FloatArray,
    fields: Mapping[str, CodedField],
    *,
    truth: FloatArray | None = None,
    folds: IndexArray | None = None,
    settings: MetricSettings | None = None,
    money: Money | None = None,
) -> Evaluation:
    """Evaluate columns that are valid already, with fields as codes: rows, or the cells of a sketch.

    Each metric is computed when it is first asked for.
    """
    chosen = settings or MetricSettings()
    p, y, w = columns(p, y, w)
    check_total_weight(w)
    # Most metrics need the rows in the order of p; sorting once makes it free for all of them.
    if w.all():
        kept = order_by_probability(p)
    else:
        used = np.flatnonzero(w > 0)
        kept = used[order_by_probability(p[used])]
    p, y, w = p[kept], y[kept], w[kept]
    truth, folds = None if truth is None else truth[kept], None if folds is None else folds[kept]
    fields = {name: seen_values(coded.of(kept)) for name, coded in fields.items()}
    contexts, members = combine(fields, p.size)
    sums = group_sums(p, y, contexts.codes, w, count=len(contexts.values))
    folded = None if folds is None else FoldSums.of(p, y, w, contexts.codes, folds)
    compared = None if folded is None else folded.sums
    whole = evaluate_field(" × ".join(fields) or "all rows", contexts.values, sums, chosen, compared)
    if len(fields) == 1:
        evaluated = dict.fromkeys(fields, whole)
    else:
        evaluated = {
            name: evaluate_field(
                name,
                coded.values,
                sums.merged(members[name], len(coded.values)),
                chosen,
                None if folded is None else folded.of_values(members[name]),
            )
            for name, coded in fields.items()
        }
    number = None if folds is None else compact(folds)[0]
    rows = JudgedRows(chosen, sums, p, y, w, contexts.codes, truth, number, money)
    return Evaluation(
        rows=p.size,
        weight=float(sums.weight.sum()),
        positives=float(sums.positives.sum()),
        settings=chosen,
        estimates=Estimates(rows, METRICS, shared=whole.estimates),
        fields=evaluated,
        contexts=whole,
        reliability=reliability_of_bins(p, rows.bins, rows.bin_sums, chosen.level),
        money=money,
    )


# Evaluate from a sketch: each cell is a row with a fractional label and the cell's weight.


class Predictor(Protocol):
    """Whatever turns scores into probabilities: a fitted calibrator or a loaded model."""

    def predict(self, scores: Any, field: Any = None, *, score_type: ScoreType | None = None) -> FloatArray:
        """Return the probability of each score."""


def predict_cells(predictor: Predictor | str | PathLike[str], sketch: Sketch) -> FloatArray:
    """Return the calibrated probability of every cell, at its mean score."""
    if getattr(predictor, "needs_features", False):
        raise NotSupportedError("WithFeatures needs the features of rows, which a sketch does not keep; use evaluate")
    if not isinstance(sketch, Sketch):
        raise InputError(f"the rows are {type(sketch).__name__}; the calibrator comes first, then a sketch of the rows")
    model: Any = getattr(predictor, "model_", predictor)
    if not hasattr(model, "predict_cells"):
        model = as_model(predictor, "evaluated")
    result: FloatArray = model.predict_cells(sketch)
    return result


def evaluate_cells(
    probabilities: FloatArray,
    sketch: Sketch,
    settings: MetricSettings | None = None,
    *,
    by: Sequence[str] | None = None,
    within_folds: bool = False,
) -> Evaluation:
    """Evaluate one probability per cell against the labels of the cells."""
    columns = sketch.contexts.columns(sketch.context)
    fields = coded_fields([column for column in columns if by is None or column.name in by])
    folds = sketch.fold if within_folds else None
    money = money_of_cells(probabilities, sketch, fields, settings or MetricSettings(), folds)
    result = evaluate_columns(
        probabilities, sketch.rate, sketch.weight, fields, folds=folds, settings=settings, money=money
    )
    return replace(result, rows=sketch.rows)


def evaluate_sketch(calibrator: Predictor | str | PathLike[str], sketch: Sketch, **settings: Any) -> Evaluation:
    """Evaluate a calibrator (or a loaded model) on the rows behind a sketch.

    AUC is within 1e-4 of that of the rows, since only rows of one cell, closer than 1/512 in logit, count as ties.

    Parameters
    ----------
    calibrator : a fitted calibrator, a loaded model, or the path of a model file.
    sketch : the rows to judge on, with the fields that the model needs. If it carries values (see `Sketch.from_rows`
        and `Sketch.with_value`), the evaluation has money.
    settings : those of `evaluate`: epsilon, level, bins …

    Returns
    -------
    Evaluation
        As `evaluate` gives for rows.
    """
    if isinstance(sketch, Sketch):
        check_total_weight(sketch.weight)
    return evaluate_cells(predict_cells(calibrator, sketch), sketch, MetricSettings(**settings))


# Evaluation over time: a few metrics per period, with intervals, as a tidy table.

PERIOD_METRICS = ("pcoc", "f_rce", "auc", "log_loss")
"""The metrics that each period has; F-RCE only where there is a field."""
_MONEY_METRICS = ("overbid", "underbid")
"""Those of periods whose rows have a value."""


@dataclass(frozen=True)
class PeriodEvaluations:
    """Some metrics of each period, in order."""

    periods: tuple[str, ...]
    rows: tuple[int, ...]
    weight: tuple[float, ...]
    positives: tuple[float, ...]
    estimates: tuple[dict[str, Estimate], ...]

    def __len__(self) -> int:
        return len(self.periods)

    def table(self) -> "pl.DataFrame":
        """Return a tidy table: one line per period and metric, with value, interval and noise floor."""
        import polars as pl

        return pl.DataFrame(self.to_dicts(), infer_schema_length=None)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the lines of the tidy table, None for what is not defined."""
        lines = []
        for index, period in enumerate(self.periods):
            sums = {"rows": self.rows[index], "weight": self.weight[index], "positives": self.positives[index]}
            for metric, estimate in self.estimates[index].items():
                figures = {name: float(getattr(estimate, name)) for name in ("value", "low", "high", "floor")}
                lines.append({"period": period, **sums, "metric": metric, **finite(figures)})
        return lines

    def pcoc_table(self) -> FieldTable:
        """Return the PCOC of each period, as the values of a field have it."""
        pcoc = [estimate["pcoc"] for estimate in self.estimates]
        weight, positives = np.array(self.weight), np.array(self.positives)
        columns = (np.array([getattr(one, name) for one in pcoc]) for name in ("value", "low", "high"))
        return FieldTable(self.periods, weight, positives, np.full(len(self), np.nan), *columns)

    def text(self, most: int = 60) -> str:
        """Return one aligned line per period, the last `most` of them."""
        # A journal may have values in some of its periods only.
        metrics = [METRICS[name] for name in (*PERIOD_METRICS[1:], *_MONEY_METRICS)]
        metrics = [metric for metric in metrics if any(metric.name in known for known in self.estimates)]
        lines = [["period", "rows", "positives", "PCOC", "interval", *(metric.label for metric in metrics)]]
        names = shown_periods(self.periods)
        for index in range(max(0, len(self) - most), len(self)):
            pcoc, known = self.estimates[index]["pcoc"], self.estimates[index]
            line = [names[index], f"{self.rows[index]:,}", count(self.positives[index]), figure(pcoc.value)]
            line.append(f"{figure(pcoc.low)} … {figure(pcoc.high)}")
            for metric in metrics:
                shown = amount if metric.needs == "value" else figure
                line.append(shown(known[metric.name].value) if metric.name in known else "–")
            lines.append(line)
        left_out = len(self) - most
        note = f"\n{left_out:,} earlier periods are not shown; --json and --table have them" if left_out > 0 else ""
        return aligned(lines) + note


def evaluate_periods(
    model: Predictor | None,
    periods: Iterable[tuple[str, Sketch]],
    settings: MetricSettings | None = None,
    *,
    by: Sequence[str] | None = None,
) -> PeriodEvaluations:
    """Evaluate a model on each period, one in memory at a time."""
    lines: list[tuple[str, int, float, float, dict[str, Estimate]]] = []
    for period, sketch in periods:
        probability = sketch.score if model is None else predict_cells(model, sketch)
        result = evaluate_cells(probability, sketch, settings, by=by)
        names = [name for name in PERIOD_METRICS if name != "f_rce" or result.fields]
        names += [] if result.money is None else list(_MONEY_METRICS)
        # Plain figures: the rows of a period are released when it is done.
        estimates = {name: replace(result.estimates[name]) for name in names}
        lines.append((period, result.rows, result.weight, result.positives, estimates))
    columns = list(zip(*lines, strict=True)) if lines else [()] * 5
    return PeriodEvaluations(*columns)
