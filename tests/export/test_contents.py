"""Combinations without a curve of their own: predict sums them up, and every export has them, too."""

import json
import subprocess
import warnings

import duckdb
import numpy as np
import onnxruntime
import polars as pl
import pyarrow as pa
import pytest

import mcnet
from mcnet.curves.curves import Curves
from mcnet.export import export_model
from mcnet.export.pieces import MOST_COMBINATIONS, Exported, stamp, warn_of_size
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import model_document
from mcnet.rows.contexts import Contexts


def _by_onnx(model, path, scores, fields):
    export_model(model, path / "model.onnx")
    session = onnxruntime.InferenceSession(str(path / "model.onnx"), providers=["CPUExecutionProvider"])
    texts = {n: np.array(["(missing)" if v is None else v for v in c], dtype=object) for n, c in fields.items()}
    return session.run(["calibrated"], {"score": scores, **texts})[0]


def _by_sql(model, path, scores, fields):
    export_model(model, path / "model.sql")
    connection = duckdb.connect(config={"threads": 1})
    connection.register("rows", pa.table({"place": np.arange(len(scores)), "score": scores, **fields}))
    connection.execute("CREATE TABLE impressions AS SELECT * FROM rows")
    return connection.sql((path / "model.sql").read_text()).to_arrow_table().sort_by("place")["calibrated"].to_numpy()


def _by_c(model, path, scores, fields):
    export_model(model, path / "model.h")
    rows = ",".join(
        f"{{{score!r}, {', '.join('NULL' if v is None else json.dumps(v) for v in values)}}}"
        for score, *values in zip(scores.tolist(), *fields.values(), strict=True)
    )
    (path / "use.c").write_text(
        '#include "model.h"\n#include <stdio.h>\nstruct { double s; const char *a, *b; } rows[] = {' + rows + "};\n"
        f'int main(void) {{ for (int i = 0; i < {len(scores)}; i++) printf("%.17g\\n", '
        "mcnet_calibrate(rows[i].s, mcnet_context(rows[i].a, rows[i].b))); return 0; }\n"
    )
    subprocess.run(["gcc", "-std=c99", "-Wall", "-Werror", "-o", path / "use", path / "use.c"], check=True)
    return np.array(subprocess.run([path / "use"], capture_output=True, check=True).stdout.split(), dtype=float)


def _by_table(model, path, scores, fields):
    export_model(model, path / "model.parquet")
    table = pl.read_parquet(path / "model.parquet")
    columns = [f"{name}{part}" for name in model.fields for part in ("", "_is")]
    curves = {key: (k["score"].to_numpy(), k["probability"].to_numpy()) for key, k in table.group_by(columns)}
    known = [set(values) for values in model.contexts.values]
    found = []
    for score, *row in zip(scores, *fields.values(), strict=True):
        key = []
        for value, seen in zip(row, known, strict=True):
            key += [value, "missing" if value is None else "value"] if value in seen else [None, "any"]
        found.append(np.interp(score, *curves[tuple(key)]))
    return np.array(found)


@pytest.mark.parametrize("served", [_by_onnx, _by_sql, _by_c, _by_table])
def test_every_export_has_what_predict_sums_up(tmp_path, family_model, rows_for, served):
    scores, fields = rows_for(family_model, 2_000)
    scores = np.clip(scores, 1e-6, 0.999)
    expected = family_model.predict(scores, fields)
    found = served(family_model, tmp_path, scores, fields)
    columns = family_model.contexts.field_codes(mcnet.rows.fields.field_columns(fields))
    own = set(map(tuple, family_model.contexts.table.tolist()))
    known = np.array([tuple(row) in own for row in columns.tolist()])
    assert 100 < known.sum() < 1_900
    np.testing.assert_allclose(found[known], expected[known], rtol=1e-14 if served is _by_table else 0)
    tolerance = {_by_c: 0.0, _by_table: 1e-4}.get(served, 1e-12)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-12)  # no curve goes below 1e-12
    assert stamp(family_model, Exported.of(family_model))["checksum"] == model_document(family_model)["checksum"]


def test_added_curves_are_counted_and_those_of_the_model_keep_their_places(family_model):
    exported = Exported.of(family_model)
    own = len(family_model.contexts)
    assert exported.contexts.complete
    assert len(exported.contexts) == own + exported.added == 5 * 6 - 1
    np.testing.assert_array_equal(exported.contexts.table[:own], family_model.contexts.table)
    for curve in range(own + 1):
        np.testing.assert_array_equal(exported.curves.values(curve), family_model.curves.values(curve))
    said = stamp(family_model, exported)
    assert (said["curves"], said["compiled_for_export"]["curves"]) == (30, exported.added)


def test_a_table_of_more_combinations_than_it_can_hold_is_refused(tmp_path, vast_model):
    assert MOST_COMBINATIONS < 401 * 501
    with pytest.raises(mcnet.NotSupportedError, match=r"200,900 combinations.*at most 100,000; fit with fewer fields"):
        export_model(vast_model, tmp_path / "model.parquet")
    assert not list(tmp_path.iterdir())


def test_a_file_of_many_megabytes_is_warned_of():
    with pytest.warns(mcnet.CalibrationWarning, match="C header will have about 460 MB"):
        warn_of_size("C header", 460e6, 10_000_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_size("C header", 46e6, 1_000_000)


@pytest.mark.parametrize("name", ["model.onnx", "model.h", "model.sql", "model.parquet", "model.csv"])
def test_curves_without_their_features_say_so(tmp_path, name):
    for method in ("with-features", "mcnet"):
        model = CalibrationModel(method, {}, Contexts.none(), Curves.constant(0.25))
        export_model(model, tmp_path / name)
        assert (b"left_out" in (tmp_path / name).read_bytes()) is (method == "with-features")
        assert ("on features" in json.dumps(stamp(model, Exported.of(model)))) is (method == "with-features")
