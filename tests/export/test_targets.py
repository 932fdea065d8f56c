"""A new target is one module; exports take the scores that the model was fitted on; values survive every reader."""

import shutil
import subprocess
import warnings

import numpy as np
import polars as pl
import pytest

import mcnet
import mcnet.export
from mcnet.export import export_model, export_options
from mcnet.export.sql import sql_text

LOGITS = np.random.default_rng(0).normal(-1.0, 1.5, 2000)
LABELS = np.random.default_rng(1).random(2000) < 1.0 / (1.0 + np.exp(-0.7 * LOGITS))
GIVEN = np.concatenate([LOGITS[:200], [-800.0, 800.0, 0.0, -np.inf, np.inf]])


def test_a_new_target_is_one_module(tmp_path, monkeypatch):
    (tmp_path / "words.py").write_text(
        '"""A target of one file."""\n'
        "from mcnet.export.targets import Target\n"
        "def export_words(model, path, *, greeting='hello'):\n"
        "    path.write_text(f'{greeting} {model.method}')\n"
        "TARGET = Target('words', ('.words',), export_words)\n"
    )
    monkeypatch.setattr(mcnet.export, "__path__", [*mcnet.export.__path__, str(tmp_path)])
    fitted = mcnet.Platt().fit([0.1, 0.4], [0, 1])
    export_model(fitted, tmp_path / "m.words", greeting="good morning")
    assert (tmp_path / "m.words").read_text() == "good morning platt"
    assert export_options("words") == {"greeting": "hello"}


@pytest.fixture(scope="module")
def fitted():
    return mcnet.Platt().fit(LOGITS, LABELS, score_type="logit")


def test_sql_of_a_model_of_logits_takes_logits(fitted):
    duckdb = pytest.importorskip("duckdb")
    rows = pl.DataFrame({"score": [*GIVEN.tolist(), None, float("nan")]})
    for form in ("case", "tables"):
        with duckdb.connect() as connection:
            connection.register("impressions", rows.to_arrow())
            for statement in connection.extract_statements(sql_text(fitted.model_, form=form)):
                result = connection.execute(statement)
            found = result.fetchall()
        found = {repr(score): p for score, p in found}
        assert found.pop("None") is None
        assert found.pop("nan") is None
        expected = fitted.predict(GIVEN, score_type="logit")
        for score, p in zip(GIVEN.tolist(), expected.tolist(), strict=True):
            assert found[repr(score)] == pytest.approx(p, rel=1e-9)


@pytest.mark.parametrize("dialect", ["postgresql", "bigquery"])
def test_the_other_dialects_turn_logits_into_probabilities_once(fitted, dialect):
    assert sql_text(fitted.model_, dialect=dialect).count("EXP(") == 1
    assert "EXP(" not in sql_text(fitted.model_, dialect=dialect, score_type="probability")


def test_onnx_of_a_model_of_logits_takes_logits(fitted, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    for options, given in [({}, GIVEN), ({"score_type": "probability"}, np.linspace(0, 1, 99))]:
        export_model(fitted, tmp_path / "m.onnx", **options)
        session = runtime.InferenceSession(tmp_path / "m.onnx")
        found = session.run(None, {"score": given})[0]
        expected = fitted.predict(given, score_type=options.get("score_type", "logit"))
        np.testing.assert_allclose(found, expected, rtol=1e-6 if not options else 0.0)
        assert session.get_modelmeta().custom_metadata_map["score_type"] == options.get("score_type", "logit")


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("with_field", [False, True])
def test_c_of_a_model_of_logits_takes_logits(tmp_path, with_field):
    field = np.where(np.arange(2000) % 2 == 0, "NL", "FR") if with_field else None
    method = mcnet.PlattField() if with_field else mcnet.Platt()
    fitted = method.fit(LOGITS, LABELS, score_type="logit", **({"field": field} if with_field else {}))
    export_model(fitted, tmp_path / "m.h")
    header = str(tmp_path / "m.h")
    command = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-x", "c", "-DMCNET_EXAMPLE", header]
    subprocess.run([*command, "-o", str(tmp_path / "example"), "-lm"], check=True)
    for score in (-3.0, 0.25, 5.0):
        words = [str(score), "FR"] if with_field else [str(score)]
        found = subprocess.run([str(tmp_path / "example"), *words], check=True, capture_output=True, text=True).stdout
        assert float(found) == pytest.approx(fitted.predict_one(score, "FR" if with_field else None), rel=1e-12)


def test_the_table_of_a_model_of_logits_says_what_to_look_up(fitted, tmp_path):
    with pytest.warns(mcnet.CalibrationWarning, match=r"look up 1 / \(1 \+ exp\(-z\)\)"):
        export_model(fitted, tmp_path / "m.parquet")


def test_a_wrong_score_type_is_refused(fitted, tmp_path):
    for name in ("m.h", "m.sql", "m.onnx"):
        with pytest.raises(mcnet.InputError, match="score_type is 'percent'"):
            export_model(fitted, tmp_path / name, score_type="percent")


NASTY = [
    "a\rb",
    "\r",
    "\r\n",
    "\n",
    "\t",
    "'",
    '"',
    "''",
    "\\",
    "\\r",
    "a\u2028b",
    "\x0b\x0c\x1c\x85",
    "$$",
    "--",
    "/*",
]
NASTY += [
    "日本",
    "é",
    "e\u0301",
    "\ufeff",
    " ",
    "",
    "NULL",
    "%s",
    "{}",
    "a;b",
    "`",
    "\x7f",
    "a,b",
    '",',
    "#",
    "\U0001f600",
]


@pytest.fixture(scope="module")
def nasty():
    rng = np.random.default_rng(0)
    score = rng.random(200 * len(NASTY))
    field = NASTY * 200
    rate = np.tile(np.linspace(0.05, 0.95, len(NASTY)), 200)
    return mcnet.PerField("platt").fit(score, rng.random(len(score)) < rate, field={"value": field}).model_


@pytest.mark.filterwarnings("ignore:form='case' writes:mcnet.CalibrationWarning")
@pytest.mark.parametrize("form", ["case", "tables"])
def test_sql_read_as_a_text_file_keeps_every_value(nasty, tmp_path, form):
    duckdb = pytest.importorskip("duckdb")
    export_model(nasty, tmp_path / "m.sql", form=form)
    text = (tmp_path / "m.sql").read_text(encoding="utf-8")  # which takes \r for the end of a line
    rows = pl.DataFrame({"score": [0.3] * len(NASTY), "value": NASTY})
    with duckdb.connect() as connection:
        connection.register("impressions", rows.to_arrow())
        for statement in connection.extract_statements(text):
            result = connection.execute(statement)
        found = result.fetchall()
    found = {value: p for _, value, p in found}
    expected = nasty.predict([0.3] * len(NASTY), {"value": NASTY})
    assert found == dict(zip(NASTY, expected.tolist(), strict=True))


@pytest.mark.parametrize("dialect", ["duckdb", "postgresql", "bigquery"])
def test_no_dialect_writes_a_control_character(nasty, dialect):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = sql_text(nasty, dialect=dialect, form="tables")
    assert not set(text) & set("\r\t\x0b\x0c\x1c\x85\u2028\x7f")


def test_a_column_name_with_a_carriage_return_is_refused(nasty):
    with pytest.raises(mcnet.InputError, match="cannot be the name of a column in SQL"):
        sql_text(nasty, score="a\rb")


def test_a_csv_table_keeps_every_value(nasty, tmp_path):
    pandas = pytest.importorskip("pandas")
    export_model(nasty, tmp_path / "m.csv")
    read = pl.read_csv(tmp_path / "m.csv", comment_prefix="# ", infer_schema=False)
    assert set(read["value"].to_list()) == {*NASTY, None}
    read = pandas.read_csv(tmp_path / "m.csv", skiprows=1, keep_default_na=False, dtype=str, lineterminator="\n")
    assert set(read["value"]) >= set(NASTY)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_c_keeps_every_value(nasty, tmp_path):
    export_model(nasty, tmp_path / "m.h")
    source = (tmp_path / "m.h").read_text(encoding="ascii")
    (tmp_path / "read.h").write_text(source)
    command = [
        "cc",
        "-std=c99",
        "-x",
        "c",
        "-DMCNET_EXAMPLE",
        str(tmp_path / "read.h"),
        "-o",
        str(tmp_path / "example"),
    ]
    subprocess.run(command, check=True)
    for value in NASTY:
        found = subprocess.run([str(tmp_path / "example"), "0.3", value], check=True, capture_output=True, text=True)
        assert float(found.stdout) == nasty.predict_one(0.3, value)


def test_onnx_keeps_every_value(nasty, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    export_model(nasty, tmp_path / "m.onnx")
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    found = session.run(None, {"score": np.full(len(NASTY), 0.3), "value": np.array(NASTY, dtype=object)})[0]
    np.testing.assert_array_equal(found, nasty.predict([0.3] * len(NASTY), {"value": NASTY}))


@pytest.mark.parametrize("name", ["m.h", "m.sql", "m.onnx", "m.parquet", "m.csv"])
def test_a_large_export_is_announced_with_its_size(nasty, tmp_path, monkeypatch, name):
    monkeypatch.setattr("mcnet.export.pieces.LARGE_BYTES", 1000)
    with pytest.warns(mcnet.CalibrationWarning, match="will have about"):
        export_model(nasty, tmp_path / name)


def test_the_smallest_exports_are_those_that_the_warning_names(tmp_path, monkeypatch):
    monkeypatch.setattr("mcnet.export.pieces.LARGE_BYTES", 1000)
    score = np.linspace(0.01, 0.5, 40_000)
    many = mcnet.PlattField().fit(score, np.arange(40_000) % 3 == 0, field=np.arange(40_000) % 400)
    with pytest.warns(mcnet.CalibrationWarning, match="a Parquet table is the smallest export, ONNX the next"):
        sizes = {name: _size_of(many, tmp_path / name) for name in ("m.h", "m.sql", "m.onnx", "m.parquet", "m.csv")}
    assert sorted(sizes, key=sizes.get)[:2] == ["m.parquet", "m.onnx"]


def _size_of(model, path):
    export_model(model, path)
    return path.stat().st_size
