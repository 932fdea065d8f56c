"""Post-hoc calibration of ranking scores: monotone, field-aware, fitted on a sketch of any number of rows."""

from importlib import import_module


def _modules_by_name() -> dict[str, str]:
    """Return the module that each public name lives in, as the stub beside this file lists them."""
    with open(f"{__file__.removesuffix('.py')}.pyi", encoding="utf-8") as stub:
        statements = stub.read().split("\nfrom ")[1:]  # a parser would take longer to import than all the rest
    modules = {}
    for statement in statements:
        module, _, names = statement.partition(" import ")
        listed = names[1 : names.index(")")] if names.startswith("(") else names.partition("\n")[0]
        modules |= {name.strip(): module for name in listed.split(",") if name.strip()}
    return modules


# Names and sub-packages are imported when first asked for: `import mcnet` is instant, and serving a saved model never
# loads what only fitting needs.
_MODULES = _modules_by_name()
__all__ = sorted(_MODULES)  # noqa: PLE0605 (the stub has the names)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        return _subpackage(name)
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def _subpackage(name: str) -> object:
    """Return `mcnet.spark` and other packages and modules of mcnet; if one lacks its extra, its own error says so."""
    if name.isidentifier() and not name.startswith("_"):
        try:
            return import_module(f"mcnet.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"mcnet.{name}":  # it is there, and what it imports is not
                raise
    raise AttributeError(f"module 'mcnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
