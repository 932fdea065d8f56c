"""What every runner does: take jobs, fit and predict, say what it cost. Needs NumPy and PyArrow alone.

A job is one line of JSON on standard input: the Parquet files to fit and to predict, the field columns, where the
predictions go. The answer is one line of JSON on standard output.

A method has `fit(rows)` and `predict(rows)`; `rows(table)` turns the columns into what the library takes. Turning is
not timed, nor is a first fit on a few rows, so that imports and compilers are paid for before the clock starts.
"""

import ctypes
import itertools
import json
import pickle
import sys
import time
import traceback
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

WARM_UP = 2_000
ENOUGH = 1.0  # seconds after which a measurement is not repeated
SERVED = 300  # rows asked for one by one, in turn: a server is never asked for the same row again and again


class Columns:
    """The rows of a job as NumPy columns; `fields` holds texts."""

    def __init__(self, score, label, fields):
        """Take the columns as they are."""
        self.score, self.label, self.fields = score, label, fields

    @classmethod
    def read(cls, path, names):
        """Return the columns of a Parquet file."""
        table = pq.read_table(path, columns=["score", "label", *names])
        fields = {name: np.array(table[name].to_pylist(), dtype=str) for name in names}
        return cls(table["score"].to_numpy().astype(np.float64), table["label"].to_numpy().astype(np.int64), fields)

    def part(self, rows):
        """Return the rows of a slice."""
        return Columns(self.score[rows], self.label[rows], {name: text[rows] for name, text in self.fields.items()})

    def first(self, rows):
        """Return the first rows."""
        return self.part(slice(rows))


class Method:
    """A method to be measured; subclasses fill in fit and predict."""

    needs_field = False

    def rows(self, columns):
        """Return the container that the library takes."""
        return columns

    def one(self, columns):
        """Return the container of a single row; libraries may have a handier one for it."""
        return self.rows(columns)

    def fit(self, rows):
        """Fit on rows."""
        raise NotImplementedError

    def predict(self, rows):
        """Return the probability of every row."""
        raise NotImplementedError

    def size(self):
        """Return the bytes of the saved model."""
        return len(pickle.dumps(self.model))


def memory(name):
    """Return VmHWM or VmRSS of this process in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    return float("nan")


def forget_peak():
    """Give free memory back and start the peak anew."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def clock(function, repeats):
    """Return the shortest (wall, CPU) seconds and the last result."""
    best, total = (float("inf"), float("inf")), 0.0
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        result = function()
        took = (time.perf_counter() - wall, time.process_time() - cpu)
        best, total = min(best, took, key=lambda pair: pair[1]), total + took[0]
        if total > ENOUGH:
            break
    return best, result


def latency(method, columns):
    """Return the CPU seconds of predicting one row, the best of a few dozen batches of different rows."""
    served = [method.one(columns.part(slice(row, row + 1))) for row in range(min(SERVED, len(columns.score)))]
    begin = time.process_time()
    method.predict(served[0])
    calls = max(1, min(len(served), int(0.02 / max(time.process_time() - begin, 1e-7))))
    rows = itertools.cycle(served)

    def many():
        for one in itertools.islice(rows, calls):
            method.predict(one)

    return clock(many, 30)[0][1] / calls


def measure(job, make):
    """Return the figures of one job and write its predictions."""
    names = job["fields"]
    train, test = Columns.read(job["fit"], names), Columns.read(job["test"], names)
    if job["warm"]:
        warm = make()
        warm.fit(warm.rows(train.first(WARM_UP)))
        for rows in (1, WARM_UP, 50 * WARM_UP):
            warm.predict(warm.rows(test.first(rows)))
    method = make()
    rows, fresh = method.rows(train), method.rows(test)
    forget_peak()
    before = memory("VmRSS")
    fit, _ = clock(lambda: method.fit(rows), job["repeats"])
    extra = memory("VmHWM") - before
    predict, p = clock(lambda: method.predict(fresh), job["repeats"])
    np.save(job["predictions"], np.asarray(p, dtype=np.float64))
    return {
        "fit": fit[1],
        "fit_wall": fit[0],
        "predict": predict[1] / len(test.score),
        "predict_wall": predict[0] / len(test.score),
        "latency": latency(method, test) if job["latency"] else None,
        "memory": max(extra, 0.0),
        "peak": memory("VmHWM"),
        "bytes": method.size(),
    }


def main(methods, packages):
    """Answer jobs until the input ends; `methods` makes a method by its name."""
    versions = {name: version(name) for name in packages}
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = measure(job, methods[job["method"]])
        except Exception as error:
            traceback.print_exc()
            answer = {"failed": f"{type(error).__name__}: {str(error).strip()[:100]}"}
        print("\n" + json.dumps({"id": job["id"], "versions": versions, **answer}), flush=True)
