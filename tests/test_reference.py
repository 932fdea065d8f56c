"""The reference page has every public name, and its helpers do what they say."""

import doctest
import importlib.util
from pathlib import Path

import pytest

import mcnet
from mcnet import errors

DOCS = Path(__file__).parent.parent / "docs"


def test_every_public_name_is_in_the_reference():
    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    shown = set(errors.__all__) if "::: mcnet.errors" in page else set()
    lacking = [name for name in mcnet.__all__ if f"::: mcnet.{name}\n" not in page and name not in shown]
    assert lacking == ["__version__"]


@pytest.mark.parametrize("name", ["docstrings", "fences"])
def test_the_helpers_of_the_site(name):
    if name == "docstrings":
        pytest.importorskip("griffe", reason="griffe is not installed: pip install griffelib")
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0
