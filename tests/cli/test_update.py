"""`mcnet update`: exit codes that a scheduler can use, and what it prints."""

import re
import resource
import subprocess
import sys
from datetime import datetime, timedelta

import polars as pl
import pytest
from tests.operations.conftest import day_name, day_rows, receiving

from mcnet.cli.run import DISK_FULL
from mcnet.operations.status import status_of
from mcnet.sketch import scan as scan_module
from mcnet.store.store import Store
from mcnet.store.versions import Registry

COLUMNS = ("--score", "pctr", "--label", "click", "--field", "country", "--time", "ts", "--every", "1d")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    return tmp_path


def write_days(folder, first, last, **world):
    for day in range(first, last + 1):
        day_rows(day, **world).write_parquet(folder / "logs" / f"{day_name(day)}.parquet")


def test_alerts_are_sent_once_and_a_webhook_that_is_down_changes_nothing_else(mcnet, folder):
    words = ("update", "ads.db", "logs/*.parquet", *COLUMNS)
    write_days(folder, 1, 6)
    assert mcnet(*words).code == 0
    with receiving() as receiver:
        write_days(folder, 7, 7, ratio=0.5)
        receiver.status = 500
        refused = mcnet(*words, "--max-shift", "0.001", "--webhook", receiver.url)
        assert (refused.code, "refused: version 1 is served" in refused.out) == (1, True)
        assert f"could not be sent to http://127.0.0.1:{receiver.server_port} (the answer was 500)" in refused.err
        assert "/hooks/ads" not in refused.err, "an address may be a secret"
        (folder / "mcnet.toml").write_text(f'webhook = "{receiver.url}"\nfield-values = "hide"\n')
        receiver.status, receiver.got = 200, []
        mcnet("versions", "hold", "ads.db")
        write_days(folder, 8, 11, ratio=0.25, rows=20_000)
        assert mcnet(*words).code == 3
        sent = receiver.documents
        assert [one["type"] for one in sent[:2]] == ["refusal", "alarm"]
        assert "country=" not in str(sent).replace("country=(hidden)", "")
        assert sum(one["data"].get("what") == "level" for one in sent) == 1
        assert "the gate refused a new model, and version 1 stays" in sent[0]["data"]["text"]
        write_days(folder, 12, 12, ratio=0.25, rows=20_000)
        mcnet(*words)
        assert sum(one["data"].get("what") == "level" for one in receiver.documents) == 1, "sent once"
    assert status_of(Store("ads.db"))["alerts"] == {"waiting": 0, "problem": ""}


def test_exit_codes_from_the_first_day_to_an_alarm(mcnet, folder):
    words = ("update", "ads.db", "logs/*.parquet", *COLUMNS)
    write_days(folder, 1, 2)
    done = mcnet(*words, "--nothing-new-code", "99")
    assert (done.code, "waiting: no version is served yet" in done.out) == (99, True)
    write_days(folder, 3, 6)
    done = mcnet(*words)
    assert (done.code, "published: version 1 is served" in done.out) == (0, True)
    again = mcnet(*words, "--json")
    assert (again.code, again.document["outcome"]) == (0, "nothing new")
    assert again.document["added"] == {"rows": 0, "periods": [], "files": 0, "unchanged": 6, "left_out": []}
    assert mcnet(*words, "--nothing-new-code", "99", "-q").code == 99
    write_days(folder, 7, 7, ratio=0.5)
    refused = mcnet(*words, "--max-shift", "0.001")
    assert (refused.code, "refused: version 1 is served" in refused.out) == (1, True)
    mcnet("versions", "hold", "ads.db")
    write_days(folder, 8, 11, ratio=0.25, rows=20_000)
    alarm = mcnet(*words, "--json")
    assert alarm.code == 3
    assert alarm.document["outcome"] == "held"
    assert "level" in [one["what"] for one in alarm.document["alarms"]]
    forced = mcnet(*words, "--force", "--note", "checked by hand")
    assert (forced.code, "published: version 2 is served, after 1" in forced.out) == (0, True)
    runs = Store(folder / "ads.db").state().runs()
    assert [run["outcome"] for run in runs] == [
        *("waiting", "published", "nothing new", "nothing new", "refused", "held", "published")
    ]
    assert mcnet("versions", "show", "ads.db").out.count("forced, although") >= 1
    assert status_of(Store(folder / "ads.db"))["last_run"]["note"] == "checked by hand"


def test_wrong_input_is_code_2_and_another_run_is_code_75(mcnet, folder):
    write_days(folder, 1, 1, rows=200)
    words = ("update", "ads.db", "logs/*.parquet", *COLUMNS)
    wrong = mcnet("update", "ads.db")
    assert (wrong.code, "there is no store in ads.db" in wrong.err) == (2, True)
    wrong = mcnet("update", "ads.db", "logs/*.parquet", "--score", "pctr")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert mcnet(*words).code == 0
    with Store(folder / "ads.db").learning():
        busy = mcnet(*words, "--wait", "0")
    assert (busy.code, "another process is" in busy.err) == (75, True)


@pytest.mark.parametrize("file_bytes", [10, 200_000])
def test_a_full_disk_is_not_wrong_use(mcnet, folder, file_bytes):
    # A limit on the size of files fails like a full disk: in the middle of writing.
    write_days(folder, 1, 4, rows=500)
    words = ("update", "ads.db", "logs/*.parquet", *COLUMNS)
    done = subprocess.run(
        [sys.executable, "-m", "mcnet", *words],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes)),
    )
    assert done.returncode == DISK_FULL, done.stderr
    said = done.stderr.splitlines()[-1]
    assert said.startswith("mcnet: ads.db: no space"), "the file is named"
    assert "no space left on the disk" in said
    assert "Traceback" not in done.stderr
    assert mcnet(*words).code == 0  # what was cut off is completed
    assert Store(folder / "ads.db").state().runs()[-1]["outcome"] == "published"


def test_the_configuration_file_gives_the_columns(mcnet, folder):
    write_days(folder, 1, 1, rows=200)
    (folder / "mcnet.toml").write_text(
        'score = "pctr"\nlabel = "click"\nfield = "country"\n\n[update]\ntime = "ts"\nevery = "1d"\nmax_shift = 0.3\n'
    )
    done = mcnet("update", "ads.db", "logs/*.parquet", "--json")
    assert done.code == 0, done.err
    assert done.document["added"]["rows"] == 200
    assert mcnet("update", "ads.db", "--json").document["outcome"] == "nothing new"


def test_a_file_that_grows_is_left_out_and_blocks_no_run(mcnet, folder, monkeypatch):
    words = ("update", "ads.db", "logs/*.csv", *COLUMNS)
    for day in range(1, 7):
        day_rows(day).write_csv(folder / "logs" / f"{day_name(day)}.csv")
    last = folder / "logs" / f"{day_name(6)}.csv"
    complete = last.read_text()
    opened = scan_module.open_log

    def growing(paths, **options):
        found = opened(paths, **options)
        if paths[0].name == last.name:
            with last.open("a") as file:
                file.write("0.1,0,N")  # the writer is in the middle of a line
        return found

    monkeypatch.setattr(scan_module, "open_log", growing)
    done = mcnet(*words, "--json", "--status", "status.html")
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert (done.code, done.document["outcome"]) == (0, "published")
    assert done.document["until"] == day_name(5)
    (reason,) = done.document["added"]["left_out"]
    assert reason.startswith(f"logs/{last.name} changed while it was read (")
    assert f"warning: a file is left out: {reason}" in done.err
    page = (folder / "status.html").read_text()
    assert f"{last.name} changed while it was read" in page
    last.write_text(complete)
    done = mcnet(*words, "--json")
    assert (done.document["until"], done.document["added"]["left_out"]) == (day_name(6), [])
    # A line is appended after it was added: what was added stays, and the next day is learnt all the same.
    with last.open("a") as file:
        file.write(complete.splitlines()[1] + "\n")
    day_rows(7).write_csv(folder / "logs" / f"{day_name(7)}.csv")
    done = mcnet(*words, "--json")
    assert (done.code, done.document["until"]) == (0, day_name(7))
    assert len(done.document["added"]["left_out"]) == 1
    assert f"warning: a file is left out: logs/{last.name} gave 4,000 other rows for {day_name(6)} before" in done.err
    assert "--replace" in done.err
    assert "replace=True" not in done.err
    # Alone it cannot be added: said by the exit code, as by `journal add`.
    alone = mcnet("update", "ads.db", f"logs/{last.name}", *COLUMNS, "--nothing-new-code", "99")
    assert (alone.code, "nothing new" in alone.out) == (2, True)
    assert f"warning: a file is left out: logs/{last.name} gave 4,000 other rows" in alone.err
    assert mcnet("journal", "add", "ads.db", f"logs/{last.name}", *COLUMNS).code == 2
    done = mcnet(*words, "--json", "--replace")
    assert (done.code, done.document["added"]["rows"], done.document["added"]["left_out"]) == (0, 4001, [])


def test_a_file_is_read_again_under_another_condition(mcnet, folder):
    words = ("update", "ads.db", "logs/*.parquet", *COLUMNS)
    write_days(folder, 1, 3)
    mcnet(*words)
    assert mcnet(*words, "--json").document["added"]["unchanged"] == 3
    done = mcnet(*words, "--where", "country = 'NL'", "--json")
    assert (done.code, done.document["added"]["unchanged"], len(done.document["added"]["left_out"])) == (2, 0, 3)
    assert "other rows" in done.err
    done = mcnet(*words, "--where", "country = 'NL'", "--replace", "--json")
    assert (done.document["added"]["files"], done.document["added"]["left_out"]) == (3, [])


def test_a_first_run_with_a_growing_file_alone_learns_nothing(mcnet, folder, monkeypatch):
    words = ("update", "ads.db", "logs/*.csv", *COLUMNS)
    log = folder / "logs" / "1.csv"
    day_rows(1).write_csv(log)
    opened = scan_module.open_log

    def growing(paths, **options):
        with log.open("a") as file:
            file.write("\n")
        return opened(paths, **options)

    monkeypatch.setattr(scan_module, "open_log", growing)
    done = mcnet(*words, "--json")
    assert (done.code, done.document["outcome"]) == (2, "nothing new")
    assert len(done.document["added"]["left_out"]) == 1


def test_the_first_hour_of_a_day_is_named_with_its_time(mcnet, folder):
    for hour in range(20, 25):
        begin = datetime(2026, 5, 1) + timedelta(hours=hour)
        rows = day_rows(hour).with_columns(pl.lit(begin).alias("ts"))
        rows.write_parquet(folder / "logs" / f"{hour}.parquet")
    words = ("update", "ads.db", "logs/*.parquet", *COLUMNS[:-1], "1h")
    done = mcnet(*words)
    assert "learnt     5 periods, until 2026-05-02T00:00" in done.out
    assert "published: version 1 is served" in done.out
    again = mcnet(*words, "--json", "--status", "status.html")
    assert again.document["until"] == "2026-05-02T00:00"
    assert again.document["reason"] == "everything until 2026-05-02T00:00 was learnt before"
    page = (folder / "status.html").read_text(encoding="utf-8")
    assert not re.search(r"2026-05-02(?!T)", page)
    # What models are compared by keeps its stored name.
    assert Registry(folder / "ads.db").current.fitted_until == "2026-05-02"


def test_differences_of_log_loss_have_the_unit_of_the_other_commands(mcnet, folder):
    write_days(folder, 1, 6)
    done = mcnet("update", "ads.db", "logs/*.parquet", "--status", "status.html", *COLUMNS)
    said = re.compile(r"better than [^:]+: log-loss [-+][\d,]+\.\d ×10⁻⁵ \([-+][\d,]+\.\d … [-+][\d,]+\.\d\)")
    assert said.search(done.out)
    assert said.search(Registry(folder / "ads.db").current.note)
    assert "better than the scores as they are on 5 unseen periods" in mcnet("versions", "list", "ads.db").out
    assert re.search(r"[\d,]+\.\d ×10⁻⁵ \(", (folder / "status.html").read_text(encoding="utf-8"))


def test_after_a_refusal_the_loop_recovers_by_itself_once_clean_days_come(mcnet, folder):
    words = ("update", "ads.db", "logs/*.parquet", *COLUMNS, "--max-shift", "0.1", "--json")
    write_days(folder, 1, 7)
    assert mcnet(*words).document["outcome"] == "published"
    write_days(folder, 8, 8, ratio=0.25)  # two of three labels were lost: no more than a change may be, to a look
    refused = mcnet(*words)
    assert (refused.code, refused.document["suspect"]) == (1, [])
    assert "and only one of the last 2 periods says so" in refused.document["reason"]
    outcomes = []
    for day in range(9, 14):
        write_days(folder, day, day)
        outcomes.append(mcnet(*words).document["outcome"])
    assert outcomes[-2:] == ["published", "published"], outcomes
    rows = day_rows(20, rows=40_000)
    served = Registry(folder / "ads.db").load().predict(rows["pctr"], field={"country": rows["country"]})
    assert served.sum() / rows["click"].sum() == pytest.approx(1.0, abs=0.1)


def test_a_look_is_switched_off_on_the_command_line_or_in_the_file(mcnet, folder):
    words = ("update", "ads.db", "logs/*.parquet", *COLUMNS, "--json")
    write_days(folder, 1, 7, rows=2_000)
    mcnet(*words)
    for day in (8, 9, 10):
        flipped = day_rows(day, rows=2_000).with_columns(click=1 - pl.col("click"))
        flipped.write_parquet(folder / "logs" / f"{day_name(day)}.parquet")
        (folder / "mcnet.toml").write_text("[update]\nlook = false\n" if day == 9 else "")
        done = mcnet(*words, *(["--no-look"] if day == 10 else []))
        assert len(done.document["suspect"]) == (day == 8)


def test_bad_and_empty_files_of_a_glob_stop_no_run(mcnet, folder):
    write_days(folder, 1, 6)
    rows = day_rows(3)
    rows.head(0).write_parquet(folder / "logs" / f"{day_name(2)}.parquet")
    rows.with_columns(pctr=pl.lit(None, pl.Float64)).write_parquet(folder / "logs" / f"{day_name(3)}.parquet")
    (folder / "logs" / f"{day_name(4)}.parquet").write_bytes(b"half a file")
    words = ("update", "ads.db", "logs/*.parquet", *COLUMNS, "--json")
    for run in range(2):
        done = mcnet(*words)
        assert done.code == 0, done.err
        assert len(done.document["added"]["left_out"]) == 2
        assert done.document["learnt"] == ([] if run else [day_name(1), day_name(5), day_name(6)])
        assert f"warning: logs/{day_name(2)}.parquet has no rows" in done.err
        assert f"warning: a file is left out: logs/{day_name(3)}.parquet: pctr has 4,000 values missing" in done.err
        assert f"warning: a file is left out: logs/{day_name(4)}.parquet cannot be read" in done.err
    alone = mcnet("update", "ads.db", f"logs/{day_name(3)}.parquet", f"logs/{day_name(4)}.parquet", *COLUMNS)
    assert (alone.code, alone.out) == (2, "")
    assert mcnet("update", "new.db", f"logs/{day_name(2)}.parquet", *COLUMNS).code == 0


def test_a_head_says_how_it_reads_from_now_on_and_a_run_that_fails_changes_nothing(mcnet, folder):
    write_days(folder, 1, 5)
    day = "logs/{}.parquet".format
    assert "of the head, from now on" not in mcnet("update", "ads.db", day(day_name(1)), *COLUMNS).out
    done = mcnet("update", "ads.db", day(day_name(2)), "--negatives-kept", "0.5")
    assert "settings   of the head, from now on: negatives_kept 0.5, before 1.0\n" in done.out
    assert "of the head, from now on" not in mcnet("update", "ads.db", day(day_name(3)), *COLUMNS).out
    done = mcnet("update", "ads.db", day(day_name(4)), "--negatives-kept", "1", "--json")
    assert done.document["changed"] == ["negatives_kept 1.0, before 0.5"]
    store = Store("ads.db")
    assert store.state().runs(1)[0]["changed"] == done.document["changed"]
    before = store.require_head("default").settings
    swapped = [{"pctr": "click", "click": "pctr"}.get(word, word) for word in COLUMNS]
    for more in (swapped, [*COLUMNS, "--logits"], [*COLUMNS[:-1], "6h"], [*COLUMNS, "--method", "no-method"]):
        assert mcnet("update", "ads.db", day(day_name(5)), *more).code == 2
        assert store.require_head("default").settings == before
        assert len(store.journal().periods) == 4
    assert mcnet("update", "ads.db", day(day_name(5))).code == 0


def test_a_run_that_the_gate_refuses_changes_no_settings(mcnet, folder):
    write_days(folder, 1, 6)
    assert mcnet("update", "ads.db", "logs/*.parquet", *COLUMNS).code == 0
    write_days(folder, 7, 7, ratio=0.5)
    done = mcnet("update", "ads.db", f"logs/{day_name(7)}.parquet", "--negatives-kept", "0.9", "--max-shift", "0.001")
    assert ("outcome    refused" in done.out, "negatives_kept" in done.out) == (True, False)
    assert Store("ads.db").require_head("default").settings.negatives_kept == 1.0


def test_a_head_beside_others_is_made_by_name_only(mcnet, folder):
    write_days(folder, 1, 1)
    assert mcnet("update", "ads.db", "logs/*.parquet", *COLUMNS).code == 0
    refused = mcnet("update", "ads.db", "logs/*.parquet", "--head", "cvr", *COLUMNS)
    said = "mcnet: ads.db has no head 'cvr'; it has default; --new-head cvr makes it\n"
    assert (refused.code, refused.err) == (2, said)
    for _ in range(2):  # a job that runs again
        assert mcnet("update", "ads.db", "logs/*.parquet", "--new-head", "cvr", *COLUMNS).code == 0
    again = mcnet("update", "ads.db", "logs/*.parquet", *COLUMNS[:-2])  # the head knows the length of its periods
    assert (again.code, "1 file unchanged" in again.out) == (0, True), again.err


def test_a_setting_that_the_file_and_the_command_line_give_differently_is_refused(mcnet, folder):
    write_days(folder, 1, 1, rows=200)
    words = ("update", "ads.db", "logs/*.parquet", *COLUMNS)
    (folder / "mcnet.toml").write_text('field = "country"\n[update]\nmax-shift = 0.3\n')
    done = mcnet(*words, "--max-shift", "0.2")
    assert (done.code, "max_shift is given twice, by the command line and mcnet.toml: 0.2 and 0.3" in done.err) == (
        2,
        True,
    )
    assert mcnet(*words, "--max-shift", "0.3").code == 0
    assert mcnet(*words, "--max-shift", "0.2", "--no-config").code == 0
    assert Store("ads.db").require_head("default").settings.max_shift == 0.2
