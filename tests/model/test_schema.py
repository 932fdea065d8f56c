"""What a model file may hold: everything else is refused in one sentence, before it can do harm."""

import json
from functools import cache

import numpy as np
import pytest

import mcnet
from mcnet.model.model_file import checksum, model_text


@cache
def saved(name):
    """Return the text of a model: curves of one field, or a sum over two fields."""
    draw = np.random.default_rng(0)
    score = draw.uniform(0.05, 0.6, 4_000)
    label = (draw.random(4_000) < score).astype(int)
    fields = {"country": draw.choice(["NL", "FR", "ES"], 4_000), "device": draw.integers(0, 3, 4_000)}
    if name == "one_field":
        fitted = mcnet.PlattField().fit(score, label, field={"country": fields["country"]})
    else:
        label = np.where(fields["country"] == "NL", draw.random(4_000) < 0.5 * score, label)
        label = np.where(fields["device"] == 2, draw.random(4_000) < 0.3 * score, label)
        fitted = mcnet.BayesMCNet(isotonic_share=0.0).fit(score, label, field=fields)
    return model_text(fitted.model_)


def rewritten(tmp_path, name, change):
    """Return the file of a model, changed, and signed anew."""
    path = tmp_path / "model.json"
    document = json.loads(saved(name))
    change(document)
    document["checksum"] = checksum(document)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def refused(path, message=None):
    with pytest.raises(mcnet.FileFormatError, match=message) as caught:
        mcnet.load(path)
    assert str(caught.value).startswith(f"{path} does not hold a valid model (")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("parameters", [], "parameters"),
        ("parameters", None, "parameters"),
        ("provenance", None, "provenance"),
        ("provenance", "long ago", "provenance"),
        ("method", None, "method"),
        ("method", 3, "method"),
        ("monotone", 1, "monotone"),
        ("monotone", "yes", "monotone"),
        ("fields", None, "fields"),
        ("fields", [{"name": "a", "values": ["x", 3]}], "values"),
        ("fields", [{"name": "a", "values": ["x"], "more": 1}], "more"),
        ("fields", [{"name": "a", "values": ["x", "x"]}], "twice"),
        ("grids", None, "grids"),
        ("grids", [[None]], "grids"),
        ("grids", [["0.5"]], "grids"),
        ("curves", {}, "curves"),
        ("unknown", 1, "unknown"),
        ("family", [], "family"),
        ("contexts", "every value", "contexts"),
        ("uncertainty", 3, "uncertainty"),
    ],
)
def test_wrong_types_and_unknown_keys(tmp_path, key, value, message):
    refused(rewritten(tmp_path, "one_field", lambda d: d.update({key: value})), message)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("score_type", "percent", "score_type"),
        ("score_type", None, "score_type"),
        ("total_weight", "many", "total_weight"),
        ("total_weight", -1.0, "weight"),
        ("balanced_by", "country", "balanced_by"),
        ("balanced_by", [3], "balanced_by"),
        ("isotonic_share", 1.5, "isotonic share"),
        ("isotonic_share", None, "isotonic_share"),
    ],
)
def test_wrong_serving_state(tmp_path, key, value, message):
    refused(rewritten(tmp_path, "one_field", lambda d: d.update({key: value})), message)
    refused(rewritten(tmp_path, "one_field", lambda d: d.pop(key)), key)


def test_a_file_without_any_one_of_its_keys(tmp_path):
    for key in json.loads(saved("one_field")):
        if key not in ("format", "schema", "checksum"):
            refused(rewritten(tmp_path, "one_field", lambda d, key=key: d.pop(key)))


FAMILY_CHANGES = [
    (lambda f: f["knots"].reverse(), "knots"),
    (lambda f: f["knots"].__setitem__(1, f["knots"][0]), "knots"),
    (lambda f: f["knots"].clear(), "knots"),
    (lambda f: f.update(origin=-1), "origin"),
    (lambda f: f.update(origin=10_000), "origin"),
    (lambda f: f.update(origin=1.5), "origin"),
    (lambda f: f.update(limit=-3.0), "limit"),
    (lambda f: f["log_slope"].pop(), "log-slopes"),
    (lambda f: f["log_slope"].__setitem__(0, 1e6), "log-slope"),
    (lambda f: f["log_slope_by"].pop(), "log-slopes"),
    (lambda f: f["log_slope_by"].__setitem__(0, []), None),
    (lambda f: f["numbers"].pop(), None),
    (lambda f: f["numbers"][0].append(f["numbers"][0][0]), None),
    (lambda f: f["numbers"][0][0].__setitem__(0, 1e200), None),
    (lambda f: f.update(offset=1e200), "offset"),
    (lambda f: f.update(offset=None), "offset"),
    (lambda f: f.update(more=1), "more"),
    (lambda f: f.pop("limit"), "limit"),
]


@pytest.mark.parametrize(("change", "message"), FAMILY_CHANGES)
def test_a_family_is_verified_as_curves_are(tmp_path, change, message):
    refused(rewritten(tmp_path, "family", lambda d: change(d["family"])), message)


@pytest.mark.parametrize(
    "combination",
    [
        {"first": 0, "second": 0, "size": 4, "keys": []},
        {"first": 0, "second": 7, "size": 3, "keys": []},
        {"first": 0, "second": 1, "size": 99, "keys": []},
        {"first": 0, "second": 1, "size": 3, "keys": [2, 1]},
        {"first": 0, "second": 1, "size": 3, "keys": [99]},
        {"first": 0, "second": 1, "size": 3, "keys": [-1]},
        {"first": 0, "second": 1, "size": 3, "keys": [10**30]},
    ],
)
def test_combinations_of_fields_are_verified(tmp_path, combination):
    def change(document):
        family = document["family"]
        del family["numbers"][2:]
        family["numbers"].append([family["numbers"][0][0]] * len(combination["keys"]))
        family["combinations"] = [combination]

    refused(rewritten(tmp_path, "family", change))


def test_contexts_of_curves_are_listed_once(tmp_path):
    refused(rewritten(tmp_path, "one_field", lambda d: d["curves"].append(d["curves"][-1])), "twice")
