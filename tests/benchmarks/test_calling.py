"""Jobs of peers: what was late once is not tried with more rows, and nothing else is given up."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers import calling
from benchmarks.peers.calling import Job

SECONDS_PER_ROW = 1e-5


@pytest.fixture
def asked(monkeypatch):
    """Let a runner be late on 200 values from 100,000 rows on, and return what it was asked."""
    jobs = []

    class Runner:
        def __init__(self, peer):
            self.used = 0.0

        def ask(self, job, folder, limit):
            jobs.append(job)
            self.used += SECONDS_PER_ROW * job.rows
            if job.tags["values"] == 200 and job.rows >= 100_000:
                return {"failed": "over 75 s", "late": True}
            return {"fit": 0.1, "p": np.zeros(1)}

        def spent(self):
            return self.used

        def stop(self):
            pass

    monkeypatch.setattr(calling, "_Runner", Runner)
    return jobs


def test_late_with_many_values_says_nothing_of_none(asked):
    jobs = [
        Job(
            "mcgrad",
            "default",
            Path(),
            Path(),
            rows,
            ("field",) if values else (),
            tags={"values": values, "seed": seed},
        )
        for rows in (10_000, 100_000, 1_000_000)
        for values in (0, 200)
        for seed in (0, 1)
    ]
    calling.run(jobs, 75.0)
    for job in jobs:
        late = job.tags["values"] == 200 and job.rows >= 100_000
        first = job.rows == 100_000 and job.tags["seed"] == 0
        expected = ("over 75 s" if first else "not tried: late at 100,000 rows") if late else None
        assert job.failed == expected
    assert len(asked) == 9


def test_a_size_is_not_tried_where_the_pace_of_fewer_rows_is_too_slow(asked):
    jobs = [
        Job("mcgrad", "default", Path(), Path(), rows, tags={"values": 0}) for rows in (10_000, 1_000_000, 10_000_000)
    ]
    calling.run(jobs, 75.0)
    assert [job.failed for job in jobs] == [None, None, "not tried: 100 s at the pace of fewer rows"]
    assert len(asked) == 2
