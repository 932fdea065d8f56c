"""Learn from a journal: only the new periods if nothing else changed, otherwise all periods in order."""

import hashlib
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence

from mcnet._shared.messages import warn
from mcnet.errors import CalibrationWarning, InputError
from mcnet.rows.periods import periods_between, sorted_periods
from mcnet.store.journal import Journal
from mcnet.tracking.learner import Learner

# Periods that compacting has merged into longer ones, beside shorter periods in the same journal.


def warn_of_merged_periods(journal: Journal, *, stacklevel: int = 2) -> None:
    """Warn if a journal has periods of several lengths: each is taken for one period that begins where it is named."""
    merged = journal.merged_periods()
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


# Learn from a journal: only the new periods if nothing else changed, otherwise all periods in order.


def follow_journal(journal: Journal, learner: Learner, afresh: Callable[[], Learner]) -> Learner:
    """Return a learner that knows every period of a journal, as if they had been learnt in their order.

    What was learnt so far is known by a digest that each period continues, so that it is found out whether the periods
    learnt are still the same ones in the journal. If so, only those after them are read; otherwise all are, unless the
    journal lacks periods that were learnt: these would be forgotten.
    """
    journal = journal.snapshot()  # others may add to it meanwhile
    warn_of_merged_periods(journal, stacklevel=3)
    digests = past_digests(journal)
    periods = list(digests)
    known = 0
    if learner.journal_digest is not None and learner.clock.last in digests:
        place = periods.index(learner.clock.last)
        known = place + 1 if digests[learner.clock.last] == learner.journal_digest else 0
    if known == 0 and learner.learnt:
        _refuse_to_forget(learner, journal, periods)
        learner = afresh()
    released = journal.released
    for period, sketch in journal.sketches(since=periods[known]) if known < len(periods) else ():
        learner.clock.check(period)
        suspect = learner.learn(sketch, period, look=period not in released)
        if suspect is not None:
            warn(f"{learner.look.told(suspect)}; Journal.release learns it all the same")
        learner.journal_digest = digests[period]
    return learner


def _refuse_to_forget(learner: Learner, journal: Journal, periods: Sequence[str]) -> None:
    """Refuse a journal that has fewer periods until the last one learnt than were learnt."""
    last = learner.clock.last
    anew = "to start anew from this journal alone, make a tracker with Tracker.from_journal(journal)"
    if last is None:
        raise InputError(
            f"this tracker has learnt {learner.learnt:,} periods without names, so they cannot be found in the journal "
            f"{journal.path}; {anew}"
        )
    there = len(periods_between(periods, None, last)) if periods else 0
    if there < learner.learnt:
        raise InputError(
            f"this tracker has learnt {learner.learnt:,} periods until {last}, but the journal {journal.path} has "
            f"{there:,} until then: following it would forget the others; is it the right journal? If periods were "
            f"removed from it or merged: {anew}"
        )


def past_digests(journal: Journal) -> dict[str, str]:
    """Return, for each period in order, a digest of the rows of this and all earlier periods.

    Where positives are still missing, it is also one of the share that is believed to have arrived.
    """
    found: dict[str, list[str]] = defaultdict(list)
    arrival = journal.arrival()
    for period in journal.released:
        found[period].append("released")
    for entry in journal.entries():
        arrived = (1.0, 0.0) if arrival is None else arrival.at(entry.age)
        found[entry.period].append(entry.digest if arrived[0] == 1.0 else f"{entry.digest} {arrived}")
    result, before = {}, ""
    for period in sorted_periods(list(found)):
        text = "\n".join([before, period, *sorted(found[period])])
        result[period] = before = hashlib.sha256(text.encode()).hexdigest()
    return result
