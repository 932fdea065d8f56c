"""The pages of the documentation are run: what they show works, and prints what they say.

On a page, a block of `python` is run; a block with `title="name"` is written to a file of that name; a block of
`sh run` is given to the shell; a block of `text` right after one of these is what it must have printed. Each page has a
folder of its own, and its blocks share their variables.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import mcnet

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
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


def run_page(page, folder):
    names = {"__name__": "__main__"}
    printed = ""
    for block in blocks(page.read_text(encoding="utf-8")):
        title = re.search(r'title="([^"]+)"', block.words)
        if title:
            (folder / title[1]).write_text(block.body, encoding="utf-8")
        elif block.language == "python":
            output = io.StringIO()
            # Blank lines before the code make a traceback name the line of the page.
            code = compile("\n" * block.line + block.body, str(page), "exec")
            with contextlib.redirect_stdout(output):
                exec(code, names)
            printed = output.getvalue()
        elif block.language == "sh" and "run" in block.words.split():
            # "python" on the page is this very interpreter.
            place = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
            done = subprocess.run(
                ["sh", "-e", "-c", block.body], capture_output=True, text=True, env={**os.environ, "PATH": place}
            )
            assert done.returncode == 0, f"{page.name}, line {block.line}: {done.stderr}"
            printed = done.stdout
        elif block.language == "text" and block.follows:
            assert printed.strip() == block.body.strip(), f"{page.name}, line {block.line}, prints something else"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_page_does_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path)


def test_the_architecture_names_packages_files_and_functions_that_exist():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "mcnet"
    packages = {path.parent.name for path in source.glob("*/__init__.py")}
    packages |= {path.stem for path in source.glob("*.py") if not path.stem.startswith("__")}
    listed = re.findall(r"^\| (`.*?`) \|", page.partition("| package |")[2].partition("\n\n")[0], flags=re.MULTILINE)
    assert set(re.findall(r"\w+", " ".join(listed))) == packages
    named = re.findall(r"`([\w.]+)`\s+\(`(\w+/\w+\.py)`", page)
    assert len(named) > 15
    for name, file in named:
        found = (source / file).read_text(encoding="utf-8")
        last = name.rpartition(".")[2]
        defined = rf"((def|class) {last}\b|^\s*{last}(:| =))"
        assert re.search(defined, found, flags=re.MULTILINE), f"{file} has no {last}"
    for file in re.findall(r"`(\w+/\w+\.py)`", page):
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
    page.write_text("```python\nimport nothing_of_this_name\n```\n")
    with pytest.raises(ImportError):
        run_page(page, tmp_path)


def test_the_changelog_begins_with_the_version_of_the_package():
    page = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+)", page, flags=re.MULTILINE)[1] == mcnet.__version__


def test_mcnet_is_installed_from_a_clone_everywhere():
    """The packages index may have another mcnet, or none: no page and no message sends readers there."""
    sources = [*PAGES, ROOT / "CONTRIBUTING.md", *(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in sources
        for match in re.finditer(r"pip install [^\n]*?['\" ]mcnet\b", path.read_text(encoding="utf-8"))
    ]
    assert not [line for line in found if "test_documentation" not in line]
