"""Fitted functions to monotone curves: compile, guarantee, evaluate, store."""
