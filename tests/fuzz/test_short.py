"""The short form: a few cases of every attack, the same ones each time."""

from pathlib import Path

import numpy as np
import pytest
from tests.fuzz.attacks import ATTACKS, run_once
from tests.fuzz.loop_kills import loop_kills

CASES = {"signals": 2, "damaged_files": 6, "adjacent_scores": 4, "journals": 6, "damaged_states": 4, "loop_kills": 1}


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_a_few_cases_of_every_attack(name, tmp_path):
    for seed in range(CASES.get(name, 12)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        run_once(name, seed, folder)


def test_kills_of_the_loop_on_postgresql(postgresql_store, tmp_path):
    assert loop_kills(np.random.default_rng(3), tmp_path, kills=2, store=postgresql_store())


def test_the_last_long_run_had_every_attack_and_no_failure():
    page = (Path(__file__).parent / "RESULTS.md").read_text(encoding="utf-8")
    lines = [line.split("|")[1:4] for line in page.splitlines() if line.startswith("| `")]
    assert {name.strip(" `") for name, _, _ in lines} == {*ATTACKS, "kills of the loop"}
    assert all(int(cases.replace(",", "")) > 0 for _, cases, _ in lines)
    assert [failed.strip() for _, _, failed in lines] == ["0"] * len(lines)
