"""Versions of a model: the registry with its pointer to the current one, and the difference between two models."""
