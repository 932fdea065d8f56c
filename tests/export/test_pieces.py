"""Pieces and the guide: the curve itself, cut so that nothing needs a special case."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mcnet._shared.arrays import clip_scores
from mcnet.curves.curves import Curves
from mcnet.curves.evaluate import Evaluator
from mcnet.export.c import Guide
from mcnet.export.pieces import HIGHEST_SCORE, LOWEST_SCORE, Pieces


def _evaluated(pieces, scores, curve):
    x = clip_scores(scores)
    grid, part = pieces.of_grid(int(pieces.grid_of[curve])), pieces.of_curve(curve)
    starts = pieces.starts[grid]
    at = np.maximum(np.searchsorted(starts, x, side="right") - 1, 0)
    line = pieces.slopes[part][at] * (x - starts[at]) + pieces.values[part][at]
    return np.minimum(line, pieces.ceilings[part][at])


@settings(max_examples=200)
@given(data=st.data())
def test_pieces_have_the_bits_of_predict(nasty_models, rows_for, data):
    model = data.draw(nasty_models)
    pieces = Pieces.of(model.curves)
    scores, _ = rows_for(model, 200)
    for curve in range(len(model.curves)):
        which = np.full(len(scores), curve, dtype=np.int32)
        np.testing.assert_array_equal(_evaluated(pieces, scores, curve), Evaluator(model.curves)(scores, which))


@settings(max_examples=200)
@given(data=st.data())
def test_pieces_follow_one_another_and_cover_every_clipped_score(nasty_models, data):
    pieces = Pieces.of(data.draw(nasty_models).curves)
    for grid in range(pieces.grids):
        part = pieces.of_grid(grid)
        starts, stops = pieces.starts[part], pieces.stops[part]
        assert starts[0] <= LOWEST_SCORE
        assert stops[-1] > HIGHEST_SCORE
        assert (starts < stops).all()
        np.testing.assert_array_equal(stops[:-1], starts[1:])
    assert np.isfinite(pieces.slopes).all()


@settings(max_examples=100)
@given(data=st.data())
def test_the_guide_leads_to_the_right_piece_in_its_steps(nasty_models, rows_for, data):
    model = data.draw(nasty_models)
    pieces = Pieces.of(model.curves)
    guide = Guide.of(pieces)
    x = clip_scores(rows_for(model, 300)[0])
    upper = x >= 0.5
    bucket = (np.where(upper, 1.0 - x, x).view(np.int64) >> guide.shift) - guide.first
    bucket = np.where(upper, guide.buckets - 1 - bucket, bucket)
    assert bucket.min() >= 0
    assert bucket.max() < guide.buckets
    for grid in range(pieces.grids):
        at = np.maximum(np.searchsorted(pieces.starts[pieces.of_grid(grid)], x, side="right") - 1, 0)
        ahead = at - guide.entries[grid, bucket]
        assert ahead.min() >= 0
        assert ahead.max() < 1 << guide.steps


def test_curves_that_share_a_grid_share_the_starts():
    grid = np.linspace(0.1, 0.9, 50)
    pieces = Pieces.of(Curves.of([(grid, np.sort(np.random.default_rng(c).random(50))) for c in range(20)]))
    assert pieces.grids == 1
    assert len(pieces.starts) == 51
    assert len(pieces) == 20 * 51
