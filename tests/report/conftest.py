"""A small comparison with its sketch and periods, made once for all tests of the report."""

from dataclasses import dataclass

import numpy as np
import pytest

from mcnet.datasets.simulator import SimulatedField, simulate
from mcnet.selection import Selection, select
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.views import sketches_by

# Names that a page or Plotly could take for markup.
VALUES = ("NL", "<b>bold</b>", "R&D", "</script>")


@dataclass(frozen=True)
class Case:
    selection: Selection
    sketch: Sketch
    periods: dict[str, Sketch]


@pytest.fixture(scope="session")
def case() -> Case:
    field = SimulatedField(shares=(0.4, 0.3, 0.2, 0.1), names=VALUES, shift_spread=0.4)
    log = simulate(60_000, fields={"country": field}, seed=4)
    days = np.repeat(["mon", "tue", "wed"], 20_000)
    full = Sketch.from_rows(log.score, log.label, field={"country": log.text("country"), "day": days}, folds=4)
    sketch = full.only("country")
    return Case(select(sketch, methods=["base", "histogram", "platt-field"]), sketch, sketches_by(full, "day"))


@pytest.fixture(scope="session")
def two_fields() -> Case:
    fields = {"country": SimulatedField.zipf(3, names=("NL", "FR", "PL")), "source": SimulatedField.zipf(4)}
    log = simulate(30_000, fields=fields, seed=5)
    sketch = Sketch.from_rows(log.score, log.label, field={name: log.text(name) for name in fields}, folds=3)
    return Case(select(sketch, methods=["base", "platt-field"]), sketch, {})
