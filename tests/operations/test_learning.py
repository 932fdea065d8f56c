import numpy as np
import pytest

from mcnet.metrics.calibration_error import pcoc
from mcnet.metrics.sums import group_sums
from mcnet.operations.learning import period_pcoc
from mcnet.sketch.sketch import Sketch


@pytest.mark.filterwarnings("ignore::mcnet.errors.CalibrationWarning")
@pytest.mark.parametrize("positives", [0, 1, 40, 2_000])
def test_the_pcoc_of_a_period_is_that_of_its_cells(positives):
    rng = np.random.default_rng(positives)
    sketch = Sketch.from_rows(rng.uniform(0.01, 0.9, 2_000), np.arange(2_000) < positives, weight=rng.random(2_000))
    probability = sketch.score**1.1
    found = pcoc(group_sums(probability, sketch.rate, None, sketch.weight))
    usual = [
        None if not np.isfinite(end) else pytest.approx(end, rel=1e-9) for end in (found.value, found.low, found.high)
    ]
    assert list(period_pcoc(sketch, probability)) == usual
