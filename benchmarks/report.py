"""Tables, plots and the page they go to."""

import contextlib
import io
import json
import math
import os
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.measure import DATA, machine

PAGE = Path(__file__).parent / "RESULTS.md"
PLOTS = Path(__file__).parent / "plots"
KEPT = DATA / "results"
NO_PEER = "none was run"
_COLOURS = ("#0b5fa5", "#c2410c", "#15803d", "#7c3aed", "#b45309", "#be123c", "#0e7490", "#4d7c0f", "#64748b")


def table(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table."""
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    rows += ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines]
    return "\n".join(rows)


def seconds(value: float | None) -> str:
    """Return a time that reads well."""
    if value is None:
        return "—"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")):
        if abs(value) >= scale or unit == "ns":
            return f"{value / scale:.3g} {unit}"
    return str(value)


def size(value: float) -> str:
    """Return a number of bytes that reads well."""
    return f"{value / 1e6:.2f} MB" if value >= 1e6 else f"{value / 1e3:.1f} kB"


def keep(part: str, text: str, full: bool, figures: Any = None) -> None:
    """Keep the section of a part, with what it was measured on, until the page is put together."""
    KEPT.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    note = f"*{'Full' if full else 'Quick'} form, {stamp}, load {os.getloadavg()[0]:.1f}.*"
    (KEPT / f"{part}.md").write_text(f"{text.strip()}\n\n{note}\n")
    if figures is not None:
        (KEPT / f"{part}.json").write_text(json.dumps(figures, default=str))


def write_page(order: Sequence[str], goals: Callable[[Path, str], str]) -> None:
    """Put the kept sections into the page, below what they were to show; sections of other runs stay as they are."""
    page = PAGE.read_text() if PAGE.exists() else ""
    old = _sections(page)
    kept = [(KEPT / f"{part}.md").read_text() for part in order if (KEPT / f"{part}.md").exists()]
    new = {title: text for part in kept for title, text in _sections(part).items()}
    if not old or peer_versions() != NO_PEER:
        new |= _sections(_head())
    new |= _sections(goals(KEPT, page))
    sections = old | new
    sections[""] = _dated(sections[""], sections.values())
    PAGE.write_text("\n\n".join(text.strip() for text in sections.values()) + "\n")
    print(f"wrote {PAGE.name}")


def _sections(page: str) -> dict[str, str]:
    """Return the sections of a page by their headings; what is above the first one has the heading ""."""
    found: dict[str, str] = {}
    for text in re.split(r"(?m)^(?=#{1,2} )", page):
        if text.strip():
            title = text.splitlines()[0]
            found["" if title.startswith("# ") else title] = text
    return found


def _dated(head: str, sections: Iterable[str]) -> str:
    """Return the head of the page with the days on which its sections were measured."""
    days = sorted({day for text in sections for day in re.findall(r"\*(?:Full|Quick) form, ([-\d]+)", text)})
    span = " to ".join(dict.fromkeys([days[0], days[-1]])) if days else "no day"
    return re.sub(r"(?m)^Written by .*$", f"Written by `python -m benchmarks`. {_MEASURED.format(span)}", head, count=1)


_MEASURED = "Its sections were measured on {}; each says when, and in which form."


def _head() -> str:
    head = f"""# Results

Written by `python -m benchmarks`.
Machine: {machine(load=False)}, {platform.system()}, {memory_size():.0f} GB.
Peers, each in an environment of its own: {peer_versions()}.

Times are **CPU seconds on one thread**, for every method alike: on a machine that others use too, wall time measures
the others. A first fit on 2,000 rows pays for imports and compilers before the clock starts; turning columns into the
container a library wants is not timed. Ratios above 1 are in favour of mcnet. Memory is what a fit needs on top of the
rows. "One row" is asked for one by one over 300 different rows in turn. "over N s" means that the whole job was stopped
after N CPU seconds: reading the files, the first fit, the repeats and the predictions count too, so that a single fit
may well have taken less. "not tried" means that the same job was over the limit with as many rows, or with fewer.
A dash, or a method that is not in a table, means that the run was stopped before it was measured: "first" is then among
those with a figure in that very column, and says nothing on the others. A resumed run adds to the figures of
earlier ones.
"""
    return head


def peer_versions() -> str:
    """Return what the runners said of their libraries."""
    found: dict[str, str] = {}
    for path in sorted(KEPT.glob("*.json")):
        figures = json.loads(path.read_text())
        for job in figures if isinstance(figures, list) else []:
            if isinstance(job, dict) and job.get("peer", "mcnet") != "mcnet" and "versions" in job:
                found[job["peer"]] = ", ".join(f"{name} {version}" for name, version in job["versions"].items())
    return "; ".join(found.values()) or NO_PEER


def memory_size() -> float:
    """Return the machine's memory in GB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def plot(name: str, title: str, lines: dict[str, Sequence[tuple[float, float]]], unit: str = "s") -> str:
    """Write a small SVG with both axes logarithmic, and return the Markdown that shows it."""
    PLOTS.mkdir(exist_ok=True)
    (PLOTS / f"{name}.svg").write_text(_svg(title, lines, unit))
    return f"![{title}](plots/{name}.svg)"


def _svg(title: str, lines: dict[str, Sequence[tuple[float, float]]], unit: str) -> str:
    points = [point for line in lines.values() for point in line]
    low, high = (math.floor(math.log10(min(x for x, _ in points))), math.ceil(math.log10(max(x for x, _ in points))))
    base, top = (math.floor(math.log10(min(y for _, y in points))), math.ceil(math.log10(max(y for _, y in points))))
    high, top = max(high, low + 1), max(top, base + 1)
    wide, tall, left, upper = 420.0, 300.0, 70.0, 40.0

    def at(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - low) / (high - low) * wide
        return left + across, upper + tall - (math.log10(y) - base) / (top - base) * tall

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 400" font-family="sans-serif" font-size="12">',
        '<rect width="720" height="400" fill="white"/>',
        f'<text x="{left}" y="24" font-size="15">{title}</text>',
    ]
    for power in range(low, high + 1):
        x, y = at(10.0**power, 10.0**base)
        parts.append(f'<path d="M{x:.1f} {y:.1f}V{upper}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">1e{power}</text>')
    for power in range(base, top + 1):
        x, y = at(10.0**low, 10.0**power)
        parts.append(f'<path d="M{x:.1f} {y:.1f}h{wide}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">1e{power} {unit}</text>')
    for number, (label, line) in enumerate(lines.items()):
        colour, width = _COLOURS[number % len(_COLOURS)], 3 if label.startswith("mcnet") else 1.5
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in line))
        dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in (at(*point) for point in line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        parts.append(f'<g fill="{colour}">{dots}<text x="505" y="{52 + 20 * number}">{label}</text></g>')
    return "\n".join([*parts, "</svg>"])


def keep_printed(part: str, title: str, function: Callable[[], None], full: bool) -> None:
    """Keep what a function prints, and print it too."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        function()
    print(printed.getvalue(), flush=True)
    keep(part, f"## {title}\n\n```text\n{printed.getvalue().strip()}\n```", full)
