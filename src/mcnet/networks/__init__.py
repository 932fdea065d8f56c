"""Monotone networks and how they are trained; `MonotonicCalibration` is MCNet as a module of torch.

- The calibrators: `mcnet` (as published), `baselines` (NeuCalib, AdaCalib), `with_features` (a network on features
  beside a calibrator), `calibrator` (what they share). `module`: MCNet inside your own training loop.
- The networks: `kinds` (the monotone networks that a bin can have), `monotone` (a bank of them, and their integrals,
  Clenshaw–Curtis and Gauss–Legendre), `adaptive` (AdaCalib).
- Training on a sketch: `bank`, `objective`, `optimise`, `training_points`. Training on rows: `training` (and an
  auxiliary network), `literal` (as published).
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
