"""Rows that are not in plain files: object stores, partitioned folders, lakes, JSONL, standard input."""

import gzip
import http.server
import io
import json
import os
import ssl
import subprocess
import sys
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from urllib.parse import unquote

import polars as pl
import pytest
from tests.rows.partitioned_rows import EXPECTED, NAMES, ROWS

import mcnet
from mcnet.model.apply import apply_to_files
from mcnet.rows.locations import FORMATS, LakeTable, RemoteFile, read_with, standard_input
from mcnet.rows.logs import expand_paths, open_log
from mcnet.rows.spec import RowSpec
from mcnet.sketch.scan import sketch_files


def _put(client, name, frame, write="write_parquet"):
    buffer = io.BytesIO()
    getattr(frame, write)(buffer)
    client.put_object(Bucket="logs", Key=name, Body=buffer.getvalue())


def test_an_object_store_is_read(s3):
    settings, client = s3
    _put(client, "one.parquet", ROWS)
    _put(client, "one.csv", ROWS, "write_csv")
    _put(client, "parts/dt=2026-11-15/a.parquet", ROWS[:2].drop("dt"))
    _put(client, "parts/dt=2026-11-16/b.parquet", ROWS[2:].drop("dt"))
    _put(client, "v1.2/a.parquet", ROWS)
    for address in ("one.parquet", "one.csv", "parts/", "parts/*/*.parquet", "v1.2/"):
        found = mcnet.scan(f"s3://logs/{address}", storage_options=settings, **NAMES)
        assert found == EXPECTED, address
    by_day = {**NAMES, "field": "dt"}
    assert mcnet.scan("s3://logs/parts/", storage_options=settings, **by_day) == mcnet.scan(ROWS, **by_day)
    one = mcnet.scan("s3://logs/parts/", storage_options=settings, where="dt = '2026-11-15'", **NAMES)
    assert one == mcnet.scan(ROWS[:2], **NAMES)


def test_a_log_in_an_object_store_is_calibrated_into_it(s3):
    settings, client = s3
    _put(client, "raw.parquet", ROWS)
    model = mcnet.calibrator("platt").fit_sketch(EXPECTED.pooled()).model_
    with read_with(storage_options=settings):
        assert apply_to_files(model, "s3://logs/raw.parquet", "s3://logs/out/calibrated.parquet", score="p").rows == 6
        written = open_log("s3://logs/out/calibrated.parquet").collect()
    assert written["calibrated"].to_list() == model.predict(ROWS["p"]).tolist()
    assert written.drop("calibrated").equals(ROWS)


def test_partitions_that_a_condition_leaves_out_are_not_read_from_an_object_store(s3):
    settings, client = s3
    _put(client, "pruned/dt=2026-11-15/a.parquet", ROWS[:2].drop("dt"))
    client.put_object(Bucket="logs", Key="pruned/dt=2026-11-16/b.parquet", Body=b"no Parquet at all")
    found = mcnet.scan("s3://logs/pruned/", storage_options=settings, where="dt = '2026-11-15'", **NAMES)
    assert found == mcnet.scan(ROWS[:2], **NAMES)
    with pytest.raises(mcnet.FileFormatError):
        mcnet.scan("s3://logs/pruned/", storage_options=settings, **NAMES)


def test_what_is_kept_on_a_disk_is_refused_in_an_object_store(s3, tmp_path, monkeypatch):
    settings, client = s3
    monkeypatch.chdir(tmp_path)
    EXPECTED.save(tmp_path / "sketch.parquet")
    client.put_object(Bucket="logs", Key="sketch.parquet", Body=(tmp_path / "sketch.parquet").read_bytes())
    address = "s3://logs/sketch.parquet"
    with read_with(storage_options=settings), pytest.raises(mcnet.InputError, match="a saved sketch is kept on a disk"):
        sketch_files(expand_paths(address), RowSpec())
    model = mcnet.calibrator("platt").fit_sketch(EXPECTED.pooled()).model_
    for use in (
        lambda: mcnet.Sketch.load(address),
        lambda: EXPECTED.save(address),
        lambda: mcnet.Journal("s3://logs/journal"),
        lambda: mcnet.Registry("s3://logs/registry"),
        lambda: model.save("gs://logs/model.json"),
        lambda: mcnet.load("az://logs/model.json"),
    ):
        with pytest.raises(mcnet.InputError, match=r"is an address, and .* is kept on a disk"):
            use()
    assert [path.name for path in tmp_path.iterdir()] == ["sketch.parquet"]


def test_what_is_not_in_an_object_store_is_one_error(s3):
    settings, _ = s3
    with pytest.raises(mcnet.FileFormatError, match=r"s3://logs/nowhere.parquet cannot be read"):
        mcnet.scan("s3://logs/nowhere.parquet", storage_options=settings, **NAMES)
    with pytest.raises(mcnet.InputError, match=r"there is no file at s3://logs/nowhere/$"):
        mcnet.scan("s3://logs/nowhere/", storage_options=settings, **NAMES)


@pytest.fixture
def certificate(tmp_path):
    """Return a file with a key and a certificate for 127.0.0.1 that no authority has signed."""
    x509 = pytest.importorskip("cryptography.x509", reason="cryptography is not installed: pip install cryptography")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, today = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "server.pem").write_bytes(private + signed.public_bytes(pem))
    return tmp_path / "server.pem"


@contextmanager
def served(files, certificate=None):
    """Serve files, by their last names, on a port of this machine, in parts if asked to; give the address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self):
            self._answer(send=False)

        def do_GET(self):
            self._answer(send=True)

        def _answer(self, *, send):
            content = files[unquote(self.path).rpartition("/")[2]]
            wanted = self.headers.get("Range")
            if wanted:
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                begin = int(first) if first else max(0, len(content) - int(last))
                end = min(int(last) if last and first else len(content) - 1, len(content) - 1)
                part = content[begin : end + 1]
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {begin}-{end}/{len(content)}")
            else:
                part = content
                self.send_response(200)
            self.send_header("Content-Length", str(len(part)))
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Mon, 16 Nov 2026 00:00:00 GMT")
            self.end_headers()
            if send:
                self.wfile.write(part)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        safe = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        safe.load_cert_chain(certificate)
        server.socket = safe.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http{'' if certificate is None else 's'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def written(write):
    """Return the rows as a file of a format."""
    buffer = io.BytesIO()
    getattr(ROWS, write)(buffer)
    return buffer.getvalue()


def test_a_web_server_is_read(certificate, tmp_path):
    code = f"import mcnet, sys; mcnet.scan(sys.argv[1], **{NAMES!r}).save('sketch.parquet')"
    for signed in (None, certificate):
        with served({"log.parquet": written("write_parquet")}, signed) as server:
            # Certificates are read when a process first needs them: one of its own trusts this one.
            environment = {**os.environ, "SSL_CERT_FILE": str(certificate), "PYTHONPATH": os.pathsep.join(sys.path)}
            command = [sys.executable, "-c", code, f"{server}/log.parquet"]
            subprocess.run(command, check=True, timeout=120, env=environment, cwd=tmp_path)
            assert mcnet.Sketch.load(tmp_path / "sketch.parquet") == EXPECTED


@pytest.mark.parametrize("folder", ["gs://logs", "az://logs", "abfss://logs@account.dfs.core.windows.net"])
def test_the_stores_of_google_and_microsoft_are_read(folder):
    """A server of files answers what Polars asks of them; folders and globs would need more of it."""
    files = {"a.parquet": "write_parquet", "a.csv": "write_csv", "a.jsonl": "write_ndjson"}
    with served({name: written(write) for name, write in files.items()}) as server:
        if folder.startswith("gs:"):
            key = {"gcs_base_url": server, "disable_oauth": True, "client_email": "", "private_key": ""}
            settings = {"google_service_account_key": json.dumps({**key, "private_key_id": ""})}
        else:
            settings = {"azure_storage_account_name": "account", "azure_endpoint": server}
            settings |= {"azure_skip_signature": "true"}
        for name in files:
            found = mcnet.scan(f"{folder}/{name}", storage_options={**settings, "allow_http": "true"}, **NAMES)
            assert found == EXPECTED


def test_jsonl_is_read(tmp_path):
    later = pl.DataFrame({"p": [0.5] * 12_000, "y": [0] * 12_000, "site": ["a"] * 12_000, "w": [1.0] * 11_999 + [0.5]})
    for name in ("log.jsonl", "log.ndjson", "log.jsonl.gz"):
        buffer = io.BytesIO()
        ROWS.write_ndjson(buffer)
        content = buffer.getvalue()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        assert mcnet.scan(tmp_path / name, **NAMES) == EXPECTED
    text = "".join(f'{{"p": 0.5, "y": 0, "w": {1 if row < 11_999 else 0.5}}}\n' for row in range(len(later)))
    (tmp_path / "weights [1].jsonl").write_text(text, encoding="utf-8")
    found = mcnet.scan(tmp_path / "weights [1].jsonl", score="p", label="y", weight="w")
    assert found.total_weight == 11_999.5
    text = '{"p": 0.5, "y": 0, "site": null}\n' * 11_999 + '{"p": 0.5, "y": 0, "site": "x"}\n'
    (tmp_path / "late.jsonl").write_text(text, encoding="utf-8")
    assert mcnet.scan(tmp_path / "late.jsonl", **NAMES).contexts.values == (("x", None),)


MIXED = {
    "a number and its string": (
        ["1.50", '"1.50"'],
        "the number 1.5 in line 1",
        "'1.50' would be another value than '1.5'",
    ),
    "a string and a later number": (['"007"'] * 12_000 + ["7"], "the number 7 in line 12001", "'007' would be another"),
    "a number that is a string in another notation": (
        ["1e-7", '"NL"'],
        "the number 1e-07 in line 1",
        "'0.0000001' would",
    ),
    "a boolean and its string": (
        ['"True"', "true"],
        "the boolean true in line 2",
        "'True' would be another value than",
    ),
}


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
@pytest.mark.parametrize("case", MIXED)
def test_a_field_of_jsonl_in_which_one_value_would_become_two_is_refused(tmp_path, case, ending):
    values, where, message = MIXED[case]
    text = "".join(f'{{"p": 0.5, "y": 0, "o": {{"site": 7}}, "site": {value}}}\n' for value in values)
    path = tmp_path / f"log{ending}"
    path.write_bytes(gzip.compress(text.encode()) if ending.endswith(".gz") else text.encode())
    with pytest.raises(mcnet.InputError, match=rf"^site is {where} of .*log.jsonl.*{message}") as caught:
        mcnet.scan(path, **NAMES)
    assert "\n" not in str(caught.value)
    model = mcnet.PlattField().fit([0.1, 0.2, 0.3], [0, 1, 0], field={"site": ["a", "b", "a"]}).model_
    with pytest.raises(mcnet.InputError, match=message):
        apply_to_files(model, path, tmp_path / "out.parquet", score="p")


def test_a_field_of_jsonl_in_which_each_value_stays_one_is_read(tmp_path):
    for values, expected in {
        ("7", '"7"', "1.5", '"NL"', "true", '"true"', "null"): ("1.5", "7", "NL", "true", None),
        ('"1.50"', '"007"', '"True"', '"7.0"'): ("007", "1.50", "7.0", "True"),
    }.items():
        text = "".join(f'{{"p": 0.5, "y": 0, "o": {{"site": 7}}, "site": {value}}}\n' for value in values)
        (tmp_path / "log.jsonl").write_text(text, encoding="utf-8")
        assert mcnet.scan(tmp_path / "log.jsonl", **NAMES).contexts.values == (expected,)


def test_other_separators_are_read(tmp_path):
    ROWS.write_csv(tmp_path / "log.csv", separator=";")
    assert mcnet.scan(tmp_path / "log.csv", separator=";", **NAMES) == EXPECTED
    with pytest.raises(mcnet.InputError, match=r"if ';' separates its columns, pass separator=';'"):
        mcnet.scan(tmp_path / "log.csv", **NAMES)
    with pytest.raises(mcnet.InputError, match="one character"):
        mcnet.scan(tmp_path / "log.csv", separator=";;", **NAMES)


def test_a_delta_table_is_read(tmp_path):
    pytest.importorskip("deltalake", reason="deltalake is not installed: pip install '.[delta]'")
    ROWS[:3].write_delta(tmp_path / "table", delta_write_options={"partition_by": ["dt"]})
    ROWS[3:].write_delta(tmp_path / "table", mode="append")
    assert mcnet.scan(tmp_path / "table", **NAMES) == EXPECTED
    assert mcnet.scan(f"delta:{tmp_path / 'table'}", **NAMES) == EXPECTED
    part = mcnet.scan(tmp_path / "table", where="dt = '2026-11-15'", **NAMES)
    assert part == mcnet.scan(ROWS[:2], **NAMES)


def test_an_iceberg_table_is_read(tmp_path):
    catalogs = pytest.importorskip("pyiceberg.catalog.sql", reason="pyiceberg is not installed: pip install pyiceberg")
    catalog = catalogs.SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")
    try:
        catalog.create_namespace("ads")
        table = catalog.create_table("ads.log", schema=ROWS.to_arrow().schema)
        table.append(ROWS[:3].to_arrow())
        table.append(ROWS[3:].to_arrow())
    finally:
        catalog.close()
    folder = next(path.parent for path in tmp_path.rglob("metadata"))
    assert mcnet.scan(folder, **NAMES) == EXPECTED
    assert mcnet.scan(f"iceberg:{table.metadata_location}", **NAMES) == EXPECTED
    assert mcnet.scan(table.metadata_location, **NAMES) == EXPECTED, "the address that a catalog tells"


def test_paths_are_told_apart(tmp_path):
    expanded = expand_paths(["s3://b/x.parquet"])
    assert expand_paths(expanded) is expanded
    assert expand_paths("s3://b/x.parquet") == (RemoteFile("s3://b/x.parquet"),)
    assert expand_paths("delta:s3://b/table") == (LakeTable("delta", "s3://b/table"),)
    assert expand_paths("https://h/v2.metadata.json") == (LakeTable("iceberg", "https://h/v2.metadata.json"),)
    with pytest.raises(mcnet.InputError, match="there is no file"):
        expand_paths(tmp_path / "nowhere.parquet")


def test_a_path_may_be_written_as_an_address_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ROWS.write_parquet(tmp_path / "log.parquet")
    for address in (f"file://{tmp_path}/log.parquet", f"file:{tmp_path}/log.parquet", f"file://{tmp_path}"):
        assert mcnet.scan(address, **NAMES) == EXPECTED
    EXPECTED.save(f"file://{tmp_path}/sketch.parquet")
    assert mcnet.Sketch.load(f"file://{tmp_path}/sketch.parquet") == EXPECTED
    assert mcnet.Journal(f"file://{tmp_path}/ads.db").path == f"{tmp_path}/ads.db"
    assert not (tmp_path / "file:").exists()


def test_a_csv_file_that_was_cut_at_the_wrong_character_is_told(tmp_path):
    ROWS.write_csv(tmp_path / "log.csv", separator=";")
    with pytest.raises(mcnet.InputError, match="if ';' separates its columns"):
        mcnet.scan(tmp_path / "log.csv", **NAMES)


@pytest.mark.parametrize(
    ("write", "packed"),
    [
        *((write, False) for write in ("write_parquet", "write_ipc", "write_ipc_stream", "write_csv", "write_ndjson")),
        *((write, True) for write in ("write_csv", "write_ndjson")),  # the others pack their columns themselves
    ],
)
def test_standard_input_is_read_whatever_its_format(monkeypatch, write, packed):
    buffer = io.BytesIO()
    getattr(ROWS, write)(buffer)
    content = gzip.compress(buffer.getvalue()) if packed else buffer.getvalue()
    standard_input.cache_clear()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    try:
        assert mcnet.scan("-", **NAMES) == EXPECTED
    finally:
        standard_input.cache_clear()


@pytest.mark.parametrize(
    "start", [b"\x1f\x8b\x07\x00 no gzip", b"\x1f\x8b\x08\x00", b"\xff\xff\xff\xff\x10\x00\x00\x00x"]
)
def test_damaged_standard_input_is_an_error_for_people(monkeypatch, start):
    standard_input.cache_clear()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(start)))
    try:
        with pytest.raises(mcnet.FileFormatError, match=r"standard input is .* and cannot be read"):
            mcnet.scan("-", **NAMES)
    finally:
        standard_input.cache_clear()


def test_missing_values_are_dropped_and_counted(tmp_path):
    rows = pl.DataFrame(
        {
            "p": [0.1, None, 0.3, float("nan"), 0.5, 0.6, 0.7],
            "y": [0, 1, None, 1, 0, 1, 1],
            "w": [1.0, 1.0, 1.0, 1.0, None, 2.0, 0.0],
            "site": ["a", "a", "b", "b", None, None, "a"],
        }
    )
    rows.write_parquet(tmp_path / "log.parquet")
    for given in (rows, rows.lazy(), tmp_path / "log.parquet"):
        found = mcnet.scan(given, weight="w", drop_missing=True, **NAMES)
        assert found == mcnet.scan(rows[[0, 5, 6]], weight="w", **NAMES)
        assert (found.rows, found.dropped_rows) == (2, 4)
    found.save(tmp_path / "sketch.parquet")
    assert mcnet.Sketch.load(tmp_path / "sketch.parquet").dropped_rows == 4
    with pytest.raises(mcnet.InputError, match="missing"):
        mcnet.scan(rows, weight="w", **NAMES)
    with pytest.raises(mcnet.InputError, match=r"p has 1 value outside \[0, 1\] \(first: row 2, 3\)"):
        mcnet.scan(pl.DataFrame({"p": [None, 0.5, 3.0], "y": [1, 0, 1]}), score="p", label="y", drop_missing=True)
    with pytest.raises(mcnet.InputError, match="missing in each of the 2 rows"):
        mcnet.scan(pl.DataFrame({"p": [None, 0.5], "y": [1, None]}), score="p", label="y", drop_missing=True)


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv", "jsonl"])
def test_folders_are_columns_of_a_file_by_one_rule_on_a_disk_and_in_an_object_store(s3, tmp_path, ending):
    settings, client = s3
    write = {"parquet": "write_parquet", "arrow": "write_ipc", "csv": "write_csv", "jsonl": "write_ndjson"}[ending]
    key = f"one-rule-{ending}/dt=2026-11-16/hour=7/part.{ending}"
    rows = ROWS.drop("dt", "hour")
    _put(client, key, rows, write)
    (tmp_path / key).parent.mkdir(parents=True)
    getattr(rows, write)(tmp_path / key)
    model = mcnet.calibrator("platt").fit_sketch(EXPECTED.pooled()).model_
    folder = key.rpartition("/")[0]
    several = {"parquet": [f"{folder.replace('7', '*')}/*.parquet", f"{folder}/", f"{folder.rpartition('/')[0]}/"]}
    for name in (key, *several.get(ending, ())):
        with read_with(storage_options=settings):
            for place, log in enumerate((f"s3://logs/{name}", tmp_path / name)):
                apply_to_files(model, log, tmp_path / f"out-{place}.parquet", score="p")
        remote, local = (pl.read_parquet(tmp_path / f"out-{place}.parquet") for place in range(2))
        assert sorted(remote.columns) == sorted([*rows.columns, "dt", "hour", "calibrated"]), name
        assert remote.select(local.columns).equals(local), name
        assert remote["hour"].to_list() == [7] * 6
        assert remote["dt"].to_list() == ["2026-11-16"] * 6


def test_folders_that_give_no_columns_in_an_object_store_are_said(s3):
    settings, client = s3
    _put(client, "said/dt=2026-11-16/part.csv", ROWS.drop("dt"), "write_csv")
    with read_with(storage_options=settings), pytest.warns(mcnet.CalibrationWarning, match="are no columns"):
        assert "dt" not in open_log("s3://logs/said/dt=*/part.csv").collect_schema()


def test_folders_of_an_object_store_below_folders_of_their_own_are_read_together(s3):
    settings, client = s3
    _put(client, "apart/dt=2026-11-15/hour=0/a.parquet", ROWS[:2].drop("dt", "hour"))
    _put(client, "apart/dt=2026-11-16/hour=0/b.parquet", ROWS[2:].drop("dt", "hour"))
    by_day = {**NAMES, "field": "dt"}
    days = [f"s3://logs/apart/dt=2026-11-{day}/" for day in (15, 16)]
    assert mcnet.scan(days, storage_options=settings, **by_day) == mcnet.scan(ROWS, **by_day)


@pytest.mark.parametrize("form", FORMATS.values(), ids=list(FORMATS))
def test_every_format_is_opened_by_polars_and_every_file_format_written(form):
    assert form.is_csv or form.layout != "lines" or form.engine == "ndjson"
    assert callable(getattr(pl, f"scan_{form.engine}"))
    assert form.layout == "lake" or callable(getattr(pl.LazyFrame, f"sink_{form.engine}"))
