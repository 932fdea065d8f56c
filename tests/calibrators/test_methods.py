"""The registry: methods by name, in the order of their complexity, with or without their libraries."""

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import mcnet
from mcnet._shared.arrays import PROBABILITY_FLOOR, SCORE_FLOOR
from mcnet.calibrators import methods as registry
from mcnet.calibrators import parametric
from mcnet.calibrators.base import Calibrator, constant_rate
from mcnet.calibrators.methods import calibrator_class
from mcnet.curves.curves import Curves
from mcnet.metrics.scores import CLIP


class Rate(Calibrator):
    """The rate of all rows, whatever the score."""

    method = "rate"
    complexity = 5

    def _fit_curves(self, sketch):
        return Curves.constant(constant_rate(sketch), 1)


@pytest.fixture
def new_method(monkeypatch):
    """Add a method for the time of a test."""
    monkeypatch.setattr(registry, "_ADDED", {})
    assert registry.add_method(Rate) is Rate


def test_a_method_of_ones_own_can_be_named_everywhere(new_method):
    assert mcnet.methods()[:3] == ["base", "rate", "offset"]
    fitted = mcnet.calibrator("rate").fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 0])
    assert fitted.predict_one(0.7) == 0.25
    assert registry.default_parameters("rate") == {}
    registry.add_method(Rate)  # as when a notebook runs a cell again


def test_its_complexity_decides_what_select_takes(new_method):
    rng = np.random.default_rng(0)
    # The scores say nothing, so that the rate of all rows is as good as any method, and simpler.
    sketch = mcnet.Sketch.from_rows(rng.uniform(0.2, 0.4, 4_000), rng.random(4_000) < 0.3)
    assert mcnet.select(sketch, methods=["platt", "rate", "isotonic"]).chosen.method == "rate"


def test_what_cannot_be_a_method_is_refused(new_method):
    class Twin(Rate):
        method = "rate"
        complexity = 7

    class Platt(Rate):
        method = "platt"
        complexity = 7

    class Nameless(Rate):
        complexity = 7

    with pytest.raises(mcnet.InputError, match="there is a method 'rate' already; give Twin another name"):
        registry.add_method(Twin)
    with pytest.raises(mcnet.InputError, match="there is a method 'platt' already"):
        registry.add_method(Platt)
    with pytest.raises(mcnet.InputError, match="Nameless must state its method"):
        registry.add_method(Nameless)
    with pytest.raises(mcnet.InputError, match=r"derived from mcnet\.Calibrator"):
        registry.add_method(Rate())


def test_every_method_is_a_calibrator_with_a_complexity_of_its_own():
    complexities = [calibrator_class(name).complexity for name in mcnet.methods()]
    assert complexities == sorted(set(complexities))
    for name in mcnet.methods():
        assert issubclass(calibrator_class(name), Calibrator)
        assert calibrator_class(name).method == name
        assert calibrator_class(name).complexity == registry._METHODS[name].complexity


def test_methods_are_listed_without_importing_them():
    code = """
    import sys, mcnet
    assert "mcnet" in mcnet.methods()
    print([name for name in ("torch", "mcnet.networks.mcnet", "mcnet.calibrators.binning") if name in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_method_whose_library_is_missing_is_known_and_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "with_a_network.py").write_text("import torch.not_there\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(registry._METHODS, "network", registry._Entry(200, "with_a_network", "Network"))
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


def test_the_page_of_methods_has_the_floors_and_the_ridge_of_the_code():
    page = " ".join((Path(__file__).parents[2] / "docs" / "methods.md").read_text("utf-8").split())
    assert f"Scores are clipped to [{SCORE_FLOOR:.0e}".replace("e-0", "e-") in page
    assert f"inside [{PROBABILITY_FLOOR:.0e}, 1 − {PROBABILITY_FLOOR:.0e}]" in page
    assert f"the metric clips at {CLIP:.0e}" in page
    assert f"a ridge of {parametric._RIDGE:.0e} per row" in page
