"""The sentences and tables of the page: the result, the comparison, the field values, what was fitted on what."""

from dataclasses import dataclass

from mcnet._shared.terminal_text import Figure, count, figure, percent, with_interval
from mcnet.calibrators.registry import default_parameters
from mcnet.metrics.evaluation import Evaluation
from mcnet.plots.forest import Forest
from mcnet.report.order import Order, prepare_order
from mcnet.selection.selection import MethodResult, Selection
from mcnet.selection.text import difference_words
from mcnet.sketch.sketch import Sketch

__all__ = [
    "MethodLine",
    "ParameterLine",
    "ValueLine",
    "describe_order",
    "prepare_comparison",
    "prepare_facts",
    "prepare_headline",
    "prepare_parameters",
    "prepare_values",
]


@dataclass(frozen=True)
class MethodLine:
    """One line of the comparison, as text."""

    method: str
    chosen: bool
    log_loss: str
    difference: Figure
    pcoc: Figure
    f_rce: Figure | None
    auc: Figure
    order: Figure
    seconds: str


@dataclass(frozen=True)
class ValueLine:
    """One line of a field's table, as text; `pcoc` has one entry per series."""

    value: str
    weight: str
    positives: str
    impact: str
    pcoc: tuple[Figure, ...]


@dataclass(frozen=True)
class ParameterLine:
    """One parameter of the chosen method, as text; `chosen` tells whether it differs from the default."""

    name: str
    value: str
    default: str
    chosen: bool


def prepare_headline(
    before: Evaluation, after: Evaluation, periods: tuple[float, float] | None = None
) -> list[tuple[str, str, str, str]]:
    """Return the main metrics before and after calibration, in words: name, before, after, and what stands below.

    A PCOC of 1 over all rows can hide periods far from it: `periods`, the lowest and the highest PCOC of a period after
    calibration, stand below the PCOC.
    """
    below = "" if periods is None else f"single periods after: {figure(periods[0], 3)} … {figure(periods[1], 3)}"
    metrics = [("Log-loss", "log_loss", 5), ("PCOC", "pcoc", 3), ("F-RCE", "f_rce", 4), ("AUC", "auc", 4)]
    return [
        (
            name,
            figure(float(getattr(before, key)), digits),
            figure(float(getattr(after, key)), digits),
            below if key == "pcoc" else "",
        )
        for name, key, digits in metrics
        if key != "f_rce" or before.fields
    ]


def prepare_facts(selection: Selection, sketch: Sketch, judged: Sketch, judged_on: str) -> list[tuple[str, str]]:
    """Return what was fitted on what, as pairs of a term and its text."""
    chosen = selection.chosen
    model = chosen.calibrator.model_
    known = model.provenance
    facts = [
        ("Method", chosen.method),
        ("Fitted on", f"{count(sketch.rows)} rows, {_positives(sketch)}"),
        ("Judged on", f"{judged_on}: {count(judged.rows)} rows, {_positives(judged)}"),
    ]
    if sketch.total_weight != sketch.rows:
        facts.insert(2, ("Weight", f"{count(sketch.total_weight)} (rows are weighted)"))
    names = sketch.contexts.names
    if names:
        numbers = (count(len(values)) for values in sketch.contexts.values)
        values = [f"{name} ({number} values)" for name, number in zip(names, numbers, strict=True)]
        together = f"; {count(len(sketch.contexts))} contexts" if len(names) > 1 else ""
        unused = "" if model.fields else " (the chosen method has one curve for all)"
        facts.append(("Fields", ", ".join(values) + together + unused))
    if model.parameters:
        chosen_ones = [f"{line.name} = {line.value}" for line in prepare_parameters(selection) if line.chosen]
        text = ", ".join(chosen_ones) + "; the others at their defaults" if chosen_ones else "all at their defaults"
        facts.append(("Parameters", text))
    facts.append(("Scores", f"from {figure(known['lowest_score'])} to {figure(known['highest_score'])}"))
    facts.append(("Sketch", f"{count(len(sketch))} cells, resolution {sketch.resolution}"))
    facts.append(("Made", f"{known['date'].replace('T', ' ').replace('+00:00', ' UTC')} by {known['library']}"))
    return facts


def prepare_parameters(selection: Selection) -> list[ParameterLine]:
    """Return one line per parameter of the chosen method, those that are not at their default first."""
    model = selection.calibrator.model_
    usual = default_parameters(model.method)
    lines = [
        ParameterLine(name, _value(value), _value(usual[name]) if name in usual else "", usual.get(name) != value)
        for name, value in model.parameters.items()
    ]
    return sorted(lines, key=lambda line: not line.chosen)


def _value(value: object) -> str:
    """Return a parameter as a person writes it.

    >>> [_value(value) for value in (None, True, 0.5, ["a", 1], {"method": "platt"})]
    ['none', 'yes', '0.5', 'a, 1', 'method = platt']
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_value, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_value(entry)}" for name, entry in value.items()) or "none"
    return str(value)


def _positives(sketch: Sketch) -> str:
    rate = sketch.total_positives / sketch.total_weight
    return f"{count(sketch.total_positives)} positives ({percent(rate)})"


def prepare_comparison(selection: Selection) -> list[MethodLine]:
    """Return one line per method, the lowest held-back log-loss first."""
    return [_line(selection, result) for result in selection.results]


def _line(selection: Selection, result: MethodResult) -> MethodLine:
    ev, gap = result.evaluation, result.difference
    order = prepare_order(result.calibrator, selection.judged)
    over, error = difference_words(gap.value, gap.standard_error)
    best = result is selection.results[0]
    return MethodLine(
        method=result.method,
        chosen=result.method == selection.chosen.method,
        log_loss=f"{ev.log_loss:.5f}",
        difference=Figure("best") if best else Figure(over, f"± {error}"),
        pcoc=with_interval(ev.pcoc, *ev.interval("pcoc")),
        f_rce=_field_error(ev) if ev.fields else None,
        auc=with_interval(ev.auc, *ev.interval("auc"), digits=4),
        order=Figure("kept") if order.kept else Figure("broken", f"{percent(order.share_below)} of rows"),
        seconds=f"{result.fit_seconds:.2g} s",
    )


def _field_error(ev: Evaluation) -> Figure:
    """Return the F-RCE beside its noise floor and the interval of its true value."""
    error = ev.estimates["f_rce"]
    value = with_interval(error.value, error.low, error.high, digits=4)
    floor = f"noise floor {figure(error.floor)}"
    return Figure(value.value, f"{floor}, true value {value.beside}" if value.beside else floor)


def describe_order(method: str, order: Order) -> str:
    """Return one or two sentences on the order of scores under the chosen method."""
    if order.kept:
        which = "The curve" if order.curves == 1 else f"Each of the {count(order.curves)} curves"
        sentence = (
            f"{which} of {method} rises or stays level everywhere: a higher score never gets a lower probability."
        )
    else:
        which = f"{count(order.falling)} of the {count(order.curves)} curves of {method} fall"
        sentence = (
            f"{which if order.curves > 1 else f'The curve of {method} falls'} somewhere, by "
            f"{figure(order.largest_drop)} at most: {percent(order.share_below)} of the rows get a lower probability "
            "than a row of their context with a lower score."
        )
    if order.kept and order.reported:
        sentence += f" To guarantee this, fitted probabilities were moved by at most {figure(order.reported)}."
    return sentence


def prepare_values(forest: Forest, *, limit: int = 300) -> list[ValueLine]:
    """Return one line per field value, by impact."""
    return [
        ValueLine(
            value=forest.values[i],
            weight=count(forest.weight[i]),
            positives=count(forest.positives[i]),
            impact=f"{forest.impact[0, i]:,.1f}",
            pcoc=tuple(
                with_interval(forest.pcoc[s, i], forest.low[s, i], forest.high[s, i]) for s in range(len(forest.series))
            ),
        )
        for i in range(min(limit, len(forest)))
    ]
