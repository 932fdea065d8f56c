"""Instructions a score in C, counted by callgrind: a figure that a busy machine does not blur."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks import report
from benchmarks.export_c import smooth_model
from mcnet.export import export_model

_SOURCE = """
#include <stdlib.h>
#include "model.h"
int main(int count, char **given) {
    size_t rows = (size_t)atol(given[1]), i;
    double *scores = malloc((rows + 1) * sizeof(double)), *out = malloc((rows + 1) * sizeof(double)), total = 0.0;
    int32_t *contexts = malloc((rows + 1) * sizeof(int32_t));
    unsigned state = 7u;
    (void)count;
    for (i = 0; i < rows; i++) {
        state = state * 1664525u + 1013904223u;
        scores[i] = (double)(state >> 8) / 16777216.0;
        contexts[i] = (int32_t)(state % CONTEXTS);
    }
    if (atol(given[2])) mcnet_calibrate_many(scores, contexts, out, rows);
    else for (i = 0; i < rows; i++) out[i] = scores[i];
    for (i = 0; i < rows; i++) total += out[i];
    return total < 0.0;
}
"""
ROWS = 100_000
SHAPES = ((1, 500), (4, 500), (200, 300))


def installed() -> bool:
    """Tell whether there is what counts and what compiles."""
    return shutil.which("valgrind") is not None and shutil.which("gcc") is not None


def instructions_a_score(contexts: int, knots: int) -> float:
    """Return what calibrating a score takes more than copying it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export_model(smooth_model(contexts, knots), folder / "model.h")
        (folder / "main.c").write_text(_SOURCE)
        flags = ["-O2", "-std=c99", f"-DCONTEXTS={contexts}", "-o", str(folder / "main")]
        subprocess.run(["gcc", *flags, str(folder / "main.c"), "-lm"], check=True)
        return (counted(folder / "main", True) - counted(folder / "main", False)) / ROWS


def counted(program: Path, calibrate: bool) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", str(program), str(ROWS)]
    done = subprocess.run([*command, str(int(calibrate))], capture_output=True, text=True, check=True)
    return int(re.search(r"Collected : (\d+)", done.stderr).group(1))


def main(full: bool = False) -> None:
    if not installed():
        print("  valgrind or gcc is not installed: this section is left out")
        return
    lines = []
    for contexts, knots in SHAPES:
        lines.append([contexts, knots, f"{instructions_a_score(contexts, knots):.1f}"])
        print(lines[-1], flush=True)
    text = "## Instructions\n\nWhat calibrating a score in C takes more than copying it (callgrind, gcc -O2)."
    report.keep("instructions", f"{text}\n\n{report.table(['contexts', 'knots', 'instructions a score'], lines)}", full)
