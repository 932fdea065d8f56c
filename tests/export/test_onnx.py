"""ONNX: onnxruntime gives the bits of predict."""

import json
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mcnet
from mcnet.curves.curves import Curves
from mcnet.export.onnx import ML_OPSET, OPSET, export_onnx
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import model_document
from mcnet.rows.contexts import Contexts

STANDARD = {"", "ai.onnx.ml"}


def _run(path, scores, fields, missing="(missing)"):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    columns = [
        np.array([missing if v is None else v for v in column], dtype=object) if column.dtype == object else column
        for column in fields.values()
    ]
    return session.run(["calibrated"], dict(zip(names, [scores, *columns], strict=True)))[0]


def _model(values, field="site", curves=None):
    contexts = Contexts((field,), (tuple(values),), np.arange(len(values), dtype=np.int32)[:, None])
    pairs = [(np.array([0.1, 0.9]), np.array([0.01 * (c + 1), 0.5 + 0.01 * c])) for c in range(len(values) + 1)]
    return CalibrationModel("platt-field", {}, contexts, curves or Curves.of(pairs))


def test_a_million_rows_have_the_bits_of_predict(tmp_path, large_model, rows_for, predicted):
    export_onnx(large_model, tmp_path / "model.onnx")
    scores, fields = rows_for(large_model, 1_000_000)
    np.testing.assert_array_equal(_run(tmp_path / "model.onnx", scores, fields), predicted(large_model, scores, fields))


@settings(max_examples=60)
@given(data=st.data())
def test_nasty_models_have_the_bits_of_predict(tmp_path_factory, nasty_models, rows_for, predicted, data):
    model = data.draw(nasty_models)
    path = tmp_path_factory.getbasetemp() / "nasty.onnx"
    export_onnx(model, path)
    scores, fields = rows_for(model, 300)
    np.testing.assert_array_equal(_run(path, scores, fields), predicted(model, scores, fields))


def test_float_scores_are_widened_first(tmp_path, large_model, rows_for, predicted):
    export_onnx(large_model, tmp_path / "model.onnx", number_type="float")
    scores, fields = rows_for(large_model, 2_000)
    narrow = scores.astype(np.float32)
    found = _run(tmp_path / "model.onnx", narrow, fields)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, predicted(large_model, narrow, fields))


def test_whole_numbers_may_be_passed_as_int64(tmp_path, rows_for):
    model = _model(["-3", "0", "12", "9223372036854775807", None])
    export_onnx(model, tmp_path / "model.onnx", field_type="int64")
    passed = [-3, 0, 12, 2**63 - 1, -(2**63), 13]
    scores = np.full(len(passed), 0.3)
    expected = model.predict(scores, field=[*passed[:4], None, 13])
    np.testing.assert_array_equal(
        _run(tmp_path / "model.onnx", scores, {"site": np.array(passed, dtype=np.int64)}), expected
    )


def test_types_may_differ_by_field(tmp_path):
    contexts = Contexts(("site", "country"), (("1", "2"), ("NL", None)), np.array([[0, 0], [1, 1]], dtype=np.int32))
    model = CalibrationModel(
        "mcnet", {}, contexts, Curves.of([(np.array([0.5]), np.array([p])) for p in (0.1, 0.2, 0.3)])
    )
    export_onnx(model, tmp_path / "model.onnx", field_type={"site": "int64"}, missing="none", missing_number=0)
    fields = {"site": np.array([1, 2, 0, 2]), "country": np.array(["NL", None, "NL", "NL"], dtype=object)}
    found = _run(tmp_path / "model.onnx", np.full(4, 0.5), fields, missing="none")
    np.testing.assert_array_equal(found, [0.2, 0.3, 0.1, 0.1])


@pytest.mark.parametrize("value", ["NL", "07", "+7", "1.5", "9223372036854775808", "²", "", "-"])
def test_int64_is_refused_where_a_value_is_not_one(tmp_path, value):
    with pytest.raises(mcnet.InputError, match="not an int64"):
        export_onnx(_model(["7", value]), tmp_path / "model.onnx", field_type="int64")
    assert not list(tmp_path.iterdir())


def test_the_word_for_missing_may_not_be_a_real_value(tmp_path):
    with pytest.raises(mcnet.InputError, match="real value of field 'site'"):
        export_onnx(_model(["", None]), tmp_path / "model.onnx", missing="")
    with pytest.raises(mcnet.InputError, match="missing_number="):
        export_onnx(_model(["0", None]), tmp_path / "model.onnx", field_type="int64", missing_number=0)


def test_an_empty_text_is_a_value_and_not_a_missing_one(tmp_path):
    model = _model(["", None])
    export_onnx(model, tmp_path / "model.onnx")
    fields = {"site": np.array(["", None, "other"], dtype=object)}
    found = _run(tmp_path / "model.onnx", np.full(3, 0.4), fields)
    np.testing.assert_array_equal(found, model.predict(np.full(3, 0.4), ["", None, "other"]))
    assert len(set(found.tolist())) == 3


def test_nan_gives_nan_and_scores_outside_are_taken_as_the_ends(tmp_path):
    model = _model(["a"])
    export_onnx(model, tmp_path / "model.onnx")
    field = {"site": np.array(["a"] * 5, dtype=object)}
    found = _run(tmp_path / "model.onnx", np.array([np.nan, -1.0, -np.inf, 2.0, np.inf]), field)
    ends = model.predict([0.0, 1.0], ["a", "a"])
    np.testing.assert_array_equal(found, [np.nan, ends[0], ends[0], ends[1], ends[1]])


def test_the_graph_is_standard_and_says_where_it_comes_from(tmp_path, large_model):
    export_onnx(large_model, tmp_path / "model.onnx")
    document = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(document, full_check=True)
    assert {node.domain for node in document.graph.node} <= STANDARD
    assert {entry.domain: entry.version for entry in document.opset_import} == {"": OPSET, "ai.onnx.ml": ML_OPSET}
    origin = {entry.key: entry.value for entry in document.metadata_props}
    assert origin["checksum"] == model_document(large_model)["checksum"]
    assert origin["method"] == large_model.method
    assert json.loads(origin["fields"]) == list(large_model.fields)


def test_the_graph_grows_with_the_logarithm_of_the_knots(tmp_path):
    sizes = []
    for knots in (100, 10_000):
        pair = (np.linspace(0.01, 0.99, knots), np.linspace(0.01, 0.99, knots))
        model = CalibrationModel("isotonic", {}, Contexts.none(), Curves.of([pair]))
        export_onnx(model, tmp_path / "model.onnx")
        sizes.append(len(onnx.load(tmp_path / "model.onnx").graph.node))
    assert sizes[1] < 2 * sizes[0] < 120


def test_two_exports_are_the_same_file(tmp_path, large_model):
    export_onnx(large_model, tmp_path / "one.onnx")
    export_onnx(large_model, tmp_path / "two.onnx")
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()


def test_without_onnx_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(mcnet.NotSupportedError, match=r"pip install '\.\[onnx\]'"):
        export_onnx(_model(["a"]), tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "options", [{"number_type": "half"}, {"field_type": "int8"}, {"field_type": {"country": "int64"}}]
)
def test_unknown_options_are_refused(tmp_path, options):
    with pytest.raises(mcnet.InputError):
        export_onnx(_model(["a"]), tmp_path / "model.onnx", **options)


def test_a_field_without_a_name_is_refused(tmp_path):
    with pytest.raises(mcnet.InputError, match="empty name"):
        export_onnx(_model(["a"], field=""), tmp_path / "model.onnx")
