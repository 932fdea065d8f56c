"""The settings of a head: one value, whoever gives it."""

import re

import pytest

import mcnet
from mcnet.errors import InputError
from mcnet.store.settings import SETTINGS, HeadSettings

REFUSED = {
    "score": 3,
    "label": "",
    "field": 3,
    "fields": "all",
    "exclude": [""],
    "weight": 1.0,
    "value": 0,
    "value_per_positive": 2.5,
    "time": [],
    "every": "soon",
    "score_type": "logits",
    "negatives_kept": 0.0,
    "resolution": 0,
    "delay": -1,
    "method": 3,
    "look": 1,
    "max_shift": -0.1,
    "tolerance": float("inf"),
    "min_periods": 1,
    "alpha": 2.0,
    "key_days": 0,
}


def test_every_setting_has_a_value_that_is_refused():
    assert REFUSED.keys() == SETTINGS.keys()


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_setting_cannot_be_is_refused(name):
    with pytest.raises(InputError, match=name if name != "every" else "'soon' is not a period"):
        HeadSettings(**{name: REFUSED[name]})


def test_what_is_given_is_told_from_what_is_usual():
    mine = HeadSettings(field="country", max_shift=0.5, weight=None)
    assert mine.given == {"field": ("country",), "max_shift": 0.5}
    assert (mine.tolerance, mine.min_periods) == (0.0, 3)
    assert HeadSettings(max_shift=0.2).changed_by(mine).given["max_shift"] == 0.5
    assert HeadSettings(max_shift=0.2).changed_by(HeadSettings()).max_shift == 0.2


def test_one_way_to_say_it_takes_the_place_of_the_other():
    assert HeadSettings(value=2.5).changed_by(HeadSettings(value_per_positive="paid")).value is None
    chosen = HeadSettings(fields="auto", field="country")
    assert chosen.changed_by(HeadSettings(field="site")).given == {"field": ("site",)}
    with pytest.raises(InputError, match="both given"):
        HeadSettings(value=2.5, value_per_positive="paid")


def test_what_is_given_twice_and_differently_is_refused(tmp_path):
    settings = HeadSettings(score="pctr", label="click")
    assert HeadSettings.of({"score": "pctr", "weight": "w"}, settings).weight == "w"
    with pytest.raises(
        InputError, match=re.escape("score is given twice, by settings and by its name: 'pctr' and 'p'")
    ):
        mcnet.update(tmp_path / "ads.db", settings=settings, score="p")


def test_an_unknown_name_is_refused_by_the_nearest_one(tmp_path):
    with pytest.raises(InputError, match="no setting 'scroe'; did you mean score"):
        mcnet.update(tmp_path / "ads.db", scroe="pctr")
    with pytest.raises(InputError, match="no setting 'resolutions'"):
        mcnet.Store(tmp_path / "ads.db").configure(resolutions=3)


def test_settings_that_are_no_settings_are_refused(tmp_path):
    with pytest.raises(InputError, match="HeadSettings"):
        mcnet.update(tmp_path / "ads.db", "log.parquet", {"score": "pctr"})
    assert not list(tmp_path.iterdir())
