"""Folds: rows split into a few parts, so that one scan also serves cross-validation."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray
from mcnet.errors import InputError
from mcnet.rows.columns import DescribeRow, as_floats, describe_row, row_hashes
from mcnet.rows.spec import MOST_FOLDS
from mcnet.sketch.grid import Cells


def assign_folds(first_row: int, rows: int, folds: int) -> NDArray[np.int16]:
    """Return a fold per row number, pseudo-random and the same every time.

    >>> assign_folds(0, 8, 2).tolist() == assign_folds(0, 4, 2).tolist() + assign_folds(4, 4, 2).tolist()
    True
    """
    return (row_hashes(first_row, rows) % np.uint64(folds)).astype(np.int16)


def folds_column(values: Any, *, name: str = "folds", describe_row: DescribeRow = describe_row) -> NDArray[np.int16]:
    """Return a column of fold numbers, each a whole number from 0 to MOST_FOLDS - 1."""
    numbers = as_floats(values, name, describe_row)
    bad = ~((numbers >= 0) & (numbers < MOST_FOLDS) & (numbers == np.floor(numbers)))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        where = describe_row(row)
        problem = f"{name} is {numbers[row]:g} in {where}; fold numbers are whole, from 0 to {MOST_FOLDS - 1}"
        raise InputError(problem, column=name, row=where.row, file=where.file, found=float(numbers[row]))
    return numbers.astype(np.int16)


def split_counts(weight: FloatArray, positives: FloatArray, folds: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Split the rows behind each cell into folds.

    Rows of a cell differ only in their label, so the counts of negatives and positives per fold are drawn from the
    distribution that splitting the rows one by one has. Fractions of a row are spread evenly.
    Returns weights and positives of shape (cells, folds).
    """
    generator = np.random.default_rng(seed)
    kinds = []
    # Sums of another engine may be a rounding apart.
    for counts in (np.maximum(weight - positives, 0.0), positives):
        whole = np.floor(counts)
        rest = ((counts - whole) / folds)[:, None]
        shares = np.zeros((len(counts), folds))
        # A multinomial assigns rows independently, as assign_folds does.
        small = whole < 2**62
        shares[small] = generator.multinomial(whole[small].astype(np.int64), np.full(folds, 1.0 / folds))
        shares[~small] = whole[~small, None] / folds
        kinds.append(shares + rest)
    negatives, positive = kinds
    return negatives + positive, positive


def split_cells(cells: Cells, folds: int, seed: int, scale: float = 1.0) -> Cells:
    """Split the rows behind each cell into folds at random; the folds of a cell add up to it.

    Sums of values are divided as the rows are. `scale` times the weight of a cell is its number of rows.
    """
    total, positions = cells.sums[:, 0], cells.sums[:, 2]
    weight, positives = split_counts(total * scale, cells.sums[:, 1] * scale, folds, seed)
    if scale != 1.0:
        weight, positives = weight / scale, positives / scale
    cell, fold = np.nonzero(weight)
    shares = weight * (positions / total)[:, None]
    # Whole positions stay whole: each fold has the part below its share, and the last one what is left. Where rows are
    # weighted, what is left may be more than a fold of little weight has room for.
    whole = np.flatnonzero((weight == np.floor(weight)).all(axis=1) & (positions == np.floor(positions)))
    shares[whole] = np.floor(shares[whole])
    last = weight.shape[1] - 1 - np.argmax(weight[whole, ::-1] > 0.0, axis=1)
    shares[whole, last] += positions[whole] - shares[whole].sum(axis=1)
    sums = np.column_stack([weight[cell, fold], positives[cell, fold], shares[cell, fold]])
    if cells.sums.shape[1] > 3:
        of_weight = sums[:, 0] / total[cell]
        of_positives = np.divide(sums[:, 1], cells.sums[cell, 1], out=of_weight.copy(), where=cells.sums[cell, 1] > 0.0)
        sums = np.column_stack([sums, cells.sums[cell, 3:] * np.column_stack([of_weight, of_positives, of_weight])])
    return Cells(cells.context[cell], cells.key[cell], fold.astype(np.int16), sums).added_up()
