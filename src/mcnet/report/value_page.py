"""The page of a replay: its table, surplus against a bid multiplier, and money per field value."""

from os import PathLike
from pathlib import Path

from mcnet._shared.messages import amount, count, signed_amount
from mcnet.auctions import Replay
from mcnet.report.page import figures_alone, write_page


def write_value_page(path: str | PathLike[str], found: Replay, *, title: str | None = None) -> Path:
    """Write a replay of auctions as one self-contained HTML page.

    Parameters
    ----------
    path : the file to write; it appears complete or not at all.
    found : what `mcnet.replay` returned.
    title : the heading of the page.

    Returns
    -------
    path : the file written.
    """
    figures = found.figures()
    lines = []
    for name, outcome in found.outcomes.items():
        gap = found.differences[name]
        known = "" if gap.low != gap.low else f"{signed_amount(gap.low)} … {signed_amount(gap.high)}"
        beside = ("–", "") if name == found.against else (signed_amount(gap.value), known)
        won = count(outcome.won), amount(outcome.spend), count(outcome.positives), amount(outcome.surplus)
        lines.append((name, *won, amount(outcome.returned), amount(outcome.cost_per_positive), beside))
    return write_page(
        path,
        "value_page.html.j2",
        data=figures_alone(found.against, figures),
        title=title or "Replay of auctions",
        against=found.against,
        level=f"{100 * found.level:g}\N{NO-BREAK SPACE}%",
        rows=count(float(found.auctions.weight.sum())),
        auction=found.auctions.auction,
        budget=None if found.auctions.budget is None else amount(found.auctions.budget),
        field=next(iter(found.fields), None) if "values" in figures else None,
        warning=None if found.won_check is None else found.won_check.warning,
        lines=lines,
    )
