"""The registry of metrics: one entry is enough, and every spelling of a name is found."""

import importlib
import json
import pickle
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import mcnet
from mcnet.cli.app import app
from mcnet.metrics import METRICS, add_metric, compare, find_metric

NEW_METRIC = '''
"""A metric in a file of its own."""

import numpy as np

from mcnet.metrics import Estimate, Metric, add_metric


def largest(rows):
    """Return the largest probability."""
    return Estimate(float(np.max(rows.p)))


add_metric(Metric("largest", "Largest P", largest, "lower"))
'''


@pytest.fixture
def new_metric(tmp_path, monkeypatch):
    (tmp_path / "largest_probability.py").write_text(NEW_METRIC, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("largest_probability")
    yield
    del METRICS["largest"], sys.modules["largest_probability"]


def test_a_new_metric_is_one_entry(new_metric):
    found = mcnet.evaluate([0.1, 0.7, 0.3], [0, 1, 0])
    assert found.largest == found.estimates["largest"].value == 0.7
    assert "Largest P" in str(found)
    assert "Largest P" in found._repr_html_()
    assert json.loads(json.dumps(found.to_dict()))["metrics"]["largest"]["value"] == 0.7
    assert "Largest P" in compare({"one": found}, ["largest"])


def test_a_new_metric_may_have_a_threshold(new_metric, tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("score,label\n0.1,0\n0.7,1\n0.3,0\n", encoding="utf-8")
    for threshold, code in (("Largest-P>0.5", 1), ("largest > 0.8", 0)):
        done = CliRunner().invoke(
            app, ["evaluate", str(log), "--score", "score", "--label", "label", "--fail-if", threshold, "--json"]
        )
        assert done.exit_code == code, done.output
        assert json.loads(done.stdout)["metrics"]["largest"]["value"] == pytest.approx(0.7)


def test_a_name_may_be_given_once_only():
    with pytest.raises(mcnet.InputError, match="there is a metric 'auc' already"):
        add_metric(METRICS["auc"])


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        *[(name, name) for name in METRICS],
        *[(metric.label, name) for name, metric in METRICS.items()],
        *[(metric.label.upper(), name) for name, metric in METRICS.items()],
        *[(metric.full_label(mcnet.metrics.MetricSettings()), name) for name, metric in METRICS.items()],
        ("f-rce", "f_rce"),
        ("Log loss", "log_loss"),
        ("smece", "smooth_ece"),
    ],
)
def test_every_spelling_of_a_metric_is_found(spelling, name):
    assert find_metric(spelling).name == name


def test_an_unknown_name_gets_the_closest_and_the_list():
    with pytest.raises(mcnet.InputError, match=r"no metric 'pcok' \(did you mean pcoc\?\); there are pcoc, f_rce"):
        find_metric("pcok")


def test_an_evaluation_is_pickled_and_has_no_other_attributes():
    found = mcnet.evaluate([0.1, 0.7, 0.3], [0, 1, 0])
    assert pickle.loads(pickle.dumps(found)).log_loss == found.log_loss
    assert "pcoc" in dir(found)
    with pytest.raises(AttributeError, match="no attribute 'gini'; its metrics are pcoc"):
        _ = found.gini


def test_metrics_of_a_sketch_are_computed_when_asked_for(monkeypatch):
    computed = []
    for name, metric in list(METRICS.items()):

        def function(rows, name=name, metric=metric):
            computed.append(name)
            return metric.function(rows)

        monkeypatch.setitem(METRICS, name, type(metric)(**{**vars(metric), "function": function}))
    rng = np.random.default_rng(0)
    scores = rng.uniform(0.1, 0.5, 2_000)
    sketch = mcnet.Sketch.from_rows(scores, rng.random(2_000) < scores, field=rng.choice(["a", "b"], 2_000))
    found = mcnet.evaluate_sketch(mcnet.Platt().fit_sketch(sketch.pooled()), sketch)
    assert computed == []
    assert found.pcoc == pytest.approx(1.0, abs=0.1)
    assert found.f_rce == found.contexts.f_rce == found.fields["field"].f_rce
    assert computed == ["pcoc", "f_rce"]
    assert set(found.to_dict()["metrics"]) == set(METRICS)
    assert sorted(computed) == sorted(METRICS), "each once"
