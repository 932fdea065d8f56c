"""What users call is documented: every parameter, what is returned, and what lies in which file."""

import ast
import dataclasses
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import mcnet

NOT_CALLED = {"CalibrationWarning", "FileFormatError", "InputError", "McnetError", "NotFittedError", "__version__"}
"""Errors are caught, not called."""

_SECTION = r"^{}\n-+\n((?:.+\n?)+)"


def _callables():
    """Yield (name, function or class) of everything public: functions, constructors, methods."""
    for name in mcnet.__all__:
        if name in NOT_CALLED or name == "NotSupportedError":
            continue
        found = getattr(mcnet, name)
        yield name, found
        if inspect.isclass(found):
            for member, value in inspect.getmembers_static(found):
                function = getattr(value, "__func__", value)
                inherited = not str(getattr(function, "__module__", "")).startswith("mcnet.")
                if not member.startswith("_") and inspect.isfunction(function) and not inherited:
                    yield f"{name}.{member}", function


CALLABLES = dict(_callables())


def _sections(text, title):
    return " ".join(re.findall(_SECTION.format(title), inspect.cleandoc(text or "") + "\n", re.MULTILINE))


def _documented(text):
    """Return the names in the section of parameters (of a data class: of attributes)."""
    entries = _sections(text, "Parameters") + _sections(text, "Attributes")
    return {name.strip(" *") for line in re.findall(r"^(\S.*?) : ", entries, re.MULTILINE) for name in line.split(",")}


def _lacking(name, found):
    if inspect.isclass(found):
        if "__init__" not in vars(found) and not dataclasses.is_dataclass(found):
            return set()
        parameters = inspect.signature(found.__init__).parameters
    elif "NoReturn" in str(inspect.signature(found).return_annotation):
        return set()  # it refuses, whatever it is given
    else:
        parameters = inspect.signature(found).parameters
    named = {parameter for parameter in parameters if parameter not in ("self", "cls", "misplaced")}
    told = _documented(found.__doc__)
    if dataclasses.is_dataclass(found):
        # A field may also be explained by the text below it.
        source = inspect.getsource(found)
        told |= {field for field in named if re.search(rf'^    {field}: .*\n    """', source, re.MULTILINE)}
    return named - told


@pytest.mark.parametrize("name", CALLABLES)
def test_every_parameter_is_documented(name):
    assert _lacking(name, CALLABLES[name]) == set()


@pytest.mark.parametrize("name", [name for name, found in CALLABLES.items() if not inspect.isclass(found)])
def test_what_is_returned_is_documented(name):
    function = CALLABLES[name]
    returned = inspect.signature(function).return_annotation
    if returned in (None, "None") or "NoReturn" in str(returned):
        return
    if (function.__doc__ or "").startswith(("Return ", "Yield ", "Tell ")):  # the first line says it
        return
    assert _sections(function.__doc__, "Returns") or _sections(function.__doc__, "Yields")


@pytest.mark.parametrize("name", [name for name, found in CALLABLES.items() if not inspect.isclass(found)])
def test_docstrings_of_functions_are_imperative(name):
    first = (CALLABLES[name].__doc__ or "").split()[0]
    assert not first.endswith("s") or first in ("Pass", "Address", "Process", "Guess", "Express"), first


SOURCES = Path(mcnet.__file__).parent
PACKAGES = [path.parent for path in SOURCES.rglob("__init__.py")] + [Path(__file__).parents[1] / "reproduction"]


@pytest.mark.parametrize("folder", sorted(set(PACKAGES) - {SOURCES}), ids=lambda folder: folder.name)
def test_a_package_says_what_lies_in_which_file(folder):
    modules = {found.name for found in pkgutil.iter_modules([str(folder)]) if not found.name.startswith("__")}
    # Read, not imported: a package such as mcnet.spark is refused where its engine is not installed.
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert modules - set(re.findall(r"`(\w+)`", docstring)) == set()
