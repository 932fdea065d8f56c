"""Monotone networks and how they are trained, with torch; `MonotonicCalibration` is MCNet as a module of torch.

- `module`: MCNet inside your own training loop.
- The networks: `monotone` (a bank of monotone functions), `quadrature` (their integrals, Clenshaw–Curtis and
  Gauss–Legendre), `adaptive` (AdaCalib), `statistics` (what AdaCalib observes), `line_function` (NeuCalib's line
  plot), `auxiliary` (a network on features).
- Training on a sketch: `bank`, `objective`, `optimise`, `chain_newton`, `training_points`.
- Training on rows: `training`, `losses`, `bank_of_contexts`, `literal` (as published), `shared_nodes` (the
  same with integrals that share their nodes), `joint` (beside an auxiliary network).
- `compiled_curves`: from a trained function to curves. `setting_checks`, `row_checks`: settings and rows
  refused in words. `devices`: what torch can use here.
"""

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
