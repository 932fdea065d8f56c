"""The registry: methods are found by being there, in the order of their complexity, with or without their libraries."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import mcnet
import mcnet.calibrators
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.methods import calibrator_class

NEW_METHOD = '''
"""A method in a file of its own."""

from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.base import constant_rate
from mcnet.curves.curves import Curves


class Rate(Calibrator):
    """The rate of all rows, whatever the score."""

    method = "rate"
    complexity = 5

    def _fit_curves(self, sketch):
        return Curves.constant(constant_rate(sketch), 1)


class Helper(Calibrator):
    """Not a method: it states no complexity."""

    method = "helper"
'''


@pytest.fixture
def new_method(tmp_path, monkeypatch):
    """Add a file to the package of calibrators, as if it had been written there."""
    (tmp_path / "rate_of_all.py").write_text(NEW_METHOD, encoding="utf-8")
    monkeypatch.setattr(mcnet.calibrators, "__path__", [*mcnet.calibrators.__path__, str(tmp_path)])
    yield tmp_path
    sys.modules.pop("mcnet.calibrators.rate_of_all", None)


def test_a_new_method_is_one_file(new_method):
    assert mcnet.methods()[:3] == ["base", "rate", "histogram"]
    fitted = mcnet.calibrator("rate").fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 0])
    assert fitted.predict_one(0.7) == 0.25
    assert "helper" not in mcnet.methods()


def test_its_complexity_decides_what_select_takes(new_method):
    rng = np.random.default_rng(0)
    # The scores say nothing, so that the rate of all rows is as good as any method, and simpler.
    sketch = mcnet.Sketch.from_rows(rng.uniform(0.2, 0.4, 4_000), rng.random(4_000) < 0.3)
    assert mcnet.select(sketch, methods=["platt", "rate", "isotonic"]).chosen.method == "rate"


def test_two_methods_of_one_name_are_refused(new_method):
    (new_method / "twin.py").write_text(NEW_METHOD, encoding="utf-8")
    with pytest.raises(mcnet.InputError, match="both have a method 'rate'; rename one"):
        mcnet.methods()
    (new_method / "twin.py").unlink()


def test_every_method_is_a_calibrator_with_its_own_place():
    places = [calibrator_class(name).complexity for name in mcnet.methods()]
    assert places == sorted(set(places))
    for name in mcnet.methods():
        assert issubclass(calibrator_class(name), Calibrator)
        assert calibrator_class(name).method == name


def test_methods_are_listed_without_importing_them():
    code = """
    import sys, mcnet
    assert "mcnet" in mcnet.methods()
    print([name for name in ("torch", "mcnet.networks.mcnet", "mcnet.calibrators.binning") if name in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_method_whose_library_is_missing_is_known_and_says_what_to_install(new_method):
    source = NEW_METHOD.replace("from mcnet.curves", "import torch.not_there\nfrom mcnet.curves")
    (new_method / "rate_of_all.py").write_text(source.replace('"rate"', '"network"'), encoding="utf-8")
    assert "network" in mcnet.methods()
    with pytest.raises(mcnet.NotSupportedError, match=r"network needs torch.*pip install '\.\[networks\]'"):
        mcnet.calibrator("network")


def test_names_of_a_comparison_can_be_asked_for(monkeypatch):
    with_parameters = {"three-bins": ("histogram", {"bins": 3})}
    monkeypatch.setattr("mcnet.calibrators.methods.VARIANTS", with_parameters)
    assert mcnet.calibrator("three-bins").get_params()["bins"] == 3
    assert mcnet.calibrator("three-bins", prior=2.0).get_params() == {"bins": 3, "prior": 2.0}
    rng = np.random.default_rng(0)
    scores = rng.uniform(0.05, 0.5, 500)
    found = mcnet.select(scores, rng.random(500) < scores, methods=["histogram", "three-bins"])
    assert {result.method for result in found.results} == {"histogram", "three-bins"}
    with pytest.raises(mcnet.InputError, match="three-bins is the method histogram with bins=3"):
        mcnet.Tracker(method="three-bins")


@pytest.mark.networks
def test_mcnet_without_the_field_has_a_name_of_its_own():
    assert mcnet.calibrator("mcnet-none").get_params()["field_aware"] is False
