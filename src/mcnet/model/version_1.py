"""Model files of schema version 1, in which the history of the fit decided how to serve."""

from typing import Any

from mcnet.errors import InputError

__all__ = ["upgraded"]


def upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document of version 1 as one of version 2."""
    history = document.get("provenance")
    if not isinstance(history, dict):
        raise InputError(f"the provenance is {type(history).__name__}, not an object")
    columns = history.get("columns")
    return document | {
        "schema": 2,
        "score_type": columns.get("score_type", "probability") if isinstance(columns, dict) else "probability",
        "total_weight": history.get("weight", 0.0),
        "balanced_by": history.get("balanced_by", []),
        "isotonic_share": history.get("isotonic_share", 0.0),
    }
