"""What a study leaves behind: tables as Markdown and CSV, figures, and the words around them."""

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mcnet._shared.files import whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Cell", "Page", "Table", "Value", "slug", "write_page"]


@dataclass(frozen=True)
class Value:
    """A figure over seeds: its mean and, from two seeds on, its standard deviation."""

    mean: float
    deviation: float = math.nan
    digits: int = 4
    factor: float = 1.0
    unit: str = ""

    @classmethod
    def of(cls, values: Sequence[float], digits: int = 4, factor: float = 1.0, unit: str = "") -> "Value":
        """Return the mean and the sample standard deviation of one figure per seed."""
        found = np.asarray(values, dtype=np.float64)
        spread = float(found.std(ddof=1)) if len(found) > 1 else math.nan
        return cls(float(found.mean()) if len(found) else math.nan, spread, digits, factor, unit)

    @classmethod
    def percent(cls, values: Sequence[float]) -> "Value":
        """Return a share, shown in percent."""
        return cls.of(values, digits=2, factor=100.0, unit="%")

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "–"
        shown = f"{self.mean * self.factor:.{self.digits}f}{self.unit}"
        if math.isnan(self.deviation):
            return shown
        return f"{shown} ({self.deviation * self.factor:.{self.digits}f})"


Cell = str | Value


@dataclass(frozen=True)
class Table:
    """A table; a Value becomes two columns in the CSV, its mean and its standard deviation."""

    name: str
    caption: str
    headings: tuple[str, ...]
    lines: list[tuple[Cell, ...]]

    def markdown(self) -> str:
        """Return the table for people."""
        aligned = ["---" if not _is_value(self.lines, place) else "---:" for place in range(len(self.headings))]
        rows = [self.headings, tuple(aligned), *(tuple(map(str, line)) for line in self.lines)]
        return f"**{self.caption}**\n\n" + "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"

    def write_csv(self, path: Path) -> None:
        """Return the table for programs: means and standard deviations as plain numbers."""
        valued = [_is_value(self.lines, place) for place in range(len(self.headings))]
        header: list[str] = []
        for heading, numeric in zip(self.headings, valued, strict=True):
            header += [heading, f"{heading} std"] if numeric else [heading]
        with whole_file(path) as part, part.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            for line in self.lines:
                cells: list[str] = []
                for cell, numeric in zip(line, valued, strict=True):
                    if isinstance(cell, Value):
                        cells += [_plain(cell.mean), _plain(cell.deviation)]
                    else:
                        cells += [cell, ""] if numeric else [cell]
                writer.writerow(cells)


@dataclass(frozen=True)
class Page:
    """A study: what the paper claims, what we found in a few sentences, and the tables and figures behind it."""

    name: str
    title: str
    claim: str
    finding: str | Sequence[str]
    tables: list[Table] = field(default_factory=list)
    figures: dict[str, "Figure"] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def found(self) -> str:
        """Return the finding as Markdown: a paragraph, or a list if there are several things to say."""
        if isinstance(self.finding, str):
            return f"**Here:** {self.finding}"
        return "\n".join(["**Here:**\n", *(f"- {text}" for text in self.finding)])


def write_page(page: Page, folder: Path, setting: str, mark: str = "") -> Path:
    """Write a study into a folder: `name.md`, a CSV for each table, an SVG and a PNG for each figure.

    `setting` stands below the title, and `mark` at the end, where readers do not see it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = [f"# {page.title}", setting, f"**The paper:** {page.claim}", page.found()]
    for name, figure in page.figures.items():
        stem = f"{page.name}-{name}"
        for kind in ("svg", "png"):
            with whole_file(folder / f"{stem}.{kind}") as part:
                figure.savefig(part, format=kind, dpi=110, bbox_inches="tight")
        text.append(f"![{name}]({stem}.svg)")
    for table in page.tables:
        target = f"{page.name}-{table.name}.csv"
        table.write_csv(folder / target)
        text += [table.markdown().rstrip(), f"([{target}]({target}))"]
    text += [*page.notes, *([mark] if mark else [])]
    path = folder / f"{page.name}.md"
    with whole_file(path) as part:
        part.write_text("\n\n".join(text) + "\n", encoding="utf-8")
    return path


def slug(text: str) -> str:
    """Return a task as a part of a file name.

    >>> slug("CTR (Huawei Browser)"), slug("sale/click (mine.parquet)")
    ('ctr-huawei-browser', 'sale-click-mine.parquet')
    """
    return re.sub(r"[^\w.]+", "-", text.lower()).strip("-")


def _is_value(lines: Sequence[Sequence[Cell]], place: int) -> bool:
    return any(isinstance(line[place], Value) for line in lines)


def _plain(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.10g}"
