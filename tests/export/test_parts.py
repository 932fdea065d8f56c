"""A model of several fields is exported in parts that add up: small files, C with the bits of predict."""

import ctypes
import subprocess
from dataclasses import replace

import duckdb
import numpy as np
import onnxruntime
import polars as pl
import pyarrow as pa
import pytest

import mcnet
from mcnet.curves.compile import family_curves
from mcnet.curves.curves import Curves
from mcnet.curves.family import Combination, CurveFamily
from mcnet.export.c import context_numbers
from mcnet.export.sql import sql_text
from mcnet.export.targets import export_model
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import model_document, model_text
from mcnet.rows.contexts import Contexts
from mcnet.rows.sql_dialects import DIALECTS

STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-std=c99")


def make_model(sizes, *, panels=10, bends=3, own=0, rare=0):
    """Return a model of fields with so many values, pairs of the first two, and `own` contexts with their own steps."""
    draw = np.random.default_rng(1)
    names = [f"field {index}" for index in range(len(sizes))]
    values = tuple((*(f"v{value}" for value in range(size - 1)), None) for size in sizes)
    pair = Combination(0, 1, sizes[1], np.flatnonzero(draw.random(sizes[0] * sizes[1]) < 0.4))
    counts = [sizes[0] - rare, *sizes[1:], len(pair.keys)]
    family = CurveFamily(
        knots=np.sort(draw.normal(-2.5, 1.5, panels - 1)),
        origin=panels // 2,
        offset=-2.0,
        log_slope=0.2 * draw.standard_normal(panels),
        offset_by=draw.standard_normal(bends),
        log_slope_by=0.2 * draw.standard_normal((panels, bends)),
        numbers=tuple(0.3 * draw.standard_normal((count, bends)) for count in counts),
        combinations=(pair,),
        limit=11.0,
    ).rounded()
    table = np.unique(np.column_stack([draw.integers(0, size, own) for size in sizes]), axis=0).astype(np.int32)
    pairs = family_curves(family, table)[0].pairs()
    stepped = [(knots, np.clip(np.round(values, 2), 1e-3, 0.99)) for knots, values in pairs[1:]]
    contexts = Contexts(tuple(names), values, table)
    return CalibrationModel(
        "mcnet-bayes",
        {},
        contexts,
        Curves.of([pairs[0], *stepped]),
        family=family,
        isotonic_share=0.3 if own else 0.0,
        evaluation="sum",
    )


MODELS = {
    "two fields": make_model((7, 5)),
    "own curves": make_model((7, 5), own=6),
    "rare values": make_model((9, 5), rare=3),
    "four fields": make_model((7, 5, 4, 3), own=3),
}


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]


def rows_of(model, number, seed=0):
    """Scores over the whole range and at knots; known, missing and unseen values."""
    draw = np.random.default_rng(seed)
    scores = 1.0 / (1.0 + np.exp(-draw.uniform(-18.0, 18.0, number)))
    scores[: number // 8] = draw.choice(1.0 / (1.0 + np.exp(-model.family.knots)), number // 8)
    scores[:2] = 0.0, 1.0
    fields = {}
    for name, values in zip(model.fields, model.contexts.values, strict=True):
        known = np.array([*values, "never seen"], dtype=object)
        fields[name] = known[draw.integers(0, len(known), number)]
    return scores, fields


def c_library(model, folder, *flags):
    export_model(model, folder / "model.h")
    count = len(model.fields)
    values = ", ".join(f"texts[{field}]" for field in range(count))
    (folder / "library.c").write_text(
        '#include "model.h"\n'
        "void many(const double *s, const int64_t *c, double *out, size_t n) { mcnet_calibrate_many(s, c, out, n); }\n"
        f"int64_t context(const char **texts) {{ return mcnet_context({values}); }}\n"
    )
    target = folder / f"library{len(list(folder.iterdir()))}.so"
    # Linked without -ffast-math, which would set the whole process to flush subnormal numbers to zero.
    for command in (
        ["gcc", *STRICT, *flags, "-fPIC", "-c", "-o", str(target.with_suffix(".o")), str(folder / "library.c")],
        ["gcc", "-shared", "-o", str(target), str(target.with_suffix(".o"))],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
    library = ctypes.CDLL(str(target))
    library.context.restype = ctypes.c_int64
    return library


def from_c(library, scores, codes):
    out = np.empty(len(scores))
    pointers = [None if part is None else ctypes.c_void_p(part.ctypes.data) for part in (scores, codes, out)]
    library.many(*pointers, ctypes.c_size_t(len(scores)))
    return out


def test_c_has_the_bits_of_predict(model, tmp_path):
    scores, fields = rows_of(model, 20_000)
    codes = context_numbers(model, fields)
    expected = model.predict(scores, fields)
    for flags in (("-O2",), ("-O3", "-march=native")):
        library = c_library(model, tmp_path, *flags)
        np.testing.assert_array_equal(from_c(library, scores, codes), expected)
        assert np.isnan(from_c(library, np.array([np.nan]), codes[:1])[0])
    np.testing.assert_array_equal(from_c(library, scores, None), model.predict_pooled(scores))
    for row in range(100):
        values = [None if fields[name][row] is None else fields[name][row].encode() for name in model.fields]
        assert library.context((ctypes.c_char_p * len(values))(*values)) == codes[row]


def test_c_is_right_even_where_a_compiler_may_reorder_sums(tmp_path):
    model = MODELS["two fields"]
    scores, fields = rows_of(model, 5_000)
    library = c_library(model, tmp_path, "-O3", "-ffast-math", "-fno-finite-math-only")
    np.testing.assert_allclose(
        from_c(library, scores, context_numbers(model, fields)), model.predict(scores, fields), rtol=1e-11
    )


def test_c_plus_plus_takes_the_header(tmp_path, program):
    export_model(MODELS["four fields"], tmp_path / "model.h")
    (tmp_path / "use.cpp").write_text('#include "model.h"\nint main() { return mcnet_calibrate(0.5, -1) > 1.0; }\n')
    command = [program("g++"), "-std=c++11", "-Wall", "-Wextra", "-Werror", "-c", "-o", "use.o", "use.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_onnx_is_predict_to_twelve_digits(model, tmp_path):
    scores, fields = rows_of(model, 5_000)
    export_model(model, tmp_path / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), options)
    columns = [np.array(["(missing)" if v is None else v for v in column], dtype=object) for column in fields.values()]
    names = [given.name for given in session.get_inputs()]
    given = dict(zip(names, [scores, *columns], strict=True))
    np.testing.assert_allclose(session.run(None, given)[0], model.predict(scores, fields), rtol=1e-12)
    given["score"] = np.full(5_000, np.nan)
    assert np.isnan(session.run(None, given)[0]).all()


def from_duckdb(model, scores, fields, **options):
    connection = duckdb.connect(config={"threads": 1})
    columns = {name: pa.array(column.tolist(), pa.string()) for name, column in fields.items()}
    connection.register("arrow", pa.table({"row": np.arange(len(scores)), "score": scores, **columns}))
    connection.execute("CREATE TABLE impressions AS SELECT * FROM arrow")
    result = connection.sql(sql_text(model, **options)).to_arrow_table().sort_by("row")
    return result["calibrated"].to_numpy(zero_copy_only=False)


@pytest.mark.parametrize("form", ["case", "tables"])
def test_sql_is_predict_to_twelve_digits(model, form):
    scores, fields = rows_of(model, 3_000)
    np.testing.assert_allclose(from_duckdb(model, scores, fields, form=form), model.predict(scores, fields), rtol=1e-12)
    scores[:] = np.nan
    assert np.isnan(from_duckdb(model, scores[:9], {name: c[:9] for name, c in fields.items()}, form=form)).all()


def test_files_are_not_much_larger_than_the_model(tmp_path):
    model = make_model((200, 100), panels=33, bends=8)
    size = len(model_text(model).encode())
    for ending, times in (("h", 3.0), ("sql", 3.0), ("onnx", 4.0)):
        export_model(model, tmp_path / f"model.{ending}")
        assert (tmp_path / f"model.{ending}").stat().st_size < times * size
    scores, fields = rows_of(model, 2_000)
    library = c_library(model, tmp_path, "-O2")
    np.testing.assert_array_equal(
        from_c(library, scores, context_numbers(model, fields)), model.predict(scores, fields)
    )
    stepped = make_model((20, 10), own=40)
    size = len(model_text(stepped).encode())
    for ending, times in (("h", 3.0), ("sql", 3.0), ("onnx", 4.0)):
        export_model(stepped, tmp_path / f"model.{ending}")
        assert (tmp_path / f"model.{ending}").stat().st_size < times * size


def test_the_file_says_how_the_model_is_evaluated(model, tmp_path):
    scores, fields = rows_of(model, 500)
    model.save(tmp_path / "model.json")
    document = model_document(model)
    assert (document["schema"], document["evaluation"]) == (3, "sum")
    loaded = mcnet.load(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.predict(scores, fields), model.predict(scores, fields))
    assert model_text(loaded) == model_text(model)
    one = [
        loaded.predict_one(float(score), dict(zip(fields, row, strict=True)))
        for score, *row in zip(scores[:50], *fields.values(), strict=False)
    ]
    assert one == model.predict(scores, fields)[:50].tolist()
    with pytest.raises(mcnet.InputError, match="needs a family of curves and a field"):
        replace(model, family=None)


def test_a_table_lists_the_curves(tmp_path):
    model = MODELS["own curves"]
    export_model(model, tmp_path / "model.csv")
    assert '"compiled_for_export"' in (tmp_path / "model.csv").read_text().splitlines()[0]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("form", ["case", "tables"])
def test_every_dialect_is_parsed(dialect, form):
    sqlglot = pytest.importorskip("sqlglot", reason="sqlglot is not installed: pip install sqlglot")
    words = {"postgresql": "postgres"}.get(dialect, dialect)
    text = sql_text(make_model((3, 2), panels=3, bends=2, own=2), dialect=dialect, form=form)
    statements = [part for part in sqlglot.parse(text, read=words, error_level=sqlglot.ErrorLevel.RAISE) if part]
    assert statements[-1].key == "select"


@pytest.mark.parametrize("form", ["case", "tables"])
def test_clickhouse_is_predict_to_twelve_digits(tmp_path, form):
    session = pytest.importorskip("chdb.session", reason="chdb is not installed: pip install chdb")
    model = MODELS["own curves"]
    scores, fields = rows_of(model, 300)
    columns = {name: pl.Series(column.tolist(), dtype=pl.String) for name, column in fields.items()}
    pl.DataFrame({"row": np.arange(300), "score": scores, **columns}).write_parquet(tmp_path / "rows.parquet")
    connection = session.Session()
    connection.query("CREATE DATABASE parts")
    try:
        source = f"SELECT * FROM file('{tmp_path}/rows.parquet', Parquet)"
        connection.query(f"CREATE TABLE parts.log ENGINE = Memory AS {source}")
        text = sql_text(model, dialect="clickhouse", form=form, source="parts.log", tables="parts.model")
        *before, select = text.strip().removesuffix(";").split(";\n")
        for statement in before:
            connection.query(statement)
        lines = str(connection.query(f"SELECT row, calibrated FROM ({select}) ORDER BY row", "CSV")).split()
    finally:
        connection.query("DROP DATABASE parts")
        connection.close()
    found = [float(line.split(",")[1]) for line in lines]
    np.testing.assert_allclose(found, model.predict(scores, fields), rtol=1e-12)
