"""`mcnet value`: replay auctions, and print what bids from scores, models and methods would have earned."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcnet._shared.messages import warn
from mcnet.cli import options
from mcnet.cli.options import Columns
from mcnet.cli.run import Printer
from mcnet.cli.sources import DEFAULT_PERIOD, PAGE, check_output, load_model, remembered_negatives, source_of
from mcnet.errors import InputError
from mcnet.rows.locations import is_store, read_options

if TYPE_CHECKING:
    import polars as pl

SCORES = "scores"
"""What the scores themselves are called beside the models."""

_AS_TEXT = ("time", "block")
"""Columns that are read as text, and may be fields as well; each of the others has one role."""


def value(
    logs: list[str] = options.LOG_FILES,
    price: str | None = options.option("COLUMN", "The column of market prices: the highest bid of the others."),
    worth: str | None = options.option("COLUMN", "What a positive is worth: a column, or a number.", None, "--value"),
    columns: Columns = options.columns_as_fitted(
        *("value_per_positive", "field"),
        logits="The type of the scores; by default probabilities.",
        time="The column of timestamps; blocks are its periods.",
        every="The length of a period: 1h, 1d (the default).",
    ),
    model: list[str] | None = options.option(
        "FILE", "Bid with this model, or the one a store serves, too; may be repeated."
    ),
    method: list[str] | None = options.option(
        "NAME",
        "Bid with this method, fitted on --fit-on, too; may be repeated.",
        autocompletion=options.complete_methods,
    ),
    fit_on: list[str] | None = options.option(
        "LOG", "With --method: the rows to fit on, of other auctions; --where applies."
    ),
    price_per: float | None = options.option("N", "A price is for this many rows, such as 1000; 1 if not given."),
    auction: str = options.option("KIND", "second: pay the market price; first: pay the bid.", "second"),
    budget: float | None = options.option("N", "What may be spent in all, or per period of --time."),
    block: str | None = options.option("COLUMN", "Blocks for the intervals: a column, or so many rows in their order."),
    truth: str | None = options.option("COLUMN", "The true probabilities, if they are known."),
    against: str | None = options.option("NAME", "Compare with this model; the scores if not given."),
    report: str | None = options.option("FILE", "Write a page with two plots (.html)."),
    level: float = options.option("SHARE", "The level of the intervals.", 0.95),
    force: bool = options.FORCE,
    printer: Printer = options.PRINTER,
) -> None:
    """Replay auctions: what would bids have won and earned?

    A bid is value times probability, and wins its row if it is above the market price. Scores, models and methods bid
    on the same rows; differences of surplus have intervals from whole blocks of rows. The replay assumes that the
    others' bids do not react, and it knows only the auctions of the log.

    \b
    Example:
      mcnet value log.parquet --score pctr --label click --field country \\
          --price paid --price-per 1000 --value 0.8 --model model.json
    """
    from mcnet.auctions import TRUTH, check_rules, replay
    from mcnet.rows.columns import scores_column
    from mcnet.rows.fields import field_columns, source_column
    from mcnet.rows.periods import cut_to_periods

    field, time, value_per_positive = columns.field, columns.time, columns.value_per_positive
    if price is None:
        raise InputError("the replay needs market prices: name the column with --price")
    if worth is None and value_per_positive is None:
        raise InputError("the replay needs a value: what a positive is worth, with --value")
    if worth is not None and value_per_positive is not None:
        raise InputError("--value and --value-per-positive were both given; give the one that is known")
    if method and not fit_on:
        raise InputError("a method is fitted on rows of other auctions than those replayed; name them with --fit-on")
    if fit_on and not method:
        raise InputError("--fit-on has the rows that methods are fitted on; name the methods with --method")
    if columns.every is not None and time is None:
        raise InputError("--every is the length of a period; name the column of timestamps with --time")
    check_rules(auction, budget, price_per, level)
    source = source_of(logs, alone=not fit_on)
    if source.finished:
        raise InputError(f"{logs[0]} was sketched before; a replay needs the price of each row: give the log itself")
    check_output(report, [source], force=force, endings=PAGE)
    loaded = {Path(path).stem: _model(path) for path in model or []}
    if len(loaded) < len(model or []):
        raise InputError("two models have the same file name; give them different ones")
    if taken := {SCORES, TRUTH} & loaded.keys():
        raise InputError(f"{min(taken)!r} is what the replay calls something else; give that model's file another name")
    columns = _remembered(printer, columns, list(loaded.values()))
    spec = source.spec(columns)
    if spec.score is None or spec.label is None:
        raise InputError("name the columns with --score and --label")
    for name in method or []:
        if name in loaded:
            raise InputError(f"a model and a method are both called {name!r}; give the model's file another name")
        loaded[name] = _fitted(printer, name, fit_on or [], spec)
    number = None if worth is None else options.value_number(worth)
    block_rows = int(block) if block is not None and block.isdecimal() else None
    wanted = {"price": price, "value": worth if number is None else None, "truth": truth, "time": time}
    wanted |= {"block": block if block_rows is None else None, "per_positive": value_per_positive}
    wanted |= {"weight": columns.weight}
    roles = {
        "score": spec.score,
        "label": spec.label,
        **{r: name for r, name in wanted.items() if name is not None and r not in _AS_TEXT},
    }
    used: dict[str, str] = {}
    for role, column in roles.items():
        if column in used:
            raise InputError(
                f"the column {column!r} is given as {used[column]} and as {role}; give each its own column"
            )
        used[column] = role
    fields = list(dict.fromkeys([*(field or []), *(f for m in loaded.values() for f in m.needed_fields)]))
    rows = _read(printer, source, spec, {role: name for role, name in wanted.items() if name is not None}, fields)
    scores = rows[spec.score].to_numpy()
    chances: dict[str, Any] = {SCORES: scores_column(scores, score_type=spec.score_type, name=spec.score, clip=False)}
    for name, each in loaded.items():
        inside = {f: rows[source_column(f)] for f in each.needed_fields} or None
        chances[name] = each.predict(scores, field=inside, score_type=spec.score_type)
        if each.provenance.get("rows") == len(rows) and each.provenance.get("positives") == rows[spec.label].sum():
            warn(
                f"{name} was fitted on as many rows with as many positives as this log has: if they are the same, the "
                "replay flatters it; replay rows of other auctions, in a file of their own (--where is for both)"
            )
    periods = None if time is None else cut_to_periods(rows[time], columns.every or DEFAULT_PERIOD)
    edges = read_options().edges  # those of the models
    found = replay(
        chances,
        rows[spec.label],
        rows[price],
        number if worth is None or number is not None else rows[worth],
        value_per_positive=None if value_per_positive is None else rows[value_per_positive],
        price_per=price_per,
        weight=None if columns.weight is None else rows[columns.weight],
        negatives_kept=spec.negatives_kept,
        field=field_columns({f: rows[source_column(f)] for f in field or fields}, edges) if field or fields else None,
        blocks=block_rows if block_rows is not None else rows[block] if block is not None else periods,
        periods=periods,
        auction=auction,  # type: ignore[arg-type]
        budget=budget,
        truth=None if truth is None else rows[truth],
        against=against,
        level=level,
    )
    printer.result(found.to_dict(), str(found))
    if report is not None:
        from mcnet.report.value_page import write_value_page

        with printer.steps("drawing the page"):
            write_value_page(report, found, title=f"Replay of {logs[0]}")
        printer.note(f"report → {report}")


def _model(path: str) -> Any:
    """Return a saved model, or the one that a store serves."""
    from mcnet.store.versions import Registry

    if not is_store(path):
        return load_model(path)
    served = Registry(path, options.head_name()).load()
    read_options().edges.update(served.contexts.edges)  # as load_model does
    return served


def _remembered(printer: Printer, columns: Columns, models: list[Any]) -> Columns:
    """Return the columns and the kind of scores that were given, or that the first model was fitted on."""
    known = models[0].provenance.get("columns", {}) if models else {}
    logits, negatives_kept = columns.logits, columns.negatives_kept
    if logits is None and models:
        logits = models[0].score_type == "logit"
    for each in models:
        negatives_kept = remembered_negatives(printer, each, negatives_kept)
    score, label = columns.score or known.get("score"), columns.label or known.get("label")
    return replace(columns, score=score, label=label, logits=logits, negatives_kept=negatives_kept)


def _fitted(printer: Printer, method: str, logs: list[str], spec: Any) -> Any:
    """Return the model of a method, fitted on other rows."""
    from mcnet.calibrators.methods import calibrator
    from mcnet.rows.spec import RowSpec

    chosen = calibrator(method)
    source = source_of(logs, alone=False)
    fields = spec.fields if chosen.field_use != "none" else ()
    how = RowSpec(fields=fields) if source.finished else replace(spec, fields=fields, value_per_positive=None)
    sketch = source.read(printer, how, title="reading the rows to fit on")
    return chosen.fit_sketch(sketch if fields else sketch.pooled()).model_


def _read(printer: Printer, source: Any, spec: Any, wanted: dict[str, str], fields: list[str]) -> "pl.DataFrame":
    """Return the columns of the log that the replay needs, all rows in memory."""
    import polars as pl

    from mcnet.rows.fields import source_column
    from mcnet.rows.logs import batches, open_log, source_name, unchanged_files

    fields = list(dict.fromkeys(map(source_column, fields)))
    texts = [*fields, *(wanted[role] for role in _AS_TEXT if role in wanted)]
    figures = [spec.score, spec.label, *(wanted[role] for role in wanted if role not in _AS_TEXT)]
    columns = list(dict.fromkeys([*figures, *texts]))
    with unchanged_files(source.paths), printer.progress("reading") as advance:
        frame = open_log(
            source.paths, numbers=figures, texts=fields, periods=[wanted[r] for r in wanted if r == "time"]
        )
        name = source_name(source.names)
        parts = list(batches(frame, columns, source=name, paths=source.paths, progress=advance))
    if not parts or not sum(map(len, parts)):
        raise InputError(f"{name} has no rows; at least one auction is needed")
    return pl.concat(parts)
