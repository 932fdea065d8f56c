"""Every attack by its name."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
from tests.fuzz.loop_kills import loop_kills

import mcnet
from mcnet.calibrators.training_state import state_path
from mcnet.errors import CalibrationWarning, FileFormatError, McnetError
from mcnet.model.apply import apply_to_files
from mcnet.model.model_file import checksum
from mcnet.rows.csv_files import canonical_csv_text
from mcnet.store.journal import Journal

SPELLINGS = (
    *("7", "007", "7.0", "7.50", "012", "1e5", "100000", "0.00001", "-0.0", "0", "+1", "1_000", "0x1F", "1,5"),
    *("true", "True", "FALSE", "nan", "NaN", "inf", "None", "null", "NULL", "", " ", " a", "a ", "N/A", "-", '"', "'"),
    *("2024-05-01", "2024-05-01T00:00:00", "12:30", "é", "e\u0301", "日本", "🇳🇱", "a,b", 'a"b', "a\tb", "a\nb", "a;b"),
    *("=1+1", "\\N", "#", "//", "a'b", "a%b", "A", "a", "ſ", "\u200b", "x" * 300, "9007199254740993", "1" * 40),
)
QUICK = ("base", "histogram", "isotonic", "platt", "temperature", "beta", "gaussian", "gamma", "sir", "platt-field")


def _quiet(function, *given, **named):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return function(*given, **named)


def _rows(rng, number):
    score = rng.random(number) ** rng.choice([1.0, 4.0])
    return score, (rng.random(number) < score).astype(float)


def formats(rng, folder):
    """A model fitted from a file calibrates that file as `predict` calibrates its columns, whatever the values."""
    kind = rng.choice(["csv", "tsv", "parquet", "arrow", "csv.gz"])
    number = int(rng.integers(200, 600))
    score, label = _rows(rng, number)
    values = list(rng.choice(np.array(SPELLINGS, dtype=object), int(rng.integers(1, 6)), replace=False))
    field = [str(rng.choice(np.array(values, dtype=object))) for _ in range(number)]
    frame = pl.DataFrame({"score": score, "label": label, "zone": pl.Series(field, dtype=pl.String)})
    path, out = folder / f"log.{kind}", folder / f"out.{kind.removesuffix('.gz')}"
    if kind == "parquet":
        frame.write_parquet(path)
    elif kind == "arrow":
        frame.write_ipc(path)
    else:
        text = frame.write_csv(separator="\t" if kind == "tsv" else ",")
        if kind.endswith(".gz"):
            import gzip

            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text)
    calibrator = _quiet(mcnet.PlattField().fit_sketch, mcnet.scan(path, score="score", label="label", field="zone"))
    _quiet(apply_to_files, calibrator.model_, path, out, score="score")
    read = pl.read_parquet(out) if kind == "parquet" else pl.read_ipc(out) if kind == "arrow" else None
    if read is None:
        read = pl.read_csv(out, separator="\t" if kind == "tsv" else ",", infer_schema=False)
    column = pl.Series(field, dtype=pl.String)
    if kind not in ("parquet", "arrow"):
        # Text files have no types: a field value has the canonical text that the page about sketches describes.
        column = pl.select(canonical_csv_text(pl.lit(column))).to_series().rename("zone")
    given = calibrator.predict(score, field=column)
    found = read["calibrated"].cast(pl.Float64).to_numpy()
    assert np.array_equal(found, given), (kind, values)
    out.unlink()
    return kind


def _mutated(rng, data):
    changed = bytearray(data)
    how = rng.choice(["flip", "flip", "cut", "zero", "insert"])
    place = int(rng.integers(len(changed)))
    if how == "flip":
        changed[place] ^= 1 << int(rng.integers(8))
    elif how == "cut":
        del changed[place : place + int(rng.integers(1, 50))]
    elif how == "zero":
        changed[place : place + 8] = bytes(len(changed[place : place + 8]))
    else:
        changed[place:place] = rng.bytes(int(rng.integers(1, 20)))
    return bytes(changed)


def _saved(rng, folder, kind):
    score, label = _rows(rng, 300)
    field = rng.choice(["NL", "FR"], 300)
    path = folder / ("it.parquet" if kind == "sketch" else "it.json")
    if kind == "sketch":
        mcnet.Sketch.from_rows(score, label, field=field).save(path)
    else:
        _quiet(mcnet.BayesMCNet().fit, score, label, field=field).save(path)
    return path


def damaged_files(rng, folder):
    """A damaged model or sketch is refused with one clear error, or is not damaged in anything that counts."""
    kind = str(rng.choice(["model", "sketch"]))
    path = _saved(rng, folder, kind)
    load = mcnet.load if kind == "model" else mcnet.Sketch.load
    whole = load(path)
    probe = rng.random(50), rng.choice(["NL", "FR", "XX"], 50)
    for _ in range(20):
        path.write_bytes(_mutated(rng, (folder / path.name).read_bytes()))
        try:
            found = load(path)
        except FileFormatError:
            _saved_again(whole, path)
            continue
        if kind == "sketch":
            assert found == whole
        else:
            assert np.array_equal(found.predict(*probe), whole.predict(*probe))
        _saved_again(whole, path)
    return kind


def damaged_states(rng, folder):
    """A training state, or a tracker, in which anything was altered is refused, or goes on as it would have."""
    score, label = _rows(rng, 300)
    field = rng.choice(["NL", "FR"], 300)
    kind, probe = str(rng.choice(["training state", "tracker"])), (rng.random(50), rng.choice(["NL", "FR", "XX"], 50))
    if kind == "tracker":
        tracker = mcnet.Tracker(method="platt-field").update(score, label, field=field, period=1)
        tracker.save(folder / "it")
        files, load, expected = sorted((folder / "it").iterdir()), lambda: mcnet.Tracker.load(folder / "it"), tracker
    else:
        expected = _quiet(mcnet.BayesMCNet(bins=4).fit, score, label, field=field)
        expected.save(folder / "it.json", training_state=True)
        files, load = [state_path(folder / "it.json")], lambda: mcnet.BayesMCNet.resume(folder / "it.json")
    for _ in range(20):
        path = files[int(rng.integers(len(files)))]
        whole = path.read_bytes()
        path.write_bytes(_mutated(rng, whole))
        with suppress(FileFormatError):
            assert np.array_equal(load().predict(*probe), expected.predict(*probe))
        path.write_bytes(whole)
    return kind


def _saved_again(thing, path):
    path.unlink()
    thing.save(path)


def forged_models(rng, folder):
    """A model file altered by someone who renews its checksum is refused, or still keeps its promises."""
    path = _saved(rng, folder, "model")
    document = json.loads(path.read_text())
    places = list(_places(document))
    for _ in range(int(rng.integers(1, 3))):
        holder, key = places[int(rng.integers(len(places)))]
        junk = [None, [], {}, -1, 1e308, "x", True, [[]], 0.5, 10**30, holder[key] if rng.random() < 0.5 else 2]
        holder[key] = junk[int(rng.integers(len(junk)))]
    document["checksum"] = checksum(document)
    path.write_text(json.dumps(document))
    try:
        model = mcnet.load(path)
    except McnetError:
        return "refused"
    grid = np.linspace(0.0, 1.0, 300)
    kind = model.score_type
    given = grid if kind == "probability" else grid * 10 - 5
    for value in ("NL", "FR", "XX"):
        field = [value] * len(grid) if model.fields else None
        p = model.predict(given, field, score_type=kind)
        assert ((p > 0.0) & (p < 1.0)).all()
        if model.monotone:
            assert (np.diff(p) >= 0.0).all()
    return "kept its promises"


def _places(node):
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield node, key
        yield from _places(value)


def weights(rng, folder):
    """Any weights that a float can hold give a valid curve or one clear error."""
    number = int(rng.integers(2, 400))
    score, label = _rows(rng, number)
    scale = 10.0 ** rng.uniform(-300, 300)
    weight = scale * rng.choice([np.ones(number), rng.random(number), 10.0 ** rng.uniform(-5, 5, number)])
    method = str(rng.choice([*QUICK, "per-field", "neucalib", "mcnet-bayes"]))
    field = rng.choice(["NL", "FR", "DE"], number) if method in ("platt-field", "per-field", "mcnet-bayes") else None
    try:
        fitted = _quiet(mcnet.calibrator(method).fit, score, label, field=field, weight=weight)
    except McnetError:
        return f"{method}: refused"
    p = fitted.predict(np.linspace(0, 1, 100), None if field is None else ["NL"] * 100)
    assert ((p > 0.0) & (p < 1.0)).all(), (method, scale)
    assert not fitted.monotone or (np.diff(p) >= 0.0).all(), (method, scale)
    return method


def weights_over_time(rng, folder):
    """Rows of any weight are judged, followed and watched, or refused with one clear error."""
    number = int(rng.integers(20, 300))
    score, label = _rows(rng, number)
    field = rng.choice(["NL", "FR"], number)
    weight = 10.0 ** rng.uniform(-320, 308) * rng.choice([np.ones(number), 10.0 ** rng.uniform(-5, 5, number)])
    use = str(rng.choice(["evaluate", "tracker", "monitor", "journal"]))
    try:
        sketch = _quiet(mcnet.Sketch.from_rows, score, label, field=field, weight=weight)
        if use == "evaluate":
            found = mcnet.evaluate(score, label, field=field, weight=weight)
            assert not label.any() or np.isfinite([found.log_loss, found.brier, found.pcoc]).all(), weight[:3]
        elif use == "tracker":
            tracker = _quiet(mcnet.Tracker(method="platt-field").update_sketch, sketch, 1)
            p = _quiet(tracker.update_sketch, sketch, 2).predict(np.linspace(0, 1, 50), ["NL"] * 50)
            assert ((p > 0.0) & (p < 1.0)).all(), weight[:3]
            assert (np.diff(p) >= 0.0).all(), weight[:3]
        elif use == "monitor":
            mcnet.Monitor().update(sketch, 1)
        else:
            journal = Journal(folder / "journal")
            journal.add(sketch, 1)
            assert journal.sketch() == sketch
    except McnetError:
        return f"{use}: refused"
    return use


def merged_shards(rng, folder):
    """Shards in any order add up to the whole, and a permutation changes nothing."""
    number = int(rng.integers(1, 3000))
    score, label = _rows(rng, number)
    field = rng.choice(np.array(SPELLINGS, dtype=object), number)
    weight = rng.integers(0, 5, number).astype(float)
    weight[0] = 1.0
    whole = mcnet.Sketch.from_rows(score, label, field=field, weight=weight)
    order = rng.permutation(number)
    assert mcnet.Sketch.from_rows(score[order], label[order], field=field[order], weight=weight[order]) == whole
    part = np.sort(rng.integers(0, 4, number))
    shards = [
        mcnet.Sketch.from_rows(score[i], label[i], field=field[i], weight=weight[i])
        for i in (part == k for k in rng.permutation(4))
        if weight[i].any()
    ]
    assert sum(shards) == whole
    return "shards"


def adjacent_scores(rng, folder):
    """Within a context the next larger score never gets a lower probability, seen together or not."""
    number = 4000
    score, label = _rows(rng, number)
    sizes = (int(rng.integers(2, 40)), int(rng.integers(2, 40)))
    fields = {"a": rng.integers(0, sizes[0], number), "b": rng.integers(0, sizes[1], number)}
    fitted = _quiet(mcnet.BayesMCNet(isotonic_share=float(rng.choice([0.0, 0.3]))).fit, score, label, field=fields)
    base = rng.random(2000)
    ladder = np.sort(np.concatenate([base, np.nextafter(base, 1.0), np.nextafter(np.nextafter(base, 1), 1)]))
    for _ in range(5):
        pair = {"a": int(rng.integers(-1, sizes[0])), "b": int(rng.integers(-1, sizes[1]))}
        p = fitted.predict(ladder, {name: np.full(len(ladder), value) for name, value in pair.items()})
        assert (np.diff(p) >= 0.0).all(), pair
        one = int(rng.integers(len(ladder)))
        assert fitted.predict_one(float(ladder[one]), pair) == p[one]
    return "contexts"


def journals(rng, folder):
    """Any sequence of additions, removals and compactions counts each source and period once."""
    journal, expected = Journal(folder / f"journal-{rng.integers(1 << 40)}"), {}
    for _ in range(int(rng.integers(1, 10))):
        period, source = int(rng.integers(5)), str(rng.choice(list("ab")))
        sketch = mcnet.Sketch.from_rows(*_rows(rng, 10))
        if (period, source) in expected and rng.random() < 0.3:
            journal.remove(source, period)
            del expected[period, source]
        else:
            journal.add(sketch, period, source=source, replace=True)
            expected[period, source] = sketch
    if expected:
        journal.compact(before=6)
        assert journal.sketch() == sum(expected.values())
    assert journal.verify() == []
    return "journals"


def signals(rng, folder):
    """A command that is ended at any moment leaves the output as it was, and no part of a new one."""
    score, label = _rows(rng, 200_000)
    log, model, out = folder / "log.parquet", folder / "model.json", folder / "out.parquet"
    pl.DataFrame({"score": score, "label": label}).write_parquet(log)
    mcnet.Platt().fit(score[:1000], label[:1000]).save(model)
    out.write_bytes(b"mine")
    how = rng.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
    command = [sys.executable, "-m", "mcnet", "apply", str(model), str(log), "-o", str(out)]
    command += ["--score", "score", "--force"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(float(rng.uniform(0.5, 3.0)))  # not before Python itself has started
    process.send_signal(how)
    said = process.communicate(timeout=60)[1].decode()
    if out.read_bytes() != b"mine":
        assert pl.read_parquet(out).height == 200_000
    if how != signal.SIGKILL:
        assert not [name for name in os.listdir(folder) if name.endswith(".part")], os.listdir(folder)
        assert "Traceback" not in said, said
    return signal.Signals(how).name


ATTACKS = {
    function.__name__: function
    for function in (
        *(formats, damaged_files, damaged_states, forged_models, weights, weights_over_time, merged_shards),
        *(adjacent_scores, journals, signals, loop_kills),
    )
}


def run_once(name: str, seed: int, folder: Path) -> str:
    """Try one case of an attack and return what it met."""
    return ATTACKS[name](np.random.default_rng([seed, sorted(ATTACKS).index(name)]), folder)
