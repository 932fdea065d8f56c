"""The targets of exports: each is one module of this package with a `TARGET`, found here."""

import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import mcnet.export

__all__ = ["Target", "targets"]


@dataclass(frozen=True)
class Target:
    """What a model can be exported to."""

    name: str
    """What users call it: `to=` of export_model."""
    suffixes: tuple[str, ...]
    """The endings of file names that mean this target, the usual one first."""
    write: Callable[..., None]
    """Takes the model, the path, and the target's own options as keywords."""

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of the target and their defaults."""
        parameters = inspect.signature(self.write).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def targets() -> dict[str, Target]:
    """Return the targets by name, as the modules of this package define them.

    >>> sorted(targets())
    ['c', 'onnx', 'sql', 'table']
    """
    names = [module.name for module in pkgutil.iter_modules(mcnet.export.__path__)]
    modules = [import_module(f"mcnet.export.{name}") for name in names if name not in _WITHOUT_TARGETS]
    found = [module.TARGET for module in modules if isinstance(getattr(module, "TARGET", None), Target)]
    return {target.name: target for target in found}


_WITHOUT_TARGETS = ("onnx_graph",)
"""A module that cannot be imported without the package onnx."""
