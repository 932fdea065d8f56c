"""What a notebook shows of our objects: tables and figures."""

import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from plotly.graph_objects import Figure

import mcnet
from mcnet.errors import InputError, NotFittedError
from mcnet.plots.figures import Line, draw_curves
from mcnet.plots.style import as_svg
from mcnet.plots.timeline import Drift, draw_drift, draw_rows

RNG = np.random.default_rng(0)
SCORES = RNG.uniform(0.01, 0.2, 4000)
LABELS = RNG.random(4000) < SCORES / 2
FIELD = {"country": RNG.choice(["NL", "<FR>", "PL"], 4000)}


@pytest.fixture(scope="module")
def fitted() -> mcnet.Calibrator:
    return mcnet.PlattField().fit(SCORES, LABELS, field=FIELD)


def names(figure: Figure) -> list[str]:
    return [trace.name for trace in figure.data if trace.name]


def test_a_calibrator_and_its_model_plot_the_pooled_curve_and_the_contexts(fitted: mcnet.Calibrator):
    assert isinstance(fitted.plot(), Figure)
    assert set(names(fitted.plot())) == {"pooled", "&lt;FR>", "NL", "PL"}
    assert names(fitted.model_.plot()) == names(fitted.plot())
    assert names(fitted.plot(field="NL")) == ["NL"]
    assert names(fitted.plot(field={"country": "unseen"})) == ["unseen"]


def test_the_largest_contexts_are_plotted_not_the_first_by_name():
    rng = np.random.default_rng(1)
    shares = np.array([*[0.02] * 10, *[0.2] * 4])
    shop = np.array([f"small {i}" for i in range(10)] + [f"x{i}" for i in range(4)])[rng.choice(14, 4000, p=shares)]
    both = {"shop": shop, "device": rng.choice(["tv", "web"], 4000, p=[0.1, 0.9])}
    for field in ({"shop": shop}, both):
        fitted = mcnet.PlattField().fit(SCORES, LABELS, field=field)
        shown = names(fitted.plot())
        assert len(shown) == 8
        assert {name.partition(" /")[0] for name in shown[1:5]} == {"x0", "x1", "x2", "x3"}
        assert names(fitted.model_.plot()) == shown


def test_a_field_that_was_left_out_is_no_part_of_a_plot():
    rng = np.random.default_rng(1)
    scores, country, noise = (
        rng.uniform(0.1, 0.5, 30_000),
        rng.choice(["NL", "FR"], 30_000),
        rng.integers(0, 20, 30_000),
    )
    labels = rng.random(30_000) < scores * np.where(country == "NL", 0.6, 1.2)
    calibrator = mcnet.BayesMCNet().fit(scores, labels, field={"country": country, "noise": noise.astype(str)})
    assert calibrator.left_out_fields_ == ("noise",)
    assert sorted(names(calibrator.plot())) == ["FR", "NL", "pooled"]
    for field in ("NL", {"country": "NL"}, {"country": "NL", "noise": "3"}):
        assert calibrator.model_.plot(field).data
    with pytest.raises(InputError, match="needs a value of each of country"):
        calibrator.plot({"noise": "3"})


def test_the_repr_of_a_fitted_calibrator_says_so(fitted: mcnet.Calibrator):
    assert repr(mcnet.PlattField()) == "PlattField()"
    assert repr(fitted) == "PlattField()  # fitted on 4,000 rows, 3 contexts of country"
    assert repr(mcnet.Platt().fit(SCORES, LABELS)) == "Platt()  # fitted on 4,000 rows, no field"


def test_an_unfitted_calibrator_has_nothing_to_plot():
    with pytest.raises(NotFittedError):
        mcnet.Platt().plot()


def test_a_model_without_provenance_is_plotted_over_nearly_all_scores(fitted: mcnet.Calibrator):
    model = fitted.model_
    bare = mcnet.CalibrationModel(model.method, {}, model.contexts, model.curves)
    assert max(bare.plot().data[0].x) == pytest.approx(0.999)


def test_plot_curves_adds_the_rows(fitted: mcnet.Calibrator):
    sketch = mcnet.Sketch.from_rows(SCORES, LABELS, field=FIELD)
    assert names(mcnet.plot_curves(fitted, sketch, "PL")) == ["PL", "observed rate"]
    assert names(mcnet.plot_curves(mcnet.Platt().fit(SCORES, LABELS), sketch)) == ["pooled", "observed rate"]
    others = mcnet.Sketch.from_rows(SCORES, LABELS, field={"city": FIELD["country"]})
    with pytest.raises(InputError, match="the sketch has no field 'country'; it has city"):
        mcnet.plot_curves(fitted, others, "PL")


def test_an_evaluation_plots_its_reliability_or_a_field(fitted: mcnet.Calibrator):
    before = mcnet.evaluate(SCORES, LABELS, field=FIELD)
    after = mcnet.evaluate(fitted.predict(SCORES, FIELD), LABELS, field=FIELD)
    assert set(names(after.plot())) == {"evaluated"}
    assert set(names(after.plot(before=before))) == {"before", "after"}
    assert names(after.plot("country", before=before)) == ["before", "after"]
    with pytest.raises(InputError, match="no field 'city'"):
        after.plot("city")


def test_every_object_has_a_table_of_its_own(fitted: mcnet.Calibrator):
    sketch = mcnet.Sketch.from_rows(SCORES, LABELS, field=FIELD)
    found = mcnet.select(sketch, methods=["base", "platt"])
    assert "4,000" in sketch._repr_html_()
    assert "platt-field" in fitted.model_._repr_html_()
    assert "F-RCE" in found.chosen.evaluation._repr_html_()
    assert "platt ←" in found._repr_html_()


def test_a_selection_is_one_line_among_others():
    found = mcnet.select(mcnet.Sketch.from_rows(SCORES, LABELS), methods=["base", "platt"])
    assert repr(found) == "Selection(platt of 2 methods, rows held back in turn, 5 folds)"
    assert repr(found.chosen) == f"MethodResult(platt, log-loss {found.chosen.log_loss:.5f})"


def test_small_probabilities_have_place_beside_the_axis_of_a_card():
    picture = as_svg(draw_curves([Line("NL", np.array([1e-4, 0.5]), np.array([6.6e-05, 0.4]))]), "Curves")
    labels = re.findall(r'<text x="(\d+)" y="\d+" text-anchor="end">([^<]+)</text>', picture)
    assert "6.6e-05" in [text for _, text in labels]
    # A digit of this size is 7 pixels wide at most.
    assert all(int(right) >= 7 * len(text) for right, text in labels)


@pytest.mark.parametrize("width", [340, 560])
def test_pictures_of_the_dashboard_have_bands_bars_and_safe_names(width):
    score = np.linspace(0.001, 0.5, 30)
    lines = [Line("<a>", score, 0.8 * score, 0.7 * score, 0.9 * score), Line("b", score, 0.6 * score)]
    curves = as_svg(draw_curves(lines), "Curves", width=width, style="")
    assert (curves.count("<polyline"), curves.count("<polygon"), "&lt;a&gt;" in curves) == (2, 1, True)
    names, unknown = ("<mon>", "tue"), [np.nan] * 3
    ratios = [[[1.5, np.nan, np.nan]] * 2, [[1.0, 0.9, 1.1], unknown], [unknown, [1.2, 1.0, 2.0]]]
    drift = Drift(names, ("raw", "then", "now"), *np.moveaxis(np.array(ratios), 2, 0), np.full(2, np.nan))
    drawn = as_svg(draw_drift(drift), "PCOC", width=width, style="")
    assert (drawn.count("<circle"), "nan" in drawn) == (4, False)
    assert "tue, raw: 1.5<" in drawn  # its interval is not known
    bars = as_svg(draw_rows(names, [0, 20_000], [0, 10]), "Rows", width=width, style="")
    assert bars.count("<rect") == 4
    assert "<title>tue: 20,000 rows, 10 positives</title>" in bars
    for picture in (curves, drawn, bars, as_svg(draw_rows(("mon",), [0], [0]), "Rows", style="")):
        ElementTree.fromstring(picture)
        assert " style=" not in picture  # a page of the service allows no style but its own


def test_a_tracker_has_a_table_and_names_midnight_among_hours():
    assert "no period yet" in mcnet.Tracker()._repr_html_()
    tracker = mcnet.Tracker()
    for hour in ("2026-11-15T22:00", "2026-11-15T23:00", "2026-11-16"):
        tracker.update(SCORES[:500], LABELS[:500], period=hour)
    assert repr(tracker) == "Tracker(3 periods until 2026-11-16T00:00, no field)"
    assert "weights" in tracker._repr_html_()
    assert "3 periods until 2026-11-16T00:00" in tracker._repr_html_()


def test_a_model_shows_no_raw_keys(fitted: mcnet.Calibrator):
    words = re.sub("<svg.*</svg>", "", fitted._repr_html_())
    words = re.sub("<[^>]*>", " ", words)
    assert "_" not in words
    assert all(
        term in words for term in ("fitted on", "4,000 rows", "PCOC before", "country (3 values)", " UTC by mcnet")
    )


def test_plotly_is_imported_by_plotting_alone():
    script = (
        "import sys, mcnet; cal = mcnet.Platt().fit([.1, .2, .3], [0, 1, 0]); cal.model_._repr_html_();"
        "assert 'plotly' not in sys.modules; cal.plot(); assert 'plotly' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_fitted_calibrator_shows_a_few_curves_without_a_script(fitted: mcnet.Calibrator):
    shown = fitted._repr_html_()
    assert shown == fitted.model_._repr_html_()
    assert shown.count("<polyline") == 4  # the pooled curve and three contexts
    assert "&lt;FR&gt;" in shown
    assert "<script" not in shown
    picture = re.search("<svg.*</svg>", shown)[0]
    ElementTree.fromstring(picture)
    many = mcnet.PlattField().fit(SCORES, LABELS, field=np.arange(4000) % 50)
    assert many._repr_html_().count("<polyline") == 4
    assert mcnet.Platt().fit(SCORES, LABELS)._repr_html_().count("<polyline") == 1
    with pytest.warns(mcnet.CalibrationWarning):
        constant = mcnet.Platt().fit([0.1, 0.1], [0, 0])
    assert "nan" not in constant._repr_html_()


def test_an_unfitted_calibrator_shows_its_parameters():
    assert "smooth_targets" in mcnet.Platt(smooth_targets=True)._repr_html_()
