"""Monotone networks and how they are trained; `MonotonicCalibration` is MCNet as a module of torch.

- The calibrators: `mcnet` (as published), `baselines` (NeuCalib, AdaCalib), `with_features` (a network on features
  beside a calibrator), `calibrator` (what they share). `module`: MCNet inside your own training loop.
- The networks: `kinds` (the monotone networks that a bin can have), `monotone` (a bank of them, and their integrals,
  Clenshaw–Curtis and Gauss–Legendre), `adaptive` (AdaCalib).
- Training: `bank` (on a sketch, and on rows as published), `objective`, `optimise`, `training_points` (what networks
  are given: cells of a sketch, features of rows), `training` (on rows, and an auxiliary network).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcnet.networks.module import MonotonicCalibration

__all__ = ["MonotonicCalibration"]


def __getattr__(name: str) -> Any:
    # The package has parts that need NumPy alone, and those must not load torch.
    if name != "MonotonicCalibration":
        raise AttributeError(f"module 'mcnet.networks' has no attribute {name!r}")
    from mcnet._shared.messages import need_extra

    need_extra("networks", name)
    from mcnet.networks.module import MonotonicCalibration

    return MonotonicCalibration
