"""Monotone networks and how they are trained, with torch."""
