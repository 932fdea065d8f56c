"""Draw a model: lines of its curves as plain numbers, and cards for a notebook."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnet._shared.arrays import FloatArray, logit, sigmoid
from mcnet._shared.messages import count, counted, figure, percent, shown_value
from mcnet.errors import InputError, NotSupportedError
from mcnet.plots.figures import Line, draw_curves
from mcnet.plots.style import as_plotly, as_svg, card
from mcnet.rows.contexts import ANY, Contexts
from mcnet.rows.fields import MISSING_LABEL
from mcnet.rows.periods import shown_periods

if TYPE_CHECKING:
    from mcnet.model.model import CalibrationModel

POOLED = "pooled"
_LINE_POINTS = 160
_MOST_CURVES = 7
_MOST_CURVES_INLINE = 3
_INTERVAL_LEVEL = 0.95


def fitted_model(calibrator: Any) -> "CalibrationModel":
    """Return the model of a fitted calibrator, or the model itself."""
    model: CalibrationModel = getattr(calibrator, "model_", calibrator)
    return model


def lines_of(
    calibrator: Any,
    contexts: Contexts | None,
    between: tuple[float, float],
    *,
    pooled: bool = False,
    points: int = _LINE_POINTS,
) -> list[Line]:
    """Return what a calibrator predicts between two scores in each context, the pooled curve first if asked for.

    A calibrator without fields has the pooled curve alone. A single line gets a band if the calibrator has
    `interval(scores, field=…, level=…)`; the pooled curve of a calibrator with fields stands for no field value that
    could be asked for, and gets none.
    """
    model = fitted_model(calibrator)
    low, high = logit(np.array(between))
    scores = sigmoid(np.linspace(low, high, points)) if high > low else np.array([between[0]])
    if not model.fields:
        return [Line(POOLED, scores, model.predict(scores, score_type="probability"), *_band(calibrator, scores, None))]
    lines = []
    if pooled or contexts is None:
        lines.append(Line(POOLED, scores, model.predict_pooled(scores)))
    if contexts is not None:
        single = len(contexts) == 1 and not pooled
        for index, label in enumerate(contexts.labels()):
            everywhere = np.full(len(scores), index, dtype=np.int32)
            field = [column for column in contexts.columns(everywhere) if column.name in model.fields]
            band = _band(calibrator, scores, field) if single else (None, None)
            lines.append(Line(label, scores, model.predict(scores, field, score_type="probability"), *band))
    return lines


def plot_lines(calibrator: Any, field: Any = None) -> Any:
    """Show the pooled curve and those of the largest contexts as a Plotly figure, or the curve of one field value."""
    model = fitted_model(calibrator)
    if field is None:
        return as_plotly(draw_curves(largest_lines(calibrator, _MOST_CURVES)))
    contexts = _context(model, field) if model.fields else None
    return as_plotly(draw_curves(lines_of(calibrator, contexts, score_range(model))))


def largest_lines(calibrator: Any, shown: int, points: int = _LINE_POINTS) -> list[Line]:
    """Return the pooled curve, and those of the contexts with the most weight in the fit."""
    model = fitted_model(calibrator)
    contexts = _largest(model, shown) if model.fields else None
    return lines_of(calibrator, contexts, score_range(model), pooled=True, points=points)


def _largest(model: "CalibrationModel", shown: int) -> Contexts:
    """Return the largest contexts as the model's history names them; without a history, the first whole ones."""
    named, names = model.provenance.get("largest_contexts"), model.needed_fields
    needed = [place for place, name in enumerate(model.fields) if name in names]
    if not named or any(len(values) != len(model.fields) for values in named):
        whole = np.flatnonzero((model.contexts.table[:, needed] != ANY).all(axis=1))
        return model.contexts.subset(whole[:shown].astype(np.int32))
    # Contexts that differ only in a field that was left out have one curve.
    distinct = list(dict.fromkeys(tuple(values[place] for place in needed) for values in named))[:shown]
    columns = dict(zip(names, map(list, zip(*distinct, strict=True)), strict=True))
    result, order = Contexts.of(model.contexts.given(columns), len(distinct))
    return result.subset(order)


def score_range(model: "CalibrationModel") -> tuple[float, float]:
    """Return the lowest and the highest score of the fit, as far as the model's history tells."""
    return model.provenance.get("lowest_score", 0.001), model.provenance.get("highest_score", 0.999)


def _context(model: "CalibrationModel", field: Any) -> Contexts:
    """Return the one context of a field value, or of {name: value} with several fields."""
    needed = model.needed_fields
    values = model.contexts.by_field(field) if isinstance(field, Mapping) else {needed[0]: field}
    if not set(needed) <= set(values) <= set(model.fields):
        raise InputError(f"field is {field!r}; this model needs a value of each of {', '.join(needed)}")
    return Contexts.of(model.contexts.given({name: [values[name]] for name in needed}), 1)[0]


def _band(calibrator: Any, scores: FloatArray, field: Any) -> tuple[FloatArray | None, FloatArray | None]:
    interval = getattr(calibrator, "interval", None)
    if interval is None:
        return None, None
    try:
        low, high = interval(scores, field=field, level=_INTERVAL_LEVEL, score_type="probability")
    except NotSupportedError:
        return None, None
    return low, high


def model_card(model: "CalibrationModel") -> str:
    """Return a model and its curves as a small HTML table, for a notebook."""
    picture = as_svg(draw_curves(largest_lines(model, _MOST_CURVES_INLINE)), "Calibration curves")
    return card(f"Calibration model: {model.method}", [], model_facts(model), picture=picture)


def model_facts(model: "CalibrationModel") -> list[tuple[str, str]]:
    """Return what a model is and what it was fitted on, as pairs of words: a term and what is known."""
    history = model.provenance
    named = zip(model.fields, model.contexts.values, strict=True)
    fields = [f"{name} ({counted(len(values), 'value')})" for name, values in named if name in model.needed_fields]
    useless = [name for name in model.fields if name not in model.needed_fields]
    facts = [("fields", " × ".join(fields) or "none")]
    if useless:
        facts.append(("left out", f"{', '.join(useless)}: no more than chance; rows may have the column or not"))
    facts += [("curves", model.described_curves()), ("order", _order_words(model))]
    if history.get("rows"):
        rows = [counted(history["rows"], "row")]
        if history.get("weight") not in (None, history["rows"]):
            rows.append(f"weight {count(history['weight'])}")
        if "positives" in history and history.get("weight"):
            rate = history["positives"] / history["weight"]
            rows.append(f"{counted(history['positives'], 'positive')} ({percent(rate)})")
        facts.append(("fitted on", ", ".join(rows)))
    periods = history.get("fitted_periods") or {}
    if periods:
        first, last = shown_periods([str(periods["first"]), str(periods["last"])])
        facts.append(("periods", f"{counted(periods['number'], 'period')}, {first} to {last}"))
    elif history.get("last_period") is not None:
        facts.append(("periods", f"{counted(history['periods'], 'period')} until {history['last_period']}"))
    if "lowest_score" in history:
        facts.append(("scores", f"{figure(history['lowest_score'])} … {figure(history['highest_score'])}"))
    if history.get("base_pcoc") is not None:
        facts.append(("PCOC before", figure(history["base_pcoc"], 3)))
    columns = {name: entry for name, entry in (history.get("columns") or {}).items() if _USUAL.get(name) != entry}
    if columns:
        facts.append(("columns", ", ".join(f"{name.replace('_', ' ')} {entry}" for name, entry in columns.items())))
    made = str(history.get("date", "at an unknown date")).replace("T", " ").replace("+00:00", " UTC")
    return [*facts, ("made", f"{made} by {history.get('library', 'mcnet')}")]


def contribution_tables(model: "CalibrationModel") -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return what each field contributes, and its strongest values, as two tables of words, headings first.

    Models that do not know it, such as those of other methods, have no tables.
    """
    known = model.provenance.get("contributions") or []
    if not known:
        return [], []
    fields: list[tuple[str, ...]] = [("field", "values", "log-loss without it", "it saves", "own rows", "prior")]
    values: list[tuple[str, ...]] = [("strongest values", "rows", "odds times", "own rows", "prior")]
    for line in known:
        if line["field"] not in model.needed_fields:
            continue
        without, saved, own = line["log_loss"] + line["log_loss_saved"], line["log_loss_saved"], line["own"]
        shares = f"{own:.0%}", f"{1.0 - own:.0%}"
        fields.append((line["field"], count(line["values"]), f"{without:.5f}", f"{saved:+.5f}", *shares))
        for value in line["strongest"]:
            name = MISSING_LABEL if value["value"] is None else shown_value(value["value"])
            shares = f"{value['own']:.0%}", f"{1.0 - value['own']:.0%}"
            values.append((f"{line['field']} = {name}", count(value["rows"]), figure(value["odds"], 3), *shares))
    return fields, values


CONTRIBUTIONS_EXPLAINED = (
    "Log-loss without a field: its terms are dropped, the levels of the other fields are fitted again, and the "
    "log-loss of the fitted rows is corrected for the number of parameters. Own rows and prior: how much of the level "
    "of a value comes from each."
)
"""What stands beside these tables."""


def _order_words(model: "CalibrationModel") -> str:
    """Return what holds for the order of scores: with fields it is kept within a context, not between contexts."""
    if not model.monotone:
        return "not guaranteed"
    where = "kept within each context" if model.fields else "kept"
    return f"{where}: a higher score never gets a lower probability"


_USUAL = {"score_type": "probability", "negatives_kept": 1.0}
"""How rows are read if nothing else was said: not worth a line."""
