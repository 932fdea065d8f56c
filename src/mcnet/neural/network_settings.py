"""The settings of MCNet's networks, checked: their shape, their training, where they are trained."""

from typing import Any

from mcnet.errors import InputError
from mcnet.networks.setting_checks import (
    check_choices,
    check_count,
    check_device,
    check_rate,
    check_seed,
    check_switch,
    check_widths,
)

__all__ = ["check_network"]

_CHOICES = ("derivative", "space", "lower", "training")
_COUNTS = ("embedding", "epochs", "batch")
_SWITCHES = ("field_aware", "guarantee", "warm_start", "share_embedding", "scale")


def check_network(calibrator: Any) -> None:
    """Raise InputError if a setting of MCNet's networks cannot be used."""
    check_choices(**{name: getattr(calibrator, name) for name in _CHOICES})
    for name in _SWITCHES:
        check_switch(name, getattr(calibrator, name))
    for name in _COUNTS:
        check_count(name, getattr(calibrator, name))
    if calibrator.steps is not None:
        check_count("steps", calibrator.steps)
    check_widths("hidden", calibrator.hidden)
    if calibrator.learning_rate is not None:
        check_rate("learning_rate", calibrator.learning_rate, above_zero=True)
    check_rate("weight_decay", calibrator.weight_decay)
    check_seed(calibrator.seed)
    if calibrator.progress is not None and not callable(calibrator.progress):
        raise InputError(f"progress is {calibrator.progress!r}; it must be a function of (steps done, steps, loss)")
    check_device(calibrator.device)
    if not calibrator.scale and calibrator.training == "sketch":
        raise InputError(
            "scale=False leaves out the scale of each bin, which training on a sketch solves for; "
            "use training='rows', or leave scale=True"
        )
