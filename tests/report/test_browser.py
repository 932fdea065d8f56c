"""The page in a real browser: no complaint, no request, a selector that works, light, dark, phone and paper."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.report.browser import Browser, browse, find_chromium
from tests.report.conftest import VALUES, Case

from mcnet.report import write_report

SHOWN = "JSON.stringify(document.getElementById('{}').data.map((trace) => [trace.x, trace.y]))"
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
        advice = "chromium is not installed: apt-get install chromium, or the like"
        # A machine of one's own may lack a browser; continuous integration may not.
        (pytest.fail if os.environ.get("CI") else pytest.skip)(advice)
    with browse(chromium) as found:
        yield found


@pytest.fixture(scope="module")
def page(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "page.html"
    return write_report(path, case.selection, case.sketch, title="A <title> & more", drift=case.periods)


@pytest.fixture(scope="module")
def page_of_two_fields(two_fields: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "two.html"
    return write_report(path, two_fields.selection, two_fields.sketch)


def test_the_page_loads_without_complaint_and_asks_for_nothing(browser: Browser, page: Path):
    browser.open(page)
    assert browser.complaints() == []
    assert browser.requests() == []
    assert browser.run("document.title") == "A <title> & more"
    assert browser.run("document.getElementById('trouble').hidden")


def test_every_figure_is_drawn(browser: Browser, page: Path):
    browser.open(page)
    for figure in ("forest", "reliability", "curves", "histogram", "drift"):
        assert browser.run(f"document.querySelectorAll('#{figure} .trace').length") >= 2, figure


def test_the_view_selector_changes_every_plot_but_the_forest(browser: Browser, page: Path):
    browser.open(page)
    figures = ("reliability", "curves", "histogram", "drift")
    before = {figure: browser.run(SHOWN.format(figure)) for figure in (*figures, "forest")}
    summary = browser.run("document.getElementById('summary').textContent")
    browser.run(CHOOSE.format("view", 2))
    for figure in figures:
        assert browser.run(SHOWN.format(figure)) != before[figure], figure
    assert browser.run(SHOWN.format("forest")) == before["forest"]
    assert browser.run("document.getElementById('summary').textContent") != summary
    assert browser.complaints() == []


def test_field_values_are_shown_as_text_whatever_they_contain(browser: Browser, page: Path):
    browser.open(page)
    shown = browser.run("[...document.querySelectorAll('#view option')].map((option) => option.dataset.label)")
    assert sorted(shown) == sorted(["All rows", *VALUES])
    ticks = browser.run("[...document.querySelectorAll('#forest .ytick text')].map((tick) => tick.textContent)")
    assert sorted(ticks) == sorted(VALUES)
    browser.run(CHOOSE.format("view", shown.index("</script>")))
    legend = browser.run("[...document.querySelectorAll('#curves .legendtext')].map((entry) => entry.textContent)")
    assert "</script>" in legend


def test_a_click_on_the_forest_chooses_that_value(browser: Browser, page: Path):
    browser.open(page)
    # Plotly calls back with the points under the pointer; the first line is the costliest value.
    browser.run("document.getElementById('forest').emit('plotly_click', {points: [{pointIndex: 0}]})")
    costliest = browser.run("document.querySelector('.values tbody th').textContent")
    chosen = "document.getElementById('view').selectedOptions[0].dataset.label"
    assert browser.run(chosen) == costliest


def test_the_field_selector_changes_the_forest_and_its_table(browser: Browser, page_of_two_fields: Path):
    browser.open(page_of_two_fields)
    before = browser.run(SHOWN.format("forest"))
    browser.run(CHOOSE.format("field", 1))
    assert browser.run(SHOWN.format("forest")) != before
    visible = browser.run("[...document.querySelectorAll('.values:not([hidden]) summary')].map((s) => s.textContent)")
    assert visible == ["All 4 values of source as a table"]
    assert browser.run("[...document.querySelectorAll('#view optgroup')].map((group) => group.label)") == [
        "country",
        "source",
        "country × source",
    ]
    assert browser.complaints() == []


@pytest.mark.parametrize(("width", "dark"), [(1100, False), (1100, True), (390, False), (390, True)])
def test_the_page_fits_its_screen_in_light_and_dark(
    browser: Browser, page: Path, tmp_path: Path, width: int, dark: bool
):
    browser.open(page, width=width, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") <= width
    widest = "Math.max(...[...document.querySelectorAll('.main-svg')].map((e) => e.getBoundingClientRect().right))"
    assert browser.run(widest) <= width
    browser.picture(tmp_path / "page.png")
    with Image.open(tmp_path / "page.png") as picture:
        pixels = np.asarray(picture.convert("L"))
    assert (np.median(pixels) < 64) == dark
    # Text of the figures contrasts with the page: it takes the page's own ink.
    ink = browser.run("getComputedStyle(document.querySelector('#reliability .xtick text')).fill")
    brightness = np.mean([int(part) for part in ink.removeprefix("rgb(").removesuffix(")").split(",")])
    assert (brightness > 128) == dark


def test_the_page_follows_a_change_of_theme_while_open(browser: Browser, page: Path):
    browser.open(page)
    fill = "getComputedStyle(document.querySelector('#curves .xtick text')).fill"
    light = browser.run(fill)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    browser.wait(f"{fill} !== '{light}'")


def test_the_page_prints(browser: Browser, page: Path, tmp_path: Path):
    browser.open(page, dark=True)
    browser.printed(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    browser.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    browser.wait("getComputedStyle(document.querySelector('#curves .xtick text')).fill === 'rgb(68, 68, 68)'")
    # A sheet of A4 has 717 pixels between the margins.
    widest = "Math.max(...[...document.querySelectorAll('.main-svg')].map((e) => e.getBoundingClientRect().width))"
    assert browser.run(widest) <= 717
