"""The dashboard in a real browser: phone and desktop, light and dark, promote and roll back, and no other host."""

import shutil

import pytest
from tests.report.browser import browse, find_chromium
from tests.service.conftest import rows
from tests.service.running import TOKEN, running

from mcnet.sketch.sketch import Sketch
from mcnet.store.journal import Journal

LOOKS = [(390, False), (390, True), (1280, False), (1280, True)]


@pytest.fixture(scope="module")
def page(template, tmp_path_factory):
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("Chromium is not installed")
    folder = tmp_path_factory.mktemp("dashboard")
    shutil.copy(template, folder / "ads.db")
    journal = Journal(folder / "ads.db")
    for hour in range(5):
        score, label, country = rows(hour, 3_000)
        journal.add(Sketch.from_rows(score, label, field={"country": country}), f"2026-11-16T{hour:02}", source="shop")
    with (
        running(folder / "ads.db", folder, "--name", "clicks") as service,
        browse(chromium) as browser,
    ):
        service.calibrate([0.1] * 4, {"country": ["NL", "NL", "NL", "XX"]})
        yield service, browser


def go(service, browser, path="/", width=1280, dark=False):
    browser.events.clear()
    browser.look(width=width, height=900, dark=dark)
    browser.call("Page.navigate", url=service.url + path)
    browser.wait("document.documentElement?.dataset.ready === 'yes'" if path == "/" else "document.title !== ''")


@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_the_page_shows_the_state_on_every_screen(page, width, dark):
    service, browser = page
    go(service, browser, width=width, dark=dark)
    assert browser.run("document.getElementById('name').textContent") == "clicks"
    assert browser.run("document.querySelectorAll('#version-rows tr').length") == 3
    assert browser.run("document.querySelectorAll('#curve-plot polyline').length") == 5
    assert (
        browser.run("document.querySelectorAll('#calibration .on-desk circle').length") == 10
    )  # raw, and the version of now
    assert browser.run("document.querySelectorAll('#feedback .on-desk rect').length") == 10  # rows, and positives
    tiles = browser.run("document.getElementById('tiles').textContent")
    assert "Unseen values25.0 %" in tiles
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    ground = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 200) == dark
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith(service.url)] == []


def test_a_field_value_has_its_curve_with_an_interval(page):
    service, browser = page
    go(service, browser)
    browser.run("document.querySelector('#pick select').value = 'NL'")
    browser.run("document.querySelector('#pick select').dispatchEvent(new Event('change'))")
    browser.wait("document.querySelectorAll('#curve-plot polygon').length === 1")
    assert "NL" in browser.run("document.getElementById('curve-plot').textContent")
    assert browser.complaints() == []


def test_promote_and_roll_back_need_the_token(page):
    service, browser = page
    go(service, browser, width=390)
    browser.run("document.querySelector('button[data-version=\"3\"]').click()")
    browser.wait("document.getElementById('confirm').open")
    fill = "document.getElementById('token').value = {!r}; document.getElementById('go').click()"
    browser.run(fill.format("a-wrong-token-of-enough-length"))
    browser.wait("!document.getElementById('wrong').hidden")
    assert "token is wrong" in browser.run("document.getElementById('wrong').textContent")
    assert service.calibrate([0.1], {"country": ["NL"]})["version"] == "1"
    browser.run("document.getElementById('note').value = '<b>better</b>'; " + fill.format(TOKEN))
    browser.wait("document.documentElement.dataset.served === '3'")
    assert service.calibrate([0.1], {"country": ["NL"]})["version"] == "3"
    assert "Version 3 promoted: <b>better</b> by " in browser.run("document.getElementById('events').textContent")
    browser.run("document.getElementById('rollback').click()")
    browser.wait("document.getElementById('confirm').open")
    browser.run("document.getElementById('go').click()")
    browser.wait("document.documentElement.dataset.served === '1'")
    assert service.calibrate([0.1], {"country": ["NL"]})["version"] == "1"
    browser.wait("!document.getElementById('release').hidden")
    assert "Rolled back from version 3 to version 1" in browser.run("document.getElementById('events').textContent")
    shown = browser.run("document.getElementById('held').textContent")
    assert "Version 1 is held since" in shown
    assert "rolled back from version 3" in shown
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    browser.run("document.getElementById('release').click()")
    browser.wait("document.getElementById('confirm').open")
    browser.run("document.getElementById('go').click()")
    browser.wait("document.getElementById('held') === null && document.getElementById('release').hidden")
    assert TOKEN not in service.log_file.read_text()


def test_the_list_of_requests_has_every_route(page):
    service, browser = page
    go(service, browser, "/docs", width=390)
    shown = browser.run("document.body.textContent")
    described = service.get("/openapi.json").document["paths"]
    assert set(described) >= {"/calibrate", "/feedback", "/v2/models/{name}/versions/{version}/infer"}
    for path, methods in described.items():
        for method in methods:
            assert f"{method.upper()} {path}" in shown
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.complaints() == []


def test_pages_may_not_load_or_send_anything_elsewhere(page):
    service, _ = page
    for path in ("/", "/docs"):
        policy = service.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
    wrong = service.get("/curves?country=NL&x=1")
    assert wrong.status == 400
