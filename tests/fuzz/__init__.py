"""Attacks on formats, files, signals, weights and curves: a short form in the suite, a long one as `make soak`.

An attack is a function `attack(rng, folder)` that tries one random case. It raises AssertionError if mcnet gives a
wrong answer, crashes with anything but its own errors, or leaves a damaged file; it returns what it met.
"""
