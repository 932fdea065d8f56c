"""Benchmarks: mcnet beside its peers on the same rows in the same run, printed as ratios."""
