"""Make the picture of the README from a simulated log: `python -m docs.images.make`, from the root of the repository.

A simulated click log is calibrated by the method that `mcnet.select` chooses; drawn is what later rows, which no fit
has seen, say before and after. Plotly draws inside a headless Chromium, which hands the drawings back as SVG.
"""

import json
import re
import tempfile
from pathlib import Path
from urllib.parse import unquote

from tests.report.browser import browse, find_chromium

from mcnet.datasets.simulator import SimulatedField, simulate
from mcnet.metrics.evaluation import evaluate_cells, evaluate_sketch
from mcnet.plots.figures import draw_forest, draw_reliability, forest_of
from mcnet.report.page import packed_plotly
from mcnet.selection import select
from mcnet.sketch.sketch import Sketch

__all__ = ["draw", "main"]

COUNTRIES = ("US", "BR", "ES", "FR", "PL", "NL", "SE", "PT", "FI", "IE")
WIDTH, HEIGHT = 460, 430

PAGE = """<!doctype html><meta charset="utf-8"><div id="place"></div>
<script type="text/plain" id="packed">{packed}</script><script>
(async () => {{
  const bytes = Uint8Array.from(atob(document.getElementById("packed").textContent), (c) => c.charCodeAt(0));
  const library = document.createElement("script");
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  library.textContent = await new Response(stream).text();
  document.head.append(library);
  document.documentElement.dataset.ready = "yes";
}})();
</script>"""


def figures() -> tuple[str, list[dict[str, object]]]:
    """Return the method chosen, and the two figures: reliability, and PCOC by country."""
    shares = tuple(0.8**rank for rank in range(len(COUNTRIES)))
    field = SimulatedField(shares=shares, names=COUNTRIES, shift_spread=0.2)
    log = simulate(2_000_000, test_rows=2_000_000, fields={"country": field}, seed=11)
    parts = [
        Sketch.from_rows(part.score, part.label, field={"country": part.text("country")})
        for part in (log.calibration(), log.test())
    ]
    found = select(parts[0], test=parts[1])
    before, after = evaluate_cells(parts[1].score, parts[1]), evaluate_sketch(found.calibrator, parts[1])
    tables = {"before": before.fields["country"].table, "after": after.fields["country"].table}
    return found.chosen.method, [
        draw_reliability({"before": before.reliability, "after": after.reliability}),
        draw_forest(forest_of(tables)),
    ]


def draw(specs: list[dict[str, object]], width: int = WIDTH, height: int = HEIGHT) -> list[str]:
    """Return each figure as SVG, drawn by Plotly in Chromium."""
    chromium = find_chromium()
    if chromium is None:
        raise SystemExit("chromium is not installed: apt-get install chromium, or the like")
    with tempfile.TemporaryDirectory() as folder, browse(chromium) as browser:
        page = Path(folder) / "page.html"
        page.write_text(PAGE.format(packed=packed_plotly()), encoding="utf-8")
        browser.open(page)
        options = json.dumps({"format": "svg", "width": width, "height": height})
        urls = [browser.run(f"Plotly.toImage({json.dumps(spec)}, {options})") for spec in specs]
    return [unquote(url.partition(",")[2]) for url in urls]


def main() -> None:
    """Write the picture beside this script."""
    method, specs = figures()
    width = len(specs) * WIDTH
    parts = [
        # Every drawing becomes a panel of one picture, beside the one before.
        re.sub(r"^<svg ", f'<svg x="{place * WIDTH}" ', part)
        for place, part in enumerate(draw(specs))
    ]
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}">'
        f"<title>Reliability, and PCOC by country, before and after calibration with {method}</title>"
        f"{''.join(parts)}</svg>"
    )
    target = Path(__file__).with_name("before-after.svg")
    target.write_text(picture + "\n", encoding="utf-8")
    print(f"{target.name}: {method}, {target.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
