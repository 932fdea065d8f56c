"""How far one command travels through the code: functions called, files visited, changes between subpackages.

A call from a function of one subpackage to a function of another counts as one change. Calls inside libraries, and
generators that go on after a yield, do not count. Run with `python -m benchmarks.path_length`; `--hops` lists the most
frequent changes.
"""

import inspect
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import mcnet

SOURCES = str(Path(mcnet.__file__).parent) + "/"

_FIRST_RESUME = 8
"""A generator starts within this many bytes of its code; later resumptions are beyond."""


class PathLength:
    """Counts calls inside mcnet while it is the profiler of the thread."""

    def __init__(self) -> None:
        self.functions: Counter[tuple[str, str]] = Counter()
        self.hops: Counter[tuple[str, str]] = Counter()
        self._package = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call of a function of mcnet."""
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(SOURCES) or frame.f_code.co_name.startswith("<"):
            return
        if frame.f_code.co_flags & inspect.CO_GENERATOR and frame.f_lasti > _FIRST_RESUME:
            return
        path = file[len(SOURCES) :]
        package = path.partition("/")[0]
        self.functions[path, frame.f_code.co_qualname] += 1
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(SOURCES):
            caller = caller.f_back
        if caller is None:
            return
        before = caller.f_code.co_filename[len(SOURCES) :]
        if before.partition("/")[0] != package:
            self.hops[f"{before}:{caller.f_code.co_name}", f"{path}:{frame.f_code.co_name}"] += 1

    @property
    def changes(self) -> int:
        """The number of calls that lead from one subpackage to another."""
        return sum(self.hops.values())


def measured(run: Callable[[], Any]) -> PathLength:
    """Run something and return what it passed through; it is run once before, so that imports do not count."""
    run()
    found = PathLength()
    threading.setprofile(found)
    sys.setprofile(found)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return found


def main() -> None:
    """Print the path lengths of `mcnet fit` and of `select` with three methods."""
    from typer.testing import CliRunner

    from mcnet.cli.app import app

    with TemporaryDirectory() as folder:
        log, model = Path(folder) / "log.parquet", Path(folder) / "model.json"
        mcnet.simulate(20_000, seed=0).frame().write_parquet(log)
        sketch = mcnet.scan(log, score="score", label="label", field="field", folds=5)
        command = ["fit", str(log), "--score", "score", "--label", "label", "--field", "field", "-o", str(model)]
        runs: dict[str, Callable[[], Any]] = {
            "mcnet fit": lambda: CliRunner().invoke(app, [*command, "--force"], catch_exceptions=False),
            "select of 3 methods": lambda: mcnet.select(sketch, methods=["platt", "isotonic", "mcnet-bayes"]),
        }
        for name, run in runs.items():
            found = measured(run)
            files = len({path for path, _ in found.functions})
            print(f"{name}: {len(found.functions)} functions in {files} files, {found.changes} changes of subpackage")
            if "--hops" in sys.argv:
                for (before, after), number in found.hops.most_common(60):
                    print(f"  {number:5}  {before} -> {after}")


if __name__ == "__main__":
    main()
