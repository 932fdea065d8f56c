"""Post-hoc calibration of ranking scores: monotone, field-aware, fitted on a sketch of any number of rows."""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any


def _modules_by_name() -> dict[str, str]:
    """Return the module that each public name lives in, as the stub beside this file lists them."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [statement for statement in stub.body if isinstance(statement, ast.ImportFrom)]
    return {alias.name: str(statement.module) for statement in imports for alias in statement.names}


# Names are imported when first asked for: `import mcnet` is instant, and serving a saved model never loads what only
# fitting needs.
_MODULES = _modules_by_name()
__all__ = sorted(_MODULES)  # noqa: PLE0605 (the stub has the names)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mcnet' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
