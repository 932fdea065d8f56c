"""The figures of `docs/reproduction.md`: written from the pages of committed results, never by hand.

`python -m reproduction.documentation` writes every block from `<!-- PAPER: … -->` to `<!-- END -->` anew.

A block whose page is not among the results says so. The kinds are

- `runs`: when and on what each page was run;
- `found PAGE [PHRASE]`: what a page says under *Here*, or those of its sentences that have the phrase;
- `notes PAGE PHRASE`: the notes of a page that have the phrase;
- `table TABLE: COLUMN; COLUMN`: these columns of a table, or all of them; `TABLE + TABLE` one below the other;
- `tables COLUMN; COLUMN: TABLE = TITLE; TABLE = TITLE`: these columns of several tables, side by side.

Below the figures of a quick or smaller form, or of one seed, stands what it was: its data, its seeds, and what else it
changed.
"""

import re
from pathlib import Path

from reproduction.settings import FULL_SCALE

__all__ = ["documentation", "page_table"]

RESULTS = Path(__file__).parent / "results"
DOCUMENT = RESULTS.parents[1] / "docs" / "reproduction.md"

_BLOCK = re.compile(r"(<!-- PAPER: (\w+)(?: ([^\n]*))? -->\n).*?(<!-- END -->)", re.DOTALL)


def documentation(text: str) -> str:
    """Return the document with every block as the committed results have it."""
    kinds = {"runs": _runs, "found": _found, "notes": _notes, "table": _table, "tables": _tables}

    def block(match: re.Match[str]) -> str:
        try:
            written = kinds[match[2]](match[3] or "")
            written += "".join(_mark(name) for name in dict.fromkeys(_pages(match[2], match[3] or "")))
        except FileNotFoundError as missing:
            written = f"*There is no result of this yet: `python -m reproduction {Path(missing.filename).stem}`.*"
        return f"{match[1]}{written}\n{match[4]}"

    return _BLOCK.sub(block, text)


def page_table(name: str) -> list[list[str]]:
    """Return the cells of a table of the results, its headings first: `performance-tests`, or `nyc/networks-kinds`."""
    table = name.rpartition("/")[2]
    found = re.search(rf"\n((?:\|[^\n]*\n)+)\n\(\[{re.escape(table)}\.csv\]", _page(_page_of(name)))
    if found is None:
        raise LookupError(f"the results have no table {name}")
    lines = [line.strip("| ").split(" | ") for line in found[1].splitlines()]
    return [lines[0], *lines[2:]]


def _page_of(table: str) -> str:
    """Return the page that a table is on.

    >>> _page_of("flights3m/networks-kinds")
    'flights3m/networks'
    """
    folder, slash, name = table.rpartition("/")
    return f"{folder}{slash}{name.partition('-')[0]}"


def _pages(kind: str, wanted: str) -> list[str]:
    """Return the pages that the figures of a block come from."""
    if kind in ("found", "notes"):
        return [wanted.partition(" ")[0]]
    if kind == "table":
        return [_page_of(table) for table in wanted.partition(": ")[0].split(" + ")]
    return [_page_of(table.partition(" = ")[0]) for table in wanted.partition(": ")[2].split("; ") if table]


def _form(page: str) -> str:
    """Return what form of a study a page has; the data and seeds that are given are full whatever they are."""
    if "Quick form; it changes" in page:
        return "**quick**"
    size = re.search(r"simulated at scale ([\d.]+); (\d+) seed", page)
    if size is None or int(size[2]) > 1:
        return "full"
    return "full, one seed" if float(size[1]) >= FULL_SCALE else "**smaller**"


def _mark(name: str) -> str:
    """Return, for a page that is not of the full form, what it was; nothing for others."""
    page = _page(name)
    form = _form(page).strip("*")
    if form == "full":
        return ""
    data = page.split("\n\n")[1].removeprefix("Data: ").partition(". Run on ")[0]
    note = re.search(r"Quick form; it changes: [^;]*; ([^\n]*)\. Everything else", page)
    changes = f"; {note[1]}" if note else ""
    what = "One seed" if form.startswith("full") else f"{form.capitalize()} form"
    return f"\n\n*{what} of `{name}`: {data}{changes}.*"


def _page(name: str) -> str:
    return (RESULTS / f"{name}.md").read_text("utf-8")


def _runs(_: str) -> str:
    """Return a line per page: its form, its data, and when and on what it was run."""
    lines = ["| study | form | data, and when and on what it was run |", "|---|---|---|"]
    for path in sorted(RESULTS.rglob("*.md")):
        page = path.read_text("utf-8")
        setting = page.split("\n\n")[1].removeprefix("Data: ")
        lines.append(f"| {path.relative_to(RESULTS).with_suffix('')} | {_form(page)} | {setting} |")
    return "\n".join(lines)


def _found(wanted: str) -> str:
    name, _, phrase = wanted.partition(" ")
    found = _page(name).partition("**Here:**")[2].lstrip()
    found = found if found.startswith("- ") else f"- {found}"
    listed = found.partition("\n\n")[0].splitlines()
    return "\n".join(line for line in listed if phrase in line)


def _notes(wanted: str) -> str:
    name, _, phrase = wanted.partition(" ")
    notes = [part for part in _page(name).split("\n\n")[4:] if phrase in part and not part.startswith(("|", "- "))]
    return "\n\n".join(note.strip() for note in notes)


def _columns(name: str, wanted: str) -> list[list[str]]:
    headings, *lines = page_table(name)
    places = [headings.index(column) for column in wanted.split("; ")] if wanted else range(len(headings))
    return [[line[place] for place in places] for line in (headings, *lines)]


def _table(wanted: str) -> str:
    names, _, columns = wanted.partition(": ")
    first, *others = (_columns(name, columns) for name in names.split(" + "))
    return _markdown([*first, *(line for lines in others for line in lines[1:])])


def _tables(wanted: str) -> str:
    columns, _, tables = wanted.partition(": ")
    titled: dict[str, str] = {}
    for table in tables.split("; "):
        name, _, title = table.partition(" = ")
        titled[title] = name
    first = page_table(next(iter(titled.values())))[0][0]
    cells = [_columns(name, f"{first}; {columns}") for name in titled.values()]
    headings = [first, *(f"{title}: {column}" for title in titled for column in columns.split("; "))]
    lines = [[group[0][0], *(cell for line in group for cell in line[1:])] for group in zip(*cells, strict=True)]
    return _markdown([headings, *lines[1:]])


def _markdown(lines: list[list[str]]) -> str:
    numbers = [all(re.match(r"[−-]?[\d.]|–$", line[i]) for line in lines[1:]) for i in range(len(lines[0]))]
    rule = ["---:" if number else "---" for number in numbers]
    return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:]))


if __name__ == "__main__":
    DOCUMENT.write_text(documentation(DOCUMENT.read_text("utf-8")), "utf-8")
