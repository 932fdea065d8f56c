"""`mcnet evaluate`: how good scores, or a model's probabilities, are on logs."""

from typing import Annotated

import typer

from mcnet.cli import options
from mcnet.cli.printing import Printer

__all__ = ["evaluate"]


def evaluate(
    logs: options.Logs,
    score: options.Score = None,
    label: options.Label = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="FILE", help="Judge this model's probabilities, not the scores.")
    ] = None,
    by: Annotated[
        list[str] | None, typer.Option("--by", metavar="FIELD", help="Judge inside this field too; may be repeated.")
    ] = None,
    weight: options.Weight = None,
    logits: options.Logits = False,
    negatives_kept: Annotated[
        float | None,
        typer.Option(
            "--negatives-kept",
            metavar="SHARE",
            help="The share of negatives that survived down-sampling; as in the model's fit if not given.",
        ),
    ] = None,
    level: Annotated[float, typer.Option("--level", metavar="SHARE", help="The level of the intervals.")] = 0.95,
    fail_if: options.Thresholds = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure PCOC, F-RCE, AUC, log-loss and more.

    Each figure comes with its interval; --by judges inside a field too.

    \b
    Example:
      mcnet evaluate log.parquet --score pctr --label click --by country
      mcnet evaluate log.parquet --model model.json --by country \\
          --fail-if 'f_rce>0.2' --fail-if 'pcoc<0.8'
    """
    from mcnet.cli.files import read_sketch, remembered, score_type
    from mcnet.cli.run import THRESHOLD_NOT_MET
    from mcnet.cli.thresholds import broken_thresholds, evaluated_figures, parse_thresholds
    from mcnet.metrics.evaluate_sketch import evaluate_cells, predict_cells
    from mcnet.metrics.settings import Settings
    from mcnet.model.file import load
    from mcnet.sketch.read import is_finished

    printer = Printer(json, quiet)
    thresholds = parse_thresholds(fail_if)
    loaded = None if model is None else load(model)
    fields = list(dict.fromkeys([*(by or []), *(loaded.fields if loaded else ())]))
    if loaded is not None and not is_finished(logs):
        score, label = remembered(loaded, "score", score), remembered(loaded, "label", label)
        logits = score_type(loaded, logits) == "logit"
        known = loaded.provenance.get("columns", {})
        weight = weight or known.get("weight")
        if negatives_kept is None and known.get("negatives_kept", 1.0) != 1.0:
            negatives_kept = known["negatives_kept"]
            printer.note(
                f"negatives count {1.0 / negatives_kept:.6g} times, as in the fit of the model; "
                "pass --negatives-kept 1 if this log has them all"
            )
    sketch = read_sketch(
        printer,
        logs,
        score=score,
        label=label,
        field=fields,
        weight=weight,
        score_type="logit" if logits else "probability",
        negatives_kept=1.0 if negatives_kept is None else negatives_kept,
    )
    # Without a model the scores themselves are judged.
    p = predict_cells(loaded, sketch) if loaded is not None else sketch.score
    found = evaluate_cells(p, sketch, Settings(level=level), by=by)
    broken = broken_thresholds(thresholds, evaluated_figures(found, thresholds))
    printer.result({"model": model, "broken": broken, **found.to_dict()}, str(found))
    for sentence in broken:
        printer.note(f"not met: {sentence}")
    if broken:
        raise typer.Exit(THRESHOLD_NOT_MET)
