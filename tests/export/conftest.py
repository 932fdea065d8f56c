"""Models that are hard on an export, and rows that are hard on a model."""

from itertools import product

import numpy as np
import pytest
from hypothesis import strategies as st

from mcnet.curves.compile import family_curves
from mcnet.curves.curves import Curves
from mcnet.curves.family import CurveFamily
from mcnet.model.model import CalibrationModel
from mcnet.rows.contexts import ANY, Contexts

NASTY_TEXTS = (
    "'; DROP TABLE x; --",
    "",
    "(missing) ",
    "a\\b",
    "\\",
    'it\'s "quoted" `so`',
    "é漢🙂",
    "line\nbreak\ttab",
    "??/ ??= */ /* // --",
    "%s {x} $name",
    "7",
    "-7",
    "true",
    "NULL",
    "x" * 300,
)
NASTY_NAMES = (
    "country",
    "score",
    "calibrated",
    "table",
    "it's",
    'a"b',
    "漢字",
    "*/ x",
    "int",
    "curve",
    "a/*b",
    "int_length",
)
EDGES = (0.0, 1e-300, 9e-8, 1e-7, np.nextafter(1e-7, 1.0), 0.25, 0.5, 1.0 - 1e-7, np.nextafter(1.0 - 1e-7, 1.0), 1.0)


@st.composite
def _nasty_models(draw):
    names = draw(st.lists(st.sampled_from(NASTY_NAMES), max_size=3, unique=True))
    texts = st.sampled_from((*NASTY_TEXTS, None))
    # A field of no known value is one that a fit has left out.
    values = tuple(tuple(draw(st.lists(texts, max_size=4, unique=True))) for _ in names)
    combinations = list(product(*[range(ANY, len(known)) for known in values]))
    chosen = draw(st.lists(st.sampled_from(combinations), max_size=8, unique=True)) if names else []
    contexts = Contexts.none()
    if names:
        contexts = Contexts(tuple(names), values, np.array(chosen, dtype=np.int32).reshape(len(chosen), len(names)))
    monotone = draw(st.booleans())
    scores = st.one_of(st.sampled_from(EDGES), st.floats(1e-9, 1.0))
    grids = draw(st.lists(st.lists(scores, min_size=1, max_size=12), min_size=1, max_size=3))
    pairs = []
    for _ in range(len(chosen) + 1):
        knots = np.sort(draw(st.sampled_from(grids)))
        probabilities = draw(
            st.lists(st.floats(1e-12, 1.0 - 1e-12), min_size=len(knots), max_size=len(knots)).map(np.array)
        )
        pairs.append((knots, np.sort(probabilities) if monotone else probabilities))
    history = {"note": "*/ ??/ -- '\" é\n"}
    return CalibrationModel("isotonic", {}, contexts, Curves.of(pairs), monotone, provenance=history)


@pytest.fixture(scope="session")
def nasty_models():
    return _nasty_models()


def _random_curve(rng, knots, monotone=True):
    grid = np.sort(1.0 / (1.0 + np.exp(-rng.uniform(-14.0, 6.0, knots))))
    jumps = rng.random(knots - 1) < 0.3
    grid[1:][jumps] = grid[:-1][jumps]
    grid = np.sort(grid)
    probabilities = rng.uniform(1e-6, 1.0 - 1e-6, knots)
    return grid, np.sort(probabilities) if monotone else probabilities


def _large_model(kind):
    rng = np.random.default_rng(5)
    if kind == "no field":
        return CalibrationModel("isotonic", {}, Contexts.none(), Curves.of([_random_curve(rng, 700)]))
    if kind == "falling":
        contexts = Contexts(("country",), (("NL", "US", None),), np.arange(3, dtype=np.int32)[:, None])
        return CalibrationModel(
            "histogram", {}, contexts, Curves.of([_random_curve(rng, 90, monotone=False) for _ in range(4)]), False
        )
    if kind == "two fields":
        values = ((*sorted(NASTY_TEXTS), None), ("1", "2", "3", None))
        combinations = list(product(range(ANY, len(values[0])), range(ANY, 4)))
        chosen = [combinations[i] for i in rng.permutation(len(combinations))[:50]]
        curves = Curves.of([_random_curve(rng, int(rng.integers(1, 120)) + 1) for _ in range(51)])
        return CalibrationModel(
            "mcnet", {}, Contexts(("country", "source"), values, np.array(chosen, dtype=np.int32)), curves
        )
    numbers = tuple(sorted(str(i) for i in range(1000)))
    contexts = Contexts(("advertiser",), (numbers,), np.arange(1000, dtype=np.int32)[:, None])
    return CalibrationModel("mcnet", {}, contexts, Curves.of([_random_curve(rng, 30) for _ in range(1001)]))


@pytest.fixture(scope="session")
def two_field_model():
    return _large_model("two fields")


def _family_model(sizes=(4, 5), curves=6):
    """A model that has curves for a few combinations, with isotonic parts as it were, and sums up all others."""
    rng = np.random.default_rng(2)
    values = tuple((*(f"v{i:03d}" for i in range(size - 1)), None) for size in sizes)
    family = CurveFamily(
        np.linspace(-6.0, 1.0, 8),
        4,
        -2.5,
        np.full(9, -0.2),
        np.array([1.0, 0.0]),
        np.column_stack([np.zeros(9), np.linspace(-1.0, 1.0, 9)]),
        tuple(rng.normal(0.0, 0.4, (size, 2)) for size in sizes),
    )
    table = np.column_stack([rng.integers(ANY, size, 4 * curves) for size in sizes]).astype(np.int32)
    table = np.unique(table[(table != ANY).any(axis=1)], axis=0)[:curves]
    contexts = Contexts(("country", "source"), values, table)
    curves = family_curves(family, table)[0]
    return CalibrationModel("mcnet", {}, contexts, curves, family=family, evaluation="sum")


@pytest.fixture(scope="session")
def family_model():
    return _family_model()


@pytest.fixture(scope="session")
def vast_model():
    return _family_model(sizes=(400, 500))


@pytest.fixture(scope="session", params=["no field", "falling", "two fields", "1,000 contexts"])
def large_model(request):
    return _large_model(request.param)


def _rows(model, number, seed=0):
    """Scores at and around every edge, the fields that the model needs with seen, unseen and missing values."""
    rng = np.random.default_rng(seed)
    edges = np.concatenate([model.curves.knots, EDGES])
    edges = np.concatenate([edges, np.nextafter(edges, 0.0), np.nextafter(edges, 1.0)])
    scores = 1.0 / (1.0 + np.exp(-rng.normal(-4.0, 3.0, number)))
    at_edges = rng.random(number) < 0.3
    scores[at_edges] = rng.choice(np.clip(edges, 0.0, 1.0), at_edges.sum())
    fields = {}
    for name, values in zip(model.contexts.names, model.contexts.values, strict=True):
        if name not in model.needed_fields:
            continue
        known = np.array([*values, None, "never seen", "never seen either"], dtype=object)
        fields[name] = known[rng.integers(0, len(known), number)]
    return scores, fields


@pytest.fixture(scope="session")
def rows_for():
    return _rows


@pytest.fixture(scope="session")
def predicted():
    return lambda model, scores, fields: model.predict(scores, fields or None)
