"""Periods that compacting has merged into longer ones, beside shorter periods in the same journal."""

import warnings
from bisect import bisect_right
from collections import defaultdict

from mcnet.errors import CalibrationWarning
from mcnet.tracking.journal import Journal
from mcnet.tracking.journal_entries import COMPACTED
from mcnet.tracking.period import sorted_periods

__all__ = ["merged_periods", "warn_of_merged_periods"]


def merged_periods(journal: Journal) -> dict[str, int]:
    """Return how many periods each period was merged of, for those that were merged of several."""
    found: dict[str, set[str]] = defaultdict(set)
    for batch in journal.batches():
        longer = sorted_periods([entry.period for entry in batch.entries if batch.compacted])
        short = sorted_periods(list({period for source, period, *_ in batch.includes if source != COMPACTED}))
        order = {period: place for place, period in enumerate(sorted_periods(list({*longer, *short})))}
        begins = [order[period] for period in longer]
        for period in short:
            found[longer[bisect_right(begins, order[period]) - 1]].add(period)
    there = set(journal.periods)
    return {period: len(parts) for period, parts in found.items() if len(parts) > 1 and period in there}


def warn_of_merged_periods(journal: Journal, *, stacklevel: int = 2) -> None:
    """Warn if a journal has periods of several lengths: each is taken for one period that begins where it is named."""
    merged = merged_periods(journal)
    others = len(journal.periods) - len(merged)
    if merged and others:
        first = sorted_periods(list(merged))[0]
        warnings.warn(
            f"{len(merged):,} periods of {journal.path} are compacted from shorter ones ({first} from {merged[first]}) "
            f"and {others:,} are not; each counts as one period, so how much periods differ is learnt wrongly: compact "
            "all of them alike, or begin after the compacted ones",
            CalibrationWarning,
            stacklevel=stacklevel + 1,
        )
