"""`mcnet fit`: logs to a saved model."""

import typer

from mcnet._shared.terminal_text import counted
from mcnet.cli import options

__all__ = ["fit"]


def fit(
    context: typer.Context,
    logs: options.Logs,
    output: options.Output,
    score: options.Score = None,
    label: options.Label = None,
    field: options.Fields = None,
    weight: options.Weight = None,
    time: options.Time = None,
    every: options.Every = None,
    method: options.Method = "mcnet-bayes",
    parameters: options.Parameters = None,
    logits: options.Logits = None,
    negatives_kept: options.NegativesKept = 1.0,
    since: options.Since = None,
    until: options.Until = None,
    half_life: options.HalfLife = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit a method on logs and save the model.

    The rows are read once and sketched. The model remembers the names of its columns, so apply needs no options for
    them. With --time the fit learns from how periods differ: rows of one day are not independent. A journal is split
    into periods already; --since, --until and --half-life choose and weight them.

    \b
    Example:
      mcnet fit log.parquet --score pctr --label click --field country \\
          -o model.json
    """
    from mcnet.calibrators.registry import calibrator
    from mcnet.cli.config import printer_of
    from mcnet.cli.files import by_period, check_output
    from mcnet.cli.parameters import parse_parameters
    from mcnet.cli.sources import remember_periods, source_of
    from mcnet.errors import InputError

    printer = printer_of(context, json, quiet)
    source = source_of(logs)
    source.refuse_time(time)
    check_output(output, [source], force=force)
    chosen = calibrator(method, **parse_parameters(parameters))
    if every is not None and time is None:
        raise InputError("--every cuts a column of time to periods; pass --time too")
    columns = source.with_time(source.columns(context), time, every)
    chosen_periods = source.chosen_periods(since=since, until=until, half_life=half_life)
    sketch = source.read(printer, **columns, **chosen_periods)
    parts = source.periods(columns["field"], since, until) if time is None else by_period(sketch, time)
    with printer.steps(f"fitting {chosen.method}"):
        # Rows that count less with age are no blocks of independent rows: they are fitted as their sum.
        alike = parts is None or half_life is not None
        model = (chosen.fit_sketch(sketch) if alike or parts is None else chosen.fit_journal(parts)).model_
    if parts is not None:
        model = remember_periods(model, list(parts))
    model.save(output)
    printer.note(f"{counted(sketch.rows, 'row')}, {counted(sketch.total_positives, 'positive')} → {model} → {output}")
    for name, number in model.provenance.get("pooled_values", {}).items():
        known = len(model.contexts.values[model.fields.index(name)])
        printer.note(f"{number:,} of {known:,} values of {name} have too few rows for their own curve: pooled")
    printer.result({"output": output, "method": model.method, **model.provenance})
