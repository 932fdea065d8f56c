"""The origin of an export: checksum, method and provenance of the model, and what was left out."""

import json
from typing import Any

from mcnet._shared.typing import ScoreType
from mcnet.export.contents import Exported
from mcnet.model.file import model_document
from mcnet.model.model import CalibrationModel
from mcnet.version import __version__

__all__ = ["stamp", "stamp_line"]


def stamp(model: CalibrationModel, exported: Exported, score_type: ScoreType | None = None) -> dict[str, Any]:
    """Return the origin of an export; the checksum is the one in the saved model's file."""
    origin = {
        "producer": f"mcnet {__version__}",
        "method": model.method,
        "checksum": model_document(model)["checksum"],
        "fields": list(model.fields),
        "curves": len(exported.curves),
        "monotone": model.monotone,
        "score_type": score_type or model.score_type,
        "provenance": model.provenance,
    }
    if exported.added:
        origin["compiled_for_export"] = {"curves": exported.added, "relative_error": exported.error}
    if model.without_features:
        origin["left_out"] = "the network on features: these are the curves that serve rows without features"
    return origin


def stamp_line(origin: dict[str, Any]) -> str:
    """Return the origin as one line of JSON in plain ASCII that cannot end or open a comment of C or SQL."""
    text = json.dumps(origin, ensure_ascii=True, allow_nan=False)
    # Written by its number, a slash is neither half of a comment's mark; a question mark would be half of a trigraph.
    return text.replace("/", "\\u002f").replace("?", "\\u003f")
