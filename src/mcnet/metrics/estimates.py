"""The estimates of an evaluation, each computed when it is first asked for."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from math import isfinite
from typing import Any

from mcnet.metrics.estimate import Estimate
from mcnet.metrics.judged_rows import JudgedSums
from mcnet.metrics.registry import METRICS, find_metric

__all__ = ["Estimates"]


class Estimates(Mapping[str, Estimate]):
    """Metrics by name (or label, in any spelling), computed from the judged rows when first asked for.

    Those that `shared` has are taken from there.
    """

    def __init__(
        self, judged: JudgedSums, names: Iterable[str], *, shared: Mapping[str, Estimate] | None = None
    ) -> None:
        """Remember the rows and which metrics there are."""
        self._judged: JudgedSums | None = judged
        self._shared = shared or {}
        self._found: dict[str, Estimate | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> Estimate:
        known = name if name in self._found else find_metric(name).name
        found = self._found[known]
        if found is None:
            found = self._shared[known] if known in self._shared else METRICS[known].function(self._judged)
            self._found[known] = found
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def compute_all(self) -> None:
        """Compute what has not been asked for yet, and release the rows."""
        for name in self:
            self[name]
        self._judged = None

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return the estimates as plain numbers and text, with None for what is undefined or infinite."""
        return {
            name: {
                "label": METRICS[name].label,
                "better": METRICS[name].better,
                **{key: _finite(value) for key, value in asdict(found).items()},
            }
            for name, found in self.items()
        }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value
