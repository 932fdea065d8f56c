"""Models in MLflow, with a real file store: logged, loaded as pyfunc and as our own, without torch."""

import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import mcnet
from mcnet._shared.messages import has_extra
from mcnet.errors import InputError

pytestmark = [
    pytest.mark.skipif(not has_extra("mlflow"), reason="mlflow is not installed: pip install '.[mlflow]'"),
    # What MLflow itself warns of is not ours to change.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(1)
    rows = pd.DataFrame(
        {
            "pctr": rng.uniform(0.02, 0.4, 4000),
            "country": rng.choice(np.array(["NL", "FR", None], dtype=object), 4000),
            "slot": rng.choice(["1", "2"], 4000),
        }
    )
    label = rng.random(4000) < 0.6 * rows["pctr"]
    field = {"country": rows["country"], "slot": rows["slot"]}
    return mcnet.PerField("platt", shrinkage=30).fit(rows["pctr"], label, field=field).model_


@pytest.fixture
def store(tmp_path, monkeypatch):
    import mlflow

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file://{tmp_path}/mlruns")
    yield tmp_path
    mlflow.set_tracking_uri(None)


ROWS = pd.DataFrame(
    {"score": [0.05, 0.2, 0.3], "country": ["NL", None, "BE"], "slot": ["1", "2", "1"]}, index=[7, 3, 5]
)


def test_a_logged_model_predicts_as_the_model_does(model, store):
    import mlflow

    import mcnet.mlflow

    with mlflow.start_run():
        logged = mcnet.mlflow.log_model(model)
    served = mlflow.pyfunc.load_model(logged.model_uri)
    found = served.predict(ROWS)
    expected = model.predict(ROWS["score"], field={"country": ROWS["country"], "slot": ROWS["slot"]})
    assert found["calibrated"].tolist() == expected.tolist()
    assert found.index.tolist() == [7, 3, 5]
    whole_numbers = served.predict(ROWS.assign(slot=[1, 2, 1]))
    assert whole_numbers["calibrated"].tolist() == expected.tolist()
    again = mcnet.mlflow.load_model(logged.model_uri)
    assert isinstance(again, mcnet.CalibrationModel)
    assert again.predict_one(0.2, ("NL", 1)) == model.predict_one(0.2, ("NL", 1))


def test_signature_example_and_requirements_are_with_the_model(model, store):
    import mlflow
    from mlflow.models import Model

    import mcnet.mlflow

    mcnet.mlflow.save_model(model, store / "saved", metadata={"team": "ads"})
    described = Model.load(str(store / "saved"))
    assert described.signature.inputs.input_names() == ["score", "country", "slot"]
    assert described.signature.outputs.input_names() == ["calibrated"]
    assert described.metadata["team"] == "ads"
    assert described.metadata["mcnet"]["checksum"].startswith("sha256:")
    assert (store / "saved" / "requirements.txt").read_text().splitlines()[-1] == f"mcnet[mlflow]=={mcnet.__version__}"
    example = described.load_input_example(str(store / "saved"))
    assert mlflow.pyfunc.load_model(str(store / "saved")).predict(example)["calibrated"].between(0, 1).all()


def test_loading_needs_no_torch(model, store):
    import mcnet.mlflow

    mcnet.mlflow.save_model(model, store / "saved")
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('torch', 'sklearn', 'polars')))  # as if they were not installed\n"
        "import mlflow.pyfunc, pandas as pd\n"
        f"served = mlflow.pyfunc.load_model({str(store / 'saved')!r})\n"
        "served.predict(pd.DataFrame({'score': [0.1], 'country': ['NL'], 'slot': ['1']}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_model_file_and_a_calibrator_are_accepted_and_other_things_are_not(model, store):
    import mcnet.mlflow

    score = np.linspace(0.1, 0.9, 50)
    calibrator = mcnet.Platt().fit(score, score > 0.4)
    calibrator.save(store / "model.json")
    for place, given in enumerate((calibrator, store / "model.json")):
        mcnet.mlflow.save_model(given, store / f"saved{place}")
        assert mcnet.mlflow.load_model(str(store / f"saved{place}")).method == "platt"
    with pytest.raises(InputError, match="dict cannot be logged; pass a model"):
        mcnet.mlflow.save_model({}, store / "other")
    with pytest.raises(InputError, match="exists already"):
        mcnet.mlflow.save_model(calibrator, store / "saved0")


def test_rows_without_a_column_are_refused_in_plain_words(model):
    from mcnet.mlflow import PyfuncCalibrator

    with pytest.raises(InputError, match="lack the column 'slot'"):
        PyfuncCalibrator(model).predict(ROWS.drop(columns="slot"))


def block(title):
    page = (Path(__file__).parents[2] / "docs" / "platforms.md").read_text(encoding="utf-8")
    return re.search(rf'^```python title="{re.escape(title)}"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL)[1]


@pytest.fixture
def registry(store):
    rng = np.random.default_rng(2)
    score, country = rng.uniform(0.02, 0.4, 2000), rng.choice(["NL", "FR"], 2000)
    calibrator = mcnet.PlattField().fit(score, rng.random(2000) < score, field={"country": country})
    mcnet.Registry("ads.db").add(calibrator.model_)
    return mcnet.Registry("ads.db")


def test_the_example_of_the_page_runs(registry, capsys):
    exec(compile(block("log_to_mlflow.py"), "log_to_mlflow.py", "exec"), {})
    assert "calibrated" in capsys.readouterr().out


def test_the_bento_of_the_page_calibrates(registry, monkeypatch):
    """Its decorators are left out here: what is tested is what the class does with its columns."""
    bentoml = types.ModuleType("bentoml")
    bentoml.service = lambda **_: lambda made: made
    bentoml.api = lambda function: function
    monkeypatch.setitem(sys.modules, "bentoml", bentoml)
    names = {}
    exec(compile(block("service.py"), "service.py", "exec"), names)
    found = names["Calibration"]().calibrate([0.1, 0.2], ["NL", "FR"])
    assert found == registry.load().predict([0.1, 0.2], field={"country": ["NL", "FR"]}).tolist()
