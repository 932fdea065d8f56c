"""What is installed is named by version and checksum, and what CI runs by commit."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


@pytest.mark.parametrize("lock", [path for path in LOCKS if path.name != "overrides.txt"], ids=lambda path: path.stem)
def test_every_package_of_a_lock_file_has_a_version_and_a_checksum(lock):
    text = "\n".join(line for line in lock.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    packages = [package for package in re.split(r"\n(?=\S)", text.strip()) if package]
    assert len(packages) > 2
    for package in packages:
        assert re.match(r"[A-Za-z0-9._\[\],-]+==\S+", package), package
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", package), package


def test_make_installs_by_checksum_but_for_torch_and_mcnet_itself():
    # A line such as `@$(PIP) install …`; LOCKED has the options of all others.
    installs = re.findall(r"^\t@.*pip.* (install .*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M | re.I)
    assert installs
    for words in installs:
        assert "--require-hashes" in words or "$(TORCH)" in words or words.endswith("-e ."), words
    assert re.search(r"^LOCKED := install --require-hashes", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)


def test_actions_are_pinned_by_commit():
    flows = [path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    actions = [action for flow in flows for action in re.findall(r"uses: *(\S+)", flow)]
    assert actions
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in actions)


def test_there_is_a_way_to_report_a_vulnerability():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for word in ("Reporting", "make audit", "make sbom", "SHA-256"):
        assert word in text


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is not a clone of the repository")
def test_ci_begins_with_the_two_commands_of_the_readme_where_nothing_else_is_installed(tmp_path):
    steps = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    first = next(line for line in steps if re.search(r"^[^#]*(\bmake\b|\.ci/)", line))
    assert first.endswith(".ci/fresh-machine")
    # Instead of make, this says what it was called with and what it finds.
    make = tmp_path / "make"
    make.write_text(
        '#!/bin/sh\necho "$* in $(pwd)"\nls -A\nenv\n'
        "for name in chromium google-chrome java node initdb psql valgrind; do command -v $name; done\ntrue\n"
    )
    make.chmod(0o755)

    def fresh_machine(folder):
        search = f"{tmp_path}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", str(ROOT / ".ci" / "fresh-machine"), str(folder)],
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": search, "VIRTUAL_ENV": "elsewhere", "PYTHONPATH": "elsewhere"},
            check=False,
        )

    done = fresh_machine(tmp_path / "fresh")
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    clone = tmp_path / "fresh" / "mcnet"
    assert [line for line in said if " in /" in line] == [f"demo in {clone}", f"test in {clone}"]
    assert "pyproject.toml" in said
    assert not {".venv", "VIRTUAL_ENV=elsewhere", "PYTHONPATH=elsewhere"} & set(said)
    hidden = r"/\S+/(chromium|google-chrome|java|node|initdb|psql|valgrind)"
    assert not [line for line in said if re.fullmatch(hidden, line)]
    assert f"PATH={tmp_path}/fresh/bin" in said
    # A test that fails ends all of it.
    make.write_text('#!/bin/sh\n[ "$1" != test ]\n')
    assert fresh_machine(tmp_path / "red").returncode != 0


def test_a_package_has_one_version_in_all_lock_files():
    # So that a test which passed with few packages need not be run again because there are more.
    versions = {}
    for lock in LOCKS:
        for line in re.findall(r"^[A-Za-z0-9._-]+(?:\[.*?\])?==.*", lock.read_text(encoding="utf-8"), re.M):
            name, version, condition = re.fullmatch(r"([\w.-]+)(?:\[.*?\])?==(\S+?)((?: *;.*?)?) *\\?", line).groups()
            versions.setdefault((name, condition), set()).add(version)
    assert len(versions) > 100
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_the_image_is_made_of_the_lock_files_and_of_base_images_by_digest():
    file = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    installs = [words for words in re.findall(r"pip install ([^&\n]*)", file) if "--no-index" not in words]
    assert len(installs) == 2
    for words in installs:
        assert "--require-hashes" in words
        (lock,) = re.findall(r"-r (\S+)", words)
        assert ROOT / lock in LOCKS
        assert f"!{lock}" in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "--no-build-isolation" in file  # else pip fetches build tools that no lock file names
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)", file, re.M))
    images = [arguments.get(name.strip("${}"), name) for name in re.findall(r"^FROM (\S+)", file, re.M)]
    compose = (ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
    images += [image for image in re.findall(r"image: (\S+)", compose) if image != "mcnet"]
    assert len(images) == 4
    for image in images:
        assert re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", image), image


def test_the_lock_of_the_image_has_what_the_service_needs_and_nothing_for_tests():
    packages = set(re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements" / "serve.txt").read_text("utf-8"), re.M))
    assert {"uvicorn", "starlette", "pyarrow", "numpy", "polars", "msgspec"} <= packages
    assert not {"torch", "pytest", "ruff", "mkdocs", "pyspark"} & packages


FINE = {"name": "numpy", "version": "2.4.6", "vulns": []}
FLAWED = {"name": "jinja2", "version": "2.0", "vulns": [{"id": "PYSEC-2019-217", "fix_versions": ["2.10.1"]}]}
UNKNOWN = {"name": "polars", "skip_reason": "Dependency not found on PyPI and could not be audited: polars (2.1.0)"}


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        ([FINE], 0, "1 of 1 packages looked up; no known vulnerabilities"),
        ([FINE, FLAWED], 1, "jinja2 2.0: PYSEC-2019-217, fixed in 2.10.1\naudit: 2 of 2 packages looked up; 1 known"),
        ([UNKNOWN, FLAWED], 1, "1 of 2 packages looked up; NOT CHECKED: polars; 1 known vulnerability"),
        ([FINE, UNKNOWN], 0, "1 of 2 packages looked up; NOT CHECKED: polars; no known"),
        ([UNKNOWN], 0, "NOTHING WAS CHECKED: the database cannot be reached, or knows none of 1 packages"),
        (None, 0, "NOTHING WAS CHECKED: pip-audit gave no result (no route to the database)"),
    ],
)
def test_an_audit_says_what_was_looked_up_and_fails_if_something_is_named(tmp_path, found, code, said):
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "audit", tmp_path / ".ci" / "audit")
    (programs / "python").symlink_to(sys.executable)
    (tmp_path / "found.json").write_text(json.dumps({"dependencies": found, "fixes": []}))
    written = "echo no route to the database >&2; exit 1" if found is None else f"cp {tmp_path}/found.json ${{!#}}"
    (programs / "pip-audit").write_text(f"#!/usr/bin/env bash\n{written}\necho No known vulnerabilities found >&2\n")
    (programs / "pip-audit").chmod(0o755)
    done = subprocess.run(["bash", tmp_path / ".ci" / "audit"], capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stdout) == (code, True), done.stdout + done.stderr
    assert "No known vulnerabilities found" not in done.stdout
