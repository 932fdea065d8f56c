"""The package as a whole: light to import, light to serve, fast for one row, and the sketch as good as the rows."""

import ast
import subprocess
import sys
import textwrap
import timeit
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import mcnet
from mcnet.calibrators.methods import calibrator_class
from mcnet.datasets.simulator import SimulatedField, simulate
from mcnet.rows.spec import DEFAULT_RESOLUTION

HEAVY = ("torch", "sklearn", "polars", "pandas", "pyarrow")


def run(code, **variables):
    """Run code in a fresh interpreter and return what it printed."""
    given = "\n".join(f"{name} = {value!r}" for name, value in variables.items())
    done = subprocess.run(
        [sys.executable, "-c", given + "\n" + textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    rng = np.random.default_rng(0)
    score, field = rng.random(5_000), rng.choice(["NL", "FR", "ES"], 5_000)
    path = tmp_path_factory.mktemp("models") / "model.json"
    mcnet.PlattField().fit(score, rng.random(5_000) < score, field={"land": field}).save(path)
    return str(path)


def test_importing_mcnet_loads_nothing_heavy():
    loaded = run(
        "import sys, mcnet; print([m for m in NAMES if m in sys.modules])", NAMES=(*HEAVY, "scipy", "numba", "numpy")
    )
    assert loaded == "[]"


@pytest.mark.parametrize("name", ["BayesMCNet", "PlattField", "Isotonic", "CalibrationModel", "Sketch", "load"])
def test_a_class_is_there_before_scipy_and_tables_are_loaded(name):
    code = """
    import sys, mcnet
    getattr(mcnet, NAME)
    print([m for m in NAMES if m in sys.modules])
    """
    loads_later = (*HEAVY, "numba", "scipy.special", "scipy.linalg", "scipy.optimize", "scipy.interpolate", "rich")
    assert run(code, NAME=name, NAMES=loads_later) == "[]"


def test_a_fit_on_the_command_line_loads_only_what_it_uses(tmp_path):
    rng = np.random.default_rng(0)
    score = rng.random(1_000)
    rows = np.column_stack([score, rng.random(1_000) < score, rng.integers(0, 3, 1_000)])
    log = tmp_path / "log.csv"
    np.savetxt(log, rows, fmt=["%.6f", "%d", "%d"], delimiter=",", header="score,label,land", comments="")
    code = """
    import sys
    from mcnet.cli.run import run
    assert run(["fit", LOG, "--score", "score", "--label", "label", "--field", "land", "-o", LOG + ".json", "-q"]) == 0
    print([m for m in NAMES if m in sys.modules])
    """
    unused = (
        "torch",
        "sklearn",
        "pandas",
        "pyarrow",
        "numba",
        "plotly",
        "scipy.stats",
        "mcnet.networks",
        "mcnet.metrics",
    )
    assert run(code, LOG=str(log), NAMES=unused) == "[]"


def test_a_numba_that_cannot_be_imported_is_skipped_with_one_warning(tmp_path):
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba" / "__init__.py").write_text("raise ImportError('Numba needs NumPy 2.3 or less')")
    code = """
    import sys
    import warnings
    sys.path.insert(0, FOLDER)
    import numpy as np
    import mcnet
    rng = np.random.default_rng(0)
    score, field = rng.random(150_000), rng.integers(0, 3, 150_000).astype(float)
    label = rng.random(150_000) < score
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        calibrator = mcnet.PlattField().fit(score[:1000], label[:1000], field=field[:1000])
        calibrator.predict(score[:1000], field=field[:1000])
        assert not caught, "few rows need no compiler"
        calibrator = mcnet.PlattField().fit(score, label, field=field)
        p = calibrator.predict(score, field=field)
    assert (p[:2000] == calibrator.predict(score[:2000], field=field[:2000])).all()
    print(*[warning.message for warning in caught], sep="\\n")
    """
    said = run(code, FOLDER=str(tmp_path))
    assert said == (
        "numba is installed but cannot be imported (ImportError: Numba needs NumPy 2.3 or less); "
        "mcnet continues with NumPy only, which is slower"
    )


@pytest.mark.parametrize("rows", [1, 1_000, 150_000])
@pytest.mark.parametrize("field", ["['NL'] * ROWS", "np.array(['NL', 'XX'] * ROWS)[:ROWS]", "{'land': ['NL'] * ROWS}"])
def test_serving_a_saved_model_loads_nothing_heavy(model, rows, field):
    code = f"""
    import sys
    import numpy as np
    import mcnet
    cal = mcnet.load(PATH)
    p = cal.predict(np.linspace(0, 1, ROWS), field={field})
    assert p.shape == (ROWS,) and 0 < p.min() <= p.max() < 1
    print([m for m in NAMES if m in sys.modules])
    """
    assert run(code, PATH=model, ROWS=rows, NAMES=HEAVY) == "[]"


def test_large_arrays_are_served_where_numba_has_no_place_for_its_cache(model):
    code = """
    import numpy as np
    from numba.core import caching
    for kind in (caching.CacheImpl, caching.CompileResultCacheImpl):
        kind._locator_classes = []
    import mcnet
    cal = mcnet.load(PATH)
    scores = np.linspace(0, 1, 60_000)
    field = np.zeros(60_000, dtype=np.int32)
    p = cal.predict(scores, field)
    print((p[:100] == cal.predict(scores[:100], field[:100])).all())
    """
    assert run(code, PATH=model) == "True"


def test_every_public_name_is_there_and_none_is_called_like_a_package():
    packages = {path.name for path in Path(mcnet.__file__).parent.iterdir() if path.is_dir()}
    for name in mcnet.__all__:
        assert getattr(mcnet, name) is not None
        assert name not in packages
    assert dir(mcnet) == sorted(mcnet.__all__)
    stub = ast.parse(Path(mcnet.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    listed = {alias.name for found in stub.body if isinstance(found, ast.ImportFrom) for alias in found.names}
    assert set(mcnet.__all__) == listed
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        mcnet.nothing  # noqa: B018


def test_packages_are_loaded_when_they_are_first_used():
    code = """
    import sys
    import mcnet
    assert "mcnet.metrics" not in sys.modules
    assert mcnet.metrics.log_loss_difference and mcnet.datasets.__doc__ and mcnet.errors.InputError
    print(hasattr(mcnet, "nothing"), hasattr(mcnet, "_nothing"), hasattr(mcnet, "metrics.nothing"), mcnet.metrics)
    """
    assert run(code).startswith("False False False <module 'mcnet.metrics'")


@pytest.mark.parametrize(("package", "library"), [("spark", "pyspark"), ("networks.MonotonicCalibration", "torch")])
def test_a_package_without_its_extra_says_which_one_it_needs(package, library):
    code = """
    import sys
    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name == LIBRARY:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    sys.meta_path.insert(0, Absent())
    import mcnet
    found = mcnet
    try:
        for part in PACKAGE.split("."):
            found = getattr(found, part)
    except mcnet.NotSupportedError as error:
        print(error)
    """
    said = run(code, PACKAGE=package, LIBRARY=library)
    assert f"needs {library}, which is not installed; " in said


def test_one_row_takes_microseconds(model):
    loaded = mcnet.load(model)
    loaded.predict([0.2], field=["NL"])
    seconds = min(timeit.repeat(lambda: loaded.predict([0.2], field=["NL"]), number=200, repeat=10)) / 200
    assert seconds < 50e-6


def test_one_row_has_the_bits_of_many(model):
    loaded = mcnet.load(model)
    rng = np.random.default_rng(1)
    scores = np.concatenate([rng.random(300), [0.0, 1.0, 0.5]])
    field = rng.choice(np.array(["NL", "XX", None], dtype=object), len(scores)).tolist()
    expected = loaded.predict(scores, field=field)
    for score, value, p in zip(scores.tolist(), field, expected, strict=True):
        assert loaded.predict([score], field=[value])[0] == p
        assert loaded.predict(np.array([score]), field=np.array([value]))[0] == p
        assert loaded.predict((np.float64(score),), field={"land": (value,)})[0] == p


def test_many_threads_may_predict_at_once(model):
    loaded = mcnet.load(model)
    scores = np.random.default_rng(2).random(4_000)
    field = ["NL", "FR", "ES", "XX"] * 1_000
    expected = mcnet.load(model).predict(scores, field=field)

    def serve(i):
        return loaded.predict([float(scores[i])], field=[field[i]])[0]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(serve, range(4_000))) == expected.tolist()


def test_a_warning_points_to_the_line_of_the_caller():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mcnet.Platt().fit([0.1, 0.2], [0, 0])
        mcnet.PerField("platt").fit([0.1, 0.2], [0, 0], field=["a", "b"])
        mcnet.Platt().fit_sketch(mcnet.Sketch.from_rows([0.1, 0.2], [1, 1]))
    assert [w.filename for w in caught] == [__file__] * 3


@pytest.fixture(scope="module")
def period():
    log = simulate(300_000, test_rows=100_000, fields={"land": SimulatedField.zipf(4)}, rate=0.05, seed=7)
    return log.calibration(), log.test()


def held_back_losses(name, period, **settings):
    """Return the expected log-loss on held-back rows, fitted on a sketch and on the rows."""
    calibration, test = period
    uses_field = calibrator_class(name).field_use != "none"
    fields = [{"field": part.text("land")} if uses_field else {} for part in period]
    losses = []
    for resolution in (DEFAULT_RESOLUTION, "exact"):
        fitted = mcnet.calibrator(name, **settings).fit(
            calibration.score, calibration.label, resolution=resolution, **fields[0]
        )
        p = fitted.predict(test.score, **fields[1])
        losses.append(-np.mean(test.probability * np.log(p) + (1 - test.probability) * np.log1p(-p)))
    return losses


@pytest.mark.parametrize(
    "name", ["base", "offset", "platt", "temperature", "beta", "gaussian", "gamma", "offset-field", "platt-field"]
)
def test_smooth_methods_lose_nothing_by_the_sketch(name, period):
    sketch, rows = held_back_losses(name, period)
    assert sketch == pytest.approx(rows, rel=1e-5)


@pytest.mark.parametrize("name", ["histogram", "isotonic", "sir", "per-field"])
def test_methods_with_steps_lose_no_more_by_the_sketch_than_chance_moves_their_steps(name, period):
    # A step lies on the edge of a cell instead of between two rows: a shift far below what another sample would bring.
    # The shrinkage is fixed, lest two fits that differ in the last digits choose different ones.
    settings = {"shrinkage": 100.0} if name == "per-field" else {}
    sketch, rows = held_back_losses(name, period, **settings)
    assert sketch == pytest.approx(rows, rel=5e-5)
