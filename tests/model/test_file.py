"""The model file: readable by a person, and refused in one clear sentence when it is not what it was."""

import json
import os
import stat

import numpy as np
import pytest

import mcnet
from mcnet._shared.files import checksum


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.json"
    field = {"land": ["NL", None, "", 'quote " and \\', "日本", "NL"], "device": [1, 1, 2, 2, True, 0.5]}
    mcnet.PlattField().fit([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0, 1, 0, 1, 0, 1], field=field).save(path)
    return path


def altered(path, change, *, signed=True):
    """Change the document and sign it anew, as somebody who knows the format would."""
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    if signed:
        document["checksum"] = checksum(document)
    path.write_text(json.dumps(document), encoding="utf-8")


def refused(path, message):
    with pytest.raises(mcnet.FileFormatError, match=message) as caught:
        mcnet.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_person_can_read_it(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[1] == '  "format": "mcnet calibration model",'
    assert '    "rows": 6,' in lines
    assert any("日本" in line for line in lines)
    # One line a curve: the file can be compared and searched.
    assert sum('"probabilities"' in line for line in lines) == 7


def test_any_layout_of_the_same_content_is_the_same_model(path):
    before = mcnet.load(path)
    altered(path, lambda d: None, signed=False)
    after = mcnet.load(path)
    field = {"land": ["NL", "日本", None], "device": [1, "true", 1]}
    np.testing.assert_array_equal(
        before.predict([0.1, 0.2, 0.3], field=field), after.predict([0.1, 0.2, 0.3], field=field)
    )


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.99])
def test_a_truncated_file(path, keep):
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    refused(path, "not complete JSON: it is damaged")


def test_an_altered_digit(path):
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"rows": 6', '"rows": 7'), encoding="utf-8")
    refused(path, "does not match its checksum")


def test_every_altered_byte_is_noticed_unless_it_says_the_same(path):
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    noticed = 0
    for place in rng.choice(len(content), 60, replace=False).tolist():
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(bytes(changed))
        try:
            mcnet.load(path)
        except mcnet.FileFormatError:
            noticed += 1
        else:
            # The seventeenth digit of a number, or a blank: the same content.
            assert json.loads(changed) == json.loads(content)
    assert noticed > 40


@pytest.mark.parametrize("content", [b"hello", b"\xff\xfe\x00", b"[" * 100_000, b'{"a": NaN}', b'{"a": Infinity}'])
def test_what_is_not_json(path, content):
    path.write_bytes(content)
    refused(path, "not complete JSON")


@pytest.mark.parametrize("content", ["{}", "[]", "3", "null", '"text"', '{"format": "another"}'])
def test_json_of_somebody_else(path, content):
    path.write_text(content)
    refused(path, "not a model of mcnet")


@pytest.mark.parametrize("schema", [0, 1, 2, 99, "one", None, 1.5])
def test_another_or_unknown_schema(path, schema):
    altered(path, lambda d: d.update(schema=schema))
    refused(path, f"has schema {schema}, and this mcnet reads 3: fit and save the model again")


def set_knot(document, place, value):
    document["grids"][0][place] = value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["curves"][1]["probabilities"].reverse(), "falls"),
        (lambda d: d["grids"][0].reverse(), "not in order"),
        (lambda d: set_knot(d, -1, 1.5), "not in order"),
        (lambda d: d["curves"][0]["probabilities"].__setitem__(0, 0.0), "inside"),
        (lambda d: d["curves"][0]["probabilities"].__setitem__(0, "much"), "valid model"),
        (lambda d: d["curves"][0]["probabilities"].append(0.9), "knots"),
        (lambda d: d["curves"][1].update(grid=99), "valid model"),
        (lambda d: d["curves"][1].update(context=[99, 0]), "context"),
        (lambda d: d["curves"][1].update(context=[-5, 0]), "context"),
        (lambda d: d["curves"][1].update(context=[0]), "context"),
        (lambda d: d["curves"][1].update(context=None), "valid model"),
        (lambda d: d["curves"].clear(), "valid model"),
        (lambda d: d.pop("curves"), "valid model"),
        (lambda d: d.pop("fields"), "valid model"),
        (lambda d: d.update(grids={}), "valid model"),
    ],
)
def test_a_model_made_invalid_by_hand_and_signed_anew(path, change, message):
    altered(path, change)
    refused(path, message)


def test_a_number_too_large_for_a_float(path):
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"rows": 6', '"rows": 1e999'), encoding="utf-8")
    refused(path, "damaged")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(mcnet.InputError, match=r"there is no file .*none\.json"):
        mcnet.load(tmp_path / "none.json")


def test_saving_replaces_the_old_file_whole_or_not_at_all(path, monkeypatch):
    model = mcnet.load(path)
    before = path.read_bytes()
    model.save(path)
    assert path.read_bytes() == before

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.write_text", fail)
    with pytest.raises(OSError, match="disk full"):
        model.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["model.json"]


def test_a_new_file_has_the_permissions_of_any_new_file(path):
    other = path.with_name("other")
    other.write_text("")
    assert stat.S_IMODE(os.stat(path).st_mode) == stat.S_IMODE(os.stat(other).st_mode)


def test_strange_values_come_back_as_themselves(tmp_path):
    values = ["", " ", "\n", "\u2028", "\ud800", "a" * 10_000, None, "None", "NaN", "(missing)", "-1", b"bytes"]
    rng = np.random.default_rng(0)
    fitted = mcnet.PerField("platt", shrinkage=0.5).fit(
        rng.random(1200), rng.random(1200) < 0.3, field=[values[i % len(values)] for i in range(1200)]
    )
    fitted.save(tmp_path / "m.json")
    loaded = mcnet.load(tmp_path / "m.json")
    assert len(loaded.contexts) == len(values)
    scores = np.full(len(values), 0.4)
    found = loaded.predict(scores, field=values)
    np.testing.assert_array_equal(found, fitted.predict(scores, field=values))
    assert len(np.unique(found)) == len(values)


def test_a_model_shows_what_it_is(path):
    assert repr(mcnet.load(path)).startswith("CalibrationModel(platt-field, 6 contexts of land × device, ")
