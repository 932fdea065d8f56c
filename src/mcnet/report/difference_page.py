"""The page of a difference: what changes from one model to another, by field value and by score."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mcnet._shared.atomic_files import whole_file
from mcnet._shared.math import logit, sigmoid
from mcnet._shared.terminal_text import count, percent
from mcnet.model.model import CalibrationModel
from mcnet.plots.curves import Line
from mcnet.plots.svg import small_curves
from mcnet.report.assets import read_asset, template
from mcnet.versions.difference import ModelDifference

__all__ = ["write_difference_page"]

_MOST_LINES = 200
_MOST_PICTURES = 12
_POINTS = 80
_MOST_NAMES = 20


def write_difference_page(
    path: str | PathLike[str],
    difference: ModelDifference,
    old: CalibrationModel,
    new: CalibrationModel,
    *,
    title: str = "What changes",
) -> Path:
    """Write the difference of two models as one self-contained HTML page, which needs no script.

    Parameters
    ----------
    path : the file to write; it appears complete or not at all.
    difference : what `mcnet.diff` returned for the two models.
    old, new : the models, for the pictures of their curves.
    title : the heading of the page.

    Returns
    -------
    path : the file written.
    """
    lines = difference.table.head(_MOST_LINES).to_dicts()
    left_out = difference.table.height - len(lines)
    page = template("difference.html.j2").render(
        title=title,
        lead=_lead(difference),
        weighed="the rows given" if difference.weighted_by == "rows" else "scores spread evenly over the fitted range",
        by_rows=difference.weighted_by == "rows",
        models=[_model(name, model) for name, model in (("Old", old), ("New", new))],
        lines=[_line(line) for line in lines],
        left_out=count(left_out) if left_out else "",
        bands=[
            {**_line(band), "score": f"{band['score_low']:.3g} … {band['score_high']:.3g}"}
            for band in difference.by_score.to_dicts()
        ],
        only=[
            (which, count(len(names)), ", ".join(names[:_MOST_NAMES]), len(names) > _MOST_NAMES)
            for which, names in (("old", difference.only_old), ("new", difference.only_new))
            if names
        ],
        pictures=_pictures(difference, old, new),
        style=read_asset("page.css"),
    )
    with whole_file(path) as part:
        part.write_text(page, encoding="utf-8")
    return Path(path)


def _lead(difference: ModelDifference) -> str:
    if difference.largest == 0.0:
        return "Nothing changes: both models give the same probabilities."
    first = difference.table.row(0, named=True)
    most = f" Most of it in {first['context']} ({first['shift']:+.2%})." if difference.table.height > 1 else ""
    return (
        f"The mean probability changes by {difference.shift:+.2%}; no probability by more than "
        f"{percent(difference.largest)}.{most}"
    )


def _line(line: dict[str, Any]) -> dict[str, str]:
    shown = {name: f"{100 * line[name]:.4g}\N{NO-BREAK SPACE}%" for name in ("old_rate", "new_rate")}
    more = {"weight": count(line["weight"]), "shift": f"{line['shift']:+.2%}"}
    if "context" in line:
        more |= {
            "context": line["context"],
            "largest": percent(line["largest"]),
            "moved": f"{line['positives_moved']:+,.1f}",
        }
    return {**shown, **more}


def _model(name: str, model: CalibrationModel) -> tuple[str, str]:
    history = model.provenance
    until = (history.get("fitted_periods") or {}).get("last") or history.get("last_period")
    rows = f", {count(history['rows'])} rows" if history.get("rows") else ""
    return name, f"{model.method}{rows}{f', until {until}' if until else ''}"


def _pictures(difference: ModelDifference, old: CalibrationModel, new: CalibrationModel) -> list[tuple[str, str]]:
    """Return the curves of both models in the contexts that change most."""
    bands = difference.by_score
    ends = np.clip([bands["score_low"].min(), bands["score_high"].max()], 1e-6, 1.0 - 1e-6)
    low, high = logit(ends)
    score = sigmoid(np.linspace(low, max(high, low + 1e-3), _POINTS))
    pictures = []
    for place, name in zip(difference.order[:_MOST_PICTURES], difference.table["context"], strict=False):
        field = difference.contexts.columns(np.full(_POINTS, place, dtype=np.int32)) if old.fields else None
        lines = [
            Line(label, score, model.predict(score, field, score_type="probability"))
            for label, model in (("old", old), ("new", new))
        ]
        pictures.append((name, small_curves(lines)))
    return pictures
