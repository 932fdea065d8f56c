"""What a model file may hold: everything else is refused in one sentence, before it can do harm."""

import json
import tracemalloc
from pathlib import Path

import pytest

import mcnet
from mcnet.model.model_file import checksum, upgraded

GOLDEN = Path(__file__).parent / "golden"


def rewritten(tmp_path, name, change, *, schema=2):
    """Return a golden file as version 1 or 2, changed, and signed anew."""
    path = tmp_path / "model.json"
    document = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    if schema == 2:
        document = upgraded(document)
    change(document)
    document["checksum"] = checksum(document)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def refused(path, message=None):
    with pytest.raises(mcnet.FileFormatError, match=message) as caught:
        mcnet.load(path)
    assert str(caught.value).startswith(f"{path} does not hold a valid model (")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("schema", [1, 2])
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
        ("contexts", "every value", "either grids and curves, or contexts"),
        ("uncertainty", 3, "uncertainty"),
    ],
)
def test_wrong_types_and_unknown_keys(tmp_path, schema, key, value, message):
    refused(rewritten(tmp_path, "one_field", lambda d: d.update({key: value}), schema=schema), message)


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
    names = list(json.loads((GOLDEN / "one_field.json").read_text(encoding="utf-8")))
    for key in names:
        if key not in ("format", "schema", "checksum"):
            refused(rewritten(tmp_path, "one_field", lambda d, key=key: d.pop(key), schema=1))


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
    (lambda f: f["numbers"][0].append(f["numbers"][0][0]), "numbers of shape"),
    (lambda f: f["numbers"][0][0].__setitem__(0, 1e200), None),
    (lambda f: f.update(offset=1e200), "offset"),
    (lambda f: f.update(offset=None), "offset"),
    (lambda f: f.update(more=1), "more"),
    (lambda f: f.pop("limit"), "limit"),
]


@pytest.mark.parametrize("name", ["family_every_value", "family_every_combination", "curves_and_family"])
@pytest.mark.parametrize("schema", [1, 2])
@pytest.mark.parametrize(("change", "message"), FAMILY_CHANGES)
def test_a_family_is_verified_as_curves_are(tmp_path, name, schema, change, message):
    refused(rewritten(tmp_path, name, lambda d: change(d["family"]), schema=schema), message)


def a_family(tmp_path, change):
    """Return a small file that holds a family; the golden ones of version 1 do, whatever their size."""
    return rewritten(tmp_path, "family_every_combination", change, schema=1)


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

    refused(a_family(tmp_path, change))


@pytest.mark.parametrize("contexts", ["every thing", 3, [[0]], [[0, 99]], [[0, -2]], [[0, 0], [0, 0]], [[0, 10**30]]])
def test_contexts_of_a_family(tmp_path, contexts):
    refused(a_family(tmp_path, lambda d: d.update(contexts=contexts)))


def test_contexts_of_curves_are_listed_once(tmp_path):
    refused(rewritten(tmp_path, "one_field", lambda d: d["curves"].append(d["curves"][-1])), "twice")


def many_values(document, number):
    """Name so many values of each field, and nothing about any of them."""
    for field, kept in zip(document["fields"], document["family"]["numbers"][:2], strict=True):
        field["values"] = [str(value) for value in range(number)]
        kept[:] = [[0.0] * len(document["family"]["offset_by"])] * number
    document["family"]["combinations"] = []
    del document["family"]["numbers"][2:]


def test_a_small_file_cannot_ask_for_a_large_table(tmp_path):
    path = a_family(tmp_path, lambda d: many_values(d, 3_000))
    tracemalloc.start()
    refused(path, "9,006,000 combinations of field values, which is too many")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6


def test_a_small_file_cannot_ask_for_many_long_curves(tmp_path):
    def change(document):
        many_values(document, 400)
        family, knots = document["family"], 2_000
        family["knots"] = [0.001 * knot for knot in range(knots)]
        family["log_slope"] = [0.0] * (knots + 1)
        family["log_slope_by"] = [[0.0] * len(family["offset_by"])] * (knots + 1)

    refused(a_family(tmp_path, change), "curves with 2,000 knots, which is too many")
