"""The page in a real browser: no complaint, no request, a selector that works, light, dark, phone and paper."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.report.browser import Browser, browse, find_chromium
from tests.report.conftest import VALUES, Case

from mcnet.auctions import replay
from mcnet.datasets.auctions import simulate_auctions
from mcnet.report.page import write_report
from mcnet.report.value_page import write_value_page

DATA = "JSON.stringify(document.getElementById('{}').data.map((trace) => [trace.x, trace.y]))"
HEIGHTS = """[...document.querySelectorAll('.figure')].map((figure) => [
  figure.querySelector('.main-svg').getBoundingClientRect().height, figure.getBoundingClientRect().height])"""
RIGHT = "Math.max(...[...document.querySelectorAll('.main-svg')].map((e) => e.getBoundingClientRect().right))"
CHOOSE = """(async () => {{
  const select = document.getElementById('{}');
  select.value = '{}';
  select.dispatchEvent(new Event('change'));
  await new Promise((done) => setTimeout(done, 100));
}})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with browse(chromium) as found:
        yield found


@pytest.fixture(scope="module")
def page(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "page.html"
    return write_report(path, case.selection, case.sketch, title="A <title> & more", drift=case.periods)


@pytest.fixture(scope="module")
def opened(browser: Browser, page: Path) -> Browser:
    browser.open(page)
    return browser


@pytest.fixture
def shown(opened: Browser, page: Path) -> Browser:
    """Return the browser with the page as it was first opened."""
    if opened.run("location.href") != page.as_uri():
        opened.open(page)
    opened.look()
    opened.run(CHOOSE.format("method", 0))
    opened.run(CHOOSE.format("view", 0))
    return opened


def test_the_page_loads_without_complaint_and_asks_for_nothing(opened: Browser):
    assert opened.complaints() == []
    assert opened.requests() == []
    assert opened.run("document.title") == "A <title> & more"
    assert opened.run("document.getElementById('trouble').hidden")


def test_every_figure_is_drawn(shown: Browser):
    for figure in ("forest", "reliability", "curves", "histogram", "drift"):
        assert shown.run(f"document.querySelectorAll('#{figure} .trace').length") >= 2, figure


def test_the_view_selector_changes_every_plot_but_the_forest(shown: Browser):
    figures = ("reliability", "curves", "histogram", "drift")
    before = {figure: shown.run(DATA.format(figure)) for figure in (*figures, "forest")}
    summary = shown.run("document.getElementById('summary').textContent")
    shown.run(CHOOSE.format("view", 2))
    for figure in figures:
        assert shown.run(DATA.format(figure)) != before[figure], figure
    assert shown.run(DATA.format("forest")) == before["forest"]
    assert shown.run("document.getElementById('summary').textContent") != summary
    assert shown.complaints() == []


def test_the_method_selector_changes_every_plot_and_sentence(shown: Browser):
    figures = ("reliability", "curves", "histogram", "drift", "forest")
    before = {figure: shown.run(DATA.format(figure)) for figure in figures}
    shown.run(CHOOSE.format("view", 1))
    order = shown.run("document.getElementById('order').textContent")
    shown.run(CHOOSE.format("method", 1))
    for figure in figures:
        assert shown.run(DATA.format(figure)) != before[figure], figure
    assert shown.run("document.getElementById('order').textContent") != order
    assert shown.run("document.getElementById('view').value") == "1"
    assert shown.complaints() == []


def test_a_table_wider_than_the_screen_says_that_it_scrolls(shown: Browser):
    hints = "[...document.querySelectorAll('#comparison .scroll-hint')].map((hint) => hint.hidden)"
    shown.wait(f"{hints}[0] === true")
    shown.look(width=390)
    shown.wait(f"{hints}[0] === false")
    stays = "document.querySelector('#comparison tbody th').getBoundingClientRect().left"
    left = shown.run(stays)
    shown.run("document.querySelector('#comparison .wide').scrollLeft = 120")
    assert shown.run(stays) == left


def test_field_values_are_shown_as_text_whatever_they_contain(shown: Browser):
    labels = shown.run("[...document.querySelectorAll('#view option')].map((option) => option.dataset.label)")
    assert sorted(labels) == sorted(["All rows", *VALUES])
    ticks = shown.run("[...document.querySelectorAll('#forest .ytick text')].map((tick) => tick.textContent)")
    assert sorted(ticks) == sorted(VALUES)
    shown.run(CHOOSE.format("view", labels.index("</script>")))
    legend = shown.run("[...document.querySelectorAll('#curves .legendtext')].map((entry) => entry.textContent)")
    assert "</script>" in legend


def test_a_click_on_the_forest_chooses_that_value(shown: Browser):
    # Plotly calls back with the points under the pointer; the first line is the costliest value.
    shown.run("document.getElementById('forest').emit('plotly_click', {points: [{pointIndex: 0}]})")
    costliest = shown.run("document.querySelector('.values tbody th').textContent")
    assert shown.run("document.getElementById('view').selectedOptions[0].dataset.label") == costliest


@pytest.mark.parametrize(("width", "dark"), [(1100, False), (1100, True), (390, False), (390, True)])
def test_the_page_fits_its_screen_in_light_and_dark(shown: Browser, tmp_path: Path, width: int, dark: bool):
    shown.look(width=width, dark=dark)
    shown.wait(f"{RIGHT} <= {width}")
    assert shown.run("document.documentElement.scrollWidth") <= width
    # Plotly answers a change of size a little later.
    time.sleep(0.3)
    heights = shown.run(HEIGHTS)
    assert len(heights) == 5
    assert all(drawn == asked for drawn, asked in heights), heights
    shown.picture(tmp_path / "page.png")
    with Image.open(tmp_path / "page.png") as picture:
        pixels = np.asarray(picture.convert("L"))
    assert (np.median(pixels) < 64) == dark
    # The text of the figures takes the page's own ink, also when the theme changes while the page is open.
    ink = shown.run("getComputedStyle(document.querySelector('#reliability .xtick text')).fill")
    brightness = np.mean([int(part) for part in ink.removeprefix("rgb(").removesuffix(")").split(",")])
    assert (brightness > 128) == dark


def test_the_page_prints(shown: Browser, tmp_path: Path):
    shown.look(dark=True)
    shown.printed(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    shown.look(dark=True, media="print")
    assert shown.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    shown.wait("getComputedStyle(document.querySelector('#curves .xtick text')).fill === 'rgb(68, 68, 68)'")
    # A sheet of A4 has 717 pixels between the margins.
    assert shown.run(RIGHT) - shown.run("document.getElementById('curves').getBoundingClientRect().left") <= 717


def test_the_field_selector_changes_the_forest_and_its_table(browser: Browser, two_fields: Case, tmp_path: Path):
    # A fresh page, on a phone.
    browser.open(write_report(tmp_path / "two.html", two_fields.selection, two_fields.sketch), width=390)
    assert browser.run(RIGHT) <= 390
    before = browser.run(DATA.format("forest"))
    browser.run(CHOOSE.format("field", 1))
    assert browser.run(DATA.format("forest")) != before
    visible = browser.run("[...document.querySelectorAll('.values:not([hidden]) summary')].map((s) => s.textContent)")
    assert visible == ["All 4 values of source as a table"]
    assert browser.run("[...document.querySelectorAll('#view optgroup')].map((group) => group.label)") == [
        "country",
        "source",
        "country × source",
    ]
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_of_a_replay_fits_its_screen(browser: Browser, tmp_path: Path, width: int):
    made = simulate_auctions(5_000)
    chances = {"scores": made.score, "truth, with a long name": made.probability}
    found = replay(chances, made.label, made.price, made.value, field={"country": made.country.astype(str)})
    browser.open(write_value_page(tmp_path / "value.html", found), width=width)
    assert browser.complaints() == []
    assert browser.requests() == []
    for figure in ("multiplier", "values"):
        assert browser.run(f"document.querySelectorAll('#{figure} .main-svg').length") >= 1, figure
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(RIGHT) <= width
    assert browser.run("document.querySelectorAll('#comparison tbody tr').length") == 2
