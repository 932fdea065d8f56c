"""How much a reader of the code has to know: its size, and how far one command travels through it.

Prints the table of what the code base is kept to. Run with `python -m benchmarks.path_length`; `--names` lists what
was counted, `--hops` the most frequent calls from one package to another. How things are counted:

- Files and lines: those of Python in `src`. Lines of code are without blank lines, comments and docstrings.
- Side by side: the files of one folder, `__init__.py` among them.
- Touched: functions of mcnet that are called (lambdas and comprehensions aside), and the files that they are in, by a
  command that has run before in the same process, so that imports do not count.
- Parameters: by name, `self` among them. Public are the commands, and what `docs/reference.md` lists.
- A call from a function of one package to a function of another is a change of package. Calls inside libraries, and
  generators that go on after a yield, do not count.
"""

import argparse
import ast
import contextlib
import inspect
import io
import os
import re
import shutil
import sys
import threading
import tokenize
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import numpy as np
import polars as pl

import mcnet

SOURCES = str(Path(mcnet.__file__).parent) + "/"
REFERENCE = Path(__file__).parents[1] / "docs" / "reference.md"
SCRIPT = next(iter(entry_points(group="console_scripts", name="mcnet")))

FEW_LINES = 40
MANY_PARAMETERS = 10
ROWS = 20_000
DAYS = 6

_FIRST_RESUME = 8
"""A generator starts within this many bytes of its code; later resumptions are beyond."""

_NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


# -- the sources ------------------------------------------------------------------------------------------------------


def source_files() -> list[Path]:
    return sorted(Path(SOURCES).rglob("*.py"))


def lines_of_code(source: str) -> int:
    """Count the lines that have code on them."""
    strings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NOT_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - strings)


def side_by_side(files: list[Path]) -> tuple[int, str]:
    """Return the largest number of files in one folder, and the folder."""
    folder, number = Counter(file.parent for file in files).most_common(1)[0]
    return number, folder.name


def shared_names(files: list[Path]) -> list[str]:
    """Return the names of modules that several packages have."""
    packages: dict[str, set[Path]] = defaultdict(set)
    for file in files:
        if not file.name.startswith("__") and file.parent != Path(SOURCES):
            packages[file.stem].add(file.parent)
    return sorted(name for name, having in packages.items() if len(having) > 1)


def functions(tree: ast.AST, owner: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield every function with the name of what it belongs to: its class, or itself."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield owner or node.name, node
        within = node.name if isinstance(node, ast.ClassDef) else owner
        yield from functions(node, within)


def many_parameters(files: list[Path]) -> tuple[list[str], list[str]]:
    """Return the functions with many parameters: those that users call, and all others."""
    listed = {
        name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)", REFERENCE.read_text(encoding="utf-8"), re.M)
    }
    commands = Path(SOURCES) / SCRIPT.module.removeprefix("mcnet.").partition(".")[0]
    public, others = [], []
    for file in files:
        for owner, node in functions(ast.parse(file.read_text(encoding="utf-8"))):
            taken = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            if len(taken) < MANY_PARAMETERS:
                continue
            private = node.name.startswith("_") and node.name != "__init__"
            known = not private and (owner in listed or file.is_relative_to(commands))
            (public if known else others).append(f"{file.relative_to(SOURCES)}: {node.name} ({len(taken)})")
    return public, others


# -- the path of a command --------------------------------------------------------------------------------------------


class PathLength:
    """Counts calls inside mcnet while it is the profiler of the thread."""

    def __init__(self) -> None:
        self.functions: Counter[tuple[str, str]] = Counter()
        self.hops: Counter[tuple[str, str]] = Counter()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call of a function of mcnet."""
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(SOURCES) or frame.f_code.co_name.startswith("<"):
            return
        if frame.f_code.co_flags & inspect.CO_GENERATOR and frame.f_lasti > _FIRST_RESUME:
            return
        path = file[len(SOURCES) :]
        self.functions[path, frame.f_code.co_qualname] += 1
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(SOURCES):
            caller = caller.f_back
        if caller is None:
            return
        before = caller.f_code.co_filename[len(SOURCES) :]
        if before.partition("/")[0] != path.partition("/")[0]:
            self.hops[f"{before}:{caller.f_code.co_name}", f"{path}:{frame.f_code.co_name}"] += 1

    @property
    def files(self) -> set[str]:
        """The files of the functions that were called."""
        return {path for path, _ in self.functions}


def measured(run: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> PathLength:
    """Run something and return what it passed through; it is run once before, so that imports do not count."""
    before()
    run()
    before()
    found = PathLength()
    threading.setprofile(found)
    sys.setprofile(found)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return found


def command(line: str) -> None:
    """Run a command of mcnet in this process, by what its script runs."""
    before = sys.argv
    sys.argv = line.split()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
            code = getattr(import_module(SCRIPT.module), SCRIPT.attr)()
    finally:
        sys.argv = before
    if code:
        raise RuntimeError(f"{line} ended with {code}: {told.getvalue()}")


def path_of_fit() -> PathLength:
    """Fit a log of 20,000 rows with one field."""
    mcnet.simulate(ROWS, seed=0).frame().write_parquet("log.parquet")
    return measured(
        lambda: command("mcnet fit log.parquet --score score --label label --field field -o model.json --force")
    )


def path_of_update() -> PathLength:
    """Run the loop for the sixth time, with the file of a sixth day."""
    rows = mcnet.simulate(ROWS, seed=0).frame()
    line = "mcnet update ads.db day{}.parquet --score score --label label --field field "
    line += "--time ts --every 1d"
    for day in range(DAYS):
        part = rows.filter(pl.int_range(pl.len()) % DAYS == day)
        moment = np.datetime64(f"2026-11-{day + 1:02}", "ms") + np.arange(len(part))
        part.with_columns(ts=pl.Series(moment)).write_parquet(f"day{day}.parquet")
    for day in range(DAYS - 1):
        command(line.format(day))
    mcnet.Store("ads.db").backup("before.db")

    def as_before() -> None:
        for rest in Path().glob("ads.db*"):
            rest.unlink()
        shutil.copyfile("before.db", "ads.db")

    return measured(lambda: command(line.format(DAYS - 1)), as_before)


# -- the table --------------------------------------------------------------------------------------------------------


def paths() -> dict[str, PathLength]:
    """Run the commands in a folder of their own."""
    before = Path.cwd()
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", mcnet.CalibrationWarning)
        os.chdir(folder)
        try:
            return {"mcnet fit, 20,000 rows": path_of_fit(), "mcnet update, sixth period": path_of_update()}
        finally:
            os.chdir(before)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.path_length", description="Print the size of the code.")
    parser.add_argument("--names", action="store_true", help="list what was counted")
    parser.add_argument("--hops", action="store_true", help="list the most frequent calls from package to package")
    options = parser.parse_args()
    files = source_files()
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    few = [str(file.relative_to(SOURCES)) for file in files if lines_of_code(texts[file]) < FEW_LINES]
    largest, package = side_by_side(files)
    public, others = many_parameters(files)
    shared = shared_names(files)
    longest = max(files, key=lambda file: texts[file].count("\n"))
    travelled = paths()
    lines = [
        ("files in src", f"{len(files):,}"),
        ("lines in src", f"{sum(text.count(chr(10)) for text in texts.values()):,}"),
        (f"files under {FEW_LINES} lines of code", f"{len(few):,}"),
        (f"most modules side by side ({package})", f"{largest:,}"),
        *(
            (f"functions / modules touched by {name}", f"{len(path.functions):,} / {len(path.files):,}")
            for name, path in travelled.items()
        ),
        ("functions with ten or more parameters", f"{len(public) + len(others):,}"),
        ("the same, public ones aside", f"{len(others):,}"),
        ("module names in several packages", f"{len(shared):,}"),
        ("public names of mcnet", f"{len(mcnet.__all__):,}"),
        (f"lines of the longest file ({longest.relative_to(SOURCES)})", f"{texts[longest].count(chr(10)):,}"),
    ]
    for name, path in travelled.items():
        lines.append((f"calls from package to package in {name}", f"{sum(path.hops.values()):,}"))
    width = max(len(name) for name, _ in lines)
    print("\n".join(f"{name:<{width}}  {number:>10}" for name, number in lines))
    if options.names:
        counted = {"few lines of code": few, "public, many parameters": public, "many parameters": others}
        for name, entries in {**counted, "names in several packages": shared}.items():
            print(f"\n{name}:", *entries, sep="\n  ")
    if options.hops:
        for name, path in travelled.items():
            hops = [f"{number:5}  {before} -> {after}" for (before, after), number in path.hops.most_common(60)]
            print(f"\n{name}:", *hops, sep="\n  ")


if __name__ == "__main__":
    main()
