"""The page as a file: whole, self-contained, the same twice, honest about what it shows."""

import base64
import gzip
import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from tests.report.conftest import Case

from mcnet.bayes.estimator import BayesMCNet
from mcnet.calibrators.binning import Histogram
from mcnet.datasets.simulator import simulate
from mcnet.errors import InputError
from mcnet.metrics.evaluation import evaluate_cells, predict_cells
from mcnet.plots.figures import worst_first
from mcnet.plots.style import error_bars, in_rows, numbers
from mcnet.report.page import packed_data, write_evaluation, write_report
from mcnet.selection import difference_words, select
from mcnet.sketch.sketch import Sketch


def words(page: Path) -> str:
    """Return the page without what it carries packed."""
    return re.sub(r'<script type="text/plain".*?</script>', "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def data(page: Path, method: int = 0) -> dict:
    """Return what the page carries for one of its methods; the first is the one it opens with."""
    packed = re.search(r'id="data-packed">([^<]*)<', page.read_text(encoding="utf-8"))
    assert packed is not None
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))[method]


def test_what_is_packed_comes_back():
    low, value = numbers(np.linspace(0.1, 0.9, 20)), numbers(np.linspace(0.2, 0.95, 20))
    data = [{"error_y": error_bars(value, low, value, "#000", 1), "customdata": in_rows(low, value)}]
    assert json.loads(gzip.decompress(base64.b64decode(packed_data(data)))) == data


def test_the_headline_has_the_range_of_single_periods(case: Case, page: Path):
    first, *_ = re.findall(r'class="headline">.*?</header>', words(page), flags=re.DOTALL)
    low, high = re.search(r"single periods after: ([0-9.]+) … ([0-9.]+)<", first).groups()
    drawn = data(page)["views"][0]["figures"]["drift"]["data"][1]["y"]
    assert float(low) == pytest.approx(min(drawn), abs=0.006)
    assert float(high) == pytest.approx(max(drawn), abs=0.006)
    alone = write_report(page.with_name("alone.html"), case.selection, case.sketch)
    assert "single periods" not in words(alone)


def test_differences_have_the_unit_of_the_terminal(case: Case, page: Path):
    worst = case.selection.results[-1]
    over, error = difference_words(worst.difference.value, worst.difference.standard_error)
    assert f"<td>{over}<small>± {error}</small></td>" in words(page)
    assert f"{over} ± {error}" in str(case.selection)
    assert words(page).count("×10⁻⁵") == 1


def test_the_page_of_an_evaluation_shows_a_model_before_and_after(case: Case, tmp_path: Path):
    model = case.selection.calibrator.model_
    page = write_evaluation(tmp_path / "page.html", model, case.sketch, title="A model", periods=case.periods)
    text = unescape(words(page))
    assert f"before and after <strong>{model.method}</strong>" in text
    assert 'id="comparison"' not in text
    assert "the judged rows" in text
    assert "single periods after" in text
    # The worst values are those of the terminal, which has the evaluation of the model alone.
    found = evaluate_cells(predict_cells(model, case.sketch), case.sketch)
    for name, drawn in zip(found.fields, data(page)["forests"], strict=False):
        order = worst_first(found.fields[name].table)
        assert drawn["values"] == [found.fields[name].table.values[i] for i in order][: len(drawn["values"])]
    assert len(data(page)["views"]) == 5
    for view in data(page)["views"]:
        assert view["figures"]["judged-drift"]["data"][0]["text"] == ["mon", "tue", "wed"]


@pytest.fixture
def page(case: Case, tmp_path: Path) -> Path:
    return write_report(tmp_path / "page.html", case.selection, case.sketch, title="May", drift=case.periods)


def test_the_page_says_what_each_field_contributes(case: Case, page: Path, tmp_path: Path):
    model = BayesMCNet().fit_sketch(case.sketch).model_
    text = write_evaluation(tmp_path / "fields.html", model, case.sketch).read_text(encoding="utf-8")
    section = text[text.index('<section id="contributions">') :].partition("</section>")[0]
    assert "log-loss without it" in section
    assert "country = &lt;b&gt;bold&lt;/b&gt;" in section
    assert 'id="contributions"' not in page.read_text(encoding="utf-8")


def test_the_page_names_no_address_on_the_network(page: Path):
    assert not re.search(r"(https?:)?//[a-z]", words(page).replace("// ", ""))
    assert "http" not in json.dumps(data(page))


def test_the_same_comparison_gives_the_same_bytes(case: Case, page: Path, tmp_path: Path):
    again = write_report(tmp_path / "again.html", case.selection, case.sketch, title="May", drift=case.periods)
    assert again.read_bytes() == page.read_bytes()


def test_the_page_stays_below_the_size_of_a_mail(page: Path):
    assert page.stat().st_size < 2_500_000


def test_what_was_fitted_is_said(case: Case, page: Path):
    text = unescape(words(page))
    for said in ("60,000 rows", f"{case.sketch.total_positives:,.0f} positives", "platt-field", "country (4 values)"):
        assert said in text
    assert "rows held back in turn, 4 folds" in text


def test_the_comparison_has_every_method_and_marks_the_chosen_one(case: Case, page: Path):
    table = re.search(r'id="comparison">.*?</section>', words(page), flags=re.DOTALL)
    assert table is not None
    lines = re.findall(r'<tr(.*?)><th scope="row">(\S+)', table[0])
    assert [name.partition("<")[0] for _, name in lines] == [r.method for r in case.selection.results]
    assert [name for attributes, name in lines if "chosen" in attributes] == [case.selection.chosen.method]
    assert "broken" in table[0]  # histogram binning does not keep the order
    # Between contexts a method with fields may change it, and the AUC beside it with it.
    assert "<td>kept<small>within each context</small></td>" in table[0]
    assert "<td>kept</td>" in table[0]


def test_a_page_without_fields_has_no_selector_and_no_forest(tmp_path: Path):
    log = simulate(5_000, seed=1)
    sketch = Sketch.from_rows(log.score, log.label, folds=2)
    page = write_report(tmp_path / "page.html", select(sketch, methods=["base", "platt"]), sketch)
    assert "<select" not in words(page)
    assert 'id="forest"' not in words(page)
    assert 'id="drift"' not in words(page)
    assert data(page)["forests"] == []
    assert len(data(page)["views"]) == 1


def test_test_rows_take_the_place_of_those_held_back(case: Case, tmp_path: Path):
    log = simulate(4_000, seed=9)
    test = Sketch.from_rows(log.score, log.label, field={"country": ["NL"] * 2_000 + ["unseen"] * 2_000})
    page = write_report(tmp_path / "page.html", case.selection, case.sketch, test=test)
    assert "the test rows: 4,000 rows" in words(page)
    assert data(page)["views"][0]["summary"].startswith("4,000 rows")
    assert len(data(page)["views"]) == 3
    # A value that the fit had not seen is shown as it would be served.
    assert data(page)["views"][2]["figures"]["curves"]["data"][0]["name"] == "unseen"


def test_only_the_heaviest_views_are_kept(case: Case, tmp_path: Path):
    page = write_report(tmp_path / "page.html", case.selection, case.sketch, views=4)
    for method in range(2):  # base changes nothing and is not shown
        assert len(data(page, method)["views"]) == 3


def test_the_page_opens_with_the_chosen_method_and_offers_the_next_best(case: Case, page: Path):
    assert [data(page, method)["method"] for method in range(2)] == ["platt-field", "histogram"]
    assert data(page, 0)["views"][0]["figures"] != data(page, 1)["views"][0]["figures"]
    assert "Each of the 5 curves of platt-field" in data(page, 0)["order"]
    assert "within a context a higher score never gets a lower probability" in data(page, 0)["order"]
    assert "histogram falls" in data(page, 1)["order"]
    assert re.findall(r'<option value="\d">([a-z-]+)( \(chosen\))?<', words(page)) == [
        ("platt-field", " (chosen)"),
        ("histogram", ""),
    ]
    one = write_report(page.with_name("one.html"), case.selection, case.sketch, methods=1)
    assert 'id="method"' not in words(one)


def test_where_the_raw_scores_win_the_runner_up_is_shown(tmp_path: Path):
    log = simulate(20_000, seed=3)
    rng = np.random.default_rng(0)
    sketch = Sketch.from_rows(log.score, rng.random(len(log)) < log.score, folds=2)  # the scores are right
    selection = select(sketch, methods=["base", "histogram"])
    assert selection.chosen.method == "base"
    page = write_report(tmp_path / "page.html", selection, sketch)
    assert data(page)["method"] == "histogram"
    assert "Leave the scores as they are" in words(page)
    assert "Raw scores → histogram" in words(page)
    alone = write_report(tmp_path / "alone.html", select(sketch, methods=["base"]), sketch)
    assert data(alone)["method"] == "base"


def test_results_come_before_facts(page: Path):
    text = words(page)
    assert text.index('class="headline"') < text.index('id="comparison"') < text.index('id="fitted"')
    assert re.search(r"<span class=\"quiet\">PCOC</span><strong>[\d.]+ → [\d.]+</strong>", text)


def test_a_view_of_several_contexts_draws_and_names_their_mean(two_fields: Case, tmp_path: Path):
    page = write_report(tmp_path / "page.html", two_fields.selection, two_fields.sketch)
    places = re.findall(r'<option value="(\d+)" data-label="([^"]*)" data-group="([^"]*)"', words(page))
    by_group = {}
    for place, label, group in places:
        by_group.setdefault(group, (int(place), label))
    for group, number in (("", 12), ("country", 4), ("source", 3)):
        view = data(page)["views"][by_group[group][0]]
        names = [trace.get("name") for trace in view["figures"]["curves"]["data"]]
        assert names[0] == "mean"
        assert f"over all {number} contexts" in view["explanation"]
        assert ("pooled" in names) == (group == "")
    single = data(page)["views"][by_group["country × source"][0]]
    assert single["figures"]["curves"]["data"][0]["name"] == by_group["country × source"][1]
    assert "thin lines" not in single["explanation"].lower()


def test_test_rows_with_other_fields_are_refused(case: Case, tmp_path: Path):
    test = Sketch.from_rows([0.1, 0.2], [0, 1], field={"city": ["a", "b"]})
    with pytest.raises(InputError, match="country"):
        write_report(tmp_path / "page.html", case.selection, case.sketch, test=test)
    assert list(tmp_path.iterdir()) == []


def test_fresh_and_fitted_periods_have_a_figure_each(case: Case, page: Path, tmp_path: Path):
    assert "has not seen" not in words(page).partition("Over time")[2]
    assert "in-sample" in words(page)
    later = {"thu": next(iter(case.periods.values()))}
    both = write_report(tmp_path / "both.html", case.selection, case.sketch, drift=case.periods, test_drift=later)
    whole, *others = data(both)["views"]
    assert whole["figures"]["drift"]["data"][0]["text"] == ["mon", "tue", "wed"]
    for view in (whole, *others):
        assert view["figures"]["fresh-drift"]["data"][0]["text"] == ["thu"]
    assert not any("drift" in view["figures"] for view in others)
    assert "This figure is of all rows" in words(both)
    assert re.findall(r"<h3>Over time: (\w+)", words(both)) == ["fresh", "fitted"]


def test_parameters_are_a_table_that_marks_what_is_not_the_default(tmp_path: Path):
    log = simulate(5_000, seed=1)
    sketch = Sketch.from_rows(log.score, log.label, folds=2)
    selection = select(sketch, methods=[Histogram(bins=7)])
    page = unescape(words(write_report(tmp_path / "page.html", selection, sketch)))
    assert "bins = 7; the others at their defaults" in page
    table = re.search(r'id="parameters">.*?</details>', page, flags=re.DOTALL)[0]
    lines = re.findall(r'<th scope="row">(\w+)</th><td>(.*?)</td><td class="quiet">(.*?)</td>', table)
    assert lines[0] == ("bins", "7", "instead of 20")
    assert {name for name, _, _ in lines} == set(Histogram().get_params())
    assert all(mark == "default" for _, _, mark in lines[1:])
    assert "F-RCE" not in page  # no field


def test_defaults_are_said_in_a_word(tmp_path: Path):
    log = simulate(5_000, seed=1)
    sketch = Sketch.from_rows(log.score, log.label, folds=2)
    page = write_report(tmp_path / "page.html", select(sketch, methods=["histogram"]), sketch)
    assert "all at their defaults" in words(page)
