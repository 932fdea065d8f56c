"""What is installed is named by version and checksum, and what CI runs by commit."""

import re
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
