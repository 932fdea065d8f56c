"""`mcnet methods`: what there is to choose from."""

from mcnet.cli import options
from mcnet.cli.printing import Printer, table

__all__ = ["methods"]


def methods(json: options.Json = False, quiet: options.Quiet = False) -> None:
    """List the methods, simplest first.

    \b
    Example:
      mcnet methods
    """
    from mcnet.calibrators.registry import calibrator
    from mcnet.calibrators.registry import methods as names

    uses = {"none": "no", "optional": "if given", "required": "needed"}
    known = [calibrator(name) for name in names()]
    entries = [
        {
            "method": entry.method,
            "field": entry.field_use,
            "keeps_order": bool(entry.monotone),
            "parameters": entry._plain_parameters(),
            "summary": (type(entry).__doc__ or "").strip().splitlines()[0],
        }
        for entry in known
    ]
    lines = [
        (str(e["method"]), uses[str(e["field"])], "yes" if e["keeps_order"] else "no", str(e["summary"]))
        for e in entries
    ]
    Printer(json, quiet).result(
        {"methods": entries}, table(("method", "field", "keeps order", "what it is"), lines, left=4)
    )
