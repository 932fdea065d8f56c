"""Arrow IPC in bulk."""

import io

import numpy as np
import polars as pl
import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[serve]'")
ARROW = "application/vnd.apache.arrow.stream"


def stream(table, **options):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def ask(shared, body, query=""):
    return shared.ask("POST", f"/calibrate{query}", body, Content_Type=ARROW)


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(8)
    return rng.random(200_000), rng.choice(["NL", "FR", "XX"], 200_000)


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary", "chunks"])
def test_columns_of_every_text_type(shared, models, log, kind):
    score, country = log
    texts = pa.array(country.tolist())
    columns = {
        "string": texts,
        "large_string": texts.cast(pa.large_string()),
        "dictionary": texts.dictionary_encode(),
        "chunks": pa.chunked_array([texts[:1000], texts[1000:]]),
    }
    answer = ask(shared, stream(pa.table({"score": score, "country": columns[kind]})))
    assert answer.status == 200, answer.body[:500]
    assert answer.headers["mcnet-version"] == "1"
    found = pa.ipc.open_stream(answer.body).read_all()
    assert found.column_names == ["calibrated"]
    assert (found["calibrated"].to_numpy() == models[0].predict(score, {"country": country})).all()


def test_a_column_of_nothing_but_missing_values_and_one_of_numbers_in_a_dictionary(shared, models):
    for column, meant in ((pa.nulls(2), [None, None]), (pa.array([7, 7]).dictionary_encode(), [7, 7])):
        answer = ask(shared, stream(pa.table({"score": [0.1, 0.2], "country": column})))
        assert answer.status == 200, answer.body
        found = pa.ipc.open_stream(answer.body).read_all()["calibrated"].to_numpy()
        assert (found == models[0].predict([0.1, 0.2], {"country": meant})).all()


def test_a_stream_of_polars_with_missing_values_and_an_interval(shared, models):
    frame = pl.DataFrame({"score": [0.1, 0.2], "country": ["NL", None]})
    buffer = io.BytesIO()
    frame.write_ipc_stream(buffer)
    answer = ask(shared, buffer.getvalue(), "?interval=0.8")
    assert answer.status == 200, answer.body
    found = pl.read_ipc_stream(answer.body)
    low, high = models[0].interval([0.1, 0.2], {"country": ["NL", None]}, 0.8)
    assert found["low"].to_list() == low.tolist()
    assert found["high"].to_list() == high.tolist()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"country": ["NL"]}, "needs score"),
        ({"score": [0.1]}, "needs: country"),
        ({"score": [0.1], "country": ["NL"], "ts": [1]}, "country, ts"),
        ({"score": ["0.1"], "country": ["NL"]}, "must be numbers"),
        ({"score": [None, 0.1], "country": ["NL", "NL"]}, "missing, NaN"),
        ({"score": [0.1, 7.0], "country": ["NL", "NL"]}, "outside"),
        ({"score": [0.1], "country": [["NL"]]}, "list<"),
        ({"score": pa.nulls(1), "country": ["NL"]}, "must be numbers"),
    ],
)
def test_streams_that_cannot_be_answered(shared, table, said):
    answer = ask(shared, stream(pa.table(table)))
    assert answer.status == 400
    assert said in answer.document["detail"]


def test_compressed_and_damaged_streams_are_refused(shared):
    table = pa.table({"score": np.full(2000, 0.1), "country": pa.array(["NL"] * 2000).dictionary_encode()})
    for codec in ("lz4", "zstd"):
        answer = ask(shared, stream(table, compression=codec))
        assert answer.status == 400
        assert "compressed" in answer.document["detail"]
    whole = stream(table)
    for body in (b"", whole[:-500], whole[: len(whole) // 2], b"ARROW1" + whole, whole[3:]):
        assert ask(shared, body).status == 400
    rng = np.random.default_rng(0)
    for _ in range(150):
        damaged = bytearray(whole)
        for place in rng.integers(0, 700, 3):
            damaged[place] = rng.integers(0, 256)
        assert ask(shared, bytes(damaged)).status in (200, 400, 413)


def test_too_many_rows(shared):
    table = pa.table({"score": np.full(500_001, 0.1), "country": pa.array(["NL"] * 500_001).dictionary_encode()})
    assert ask(shared, stream(table)).status == 413


def test_an_unknown_type_of_body(shared):
    answer = shared.ask("POST", "/calibrate", b"a,b", Content_Type="text/csv")
    assert answer.status == 415
    assert ARROW in answer.document["detail"]
