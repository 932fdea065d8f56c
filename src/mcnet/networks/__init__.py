"""Monotone networks and how they are trained, with torch; `MonotonicCalibration` is MCNet as a module of torch."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcnet.networks.module import MonotonicCalibration

__all__ = ["MonotonicCalibration"]


def __getattr__(name: str) -> Any:
    # The package has parts that need NumPy alone, and those must not load torch.
    if name != "MonotonicCalibration":
        raise AttributeError(f"module 'mcnet.networks' has no attribute {name!r}")
    from mcnet._shared.extras import need_networks

    need_networks(name)
    from mcnet.networks.module import MonotonicCalibration

    return MonotonicCalibration
