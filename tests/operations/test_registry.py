"""The registry: versions never change, and the pointer always names a whole one."""

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
from tests.store.conftest import model

from mcnet.calibrators.parametric import Platt
from mcnet.calibrators.per_field import PlattField
from mcnet.errors import FileFormatError, InputError
from mcnet.store.schema import heads, versions
from mcnet.store.store import Store


@pytest.fixture
def registry(store_address):
    return Store(store_address).versions("ctr")


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
    alter(registry, pointer="{")
    with pytest.raises(FileFormatError, match="promote a version to write it again"):
        registry.current  # noqa: B018
    registry.promote(1)
    assert registry.current.name == "1"


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


def test_a_version_altered_later_is_never_served(registry):
    registry.add(model(1))
    registry.add(model(2))
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


def test_a_version_tells_until_when_it_was_fitted(registry):
    told = {"fitted_periods": {"first": "2026-11-01", "last": "2026-11-07", "number": 7}, "journal_digest": "abc"}
    first = model(1)
    registry.add(replace(first, provenance={**first.provenance, **told}))
    assert (registry.current.fitted_until, registry.current.rows_digest) == ("2026-11-07", "abc")
    assert registry.add(model(2)).fitted_until is None
    registry.promote(2)
    assert [version.number for version in registry.promoted] == [1, 2]
    assert registry.content() == registry.content("latest")


WRITER = """
import sys, numpy as np
from mcnet.calibrators.parametric import Platt
from mcnet.store.versions import Registry
registry = Registry(sys.argv[1], "ctr")
for seed in range(int(sys.argv[2]), int(sys.argv[2]) + 20):
    rng = np.random.default_rng(seed)
    score = rng.random(200)
    registry.promote(registry.add(Platt().fit(score, rng.random(200) < score).model_).number)
    print(seed, flush=True)
"""


def test_kill_at_any_moment_leaves_a_registry_that_serves(registry):
    chance = random.Random(0)
    registry.add(model(0))
    address = registry.store.database.given
    for turn in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), address, str(100 * turn + 1)],
            stdout=subprocess.PIPE,
            text=True,
        )
        process.stdout.readline()
        time.sleep(chance.random() * 0.1)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        registry.load()
        assert [version.number for version in registry.versions] == list(range(1, len(registry.versions) + 1))


def test_a_version_that_was_altered_is_in_nobodys_way(registry):
    for seed in (1, 2, 3):
        registry.promote(registry.add(model(seed)).number)
    alter(registry, number=1, model=b"{")
    assert [version.name for version in registry.versions] == ["1", "2", "3"]
    assert registry.rollback().name == "2"
    assert registry.add(model(4)).name == "4"
    assert registry.promote("latest").name == "4"
    with pytest.raises(FileFormatError, match=r"version 1 of .* was altered after it was added"):
        registry.promote(1)


def test_a_current_version_that_was_altered_is_left_by_a_rollback(registry):
    for seed in (1, 2):
        registry.promote(registry.add(model(seed)).number)
    alter(registry, number=2, model=b"{")
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
    assert registry.load(8).method == "platt"


def test_a_version_that_asks_for_other_requests_is_promoted_by_force_alone(registry):
    rng = np.random.default_rng(0)
    score, country = rng.random(300), rng.choice(["NL", "FR"], 300)
    label = rng.random(300) < score
    registry.add(model(1))
    logits = np.log(score / (1.0 - score))
    registry.add(Platt().fit(logits, label, score_type="logit").model_)
    registry.add(PlattField().fit(score, label, field={"country": country}).model_)
    with pytest.raises(InputError, match="version 2 takes logits as scores, the current one probabilities; promote it"):
        registry.promote(2)
    with pytest.raises(
        InputError, match="version 3 needs the field 'country', which clients of the current one do not"
    ):
        registry.promote("latest")
    assert registry.current.name == "1"
    assert registry.promote("latest", force=True).name == "3"
    with pytest.raises(InputError, match="version 1 lacks the field 'country' of the current model"):
        registry.promote(1)
    alter(registry, number=3, model=b"damaged")
    assert registry.promote(1).name == "1", "a damaged version is in nobody's way"
