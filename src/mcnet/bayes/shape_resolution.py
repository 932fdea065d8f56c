"""How finely the curve of a field value can differ from the common one, given its number of rows."""

from __future__ import annotations

import numpy as np

from mcnet.bayes.incidence import Incidence
from mcnet.bayes.likelihood import Table
from mcnet.bayes.prior import Strengths
from mcnet.bayes.sparse_table import SparseTable
from mcnet.bayes.structure import Shapes

__all__ = ["worthwhile_bends"]

# A bend of which the rows know this much, beside what its prior says, moves a curve by about that share of what the
# curve is uncertain by.
WORTHWHILE = 1e-3


def worthwhile_bends(table: Table | SparseTable, shapes: Shapes, incidence: Incidence, strengths: Strengths) -> int:
    """Return how many bends, smoothest first, the rows of the largest field value can tell anything about.

    Information on a bend over its prior precision falls with the fourth power of its number. It is measured on all
    rows at once, as though every value had the same scores, at the identity and the rates observed.
    """
    if not incidence.fields:
        return 0
    weight, positives, places = table.panel_sums()
    known = np.maximum(weight, np.finfo(np.float64).tiny)
    place = places / known
    moves = table.panels.scale * shapes.bends.T
    change = table.panels.cumulate(moves) + place * moves + shapes.deviation[0][:, None]
    information = change**2 @ (positives * (weight - positives) / known)
    evidence = np.zeros(len(information))
    for field in range(incidence.fields):
        share = float(incidence.total(field, table.rows).max(initial=0.0) / weight.sum())
        evidence = np.maximum(evidence, share * information / strengths.value_precision(field, shapes))
    worth = np.flatnonzero(evidence[2:] > WORTHWHILE)
    return int(worth[-1]) + 1 if len(worth) else 0
