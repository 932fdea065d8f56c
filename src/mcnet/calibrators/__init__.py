"""Sketch to fitted calibrator: one file a method, one base class, one registry."""
