"""The whole study: every table and figure by its name, and the page that leads to them."""

import os
import platform
import time
from collections.abc import Callable, Sequence
from datetime import date
from importlib import import_module
from pathlib import Path

from mcnet._shared.files import whole_file
from mcnet.errors import InputError
from mcnet.version import __version__
from reproduction.pages import Page, write_page
from reproduction.settings import Settings

__all__ = ["STUDIES", "run_studies"]

STUDIES = (
    "datasets",
    "performance",
    "headline",
    "sir",
    "networks",
    "auxiliary",
    "features",
    "balance",
    "efficiency",
    "curves",
    "sensitivity",
    "overfitting",
    "expressiveness",
)

_NEED_FEATURES = ("auxiliary", "features", "overfitting")
_MODULES = {"features": "auxiliary"}


def run_studies(names: Sequence[str], settings: Settings) -> dict[str, Path]:
    """Run studies one after the other; each is written as soon as it is done, then the index of all."""
    for name in names:
        if name not in STUDIES:
            raise InputError(f"there is no study {name!r}; there are {', '.join(STUDIES)}")
    seconds: dict[str, float] = {}
    written: dict[str, Path] = {}
    skipped: dict[str, str] = {}
    mark = settings.mark()
    for name in names:
        kept = settings.out / f"{name}.md"
        if settings.resume and kept.exists() and mark in kept.read_text(encoding="utf-8"):
            settings.tell(f"{name}: {kept} is there, made of the same rows and settings, and was not made again")
            written[name] = kept
            continue
        start = time.perf_counter()
        try:
            page = _study(name)(settings)
        except InputError as error:
            # A file of scores has no features; what needs them is left out, and the index says so.
            if len(names) == 1 or name not in _NEED_FEATURES:
                raise
            skipped[name] = str(error)
            continue
        written[name] = write_page(page, settings.out, f"{settings.sentence()} {_circumstances()}", mark)
        seconds[name] = time.perf_counter() - start
    if len(names) > 1:
        written["index"] = _write_index(written, seconds, skipped, settings)
    return written


def _circumstances() -> str:
    """Return when and on what a study ran."""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    machine = f"{platform.machine()}, {os.cpu_count()} cores{load}, Python {platform.python_version()}"
    return f"Run on {date.today():%d %B %Y} ({machine}, mcnet {__version__})."


def _study(name: str) -> Callable[[Settings], Page]:
    found: Callable[[Settings], Page] = getattr(import_module(f"reproduction.{_MODULES.get(name, name)}"), name)
    return found


def _write_index(
    written: dict[str, Path], seconds: dict[str, float], skipped: dict[str, str], settings: Settings
) -> Path:
    """Write what every page says first, those included that were there already."""
    text = ["# The MCNet paper, run again", settings.sentence()]
    for name, path in written.items():
        title, _, claim, found, listed, *_ = path.read_text(encoding="utf-8").split("\n\n")
        took = f" ({seconds[name]:.0f} s)" if name in seconds else ""
        text += [f"## [{title.removeprefix('# ')}]({path.name}){took}", claim, found]
        text += [listed] if listed.startswith("- ") else []
    text += [f"## {name}\n\nNot run: {reason}" for name, reason in skipped.items()]
    path = settings.out / "index.md"
    with whole_file(path) as part:
        part.write_text("\n\n".join(text) + "\n", encoding="utf-8")
    return path
