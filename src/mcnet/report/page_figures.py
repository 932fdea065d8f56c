"""The figures of the report, and of notebooks: reliability, curves, scores and drift by view."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import CodeArray, FloatArray, sums_by
from mcnet._shared.messages import count, counted, with_interval
from mcnet.errors import InputError
from mcnet.metrics.calibration_error import equal_mass_bins, group_pcoc, pcoc, reliability
from mcnet.metrics.evaluation import Evaluation, predict_cells
from mcnet.metrics.intervals import wilson
from mcnet.metrics.sums import GroupSums, group_sums
from mcnet.model.drawing import fitted_model, lines_of
from mcnet.plots.figures import (
    Line,
    Points,
    Reliability,
    draw_curves,
    draw_histogram,
    draw_reliability,
    masses_of,
)
from mcnet.plots.style import Spec, as_plotly
from mcnet.plots.timeline import Drift, draw_drift
from mcnet.rows.contexts import ANY, Contexts
from mcnet.rows.fields import MISSING_LABEL
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.views import in_field_order

# What the figures show of a sketch, computed as plain numbers.

_WEIGHT_OUTSIDE = 0.0005


def reliability_of(
    probabilities: FloatArray, sketch: Sketch, cells: NDArray[np.intp], *, bins: int = 20
) -> Reliability:
    """Return the reliability table of one probability per cell, over the cells given.

    Bins have equal mass; where positives are few there are fewer bins, so that each has some.
    """
    positives, weight = sketch.positives[cells], sketch.weight[cells]
    return reliability(probabilities[cells], positives / weight, weight, bins=min(bins, _enough(positives)))


def points_of(sketch: Sketch, cells: NDArray[np.intp], *, groups: int = 40) -> Points:
    """Return the observed rate, with Wilson's interval, of neighbouring cells in groups of equal mass."""
    score, positives, weight = sketch.score[cells], sketch.positives[cells], sketch.weight[cells]
    group = equal_mass_bins(score, weight, min(groups, _enough(positives)))
    sums = group_sums(score, positives / weight, group, weight)
    low, high = wilson(sums.positives, sums.weight)
    return Points(sums.predicted / sums.weight, sums.positives / sums.weight, low, high, sums.weight)


def _enough(positives: FloatArray) -> int:
    """Return a number of groups such that each has about as many positives as there are groups; at least three."""
    return max(3, int(np.sqrt(float(positives.sum()))))


def score_span(score: FloatArray, weight: FloatArray) -> tuple[float, float]:
    """Return the scores between which all but a thousandth of the weight is."""
    order = np.argsort(score)
    mass = np.cumsum(weight[order])
    first, last = np.searchsorted(mass, mass[-1] * np.array([_WEIGHT_OUTSIDE, 1.0 - _WEIGHT_OUTSIDE]))
    return float(score[order[first]]), float(score[order[min(last, len(order) - 1)]])


# Views: the parts of the rows that a reader can choose: all rows, one field value, one context.

ALL_ROWS = "All rows"


@dataclass(frozen=True)
class View:
    """A choice of rows: a label, the group of labels it belongs to, and its contexts, the largest first."""

    label: str
    group: str
    contexts: NDArray[np.intp]
    weight: float

    def of(self, cell_contexts: CodeArray, number: int) -> NDArray[np.intp]:
        """Return which cells are in the view, given the context of each and the number of contexts."""
        inside = np.zeros(number, dtype=bool)
        inside[self.contexts] = True
        return np.flatnonzero(inside[cell_contexts])


def unite(sketches: Sequence[Sketch]) -> tuple[Contexts, list[CodeArray]]:
    """Return the contexts of all sketches together, and for each sketch the context of every cell among them."""
    contexts = sketches[0].contexts
    sketches = [in_field_order(sketch, contexts.names) for sketch in sketches]
    indices = [contexts.all()]
    for sketch in sketches[1:]:
        if sketch.contexts.names != contexts.names:
            here, there = (", ".join(names) or "none" for names in (contexts.names, sketch.contexts.names))
            raise InputError(f"the sketches have different fields: {here} and {there}; make them alike with only(…)")
        contexts, mine, its = contexts.united(sketch.contexts)
        indices = [*(mine[index] for index in indices), its]
    return contexts, [index[sketch.context] for index, sketch in zip(indices, sketches, strict=True)]


def views_of(contexts: Contexts, weight: FloatArray, *, limit: int = 300) -> list[View]:
    """Return all rows first, then the largest field values and contexts, `limit` in all.

    `weight` is the weight of each context; one without weight is not offered.
    """
    largest = np.argsort(-weight, kind="stable")
    largest = largest[weight[largest] > 0.0]
    parts = list(_by_value(contexts, weight, largest))
    if len(contexts.names) > 1:
        name, offered = " × ".join(contexts.names), largest[:limit]
        labels = contexts.subset(offered.astype(np.int32)).labels()
        parts += [
            View(label, name, np.array([context]), float(weight[context]))
            for label, context in zip(labels, offered, strict=True)
        ]
    kept = set(sorted(range(len(parts)), key=lambda index: -parts[index].weight)[:limit])
    whole = View(ALL_ROWS, "", largest, float(weight.sum()))
    return [whole, *(part for index, part in enumerate(parts) if index in kept)]


def _by_value(contexts: Contexts, weight: FloatArray, largest: NDArray[np.intp]) -> Iterable[View]:
    for field, name in enumerate(contexts.names):
        codes = contexts.table[:, field]
        known = codes != ANY
        by_code = sums_by(codes[known].astype(np.intp), weight[known], len(contexts.values[field]))
        members: dict[int, list[int]] = {}
        for context in largest:
            members.setdefault(int(codes[context]), []).append(int(context))
        for code in np.argsort(-by_code, kind="stable").tolist():
            if code in members:
                value = contexts.values[field][code]
                label = MISSING_LABEL if value is None else value
                yield View(label, name, np.array(members[code]), float(by_code[code]))


# Order: whether a higher score can get a lower probability, and for which share of the weight.


@dataclass(frozen=True)
class Order:
    """How many of a calibrator's curves fall somewhere, by how much at most, and the share of the weight below.

    A row is *below* if its probability is lower than that of a row of its context with a lower score. `reported` is
    the calibrator's own `order_violations_`, where it keeps one: by how much its guarantee had to move a probability.
    """

    curves: int
    falling: int
    largest_drop: float
    share_below: float
    reported: float | None

    @property
    def kept(self) -> bool:
        """Tell whether the order of scores is kept everywhere."""
        return self.falling == 0


def order_of(calibrator: Any, sketch: Sketch) -> Order:
    """Find falls in the curves of a calibrator, and the share of the rows of a sketch that they affect."""
    model = fitted_model(calibrator)
    falling = sum(bool((np.diff(values) < 0.0).any()) for _, values in model.curves.pairs())
    reported = getattr(calibrator, "order_violations_", None)
    return Order(
        curves=1 + model.context_count,
        falling=falling,
        largest_drop=model.curves.largest_drop(),
        share_below=_share_below(calibrator, sketch) if falling else 0.0,
        reported=None if reported is None else float(reported),
    )


def _share_below(calibrator: Any, sketch: Sketch) -> float:
    # The cells of a sketch come in the order of context and score; folds of one cell do not matter here.
    whole = sketch.unfolded()
    probabilities = predict_cells(calibrator, whole)
    starts = np.flatnonzero(np.diff(whole.context, prepend=-1))
    highest = np.concatenate([np.maximum.accumulate(part) for part in np.split(probabilities, starts[1:])])
    return float(whole.weight[probabilities < highest].sum() / whole.total_weight)


# Drift: calibration per period, from one sketch per period.

SERIES = ("before", "after")
PeriodSums = dict[str, tuple[GroupSums, ...]]
"""For each period, the sums of every context before and after calibration."""


def period_sums(
    calibrator: Any, periods: Mapping[str, Sketch], contexts: Sequence[CodeArray], number: int
) -> PeriodSums:
    """Return the sums of every context per period; `contexts` has the context of each sketch's cells."""
    return {
        period: tuple(
            group_sums(p, sketch.rate, of_cells, sketch.weight, count=number)
            for p in (sketch.score, predict_cells(calibrator, sketch))
        )
        for (period, sketch), of_cells in zip(periods.items(), contexts, strict=True)
    }


def drift_of(sums: PeriodSums, contexts: NDArray[np.intp] | None = None) -> Drift:
    """Return the PCOC per period of some contexts together, or of all."""
    totals = [
        [(part if contexts is None else part.where(np.sort(contexts))).total() for part in parts]
        for parts in sums.values()
    ]
    columns = np.array([[group_pcoc(part) for part in parts] for parts in totals])[..., 0]
    pcoc, low, high = np.moveaxis(columns, 2, 0)
    weight = np.array([float(parts[0].weight[0]) for parts in totals])
    return Drift(tuple(sums), SERIES, pcoc.T, low.T, high.T, weight)


# The figures of the page: for each method and each view, reliability, curves, scores and drift.

_SHOWN_CONTEXTS = 5
_MEAN_GROUPS = 40
_LINE_POINTS = 48
"""Enough for a smooth line; a page has hundreds of them."""


@dataclass(frozen=True)
class ReportRows:
    """The rows that the page shows, as sketches that share one list of contexts.

    `judged` are the rows to show before and after calibration, `fitted` those of the fit, `timelines` the periods of
    each figure over time. `judged_contexts` and so on give the context of each cell in `contexts`.
    """

    judged: Sketch
    fitted: Sketch
    timelines: Mapping[str, Mapping[str, Sketch]]
    contexts: Contexts
    judged_contexts: CodeArray
    fitted_contexts: CodeArray
    timeline_contexts: Mapping[str, list[CodeArray]]

    @staticmethod
    def of(judged: Sketch, fitted: Sketch, timelines: Mapping[str, Mapping[str, Sketch]]) -> "ReportRows":
        """Return the rows with the contexts of all of them."""
        parts = [part for periods in timelines.values() for part in periods.values()]
        contexts, indices = unite([judged, fitted, *parts])
        left = iter(indices[2:])
        by_timeline = {name: [next(left) for _ in periods] for name, periods in timelines.items()}
        return ReportRows(judged, fitted, timelines, contexts, indices[0], indices[1], by_timeline)


@dataclass(frozen=True)
class MethodFigures:
    """A method that the page shows: its figures, one view after the other, and how good it is.

    `calibrator` is fitted, or a model; `after` are its probabilities of the cells of `rows.judged`, and `evaluated` is
    how good they are.
    """

    method: str
    calibrator: Any
    after: FloatArray
    evaluated: Evaluation
    rows: ReportRows

    @cached_property
    def of_fitted(self) -> FloatArray:
        """Return the probabilities of the cells of `rows.fitted`."""
        return predict_cells(self.calibrator, self.rows.fitted)

    @cached_property
    def sums(self) -> dict[str, PeriodSums]:
        """Return the sums of the periods of each timeline."""
        rows = self.rows
        return {
            name: period_sums(self.calibrator, periods, rows.timeline_contexts[name], len(rows.contexts))
            for name, periods in rows.timelines.items()
        }

    def period_extremes(self) -> tuple[float, float] | None:
        """Return the lowest and the highest PCOC of a single period after calibration; of fresh rows, if there are."""
        for sums in self.sums.values():
            return drift_of(sums).extremes(1)
        return None

    def draw(self, view: View) -> dict[str, Any]:
        """Return the sentences and figures of a view."""
        judged = self.rows.judged
        cells = view.of(self.rows.judged_contexts, len(self.rows.contexts))
        columns = {"before": judged.score, "after": self.after}
        curves, explanation = self._curves(view, cells)
        figures = {
            "reliability": draw_reliability({name: reliability_of(p, judged, cells) for name, p in columns.items()}),
            "curves": curves,
            "histogram": draw_histogram(masses_of({n: p[cells] for n, p in columns.items()}, judged.weight[cells])),
        }
        for name, sums in self.sums.items():
            # Beside fresh rows, those of the fit are shown once, for all rows: half of the page would be theirs.
            if name != "drift" or len(self.sums) == 1 or not view.group:
                figures[name] = draw_drift(drift_of(sums, view.contexts))
        return {"summary": self._summary(cells), "explanation": explanation, "figures": figures}

    def _curves(self, view: View, cells: NDArray[np.intp]) -> tuple[Spec, str]:
        """Return the figure of the curves, and the sentence that says what its lines are."""
        rows = self.rows
        own = view.of(rows.fitted_contexts, len(rows.contexts))
        # A value that is not in the fitted rows has no cells there: the range of its scores is that of the judged rows.
        source, chosen = (rows.fitted, own) if len(own) else (rows.judged, cells)
        between = score_span(source.score[chosen], source.weight[chosen])
        points = points_of(rows.fitted, own) if len(own) else None
        fields = fitted_model(self.calibrator).fields
        largest = rows.contexts.subset(view.contexts[:_SHOWN_CONTEXTS].astype(np.int32))
        whole = not view.group
        lines = lines_of(self.calibrator, largest, between, pooled=whole, points=_LINE_POINTS)
        if not fields or (len(view.contexts) == 1 and not whole):
            band = " The band is the 95 % interval of the line." if lines[0].low is not None else ""
            return draw_curves(lines, points), "The line turns a raw score into a probability." + band
        sentences = [f"Thin lines are the curves of the {counted(len(largest), 'largest context')}."]
        if whole:
            sentences.append("“pooled” is the curve of field values that were not in the fit.")
        if len(own):
            lines = [mean_line(rows.fitted, self.of_fitted, own), *lines]
            sentences.insert(
                0,
                f"The thick line is the mean calibrated probability of the rows at each score, over all "
                f"{count(len(view.contexts))} contexts.",
            )
        return draw_curves(lines, points), " ".join(sentences)

    def _summary(self, cells: NDArray[np.intp]) -> str:
        judged = self.rows.judged
        positives, weight = judged.positives[cells], judged.weight[cells]
        ratios = (pcoc(group_sums(p[cells], positives / weight, None, weight)) for p in (judged.score, self.after))
        before, after = (with_interval(ratio.value, ratio.low, ratio.high) for ratio in ratios)
        rows = f"{count(float(weight.sum()))} rows, {count(float(positives.sum()))} positives"
        return f"{rows}. PCOC {before} before, {after} after."


def mean_line(sketch: Sketch, probabilities: FloatArray, cells: NDArray[np.intp]) -> Line:
    """Return the mean probability of neighbouring cells, in groups of equal mass, over their mean score."""
    score, weight = sketch.score[cells], sketch.weight[cells]
    group = equal_mass_bins(score, weight, _MEAN_GROUPS)
    by_score, by_probability = (group_sums(p, p, group, weight) for p in (score, probabilities[cells]))
    return Line("mean", by_score.predicted / by_score.weight, by_probability.predicted / by_probability.weight)


# A figure for a notebook.


def plot_curves(calibrator: Any, sketch: Sketch, field: Any = None) -> Any:
    """Show a curve of a calibrator over the rows of a sketch, with the band if the calibrator has one.

    Parameters
    ----------
    calibrator : a fitted calibrator or a loaded model.
    sketch : the rows.
    field : whose curve: a value, or {name: value} with several fields; None for the pooled curve over all rows.

    Returns
    -------
    figure : of Plotly.

    >>> from mcnet.calibrators.parametric import Platt
    >>> sketch = Sketch.from_rows([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1])
    >>> [trace.name for trace in plot_curves(Platt().fit_sketch(sketch), sketch).data][:2]
    ['pooled', 'observed rate']
    """
    cells, contexts = np.arange(len(sketch)), None
    if field is not None:
        for name in fitted_model(calibrator).needed_fields:
            sketch.contexts.index_of_field(name)  # refuses one that the sketch does not have
        values = field if isinstance(field, Mapping) else dict.fromkeys(sketch.contexts.names[:1], field)
        context = sketch.contexts.lookup(sketch.contexts.given({name: [value] for name, value in values.items()}))
        if context[0] < 0:
            raise InputError(f"the sketch has no rows of {values}; leave field out for the pooled curve")
        cells, contexts = np.flatnonzero(sketch.context == context[0]), sketch.contexts.subset(context)
    between = score_span(sketch.score[cells], sketch.weight[cells])
    return as_plotly(draw_curves(lines_of(calibrator, contexts, between), points_of(sketch, cells)))
