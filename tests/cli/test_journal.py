"""`mcnet journal`, and journals in place of logs."""

import resource
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

import mcnet as library
from mcnet._shared.messages import count
from mcnet.cli.run import DISK_FULL
from mcnet.sketch import scan as scan_module
from mcnet.sketch.sketch import Sketch
from mcnet.store.journal import Journal
from mcnet.store.schema import entries


@pytest.fixture
def timed(frame, tmp_path):
    """Return a log of 8 hours on the evening of one day and the morning of the next, and its path."""
    moments = pl.datetime_range(pl.datetime(2026, 11, 15, 20), pl.datetime(2026, 11, 16, 3), "1h", eager=True)
    places = pl.Series(range(len(frame))) * 8 // len(frame)
    path = tmp_path / "timed.parquet"
    frame.with_columns(ts=moments.gather(places)).write_parquet(path)
    return path


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "ads.db"


@pytest.fixture
def words(folder, timed, columns):
    return ("journal", "add", folder, timed, *columns, "--time", "ts", "--every", "1h")


def test_the_same_command_twice_changes_nothing_and_says_so(mcnet, words, folder):
    done = mcnet(*words, "--json")
    assert done.code == 0, done.err
    assert (done.document["rows"], len(done.document["periods"])) == (8000, 8)
    assert "8,000 rows of 8 periods, 2026-11-15T20:00 to 2026-11-16T03:00 → " in done.err
    before = sorted(folder.rglob("*"))
    again = mcnet(*words, "--json")
    assert (again.code, again.document["rows"], len(again.document["known"])) == (0, 0, 8)
    assert "nothing changed" in again.err
    assert sorted(folder.rglob("*")) == before


def test_a_full_disk_is_told_with_the_file(mcnet, words, folder):
    done = subprocess.run(
        [sys.executable, "-m", "mcnet", *map(str, words)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),  # it fails like a full disk
    )
    said = f"mcnet: {folder}: no space left on the disk, nothing was added\n"
    assert (done.returncode, done.stderr) == (DISK_FULL, said)
    assert mcnet(*words).code == 0
    assert Journal(folder).sketch().rows == 8000


def test_periods_of_one_file_add_up_without_a_warning(mcnet, words, folder, timed):
    mcnet(*words)
    done = mcnet("fit", folder, "--method", "platt-field", "-o", folder.parent / "m.json")
    assert (done.code, "warning" in done.err) == (0, False), done.err
    whole = library.scan(timed, score="pctr", label="click", field="country")
    assert Journal(folder).sketch() == whole


def test_list_names_periods_sources_and_ages(mcnet, words, folder, timed):
    mcnet(*words)
    mcnet(*words, "--source", "late", "--age", 2)
    shown = mcnet("journal", "list", folder).out
    assert "2026-11-15T20:00" in shown
    assert "16,000 rows" in shown
    lines = mcnet("journal", "list", folder, "--sources").out.splitlines()
    assert len([line for line in lines if str(timed) in line]) == 8
    entries = mcnet("journal", "list", folder, "--json").document["entries"]
    assert {(entry["source"], entry["age"]) for entry in entries} == {(str(timed), None), ("late", 2.0)}


def test_a_sketch_and_a_log_without_time_lie_in_one_period(mcnet, folder, log, columns, tmp_path):
    sketch = tmp_path / "s.parquet"
    mcnet("sketch", log, *columns, "-o", sketch)
    assert mcnet("journal", "add", folder, sketch, "--period", "2026-11-16T13").code == 0
    assert mcnet("journal", "add", folder, log, *columns, "--period", "2026-11-16T14").code == 0
    parts = dict(Journal(folder).sketches())
    assert list(parts) == ["2026-11-16T13:00", "2026-11-16T14:00"]
    assert parts["2026-11-16T13:00"] == parts["2026-11-16T14:00"] == Sketch.load(sketch)
    again = mcnet("journal", "add", folder, sketch, "--period", "2026-11-16T13")
    assert (again.code, "nothing changed" in again.err) == (0, True)


def test_other_rows_of_a_source_need_replace(mcnet, folder, log, columns, frame):
    words = ("journal", "add", folder, log, *columns, "--period", "1")
    assert mcnet(*words).code == 0
    frame.head(4000).write_parquet(log)
    done = mcnet(*words)
    assert (done.code, "pass --replace to replace them" in done.err) == (2, True)
    assert mcnet(*words, "--replace").code == 0
    assert Journal(folder).sketch().rows == 4000


def test_compact_and_remove(mcnet, words, folder, timed):
    mcnet(*words)
    pl.read_parquet(timed).with_columns(click=1 - pl.col("click")).write_parquet(timed)
    mcnet(*words, "--source", "late")
    whole = Journal(folder).sketch()
    assert mcnet("journal", "remove", folder, "late", "--period", "2026-11-16T03").code == 0
    assert mcnet("journal", "compact", folder, "--before", "2026-11-16").code == 0
    assert len({entry.period for entry in Journal(folder).entries()}) == 8
    assert [entry.source for entry in Journal(folder).entries() if entry.period < "2026-11-16"] == ["(compacted)"] * 4
    assert Journal(folder).sketch().rows == whole.rows - 1000
    done = mcnet("journal", "remove", folder, "nobody")
    assert (done.code, "nothing from 'nobody'" in done.err) == (2, True)
    assert "nothing changed" in mcnet("journal", "compact", folder, "--before", "2026-11-16").err


def test_verify_exits_with_one_if_a_file_is_damaged(mcnet, words, folder):
    mcnet(*words)
    assert mcnet("journal", "verify", folder).code == 0
    with Journal(folder).changing() as (connection, _):
        connection.execute(entries.update().where(entries.c.period == "2026-11-15T20:00").values(sketch=b"damaged"))
    done = mcnet("journal", "verify", folder, "--json")
    assert (done.code, len(done.document["problems"])) == (1, 1)


def test_fit_of_a_journal_chooses_periods_and_remembers_them(mcnet, words, folder, tmp_path):
    mcnet(*words)
    out = tmp_path / "m.json"
    chosen = ("--since", "2026-11-15T21", "--until", "2026-11-16", "--half-life", "2")
    done = mcnet("fit", folder, "--method", "platt-field", *chosen, "-o", out)
    assert done.code == 0, done.err
    weight = Journal(folder).sketch("2026-11-15T21", "2026-11-16", half_life=2.0).total_weight
    assert f" rows, weight {count(weight)}, " in done.err
    assert "positives by weight →" in done.err
    told = library.load(out).provenance["fitted_periods"]
    assert told == {"first": "2026-11-15T21:00", "last": "2026-11-16", "number": 4}
    expected = library.PlattField().fit_sketch(Journal(folder).sketch("2026-11-15T21", "2026-11-16", half_life=2.0))
    assert library.load(out).predict(0.1, field="0") == pytest.approx(expected.predict(0.1, field="0"))


def test_a_journal_is_judged_and_compared_like_its_log(mcnet, words, folder, timed, columns, tmp_path):
    mcnet(*words)
    model = tmp_path / "model.json"
    assert mcnet("fit", folder, "--method", "platt-field", "-o", model).code == 0
    one, other = (mcnet("evaluate", rows, "--model", model, "--json").document for rows in (folder, timed))
    assert one["metrics"] == other["metrics"]
    page = tmp_path / "page.html"
    done = mcnet("compare", folder, "--method", "platt", "--method", "platt-field", "--report", page, "--json")
    assert done.code == 0, done.err
    assert "Over time: fitted rows" in page.read_text()
    one, other = (
        mcnet("compare", folder, "--test", rows, "--method", "platt-field", "--json").document["methods"][0]
        for rows in (folder, timed)
    )
    assert one["metrics"] == other["metrics"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("journal", "list", "nowhere"), "there is no store in nowhere"),
        (("journal", "add", "j", "log.parquet", "--score", "pctr", "--label", "click"), "--time and --every, or one"),
        (("journal", "add", "j", "log.parquet", "--time", "day"), "--time and --every, or one"),
        (("journal", "add", "j", "log.parquet", "--time", "day", "--every", "1h"), "column of scores with --score"),
        (("journal", "add", "j", "s.parquet", "--time", "day", "--every", "1h"), "no rows to split by time"),
        (("fit", "log.parquet", "-o", "m.json", "--half-life", "3"), "--half-life is for journals"),
        (("fit", "ads.db", "log.parquet", "-o", "m.json"), "is a store and is read alone"),
        (("fit", "ads.db", "--weight", "w", "-o", "m.json"), "settled when its rows were added"),
        (("apply", "model.json", "ads.db", "-o", "out.parquet"), "has no rows to calibrate"),
        (("compare", "ads.db", "--time", "ts", "--report", "r.html"), "its periods are known, so leave out --time"),
        (("fit", "ads.db", "--since", "2027-01-01", "-o", "m.json"), "no period in this range"),
    ],
)
def test_wrong_use_is_one_line(mcnet, words, model, log, columns, monkeypatch, command, message):
    monkeypatch.chdir(log.parent)
    mcnet(*words)
    mcnet("sketch", log, *columns, "-o", "s.parquet")
    done = mcnet(*command)
    assert (done.code, done.err.count("\n"), message in done.err) == (2, 1, True), done.err


def test_columns_of_the_configuration_file_hold_for_journals(mcnet, folder, timed, monkeypatch):
    monkeypatch.chdir(timed.parent)
    text = 'score = "pctr"\nlabel = "click"\nfield = "country"\n[journal]\ntime = "ts"\nevery = "1d"\n'
    (timed.parent / "mcnet.toml").write_text(text)
    done = mcnet("journal", "add", folder, timed)
    assert done.code == 0, done.err
    assert Journal(folder).periods == ["2026-11-15", "2026-11-16"]


def test_an_age_needs_a_source(mcnet, words, folder, tmp_path):
    update = ("update", *words[2:])
    for command in (words, update):
        for when in (("--age", 1), ("--counted", "2026-11-17")):
            done = mcnet(*command, *when)
            assert (done.code, "was given without a source" in done.err) == (2, True), done.err
    assert not folder.exists()


def test_the_moment_of_counting_gives_each_period_its_age(mcnet, words, folder, log, columns):
    done = mcnet(*words, "--source", "orders", "--counted", "2026-11-16T04:30")
    assert done.code == 0, done.err
    assert Journal(folder).table()["age"].to_list() == [7.5, 6.5, 5.5, 4.5, 3.5, 2.5, 1.5, 0.5]
    one = ("journal", "add", folder, log, *columns, "--period", "7", "--source", "orders")
    assert "give the age of one period with --age" in mcnet(*one, "--counted", "2026-11-17").err


@pytest.mark.parametrize("command", [("journal", "add", "past.db"), ("update", "past.db")])
def test_swapped_columns_are_refused(mcnet, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for day in range(2):
        score = rng.uniform(0.1, 0.4, 300)
        columns = {"pctr": score, "click": (rng.random(300) < score).astype(int), "day": np.full(300, day)}
        pl.DataFrame(columns).write_parquet(f"day{day}.parquet")
    words = ("day0.parquet", "day1.parquet", "--time", "day", "--every", "1", "--score", "click", "--label", "pctr")
    done = mcnet(*command, *words)
    assert done.code == 2
    assert (
        "mcnet: day0.parquet: every click is 0 or 1 and pctr has fractions: the columns of scores and labels look"
        in done.err
    )
    assert Journal("past.db").periods == []


@pytest.mark.parametrize("when", ["while it is read", "after it was added"])
@pytest.mark.parametrize("by", ["time", "period"])
def test_a_file_that_grows_is_left_out_and_the_others_are_added(
    mcnet, folder, frame, columns, tmp_path, monkeypatch, when, by
):
    rows = frame.head(300).with_columns(ts=pl.lit("2026-11-16 10:00:00"))
    for name in "abc":
        rows.write_csv(tmp_path / f"{name}.csv")
        rows = rows.reverse().head(250)
    grown = tmp_path / "b.csv"
    cut = ("--time", "ts", "--every", "1h") if by == "time" else ("--period", "2026-11-16T10")
    words = ("journal", "add", folder, f"{tmp_path}/?.csv", *columns, *cut)
    more = grown.read_text().splitlines()[1] + "\n"

    def grow():
        with grown.open("a") as file:
            file.write(more)

    if when == "after it was added":
        assert mcnet("journal", "add", folder, grown, *columns, *cut).code == 0
        grow()
        expected = "gave 250 other rows for"
    else:
        opened = scan_module.open_log

        def growing(paths, **options):
            found = opened(paths, **options)
            if paths[0].name == grown.name:
                grow()
            return found

        monkeypatch.setattr(scan_module, "open_log", growing)
        expected = "changed while it was read"
    done = mcnet(*words, "--json")
    assert done.code == 0, done.err
    assert done.document["rows"] == 550
    (reason,) = done.document["left_out"]
    assert reason.startswith(f"{grown} {expected}")
    assert f"warning: a file is left out: {grown} {expected}" in done.err
    alone = mcnet("journal", "add", folder, grown, *columns, *cut)
    assert alone.code == 2
    assert f"mcnet: {grown} {expected}" in alone.err
    monkeypatch.undo()
    replaced = mcnet(*words, "--json", "--replace")
    assert replaced.code == 0
    assert replaced.document["left_out"] == []
    assert Journal(folder).sketch().rows == 550 + len(grown.read_text().splitlines()) - 1


def test_midnight_among_hours_is_listed_with_its_time(mcnet, log, columns, tmp_path):
    for period in ("2026-11-16", "2026-11-16T01:00"):
        assert mcnet("journal", "add", tmp_path / "hours", log, *columns, "--period", period).code == 0
    shown = mcnet("journal", "list", tmp_path / "hours").out
    assert "2026-11-16T00:00" in shown
    assert "2026-11-16T01:00" in shown
    judged = mcnet("evaluate", tmp_path / "hours").out
    assert "2026-11-16T00:00" in judged


def test_what_looks_like_a_mistake_is_added_if_it_is_allowed_by_name(mcnet, words, folder, timed, tmp_path):
    log = pl.read_parquet(timed)
    old = tmp_path / "old.parquet"
    log.with_columns(ts=pl.col("ts").dt.offset_by("-55y"), w=pl.lit(1e5)).head(100).write_parquet(old)
    assert mcnet(*words).code == 0
    again = [old if word == timed else word for word in words]
    refused = mcnet(*again)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "the period 1971-11-15T20:00 lies" in refused.err
    assert "pass --allow period" in refused.err
    weighty = mcnet(*again, "--weight", "w", "--allow", "period")
    assert (weighty.code, "pass --allow weight" in weighty.err) == (2, True)
    assert mcnet(*again, "--weight", "w", "--allow", "period", "--allow", "weight").code == 0
    wrong = mcnet(*again, "--allow", "everything")
    assert (wrong.code, "there are weight and period" in wrong.err) == (2, True)


def test_a_period_is_released_by_its_name(mcnet, words, folder):
    mcnet(*words)
    done = mcnet("journal", "release", folder, "2026-11-15T21")
    assert done.code == 0, done.err
    assert "the next update learns it" in done.err + done.out
    assert Journal(folder).released == {"2026-11-15T21:00"}
    unknown = mcnet("journal", "release", folder, "2026-11-15T11")
    assert unknown.code == 2
    assert "has no period 2026-11-15T11:00" in unknown.err
