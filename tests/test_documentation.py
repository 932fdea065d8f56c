"""The pages are run: what they show works, prints what they say, and has the figures of the results.

On a page, a block of `python` is run; a block with `title="name"` is written to a file of that name; a block of
`sh run` is given to the shell. A block of `text` right after one of these is what it must have printed; with a sentence
in between, its lines must be among those printed, in this order, where figures may differ in their last digit and
seconds in any. Each page has a folder of its own, and its blocks share their variables. In the README each block stands
alone.

Measured figures have one home, benchmarks/RESULTS.md. A paragraph or a table that repeats some has a comment above it
that names their sections, `<!-- RESULTS: section; section > part -->`: every figure of it must be in them, all figures
of a line of a table in one line of each section named. `<!-- settings -->` marks figures that nobody measured.
"""

import contextlib
import io
import itertools
import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import import_module
from pathlib import Path

import polars as pl
import pytest
from tests.service.running import running

import mcnet
from mcnet.cli.run import run

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
PORT = "8091"
"""Where the pages start the service."""
FENCE = re.compile(r"^(`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)


@dataclass
class Block:
    language: str
    words: str
    body: str
    line: int
    follows: bool
    """Whether only blank lines stand between this block and the one before."""


def blocks(text):
    found, end = [], 0
    for match in FENCE.finditer(text):
        language, _, words = match["info"].strip().partition(" ")
        line = text.count("\n", 0, match.start("body"))
        found.append(Block(language, words, match["body"], line, not text[end : match.start()].strip()))
        end = match.end()
    return found


def run_python(block, page, names):
    output = io.StringIO()
    # Blank lines before the code make a traceback name the line of the page.
    code = compile("\n" * block.line + block.body, str(page), "exec")
    with contextlib.redirect_stdout(output):
        exec(code, names)
    return output.getvalue()


def run_shell(block, page):
    # "python" on the page is this very interpreter.
    place = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-e", "-c", block.body], capture_output=True, text=True, env={**os.environ, "PATH": place}
    )
    assert done.returncode == 0, f"{page.name}, line {block.line}: {done.stderr}"
    return done.stdout


def run_page(page, folder):
    names = {"__name__": "__main__"}
    printed = None
    # Another run of the tests may have the port of the page.
    for block in blocks(page.read_text(encoding="utf-8").replace(PORT, free_port())):
        title = re.search(r'title="([^"]+)"', block.words)
        if title:
            (folder / title[1]).write_text(block.body, encoding="utf-8")
        elif block.language == "python":
            printed = run_python(block, page, names)
        elif block.language == "sh" and "run" in block.words.split():
            printed = run_shell(block, page)
        elif block.language == "text" and printed is not None:
            if block.follows:
                assert printed.strip() == block.body.strip(), f"{page.name}, line {block.line}, prints something else"
            else:
                missing = first_missing(block.body, printed)
                assert not missing, f"{page.name}, line {block.line}: this is not printed: {missing}\n{printed}"


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def first_missing(shown, printed):
    """Return the first of the lines shown that is not among those printed, after the one before it."""
    rest = iter(printed.splitlines())
    timed = False
    for line in filter(str.strip, shown.splitlines()):
        if not any(same_line(line, other, timed) for other in rest):
            return line
        timed = (timed and not re.match(r"\S+\s+[a-z]", line)) or line.endswith(" fit s")
    return ""


def same_line(shown, printed, timed):
    """Tell whether two lines say the same; the last column may be seconds, which no two runs share."""
    ours, theirs = shown.split(), printed.split()
    if timed:
        ours, theirs = ours[:-1], theirs[:-1]
    return len(ours) == len(theirs) and all(map(_same_word, ours, theirs))


def _same_word(shown, printed):
    if shown == printed:
        return True
    try:
        value, other = float(shown.replace(",", "")), float(printed.replace(",", ""))
    except ValueError:
        return False
    decimals = len(shown.partition(".")[2])
    return abs(value - other) <= (2.01 * 10.0**-decimals if decimals else 0.0)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_page_does_what_it_shows(page, tmp_path, monkeypatch, program):
    monkeypatch.chdir(tmp_path)
    commands = "".join(block.body for block in blocks(page.read_text(encoding="utf-8")) if block.language == "sh")
    for name in ("c++", "curl"):
        if re.search(rf"^ *{re.escape(name)} ", commands, flags=re.MULTILINE):
            program(name)
    monkeypatch.setattr("mcnet.calibrators.methods._ADDED", {})  # a method of a page is no method of other tests
    run_page(page, tmp_path)


README_BLOCKS = blocks(README.read_text(encoding="utf-8"))


@pytest.mark.parametrize("block", README_BLOCKS, ids=lambda block: f"line {block.line}")
def test_a_block_of_the_readme_works_when_pasted_alone(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if block.language == "python":
        run_python(block, README, {"__name__": "__main__"})
        return
    assert block.language == "sh"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    first = block.body.split()[0]
    if first == "make":  # what it does takes minutes, and continuous integration does it on a clone
        for target in re.findall(r"^make (\S+)", block.body, flags=re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    elif first == "source":
        environment = re.search(r"^BIN := (\S+)", makefile, flags=re.MULTILINE)[1]
        assert block.body.strip() == f"source {environment}/activate"
    elif "mcnet serve" in block.body:  # from nothing to a served, learning model
        demo, update, serve = block.body.strip().splitlines()
        monkeypatch.setattr("mcnet.selection.registered_methods", lambda: ["base", "platt"])  # all take a minute
        assert run(demo.split()[1:]) == 0
        run_shell(replace(block, body=update), README)
        address, *words = serve.partition("#")[0].split()[2:]
        with running(tmp_path / address, tmp_path, *words) as service:
            field = pl.read_parquet("log.parquet")["field"][0]
            answer = service.ask("POST", "/calibrate", {"score": [0.1], "field": {"field": [field]}})
            assert answer.document["version"] == "1", answer.body
    else:
        reader_s_logs(tmp_path)
        run_shell(block, README)


def reader_s_logs(folder):
    """Write what a reader has: files of a log, and the rows of today."""
    from mcnet.datasets.simulator import SimulatedField, simulate

    country = SimulatedField(shares=(0.6, 0.4), names=("NL", "FR"))
    (folder / "logs").mkdir()
    for name in ("logs/monday.parquet", "logs/tuesday.parquet", "today.parquet"):
        rows = simulate(500, fields={"country": country}, rate=0.2, seed=len(name))
        hours = pl.lit(datetime(2026, 11, 16)) + pl.duration(hours=pl.int_range(pl.len()) // 60)
        money = {"bid": pl.lit(2.5), "paid": pl.int_range(pl.len()) % 7 * 0.1}
        rows.frame().select("country", pctr="score", click="label", ts=hours, **money).write_parquet(folder / name)


def test_the_first_page_writes_no_file_that_the_readme_has_written():
    # Commands refuse to replace a file, and who reads both works in one folder.
    def written(page, *languages):
        bodies = [one.body for one in blocks(page.read_text(encoding="utf-8")) if one.language in languages]
        outputs = re.findall(r'(?:-o|--report|--save-best) +(\S+)|save\("(.*?)"', "\n".join(bodies))
        return {name for names in outputs for name in names if name}

    readme, commands = written(README, "python", "sh"), written(ROOT / "docs" / "index.md", "sh")
    assert {"model.json", "calibrator.json"} < readme
    assert len(commands) == 4
    assert not readme & commands


def test_the_readme_says_which_extra_a_command_needs():
    page = README.read_text(encoding="utf-8")
    for line in re.findall(r"^.*(?:mcnet serve|ONNX\b).*$", page.partition("## Read on")[0], flags=re.MULTILINE):
        assert "extra `" in line or "| `serve` |" in line, line


def test_the_architecture_names_packages_files_and_functions_that_exist():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "mcnet"
    packages = {path.parent.name for path in source.glob("*/__init__.py")}
    packages |= {path.stem for path in source.glob("*.py") if not path.stem.startswith("__")}
    listed = re.findall(r"^\| (`.*?`) \|", page.partition("| package |")[2].partition("\n\n")[0], flags=re.MULTILINE)
    assert set(re.findall(r"\w+", " ".join(listed))) == packages
    named = re.findall(r"`([\w.]+)`\s+\(`((?:\w+/)+\w+\.py)`", page)
    assert len(named) > 30
    for name, file in named:
        found = (source / file).read_text(encoding="utf-8")
        last = name.rpartition(".")[2]
        defined = rf"((def|class) {last}\b|^\s*{last}(:| =))"
        assert re.search(defined, found, flags=re.MULTILINE), f"{file} has no {last}"
    for file in re.findall(r"`((?:\w+/)+\w+\.py)`", page):
        assert (source / file).is_file(), file


def test_a_page_that_shows_something_else_is_caught(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text("Say:\n\n```python\nx = 2\n```\nand then\n```python\nprint(x)\n```\n\n```text\n2\n```\n")
    run_page(page, tmp_path)
    page.write_text("```python\nprint(2)\n```\n```text\n3\n```\n")
    with pytest.raises(AssertionError, match="line 4"):
        run_page(page, tmp_path)
    page.write_text('```sh title="a.sh"\nexit 3\n```\n```sh run\nsh a.sh\n```\n')
    with pytest.raises(AssertionError, match=r"page\.md"):
        run_page(page, tmp_path)
    page.write_text(
        "```python\nprint('a 0.5 1.2\\nb 0.25 s\\nc 3')\n```\nthe first and the last:\n```text\na 0.4 1.3\nc 3\n```\n"
    )
    run_page(page, tmp_path)
    page.write_text("```python\nprint('a 0.5\\nb 0.25')\n```\nbackwards:\n```text\nb 0.25\na 0.5\n```\n")
    with pytest.raises(AssertionError, match=r"not printed: a 0\.5"):
        run_page(page, tmp_path)
    page.write_text("```python\nprint('method fit s\\na 3 0.1')\n```\nas:\n```text\nmethod fit s\na 3 0.7\n```\n")
    run_page(page, tmp_path)
    page.write_text("```python\nimport nothing_of_this_name\n```\n")
    with pytest.raises(ImportError):
        run_page(page, tmp_path)


MARK = re.compile(r"^\s*<!-- (?P<kind>RESULTS|settings)(?:: (?P<sections>.*?))? -->$")
NUMBER = re.compile(
    r"(?<![\w.,])([-+−]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]\d+)?)(?![\d⁻⁰-⁹¹²³])(?:\s?(ns|µs|ms|s)\b)?", re.UNICODE
)
UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
MEASURED = re.compile(
    r"\b0\.\d{4,}|(?<![\w.])\d+(?:[.,]\d+)* ?(?:ns|µs|ms|s|MB|GB|kB|(?:milli|micro)?seconds?|minutes?)\b"
    r"|\d ?×(?! ?\d)|\b(?:\d[\d,.]*|two|three|four|five|six|seven|eight|nine|ten|twenty|forty|fifty|hundred) times\b"
    r"|(?:thousands|hundreds) of times\b"
    r"|\b\d[\d.,]* M rows|\d % (?:better|worse|faster|slower)"
)
"""What looks like a measurement: a log-loss, a time, a size, a ratio."""
OWN_FIGURES = {"reproduction.md": "the home of the figures of the study", "reference.md": "made from docstrings"}


@dataclass
class Passage:
    """A paragraph or a table of a page, with the comment above it."""

    lines: list[str]
    line: int
    mark: re.Match | None

    @property
    def is_table(self):
        return self.lines[0].lstrip().startswith("|")

    @property
    def words(self):
        """Its lines without code and addresses, where digits are not figures; of a table without its head."""
        plain = [re.sub(r"`[^`]*`|\]\([^)]*\)", " ", line) for line in self.lines]
        return plain[2:] if self.is_table else [" ".join(plain)]


def passages(text):
    """Return the paragraphs and tables of a page, without its blocks of code."""
    text = FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
    found, mark = [], None
    for match in re.finditer(r"(?:^[^\n]*\S[^\n]*\n?)+", text, flags=re.MULTILINE):
        lines = match[0].splitlines()
        mark = MARK.match(lines[0])
        lines = lines[1:] if mark else lines
        if lines:
            found.append(Passage(lines, text.count("\n", 0, match.start()) + 1, mark))
    return found


def figures(text):
    """Return (value, half of its last digit) of every number, times in seconds."""
    found = []
    for digits, unit in NUMBER.findall(text):
        plain = digits.replace(",", "").replace("−", "-")
        mantissa, _, power = plain.partition("e")
        last = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
        found.append((UNITS[unit] * float(plain), 0.5 * UNITS[unit] * last))
    return found


def results_section(page, name):
    """Return the lines of a section of the results, given as `section` or `section > part`."""
    text = page
    for title in name.split(" > "):
        found = re.search(
            rf"^(#+) {re.escape(title.strip())}$.*?(?=^\1 |^#{{1,2}} |\Z)", text, re.MULTILINE | re.DOTALL
        )
        assert found, f"the results have no section {title!r}"
        text = found[0]
    return text.splitlines()


def absent_figures(passage, results):
    """Return the lines of a passage whose figures are not in the sections that it names."""
    sections = [results_section(results, name) for name in passage.mark["sections"].split(";")]
    if not passage.is_table:
        sections = [["\n".join(itertools.chain(*sections))]]
    absent = []
    for line in passage.words:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        label = cells[0] if passage.is_table and not re.fullmatch(r"[-+−\d.,% ]+", cells[0]) else ""
        asked = figures(line.replace(label, " ", 1) if label else line)
        covers = [[_covered(asked, other) for other in section] for section in sections]
        if not any(len(set().union(*chosen)) == len(asked) for chosen in itertools.product(*covers)):
            absent.append(line)
    return absent


def _covered(asked, line):
    """Return which of the figures asked for are in a line of the results, as they round."""
    there = [value for value, _ in figures(line)]
    return {
        number
        for number, (value, half) in enumerate(asked)
        if any(abs(abs(value) - abs(other)) <= half * 1.0001 + 1e-12 for other in there)
    }


def measurement(passage):
    """Return what looks like a measurement in a passage: a figure with its unit, or a table that is mostly numbers."""
    found = MEASURED.search(" ".join(passage.words))
    if passage.is_table and not found:
        cells = [cell.strip(" *") for line in passage.words for cell in line.strip().strip("|").split("|")[1:]]
        numbers = [cell for cell in cells if re.fullmatch(r"[-+−]?\d[\d,.]*( %)?", cell)]
        return f"a table with {len(numbers)} numbers" if 2 * len(numbers) > len(cells) else ""
    return found[0] if found else ""


@pytest.mark.parametrize("page", [README, ROOT / "CHANGELOG.md", *PAGES], ids=lambda page: page.name)
def test_figures_are_those_of_the_results(page):
    results = RESULTS.read_text(encoding="utf-8")
    unmarked, absent = [], []
    for passage in passages(page.read_text(encoding="utf-8")):
        if passage.mark is None:
            looks = measurement(passage)
            if looks and page.name not in OWN_FIGURES:
                unmarked.append(f"line {passage.line}: {looks}")
        elif passage.mark["kind"] == "RESULTS":
            absent += [f"line {passage.line}: {line}" for line in absent_figures(passage, results)]
    assert not absent, "figures that are not in the sections named above them:\n" + "\n".join(absent)
    assert not unmarked, "figures without a comment that says where they are from:\n" + "\n".join(unmarked)


def test_a_figure_that_is_not_in_the_results_is_caught():
    results = "# R\n\n## Speed\n\n| a | 71.5 ms | 0.47765 |\n| b | 3 s | 0.5 |\n\n## Other\n\n7 rows took -0.5 s.\n"

    def absent(text):
        (passage,) = passages(text)
        return absent_figures(passage, results)

    table = "<!-- RESULTS: Speed -->\n| | s | loss |\n|---|---|---|\n| a 9 | {} | {} |\n"
    assert not absent(table.format("0.07 s", "0.4777"))
    assert absent(table.format("0.08 s", "0.4777"))
    assert absent(table.format("3 s", "0.4777")), "each figure is there, but in another line"
    assert not absent("<!-- RESULTS: Other; Speed -->\nFor 7 rows it was −0.5 s, not 3 s, of `99`.\n")
    assert absent("<!-- RESULTS: Other -->\nIt was 6 rows.\n")
    with pytest.raises(AssertionError, match="no section 'Nothing'"):
        absent("<!-- RESULTS: Nothing -->\nIt was 6 rows.\n")


def test_the_changelog_begins_with_the_version_of_the_package():
    page = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+)", page, flags=re.MULTILINE)[1] == mcnet.__version__


def test_names_in_the_pages_exist():
    news = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("## 0.1.0")[0]
    before, head, moved = news.partition("| it was | it is |\n")
    table, _, after = moved.partition("\n\n")
    now = re.sub(r"^\|.*?\|", "", table, flags=re.MULTILINE)  # the left column has names that are gone
    assert head
    text = before + now + after + "".join(page.read_text(encoding="utf-8") for page in (README, *PAGES))
    names = set(re.findall(r"`mcnet\.([A-Za-z_][\w.]*)", text)) - {"toml"}
    assert len(names) > 25
    for name in sorted(names):
        found = mcnet
        for part in name.rstrip(".").split("."):
            try:
                found = getattr(found, part, None) or import_module(f"{found.__name__}.{part}")
            except mcnet.NotSupportedError:  # of an extra that is not installed
                break


@pytest.mark.parametrize(
    "name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/RESULTS.md"]
)
def test_links_between_files_lead_somewhere(name):
    page = ROOT / name
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        other = page.parent / path if path else page
        assert other.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", other.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}, target


def test_mcnet_is_installed_from_a_clone_everywhere():
    """The packages index may have another mcnet, or none: no page and no message sends readers there."""
    sources = [README, *PAGES, ROOT / "CONTRIBUTING.md", *(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in sources
        for match in re.finditer(r"pip install [^\n]*?['\" ]mcnet\b", path.read_text(encoding="utf-8"))
    ]
    assert not [line for line in found if "test_documentation" not in line]
