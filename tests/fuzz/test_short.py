"""The short form: a few cases of every attack, the same ones each time."""

import pytest
from tests.fuzz.attacks import ATTACKS, run_once

CASES = {"signals": 4, "damaged_files": 6, "adjacent_scores": 4, "journals": 6, "damaged_states": 4, "loop_kills": 1}


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_a_few_cases_of_every_attack(name, tmp_path):
    for seed in range(CASES.get(name, 12)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        run_once(name, seed, folder)
