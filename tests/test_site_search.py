"""The documentation site, opened from disk: its links lead somewhere, and its search works."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

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


class Links(HTMLParser):
    """What a page links to or embeds, and the anchors it has."""

    def __init__(self, page):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        self.anchors |= {known[name] for name in ("id", "name") if known.get(name)}
        self.targets += [known[name] for name in ("href", "src") if known.get(name)]


def dead_links(site):
    """Return (page, address) of everything relative that is not in the site, anchors included."""
    pages = {page: Links(page) for page in sorted(site.rglob("*.html"))}
    dead = []
    for page, links in pages.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            base = site if parts.path.startswith("/") else page.parent  # only the page of wrong addresses has these
            path = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else page
            path = path / "index.html" if path.is_dir() else path
            known = pages.get(path)
            lost = known and parts.fragment and unquote(parts.fragment) not in known.anchors
            if not path.exists() or lost:
                dead.append((page.relative_to(site).as_posix(), target))
    return dead


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of the built site."""
    pytest.importorskip("material", reason="the documentation's packages are not installed: make docs installs them")
    folder = tmp_path_factory.mktemp("documentation") / "site"
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "-d", str(folder)],
        check=True,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    return folder.resolve()


def test_every_link_of_the_site_leads_somewhere(site):
    """MkDocs sees the links of its own pages, not those of what they include."""
    assert dead_links(site) == []


def test_tables_are_tables_and_marks_for_the_tests_are_left_out(site):
    pages = {page.name: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert not [name for name, text in pages.items() if "<!-- RESULTS" in text or "|---" in text]


def test_a_dead_link_is_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<p id="x"></p><a href="b.html#y">b</a><a href="#x">x</a><a href="https://z">z</a>'
    )
    (tmp_path / "b.html").write_text('<a href="a.html#x">a</a><img src="no.svg"><a href="../docs/c.md">c</a>')
    assert dead_links(tmp_path) == [("a.html", "b.html#y"), ("b.html", "no.svg"), ("b.html", "../docs/c.md")]


def test_the_search_finds_pages_from_disk(site):
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("chromium is not installed: apt-get install chromium, or the like")
    with browse(chromium) as browser:
        browser.look()
        browser.call("Page.navigate", url=(site / "index.html").as_uri())
        browser.wait("document.querySelector('input.md-search__input') && document.readyState === 'complete'")
        browser.run(SEARCH)
        browser.wait("document.querySelectorAll('.md-search-result__item').length > 2")
        assert browser.requests() == []
