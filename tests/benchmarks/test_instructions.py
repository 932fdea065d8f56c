"""The C header takes few instructions a score: counted, so that a busy machine does not matter."""

import pytest

from benchmarks.instructions import SHAPES, installed, instructions_a_score


@pytest.mark.skipif(not installed(), reason="valgrind or gcc is not installed: apt-get install valgrind gcc")
@pytest.mark.parametrize(("contexts", "knots"), SHAPES)
def test_a_score_takes_at_most_a_hundred_instructions(contexts, knots):
    assert 5.0 < instructions_a_score(contexts, knots) <= 100.0
