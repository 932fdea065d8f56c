"""Wrong use of the public names: a mistake that is easy to make has one error in plain words."""

import numpy as np
import polars as pl
import pytest

import mcnet

RNG = np.random.default_rng(1)
SCORE = RNG.uniform(0.02, 0.6, 500)
LABEL = (RNG.random(500) < SCORE).astype(int)
TABLE = pl.DataFrame({"score": SCORE, "label": LABEL})


@pytest.fixture(scope="module")
def fitted():
    return mcnet.Platt().fit(SCORE, LABEL)


@pytest.fixture(scope="module")
def sketch():
    return mcnet.Sketch.from_rows(SCORE, LABEL)


def test_a_calibrator_and_a_file_stand_for_their_model(fitted, sketch, tmp_path):
    fitted.save(tmp_path / "model.json")
    same = (fitted, fitted.model_, tmp_path / "model.json", str(tmp_path / "model.json"))
    assert len({mcnet.evaluate_sketch(model, sketch).pcoc for model in same}) == 1
    assert [mcnet.diff(fitted, model).largest for model in same] == [0.0] * 4
    registry = mcnet.Registry(tmp_path / "registry")
    assert {registry.add(model).number for model in same} == {1}
    assert registry.add((tmp_path / "model.json").as_uri()).number == 1


def test_what_is_no_model_is_refused_by_name(fitted, sketch, tmp_path):
    for model in (None, 3, sketch, mcnet.Tracker()):
        with pytest.raises(mcnet.InputError, match=f"{type(model).__name__} cannot be compared; pass a model"):
            mcnet.diff(fitted, model)
        with pytest.raises(mcnet.InputError, match="cannot be a version; pass a model"):
            mcnet.Registry(tmp_path / "registry").add(model)
    with pytest.raises(mcnet.NotFittedError, match="not fitted yet"):
        mcnet.diff(fitted, mcnet.Platt())
    with pytest.raises(mcnet.InputError, match="NoneType cannot be evaluated"):
        mcnet.evaluate_sketch(None, sketch)
    assert not (tmp_path / "registry").exists()


def test_what_is_no_sketch_is_refused_by_name(fitted, sketch):
    with pytest.raises(mcnet.InputError, match="the calibrator comes first, then a sketch"):
        mcnet.evaluate_sketch(sketch, fitted)
    with pytest.raises(mcnet.InputError, match=r"make a Sketch of them with mcnet\.scan"):
        mcnet.diff(fitted, fitted, TABLE)


def test_a_tracker_names_what_goes_by_position(sketch):
    for given in ((SCORE, LABEL, LABEL), (TABLE,)):
        with pytest.raises(mcnet.InputError, match="takes scores and labels by position; name the rest"):
            mcnet.Tracker().update(*given, period=0)
    with pytest.raises(mcnet.InputError, match="pass it to update_sketch"):
        mcnet.Tracker().update(sketch, period=0)


@pytest.mark.parametrize("made", [mcnet.Journal, mcnet.Registry, mcnet.load, mcnet.Sketch.load, mcnet.Tracker.load])
def test_what_is_no_path_is_refused_by_name(made, fitted):
    for given in (None, 3, fitted, TABLE):
        with pytest.raises(mcnet.InputError, match=f"{type(given).__name__} was given, not the path of a "):
            made(given)


def test_other_files_are_said_to_be_what_they_are(sketch, tmp_path):
    sketch.save(tmp_path / "it.parquet")
    with pytest.raises(mcnet.FileFormatError, match=r"is a Parquet file, not a model; mcnet\.Sketch\.load"):
        mcnet.load(tmp_path / "it.parquet")
    with pytest.raises(mcnet.InputError, match="is a folder, not a model"):
        mcnet.load(tmp_path)
    with pytest.raises(mcnet.FileFormatError, match="is not a store"):
        mcnet.Journal(tmp_path / "it.parquet")
    with pytest.raises(mcnet.FileFormatError, match="is not a store"):
        mcnet.Registry(tmp_path / "it.parquet")


def test_a_method_is_named_by_a_text():
    for given in (None, mcnet.Platt, mcnet.Platt(), ["platt"]):
        with pytest.raises(mcnet.InputError, match="a method is named by a text"):
            mcnet.calibrator(given)


def test_a_store_given_as_a_model_is_told_apart(fitted, tmp_path):
    mcnet.Store(tmp_path / "ads.db").versions("ctr").add(fitted.model_)
    with pytest.raises(mcnet.InputError, match=r"a store was given, not a model; mcnet\.Store\(…\)\.load\(\)"):
        mcnet.load(tmp_path / "ads.db")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fields": ["city"]}, r"fields is \['city'\]; it takes \"auto\" alone; name fields with field="),
        ({"fields": "auto", "field": "city"}, "fields and field were both given"),
        ({"exclude": ["bid"]}, 'exclude leaves columns out of a search for fields; pass fields="auto", too'),
    ],
)
def test_a_search_for_fields_is_asked_for_in_one_way(options, message):
    rows = {"score": [0.1, 0.2], "label": [0, 1], "city": ["a", "b"]}
    with pytest.raises(mcnet.InputError, match=message):
        mcnet.scan(pl.DataFrame(rows), score="score", label="label", **options)
