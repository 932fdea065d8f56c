"""Seasons: levels by the place in the day and the week, and a tracker that follows them."""

import json

import numpy as np
import pytest
from scipy.special import xlogy

import mcnet
from mcnet.datasets.worlds import make_world
from mcnet.tracking.memories import Seasons, season_lengths
from mcnet.tracking.tracker_file import Reader, Writer


@pytest.mark.parametrize(
    ("seconds", "lengths"),
    [(60.0, (1440, 0)), (900.0, (96, 672)), (3600.0, (24, 168)), (25_000.0, (0, 0)), (86_400.0, (0, 7)), (6e5, (0, 0))],
)
def test_a_season_is_a_whole_number_of_periods(seconds, lengths):
    assert season_lengths(seconds) == lengths


def test_offsets_are_differences_to_the_usual_level_and_shrink_where_periods_are_few():
    seasons = Seasons().of_lengths((0, 7))
    assert seasons.offsets(3.0).tolist() == [0.0, 0.0]
    for t in range(70):
        seasons = seasons.learnt(float(t), 1.0, 2.0 + (t % 7 == 3), 1000.0)
    assert seasons.offsets(73.0)[1] == pytest.approx(6 / 7, abs=0.01)
    assert seasons.offsets(74.0)[1] == pytest.approx(-1 / 7, abs=0.01)
    few = Seasons().of_lengths((0, 7)).learnt(3.0, 1.0, 1.0, 4.0).learnt(4.0, 1.0, 0.0, 4.0)
    assert few.offsets(3.0)[1] == pytest.approx(0.5 * 4.0 / (4.0 + 16.0), abs=0.01)


def test_seasons_of_the_same_length_keep_what_they_know():
    seasons = Seasons().of_lengths((24, 168)).learnt(0.0, 1.0, 1.0, 5.0).learnt(1.0, 1.0, 0.0, 5.0)
    changed = seasons.of_lengths((24, 7))
    assert changed.offsets(0.0)[0] == seasons.offsets(0.0)[0] > 0.0
    assert changed.offsets(0.0)[1] == 0.0
    again = Reader(NotImplemented).read(json.loads(json.dumps(Writer().written(seasons))))
    assert again.offsets(24.0).tolist() == seasons.offsets(24.0).tolist()


def test_a_weekly_season_is_followed():
    world, tracker, found = make_world("weekly", seed=1, periods=56, rows=600, values=4), mcnet.Tracker(), []
    past = None
    for t in range(56):
        rows = world.period(t)
        if t >= 49:
            static = mcnet.BayesMCNet(isotonic_share=0.0).fit_sketch(past)
            said = [one.predict(rows.score, rows.field) for one in (tracker, static)]
            p = rows.probability
            found.append([np.mean(xlogy(p, p / q) + xlogy(1 - p, (1 - p) / (1 - q))) for q in said])
        tracker.update(rows.score, rows.label, field=rows.field, period=np.datetime64("2026-01-01") + t)
        new = mcnet.Sketch.from_rows(rows.score, rows.label, field=rows.field, resolution=64)
        past = new if past is None else past + new
    ours, static = np.mean(found, axis=0)
    assert ours < 0.4 * static
    assert set(tracker.explain().part("season")) == {"season of 7 periods"}


def test_periods_without_rows_move_the_season_of_the_coming_one():
    rng, tracker = np.random.default_rng(3), mcnet.Tracker()

    def update(t, rows):
        score = rng.uniform(0.05, 0.2, rows)
        truth = score * (0.95 if t % 7 == 0 else 0.5)
        tracker.update(score, rng.random(rows) < truth, period=np.datetime64("2026-01-01") + t)

    for t in range(49):
        update(t, 1500)
    high = tracker.predict([0.1])[0]
    update(49, 0)
    low = tracker.predict([0.1])[0]
    assert low < 0.8 * high, "the day after is of another season"
    for t in range(50, 56):
        update(t, 0)
    assert tracker.predict([0.1])[0] == pytest.approx(high, rel=0.02)
