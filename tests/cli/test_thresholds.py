"""Thresholds on field values: none that is broken passes."""

import numpy as np
import pytest

import mcnet as library
from mcnet.cli.thresholds import UNSEEN, Figures, broken_thresholds, parse_thresholds, threshold_names
from mcnet.errors import InputError


def broken(words, p, y, **fields):
    found = library.evaluate(p, y, field=fields)
    return broken_thresholds(parse_thresholds(words), Figures(found))


def test_any_field_is_any_field_also_if_one_is_called_field():
    p, y = np.full(400, 0.25), np.tile([0, 0, 0, 1], 100)
    g = np.where(np.arange(400) % 4 < 3, "mostly", "rest")  # all positives are in the rest
    g[3] = "mostly"
    found = broken(["field.pcoc>1.5"], p, y, field=["one"] * 400, g=g.tolist())
    assert found == ["field.pcoc is 75.25 for g mostly, which is > 1.5"]


def test_expected_positives_that_never_came_break_every_upper_threshold():
    p, y = np.full(2400, 0.175), np.tile([0, 1, 0, 0, 0, 0], 400)
    silent = np.where(np.arange(2400) % 2 == 0, "silent", "loud").tolist()
    for word in ("field.pcoc>5 where rows>500", "country.pcoc>=5", "field.pcoc.low>5"):
        assert "silent" in broken([word], p, y, country=silent)[0]
    assert broken(["field.pcoc>5 where rows>1200", "field.pcoc<0.4"], p, y, country=silent) == []


def test_unseen_has_no_volume():
    with pytest.raises(InputError, match="unseen is a share of all rows and has no volume; leave out where"):
        parse_thresholds(["unseen>0.05 where rows>10"], [*threshold_names(), UNSEEN])
