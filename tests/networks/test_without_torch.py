"""Without torch: one clear message from what needs it, and everything else works."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mcnet
from mcnet import NotSupportedError

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("torch", "safetensors"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocked())
"""
HINT = r"which (is|are) not installed; in a clone of mcnet: pip install '\.\[networks\]'"


@pytest.fixture
def rows():
    draw = np.random.default_rng(0)
    scores = draw.uniform(0.05, 0.6, 400)
    return scores, draw.random(400) < scores


@pytest.fixture(autouse=True)
def _no_torch(monkeypatch):
    monkeypatch.setattr("mcnet._shared.messages.find_spec", lambda name: None)


@pytest.mark.parametrize("method", ["mcnet", "adacalib"])
def test_a_method_of_networks_says_what_to_install(rows, method):
    with pytest.raises(NotSupportedError, match=f"{method} needs torch and safetensors, {HINT}"):
        mcnet.calibrator(method).fit(*rows)
    with pytest.raises(NotSupportedError, match=HINT):
        mcnet.calibrator(method).prepare()


def test_features_and_the_training_state_say_what_to_install(rows, tmp_path):
    with pytest.raises(NotSupportedError, match=f"WithFeatures needs torch and safetensors, {HINT}"):
        mcnet.WithFeatures("platt").fit(*rows, features=rows[0][:, None])
    fitted = mcnet.BayesMCNet(bins=4).fit(*rows)
    fitted.save(tmp_path / "model.json")
    with pytest.raises(NotSupportedError, match=f"saving the training state needs torch and safetensors, {HINT}"):
        fitted.save(tmp_path / "model.json", training_state=True)


def test_comparing_every_method_leaves_out_those_of_networks_and_says_so(rows):
    found = mcnet.select(mcnet.Sketch.from_rows(*rows), methods=["base", "platt", "neucalib", "adacalib", "mcnet"])
    assert {result.method for result in found.results} == {"base", "platt", "neucalib"}
    assert set(found.failed) == {"adacalib", "mcnet"}
    assert all("[networks]" in reason for reason in found.failed.values())


def test_neucalib_and_bayes_never_load_torch(tmp_path):
    code = (
        f"{BLOCKED}\n"
        "import mcnet, numpy as np\n"
        "s = np.random.default_rng(0).uniform(0.05, 0.6, 500); y = np.random.default_rng(1).random(500) < s\n"
        "for made in (mcnet.NeuCalib, mcnet.BayesMCNet):\n"
        "    made().fit(s, y).save('model.json'); mcnet.load('model.json').predict(s)\n"
        "print([name for name in sys.modules if name.startswith('torch.')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_the_study_of_the_paper_says_what_to_install(tmp_path):
    code = (
        f"{BLOCKED}\n"
        "import runpy\n"
        "sys.argv = ['reproduction', 'expressiveness', '--quick', '-o', 'out']\nrunpy.run_module('reproduction')\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert done.returncode == 2, done.stderr
    assert "the study of the paper needs torch and safetensors" in done.stderr
    assert "pip install '.[networks]'" in done.stderr
