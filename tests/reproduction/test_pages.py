"""Pages: what is written reads back, for people and for programs."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from reproduction.forces import Forces
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
    assert Page("p", "Title", "claim", "one.").found(" (3 s)") == "**Here:** one. (3 s)"
    assert Page("p", "Title", "claim", ["one.", "two."]).found(" (3 s)").startswith("**Here:** (3 s)\n")


HERE = Path(__file__).parents[2]
MARKED = re.compile(r"<!-- PAPER: ([^>]*) -->\n(.*?)(?=<!-- PAPER|\n## |\Z)", re.DOTALL)


@pytest.mark.parametrize(("names", "block"), MARKED.findall((HERE / "docs" / "reproduction.md").read_text("utf-8")))
def test_figures_of_the_documentation_are_those_of_the_committed_results(names, block):
    known = set()
    for name in names.split(", "):
        text = (HERE / "reproduction" / "results" / f"{name}.csv").read_text("utf-8")
        known |= {abs(float(number)) for number in re.findall(r"\d+\.\d+(?:e-\d+)?|\b\d+\b", text)}
    tables = [line for line in block.splitlines() if line.startswith("|")]
    figures = [number for line in tables for number in re.findall(r"\d+\.\d+(?:e-\d+)?", line)]
    assert len(figures) > 10
    for figure in figures:
        mantissa, _, exponent = figure.partition("e")
        step = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
        close = (abs(factor * value - float(figure)) <= 0.51 * step for value in known for factor in (1, 1e5))
        assert any(close), f"{figure} is in none of {names}; run the study again, or correct the page"
