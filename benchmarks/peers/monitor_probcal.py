"""probcal's monitor on simulated days: `monitor_probcal.py OVER EFFECT DAYS WORLDS` prints the day of each alarm."""

import json
import sys
import warnings

import numpy as np
from probcal.monitor import CalibrationMonitor

PROBABILITY = np.linspace(0.005, 0.05, 6)


def first_alarm(seed: int, over: float, effect: float, days: int) -> int | None:
    """Return the day on which the monitor raises its alarm; None if it never does."""
    rng = np.random.default_rng(seed)
    weight = round(over * 1_000 / PROBABILITY.sum())
    monitor = CalibrationMonitor(alpha=0.01)
    for day in range(1, days + 1):
        odds = PROBABILITY / (1.0 - PROBABILITY) / over * np.exp(effect * rng.standard_normal())
        p = np.repeat(PROBABILITY, weight)
        if monitor.update(rng.random(len(p)) < np.repeat(odds / (1.0 + odds), weight), p).alarm:
            return day
    return None


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    over, effect, days, worlds = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    print(json.dumps([first_alarm(seed, over, effect, days) for seed in range(worlds)]))
