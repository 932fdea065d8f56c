"""Run every benchmark: python -m benchmarks [--full]."""

import sys

from benchmarks import foundation
from benchmarks.measure import machine

if __name__ == "__main__":
    print(machine())
    foundation.main("--full" in sys.argv)
