"""Monotone networks and how they are trained; the only room that imports torch."""
