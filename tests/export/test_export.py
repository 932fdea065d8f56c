"""One door: what is exported where, and what is refused."""

import subprocess
import sys

import pytest

import mcnet
from mcnet.export import export_model, export_options
from mcnet.export.targets import targets


@pytest.fixture(scope="module")
def fitted():
    scores, labels = [0.1, 0.2, 0.3, 0.4] * 5, [0, 1, 0, 1] * 5
    return mcnet.PlattField().fit(scores, labels, field=["NL", "NL", "US", "US"] * 5)


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("m.onnx", b"\x08"),
        ("m.h", b"/* CTR"),
        ("m.sql", b"-- "),
        ("m.parquet", b"PAR1"),
        ("m.CSV", b"# {"),
    ],
)
def test_the_ending_says_what_to_write_and_calibrators_and_models_give_the_same_file(tmp_path, fitted, name, start):
    options = {"name": "ctr"} if name.endswith("h") else {}
    export_model(fitted, tmp_path / name, **options)
    first = (tmp_path / name).read_bytes()
    assert first.startswith(start)
    fitted.save(tmp_path / "model.json")
    export_model(mcnet.load(tmp_path / "model.json"), str(tmp_path / name), **options)
    assert (tmp_path / name).read_bytes() == first


def test_the_target_may_be_named(tmp_path, fitted):
    export_model(fitted, tmp_path / "calibration.inc", "c", name="ctr")
    assert "ctr_calibrate_many" in (tmp_path / "calibration.inc").read_text()


def test_what_cannot_be_done_is_said_and_nothing_is_written(tmp_path, fitted):
    for arguments, message in [
        ((fitted, tmp_path / "model.xyz"), "pass to=: 'c' or 'onnx'"),
        ((fitted, tmp_path / "model.h", "java"), "to is 'java'"),
        ((object(), tmp_path / "model.h"), "object cannot be exported"),
        ((fitted, tmp_path / "nowhere" / "model.h"), "does not exist"),
    ]:
        with pytest.raises(mcnet.InputError, match=message):
            export_model(*arguments)
    with pytest.raises(mcnet.InputError, match="no option dialect; it has name"):
        export_model(fitted, tmp_path / "model.h", dialect="duckdb")
    with pytest.raises(mcnet.NotFittedError, match="PlattField is not fitted"):
        export_model(mcnet.PlattField(), tmp_path / "model.h")
    assert not list(tmp_path.iterdir())


def test_every_target_tells_its_options():
    assert {target: "name" in export_options(target) for target in sorted(targets())} == {
        "onnx": False,
        "c": True,
        "sql": False,
        "table": False,
    }


def test_the_c_and_sql_exports_need_no_onnx_and_no_polars(tmp_path, fitted):
    fitted.save(tmp_path / "model.json")
    code = (
        "import sys; sys.modules['onnx'] = sys.modules['polars'] = None\n"
        "from mcnet.model.model_file import load; from mcnet.export import export_model\n"
        "for name in ('m.h', 'm.sql'): export_model(load('model.json'), name)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"model.json", "m.h", "m.sql"}


@pytest.mark.parametrize(
    ("to", "options", "message"),
    [
        ("c", {"name": 12}, "name is 12; it must be a text"),
        ("onnx", {"missing": 7}, "missing is 7; it must be a text"),
        ("onnx", {"missing_number": "abc"}, "missing_number is 'abc'; it must be a whole number"),
        ("onnx", {"missing_number": True}, "missing_number is True"),
        ("onnx", {"missing_number": 2**63}, "it must be a whole number of 64 bits"),
        ("onnx", {"field_type": 5}, "field_type is 5; it must be a text, or a mapping"),
        ("onnx", {"field_type": "int32"}, "it must be 'string' or 'int64'"),
        ("onnx", {"number_type": None}, "number_type is None"),
        ("sql", {"score": 5}, "score is 5"),
        ("sql", {"tables": 5}, "tables is 5; it must be a name"),
        ("sql", {"tables": ["a", 5]}, "tables is"),
        ("sql", {"source": ()}, "source is"),
        ("sql", {"output": None}, "output is None"),
        ("sql", {"output": ""}, "output is ''; it must be a text that is not empty"),
        ("sql", {"fields": "field"}, "a mapping of fields, as in"),
        ("sql", {"fields": {"field": 5}}, "a mapping of fields"),
        ("sql", {"dialect": []}, "dialect is"),
        ("table", {"format": "xls"}, "format is 'xls'; it must be 'parquet' or 'csv'"),
        ("table", {"format": 1}, "format is 1"),
    ],
)
def test_options_of_the_wrong_kind_are_refused_in_words(tmp_path, fitted, to, options, message):
    with pytest.raises(mcnet.InputError) as refused:
        export_model(fitted, tmp_path / "model.csv", to, **options)
    assert message in str(refused.value)
    assert not list(tmp_path.iterdir())
