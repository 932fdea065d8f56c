"""The state of `mcnet monitor`: the evidence, its model and its options in one file, which `Monitor.load` can read."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcnet.errors import InputError

if TYPE_CHECKING:
    from mcnet.model.model import CalibrationModel
    from mcnet.tracking.monitor import Monitor

__all__ = ["Watch", "continued", "save_monitor_state"]

_KEY = "watch"


@dataclass(frozen=True)
class Watch:
    """What evidence is collected about, and how; None is what the command line has left open."""

    model: str | None
    """The checksum of the model; None for the scores themselves."""
    alpha: float | None = None
    period_effects: float | str | None = None
    since: str | None = None
    reference_until: str | None = None

    @staticmethod
    def of(
        model: "CalibrationModel | None",
        alpha: float | None,
        period_effects: str | None,
        since: str | None,
        reference_until: str | None,
    ) -> "Watch":
        """Return what was asked for, in one form."""
        from mcnet.model.file import model_document
        from mcnet.tracking.period import period_text

        try:
            effects = period_effects if period_effects in (None, "learn") else float(str(period_effects))
        except ValueError:
            raise InputError(f"--period-effects {period_effects!r} is neither learn nor a number of logits") from None
        ends = (None if end is None else period_text(end) for end in (since, reference_until))
        return Watch(None if model is None else model_document(model)["checksum"], alpha, effects, *ends)


def continued(state: str, asked: Watch) -> tuple["Monitor", Watch]:
    """Return the monitor of a state and what it watches; refuse another model, and options that differ."""
    from mcnet.tracking.monitor import Monitor

    loaded = Monitor.load(state)
    kept = json.loads(Path(state).read_text(encoding="utf-8")).get(_KEY)
    # A state that was saved in Python tells nothing of its model; from now on it does.
    known = asked if kept is None else Watch(**kept)
    known = replace(known, alpha=loaded.alpha, period_effects=loaded.period_effects)
    if asked.model != known.model:
        which = "the scores themselves" if known.model is None else "another model"
        raise InputError(
            f"{state} has evidence on {which}, which cannot be added to that on "
            f"{'the scores themselves' if asked.model is None else 'this model'}; start a new state: name another file"
        )
    for name in ("alpha", "period_effects", "since", "reference_until"):
        given, before = getattr(asked, name), getattr(known, name)
        if given is not None and given != before:
            option = "--" + name.replace("_", "-")
            begun_with = (
                "no " + option
                if before is None
                else f"{option} {before:g}"
                if name == "alpha"
                else f"{option} {before}"
            )
            raise InputError(
                f"{state} was begun with {begun_with}, which cannot change later; leave {option} out, or start a "
                "new state: name another file"
            )
    return loaded, known


def save_monitor_state(state: str, watching: "Monitor", watch: Watch) -> None:
    """Write the evidence and what it is about, whole or not at all."""
    from mcnet._shared.json_files import checksum, write_json

    document: dict[str, Any] = watching.document() | {_KEY: asdict(watch)}
    write_json(state, {**document, "checksum": checksum(document)})
