"""Inverses of many small matrices: eliminated together and one by one."""

import numpy as np
import pytest

from mcnet.bayes import solver as small_blocks
from mcnet.bayes.solver import inverses


def blocks_of(number, width, seed=0, most=1e6):
    """Positive definite matrices, as rows and a prior of very different weights give them."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(number, width, width)) * np.exp(rng.uniform(0.0, np.log(most), (number, 1, 1)))
    return rows @ rows.swapaxes(1, 2) + np.diag(np.geomspace(1.0, 1e3, width))


@pytest.mark.parametrize("number", [1, 31, 32, 256, 257, 600])
@pytest.mark.parametrize("width", [1, 2, 9, 12, 13])
def test_inverses_are_those_of_every_matrix(number, width):
    blocks = blocks_of(number, width)
    before = blocks.copy()
    for block, found in zip(blocks, inverses(blocks), strict=True):
        scale = np.linalg.norm(block) * np.linalg.norm(found)
        np.testing.assert_allclose(found @ block, np.eye(width), rtol=0.0, atol=1e-13 * scale)
    np.testing.assert_array_equal(blocks, before)


@pytest.mark.parametrize("number", [8, 600])
@pytest.mark.parametrize("width", [3, 20])
def test_one_matrix_that_is_not_positive_definite_is_an_error(number, width):
    for broken in (-1.0, 0.0):
        blocks = np.tile(np.eye(width), (number, 1, 1))
        blocks[number // 2, 1, 1] = broken
        with pytest.raises(np.linalg.LinAlgError):
            inverses(blocks)


def test_a_matrix_whose_determinant_alone_is_positive_is_an_error():
    blocks = np.tile(-np.eye(2), (small_blocks.FEWEST_TOGETHER, 1, 1))
    with pytest.raises(np.linalg.LinAlgError):
        inverses(blocks)
