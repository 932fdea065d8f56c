"""The figures as data: what is drawn where, and that Plotly accepts it."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from mcnet.metrics import FieldTable, reliability
from mcnet.plots.figures import (
    Line,
    Points,
    draw_curves,
    draw_forest,
    draw_histogram,
    draw_reliability,
    forest_of,
    masses_of,
    worst_first,
)
from mcnet.plots.style import as_plotly, as_svg, card
from mcnet.plots.timeline import Drift, draw_drift


def table(pcoc: list[float], weight: list[float], positives: list[float]) -> FieldTable:
    values, w, y = np.array(pcoc), np.array(weight), np.array(positives)
    mean = np.where(np.isfinite(values), values * y, 1.0) / w
    return FieldTable(("a", "b", "c"), w, y, mean, values, values / 1.05, values * 1.05)


BEFORE = table([1.5, 1.1, np.nan], [100.0, 10_000.0, 50.0], [10.0, 400.0, 0.0])
AFTER = table([1.0, 1.01, np.nan], [100.0, 10_000.0, 50.0], [10.0, 400.0, 0.0])


def accepted(spec: dict) -> None:
    """Plotly's own validation and strict JSON both take the figure."""
    as_plotly(spec)
    json.dumps(spec, allow_nan=False)


def test_the_forest_is_sorted_by_weight_times_error():
    forest = forest_of({"before": BEFORE})
    # b is 400·0.1 = 40 positives off, a 10·0.5 = 5, c 1.
    assert forest.values == ("b", "a", "c")
    np.testing.assert_allclose(forest.impact[0], [40.0, 5.0, 1.0])
    np.testing.assert_allclose(forest.pcoc[:, 0], [1.1])


def test_the_forest_of_a_model_is_sorted_by_its_own_errors_not_by_those_before_it():
    model = table([6.0, 0.9, np.nan], [100.0, 10_000.0, 50.0], [10.0, 400.0, 0.0])
    forest = forest_of({"before": BEFORE, "after": model, "other": BEFORE})
    assert forest.values == ("a", "b", "c")
    assert forest.values == tuple(model.values[i] for i in worst_first(model))
    np.testing.assert_allclose(forest.impact[forest.judged], [50.0, 40.0, 1.0])
    np.testing.assert_allclose(forest.pcoc[:, 0], [1.5, 6.0, 1.5])


def test_an_error_that_noise_explains_comes_after_a_smaller_one_that_it_does_not():
    # "a" has 40 positives too many, but its interval reaches 1; "b" 20 too many, of which noise explains few.
    pcoc = np.array([1.4, 1.2, 0.5])
    w, y = np.full(3, 1000.0), np.array([100.0, 100.0, 20.0])
    found = FieldTable(
        ("a", "b", "c"), w, y, pcoc * y / w, pcoc, np.array([0.9, 1.15, 0.4]), np.array([2.0, 1.25, 0.8])
    )
    np.testing.assert_allclose(found.beyond_noise, [0.0, 120 - 120 / 1.15, 10 - 10 / 0.8])
    assert forest_of({"before": found}).values == ("b", "c", "a")


def test_tables_are_matched_by_value():
    shuffled = FieldTable(*(tuple(c[::-1]) if isinstance(c, tuple) else c[::-1] for c in vars(AFTER).values()))
    forest = forest_of({"before": BEFORE, "after": shuffled})
    assert dict(zip(forest.values, forest.pcoc[1].tolist(), strict=True)) == pytest.approx(
        {"a": 1.0, "b": 1.01, "c": np.nan}, nan_ok=True
    )
    assert dict(zip(forest.values, forest.pcoc[0].tolist(), strict=True)) == pytest.approx(
        {"a": 1.5, "b": 1.1, "c": np.nan}, nan_ok=True
    )


def test_values_without_positives_are_left_out_of_the_forest_picture():
    spec = draw_forest(forest_of({"before": BEFORE, "after": AFTER}))
    assert spec["layout"]["yaxis"]["ticktext"] == ["b", "a"]
    low, high = spec["layout"]["xaxis"]["range"]
    assert low == pytest.approx(-high)
    assert 10**high > 1.5
    accepted(spec)


def test_the_costliest_values_alone_are_drawn():
    spec = draw_forest(forest_of({"before": BEFORE}), limit=1)
    assert spec["layout"]["yaxis"]["ticktext"] == ["b"]
    accepted(spec)


def test_reliability_has_logarithmic_axes_at_click_rates_only():
    rng = np.random.default_rng(0)
    for level, kind in ((0.02, "log"), (0.5, "linear")):
        p = level * rng.uniform(0.5, 1.5, 2000)
        spec = draw_reliability({"before": reliability(p, rng.random(2000) < p), "after": reliability(p, p)})
        assert spec["layout"]["xaxis"]["type"] == spec["layout"]["yaxis"]["type"] == kind
        accepted(spec)


def test_a_bin_without_positives_has_no_dot_on_the_diagram_but_a_band():
    found = reliability([0.01] * 50 + [0.02] * 50, [0] * 50 + [1] + [0] * 49, bins=2)
    spec = draw_reliability({"before": found})
    band, _, dots, _ = spec["data"][:4]
    assert dots["y"] == [None, 0.02]
    assert min(band["y"]) > 0.0
    accepted(spec)


def test_the_lower_panel_is_predicted_over_observed():
    found = reliability([0.1, 0.3], [0.2, 0.2], bins=2)
    assert draw_reliability({"p": found})["data"][3]["y"] == [0.5, 1.5]


def test_curves_have_bands_where_lines_have_them_and_dots_where_there_are_points():
    x = np.array([0.01, 0.02, 0.04])
    points = Points(x, x, x / 2, 2 * x, np.ones(3))
    plain, banded = Line("a<b", x, x), Line("c", x, x, x / 2, 2 * x)
    assert [trace.get("name") for trace in draw_curves([plain])["data"]] == ["a&lt;b", None]
    spec = draw_curves([banded], points)
    assert [trace.get("name") for trace in spec["data"]] == [None, "c", "observed rate", None]
    np.testing.assert_allclose(spec["data"][2]["error_y"]["array"], x)
    accepted(spec)


@pytest.mark.parametrize("values", [[0.001, 0.01, 0.02], [0.2, 0.5, 0.9], [0.01, 0.01, 0.01]])
def test_histogram_shares_add_up_to_one(values: list[float]):
    column = np.array(values)
    masses = masses_of({"before": column, "after": column[::-1]}, np.array([1.0, 2.0, 3.0]))
    for shares in masses.shares.values():
        assert shares.sum() == pytest.approx(1.0)
        assert len(shares) == len(masses.edges) - 1
    accepted(draw_histogram(masses))


def test_drift_draws_an_unknown_period_as_a_gap():
    pcoc = np.array([[1.1, np.nan], [1.0, 0.9]])
    spec = draw_drift(Drift(("mon", "tue"), ("before", "after"), pcoc, pcoc / 1.1, pcoc * np.inf, np.ones(2)))
    assert spec["data"][0]["y"] == [1.1, None]
    accepted(spec)


def drift(periods: tuple[str, ...], pcoc: list[float], width: list[float]) -> Drift:
    middle, factor = np.array([pcoc]), np.array([width])
    return Drift(periods, ("after",), middle, middle / factor, middle * factor, np.ones(len(periods)))


def test_drift_over_dates_has_an_axis_of_dates():
    for periods in (("2024-05", "2024-06"), ("2024-05-01", "2024-05-08"), ("2024-05-01 00:00", "2024-05-01 06:00")):
        spec = draw_drift(drift(periods, [1.0, 1.2], [1.1, 1.1]))
        assert spec["layout"]["xaxis"]["type"] == "date"
        assert spec["data"][0]["x"] == list(periods)
        accepted(spec)
    assert draw_drift(drift(("9", "10"), [1.0, 1.2], [1.1, 1.1]))["data"][0]["x"] == [9.0, 10.0]
    spec = draw_drift(drift(("mon", "tue"), [1.0, 1.2], [1.1, 1.1]))
    assert spec["layout"]["xaxis"]["ticktext"] == ["mon", "tue"]


def test_rows_without_a_time_are_told_beside_the_axis_of_dates():
    spec = draw_drift(drift(("2024-05-01", "2024-05-02", "(missing)"), [1.0, 1.2, 0.9], [1.1, 1.1, 1.1]))
    assert spec["data"][0]["x"] == ["2024-05-01", "2024-05-02"]
    assert spec["layout"]["annotations"][0]["text"] == "rows without a time: PCOC after 0.900"
    accepted(spec)


def test_drift_has_a_log_scale_set_by_periods_with_enough_rows():
    periods = tuple(f"2024-05-0{day}" for day in range(1, 6))
    spec = draw_drift(drift(periods, [1.0, 1.2, 0.9, 1.1, 7.0], [1.1, 1.1, 1.1, 1.1, 4.0]))
    line, faded = spec["data"][:2]
    assert line["text"] == list(periods[:4])
    assert (faded["text"], faded["opacity"]) == (["2024-05-05"], 0.3)
    assert spec["layout"]["yaxis"]["type"] == "log"
    low, high = spec["layout"]["yaxis"]["range"]
    assert 0.7 < 10**low < 0.9
    assert 1.2 < 10**high < 1.6
    accepted(spec)


def test_cards_escape_what_they_show():
    shown = card("<t>", ["<h>"], [["<c>", "&"]], "<n>")
    assert "<t>" not in shown
    assert "&lt;c&gt;" in shown
    assert "&amp;" in shown


def test_a_figure_is_drawn_without_a_script_as_plotly_draws_it():
    pcoc = np.array([[1.2, 1.1, 1.3], [np.nan, 1.0, 0.9]])
    periods = ("2026-11-01", "2026-11-02", "2026-11-03")
    spec = draw_drift(Drift(periods, ("before", "<after>"), pcoc, pcoc / 1.1, pcoc * 1.1, np.full(3, 100.0)))
    drawing = ElementTree.fromstring(as_svg(spec, "PCOC & periods", width=400))
    tag = "{http://www.w3.org/2000/svg}"
    titles = [title.text for title in drawing.iter(f"{tag}title")]
    assert titles[:2] == ["2026-11-01, before: 1.2 (1.09 … 1.32)", "2026-11-02, before: 1.1 (1 … 1.21)"]
    assert len(titles) == 5  # what is not known is not drawn
    labels = [text.text for text in drawing.iter(f"{tag}text")]
    assert {"2026-11-01", "2026-11-03", "before", "<after>", "1"} <= set(labels)
    heights = [float(circle.get("cy")) for circle in drawing.iter(f"{tag}circle")]
    assert sorted(range(5), key=lambda point: -heights[point]) == sorted(
        range(5), key=lambda point: pcoc[np.isfinite(pcoc)][point]
    )
    assert all(58 <= float(circle.get("cx")) <= 392 for circle in drawing.iter(f"{tag}circle"))


def test_a_period_that_one_series_does_not_know_is_not_thin_for_the_other():
    pcoc = np.array([[1.2, 1.1, 1.3], [np.nan, 1.0, 0.9]])
    spec = draw_drift(Drift(("1", "2", "3"), ("a", "b"), pcoc, pcoc / 1.1, pcoc * 1.1, np.full(3, 100.0)))
    assert spec["data"][0]["y"] == [1.2, 1.1, 1.3]
    assert not [trace for trace in spec["data"] if trace.get("opacity")]


@pytest.mark.parametrize(("width", "named"), [(340, 2), (560, 3)])
def test_names_of_periods_do_not_overlap_on_a_narrow_picture(width, named):
    hours = tuple(f"2026-11-16T{hour:02}:00" for hour in range(20))
    ones = np.ones((1, len(hours)))
    drift = Drift(hours, ("served",), ones, 0.9 * ones, 1.1 * ones, ones[0])
    assert len(re.findall(r'text-anchor="\w+">2026-11-16T', as_svg(draw_drift(drift), "PCOC", width=width))) == named
