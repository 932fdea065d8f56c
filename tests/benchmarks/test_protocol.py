"""What every runner measures is the same for all, and on more than one row."""

import numpy as np

from benchmarks.peers.protocol import SERVED, Columns, Method, latency


class Noting(Method):
    """Notes the row it is asked for."""

    def __init__(self):
        self.asked = []

    def predict(self, rows):
        self.asked.append((rows.score.tolist(), rows.fields["field"].tolist()))


def test_one_row_is_asked_for_again_only_after_all_others():
    rows = 2 * SERVED
    method, score, field = Noting(), np.linspace(0.0, 1.0, rows), np.arange(rows).astype(str)
    assert latency(method, Columns(score, np.zeros(rows), {"field": field})) >= 0.0
    asked = method.asked[1:]  # after a first look at how long it takes
    expected = [([score[row]], [str(row)]) for row in range(SERVED)]
    assert asked
    assert asked == [expected[i % SERVED] for i in range(len(asked))]


def test_fewer_rows_than_are_served_will_do():
    columns = Columns(np.array([0.1, 0.2]), np.zeros(2), {"field": np.array(["a", "b"])})
    assert latency(Noting(), columns) >= 0.0
