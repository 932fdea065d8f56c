"""Sketch to fitted calibrator: one file per method, one base class, one registry."""
