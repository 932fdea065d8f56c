"""What is counted, and that few rows are counted as many are."""

import pytest

from mcnet.operations.service import calibrate
from mcnet.operations.service.metrics import HeadNumbers
from mcnet.operations.service.served import load_served
from mcnet.rows.fields import field_columns


@pytest.mark.parametrize("rows", [2, 8, 9])
def test_a_few_rows_are_answered_and_counted_as_many_are(registry, rows):
    served, numbers = load_served(registry), HeadNumbers(f"head {rows}")
    scores = [0.05 * (row + 1) for row in range(rows)]
    field = {"country": (["NL", "nowhere"] * 5)[:rows]}
    result = calibrate.calibrate_rows(served, numbers, scores, field)
    assert result.calibrated.tolist() == served.model.predict(scores, field_columns(field)).tolist()
    counted = [numbers._counts[name]._value.get() for name in ("predictions", "unseen_rows")]
    assert counted == [rows, field["country"].count("nowhere")]
