"""`mcnet methods`: list the methods."""

from typing import Any

from mcnet.cli import options
from mcnet.cli.printing import Printer, table

__all__ = ["TWO_MCNETS", "methods"]


TWO_MCNETS = (
    "mcnet-bayes, the default of mcnet fit, is this project's own model: a few numbers per field value under priors\n"
    "whose strengths are learnt (empirical Bayes). It fits in seconds, needs few rows per value, and has intervals.\n"
    "mcnet is the published model (WWW 2025): one monotone neural network per score bin. It takes longer and needs\n"
    "the extra networks. Take it to reproduce or extend the paper, mcnet-bayes otherwise.\n"
    "mcnet-none is mcnet without the field, one curve for all rows; a comparison has both."
)
"""What the two MCNets are, how they differ, and when to take which."""


def methods(json: options.Json = False, quiet: options.Quiet = False) -> None:
    """List the methods, simplest first.

    \b
    Example:
      mcnet methods
    """
    from mcnet.calibrators.registry import methods as names

    uses = {"none": "no", "optional": "if given", "required": "needed", "unknown": "?"}
    entries = [_entry(name) for name in names()]
    lines = [
        (e["method"], uses[e["field"]], {True: "yes", False: "no", None: "?"}[e["keeps_order"]], e["summary"])
        for e in entries
    ]
    headings = ("method", "field", "keeps order", "what it is")
    Printer(json, quiet).result({"methods": entries}, table(headings, lines, left=4), f"\n{TWO_MCNETS}")


def _entry(name: str) -> dict[str, Any]:
    """Return what is known of a method; where a library that it needs is missing, how to install it."""
    from mcnet.calibrators.registry import calibrator
    from mcnet.errors import NotSupportedError

    try:
        made = calibrator(name)
    except NotSupportedError as error:
        return {"method": name, "field": "unknown", "keeps_order": None, "parameters": {}, "summary": str(error)}
    return {
        "method": name,
        "field": made.field_use,
        "keeps_order": bool(made.monotone),
        "parameters": made._plain_parameters(),
        "summary": (type(made).__doc__ or "").strip().splitlines()[0],
    }
