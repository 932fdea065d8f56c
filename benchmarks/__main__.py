"""Run every benchmark: python -m benchmarks [--full]."""

import sys

from benchmarks import export_c, foundation
from benchmarks.measure import machine

if __name__ == "__main__":
    print(machine())
    foundation.main("--full" in sys.argv)
    export_c.main("--full" in sys.argv)
