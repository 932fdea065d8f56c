"""What every export says about its origin: checksum, method and provenance of the model."""

import json
from typing import Any

from mcnet.curves.model import CalibrationModel
from mcnet.curves.store import model_document
from mcnet.version import __version__

__all__ = ["stamp", "stamp_line"]


def stamp(model: CalibrationModel) -> dict[str, Any]:
    """Return the origin of an export; the checksum is the one in the saved model's file."""
    return {
        "producer": f"mcnet {__version__}",
        "method": model.method,
        "checksum": model_document(model)["checksum"],
        "fields": list(model.fields),
        "curves": len(model.curves),
        "monotone": model.monotone,
        "provenance": model.provenance,
    }


def stamp_line(model: CalibrationModel) -> str:
    """Return the origin as one line of JSON in plain ASCII that cannot end or open a comment of C or SQL."""
    text = json.dumps(stamp(model), ensure_ascii=True, allow_nan=False)
    # JSON reads \/ as a slash, so a field name holding */ stays harmless and readable; a question mark would be half
    # of a trigraph.
    return text.replace("/", "\\/").replace("?", "\\u003f")
