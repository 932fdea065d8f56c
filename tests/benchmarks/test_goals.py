"""Goals are decided by the kept figures, and by nothing where there are none."""

import json
import re

import pytest

from benchmarks import __main__ as command
from benchmarks import goals, report
from benchmarks.data import REAL
from benchmarks.methods import OWN_METHODS, PEER_METHODS
from benchmarks.quality import SEEDS, SIZES

METHODS = [*PEER_METHODS, *OWN_METHODS]


def entry(key, rows, tags, **figures):
    return {"peer": key[0], "method": key[1], "rows": rows, "fields": [], "tags": tags, **figures}


def figures(ours):
    """Return figures by which every goal is met while ours, a share of the others', is small enough."""

    def of(key):
        return ours if key == ("mcnet", "mcnet-bayes") else 1.0

    real = [
        entry(key, 9, {"set": name, "split": "_rand", "fields": "none"}, loss=of(key), fit=of(key))
        for name in REAL
        for key in METHODS
    ]
    quality = [
        entry(key, rows, {"values": values, "truth": "usual", "seed": seed}, kl=of(key))
        for values in (4, 200)
        for rows in SIZES
        for seed in range(SEEDS)
        for key in METHODS
    ]
    speed = [
        entry(key, rows, {"values": values}, fit=of(key), latency=of(key), predict=of(key))
        for values in (0, 4, 200)
        for rows in goals.SPEED_SIZES
        for key in METHODS
    ]
    methods = {"**Tracker()**": 0.4 * ours, "mcnet-bayes, half-life 2 periods": 0.4, "platt-field, everything": 0.41}
    streams = [[stream, name, f"{loss:.5f}"] for stream in goals.STREAMS for name, loss in methods.items()]
    return {
        "real": real,
        "quality": quality,
        "speed": speed,
        "time_streams": {"lines": streams},
        "truths": {
            "isotonic": [[10.0, 1.0, None]],
            "isotonic per field": [[3.0, 1.0, None]],
            "mcnet-bayes": [[ours, 1.0, 0.001 * ours]],
        },
        "many_contexts": {
            name: {"seconds": seconds * ours, "peak": (peak or 0.0) * ours}
            for name, (seconds, peak) in goals.CONTEXTS.items()
        },
        "balance": {"BayesMCNet": ours <= 1.0, "NeuCalib": True},
        "time_hours": {"wall": 600.0 * ours},
        "engines": {"times": {"plain": 1.0, "sketch": 2.0 * ours}},
        "engines_sql": {"times": {"group by": {"cpu": 1.0}, "sketch": {"cpu": 1.5 * ours}}},
    }


@pytest.fixture
def decided(tmp_path):
    """Return the goals of figures, as (text, figure, verdict) of each line."""

    def decide(found):
        for part, entries in found.items():
            (tmp_path / f"{part}.json").write_text(json.dumps(entries))
        text = goals.section(tmp_path)
        lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
        assert all(len(line) == 3 for line in lines)
        return text, lines

    return decide


@pytest.mark.parametrize(
    ("ours", "unmet"),
    [
        (0.001, ()),
        (0.02, ("100 times",)),
        (0.08, ("100 times", "20 times")),
        (0.2, ("100 times", "20 times", "10 times")),
        (0.7, ("100 times", "20 times", "10 times", "half of")),
        (2.0, ("",)),
    ],
)
def test_bars_decide(decided, ours, unmet):
    _, lines = decided(figures(ours))
    for text, _, verdict in lines:
        expected = "**no**" if any(part in text for part in unmet) else "yes"
        assert verdict == expected, text


def test_without_figures_nothing_is_decided(decided):
    text, lines = decided({})
    assert {verdict for _, _, verdict in lines} == {"no figure"}
    assert f"without a figure: {len(lines)}." in text
    assert all("missing: " in figure for _, figure, _ in lines)


def test_a_line_without_new_figures_stays_as_the_page_has_it(decided, tmp_path):
    page, lines = decided(figures(0.001))
    (tmp_path / "speed.json").unlink()
    slower = figures(2.0)["time_hours"]
    (tmp_path / "time_hours.json").write_text(json.dumps(slower))
    again = goals.section(tmp_path, f"# Results\n\n{page}\n\n## Quality\n")
    changed = [line for line in again.splitlines() if line not in page]
    assert len(changed) == 2  # the count, and the year of hours
    assert f"Met: {len(lines) - 1} of {len(lines)}; met as far as there are figures: 0; not met: 1;" in changed[0]
    assert changed[1].startswith("| a year of hours")
    assert changed[1].endswith("**no** |")


def test_what_is_missing_is_named_with_its_place_and_reason(decided):
    found = figures(0.001)
    for own in found["speed"]:
        if (own["peer"], own["method"], own["rows"]) == ("mcgrad", "default", 10**7):
            del own["fit"], own["latency"], own["predict"]
            own["failed"] = "over 75 s"
    found["quality"] = [own for own in found["quality"] if (own["peer"], own["tags"]["seed"]) != ("betacal", 2)]
    _, lines = decided(found)
    for text, figure, verdict in lines:
        late = "times faster than mcgrad: default" in text and "halves" not in text
        fewer_seeds = "KL" in text and "field values:" in text
        assert (verdict == "yes, as far as there are figures") == (late or fewer_seeds)
        assert ("missing: mcgrad: default (over 75 s) at 10,000,000 rows" in figure) == late
        assert ("missing: betacal: beta at 5,000, 20,000, 100,000, 1,000,000 rows" in figure) == fewer_seeds


def test_two_fields_and_other_truths_do_not_count(decided):
    found = figures(0.001)
    found["real"] += [
        entry(("mcnet", "mcnet-bayes"), 9, {"set": n, "split": "_rand", "fields": "field2"}, loss=9.0, fit=9.0)
        for n in REAL
    ]
    found["quality"] += [entry(("mcnet", "mcnet-bayes"), SIZES[0], {"values": 4, "truth": "bent", "seed": 0}, kl=9.0)]
    _, lines = decided(found)
    assert {verdict for _, _, verdict in lines} == {"yes"}


def test_the_page_counts_its_goals_and_knows_its_days():
    page = report.PAGE.read_text(encoding="utf-8")
    goals_section = page.partition("## Goals")[2].partition("\n## ")[0]
    verdicts = [line.rstrip(" |").rpartition("| ")[2] for line in goals_section.splitlines() if line.startswith("| ")][
        1:
    ]
    counts = [verdicts.count("yes"), len(verdicts)]
    counts += [verdicts.count(verdict) for verdict in ("yes, as far as there are figures", "**no**", "no figure")]
    said = "Met: {} of {}; met as far as there are figures: {}; not met: {}; without a figure: {}."
    assert said.format(*counts) in goals_section
    for text in ("within 0.1 % of 1", "balance term", *goals.CONTEXTS):  # goals that sections of the page state
        assert text in goals_section, text
    days = sorted(set(re.findall(r"\*(?:Full|Quick) form, ([-\d]+)", page)))
    assert f"measured on {days[0]} to {days[-1]};" in page.partition("\n## ")[0]


def test_the_help_names_every_part(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["benchmarks", "--help"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert all(part in said for part in command.PARTS)
