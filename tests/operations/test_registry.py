"""The registry: versions never change, the pointer always names a whole one, nothing outside the folder is reached."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import numpy as np
import pytest

from mcnet.calibrators.parametric import Platt
from mcnet.errors import FileFormatError, InputError
from mcnet.store.schema import heads, versions
from mcnet.store.store import Store
from mcnet.store.versions import DamagedVersion, Registry


def model(seed):
    rng = np.random.default_rng(seed)
    score = rng.random(200)
    return Platt().fit(score, rng.random(200) < score).model_


@pytest.fixture(params=["folder", "sqlite", "postgresql"])
def registry(request, tmp_path):
    if request.param == "folder":
        return Registry(tmp_path / "registry")
    address = tmp_path / "ads.db" if request.param == "sqlite" else request.getfixturevalue("postgresql_store")()
    return Store(address).versions("ctr")


@pytest.fixture
def folder(tmp_path):
    return Registry(tmp_path / "registry")


def is_folder(registry):
    return isinstance(registry, Registry)


def alter(registry, **columns):
    """Change what the store has of a head, as nobody should."""
    table = versions if "number" in columns else heads
    with registry.store.database.writing() as connection:
        chosen = table.c.number == columns.pop("number") if table is versions else table.c.name == registry.head
        connection.execute(table.update().where(chosen).values(**columns))


def test_the_first_version_becomes_current_and_later_ones_wait(registry):
    registry.add(model(1), note="first")
    registry.add(model(2))
    assert [version.name for version in registry.versions] == ["1", "2"]
    assert registry.current.name == "1"
    probe = np.linspace(0.1, 0.9, 9)
    assert np.array_equal(registry.load().predict(probe), model(1).predict(probe))
    assert np.array_equal(registry.load("latest").predict(probe), model(2).predict(probe))


def test_promote_and_rollback_walk_the_same_way(registry):
    for seed in (1, 2, 3):
        registry.add(model(seed))
    registry.promote("latest")
    registry.promote(2)
    assert registry.current.name == "2"
    assert registry.rollback().name == "3"
    assert registry.rollback().name == "1"
    with pytest.raises(InputError, match="was current before this one"):
        registry.rollback()
    assert [line["event"] for line in registry.history()] == [
        *("added", "promoted", "added", "added", "promoted", "promoted", "rolled back", "rolled back")
    ]


def test_going_back_holds_the_version_until_it_is_released(registry):
    for seed in (1, 2, 3):
        registry.promote(registry.add(model(seed)).number)
    assert registry.held is None, "the newest version is no hold"
    registry.rollback("NL is too high")
    assert str(registry.held).endswith("UTC: rolled back from version 3 (NL is too high)")
    assert registry.withdrawn == (3,)
    newer = registry.add(model(4))
    assert not registry.publish(newer, after=registry.version(2)), "a job does not undo what a person did"
    assert registry.current.name == "2"
    assert registry.release("fixed")
    assert not registry.release()
    assert registry.publish(newer, after=registry.version(2))
    assert (registry.current.name, registry.held) == ("4", None)
    assert [line["event"] for line in registry.history(4)] == ["rolled back", "added", "released", "promoted"]


def test_an_older_version_that_is_promoted_is_held_and_the_latest_is_free(registry):
    for seed in (1, 2, 3):
        registry.add(model(seed))
    registry.promote(2, "as it was")
    assert registry.held.reason == "version 2 was promoted, older than version 3"
    assert registry.promote(2).name == "2"
    assert registry.held.note == "as it was", "the same again changes nothing"
    registry.promote("latest")
    assert registry.held is None
    assert registry.hold("sale").reason == "version 3 was held"
    assert registry.hold("again").note == "sale"
    registry.promote("latest")
    assert (registry.held, registry.history()[-1]["event"]) == (None, "released")


def test_a_job_does_not_publish_over_a_version_that_it_did_not_see(registry):
    for seed in (1, 2, 3):
        registry.add(model(seed))
    seen = registry.current
    registry.promote("latest")
    assert not registry.publish(registry.version(2), after=seen)
    assert registry.current.name == "3"


def test_a_version_promoted_again_is_no_longer_withdrawn(registry):
    for seed in (1, 2):
        registry.promote(registry.add(model(seed)).number)
    registry.rollback()
    registry.promote(2)
    assert (registry.withdrawn, registry.held) == ((), None)


def test_a_damaged_pointer_is_written_anew_by_a_promotion(registry):
    registry.add(model(1))
    if is_folder(registry):
        (registry.path / "current.json").write_text("{")
    else:
        alter(registry, pointer="{")
    with pytest.raises(FileFormatError, match="promote a version to write it again"):
        registry.current  # noqa: B018
    registry.promote(1)
    assert registry.current.name == "1"


def test_a_pointer_of_an_earlier_mcnet_is_read(folder):
    folder.add(model(1))
    (folder.path / "current.json").write_text('{"versions": [1], "since": "2026-11-16T13:00:00+00:00"}')
    assert (folder.current.name, folder.held, folder.withdrawn) == ("1", None, ())


def test_the_same_model_again_is_no_new_version(registry, tmp_path):
    model(1).save(tmp_path / "model.json")
    first = registry.add(tmp_path / "model.json")
    assert registry.add(tmp_path / "model.json") == first
    assert len(registry.versions) == 1


def test_a_damaged_model_is_not_added(registry, tmp_path):
    path = tmp_path / "model.json"
    model(1).save(path)
    registry.add(path)
    path.write_text(path.read_text().replace('"platt"', '"plait"'))
    with pytest.raises(FileFormatError):
        registry.add(path)
    assert len(registry.versions) == 1
    assert not is_folder(registry) or not list(registry.path.glob(".writing*"))


def test_a_version_altered_later_is_never_served(registry):
    registry.add(model(1))
    registry.add(model(2))
    if is_folder(registry):
        path = registry.path / "versions" / "000002" / "model.json"
        path.write_bytes((registry.path / "versions" / "000001" / "model.json").read_bytes())
    else:
        alter(registry, number=2, model=registry.content(1))
        assert "version 2" in registry.verify()[0]
    with pytest.raises(FileFormatError, match="altered"):
        registry.promote(2)
    assert registry.current.name == "1"


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "1/../1", "000001", "", "nothing", "-1", "1\x00"])
def test_a_name_never_becomes_a_path(registry, name):
    registry.add(model(1))
    with pytest.raises(InputError, match="has no version"):
        registry.load(name)


def test_links_are_not_followed(folder, tmp_path):
    folder.add(model(1))
    outside = tmp_path / "outside"
    (folder.path / "versions" / "000001").rename(outside)
    (folder.path / "versions" / "000001").symlink_to(outside)
    with pytest.raises(FileFormatError, match="is a link"):
        folder.load()


def test_a_folder_with_other_things_is_no_registry(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="holds other things"):
        Registry(tmp_path).add(model(1))
    with pytest.raises(InputError, match="there is no registry"):
        Registry(tmp_path / "none").current  # noqa: B018
    (tmp_path / "no").mkdir()
    (tmp_path / "no" / "registry.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(FileFormatError, match="does not describe a registry"):
        Registry(tmp_path / "no").current  # noqa: B018


def test_a_version_whose_writer_was_killed_before_it_pointed_is_served_after_the_next_try(folder):
    first = model(1)  # the file of a fit has its time: the same one is added twice
    folder.add(first)
    (folder.path / "current.json").unlink()  # as if the process had ended right after the rename
    (folder.path / ".writing-1-dead").mkdir()
    with (folder.path / "history.jsonl").open("a") as file:
        file.write('{"time": "2026-11-')
    assert folder.add(first).name == "1"
    assert folder.current.name == "1"
    assert not list(folder.path.glob(".writing*"))
    assert [line["event"] for line in folder.history()] == ["added", "promoted", "promoted"]


def test_a_version_tells_until_when_it_was_fitted(registry):
    told = {"fitted_periods": {"first": "2026-11-01", "last": "2026-11-07", "number": 7}, "journal_digest": "abc"}
    first = model(1)
    registry.add(replace(first, provenance={**first.provenance, **told}))
    assert (registry.current.fitted_until, registry.current.rows_digest) == ("2026-11-07", "abc")
    assert registry.add(model(2)).fitted_until is None
    registry.promote(2)
    assert [version.number for version in registry.promoted] == [1, 2]
    if is_folder(registry):
        assert registry.model_file().read_bytes() == registry.model_file("latest").read_bytes()
    else:
        assert registry.content() == registry.content("latest")


WRITER = """
import sys, numpy as np
from mcnet.calibrators.parametric import Platt
from mcnet.store.versions import Registry
from mcnet.store.store import Store
registry = Registry(sys.argv[1]) if sys.argv[3] == "folder" else Store(sys.argv[1]).versions("ctr")
for seed in range(int(sys.argv[2]), int(sys.argv[2]) + 20):
    rng = np.random.default_rng(seed)
    score = rng.random(200)
    registry.promote(registry.add(Platt().fit(score, rng.random(200) < score).model_).number)
    print(seed, flush=True)
"""


def test_kill_at_any_moment_leaves_a_registry_that_serves(registry):
    chance = random.Random(0)
    registry.add(model(0))
    kind = "folder" if is_folder(registry) else "store"
    address = str(registry.path) if is_folder(registry) else registry.store.database.given
    for turn in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), address, str(100 * turn + 1), kind],
            stdout=subprocess.PIPE,
            text=True,
        )
        process.stdout.readline()
        time.sleep(chance.random() * 0.1)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        registry.load()
        assert [version.number for version in registry.versions] == list(range(1, len(registry.versions) + 1))


def damage(registry, number):
    if is_folder(registry):
        (registry.path / "versions" / f"{number:06d}" / "about.json").write_text("{")
    else:
        alter(registry, number=number, about="{")


def test_a_version_that_cannot_be_read_is_in_nobodys_way(registry):
    for seed in (1, 2, 3):
        registry.promote(registry.add(model(seed)).number)
    damage(registry, 1)
    assert [version.name for version in registry.versions] == ["2", "3"]
    assert [version.name for version in registry.promoted] == ["2", "3"]
    (lost,) = [version for version in registry.looked_at() if isinstance(version, DamagedVersion)]
    assert (lost.name, registry.numbers) == ("1", [1, 2, 3])
    assert "is not a version that can be read" in lost.reason
    assert registry.rollback().name == "2"
    assert registry.add(model(4)).name == "4"
    assert registry.promote("latest").name == "4"
    with pytest.raises(FileFormatError, match="is not a version that can be read"):
        registry.promote(1)


def test_a_damaged_newest_version_is_not_the_latest(registry):
    for seed in (1, 2, 3):
        registry.add(model(seed))
    damage(registry, 3)
    assert registry.promote("latest").name == "2"
    assert registry.held is None, "nothing newer can be served"


def test_other_things_in_the_folder_of_versions_are_no_versions(folder):
    folder.add(model(1))
    for name in ("²", "0", "x", "000000"):
        (folder.path / "versions" / name).mkdir()
    assert folder.numbers == [1]
    assert folder.prune(1) == []


@pytest.mark.parametrize("part", ["000001/about.json", ""])
def test_links_lead_nowhere(folder, tmp_path, part):
    folder.add(model(1))
    place = folder.path / "versions" / part if part else folder.path / "versions"
    place.rename(tmp_path / "outside")
    place.symlink_to(tmp_path / "outside")
    with pytest.raises(FileFormatError, match="is a link"):
        folder.load(1)


def test_a_current_version_that_cannot_be_read_is_left_by_a_rollback(registry):
    for seed in (1, 2):
        registry.promote(registry.add(model(seed)).number)
    damage(registry, 2)
    with pytest.raises(FileFormatError):
        registry.load()
    assert registry.current_number == 2
    assert registry.rollback().name == "1"
    assert registry.add(model(3)).name == "3", "a number is never given twice"


def test_old_versions_can_be_deleted_but_not_those_in_use(registry):
    for seed in range(1, 9):
        registry.add(model(seed))
    for number in (2, 1, 3):
        registry.promote(number)
    with pytest.raises(InputError, match="at least 1"):
        registry.prune(0)
    assert registry.prune(3) == [2, 4, 5]
    assert registry.numbers == [1, 3, 6, 7, 8]
    assert [version.number for version in registry.promoted] == [1, 3]
    assert registry.prune(3) == []
    assert registry.rollback().name == "1"
    assert registry.add(model(9)).name == "9"
    assert [line["event"] for line in registry.history()][-3:] == ["pruned", "rolled back", "added"]
    if is_folder(registry):
        assert not list(registry.path.glob(".writing*"))
    assert registry.load(8).method == "platt"


def test_a_full_disk_is_said_of_the_registry_and_not_of_the_model_that_was_read(folder, tmp_path, monkeypatch):
    folder.add(model(1))
    given = tmp_path / "given.json"
    model(2).save(given)

    def full(source, _):
        raise OSError(errno.ENOSPC, "No space left on device", str(source))

    monkeypatch.setattr("mcnet.operations.versions.shutil.copyfile", full)
    with pytest.raises(OSError, match="no space left on the disk, nothing was added") as caught:
        folder.add(given)
    assert caught.value.filename == str(tmp_path / "registry")
    assert [version.name for version in folder.versions] == ["1"]
