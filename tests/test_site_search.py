"""The search of the documentation site works on pages opened from disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.report.browser import browse, find_chromium

ROOT = Path(__file__).parent.parent
SEARCH = """(() => {
  const input = document.querySelector('input.md-search__input');
  input.focus();
  input.value = 'isotonic';
  input.dispatchEvent(new Event('input', {bubbles: true}));
  input.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}));
})()"""


def test_the_search_finds_pages_from_disk(tmp_path):
    pytest.importorskip("material", reason="the documentation's packages are not installed: pip install -e '.[docs]'")
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("chromium is not installed: apt-get install chromium, or the like")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "-d", str(tmp_path / "site")],
        check=True,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    with browse(chromium) as browser:
        browser.look()
        browser.call("Page.navigate", url=(tmp_path / "site" / "index.html").as_uri())
        browser.wait("document.querySelector('input.md-search__input') && document.readyState === 'complete'")
        browser.run(SEARCH)
        browser.wait("document.querySelectorAll('.md-search-result__item').length > 2")
        assert browser.requests() == []
