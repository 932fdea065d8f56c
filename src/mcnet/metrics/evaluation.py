"""The evaluation of probabilities against labels: every metric at once, with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mcnet._shared.typing import FloatArray, IndexArray
from mcnet._shared.user_warnings import warn
from mcnet.data.columns import check_lengths, check_total_weight, labels_column, scores_column, weights_column
from mcnet.data.fields import MISSING_LABEL, FieldColumn, field_columns
from mcnet.data.index_order import warn_of_other_order
from mcnet.data.negative_sampling import restore_negatives
from mcnet.errors import InputError
from mcnet.metrics.binned import Reliability, reliability_of_bins
from mcnet.metrics.estimates import Estimates
from mcnet.metrics.fields import CodedField, FieldEvaluation, combine, compact, evaluate_field
from mcnet.metrics.fold_sums import FoldSums
from mcnet.metrics.group_sums import group_sums
from mcnet.metrics.judged_rows import JudgedRows
from mcnet.metrics.probability_columns import columns, is_whole, order_by_probability
from mcnet.metrics.registry import METRICS
from mcnet.metrics.scoring import CLIP
from mcnet.metrics.settings import MetricSettings
from mcnet.metrics.text import INTERVAL_OF, describe, field_lines, heading, metric_lines, summary

__all__ = ["Evaluation", "coded_fields", "evaluate", "evaluate_columns"]


@dataclass(frozen=True, repr=False)
class Evaluation:
    """How good probabilities are: each metric is an attribute (`ev.pcoc`), its interval `ev.interval("pcoc")`.

    `estimates` has the metrics by name: value, interval, noise floor. Metrics by field value (`f_rce`, `f_ece`,
    `mf_rce`, `pcoc_std`, `gauc`) are over the contexts, that is over the values when there is one field;
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
    """

    rows: int
    weight: float
    positives: float
    settings: MetricSettings
    estimates: Estimates
    fields: Mapping[str, FieldEvaluation]
    contexts: FieldEvaluation
    reliability: Reliability

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
        found = self.estimates[name]
        return found.low, found.high

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
        for estimates in (
            self.estimates,
            self.contexts.estimates,
            *(found.estimates for found in self.fields.values()),
        ):
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
            "fields": {
                name: {"metrics": found.estimates.to_dict(), "table": found.table.to_dict()}
                for name, found in self.fields.items()
            },
            "contexts": {"metrics": self.contexts.estimates.to_dict(), "table": self.contexts.table.to_dict()},
            "reliability": self.reliability.to_dict(),
        }

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
        from mcnet.plots.forest import PcocTable, draw_forest, prepare_forest
        from mcnet.plots.reliability import draw_reliability
        from mcnet.plots.style import as_plotly

        named = {"evaluated": self} if before is None else {"before": before, "after": self}
        if field is None:
            return as_plotly(draw_reliability({name: ev.reliability for name, ev in named.items()}))
        if field not in self.fields:
            raise InputError(f"there is no field {field!r}; there are {', '.join(self.fields) or 'none'}")
        tables: dict[str, PcocTable] = {name: ev.fields[field].table for name, ev in named.items()}
        return as_plotly(draw_forest(prepare_forest(tables)))

    def __str__(self) -> str:
        return describe(self)

    def __repr__(self) -> str:
        return f"Evaluation({summary(self)})"

    def _repr_html_(self) -> str:
        from mcnet.plots.html import card

        (head, *lines), notes = metric_lines(self)
        cards = [card(f"Evaluation of {heading(self)}", head, lines, "; ".join(notes))]
        for found in self.fields.values():
            (head, *lines), note = field_lines(found)
            cards.append(card(f"Values of {found.name}, the worst first", head, lines, note.replace("\n", "; ")))
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
    width_bins: int = 100,
    bin_size: int = 1000,
    clip: float = CLIP,
    seed: int = 0,
    negatives_kept: float = 1.0,
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
    width_bins : the number of bins of equal width (Prob-ECE-width).
    bin_size : the rows of a bin of MVCE.
    clip : where log-loss clips the probabilities.
    seed : of the simulations behind some intervals.
    negatives_kept : the fraction of negatives that survived down-sampling; they are weighted back.

    Returns
    -------
    Evaluation
        Every metric as an attribute, `interval(name)`, `floor(name)`, `fields`, and a table when printed.

    >>> ev = evaluate([0.1, 0.2, 0.6, 0.7], [0, 0, 1, 1], field=["a", "b", "a", "b"])
    >>> round(ev.pcoc, 3), ev.auc, ev.fields["field"].table.values
    (0.8, 1.0, ('a', 'b'))
    """
    settings = MetricSettings(epsilon, drop_empty, level, bins, width_bins, bin_size, clip, seed)
    p = scores_column(probabilities, name="probability", clip=False)
    y = labels_column(labels)
    given = np.ones_like(y) if weight is None else weights_column(weight)
    y, restored = restore_negatives(y, given, negatives_kept)
    w = given if restored is None else restored
    known = None if truth is None else scores_column(truth, name="truth", clip=False)
    warn_of_other_order(field, probability=probabilities, label=labels, weight=weight, truth=truth)
    columns = field_columns(field)
    check_lengths(probability=p, label=y, weight=w, truth=known, **{f"field {c.name}": c for c in columns})
    if not w.any():
        raise InputError("every row has weight 0; at least one row with a weight above 0 is needed")
    if is_whole(p) and not is_whole(y):
        warn(
            "every probability is 0 or 1 and label has fractions; probabilities come first, labels second: "
            "if they are swapped, swap them back"
        )
    return evaluate_columns(p, y, w, coded_fields(columns), truth=known, settings=settings).compute_all()


def evaluate_columns(
    p: FloatArray,
    y: FloatArray,
    w: FloatArray,
    fields: Mapping[str, CodedField],
    *,
    truth: FloatArray | None = None,
    folds: IndexArray | None = None,
    settings: MetricSettings | None = None,
) -> Evaluation:
    """Evaluate columns that are valid already, with fields as codes: rows, or the cells of a sketch.

    Each metric is computed when it is first asked for.

    Parameters
    ----------
    p, y, w : probabilities, labels and weights.
    fields : the fields.
    truth : the true probabilities, if they are known.
    folds : the fold of each row, if each fold was predicted by a fit on the other ones: errors, and the order of rows,
        are then measured within folds (see `FoldSums` and `JudgedRows`).
    settings : of the metrics.
    """
    chosen = settings or MetricSettings()
    p, y, w = columns(p, y, w)
    check_total_weight(w)
    if not w.all():
        used = w > 0
        p, y, w, truth = p[used], y[used], w[used], None if truth is None else truth[used]
        folds = None if folds is None else folds[used]
        fields = {name: CodedField(coded.codes[used], coded.values) for name, coded in fields.items()}
    # Most metrics need the rows in the order of p; sorting once makes it free for all of them.
    order = order_by_probability(p)
    p, y, w, truth = p[order], y[order], w[order], None if truth is None else truth[order]
    fields = {name: _seen(coded.codes[order], coded.values) for name, coded in fields.items()}
    contexts, members = combine(fields, p.size)
    sums = group_sums(p, y, contexts.codes, w, count=len(contexts.values))
    folded = None if folds is None else FoldSums.of(p, y, w, contexts.codes, folds[order])
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
    rows = JudgedRows(chosen, sums, p, y, w, contexts.codes, truth, None if folds is None else compact(folds[order])[0])
    return Evaluation(
        rows=p.size,
        weight=float(sums.weight.sum()),
        positives=float(sums.positives.sum()),
        settings=chosen,
        estimates=Estimates(rows, METRICS, shared=whole.estimates),
        fields=evaluated,
        contexts=whole,
        reliability=reliability_of_bins(p, rows.bins, rows.bin_sums, chosen.level),
    )


def _seen(codes: npt.NDArray[np.intp], values: tuple[str, ...]) -> CodedField:
    """Keep only the values that some row has."""
    renumbered, old = compact(codes)
    return CodedField(renumbered, tuple(values[code] for code in old))


def coded_fields(columns: Sequence[FieldColumn]) -> dict[str, CodedField]:
    """Number the values of field columns, the missing value under the name people read."""
    return {
        column.name: CodedField(
            column.codes.astype(np.intp), tuple(MISSING_LABEL if value is None else value for value in column.values)
        )
        for column in columns
    }
