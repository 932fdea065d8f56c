"""Print the processor features that NumPy chooses loops by here, to be switched off for a second run of the tests."""

from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

print(" ".join(name for name in __cpu_dispatch__ if __cpu_features__.get(name)))
