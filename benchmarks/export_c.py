"""The C header on one core, against copying the array and against predict: python -m benchmarks.export_c."""

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.measure import in_turn, machine
from benchmarks.report import keep_printed
from mcnet.curves.curves import Curves
from mcnet.export import export_model
from mcnet.model.model import CalibrationModel
from mcnet.rows.contexts import Contexts

# Small enough that a turn is over before the system takes the core away, and that the arrays stay in the cache.
ROWS = 50_000

_SOURCE = """
#include "model.h"
void calibrate(const double *scores, const int32_t *contexts, double *out, size_t n) {
    mcnet_calibrate_many(scores, contexts, out, n);
}
void copy(const double *scores, const int32_t *contexts, double *out, size_t n) {
    size_t i;
    (void)contexts;
    for (i = 0; i < n; i++) out[i] = scores[i];
}
"""


def smooth_model(contexts: int, knots: int) -> CalibrationModel:
    """Return a model of curves that differ in all their knots, as per-field fits do."""
    generator = np.random.default_rng(3)
    pairs = []
    for _ in range(contexts + 1):
        logits = np.sort(generator.uniform(-12.0, 2.0, knots))
        moved = logits * generator.uniform(0.8, 1.2) + generator.normal(0.0, 0.3)
        pairs.append((1.0 / (1.0 + np.exp(-logits)), 1.0 / (1.0 + np.exp(-moved))))
    values = tuple(sorted(map(str, range(contexts))))
    known = Contexts(("advertiser",), (values,), np.arange(contexts, dtype=np.int32)[:, None])
    return CalibrationModel("per-field", {}, known, Curves.of(pairs))


def compiled(model: CalibrationModel, folder: Path, *flags: str) -> ctypes.CDLL:
    """Return the exported model as a loaded library."""
    export_model(model, folder / "model.h")
    (folder / "model.c").write_text(_SOURCE)
    target = folder / f"model-{len(model.curves)}.so"
    command = ["gcc", "-std=c99", *flags, "-shared", "-fPIC", "-o", str(target), str(folder / "model.c")]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(target))


def measure(contexts: int, knots: int) -> None:
    model = smooth_model(contexts, knots)
    generator = np.random.default_rng(1)
    scores = 1.0 / (1.0 + np.exp(4.0 - 1.5 * generator.standard_normal(ROWS)))
    # A few contexts have most of the traffic, as countries and advertisers do.
    shares = 1.0 / np.arange(1, contexts + 1)
    codes = generator.choice(contexts, ROWS, p=shares / shares.sum()).astype(np.int32)
    values = model.contexts.columns(codes) if model.fields else None
    out = np.empty(ROWS)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (scores, codes, out)]
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(model, Path(folder), "-O2")
        size = (Path(folder) / "model.h").stat().st_size

        def call(function: Callable[..., None]) -> Callable[[], None]:
            return lambda: function(*pointers, ctypes.c_size_t(ROWS))

        times = in_turn(
            {
                "copy": call(library.copy),
                "calibrate": call(library.calibrate),
                "predict": lambda: model.predict(scores, values),
            },
            repeats=300,
        )
        library.calibrate(*pointers, ctypes.c_size_t(ROWS))
    same = np.array_equal(out, model.predict(scores, values))
    rate = ROWS / times["calibrate"] / 1e6
    over_copy, under_predict = times["calibrate"] / times["copy"], times["predict"] / times["calibrate"]
    print(
        f"{contexts:>5,} contexts × {knots:>5,} knots   {rate:6.1f} M scores/s   {1e3 / rate:5.1f} ns a score   "
        f"{over_copy:5.1f}× a copy   predict takes {under_predict:.1f} of it   "
        f"header {size / 1e6:5.2f} MB   {'bit-identical' if same else 'DIFFERENT BITS'}"
    )


def tables(full: bool) -> None:
    print(f"C header, gcc -O2, one core, {ROWS:,} random scores in random contexts")
    for contexts, knots in [(1, 500), (4, 500), (4, 2_000), (200, 300)] + [(1_000, 300)] * full:
        measure(contexts, knots)


def main(full: bool = False) -> None:
    keep_printed("export_c", "The C header", lambda: tables(full), full)


if __name__ == "__main__":
    print(machine())
    tables(full=True)
