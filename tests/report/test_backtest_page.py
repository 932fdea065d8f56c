"""The page of a backtest: its tables as text, and its figures in a real browser."""

from pathlib import Path

import numpy as np
import pytest
from tests.report.browser import browse, find_chromium
from tests.report.conftest import VALUES

from mcnet.report.backtest_page import MOST_POINTS, pcoc_figure, regret_figure, shown_forecasters, write_backtest_report
from mcnet.tracking.backtest_result import Backtest, backtest_of
from mcnet.tracking.backtest_run import Record

FORECASTERS = ("base scores", "tracker", "platt, half-life 4", "platt, once")


def made(periods: list[str], *, fields: tuple[str, ...] = ("country",)) -> Backtest:
    """Return a backtest of made-up figures, as a run writes them."""
    rng, record = np.random.default_rng(0), Record()
    for period in periods:
        positives = float(rng.integers(80, 120))
        for place, name in enumerate(FORECASTERS):
            expected = positives * float(np.exp(rng.normal(0.1, 0.1)))
            figures = {"rows": 1000, "weight": 1000.0, "positives": positives, "expected": expected}
            figures |= {"expected_squared": 0.12 * expected, "expected_positive": 0.1 * expected}
            figures |= {"log_loss": 0.3 - 0.01 * (place == 1) + 0.01 * rng.random(), "f_rce": 0.1 if fields else None}
            record.figures.append({"period": period, "forecaster": name, **figures})
        counts = {"weight": 250.0, "positives": 25.0, "base_expected": 26.0, "tracker_expected": 25.5}
        record.values += [{"period": period, "field": "country", "value": v, **counts} for v in VALUES if fields]
        belief = [("memory", "level", 2.0), ("memory", "slope and shape", 20.0)]
        belief += [("weight", name, 0.3) for name in ("memory 8", "memory 0.5", "everything", "base scores")]
        record.beliefs += [{"period": period, "part": part, "name": name, "value": v} for part, name, v in belief]
    return backtest_of(record, {"platt, once": 2}, delay=1, fields=fields, level=0.95, seed=0)


DAYS = [f"2026-11-{day:02}" for day in range(1, 25)]


def test_the_page_has_the_table_and_escapes_field_values(tmp_path):
    page = write_backtest_report(tmp_path / "page.html", made(DAYS), title="A <title>").read_text(encoding="utf-8")
    assert "<title>A &lt;title&gt;</title>" in page
    for name in FORECASTERS:
        assert name in page
    assert "best in hindsight" in page
    assert "platt, once: 2 fits failed" in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert page.count("</script>") == 3


def test_the_right_ends_of_the_regret_are_the_differences_to_the_best():
    found = made(DAYS)
    ends = {trace["name"]: trace["y"][-1] for trace in regret_figure(found)["data"] if "name" in trace}
    losses = dict(zip(found.summary["forecaster"], found.summary["log_loss"], strict=True))
    assert list(ends) == shown_forecasters(found)
    for name, end in ends.items():
        assert end == pytest.approx(losses[name] - losses[found.best], abs=1e-7)


def test_hours_of_a_year_are_drawn_by_blocks_with_narrower_intervals():
    hours = [f"2026-{month:02}-{day:02}T{hour:02}:00" for month in (1, 2) for day in range(1, 29) for hour in range(24)]
    long, short = (pcoc_figure(made([hour.replace("T00:00", "") for hour in part])) for part in (hours, hours[:100]))
    sizes = [len(figure["data"][0]["x"]) for figure in (long, short)]
    assert sizes[0] <= MOST_POINTS
    assert sizes[1] == 100
    widths = [np.nanmean(figure["data"][0]["error_y"]["array"]) for figure in (long, short)]
    assert widths[0] < 0.6 * widths[1]


def test_without_a_field_there_are_no_field_values(tmp_path):
    page = write_backtest_report(tmp_path / "page.html", made(DAYS, fields=())).read_text(encoding="utf-8")
    assert 'id="level"' not in page
    assert "F-RCE" not in page


@pytest.mark.parametrize(("width", "dark"), [(1100, False), (390, True)])
def test_the_page_in_a_browser(tmp_path: Path, width: int, dark: bool):
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    page = write_backtest_report(tmp_path / "page.html", made(DAYS))
    with browse(chromium) as browser:
        browser.open(page, width=width, dark=dark)
        for figure in ("regret", "pcoc", "memory", "weights", "level"):
            assert browser.run(f"document.querySelectorAll('#{figure} .main-svg').length") > 0, figure
        assert browser.run("document.getElementById('pcoc').layout.xaxis.type") == "date"
        assert browser.run("document.getElementById('pcoc').layout.yaxis.type") == "log"
        browser.run("document.getElementById('view').value = '2'")
        browser.run("document.getElementById('view').dispatchEvent(new Event('change'))")
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.complaints() == []
        assert browser.requests() == []
