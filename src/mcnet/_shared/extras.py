"""Libraries that only some parts of mcnet need: one clear message where they are missing."""

from importlib.util import find_spec

from mcnet.errors import NotSupportedError

__all__ = ["has_networks", "need_networks"]

_NETWORK_LIBRARIES = ("torch", "safetensors")


def has_networks() -> bool:
    """Tell whether the libraries of the extra `networks` are installed."""
    return all(map(_is_installed, _NETWORK_LIBRARIES))


def need_networks(what: str) -> None:
    """Raise NotSupportedError unless the libraries of the extra `networks` are installed.

    Parameters
    ----------
    what : what needs them, as the message names it.
    """
    missing = [name for name in _NETWORK_LIBRARIES if not _is_installed(name)]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise NotSupportedError(
            f"{what} needs {' and '.join(missing)}, which {verb} not installed: pip install 'mcnet[networks]'"
        )


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
