"""Model files of schema version 1, in which the history of the fit told how to serve."""

from typing import Any

__all__ = ["upgraded"]


def upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document of version 1 as one of version 2."""
    history = document["provenance"]
    return document | {
        "schema": 2,
        "score_type": history.get("columns", {}).get("score_type", "probability"),
        "total_weight": history.get("weight", 0.0),
        "balanced_by": history.get("balanced_by", []),
        "isotonic_share": history.get("isotonic_share", 0.0),
    }
