"""Derived fields: numbers in bins, hours and weekdays, the same from every kind of rows and wherever a model goes."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import polars as pl
import pytest
from tests.sketches import alike

import mcnet
from mcnet.errors import InputError
from mcnet.rows.derived import EdgeSample, bin_texts, chosen_edges, derived_column, value_text
from mcnet.rows.fields import CLOCK
from mcnet.rows.locations import read_with

FIELDS = ["age:number", "ts:hour", "ts:weekday"]
OPTIONS = {"score": "p", "label": "y", "field": FIELDS, "bins": 4}


@pytest.fixture(scope="module")
def rows():
    """Rows whose rate depends on a number and on the hour; some have neither."""
    random = np.random.default_rng(5)
    size = 6_000
    age = np.round(random.gamma(3.0, 10.0, size), 2)
    seconds = random.integers(0, 14 * 86_400, size)
    hour = seconds // 3600 % 24
    z = random.normal(-2.0, 1.0, size)
    y = random.random(size) < 1.0 / (1.0 + np.exp(-(z + 0.03 * (age - 30.0) + 0.05 * (hour - 12.0))))
    start = np.datetime64("2026-11-02T00:00:00", "us")
    frame = pl.DataFrame(
        {"p": 1.0 / (1.0 + np.exp(-z)), "y": y.astype(int), "age": age, "ts": start + seconds.astype("timedelta64[s]")}
    )
    gone = pl.int_range(pl.len()) % 40 == 0
    return frame.with_columns(pl.when(~gone).then(pl.col("age")), pl.when(~gone).then(pl.col("ts")))


@pytest.fixture(scope="module")
def sketch(rows):
    return mcnet.scan(rows, **OPTIONS)


@pytest.fixture(scope="module")
def model(sketch):
    return mcnet.BayesMCNet().fit_sketch(sketch).model_


def test_bins_have_equal_shares_of_the_rows_and_short_edges():
    numbers = np.random.default_rng(0).gamma(3.0, 10.0, 50_000)
    edges = chosen_edges(numbers, 8)
    shares = np.bincount(np.searchsorted(edges, numbers, side="right")) / len(numbers)
    assert len(edges) == 7
    assert np.abs(shares - 1 / 8).max() < 0.03
    assert max(len(f"{edge:g}") for edge in edges) <= 4


@pytest.mark.parametrize(
    ("numbers", "bins", "expected"),
    [
        ([1.0, 2.0, 3.0, 4.0], 16, (2.0, 3.0, 4.0)),  # every number its own bin
        ([5.0] * 10, 4, ()),
        ([], 4, ()),
        ([0.0] * 99 + [1.0], 4, (1.0,)),  # a number that most rows have is one bin
        ([-np.inf, 0.0, 1.0, np.inf, np.nan], 2, (1.0,)),
    ],
)
def test_edges_of_few_numbers(numbers, bins, expected):
    assert chosen_edges(np.array(numbers), bins) == expected


def test_an_edge_belongs_to_the_bin_above_it_and_a_missing_number_is_a_value_of_its_own():
    column = derived_column("age:number", [11.9, 12, 18, None, float("nan"), "7"], (12.0, 18.0))
    assert [column.values[code] for code in column.codes] == ["< 12", "[12, 18)", ">= 18", None, None, "< 12"]
    assert [value_text("age:number", (12.0, 18.0))(v) for v in (11.9, 12, 18, None, float("nan"), "7")] == [
        "< 12",
        "[12, 18)",
        ">= 18",
        None,
        None,
        "< 12",
    ]


def test_a_thinned_column_has_nearly_the_edges_of_the_whole(monkeypatch):
    monkeypatch.setattr("mcnet.rows.derived._MOST_ROWS_FOR_EDGES", 1_000)
    numbers, sample = np.random.default_rng(1).random(100_000), EdgeSample()
    for part in np.array_split(numbers, 7):
        sample.add(part)
    assert np.abs(np.array(sample.edges(4)) - [0.25, 0.5, 0.75]).max() < 0.08


@pytest.mark.parametrize("kind", list(CLOCK))
@pytest.mark.parametrize(
    "written",
    [
        datetime(2026, 11, 16, 7, 30),
        datetime(2026, 11, 16, 9, 30, tzinfo=timezone(timedelta(hours=2))),
        "2026-11-16T07:30:00",
        "2026-11-16 09:30+02:00",
        "2026-11-16T07:30:00Z",
        int(datetime(2026, 11, 16, 7, 30, tzinfo=UTC).timestamp()),
        int(datetime(2026, 11, 16, 7, 30, tzinfo=UTC).timestamp()) * 1000,
        np.datetime64("2026-11-16T07:30"),
    ],
)
def test_a_timestamp_is_cut_in_utc_however_it_is_written(kind, written):
    expected = {"hour": "07:00", "weekday": "Mon", "hour-of-week": "Mon 07:00"}[kind]
    column = derived_column(f"ts:{kind}", [written], None)
    assert column.values[column.codes[0]] == expected
    assert value_text(f"ts:{kind}", None)(written) == expected


def test_every_kind_of_rows_gives_the_same_sketch(rows, sketch, tmp_path):
    rows.write_parquet(tmp_path / "a.parquet")
    rows.write_csv(tmp_path / "a.csv")
    rows.write_ndjson(tmp_path / "a.jsonl")
    for name in ("a.parquet", "a.csv", "a.jsonl"):
        assert mcnet.scan(tmp_path / name, **OPTIONS) == sketch, name
    assert mcnet.scan(rows.lazy(), **OPTIONS) == sketch
    assert mcnet.scan(rows.to_pandas(), **OPTIONS) == sketch
    fields = {name: rows[name.partition(":")[0]] for name in FIELDS}
    whole = mcnet.Sketch.from_rows(rows["p"], rows["y"], field=fields)
    assert whole == mcnet.scan(rows, score="p", label="y", field=FIELDS)


def test_duckdb_cuts_as_a_scan_does(rows, sketch):
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("log", rows.to_arrow())
    options = {"score": "p", "label": "y", "field": FIELDS, "table": "log"}
    assert alike(mcnet.scan(connection, **options, like=sketch), sketch)
    own = mcnet.scan(connection, **options, bins=4)
    assert len(own.contexts.edges["age:number"]) == 3
    query = mcnet.sketch_query("log", score="p", label="y", field=["ts:hour-of-week"])
    found = mcnet.Sketch.from_table(connection.sql(query).to_arrow_table())
    assert alike(found, mcnet.scan(rows, score="p", label="y", field="ts:hour-of-week"))


def test_a_query_needs_edges():
    with pytest.raises(InputError, match="take them from a sketch or a model with like="):
        mcnet.sketch_query("log", score="p", label="y", field="age:number")


def test_sketches_and_models_keep_the_edges_in_their_files(sketch, model, tmp_path):
    from mcnet.sketch.sketch_file import sketch_of_bytes, stored_bytes

    sketch.save(tmp_path / "s.parquet")
    assert mcnet.Sketch.load(tmp_path / "s.parquet") == sketch
    few = (
        sketch.only("age:number").pooled()
        if False
        else mcnet.Sketch.from_rows([0.1, 0.2], [0, 1], field={"age:number": [1.0, 2.0]})
    )
    assert sketch_of_bytes(stored_bytes(few), "it") == few
    model.save(tmp_path / "m.json")
    loaded = mcnet.load(tmp_path / "m.json")
    assert loaded.contexts.edges == model.contexts.edges == sketch.contexts.edges
    string = (tmp_path / "m.json").read_text()
    assert '"derived"' in string
    assert '"ts:hour": {"column": "ts", "kind": "hour"}' in string


def test_a_model_without_derived_fields_is_written_as_before(tmp_path):
    mcnet.Platt().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1]).save(tmp_path / "m.json")
    string = (tmp_path / "m.json").read_text()
    assert '"derived"' not in string
    assert "derived" not in string


def test_a_file_whose_edges_do_not_rise_is_refused(model, tmp_path):
    from mcnet.model.model_file import model_document, model_of

    document = model_document(model)
    document["derived"]["age:number"]["edges"] = [3.0, 2.0]
    with pytest.raises(InputError, match="do not rise"):
        model_of(document)
    document = model_document(model)
    del document["derived"]["ts:hour"]
    with pytest.raises(InputError, match="does not say how"):
        model_of(document)


def test_a_model_is_asked_with_the_number_and_the_timestamp(rows, model):
    some = rows[:50]
    whole = model.predict(some["p"], {"age": some["age"], "ts": some["ts"]})
    assert whole.std() > 0.01
    lists = {"age": some["age"].to_list(), "ts": [None if t is None else t.isoformat() for t in some["ts"]]}
    np.testing.assert_array_equal(model.predict(some["p"].to_list(), lists), whole)
    np.testing.assert_array_equal(model.predict(some["p"], some[["age", "ts"]]), whole)
    np.testing.assert_array_equal(
        model.predict(some["p"], {"age:number": some["age"], "ts:hour": some["ts"], "ts:weekday": some["ts"]}), whole
    )
    one = [model.predict_one(p, {"age": age, "ts": ts}) for p, age, ts in some["p", "age", "ts"].rows()]
    np.testing.assert_array_equal(one, whole)
    few = model.predict(some["p"][:3].to_list(), {"age": lists["age"][:3], "ts": lists["ts"][:3]})
    np.testing.assert_array_equal(few, whole[:3])
    low, high = model.interval(some["p"], {"age": some["age"], "ts": some["ts"]})
    assert (low <= whole).all()
    assert (whole <= high).all()


def test_values_that_are_cut_already_stay_as_they_are(sketch, model):
    """Reports and plots ask a model for its own values."""
    columns = sketch.contexts.columns(sketch.contexts.all())
    texts = {column.name: [column.values[code] for code in column.codes] for column in columns}
    scores = np.full(len(sketch.contexts), 0.2)
    np.testing.assert_array_equal(model.predict(scores, texts), model.predict(scores, columns))


def test_sketches_of_other_bins_do_not_add_up(rows, sketch):
    part = mcnet.scan(rows[:1000], score="p", label="y", field=FIELDS)
    with pytest.raises(InputError, match="only the same bins add up; cut both alike: pass like="):
        part + sketch
    with pytest.raises(InputError, match="only the same bins"):
        mcnet.BayesMCNet().fit_sketch(sketch).model_.predict_cells(part)
    halves = [mcnet.scan(half, score="p", label="y", field=FIELDS, like=sketch) for half in (rows[:3000], rows[3000:])]
    assert halves[0] + halves[1] == sketch


def test_bins_are_chosen_once_while_options_hold(rows, tmp_path):
    rows[:1000].write_parquet(tmp_path / "a.parquet")
    rows[1000:].write_parquet(tmp_path / "b.parquet")
    with read_with():
        one, other = (
            mcnet.scan(tmp_path / name, score="p", label="y", field="age:number") for name in ("a.parquet", "b.parquet")
        )
    assert one.contexts.edges == other.contexts.edges
    assert len(bin_texts(one.contexts.edges["age:number"])) == 16


def test_a_number_column_with_text_in_it_is_refused():
    said = "age is not a number in row 1: 'NL'; if age has names and not numbers, give it as a field without :number"
    with pytest.raises(InputError, match=said):
        mcnet.Sketch.from_rows([0.1, 0.2], [0, 1], field={"age:number": [7, "NL"]})


@pytest.mark.parametrize("column", [["soon", "later"], [7, 8]])
def test_what_is_no_timestamp_is_refused(column):
    with pytest.raises(InputError, match="timestamp"):
        mcnet.Sketch.from_rows([0.1, 0.2], [0, 1], field={"ts:hour": column})


@pytest.mark.parametrize(("field", "role"), [("y:number", "label"), ("p:number", "score")])
def test_a_field_of_the_label_or_the_score_is_refused(rows, field, role):
    with pytest.raises(InputError, match=f"derived from the {role}"):
        mcnet.scan(rows, score="p", label="y", field=field)


def test_a_tracker_learns_and_keeps_derived_fields(rows, tmp_path):
    tracker = mcnet.Tracker()
    whole = mcnet.scan(rows, score="p", label="y", field=["age:number", "ts:hour"])
    for day in range(4):
        part = mcnet.scan(rows[day::4], score="p", label="y", field=["age:number", "ts:hour"], like=whole)
        tracker.update_sketch(part, f"2026-11-{10 + day}")
    tracker.save(tmp_path / "tracker.mcnet")
    again = mcnet.Tracker.load(tmp_path / "tracker.mcnet")
    field = {"age": rows["age"][:20], "ts": rows["ts"][:20]}
    np.testing.assert_array_equal(tracker.predict(rows["p"][:20], field), again.predict(rows["p"][:20], field))
    assert again.model_.contexts.edges == whole.contexts.edges


def test_a_journal_keeps_the_edges_of_its_first_rows(rows, tmp_path):
    rows = rows.drop_nulls()
    rows[:2000].write_parquet(tmp_path / "a.parquet")
    rows[2000:].write_parquet(tmp_path / "b.parquet")
    options = {"score": "p", "label": "y", "time": "ts", "every": "1d", "field": FIELDS}
    journal = mcnet.Journal(tmp_path / "ads.db")
    journal.add_files(tmp_path / "a.parquet", **options)
    edges = journal.edges()
    journal.add_files(tmp_path / "b.parquet", **options)
    assert mcnet.Journal(tmp_path / "ads.db").edges() == edges == journal.sketch().contexts.edges
    assert journal.sketch().rows == len(rows)
    with pytest.raises(InputError, match="only the same bins"):
        journal.add(mcnet.scan(rows[:500], score="p", label="y", field=FIELDS), "2026-11-01")


def test_the_service_cuts_what_a_request_sends(rows, model, tmp_path):
    pytest.importorskip("starlette", reason="starlette is not installed: pip install '.[serve]'")
    import json

    from mcnet.operations.service.calibrate import answer_json
    from mcnet.operations.service.served import Served
    from mcnet.store.versions import Registry

    class Numbers:
        def count_rows(self, *_):
            pass

        add = count_rows

    version = Registry(tmp_path / "ads.db").add(model, "first")
    served, moment = Served(version, model), "2026-11-16T07:30:00Z"
    expected = model.predict_one(0.2, (33.0, moment, moment))

    def asked(question):
        return json.loads(answer_json(served, json.dumps(question).encode(), 100, Numbers()))["calibrated"]

    seconds = int(datetime(2026, 11, 16, 7, 30, tzinfo=UTC).timestamp())
    assert asked({"score": [0.2] * 20, "field": {"age": [33] * 20, "ts": [moment] * 20}}) == [expected] * 20
    assert asked([{"score": 0.2, "age": 33, "ts": moment, "other": 1}]) == [expected]
    assert asked([{"score": 0.2, "age": 33.0, "ts": seconds}]) == [expected]
    assert asked({"score": [0.2], "field": {"age:number": [33], "ts:hour": [moment], "ts:weekday": [moment]}}) == [
        expected
    ]
    with pytest.raises(InputError, match="age is not a number in row 0: 'old'"):
        asked({"score": [0.2], "field": {"age": ["old"], "ts": [moment]}})


def test_apply_adds_the_same_probability_to_files_of_every_kind(rows, model, tmp_path):
    from mcnet.model.apply import apply_to_files

    some = rows[:200]
    expected = model.predict(some["p"], {"age": some["age"], "ts": some["ts"]})
    some.write_csv(tmp_path / "a.csv")
    some.write_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        apply_to_files(model, tmp_path / name, tmp_path / "out.parquet", score="p")
        out = pl.read_parquet(tmp_path / "out.parquet")
        np.testing.assert_array_equal(out["calibrated"], expected)
        assert out["age"].dtype == pl.Float64


def test_mlflow_takes_the_columns_that_fields_are_derived_from(rows, model):
    from mcnet.mlflow import PyfuncCalibrator

    served = PyfuncCalibrator(model).predict(rows[:10].to_pandas())
    expected = model.predict(rows["p"][:10], {"age": rows["age"][:10], "ts": rows["ts"][:10]})
    np.testing.assert_array_equal(served["calibrated"], expected)


def test_sql_c_and_onnx_cut_what_the_rows_have(rows, tmp_path):
    import shutil
    import subprocess

    from mcnet.export import export_model

    for names in (["age:number"], ["age:number", "ts:weekday", "ts:hour"], ["age:number", "ts:hour-of-week"]):
        cut = mcnet.scan(rows, score="p", label="y", field=names, bins=4)
        model = mcnet.BayesMCNet(isotonic_share=0.0).fit_sketch(cut).model_
        some = rows[:60]
        expected = model.predict(some["p"], {"age": some["age"], "ts": some["ts"]} if len(names) > 1 else some["age"])
        seconds = [None if t is None else int(t.replace(tzinfo=UTC).timestamp()) for t in some["ts"]]
        duckdb = pytest.importorskip("duckdb")
        for form in ("tables",) if "ts:hour-of-week" in names else ("case", "tables"):
            export_model(model, tmp_path / "m.sql", dialect="duckdb", source="log", score="p", form=form)
            connection = duckdb.connect()
            connection.register("log", some.to_arrow())
            found = pl.from_arrow(connection.sql((tmp_path / "m.sql").read_text()).to_arrow_table()).sort("p")
            np.testing.assert_allclose(found["calibrated"], expected[some["p"].arg_sort().to_numpy()], rtol=1e-12)
        runtime = pytest.importorskip("onnxruntime")
        pytest.importorskip("onnx")
        export_model(model, tmp_path / "m.onnx")
        inputs = {"score": some["p"].to_numpy(), "age": some["age"].fill_null(float("nan")).to_numpy()}
        if len(names) > 1:
            inputs["ts"] = np.array([-(2**63) if second is None else second for second in seconds])
        (result,) = runtime.InferenceSession(tmp_path / "m.onnx").run(None, inputs)
        np.testing.assert_allclose(result, expected, rtol=1e-12)
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            continue
        export_model(model, tmp_path / "m.h")
        cut = [f"mcnet_cut_field_{name.replace(':', '_').replace('-', '_')}" for name in names]
        given = [f"{cut[0]}(age)", *(f"{one}(ts)" for one in cut[1:])]
        (tmp_path / "m.c").write_text(
            '#include <stdio.h>\n#include <math.h>\n#include "m.h"\nint main(void) {\n'
            "double score, age; long long ts;\n"
            'while (scanf("%lf %lf %lld", &score, &age, &ts) == 3)\n'
            f'printf("%.17g\\n", mcnet_calibrate(score, mcnet_context({", ".join(given)})));\nreturn 0;\n}}\n'
        )
        subprocess.run([compiler, "-std=c99", "-o", tmp_path / "m", tmp_path / "m.c", "-lm"], check=True)
        lines = [
            f"{p!r} {'nan' if age is None else repr(age)} {-1 if second is None else second}"
            for p, age, second in zip(some["p"], some["age"], seconds, strict=True)
        ]
        done = subprocess.run([tmp_path / "m"], input="\n".join(lines), capture_output=True, text=True, check=True)
        np.testing.assert_array_equal([float(line) for line in done.stdout.split()], expected)
