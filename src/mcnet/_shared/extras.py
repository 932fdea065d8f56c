"""Libraries that only some parts of mcnet need: one clear message where they are missing."""

from importlib.util import find_spec

from mcnet.errors import NotSupportedError

__all__ = [
    "has_mlflow",
    "has_networks",
    "has_serve",
    "has_spark",
    "install_hint",
    "need_lake",
    "need_mlflow",
    "need_networks",
    "need_serve",
    "need_spark",
]

_NETWORK_LIBRARIES = ("torch", "safetensors")
_LAKE_LIBRARIES = {"delta": ("deltalake",), "iceberg": ("pyiceberg",)}
_SERVE_LIBRARIES = ("granian", "pyarrow")
_SPARK_LIBRARIES = ("pyspark", "pyarrow")
_MLFLOW_LIBRARIES = ("mlflow", "pandas")


def install_hint(extra: str) -> str:
    """Return the command that installs an extra, as messages say it: mcnet is installed from a clone.

    >>> install_hint("serve")
    "in a clone of mcnet: pip install '.[serve]'"
    """
    return f"in a clone of mcnet: pip install '.[{extra}]'"


def has_networks() -> bool:
    """Tell whether the libraries of the extra `networks` are installed."""
    return all(map(_is_installed, _NETWORK_LIBRARIES))


def need_networks(what: str) -> None:
    """Raise NotSupportedError unless the libraries of the extra `networks` are installed.

    Parameters
    ----------
    what : what needs them, as the message names it.
    """
    _need(what, _NETWORK_LIBRARIES, "networks")


def has_serve() -> bool:
    """Tell whether the libraries of the extra `serve` are installed."""
    return all(map(_is_installed, _SERVE_LIBRARIES))


def need_serve() -> None:
    """Raise NotSupportedError unless the libraries of the extra `serve` are installed."""
    _need("the service", _SERVE_LIBRARIES, "serve")


def has_spark() -> bool:
    """Tell whether the libraries of the extra `spark` are installed."""
    return all(map(_is_installed, _SPARK_LIBRARIES))


def need_spark(what: str) -> None:
    """Raise NotSupportedError unless the libraries of the extra `spark` are installed.

    Parameters
    ----------
    what : what needs them, as the message names it.
    """
    _need(what, _SPARK_LIBRARIES, "spark")


def has_mlflow() -> bool:
    """Tell whether the libraries of the extra `mlflow` are installed."""
    return all(map(_is_installed, _MLFLOW_LIBRARIES))


def need_mlflow() -> None:
    """Raise NotSupportedError unless the libraries of the extra `mlflow` are installed."""
    _need("mcnet.mlflow", _MLFLOW_LIBRARIES, "mlflow")


def need_lake(kind: str) -> None:
    """Raise NotSupportedError unless the library of the extra `delta` or `iceberg` is installed."""
    _need(f"a table of {kind.capitalize()}", _LAKE_LIBRARIES[kind], kind)


def _need(what: str, libraries: tuple[str, ...], extra: str) -> None:
    missing = [name for name in libraries if not _is_installed(name)]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise NotSupportedError(
            f"{what} needs {' and '.join(missing)}, which {verb} not installed; {install_hint(extra)}"
        )


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
